//! H19, H20, R25: peers that are silent, die, come back, and were never there; and we.

use efa_core::connect::connect;
use efa_core::qp::Depth;
use efa_core::soft::SoftDevice;
use efa_core::soft::link::{Body, FRAME, Frame, PAYLOAD};
use efa_core::work::Event;
use efa_core::{Context, Provider, Token};

use crate::common::zeros;
use crate::net::gid;
use crate::{bytes, config, failed, look, nothing, pages, pair, pair_with, recv, status, wait, window};

/// Bytes of an operation that takes long.
const LARGE: usize = if cfg!(miri) { 12 } else { 100 } * 4096;

#[test]
fn h19_who_was_never_heard_answers_15_within_the_limit_and_who_was_heard_13() {
    let (mut a, mut b, mut net) = pair_with(config(1).patience(2_000_000), config(2));
    net.loss = 1000;
    let began = net.now;
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let failure = failed(&mut net, &mut a.endpoint);
    assert_eq!(failure.status().unwrap().number(), 15);
    assert!(failure.to_string().contains("security group"), "{failure}");
    let took = net.now - began;
    assert!((2_000_000..2_500_000).contains(&took), "{took}");
    net.loss = 0;
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    net.loss = 1000;
    let began = net.now;
    for token in 3..8 {
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
    }
    for _ in 3..8 {
        assert_eq!(status(&mut net, &mut a.endpoint), 13);
    }
    let took = net.now - began;
    assert!((2_000_000..2_500_000).contains(&took), "{took}");
    assert_eq!(a.ctx.provider().counters().unresponsive_remote_events, 6);
    assert_eq!(a.endpoint.in_flight(), 0);
}

#[test]
fn one_frame_that_never_gets_through_ends_its_own_operation_with_13_and_no_other() {
    let (mut a, mut b, mut net) = pair_with(config(1).patience(1_000_000), config(2));
    net.filter = Some(Box::new(|_, bytes| (bytes.len() < 4000).then_some(bytes)));
    recv(&mut b, PAYLOAD, 1);
    a.endpoint.post(a.peer.send(zeros(&a.pd, 5000)), Token(1)).unwrap();
    let mut count = 0;
    let failure = loop {
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
        match wait(&mut net, &mut a.endpoint) {
            Event::Sent(done) => assert_eq!(done.token, Token(2)),
            Event::Failed { failure, .. } => break failure,
            event => panic!("{event:?}"),
        }
        assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
        recv(&mut b, PAYLOAD, 1);
        net.now += 10_000;
        count += 1;
    };
    assert_eq!((failure.token, failure.status().unwrap().number()), (Some(Token(1)), 13));
    assert!(count > 50);
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
}

#[test]
fn h19_an_address_that_the_carrier_finds_nobody_at_ends_what_waits_for_it_at_once() {
    let (mut a, mut b, mut net) = pair();
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    a.endpoint.poll();
    net.wires[0].unreachable(gid(2));
    assert_eq!(status(&mut net, &mut a.endpoint), 15);
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    let (_memory, window) = pages(&b, &a, LARGE / 4096);
    a.endpoint.post(a.peer.write(zeros(&a.pd, LARGE), window.range(0..LARGE as u64).unwrap()), Token(3)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(4)).unwrap();
    net.steps(2);
    net.wires[0].unreachable(gid(3));
    nothing(&mut a.endpoint);
    let before = net.now;
    net.wires[0].unreachable(gid(2));
    for _ in 0..2 {
        assert_eq!(status(&mut net, &mut a.endpoint), 13);
    }
    assert_eq!((net.now, a.endpoint.in_flight()), (before, 0));
    // It was not true: the next message finds them again, which know nothing of the end.
    while b.endpoint.poll().is_some() {}
    recv(&mut b, 8, 5);
    a.endpoint.post(a.peer.send_empty(), Token(5)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    net.settle();
}

#[test]
fn a_device_that_is_plugged_out_answers_as_one_that_is_not_there() {
    let (mut a, mut b, mut net) = pair();
    a.ctx.provider().link(false);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 15);
    a.ctx.provider().link(true);
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    // Midway.
    a.endpoint.post(a.peer.send_empty(), Token(3)).unwrap();
    net.steps(3);
    a.ctx.provider().link(false);
    assert_eq!(status(&mut net, &mut a.endpoint), 13);
    a.endpoint.post(a.peer.send_empty(), Token(4)).unwrap();
    assert_eq!(status(&mut net, &mut a.endpoint), 13);
}

