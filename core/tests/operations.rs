//! Operations: what arrives is what was sent, whole or not at all, each resolved exactly once.

mod common;

use std::collections::{HashMap, HashSet};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{LIMITS, assert_idle, config, connect, page, pair, required, slice, slice_of, wait, wait_failed, zeros};
use efa_core::flow::{Arrivals, Reorder};
use efa_core::memory::{Buffer, Buffers, Exposed, Pages, Pool, RemoteRead, RemoteReadWrite, RemoteWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, Srd, Unsolicited, ops};
use efa_core::soft::{Config, Profile, Side, SoftDevice, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::{Event, Kind, Received, UnsolicitedWrite, WriteArrived};
use efa_core::{Error, Limit, Limits, Token};
use proptest::prelude::*;

const IMMEDIATES: [u32; 4] = [0, 1, 0x8000_0001, u32::MAX];

/// Exposed memory of one side as the other sees it.
fn window(of: &Side, to: &Side) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    let memory = page::<_, RemoteReadWrite>(&of.ctx, &of.pd);
    let window = to.peer.window(memory.grant(&of.endpoint).unwrap().as_bytes()).unwrap();
    (memory, window)
}

/// What arrives in a receive of 64 bytes.
fn received(side: &mut Side) -> (Vec<u8>, Option<u32>) {
    let Event::Received(Received { len, imm, mut buffers, .. }) = wait(&mut side.endpoint) else { panic!() };
    (buffers.take_slice().unwrap()[..len].to_vec(), imm)
}

fn recv(side: &mut Side, token: u64) {
    side.endpoint.post_recv(zeros(&side.pd, 64), Token(token)).unwrap();
}

fn sent(side: &mut Side, token: u64) -> Buffers {
    match wait(&mut side.endpoint) {
        Event::Sent(done) if done.token == Token(token) => done.buffers,
        event => panic!("{event:?}"),
    }
}

#[test]
fn r09_a_send_of_one_or_two_buffers_of_any_kind_arrives_in_their_order() {
    let (mut a, mut b) = pair();
    let exposed = page::<_, RemoteWrite>(&a.ctx, &a.pd);
    exposed.copy_in(3, b"exposed").unwrap();
    let frozen = slice(&a.pd, b"frozen").1.freeze().unwrap();
    let part = || exposed.part(3..10).unwrap();
    let pd = a.pd.clone();
    let own = || slice(&pd, b"slice").1;
    for token in 0..8 {
        recv(&mut b, token);
    }
    macro_rules! arrives {
        ($source:expr, $bytes:expr, $count:expr) => {
            a.endpoint.post(a.peer.send($source), Token(7)).unwrap();
            assert_eq!(received(&mut b), ($bytes.to_vec(), None));
            assert_eq!(sent(&mut a, 7).len(), $count);
        };
    }
    arrives!(own(), b"slice", 1);
    arrives!(part(), b"exposed", 1);
    arrives!(frozen.clone(), b"frozen", 1);
    arrives!([own(), own()], b"sliceslice", 2);
    arrives!((own(), part()), b"sliceexposed", 2);
    arrives!((frozen.clone(), part()), b"frozenexposed", 2);
    arrives!([frozen.clone(), frozen.part(0..2).unwrap()], b"frozenfr", 2);
    assert_eq!(&frozen.thaw().unwrap()[..], b"frozen");
}

#[test]
fn r09_a_send_of_two_buffers_is_refused_where_the_device_takes_one() {
    let limits = Limits { max_send_sge: 1, ..LIMITS };
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    assert_eq!(a.endpoint.granted().send_buffers, 1);
    let two = a.pd.endpoint(required::<_, Srd>(&a.ctx), Depth::new(4, 4).send_buffers(2)).unwrap_err();
    assert_eq!(two, Error::AboveLimit { what: Limit::SendBuffers, asked: 2, limit: 1 });
    let refused = a.endpoint.post(a.peer.send([zeros(&a.pd, 4), zeros(&a.pd, 5)]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::SendBuffers, asked: 2, limit: 1 });
    assert!(refused.to_string().contains("R09"), "{refused}");
    let [four, five] = refused.into_inner();
    assert_eq!((four.len(), five.len()), (4, 5));
    recv(&mut b, 2);
    a.endpoint.post(a.peer.send(five), Token(3)).unwrap();
    assert_eq!(received(&mut b).0, [0; 5]);
}

#[test]
fn the_buffers_come_back_as_what_they_were() {
    let (mut a, mut b) = pair();
    let exposed = page::<_, RemoteWrite>(&a.ctx, &a.pd);
    let frozen = slice(&a.pd, b"frozen").1.freeze().unwrap();
    recv(&mut b, 1);
    a.endpoint.post(a.peer.send((frozen, exposed.part(8..16).unwrap())), Token(1)).unwrap();
    let mut buffers = sent(&mut a, 1);
    let (Some(Buffer::Frozen(frozen)), Some(Buffer::Exposed(part)), None) =
        (buffers.next(), buffers.next(), buffers.next())
    else {
        panic!()
    };
    assert_eq!((&frozen[..], part.len()), (&b"frozen"[..], 8));
    drop(part);
    exposed.revoke().unwrap();
}

