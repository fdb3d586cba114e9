//! Queue pairs with entries of 128 bytes: inline bytes up to 80, inline writes, and what that costs.

mod common;

use common::puppet::Puppet;
use common::{LIMITS, assert_idle, config, context, page, required, slice, slice_of, wait, zeros};
use efa_core::memory::{Exposed, Pages, RemoteReadWrite};
use efa_core::peer::RemoteWindow;
use efa_core::qp::{Depth, EntrySize, Narrow, QpKind, SendOnly, Solicited, Srd, Wide, ops};
use efa_core::soft::{Config, Profile, Side, SoftDevice, Storage, pair_of};
use efa_core::work::{Event, Received, WriteArrived};
use efa_core::{Caps, Context, Error, Limit, Limits, Token, connect};

type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;
type WideSide = Side<WideSrd>;

fn wide_config() -> Config {
    config(Profile::RDMA.wide())
}

fn pair() -> (WideSide, WideSide) {
    pair_of(wide_config(), Depth::new(4, 8)).unwrap()
}

fn window<K: QpKind>(of: &Side<K>, to: &Side<K>) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    let memory = page::<_, RemoteReadWrite>(&of.ctx, &of.pd);
    let window = to.peer.window(memory.grant(&of.endpoint).unwrap().as_bytes()).unwrap();
    (memory, window)
}

fn recv<K: QpKind>(side: &mut Side<K>) {
    side.endpoint.post_recv(zeros(&side.pd, 128), Token(0)).unwrap();
}

/// What arrives in a receive.
#[track_caller]
fn received<K: QpKind>(side: &mut Side<K>) -> (Vec<u8>, Option<u32>) {
    let Event::Received(Received { len, imm, mut buffers, .. }) = wait(&mut side.endpoint) else { panic!() };
    (buffers.take_slice().unwrap()[..len].to_vec(), imm)
}

#[track_caller]
fn done<K: QpKind>(side: &mut Side<K>, token: u64) {
    match wait(&mut side.endpoint) {
        Event::Sent(done) | Event::Written(done) if done.token == Token(token) => assert!(done.buffers.is_empty()),
        event => panic!("{event:?}"),
    }
}

fn look(memory: &Exposed<Pages, RemoteReadWrite>, at: usize, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    memory.copy_out(at, &mut found).unwrap();
    found
}

fn counting(len: usize) -> Vec<u8> {
    (1..=len as u8).collect()
}

#[test]
fn r10_inline_sends_carry_up_to_80_bytes_and_longer_ones_are_refused() {
    let (mut a, mut b) = pair();
    let bytes = counting(81);
    for len in [0, 1, 31, 32, 33, 64, 79, 80] {
        recv(&mut b);
        a.endpoint.post(a.peer.send_inline(&bytes[..len]), Token(1)).unwrap();
        assert_eq!(received(&mut b), (bytes[..len].to_vec(), None));
        done(&mut a, 1);
        recv(&mut b);
        a.endpoint.post(a.peer.send_inline(&bytes[..len]).imm(0x8000_0001), Token(2)).unwrap();
        assert_eq!(received(&mut b), (bytes[..len].to_vec(), Some(0x8000_0001)));
        done(&mut a, 2);
    }
    let refused = a.endpoint.post(a.peer.send_inline(&bytes[..]), Token(3)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 81, limit: 80 });
    assert_eq!(a.endpoint.in_flight(), 0);

    // Arrays, whose length needs no check but of what was granted.
    for _ in 0..4 {
        recv(&mut b);
    }
    let array: [u8; 80] = bytes[..80].try_into().unwrap();
    a.endpoint.post(a.peer.send_inline(array), Token(4)).unwrap();
    a.endpoint.post(a.peer.send_inline(&array).imm(4), Token(5)).unwrap();
    a.endpoint.post(a.peer.send_inline([7; 33]), Token(6)).unwrap();
    assert_eq!(received(&mut b), (array.to_vec(), None));
    assert_eq!(received(&mut b), (array.to_vec(), Some(4)));
    assert_eq!(received(&mut b), (vec![7; 33], None));
}

