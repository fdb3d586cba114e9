//! Memory that peers reach.

use efa_core::memory::{Arena, Buffer, ByMessages, RemoteRead, RemoteReadWrite, RemoteWrite};
use efa_core::ring::Word;
use efa_core::soft::Profile;
use efa_core::status::CompletionStatus;
use efa_core::work::Event;
use efa_core::{Context, Error, Token};

use crate::common::puppet::Puppet;
use crate::common::{page, pair, required, slice, wait, wait_failed};
use crate::{Counted, Two, WORD};

#[test]
fn exposed_memory_is_copied_and_loaded_within_its_bounds_and_by_whole_words() {
    let two = Two::new();
    let memory = page::<_, RemoteWrite>(&two.ctx, &two.pd);
    assert_eq!((memory.len(), memory.is_empty()), (4096, false));
    assert!(memory.part(8..8).unwrap().is_empty() && !memory.part(8..9).unwrap().is_empty());
    let bytes: Vec<u8> = (0..40).collect();
    for offset in 0..2 * WORD {
        for len in [0, 1, WORD - 1, WORD, WORD + 1, 40 - offset] {
            memory.copy_in(0, &[0xAA; 64]).unwrap();
            memory.copy_in(offset, &bytes[..len]).unwrap();
            let mut all = [0; 64];
            memory.copy_out(0, &mut all).unwrap();
            let mut expected = [0xAA; 64];
            expected[offset..offset + len].copy_from_slice(&bytes[..len]);
            assert_eq!(all, expected);
            let mut part = vec![0; len];
            memory.copy_out(offset, &mut part).unwrap();
            assert_eq!(part, &bytes[..len]);
        }
    }
    let bounds = |offset, len| Error::OutOfBounds { offset, len, within: 4096 };
    assert_eq!(memory.copy_in(4095, &[0; 2]).unwrap_err(), bounds(4095, 2));
    assert_eq!(memory.copy_out(usize::MAX, &mut [0]).unwrap_err(), bounds(u64::MAX, 1));
    memory.copy_in(4096, &[]).unwrap();
    // A range that runs backwards is no empty one.
    let (from, to) = (9, 8);
    assert_eq!(memory.part(from..to).unwrap_err(), bounds(9, 0));
    assert_eq!(memory.grant_range(&two.a, from..to).unwrap_err(), bounds(9, 0));

    memory.store(8, Word::MAX - 5).unwrap();
    assert_eq!(memory.load(8).unwrap(), Word::MAX - 5);
    memory.store(4096 - WORD, 1).unwrap();
    assert_eq!(memory.load(4096).unwrap_err(), bounds(4096, WORD as u64));
    for offset in 1..WORD {
        let misaligned = Error::Misaligned { address: offset as u64, len: WORD as u64, to: WORD as u64 };
        assert_eq!(memory.load(offset).unwrap_err(), misaligned);
        assert_eq!(memory.store(offset, 0).unwrap_err(), misaligned);
    }
    assert!(memory.part(4000..4097).is_err() && memory.part(0..4096).is_ok());
}

#[test]
fn a_part_of_exposed_memory_is_copied_within_its_own_bounds_and_granted_as_it_was_registered() {
    let two = Two::new();
    let memory = page::<_, RemoteWrite>(&two.ctx, &two.pd);
    let part = memory.part(100..300).unwrap();
    let inner = part.part(50..60).unwrap();
    inner.copy_in(1, &[7; 9]).unwrap();
    let mut all = [0; 12];
    memory.copy_out(149, &mut all).unwrap();
    assert_eq!(all, [0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
    part.copy_out(50, &mut all).unwrap();
    assert_eq!(all, [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0]);
    let bounds = |offset, len, within| Error::OutOfBounds { offset, len, within };
    assert_eq!(inner.copy_in(2, &[0; 9]).unwrap_err(), bounds(2, 9, 10));
    assert_eq!(inner.copy_out(usize::MAX, &mut [0]).unwrap_err(), bounds(u64::MAX, 1, 10));
    assert_eq!(part.part(0..201).unwrap_err(), bounds(0, 201, 200));
    assert_eq!(part.part(199..201).unwrap_err(), bounds(199, 2, 200));
    // The whole of a part is granted by the part as by the region.
    let grant = inner.grant(&two.a).unwrap();
    assert_eq!(grant, memory.grant_range(&two.a, 150..160).unwrap());
    assert!(inner.access().contains(efa_core::flags::Access::REMOTE_WRITE));
    drop((part, inner));
    assert!(memory.revoke().is_ok());
}

#[test]
fn memory_that_is_not_whole_words_is_not_exposed_and_comes_back() {
    static BYTES: Arena<64> = Arena::new();
    let two = Two::new();
    let token = required::<_, RemoteWrite>(&two.ctx);
    let refused = two.pd.expose(vec![1; 2 * WORD + 1].into_boxed_slice(), token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { len, .. } if len == 2 * WORD as u64 + 1));
    assert!(refused.to_string().contains("Pages"), "{refused}");
    assert_eq!(refused.into_inner()[..], vec![1; 2 * WORD + 1]);

    let (_, odd) = BYTES.take().unwrap().split_at_mut(1);
    let refused = two.pd.expose(&mut odd[..WORD], token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { .. }));
    let (region, whole) = two.pd.register(refused.into_inner()).unwrap();
    assert_eq!(region.close(whole).unwrap().len(), WORD, "for local use any alignment will do");
}