#[test]
fn r10_inline_sends_carry_up_to_32_bytes_and_longer_ones_are_refused() {
    let (mut a, mut b) = pair();
    let bytes: Vec<u8> = (1..=33).collect();
    for len in 0..=32 {
        recv(&mut b, 1);
        a.endpoint.post(a.peer.send_inline(&bytes[..len]), Token(2)).unwrap();
        assert_eq!(received(&mut b), (bytes[..len].to_vec(), None));
        assert!(sent(&mut a, 2).is_empty());
    }
    let refused = a.endpoint.post(a.peer.send_inline(&bytes[..]), Token(2)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 33, limit: 32 });

    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(2, 2).inline(16)).unwrap();
    let refused = a.endpoint.post(a.peer.send_inline(&bytes[..17]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 17, limit: 16 });
    recv(&mut b, 1);
    a.endpoint.post(a.peer.send_inline(&bytes[..16]), Token(1)).unwrap();
    assert_eq!(received(&mut b).0, &bytes[..16]);
}

#[test]
fn r13_immediates_are_exact_in_every_operation_that_has_one() {
    let (mut a, mut b) = pair();
    let (memory, window) = window(&b, &a);
    for imm in IMMEDIATES {
        for token in 0..4 {
            recv(&mut b, token);
        }
        a.endpoint.post(a.peer.send(zeros(&a.pd, 3)).imm(imm), Token(1)).unwrap();
        assert_eq!(received(&mut b), (vec![0; 3], Some(imm)));
        a.endpoint.post(a.peer.send_inline(b"xy").imm(imm), Token(2)).unwrap();
        assert_eq!(received(&mut b), (b"xy".to_vec(), Some(imm)));
        a.endpoint.post(a.peer.send_empty().imm(imm), Token(3)).unwrap();
        assert_eq!(received(&mut b), (vec![], Some(imm)));
        a.endpoint.post(a.peer.write(slice(&a.pd, b"abc").1, window).imm(imm), Token(4)).unwrap();
        let event = wait(&mut b.endpoint);
        let Event::WriteArrived(WriteArrived { token, imm: arrived, len, .. }) = event else { panic!("{event:?}") };
        assert_eq!((token, arrived, len), (Token(3), imm, Some(3)));
        for token in 1..=4 {
            let event = wait(&mut a.endpoint);
            assert!(matches!(&event, Event::Sent(d) | Event::Written(d) if d.token == Token(token)), "{event:?}");
        }
    }
    let mut bytes = [0; 4];
    memory.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc\0");
}

#[test]
fn r16_writes_and_reads_move_exactly_their_bytes_at_every_alignment() {
    let (mut a, mut b) = pair();
    let (memory, whole) = window(&b, &a);
    for (offset, len) in [(0, 8), (1, 7), (3, 1), (5, 30), (8, 16), (15, 2), (4095, 1), (100, 0)] {
        memory.copy_in(0, &[0xEE; 4096]).unwrap();
        let bytes: Vec<u8> = (1..=len as u8).collect();
        let target = whole.range(offset..offset + len).unwrap();
        a.endpoint
            .post(
                a.peer.write(slice(&a.pd, &[&bytes[..], &[0xFF]].concat()).1.split_at(len as usize).unwrap().0, target),
                Token(1),
            )
            .unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Written(done) if done.buffers.bytes() == len as usize));
        let mut expected = [0xEE; 4096];
        expected[offset as usize..][..len as usize].copy_from_slice(&bytes);
        let mut found = [0; 4096];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == expected, "{len} at {offset}");

        let (local, _rest) = slice(&a.pd, &[0; 64]).1.split_at(len as usize).unwrap();
        a.endpoint.post(a.peer.read(local, target), Token(2)).unwrap();
        let event = wait(&mut a.endpoint);
        assert!(matches!(event, Event::Read(_)), "{event:?}");
        assert_eq!(slice_of(event)[..], bytes);
        assert_idle(&mut b.endpoint);
    }
}

#[test]
fn r14_operations_of_no_bytes_arrive() {
    let (mut a, mut b) = pair();
    let (_memory, window) = window(&b, &a);
    let empty = || {
        let (empty, _rest) = zeros(&a.pd, 8).split_at(0).unwrap();
        empty
    };
    for token in 0..4 {
        recv(&mut b, token);
    }
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(received(&mut b), (vec![], None));
    a.endpoint.post(a.peer.send(empty()), Token(2)).unwrap();
    assert_eq!(received(&mut b), (vec![], None));
    a.endpoint.post(a.peer.send_inline(&[]).imm(5), Token(3)).unwrap();
    assert_eq!(received(&mut b), (vec![], Some(5)));
    let nothing = window.range(16..16).unwrap();
    assert!(nothing.is_empty());
    a.endpoint.post(a.peer.write(empty(), nothing), Token(4)).unwrap();
    a.endpoint.post(a.peer.write(empty(), nothing).imm(6), Token(5)).unwrap();
    a.endpoint.post(a.peer.read(empty(), nothing), Token(6)).unwrap();
    let event = wait(&mut b.endpoint);
    assert!(matches!(&event, Event::WriteArrived(arrived) if arrived.imm == 6 && arrived.len == Some(0)), "{event:?}");
    let tokens: Vec<u64> = (0..6)
        .map(|_| match wait(&mut a.endpoint) {
            Event::Sent(done) | Event::Written(done) | Event::Read(done) => done.token.0,
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6]);
    // A receive of one empty buffer takes a message of no bytes.
    let mut c = pair();
    let (empty, _rest) = zeros(&c.1.pd, 8).split_at(0).unwrap();
    c.1.endpoint.post_recv(empty, Token(1)).unwrap();
    c.0.endpoint.post(c.0.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(received(&mut c.1), (vec![], None));
}

#[test]
fn h13_r11_a_send_of_max_goes_and_one_byte_more_is_refused_with_the_number() {
    let limits = Limits { max_msg_size: 100, ..LIMITS };
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    for len in [99, 100] {
        b.endpoint.post_recv(zeros(&b.pd, 128), Token(1)).unwrap();
        let bytes: Vec<u8> = (0..len).collect();
        a.endpoint.post(a.peer.send(slice(&a.pd, &bytes).1), Token(1)).unwrap();
        assert_eq!(received(&mut b).0, bytes);
        let _ = sent(&mut a, 1);
    }
    let error = Error::AboveLimit { what: Limit::MessageBytes, asked: 101, limit: 100 };
    let refused = a.endpoint.post(a.peer.send(zeros(&a.pd, 101)), Token(2)).unwrap_err();
    assert_eq!(refused.error(), error);
    assert_eq!(refused.into_inner().len(), 101);
    let two = [zeros(&a.pd, 100), zeros(&a.pd, 1)];
    assert_eq!(a.endpoint.post(a.peer.send(two), Token(2)).unwrap_err().error(), error);
    assert!(error.to_string().contains("R11") && error.to_string().contains("split"), "{error}");
    assert_eq!(a.endpoint.in_flight(), 0);
}

#[test]
fn r11_a_limit_above_what_a_completion_can_tell_is_not_taken() {
    let limits = Limits { max_msg_size: 131_072, ..LIMITS };
    let depth = Depth::new(8, 8).recv_buffers(2);
    let (mut a, mut b) = pair_of::<Srd>(config(Profile::RDMA).limits(limits), depth).unwrap();
    assert_eq!(a.ctx.limits().max_msg_size, 65_535);
    let refused = a.endpoint.post(a.peer.send(zeros(&a.pd, 65_536)), Token(1)).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, limit: 65_535, .. }));
    b.endpoint.post_recv([zeros(&b.pd, 40_000), zeros(&b.pd, 40_000)], Token(2)).unwrap();
    a.endpoint.post(a.peer.send(zeros(&a.pd, 65_535)), Token(3)).unwrap();
    assert!(matches!(wait(&mut b.endpoint), Event::Received(message) if message.len == 65_535));
}