#[test]
fn r10_inline_writes_carry_up_to_80_bytes_and_longer_ones_are_refused() {
    let (mut a, mut b) = pair();
    let (memory, window) = window(&b, &a);
    let bytes = counting(81);
    for len in [0, 1, 7, 8, 31, 32, 33, 79, 80] {
        memory.copy_in(0, &[0; 256]).unwrap();
        a.endpoint.post(a.peer.write_inline(&bytes[..len], window.range(3..200).unwrap()), Token(1)).unwrap();
        done(&mut a, 1);
        assert_eq!((look(&memory, 3, len), look(&memory, 3 + len, 50)), (bytes[..len].to_vec(), vec![0; 50]));
        recv(&mut b);
        let there = window.range(128..128 + len as u64).unwrap();
        a.endpoint.post(a.peer.write_inline(&bytes[..len], there).imm(9), Token(2)).unwrap();
        let Event::WriteArrived(WriteArrived { imm, len: told, .. }) = wait(&mut b.endpoint) else { panic!() };
        assert_eq!((imm, told), (9, Some(len as u32)));
        done(&mut a, 2);
        assert_eq!(look(&memory, 128, len), &bytes[..len]);
    }
    let refused = a.endpoint.post(a.peer.write_inline(&bytes[..], window), Token(3)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 81, limit: 80 });
    let short = window.range(0..7).unwrap();
    let refused = a.endpoint.post(a.peer.write_inline([1; 8], short), Token(3)).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 8, within: 7 });
    assert_eq!(a.endpoint.in_flight(), 0);
    memory.revoke().unwrap();
    a.endpoint.post(a.peer.write_inline([1; 8], window), Token(3)).unwrap();
    assert_eq!(common::wait_failed(&mut a.endpoint).kind, efa_core::work::Kind::Write);
}

#[test]
fn r10_an_inline_write_goes_where_its_window_is_from_or_nowhere() {
    let (mut a, b) = pair();
    let (_memory, window_of_b) = window(&b, &a);
    let (mut other, _) = pair();
    let refused = other.endpoint.post(a.peer.write_inline([1], window_of_b), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::ForeignPeer);
    // Another pair's window.
    let (here, there): (WideSide, WideSide) = pair_of(wide_config().seed(7), Depth::new(4, 4)).unwrap();
    let (_exposed, foreign) = window(&there, &here);
    let refused = a.endpoint.post(a.peer.write_inline([1], foreign), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::WindowOfAnotherPeer);
}

#[test]
fn r10_as_many_inline_bytes_as_were_granted_whatever_there_is_room_for() {
    let limits = Limits { max_inline_wide: 48, ..LIMITS };
    let config = wide_config().limits(limits);
    let (mut a, b): (WideSide, WideSide) = pair_of(config, Depth::new(4, 4)).unwrap();
    let (_memory, window) = window(&b, &a);
    assert_eq!((a.endpoint.granted().inline, a.endpoint.granted().entry_size), (48, 128));
    let error = Error::AboveLimit { what: Limit::InlineBytes, asked: 49, limit: 48 };
    assert_eq!(a.endpoint.post(a.peer.send_inline([0; 49]), Token(1)).unwrap_err().error(), error);
    assert_eq!(a.endpoint.post(a.peer.write_inline([0; 49], window), Token(1)).unwrap_err().error(), error);
    a.endpoint.post(a.peer.write_inline([0; 48], window), Token(1)).unwrap();
    done(&mut a, 1);
    let error = a.pd.create_qp(required::<_, WideSrd>(&a.ctx), Depth::new(4, 4).inline(49)).unwrap_err();
    assert_eq!(error, Error::AboveLimit { what: Limit::InlineBytes, asked: 49, limit: 48 });
    let few = a.pd.create_qp(required::<_, WideSrd>(&a.ctx), Depth::new(4, 4).inline(40)).unwrap();
    assert_eq!(few.granted().inline, 40);
    // The narrow limit is another.
    let narrow = a.pd.create_qp(required::<_, Srd>(&a.ctx), Depth::new(4, 4)).unwrap();
    assert_eq!((narrow.granted().inline, narrow.granted().entry_size), (32, 64));
}