#[test]
fn memory_that_is_not_whole_words_is_refused_whatever_the_device_would_take() {
    static BYTES: Arena<64> = Arena::new();
    let ctx = Context::open(Puppet::new(Profile::RDMA.caps()));
    let (pd, token) = (ctx.alloc_pd().unwrap(), required::<_, RemoteWrite>(&ctx));
    let refused = pd.expose(vec![1; 2 * WORD + 1].into_boxed_slice(), token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { len, .. } if len == 2 * WORD as u64 + 1));
    let (_, odd) = BYTES.take().unwrap().split_at_mut(1);
    let refused = pd.expose(&mut odd[..WORD], token).unwrap_err();
    assert!(matches!(refused.error(), Error::Misaligned { len, .. } if len == WORD as u64));
}

#[test]
fn exposed_memory_knows_its_parts() {
    let (a, _b) = pair();
    let (one, other) = (page::<_, RemoteRead>(&a.ctx, &a.pd), page::<_, RemoteRead>(&a.ctx, &a.pd));
    let part = one.part(8..16).unwrap();
    assert!(one.has(&part) && !other.has(&part));
}

#[test]
fn exposed_memory_is_a_source_and_a_target_of_its_own_side() {
    let (mut a, mut b) = pair();
    let (ours, theirs) = (page::<_, RemoteRead>(&a.ctx, &a.pd), page::<_, RemoteReadWrite>(&b.ctx, &b.pd));
    let window = a.peer.window::<RemoteReadWrite>(theirs.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    ours.copy_in(5, b"from exposed").unwrap();
    b.endpoint.post_recv(theirs.part(1..33).unwrap(), Token(1)).unwrap();
    a.endpoint.post(a.peer.send(ours.part(5..17).unwrap()), Token(2)).unwrap();
    let Event::Received(mut message) = wait(&mut b.endpoint) else { panic!() };
    assert!((message.len, message.buffers.take_slice().is_none()) == (12, true));
    let mut bytes = [0; 12];
    theirs.copy_out(1, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from exposed");
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
    a.endpoint.post(a.peer.read(ours.part(100..112).unwrap(), window.range(1..13).unwrap()), Token(3)).unwrap();
    let Event::Read(mut done) = wait(&mut a.endpoint) else { panic!() };
    assert!(matches!(done.buffers.next(), Some(Buffer::Exposed(part)) if part.len() == 12));
    ours.copy_out(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from exposed");
}

#[test]
fn r16_what_is_exposed_to_messages_alone_is_looked_at_while_the_device_writes_it() {
    let (mut a, mut b) = pair();
    let memory = page::<_, ByMessages>(&b.ctx, &b.pd);
    // Two receives into the same bytes, and a third side that looks at them: each by atomic words, as Miri sees.
    for token in 1..3 {
        b.endpoint.post_recv(memory.part(8..24).unwrap(), Token(token)).unwrap();
        a.endpoint.post(a.peer.send_inline(&[7; 16]), Token(0)).unwrap();
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = [0; 16];
            while seen != [7; 16] {
                memory.copy_out(8, &mut seen).unwrap();
                assert!(seen.iter().all(|byte| [0, 7].contains(byte)));
                std::thread::yield_now();
            }
        });
        (0..2).for_each(|_| drop(wait(&mut a.endpoint)));
        (0..2).for_each(|_| drop(wait(&mut b.endpoint)));
    });
    drop(memory.revoke());
}

#[test]
fn after_revoke_the_peers_next_write_fails_with_7_and_the_memory_is_ours() {
    let (mut a, b) = pair();
    let (memory, drops) = Counted::new();
    let exposed = b.pd.expose(memory, required::<_, RemoteWrite>(&b.ctx)).unwrap();
    let window = a.peer.window::<RemoteWrite>(exposed.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"before").1, window), Token(1)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));

    let part = exposed.part(0..8).unwrap();
    let refused = exposed.revoke().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 1 });
    drop(part);
    let memory = refused.into_inner().revoke().unwrap();
    assert_eq!(&memory.bytes[..6], b"before");
    a.endpoint.post(a.peer.write(slice(&a.pd, b"after").1, window), Token(2)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!(failure.status(), Some(CompletionStatus::RemoteBadAddress));
    assert!(failure.to_string().contains("revoked"), "{failure}");
    assert_eq!((&memory.bytes[..6], Counted::drops(drops)), (&b"before"[..], 0));

    // Exposed again it has another key: the old window stays shut.
    let exposed = b.pd.expose(memory, required::<_, RemoteWrite>(&b.ctx)).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"stale").1, window), Token(3)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadAddress));
    let window = a.peer.window::<RemoteWrite>(exposed.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(slice(&a.pd, b"again").1, window), Token(4)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
}

#[test]
fn a_grant_of_a_part_opens_that_part() {
    let (a, b) = pair();
    let memory = page::<_, RemoteReadWrite>(&b.ctx, &b.pd);
    let window = a
        .peer
        .window::<RemoteRead>(memory.grant_range(&b.endpoint, 8..24).unwrap().as_bytes())
        .expect("more rights than asked for will do");
    assert_eq!(window.len(), 16);
    assert!(matches!(memory.grant_range(&b.endpoint, 4090..4097), Err(Error::OutOfBounds { .. })));
}