#[test]
fn h13_r11_an_rdma_of_max_goes_and_one_byte_more_is_refused_before_it_could_wrap() {
    let limits = Limits { max_rdma_size: 1000, ..LIMITS };
    let (mut a, b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    let (_memory, window) = window(&b, &a);
    for len in [999, 1000] {
        a.endpoint.post(a.peer.write(zeros(&a.pd, len), window), Token(1)).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
        a.endpoint.post(a.peer.read(zeros(&a.pd, len), window), Token(1)).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Read(_)));
    }
    let error = |asked| Error::AboveLimit { what: Limit::RdmaBytes, asked, limit: 1000 };
    let refused = a.endpoint.post(a.peer.write(zeros(&a.pd, 1001), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error(1001));
    let refused = a.endpoint.post(a.peer.read(refused.into_inner(), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error(1001));
    if cfg!(all(target_pointer_width = "64", not(miri))) {
        // Zeroed memory that nobody touches is address space only.
        for len in [1u64 << 32, (1 << 32) + 1] {
            let huge = zeros(&a.pd, len as usize);
            let refused = a.endpoint.post(a.peer.write(huge, window), Token(1)).unwrap_err();
            assert_eq!(refused.error(), error(len));
            let refused = a.endpoint.post(a.peer.send(refused.into_inner()), Token(1)).unwrap_err();
            assert!(
                matches!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked, .. } if asked == len)
            );
            let refused = a.endpoint.post_recv(refused.into_inner(), Token(1)).unwrap_err();
            assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked, .. } if asked == len));
        }
    }
}

#[test]
fn an_rdma_beyond_its_window_is_refused_with_both_lengths() {
    let (mut a, b) = pair();
    let (_memory, window) = window(&b, &a);
    let small = window.range(4000..4096).unwrap();
    let refused = a.endpoint.post(a.peer.write(zeros(&a.pd, 97), small), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 97, within: 96 });
    let refused = a.endpoint.post(a.peer.read(refused.into_inner(), small), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 97, within: 96 });
    assert!(window.range(4000..4097).is_err() && window.range(0..u64::MAX).is_err());
    #[allow(clippy::reversed_empty_ranges)] // that is the case
    let backwards = window.range(8..4);
    assert!(matches!(backwards, Err(Error::OutOfBounds { .. })));
}