#[test]
fn r07_wide_kinds_take_what_the_device_says_of_them_and_the_error_names_what_is_missing() {
    let error = context(Profile::RDMA).require::<WideSrd>().unwrap_err();
    let needs = Caps::RDMA_READ | Caps::RDMA_WRITE | Caps::WIDE_ENTRIES | Caps::INLINE_WRITE;
    assert!(matches!(error, Error::Unsupported { needs: found, .. } if found == needs));
    let text = error.to_string();
    assert!(text.contains("no WIDE_ENTRIES and INLINE_WRITE"), "{text}");
    let _ = context(Profile::RDMA.wide()).require::<WideSrd>().unwrap();

    // Without RDMA write there is none that is inline: SENDs have room all the same.
    type WideSends = Srd<{ ops::SEND | ops::SEND_WITH_IMM }, Solicited, Wide>;
    let _ = context(Profile::NONE.wide()).require::<WideSends>().unwrap();
    let error = context(Profile::NONE).require::<WideSends>().unwrap_err();
    assert!(error.to_string().contains("no WIDE_ENTRIES:"), "{error}");
    let half = Profile::with_caps(Profile::RDMA.caps() | Caps::WIDE_ENTRIES);
    let error = context(half).require::<WideSrd>().unwrap_err();
    assert!(error.to_string().contains("no INLINE_WRITE:"), "{error}");
    let _ = context(half).require::<WideSends>().unwrap();
    // Narrow kinds need none of it.
    let _ = context(Profile::RDMA).require::<Srd>().unwrap();
}

#[test]
fn r18_a_wide_entry_takes_two_places_of_the_depth_and_of_the_batch() {
    let limits = Limits { max_send_depth: 8, max_batch: 5, ..LIMITS };
    let (mut a, mut b): (WideSide, WideSide) = pair_of(wide_config().limits(limits), Depth::new(4, 8)).unwrap();
    let granted = a.endpoint.granted();
    assert_eq!((granted.send, granted.batch, granted.entry_size, granted.inline), (4, 2, 128, 80));
    let error = a.pd.create_qp(required::<_, WideSrd>(&a.ctx), Depth::new(5, 4)).unwrap_err();
    assert_eq!(error, Error::AboveLimit { what: Limit::SendDepth, asked: 5, limit: 4 });
    let narrow = a.pd.create_qp(required::<_, Srd>(&a.ctx), Depth::new(8, 4)).unwrap();
    assert_eq!((narrow.granted().send, narrow.granted().batch, narrow.granted().entry_size), (8, 5, 64));

    recv(&mut b);
    recv(&mut b);
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send_inline([1; 70]), Token(1)).unwrap();
    batch.push(a.peer.send_inline([2; 71]), Token(2)).unwrap();
    let refused = batch.push(a.peer.send_inline([3; 72]), Token(3)).unwrap_err();
    assert_eq!(refused.error(), Error::BatchFull { limit: 2 });
    assert_eq!(batch.submit(), 2);
    assert_eq!([received(&mut b).0, received(&mut b).0], [vec![1; 70], vec![2; 71]]);
}

#[test]
fn r18_static_storage_has_half_as_many_wide_sends_as_narrow_ones() {
    static DEVICE: Storage<2, 8, 4> = Storage::new();
    let ctx = Context::open(DEVICE.start(wide_config()).unwrap());
    let pd = ctx.alloc_pd().unwrap();
    let error = pd.create_qp(required::<_, WideSrd>(&ctx), Depth::new(5, 8)).unwrap_err();
    assert_eq!(error, Error::AboveLimit { what: Limit::SendDepth, asked: 5, limit: 4 });
    let mut qps = [(); 2].map(|()| pd.endpoint(required::<_, WideSrd>(&ctx), Depth::new(4, 8)).unwrap());
    let [a, b] = &mut qps;
    let (to_b, _to_a) = connect::introduce(a, b).unwrap();
    // All places of the ring, each to its last byte, several times.
    for lap in 0..3u8 {
        for place in 0..4 {
            b.post_recv(zeros(&pd, 128), Token(0)).unwrap();
            a.post(to_b.send_inline([lap * 4 + place; 80]), Token(1)).unwrap();
        }
        for place in 0..4 {
            assert_eq!(slice_of(wait(b))[..80], [lap * 4 + place; 80]);
            assert!(matches!(wait(a), Event::Sent(_)));
        }
    }
}