#[test]
fn a_device_that_is_plugged_out_takes_nothing_owes_nothing_and_sends_nothing() {
    let (mut a, mut b, mut net) = pair();
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    net.settle();
    // A request has arrived, and its answer is due, when the plug is pulled.
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    let (wire, mut bytes) = (b.ctx.provider().clone(), [0; FRAME]);
    a.ctx.provider().progress();
    let (_, len) = a.ctx.provider().transmit(net.now, &mut bytes).unwrap();
    wire.receive(net.now, &bytes[..len]).unwrap();
    assert_eq!(wire.next_timeout(), Some(0));
    wire.link(false);
    assert_eq!(wire.next_timeout(), None, "a carrier need not turn for it");
    assert_eq!(wire.transmit(net.now, &mut [0; FRAME]), None);
    // What comes meanwhile is as if it was lost.
    let duplicates = wire.counters().duplicates;
    wire.receive(net.now, &bytes[..len]).unwrap();
    assert_eq!((wire.counters().duplicates, wire.next_timeout()), (duplicates, None));
    wire.link(true);
    recv(&mut b, 8, 3);
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(done) if done.token == Token(2)));
}

#[test]
fn r25_what_waits_for_a_peer_that_restarts_ends_with_13_soon_and_the_next_life_is_reached() {
    for lost in [0, 300] {
        let (mut a, mut b, mut net) = pair();
        (net.loss, net.delay) = (lost, 3_000);
        recv(&mut b, 8, 1);
        a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
        // Two wait for a receive there, one is in the middle of a write, one of a read.
        let (_memory, window) = pages(&b, &a, LARGE / 4096);
        let all = || window.range(0..LARGE as u64).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
        a.endpoint.post(a.peer.send(bytes(&a, b"hello")), Token(3)).unwrap();
        a.endpoint.post(a.peer.write(zeros(&a.pd, LARGE), all()), Token(4)).unwrap();
        a.endpoint.post(a.peer.read(zeros(&a.pd, LARGE), all()), Token(5)).unwrap();
        net.steps(5);
        nothing(&mut a.endpoint);
        // The same address, the next life; the old process takes no more frames.
        let again = SoftDevice::new(config(2).linked(999));
        assert_eq!(again.gid(), b.ctx.provider().gid());
        net.wires[1] = again.clone();
        let began = net.now;
        let mut tokens: Vec<_> = (0..4).map(|_| failed(&mut net, &mut a.endpoint)).collect();
        assert!(net.now - began < 3_000_000, "{}", net.now - began);
        tokens.sort_by_key(|failure| failure.token);
        for (failure, token) in tokens.iter().zip(2..) {
            assert_eq!((failure.status().unwrap().number(), failure.token), (13, Some(Token(token))));
        }
        assert_eq!(a.endpoint.in_flight(), 0);
        // Both know each other anew, whoever begins.
        let contexts = [Context::open(again), a.ctx.clone()];
        let [mut c, mut d] = connect(contexts, Depth::new(8, 8)).unwrap();
        recv(&mut d, 8, 1);
        c.endpoint.post(c.peer.send_empty(), Token(6)).unwrap();
        assert!(matches!(wait(&mut net, &mut c.endpoint), Event::Sent(_)));
        assert!(matches!(wait(&mut net, &mut d.endpoint), Event::Received(_)));
        recv(&mut c, 8, 1);
        d.endpoint.post(d.peer.send_empty(), Token(7)).unwrap();
        assert!(matches!(wait(&mut net, &mut d.endpoint), Event::Sent(_)));
        nothing(&mut a.endpoint);
    }
}

#[test]
fn r25_frames_of_an_earlier_life_are_not_executed_in_the_next_nor_end_what_is_of_the_next() {
    let (mut a, mut b, mut net) = pair();
    for token in 0..3 {
        recv(&mut b, 8, token);
        a.endpoint.post(a.peer.send_inline(b"old"), Token(token)).unwrap();
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
        assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
    }
    net.settle();
    let old = std::mem::take(&mut net.log);
    // Whichever side restarts.
    for restarted in [0, 1] {
        let devices = [config(1).linked(500 + restarted), config(2).linked(600 + 2 * restarted)].map(SoftDevice::new);
        net.wires = devices.to_vec();
        let [mut c, mut d] = connect(devices.map(Context::open), Depth::new(8, 8)).unwrap();
        for token in 0..5 {
            recv(&mut d, 8, token);
            for frame in &old {
                let to = Frame::parse(frame).unwrap().to;
                let after = 1 + net.random() % 50;
                net.carry(to, frame.clone(), after);
            }
            c.endpoint.post(c.peer.send_inline(b"newer"), Token(token)).unwrap();
            net.steps(1);
            let Event::Received(message) = wait(&mut net, &mut d.endpoint) else { panic!() };
            assert_eq!((message.len, message.token), (5, Token(token)));
            assert!(matches!(wait(&mut net, &mut c.endpoint), Event::Sent(_)));
        }
        net.settle();
        nothing(&mut d.endpoint);
        nothing(&mut c.endpoint);
    }
}