#[test]
fn r12_a_receive_of_65535_bytes_is_posted_and_one_of_65536_does_not_wrap_to_none() {
    let (mut a, mut b) = pair();
    let error = Error::AboveLimit { what: Limit::RecvBytes, asked: 65_536, limit: 65_535 };
    let refused = b.endpoint.post_recv(zeros(&b.pd, 65_536), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    assert!(error.to_string().contains("R12"), "{error}");
    let (all, one) = refused.into_inner().split_at(65_535).unwrap();
    b.endpoint.post_recv(all, Token(1)).unwrap();
    a.endpoint.post(a.peer.send(slice(&a.pd, &[7; 8000]).1), Token(1)).unwrap();
    let event = wait(&mut b.endpoint);
    assert!(matches!(&event, Event::Received(message) if message.len == 8000), "{event:?}");
    let all = slice_of(event);
    assert!(all[..8000].iter().all(|byte| *byte == 7) && all[8000..].iter().all(|byte| *byte == 0));
    assert!(all.unsplit(one).is_ok());
}

#[test]
fn r19_a_receive_of_two_buffers_fills_one_after_the_other_if_it_was_asked_for() {
    let (_, mut plain) = pair();
    let refused = plain.endpoint.post_recv([zeros(&plain.pd, 4), zeros(&plain.pd, 4)], Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RecvBuffers, asked: 2, limit: 1 });
    assert!(refused.to_string().contains("recv_buffers"), "{refused}");

    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 2).recv_buffers(2)).unwrap();
    for round in 0..5 {
        // Receives of one and of two buffers share the ring.
        b.endpoint.post_recv([zeros(&b.pd, 4), zeros(&b.pd, 4)], Token(round)).unwrap();
        recv(&mut b, 100);
        assert!(!b.endpoint.can_post_recv());
        for message in [&b"123456"[..], b"abc"] {
            a.endpoint.post(a.peer.send_inline(message), Token(1)).unwrap();
            let _ = sent(&mut a, 1);
        }
        let Event::Received(Received { len: 6, mut buffers, token, .. }) = wait(&mut b.endpoint) else { panic!() };
        assert_eq!((token, buffers.len(), buffers.bytes()), (Token(round), 2, 8));
        assert_eq!(&buffers.take_slice().unwrap()[..], b"1234");
        assert_eq!(&buffers.take_slice().unwrap()[..], b"56\0\0");
        assert_eq!(received(&mut b).0, b"abc");
    }
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides_with_their_own_statuses() {
    let (mut a, mut b) = pair();
    b.endpoint.post_recv(zeros(&b.pd, 4), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"12345"), Token(2)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadLength));
    let event = wait(&mut b.endpoint);
    let Event::Failed { failure, buffers } = event else { panic!("{event:?}") };
    assert_eq!((failure.kind, failure.token, buffers.bytes()), (Kind::Recv, Some(Token(1)), 4));
    assert_eq!(failure.status(), Some(CompletionStatus::LocalBadLength));
    recv(&mut b, 3);
    a.endpoint.post(a.peer.send_inline(b"12345"), Token(4)).unwrap();
    assert_eq!(received(&mut b).0, b"12345");
}

#[test]
fn h16_r33_a_full_send_queue_gives_the_buffers_back_and_takes_them_after_a_poll() {
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 8)).unwrap();
    for token in 0..8 {
        recv(&mut b, token);
    }
    for token in 0..4 {
        assert!(a.endpoint.can_post());
        a.endpoint.post(a.peer.send_inline(&[token]), Token(token.into())).unwrap();
    }
    assert!(!a.endpoint.can_post());
    let refused = a.endpoint.post(a.peer.send(slice(&a.pd, b"fifth").1).imm(5), Token(4)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFull { in_flight: 4 });
    assert!(refused.to_string().contains("poll"), "{refused}");
    let fifth = refused.into_inner();
    let mut batch = a.endpoint.batch();
    let refused = batch.push(a.peer.send_empty(), Token(9)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFull { in_flight: 4 });
    assert_eq!(batch.submit(), 0);
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(done) if done.token == Token(0)));
    a.endpoint.post(a.peer.send(fifth).imm(5), Token(4)).unwrap();
    assert_eq!((0..5).map(|_| received(&mut b).0).collect::<Vec<_>>(), [&[0][..], &[1], &[2], &[3], b"fifth"]);
    for token in 1..5 {
        let _ = sent(&mut a, token);
    }
}

#[test]
fn a_receive_list_accepted_in_part_gives_back_exactly_the_rest() {
    let (_, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(1, 4)).unwrap();
    let list: Vec<(Slice, Token)> = (0..6).map(|n| (slice(&b.pd, &[n as u8; 4]).1, Token(n))).collect();
    let mut list = list.into_iter();
    assert_eq!(b.endpoint.post_recv_list(&mut list).unwrap(), 4);
    let rest: Vec<(Slice, Token)> = list.collect();
    assert_eq!(rest.iter().map(|(slice, token)| (slice[0], token.0)).collect::<Vec<_>>(), [(4, 4), (5, 5)]);
    let mut rest = rest.into_iter();
    assert_eq!(b.endpoint.post_recv_list(&mut rest).unwrap(), 0);
    assert_eq!(rest.len(), 2);
    let refused = b.endpoint.post_recv(rest.next().unwrap().0, Token(6)).unwrap_err();
    assert_eq!(refused.error(), Error::RecvQueueFull { in_flight: 4 });
}

#[test]
fn a_receive_list_with_a_wrong_one_posts_those_before_and_leaves_those_after() {
    let (mut a, mut b) = pair();
    let lens = [64, 64, 70_000, 64];
    let mut list = lens.map(|len| zeros(&b.pd, len)).into_iter().zip((0..).map(Token));
    let refused = b.endpoint.post_recv_list(&mut list).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked: 70_000, .. }));
    let (wrong, token) = refused.into_inner();
    assert_eq!((wrong.len(), token), (70_000, Token(2)));
    assert_eq!((list.next().unwrap().1, list.next().is_none(), b.endpoint.in_flight()), (Token(3), true, 2));
    for message in [b"a", b"b"] {
        a.endpoint.post(a.peer.send_inline(message), Token(1)).unwrap();
        assert_eq!(received(&mut b).0, message);
    }
}

#[test]
fn a_receive_list_whose_iterator_panics_posts_those_before() {
    let (mut a, mut b) = pair();
    let slices = [(); 3].map(|()| zeros(&b.pd, 8));
    let mut list = slices.into_iter().zip((0..).map(Token)).inspect(|(_, token)| assert_ne!(*token, Token(2)));
    assert!(catch_unwind(AssertUnwindSafe(|| b.endpoint.post_recv_list(&mut list))).is_err());
    a.endpoint.post(a.peer.send_inline(b"x"), Token(1)).unwrap();
    assert_eq!(received(&mut b).0, b"x");
    let shutdown = b.endpoint.shut_down(|| false, |event| assert_eq!(event.token(), Some(Token(1)))).unwrap();
    assert_eq!((shutdown.completed, shutdown.reclaimed), (1, 0));
}