#[test]
fn all_operations_share_a_wide_queue_over_many_laps_of_its_ring() {
    let (mut a, mut b) = pair();
    let (memory, window) = window(&b, &a);
    for round in 1..if cfg!(miri) { 12 } else { 100u8 } {
        let (half, there) = (window.range(0..1000).unwrap(), window.range(1000..2000).unwrap());
        recv(&mut b);
        match round % 6 {
            0 => a.endpoint.post(a.peer.send_inline([round; 77]), Token(1)).unwrap(),
            1 => a.endpoint.post(a.peer.send(slice(&a.pd, &[round; 77]).1), Token(1)).unwrap(),
            2 => {
                let two = [slice(&a.pd, &[round; 70]).1, slice(&a.pd, &[round; 7]).1];
                a.endpoint.post(a.peer.send(two).imm(5), Token(1)).unwrap();
            }
            3 => a.endpoint.post(a.peer.write_inline([round; 80], half).imm(6), Token(1)).unwrap(),
            4 => a.endpoint.post(a.peer.write(slice(&a.pd, &[round; 500]).1, there).imm(6), Token(1)).unwrap(),
            _ => {
                memory.copy_in(2000, &[round; 100]).unwrap();
                let read = a.peer.read(zeros(&a.pd, 100), window.range(2000..2100).unwrap());
                a.endpoint.post(read, Token(1)).unwrap();
                assert_eq!(slice_of(wait(&mut a.endpoint))[..], [round; 100]);
                a.endpoint.post(a.peer.send_inline([round; 77]), Token(1)).unwrap();
            }
        }
        match round % 6 {
            3 => {
                assert!(matches!(wait(&mut b.endpoint), Event::WriteArrived(_)));
                assert_eq!(look(&memory, 0, 80), [round; 80]);
            }
            4 => {
                assert!(matches!(wait(&mut b.endpoint), Event::WriteArrived(_)));
                assert_eq!(look(&memory, 1000, 500), [round; 500]);
            }
            _ => assert_eq!(received(&mut b).0, [round; 77]),
        }
        assert!(matches!(wait(&mut a.endpoint), Event::Sent(_) | Event::Written(_)));
        assert_eq!((a.endpoint.in_flight(), a.endpoint.stats().stale), (0, 0));
    }
}

#[test]
fn a_wide_batch_that_is_aborted_or_dropped_leaves_the_ring_as_it_was_at_every_place() {
    let (mut a, mut b) = pair();
    for round in 0..if cfg!(miri) { 5 } else { 20u8 } {
        let mut batch = a.endpoint.batch();
        for token in 0..3 {
            batch.push(a.peer.send(slice(&a.pd, &[token; 9]).1), Token(token.into())).unwrap();
        }
        if round % 2 == 0 {
            let mut back = Vec::new();
            batch.abort(|token, buffers| back.push((token.0, buffers.bytes())));
            assert_eq!(back, [(0, 9), (1, 9), (2, 9)]);
        } else {
            drop(batch);
        }
        assert_eq!(a.endpoint.in_flight(), 0);
        // What goes out next is whole, and has the phase of its place.
        recv(&mut b);
        let mut batch = a.endpoint.batch();
        batch.push(a.peer.send_inline([round; 80]), Token(7)).unwrap();
        assert_eq!(batch.submit(), 1);
        done(&mut a, 7);
        assert_eq!(received(&mut b).0, [round; 80]);
        assert_idle(&mut a.endpoint);
    }
}

#[test]
fn narrow_and_wide_queue_pairs_are_each_others_peers() {
    let device = SoftDevice::new(wide_config());
    let (ctx, other) = (Context::open(device.clone()), Context::open(device.neighbour().unwrap()));
    let (pd, other_pd) = (ctx.alloc_pd().unwrap(), other.alloc_pd().unwrap());
    let mut wide = pd.endpoint(required::<_, WideSrd>(&ctx), Depth::new(4, 4)).unwrap();
    let mut narrow = other_pd.endpoint(required::<_, Srd>(&other), Depth::new(4, 4)).unwrap();
    // The size of entries is each side's own affair: a peer's type does not have it.
    let (to_narrow, ready_of_wide) = wide.resolve(narrow.hello().as_bytes()).unwrap();
    let (to_wide, ready_of_narrow) = narrow.resolve(wide.hello().as_bytes()).unwrap();
    let to_narrow = to_narrow.confirm(ready_of_narrow.as_bytes()).unwrap();
    let to_wide = to_wide.confirm(ready_of_wide.as_bytes()).unwrap();
    let memory = page::<_, RemoteReadWrite>(&other, &other_pd);
    let window = to_narrow.window::<RemoteReadWrite>(memory.grant(&narrow).unwrap().as_bytes()).unwrap();

    narrow.post_recv(zeros(&other_pd, 128), Token(1)).unwrap();
    wide.post(to_narrow.send_inline([1; 80]), Token(2)).unwrap();
    assert_eq!(slice_of(wait(&mut narrow))[..80], [1; 80]);
    assert!(matches!(wait(&mut wide), Event::Sent(_)));
    wide.post_recv(zeros(&pd, 128), Token(3)).unwrap();
    narrow.post(to_wide.send_inline([2; 32]), Token(4)).unwrap();
    assert_eq!(slice_of(wait(&mut wide))[..32], [2; 32]);
    assert!(matches!(wait(&mut narrow), Event::Sent(_)));
    wide.post(to_narrow.write_inline([3; 50], window), Token(5)).unwrap();
    assert!(matches!(wait(&mut wide), Event::Written(_)));
    assert_eq!(look(&memory, 0, 50), [3; 50]);
}

