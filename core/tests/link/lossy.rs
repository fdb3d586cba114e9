//! A carrier that loses, repeats and reorders: each operation is executed once, and ends once.

use efa_core::qp::{Depth, Srd};
use efa_core::soft::link::{Body, FRAME, Frame, PAYLOAD};
use efa_core::work::Event;
use efa_core::{Provider, Token};

use crate::common::zeros;
use crate::net::gid;
use crate::{bytes, config, look, nothing, pages, pair, pair_of, pair_with, pattern, recv, wait, window};

#[test]
fn each_send_arrives_once_however_often_its_frames_were_lost_or_repeated() {
    let rounds = if cfg!(miri) { 1 } else { 40 };
    let (mut a, mut b, mut net) = pair();
    (net.loss, net.repeats, net.delay) = (300, 300, 30_000);
    let (mut arrived, mut sent) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for nth in 0..8 {
            recv(&mut b, 8, nth);
            let number: u64 = round * 8 + nth;
            let message = bytes(&a, &number.to_le_bytes());
            a.endpoint.post(a.peer.send(message).imm(number as u32), Token(number)).unwrap();
        }
        for _ in 0..8 {
            let Event::Sent(done) = wait(&mut net, &mut a.endpoint) else { panic!() };
            sent.push(done.token.0);
        }
        for _ in 0..8 {
            let Event::Received(mut message) = wait(&mut net, &mut b.endpoint) else { panic!() };
            let number = u64::from(message.imm.unwrap());
            assert_eq!(message.buffers.take_slice().unwrap()[..], number.to_le_bytes());
            arrived.push(number);
        }
    }
    net.settle();
    nothing(&mut a.endpoint);
    nothing(&mut b.endpoint);
    let in_order: Vec<u64> = (0..rounds * 8).collect();
    assert!(cfg!(miri) || arrived != in_order, "R16");
    for mut all in [arrived, sent] {
        all.sort_unstable();
        assert_eq!(all, in_order);
    }
    let (requester, responder) = (a.ctx.provider().counters(), b.ctx.provider().counters());
    assert!(requester.retrans_pkts > 0 && responder.duplicates > 0, "{requester:?} {responder:?}");
    assert_eq!((responder.recv_wrs, requester.send_wrs), (rounds * 8, rounds * 8));
    assert_eq!(requester.unresponsive_remote_events, 0);
}

#[test]
fn whatever_is_lost_a_random_program_of_all_operations_ends_each_once_with_the_right_bytes() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let (mut a, mut b, mut net) = pair_with(config(1).shuffle(true).seed(seed), config(2).shuffle(true));
        (net.loss, net.repeats, net.delay) = (250, 250, 5_000);
        (0..seed).for_each(|_| {
            net.random();
        });
        let area = if cfg!(miri) { 4096 } else { 20 * 4096 };
        let (memory, window) = pages(&b, &a, 8 * area / 4096);
        let rounds = if cfg!(miri) { 2 } else { 6 };
        let mut ended = vec![0; rounds * 8];
        for round in 0..rounds {
            let mut expected = Vec::new();
            let mut receives = 0;
            for slot in 0..8 {
                let token = Token((round * 8 + slot) as u64);
                let len = net.random() as usize % (area + 1);
                let data = pattern(len, round * 8 + slot);
                let range = window.range((slot * area) as u64..(slot * area + len) as u64).unwrap();
                match net.random() % 4 {
                    0 => {
                        let len = len.min(PAYLOAD);
                        recv(&mut b, PAYLOAD, 0);
                        receives += 1;
                        a.endpoint.post(a.peer.send(bytes(&a, &data[..len])), token).unwrap();
                        expected.push((None, Vec::new()));
                    }
                    1 => {
                        memory.copy_in(slot * area, &data).unwrap();
                        a.endpoint.post(a.peer.read(bytes(&a, &vec![0; len]), range), token).unwrap();
                        expected.push((Some(false), data));
                    }
                    2 => {
                        recv(&mut b, PAYLOAD, 0);
                        receives += 1;
                        a.endpoint.post(a.peer.write(bytes(&a, &data), range).imm(1), token).unwrap();
                        expected.push((Some(true), data));
                    }
                    _ => {
                        a.endpoint.post(a.peer.write(bytes(&a, &data), range), token).unwrap();
                        expected.push((Some(true), data));
                    }
                }
            }
            for _ in 0..8 {
                let (token, read) = match wait(&mut net, &mut a.endpoint) {
                    Event::Sent(done) | Event::Written(done) => (done.token, None),
                    Event::Read(mut done) => (done.token, done.buffers.take_slice()),
                    event => panic!("{event:?}"),
                };
                ended[token.0 as usize] += 1;
                let slot = token.0 as usize % 8;
                let (is_write, data) = &expected[slot];
                let mut found = vec![0; data.len()];
                memory.copy_out(slot * area, &mut found).unwrap();
                match (is_write, read) {
                    (Some(false), Some(slice)) => assert!(slice[..] == data[..]),
                    (Some(true), None) => assert!(found == *data, "seed {seed}"),
                    (None, None) => {}
                    other => panic!("{other:?}"),
                }
            }
            for _ in 0..receives {
                let event = wait(&mut net, &mut b.endpoint);
                assert!(matches!(event, Event::Received(_) | Event::WriteArrived(_)), "{event:?}");
            }
        }
        net.settle();
        nothing(&mut a.endpoint);
        nothing(&mut b.endpoint);
        assert_eq!(ended, vec![1; rounds * 8]);
    }
}