#[test]
fn a_batch_mixes_operations_and_peers_and_goes_out_whole_with_submit() {
    let (mut a, mut b) = pair();
    let mut c: Endpoint<SoftDevice> = b.pd.endpoint(required(&b.ctx), Depth::new(4, 4)).unwrap();
    let (to_c, _c_to_a) = connect(&a.endpoint, &c);
    let (memory, window) = window(&b, &a);
    memory.copy_in(100, b"remote").unwrap();
    recv(&mut b, 1);
    recv(&mut b, 2);
    c.post_recv(zeros(&b.pd, 64), Token(3)).unwrap();
    let source = slice(&a.pd, b"batch").1.freeze().unwrap();

    let mut batch = a.endpoint.batch();
    assert!(batch.is_empty());
    batch.push(a.peer.send(source.clone()), Token(1)).unwrap();
    batch.push(to_c.send((source.clone(), source.clone())).imm(2), Token(2)).unwrap();
    batch.push(a.peer.write(source, window).imm(3), Token(3)).unwrap();
    batch.push(a.peer.read(zeros(&a.pd, 6), window.range(100..106).unwrap()), Token(4)).unwrap();
    batch.push(a.peer.write(zeros(&a.pd, 9), window.range(50..59).unwrap()), Token(5)).unwrap();
    assert_eq!(batch.len(), 5);
    for _ in 0..10 {
        assert!(b.endpoint.poll().is_none() && c.poll().is_none(), "before submit nothing goes out");
    }
    assert_eq!(batch.submit(), 5);
    let mut resolved: Vec<u64> = (0..5)
        .map(|_| match wait(&mut a.endpoint) {
            Event::Sent(done) | Event::Written(done) => done.token.0,
            Event::Read(mut done) => {
                assert_eq!(&done.buffers.take_slice().unwrap()[..], b"remote");
                done.token.0
            }
            event => panic!("{event:?}"),
        })
        .collect();
    resolved.sort_unstable();
    assert_eq!(resolved, [1, 2, 3, 4, 5]);
    assert_eq!(received(&mut b), (b"batch".to_vec(), None));
    assert!(matches!(wait(&mut b.endpoint), Event::WriteArrived(arrived) if arrived.imm == 3));
    assert!(matches!(wait(&mut c), Event::Received(message) if message.len == 10 && message.imm == Some(2)));
}

#[test]
fn a_batch_with_a_wrong_operation_stays_as_it_was_and_aborted_gives_all_back_last_to_first() {
    let (mut a, mut b) = pair();
    let (_memory, window) = window(&b, &a);
    recv(&mut b, 1);
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send(slice(&a.pd, b"first").1), Token(1)).unwrap();
    let too_long = zeros(&a.pd, 5000);
    let refused = batch.push(a.peer.write(too_long, window), Token(2)).unwrap_err();
    assert!(matches!(refused.error(), Error::OutOfBounds { .. }));
    assert_eq!((refused.into_inner().len(), batch.len()), (5000, 1));
    batch.push(a.peer.send_empty(), Token(3)).unwrap();
    batch.push(a.peer.write(slice(&a.pd, b"last").1, window), Token(4)).unwrap();
    let mut back = Vec::new();
    batch.abort(|token, mut buffers| {
        back.push((token.0, buffers.take_slice().map(|slice| slice.to_vec())));
    });
    assert_eq!(back, [(4, Some(b"last".to_vec())), (3, None), (1, Some(b"first".to_vec()))]);
    assert_eq!(a.endpoint.in_flight(), 0);
    assert_idle(&mut b.endpoint);
    // The ring goes on where it was.
    a.endpoint.post(a.peer.send_inline(b"next"), Token(5)).unwrap();
    assert_eq!(received(&mut b).0, b"next");
    let _ = sent(&mut a, 5);
}

#[test]
fn a_dropped_batch_never_was_at_every_place_of_the_ring() {
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 4)).unwrap();
    for round in 0..9u8 {
        let mut batch = a.endpoint.batch();
        for token in 0..(round % 4) {
            batch.push(a.peer.send(zeros(&a.pd, 8)), Token(token.into())).unwrap();
        }
        drop(batch);
        assert_eq!(a.endpoint.in_flight(), 0);
        recv(&mut b, 1);
        a.endpoint.post(a.peer.send_inline(&[round]), Token(7)).unwrap();
        assert_eq!(received(&mut b).0, [round]);
        let _ = sent(&mut a, 7);
        assert_idle(&mut a.endpoint);
    }
}

#[test]
fn a_forgotten_batch_goes_out_with_the_next_post_batch_or_transition() {
    for road in 0..3 {
        let (mut a, mut b) = pair();
        for token in 0..4 {
            recv(&mut b, token);
        }
        let mut batch = a.endpoint.batch();
        batch.push(a.peer.send(slice(&a.pd, b"forgotten").1), Token(1)).unwrap();
        mem::forget(batch);
        match road {
            0 => a.endpoint.post(a.peer.send_inline(b"next"), Token(2)).unwrap(),
            1 => {
                let mut batch = a.endpoint.batch();
                batch.push(a.peer.send_inline(b"next"), Token(2)).unwrap();
                assert_eq!(batch.submit(), 1);
            }
            _ => {
                let mut err = a.endpoint.error().unwrap();
                let event = wait(&mut err);
                assert!(matches!(&event, Event::Failed { failure, .. } if failure.is_flush()), "{event:?}");
                assert_eq!(&slice_of(event)[..], b"forgotten");
                assert_eq!(err.in_flight(), 0);
                continue;
            }
        }
        assert_eq!(received(&mut b).0, b"forgotten");
        assert_eq!(received(&mut b).0, b"next");
        assert_eq!(&sent(&mut a, 1).take_slice().unwrap()[..], b"forgotten");
        let _ = sent(&mut a, 2);
    }
}