#[test]
fn inline_bytes_survive_a_wire_that_loses_delays_and_cuts_to_pieces() {
    let config = wide_config().lose(300, 100).delay(4).pieces(7).shuffle(true).seed(11);
    let (mut a, mut b): (WideSide, WideSide) = pair_of(config, Depth::new(8, 8)).unwrap();
    let (memory, window) = window(&b, &a);
    for round in 1..if cfg!(miri) { 3 } else { 40u8 } {
        recv(&mut b);
        a.endpoint.post(a.peer.write_inline([round; 80], window), Token(1)).unwrap();
        a.endpoint.post(a.peer.send_inline([round; 61]), Token(2)).unwrap();
        let mut seen = [wait(&mut a.endpoint), wait(&mut a.endpoint)].map(|event| event.token().unwrap().0);
        seen.sort_unstable();
        assert_eq!((seen, look(&memory, 0, 80)), ([1, 2], vec![round; 80]));
        assert_eq!(received(&mut b).0, [round; 61]);
    }
}

#[test]
fn r10_a_provider_that_makes_entries_of_another_size_is_found_out_before_anything_is_posted() {
    let caps = Profile::RDMA.wide().caps();
    for (given, asked) in [(64, 128), (128, 64), (0, 64), (96, 128)] {
        let ctx = Context::open(Puppet::with(caps, false, Some(given)));
        let pd = ctx.alloc_pd().unwrap();
        let error = match asked {
            128 => pd.create_qp(required::<_, WideSrd>(&ctx), Depth::new(4, 4)).unwrap_err(),
            _ => pd.create_qp(required::<_, SendOnly>(&ctx), Depth::new(4, 4)).unwrap_err(),
        };
        assert_eq!(error, Error::EntrySize { asked, given });
        let text = error.to_string();
        assert!(text.contains(&asked.to_string()) && text.contains(&given.to_string()), "{text}");
    }
}

#[test]
fn r18_the_depth_of_wide_entries_is_refused_before_the_device_is_asked() {
    let ctx = Context::open(Puppet::new(Profile::RDMA.wide().caps()));
    let pd = ctx.alloc_pd().unwrap();
    let half = LIMITS.max_send_depth / 2;
    let error = pd.create_qp(required::<_, WideSrd>(&ctx), Depth::new(half + 1, 4)).unwrap_err();
    let (asked, limit) = (u64::from(half) + 1, half.into());
    assert_eq!(error, Error::AboveLimit { what: Limit::SendDepth, asked, limit });
    let _ = pd.create_qp(required::<_, WideSrd>(&ctx), Depth::new(half, 4)).unwrap();
    let _ = pd.create_qp(required::<_, Srd>(&ctx), Depth::new(half + 1, 4)).unwrap();
}

#[test]
fn r10_what_is_asked_of_a_provider_follows_from_the_kind() {
    let caps = Profile::RDMA.wide().caps();
    let (device, narrow) = (Puppet::new(caps), Puppet::new(caps));
    let ctx = Context::open(device.clone());
    let _qp = ctx.alloc_pd().unwrap().create_qp(required::<_, WideSrd>(&ctx), Depth::new(4, 4)).unwrap();
    let init = device.init();
    assert_eq!((init.entry_size, init.inline, init.inline_write), (Wide::BYTES, Wide::INLINE, true));
    let ctx = Context::open(narrow.clone());
    let _qp = ctx.alloc_pd().unwrap().create_qp(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let init = narrow.init();
    assert_eq!((init.entry_size, init.inline, init.inline_write), (Narrow::BYTES, Narrow::INLINE, false));
}