#[test]
fn the_first_messages_of_both_cross_and_arrive_once_however_hellos_are_lost_and_repeated() {
    for seed in 0..if cfg!(miri) { 1 } else { 100 } {
        let (mut a, mut b, mut net) = pair();
        (net.loss, net.repeats, net.delay) = (200, 300, 60_000);
        (0..seed).for_each(|_| {
            net.random();
        });
        // Both begin at once.
        for side in [&mut a, &mut b] {
            recv(side, 8, 1);
            side.endpoint.post(side.peer.send_empty(), Token(1)).unwrap();
        }
        for side in [&mut a, &mut b] {
            let events = [wait(&mut net, &mut side.endpoint), wait(&mut net, &mut side.endpoint)];
            let sent = events.iter().filter(|event| matches!(event, Event::Sent(_))).count();
            let received = events.iter().filter(|event| matches!(event, Event::Received(_))).count();
            assert_eq!((sent, received), (1, 1), "seed {seed}: {events:?}");
        }
    }
}

#[test]
fn what_is_on_its_way_when_its_queue_pair_fails_is_flushed_once_and_late_answers_find_nothing() {
    for reset in [false, true] {
        let (mut a, b, mut net) = pair();
        let (memory, window) = pages(&b, &a, LARGE / 4096);
        memory.copy_in(0, &[7; 4096]).unwrap();
        let all = || window.range(0..LARGE as u64).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
        a.endpoint.post(a.peer.write(zeros(&a.pd, LARGE), all()), Token(2)).unwrap();
        a.endpoint.post(a.peer.read(bytes(&a, &[1; 4096]), window.range(0..4096).unwrap()), Token(3)).unwrap();
        net.delay = 100_000;
        net.steps(4);
        nothing(&mut a.endpoint);
        let mut failed = a.endpoint.error().unwrap();
        let mut ended = Vec::new();
        let mut kept = Vec::new();
        while let Some(event) = failed.poll() {
            let Event::Failed { failure, mut buffers } = event else { panic!("{event:?}") };
            assert!(failure.is_flush());
            ended.push(failure.token.unwrap().0);
            kept.extend(buffers.take_slice());
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 2, 3]);
        let qp = reset.then(|| failed.reset().unwrap().prepare().unwrap());
        // All that comes now is late: also everything that was ever sent, again.
        for frame in net.log.clone() {
            let to = Frame::parse(&frame).unwrap().to;
            net.carry(to, frame, 200_000);
        }
        net.settle();
        for slice in kept {
            assert!(slice.iter().all(|byte| *byte == 0) || slice.iter().all(|byte| *byte == 1));
        }
        if let Some(mut qp) = qp {
            nothing(&mut qp);
        }
    }
}

#[test]
fn a_queue_pair_that_is_destroyed_with_work_on_its_way_gives_all_back_and_its_number_to_the_next() {
    let (mut a, mut b, mut net) = pair();
    net.delay = 50_000;
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send(bytes(&a, b"hello")), Token(1)).unwrap();
    let (_memory, window) = window(&b, &a);
    a.endpoint.post(a.peer.read(zeros(&a.pd, 4096), window.range(0..4096).unwrap()), Token(2)).unwrap();
    net.steps(4);
    let mut ended = Vec::new();
    a.endpoint.shut_down(|| true, |event| ended.push(event.token().unwrap().0)).unwrap();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2]);
    // The next has the same number, and is told of nothing that is not its own.
    let contexts = [a.ctx.clone(), b.ctx.clone()];
    let [mut c, d] = connect(contexts, Depth::new(8, 8)).unwrap();
    net.settle();
    nothing(&mut c.endpoint);
    assert_eq!(c.ctx.provider().leaks().queue_pairs(), 0);
    drop(d);
}

#[test]
fn h20_a_program_that_dies_answers_9_and_what_it_had_begun_just_stops() {
    let (mut a, b, mut net) = pair();
    let count = if cfg!(miri) { 60 } else { 200 };
    let (memory, window) = pages(&b, &a, count);
    let len = count * 4096;
    a.endpoint.post(a.peer.write(bytes(&a, &vec![5; len]), window.range(0..len as u64).unwrap()), Token(1)).unwrap();
    net.steps(4);
    a.ctx.provider().die();
    net.settle();
    let before = look(&memory, len);
    assert!(before.contains(&5) && before.contains(&0), "begun, and not done");
    net.settle();
    assert_eq!(look(&memory, len), before);
    // The other way round: its queue pairs are gone.
    let (mut c, d, mut net) = pair();
    d.ctx.provider().die();
    c.endpoint.post(c.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(status(&mut net, &mut c.endpoint), 9);
}

#[test]
fn more_than_the_wire_holds_waits_in_the_send_queue_also_for_other_wires() {
    let (mut a, mut b, mut net) = pair_with(config(1).packets(3), config(2));
    for token in 0..8 {
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
    }
    net.steps(20);
    assert!(net.log.iter().any(|bytes| matches!(Frame::parse(bytes).unwrap().body, Body::Request(_))));
    let sequences = net.log.iter().filter_map(|bytes| match Frame::parse(bytes).unwrap().body {
        Body::Request(request) => Some(request.sequence - request.floor),
        _ => None,
    });
    assert!(sequences.max().unwrap() < 3);
    for token in 0..8 {
        recv(&mut b, 8, token);
    }
    for _ in 0..8 {
        assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    }
}