#[test]
fn r18_a_batch_ends_at_what_one_doorbell_may_announce() {
    let limits = Limits { max_batch: 3, ..LIMITS };
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(8, 8)).unwrap();
    assert_eq!(a.endpoint.granted().batch, 3);
    for token in 0..4 {
        recv(&mut b, token);
    }
    let mut batch = a.endpoint.batch();
    for token in 0..3 {
        batch.push(a.peer.send_empty(), Token(token)).unwrap();
    }
    let refused = batch.push(a.peer.send_inline(b"4"), Token(3)).unwrap_err();
    assert_eq!(refused.error(), Error::BatchFull { limit: 3 });
    assert_eq!(batch.submit(), 3);
    a.endpoint.post(a.peer.send_inline(b"4"), Token(3)).unwrap();
    let lens: Vec<usize> = (0..4).map(|_| received(&mut b).0.len()).collect();
    assert_eq!(lens, [0, 0, 0, 1]);
}

#[test]
fn r22_unsolicited_writes_consume_no_receive_and_have_an_event_of_their_own() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let (mut a, mut b): (Side<Kind>, Side<Kind>) =
        pair_of(config(Profile::UNSOLICITED), Depth::new(4, 4).unsolicited(4)).unwrap();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    for imm in IMMEDIATES {
        a.endpoint.post(a.peer.write(zeros(&a.pd, 5), window).imm(imm), Token(2)).unwrap();
        let event = wait(&mut b.endpoint);
        let Event::UnsolicitedWrite(UnsolicitedWrite { imm: arrived, len, .. }) = event else { panic!("{event:?}") };
        assert_eq!((arrived, len), (imm, Some(5)));
        assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
    }
    assert_eq!(b.endpoint.in_flight(), 1, "the receive is still there");
    a.endpoint.post(a.peer.send_empty(), Token(3)).unwrap();
    assert!(matches!(wait(&mut b.endpoint), Event::Received(message) if message.token == Token(1)));
}

/// Without a budget unsolicited arrivals overrun the completion queue again and again: completions are lost, but
/// no entry is taken for another, so each receive comes out once, the lost ones at the end.
#[test]
fn r17_an_overrun_completion_queue_loses_completions_but_resolves_each_receive_once() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let limits = Limits { max_mr: 64, ..LIMITS };
    let (mut a, mut b) = pair_of::<Kind>(config(Profile::UNSOLICITED).limits(limits), Depth::new(8, 8)).unwrap();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    let (mut posted, mut lost, mut random) = (HashSet::new(), 0, 1u64);
    for token in 0..if cfg!(miri) { 300 } else { 20_000 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match random >> 61 {
            0 if b.endpoint.can_post_recv() => {
                b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
                posted.insert(Token(token));
            }
            0..4 => drop(a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window).imm(1), Token(0))),
            4 => drop(a.endpoint.post(a.peer.send_inline(b"12345678"), Token(0))),
            5 | 6 => while a.endpoint.poll().is_some() {},
            _ => {
                for event in (0..random >> 32 & 7).filter_map(|_| b.endpoint.poll()) {
                    assert!(event.token().is_none_or(|token| posted.remove(&token)), "{event:?}");
                }
            }
        }
    }
    let mut turns = 0;
    let expired = || {
        turns += 1;
        turns > 100
    };
    let sink = |event: Event| {
        lost += usize::from(matches!(event, Event::Reclaimed { .. }));
        assert!(event.token().is_none_or(|token| posted.remove(&token)), "{event:?}");
    };
    b.endpoint.shut_down(expired, sink).unwrap();
    assert!(posted.is_empty());
    assert!(lost > 0, "nothing was overrun");
}

#[test]
fn h27_r16_a_message_overtakes_one_that_was_posted_and_polled_for_before_it() {
    let count = if cfg!(miri) { 48 } else { 200 };
    let mut arrived = Vec::new();
    let config = config(Profile::RDMA).shuffle(true).seed(1);
    let (mut a, mut b): (Side, Side) = pair_of(config, Depth::new(16, 16)).unwrap();
    (0..16).for_each(|token| recv(&mut b, token));
    let mut take = |b: &mut Side| {
        while let Some(event) = b.endpoint.poll() {
            let Event::Received(message) = event else { panic!("{event:?}") };
            arrived.push(message.imm.unwrap());
            recv(b, 0);
        }
    };
    for imm in 0..count {
        a.endpoint.post(a.peer.send_empty().imm(imm), Token(0)).unwrap();
        let _ = a.endpoint.poll();
        take(&mut b);
    }
    while a.endpoint.in_flight() > 0 {
        let _ = a.endpoint.poll();
    }
    take(&mut b);
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..count), "each once");
}