#[test]
fn r16_a_late_part_of_a_completed_write_and_a_late_read_touch_nothing() {
    let (mut a, mut b, mut net) = pair();
    let (memory, window) = window(&b, &a);
    let all = || window.range(0..4096).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, &pattern(4096, 1)), all()), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
    a.endpoint.post(a.peer.read(zeros(&a.pd, 4096), all()), Token(2)).unwrap();
    let Event::Read(mut done) = wait(&mut net, &mut a.endpoint) else { panic!() };
    let mut slice = done.buffers.take_slice().unwrap();
    slice.fill(3);
    memory.copy_in(0, &[9; 4096]).unwrap();
    // Everything that ever was on the carrier comes again, several times, also after more was sent.
    for _ in 0..3 {
        for frame in net.log.clone() {
            let to = Frame::parse(&frame).unwrap().to;
            net.carry(to, frame, 5);
        }
        net.settle();
        assert_eq!(look(&memory, 4096), [9; 4096]);
        assert!(slice.iter().all(|byte| *byte == 3));
        recv(&mut b, 8, 1);
        a.endpoint.post(a.peer.send_empty(), Token(3)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
        assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
        nothing(&mut b.endpoint);
    }
    assert!(b.ctx.provider().counters().duplicates > 0);
}

#[test]
fn both_windows_full_in_both_directions_go_on() {
    // Far more than the window, of requests that all want data back, from both sides at once.
    let count = if cfg!(miri) { 20 } else { 256 };
    let (mut a, mut b, mut net) = pair_of::<Srd>(config(1), config(2), Depth::new(8, 8));
    (net.loss, net.delay) = (50, 2_000);
    let len = count * 4096;
    let ((at_a, to_a), (at_b, to_b)) = (pages(&a, &b, count), pages(&b, &a, count));
    at_a.copy_in(0, &pattern(len, 5)).unwrap();
    at_b.copy_in(0, &pattern(len, 5)).unwrap();
    let reads = if cfg!(miri) { 1 } else { 4 };
    for nth in 0..reads {
        for (side, window) in [(&mut a, &to_b), (&mut b, &to_a)] {
            let range = window.range(0..len as u64).unwrap();
            side.endpoint.post(side.peer.read(zeros(&side.pd, len), range), Token(nth)).unwrap();
        }
    }
    for side in [&mut a, &mut b] {
        for _ in 0..reads {
            let Event::Read(mut done) = wait(&mut net, &mut side.endpoint) else { panic!() };
            assert!(done.buffers.take_slice().unwrap()[..] == pattern(len, 5));
        }
    }
    net.settle();
}

#[test]
fn numbers_that_wrap_are_numbers_as_others() {
    let (mut a, mut b, mut net) = pair_with(config(1).near_wrap(5), config(2).near_wrap(3));
    (net.loss, net.repeats, net.delay) = (200, 200, 1_000);
    for number in 0..if cfg!(miri) { 8 } else { 80 } {
        for side in [&mut a, &mut b] {
            recv(side, 8, number);
            side.endpoint.post(side.peer.send_empty().imm(number as u32), Token(number)).unwrap();
        }
        for side in [&mut a, &mut b] {
            let mut seen = [false; 2];
            for _ in 0..2 {
                match wait(&mut net, &mut side.endpoint) {
                    Event::Sent(_) => seen[0] = true,
                    Event::Received(message) if message.imm == Some(number as u32) => seen[1] = true,
                    event => panic!("{event:?}"),
                }
            }
            assert_eq!(seen, [true; 2]);
        }
    }
    let sequences = net.log.iter().filter_map(|bytes| match Frame::parse(bytes).unwrap().body {
        Body::Request(request) => Some(request.sequence),
        _ => None,
    });
    let (low, high) = sequences.fold((u64::MAX, 0), |(low, high), one| (low.min(one), high.max(one)));
    assert_eq!((low, high), (0, u64::MAX));
}

#[test]
fn small_messages_are_not_held_up_by_a_large_write() {
    let (mut a, mut b, mut net) = pair();
    let count = if cfg!(miri) { 32 } else { 400 };
    let (_memory, window) = pages(&b, &a, count);
    recv(&mut b, 8, 1);
    let len = count * 4096;
    a.endpoint.post(a.peer.write(bytes(&a, &vec![0; len]), window.range(0..len as u64).unwrap()), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(net.requests() < 60, "{}", net.requests());
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Written(_)));
}

#[test]
fn what_is_for_who_is_busy_waits_and_nobody_else_does() {
    let (mut a, mut b, mut net) = pair();
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    a.ctx.provider().progress();
    let (mut frame, busy) = ([0; FRAME], [gid(7), gid(2)]);
    // Neither it nor hellos nor resets, which are not of its node.
    let hello = Frame { to: gid(1), from: gid(9), to_session: 0, from_session: 5, body: Body::Hello };
    let reset = Frame { to_session: 6, body: Body::Alive, from: gid(2), ..hello };
    for told in [hello, reset] {
        let len = told.write(&mut frame).unwrap();
        a.ctx.provider().receive(net.now, &frame[..len]).unwrap();
    }
    let to = |frame: &[u8]| Frame::parse(frame).unwrap().to;
    let sent = std::iter::from_fn(|| {
        let (gid, len) = a.ctx.provider().transmit_except(net.now, &mut frame, &busy)?;
        assert_eq!(to(&frame[..len]), gid);
        Some(gid)
    });
    assert_eq!(sent.collect::<Vec<_>>(), [gid(9)]);
    assert_eq!(a.ctx.provider().next_timeout(), Some(0), "it is still due");
    // Nothing of it was lost.
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
}
