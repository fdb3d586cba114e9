//! Batches: submitted, aborted, dropped, forgotten.

use std::mem;

use efa_core::qp::{Depth, Endpoint};
use efa_core::soft::{Profile, Side, SoftDevice, pair_of};
use efa_core::work::Event;
use efa_core::{Error, Limits, Token};

use crate::common::{LIMITS, assert_idle, config, connect, pair, required, slice, wait, zeros};
use crate::{received, recv, sent, window};

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
    assert!(batch.len() == 5 && !batch.is_empty());
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
fn a_batch_with_a_wrong_operation_stays_as_it_was_and_aborted_gives_all_back_in_their_order() {
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
    assert_eq!(back, [(1, Some(b"first".to_vec())), (3, None), (4, Some(b"last".to_vec()))]);
    assert_eq!(a.endpoint.in_flight(), 0);
    assert_idle(&mut b.endpoint);
    // The ring goes on where it was.
    a.endpoint.post(a.peer.send_inline(b"next"), Token(5)).unwrap();
    assert_eq!(received(&mut b).0, b"next");
    let _ = sent(&mut a, 5);
}

#[test]
fn a_batch_whose_abort_is_left_by_a_panic_is_gone_whole() {
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 4)).unwrap();
    for round in 0..5u8 {
        let slices: Vec<_> = (0..4).map(|_| slice(&a.pd, b"lost")).collect();
        let (regions, slices): (Vec<_>, Vec<_>) = slices.into_iter().unzip();
        let mut batch = a.endpoint.batch();
        for (token, slice) in (0..).zip(slices) {
            batch.push(a.peer.send(slice), Token(token)).unwrap();
        }
        let mut seen = Vec::new();
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            batch.abort(|token, _| {
                seen.push(token.0);
                assert!(seen.len() < 2, "leave");
            });
        }));
        assert!(left.is_err());
        assert_eq!((seen, a.endpoint.in_flight()), (vec![0, 1], 0));
        drop(regions);
        // Nothing of it goes out, and the ring goes on where it was.
        recv(&mut b, u64::from(round));
        a.endpoint.post(a.peer.send_inline([round; 3]), Token(9)).unwrap();
        assert_eq!(received(&mut b).0, [round; 3]);
        let _ = sent(&mut a, 9);
        assert_idle(&mut b.endpoint);
    }
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
fn a_forgotten_batch_never_goes_out_and_comes_back_when_the_queue_pair_is_shut_down() {
    let (mut a, mut b) = pair();
    for token in 0..2 {
        recv(&mut b, token);
    }
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send(slice(&a.pd, b"forgotten").1), Token(1)).unwrap();
    batch.push(a.peer.send_empty(), Token(2)).unwrap();
    mem::forget(batch);
    assert_idle(&mut a.endpoint);
    a.endpoint.post(a.peer.send_inline(b"post"), Token(3)).unwrap();
    let mut batch = a.endpoint.batch();
    batch.push(a.peer.send_inline(b"batch"), Token(4)).unwrap();
    assert_eq!((batch.len(), batch.submit()), (1, 1));
    assert_eq!((received(&mut b).0, received(&mut b).0), (b"post".to_vec(), b"batch".to_vec()));
    let _ = (sent(&mut a, 3), sent(&mut a, 4));
    assert_idle(&mut a.endpoint);
    assert_eq!(a.endpoint.in_flight(), 2);
    let refused = a.endpoint.error().unwrap().reset().unwrap_err();
    assert_eq!(refused.error(), Error::InFlight { operations: 2 });
    let mut back = Vec::new();
    let ended = refused.into_inner().shut_down(
        || true,
        |event| match event {
            Event::Reclaimed { token, buffers } => {
                back.push((token.0, buffers.into_slice().map(|slice| slice.to_vec())))
            }
            event => panic!("{event:?}"),
        },
    );
    assert_eq!(ended.unwrap().reclaimed, 2);
    back.sort();
    assert_eq!(back, [(1, Some(b"forgotten".to_vec())), (2, None)]);
    assert_idle(&mut b.endpoint);
}

#[test]
fn forgotten_batches_keep_their_places_in_the_queue_and_none_in_the_ring() {
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(8, 8)).unwrap();
    for forgotten in 0..8u8 {
        // Once around the ring and on, so that each begins elsewhere.
        for nth in 0..if forgotten == 0 { 3 } else { 9 } {
            recv(&mut b, 1);
            a.endpoint.post(a.peer.send_inline([forgotten, nth]), Token(7)).unwrap();
            assert_eq!(received(&mut b).0, [forgotten, nth]);
            let _ = sent(&mut a, 7);
        }
        assert_eq!(a.endpoint.in_flight(), forgotten.into());
        let mut batch = a.endpoint.batch();
        batch.push(a.peer.send(zeros(&a.pd, 8)), Token(forgotten.into())).unwrap();
        mem::forget(batch);
    }
    assert!(!a.endpoint.can_post());
    let refused = a.endpoint.post(a.peer.send_inline(b"next"), Token(9)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFull { in_flight: 8 });
    assert_idle(&mut a.endpoint);
    assert_idle(&mut b.endpoint);
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