#[test]
fn h27_r16_messages_arrive_out_of_order_for_some_seed_and_reorder_and_arrivals_restore() {
    const COUNT: u32 = 8;
    let mut disordered = 0;
    for seed in 0..if cfg!(miri) { 3 } else { 32 } {
        let config = config(Profile::RDMA).shuffle(true).seed(seed);
        let (mut a, mut b): (Side, Side) = pair_of(config, Depth::new(16, 16)).unwrap();
        let (memory, window) = window(&b, &a);
        for token in 0..COUNT {
            recv(&mut b, token.into());
        }
        for imm in 0..COUNT {
            a.endpoint.post(a.peer.send_inline(&imm.to_le_bytes()).imm(imm), Token(imm.into())).unwrap();
        }
        let mut order = Reorder::<Vec<u8>, 8>::new();
        let mut arrived = Vec::new();
        for _ in 0..COUNT {
            let (bytes, imm) = received(&mut b);
            arrived.push(imm.unwrap());
            order.push(imm.unwrap(), bytes).unwrap();
        }
        for imm in 0..COUNT {
            assert_eq!(order.pop().unwrap(), imm.to_le_bytes());
        }
        disordered += u32::from(!arrived.is_sorted());

        for token in 0..COUNT {
            recv(&mut b, token.into());
        }
        let mut posted = 0;
        let mut chunks = Arrivals::expect(COUNT.into());
        while !chunks.all_here() {
            if posted < COUNT && a.endpoint.can_post() {
                let range = window.range(u64::from(posted) * 16..u64::from(posted) * 16 + 16).unwrap();
                let chunk = slice(&a.pd, &[posted as u8 + 1; 16]).1;
                a.endpoint.post(a.peer.write(chunk, range).imm(posted), Token(0)).unwrap();
                posted += 1;
            }
            let _ = a.endpoint.poll();
            if let Some(Event::WriteArrived(_)) = b.endpoint.poll() {
                chunks.arrived().unwrap();
            }
        }
        let mut bytes = [0; 16 * COUNT as usize];
        memory.copy_out(0, &mut bytes).unwrap();
        assert!(bytes.chunks(16).enumerate().all(|(n, chunk)| chunk == [n as u8 + 1; 16]));
        assert!(chunks.arrived().is_err());
    }
    assert!(disordered > 0, "no seed delivered in another order");
    assert!(format!("{:?}", Config::new(Profile::RDMA)).contains("shuffle: true"), "shuffle is the default");
}

#[test]
fn a_read_needs_a_window_that_grants_it_at_the_device_too() {
    let (mut a, b) = pair();
    let memory = page::<_, RemoteRead>(&b.ctx, &b.pd);
    let frame = memory.grant(&b.endpoint).unwrap();
    let mut forged = efa_core::wire::Grant::parse(frame.as_bytes()).unwrap();
    forged.access |= efa_core::flags::Access::REMOTE_WRITE;
    let window = a.peer.window::<RemoteWrite>(forged.to_frame().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!((failure.status(), failure.kind), (Some(CompletionStatus::RemoteBadAddress), Kind::Write));
    forged.rkey.0 ^= 1 << 20;
    let window = a.peer.window::<RemoteRead>(forged.to_frame().as_bytes()).unwrap();
    a.endpoint.post(a.peer.read(zeros(&a.pd, 8), window), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!((failure.status(), failure.kind), (Some(CompletionStatus::RemoteBadAddress), Kind::Read));
    forged.length += 8;
    forged.rkey.0 ^= 1 << 20;
    let window = a.peer.window::<RemoteRead>(forged.to_frame().as_bytes()).unwrap().range(4096..4104).unwrap();
    a.endpoint.post(a.peer.read(zeros(&a.pd, 8), window), Token(1)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadAddress));
    assert_eq!(a.endpoint.cause().unwrap().kind, Kind::Write, "the first is the cause (R40)");
}

/// A step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Recv,
    Send(u8),
    SendTwo,
    Inline(u8),
    Write,
    WriteImm(u8),
    Read,
    Batch { operations: u8, end: u8 },
    Poll(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Recv),
        2 => (0..=64u8).prop_map(Step::Send),
        1 => Just(Step::SendTwo),
        1 => (0..=32u8).prop_map(Step::Inline),
        1 => Just(Step::Write),
        1 => (0..=64u8).prop_map(Step::WriteImm),
        1 => Just(Step::Read),
        1 => (1..5u8, 0..4u8).prop_map(|(operations, end)| Step::Batch { operations, end }),
        3 => (1..6u8).prop_map(Step::Poll),
    ];
    proptest::collection::vec(step, 1..if cfg!(miri) { 20 } else { 80 })
}

/// A program's state: what it posted, and what became of it.
struct Run {
    a: Endpoint<SoftDevice>,
    b: Endpoint<SoftDevice>,
    to_b: Peer<Mutual>,
    pool: Pool<16>,
    window: RemoteWindow<RemoteReadWrite>,
    pending: HashMap<Token, usize>,
    posted: u64,
}

impl Run {
    fn token(&mut self, slices: usize) -> Token {
        self.posted += 1;
        self.pending.insert(Token(self.posted), slices);
        Token(self.posted)
    }

    fn refused(&mut self, token: Token, error: Error, slices: impl IntoIterator<Item = Slice>) {
        let full = matches!(error, Error::QueueFull { .. } | Error::RecvQueueFull { .. } | Error::BatchFull { .. });
        assert!(full, "{error}");
        self.resolve(token, slices);
    }

    fn resolve(&mut self, token: Token, slices: impl IntoIterator<Item = Slice>) {
        let expected = self.pending.remove(&token).expect("resolved once, and posted before");
        let mut count = 0;
        for slice in slices {
            count += 1;
            self.put(slice);
        }
        assert_eq!(count, expected);
    }

    fn put(&mut self, slice: Slice) {
        self.pool.put(slice).unwrap();
    }

    fn event(&mut self, event: Event) {
        let (token, buffers) = match event {
            Event::Sent(done) | Event::Written(done) | Event::Read(done) => (done.token, done.buffers),
            Event::Received(message) => (message.token, message.buffers),
            Event::WriteArrived(arrived) => (arrived.token, arrived.buffers),
            Event::Failed { failure, buffers } => (failure.token.unwrap(), buffers),
            Event::Reclaimed { token, buffers } => (token, buffers),
            Event::UnsolicitedWrite(_) => panic!("none was asked for"),
        };
        self.resolve(
            token,
            buffers.into_iter().map(|buffer| match buffer {
                Buffer::Slice(slice) => slice,
                buffer => panic!("{buffer:?}"),
            }),
        );
    }

    fn step(&mut self, step: Step) {
        let window = self.window.range(0..64).unwrap();
        macro_rules! post {
            ($slices:expr, $operation:expr, $back:expr) => {{
                let token = self.token($slices);
                let operation = $operation;
                if let Err(refused) = self.a.post(operation, token) {
                    let (operation, error) = refused.into_parts();
                    let back: Vec<Slice> = $back(operation);
                    self.refused(token, error, back);
                }
            }};
        }
        match step {
            Step::Recv => {
                let Some(slice) = self.pool.take() else { return };
                let token = self.token(1);
                if let Err(refused) = self.b.post_recv(slice, token) {
                    let (slice, error) = refused.into_parts();
                    self.refused(token, error, [slice]);
                }
            }
            Step::Send(imm) => {
                let Some(slice) = self.pool.take() else { return };
                post!(1, self.to_b.send(slice).imm(imm.into()), |slice: Slice| vec![slice]);
            }
            Step::SendTwo => {
                let (Some(first), second) = (self.pool.take(), self.pool.take()) else { return };
                let Some(second) = second else { return self.put(first) };
                post!(2, self.to_b.send([first, second]), |slices: [Slice; 2]| slices.into());
            }
            Step::Inline(len) => {
                let bytes = [len; 32];
                post!(0, self.to_b.send_inline(&bytes[..len.into()]), |_| vec![]);
            }
            Step::Write => {
                let Some(slice) = self.pool.take() else { return };
                post!(1, self.to_b.write(slice, window), |slice: Slice| vec![slice]);
            }
            Step::WriteImm(imm) => {
                let Some(slice) = self.pool.take() else { return };
                post!(1, self.to_b.write(slice, window).imm(imm.into()), |slice: Slice| vec![slice]);
            }
            Step::Read => {
                let Some(slice) = self.pool.take() else { return };
                post!(1, self.to_b.read(slice, window), |slice: Slice| vec![slice]);
            }
            Step::Batch { operations, end } => self.batch(operations, end),
            Step::Poll(times) => {
                for _ in 0..times {
                    let events = [self.a.poll(), self.b.poll()];
                    events.into_iter().flatten().for_each(|event| self.event(event));
                }
            }
        }
    }

    fn batch(&mut self, operations: u8, end: u8) {
        let mut back = Vec::new();
        let mut batch = self.a.batch();
        for _ in 0..operations {
            let Some(slice) = self.pool.take() else { break };
            self.posted += 1;
            let token = Token(self.posted);
            self.pending.insert(token, 1);
            if let Err(refused) = batch.push(self.to_b.send(slice), token) {
                back.push((token, refused.into_inner()));
            }
        }
        match end {
            0 => batch.abort(|token, mut buffers| back.push((token, buffers.take_slice().unwrap()))),
            1 => mem::forget(batch),
            _ => drop(batch.submit()),
        }
        for (token, slice) in back {
            self.resolve(token, [slice]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_operation_of_a_random_program_is_resolved_exactly_once(
        steps in steps(),
        seed: u64,
        patience in 0..40u32,
    ) {
        let device = SoftDevice::new(config(Profile::RDMA).shuffle(true).seed(seed));
        let ctx = efa_core::Context::open(device);
        let pd = ctx.alloc_pd().unwrap();
        let depth = Depth::new(4, 4);
        let a: Endpoint<SoftDevice> = pd.endpoint(required(&ctx), depth).unwrap();
        let b: Endpoint<SoftDevice> = pd.endpoint(required(&ctx), depth).unwrap();
        let (to_b, _to_a) = connect(&a, &b);
        let memory = page::<_, RemoteReadWrite>(&ctx, &pd);
        let window = to_b.window(memory.grant(&b).unwrap().as_bytes()).unwrap();
        let (region, whole) = pd.register(vec![0u8; 16 * 64]).unwrap();
        let (pool, rest) = Pool::<16>::new(whole, 64).unwrap();
        prop_assert!(rest.is_none());
        let mut run = Run { a, b, to_b, pool, window, pending: HashMap::new(), posted: 0 };
        for step in steps {
            run.step(step);
        }
        let Run { a, b, to_b, pool, window, pending, posted } = run;
        prop_assert_eq!(a.in_flight() + b.in_flight(), pending.len() as u32);
        // Both end: by polling to the end, by flushes, or by the deadline.
        let mut events = Vec::new();
        let mut left = patience;
        let mut expired = || {
            left = left.saturating_sub(1);
            left == 0
        };
        let before = a.in_flight();
        let report = a.shut_down(&mut expired, |event| events.push(event)).unwrap();
        prop_assert_eq!(report.completed + report.reclaimed, before);
        let before = b.in_flight();
        let report = b.shut_down(&mut expired, |event| events.push(event)).unwrap();
        prop_assert_eq!(report.completed + report.reclaimed, before);
        let (a, b): (Endpoint<SoftDevice>, Endpoint<SoftDevice>) =
            (pd.endpoint(required(&ctx), depth).unwrap(), pd.endpoint(required(&ctx), depth).unwrap());
        let mut run = Run { a, b, to_b, pool, window, pending, posted };
        for event in events {
            run.event(event);
        }
        prop_assert!(run.pending.is_empty(), "{:?} not resolved", run.pending);
        prop_assert_eq!(region.close(run.pool.into_slice().unwrap()).unwrap().len(), 16 * 64);
        prop_assert!(memory.revoke().is_ok());
        prop_assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions()), (0, 0));
    }
}
