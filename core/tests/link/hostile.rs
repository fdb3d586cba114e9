//! Frames of those who mean no good: nothing is ended, executed or kept that is not theirs.

use efa_core::connect::connect;
use efa_core::entry::control1;
use efa_core::qp::Depth;
use efa_core::soft::SoftDevice;
use efa_core::soft::link::{Body, FRAME, Frame, FrameError, Request};
use efa_core::work::Event;
use efa_core::{Context, Gid, Provider, Token};

use crate::net::gid;
use crate::{Link, bytes, config, look, nothing, pair, pair_with, recv, status, wait, window};

/// Writes a frame.
fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = [0; FRAME];
    let len = frame.write(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

/// Somebody who speaks frames by hand.
struct Stranger {
    gid: Gid,
    to: SoftDevice,
    session: u64,
    theirs: u64,
    /// What came for it, parsed no further than to whom.
    came: Vec<Vec<u8>>,
}

impl Stranger {
    /// It has said hello.
    fn new(gid: Gid, to: &SoftDevice) -> Self {
        let mut stranger = Self { gid, to: to.clone(), session: 77, theirs: 0, came: Vec::new() };
        stranger.say(Body::Hello).unwrap();
        stranger.listen();
        let hello = stranger.came.iter().map(|bytes| Frame::parse(bytes).unwrap()).find(|it| it.body == Body::Hello);
        stranger.theirs = hello.unwrap().from_session;
        stranger
    }

    fn frame<'a>(&self, body: Body<'a>) -> Frame<'a> {
        let (to, from) = (self.to.gid(), self.gid);
        Frame { to, from, to_session: self.theirs, from_session: self.session, body }
    }

    fn say(&self, body: Body<'_>) -> Result<(), FrameError> {
        self.to.receive(1_000_000, &written(&self.frame(body)))
    }

    /// Takes what is sent to it; what is for others is lost.
    fn listen(&mut self) {
        let mut bytes = [0; FRAME];
        while let Some((to, len)) = self.to.transmit(1_000_000, &mut bytes) {
            if to == self.gid {
                self.came.push(bytes[..len].to_vec());
            }
        }
    }

    /// The status of each answer that came.
    fn statuses(&mut self) -> Vec<(u64, u8)> {
        self.listen();
        let mut found = Vec::new();
        for bytes in self.came.drain(..) {
            if let Body::Answers(answers) = Frame::parse(&bytes).unwrap().body {
                found.extend(answers.iter());
            }
        }
        found
    }
}

/// A SEND of no bytes.
fn request(sequence: u64, floor: u64, to: &Link) -> Request<'static> {
    Request {
        sequence,
        floor,
        op: control1::OP_SEND,
        imm: None,
        unsolicited: false,
        source: 1,
        destination: to.endpoint.qpn().0,
        qkey: to.endpoint.address().qkey.0,
        rkey: 0,
        length: 0,
        address: 0,
        at: 0,
        part: 0,
        data: &[],
    }
}

/// Record by record: sequence number and status.
fn answers(records: &[(u64, u8)]) -> Vec<u8> {
    let record =
        |&(sequence, status): &(u64, u8)| [&sequence.to_be_bytes()[..], &[status, 0, 0, 0, 0, 0, 0, 0]].concat();
    records.iter().flat_map(record).collect()
}

/// A frame of answers, by hand.
fn answer_frame(head: &Frame<'_>, records: &[(u64, u8)]) -> Vec<u8> {
    let mut bytes = written(&Frame { body: Body::Alive, ..*head });
    bytes.extend(answers(records));
    bytes[5] = 5;
    let len = (bytes.len() as u16).to_be_bytes();
    bytes[6..8].copy_from_slice(&len);
    assert!(Frame::parse(&bytes).is_ok());
    bytes
}

#[test]
fn nothing_is_kept_of_who_only_says_hello_and_few_of_them_are_answered() {
    let (mut a, mut b, mut net) = pair();
    let wire = a.ctx.provider().clone();
    for n in 0..if cfg!(miri) { 40 } else { 5_000 } {
        let stranger = Stranger { gid: gid(1000 + n), to: wire.clone(), session: 1 + n, theirs: 0, came: Vec::new() };
        stranger.say(Body::Hello).unwrap();
    }
    let mut bytes = [0; FRAME];
    let mut sent = 0;
    while let Some((_, len)) = wire.transmit(1, &mut bytes) {
        assert_eq!(Frame::parse(&bytes[..len]).unwrap().body, Body::Hello);
        sent += 1;
    }
    assert_eq!((sent, wire.next_timeout()), (32, None));
    // Who repeats its hello takes one of those places.
    let twice = Stranger { gid: gid(1000), to: wire.clone(), session: 1, theirs: 0, came: Vec::new() };
    for _ in 0..40 {
        twice.say(Body::Hello).unwrap();
    }
    assert!(wire.transmit(1, &mut bytes).is_some());
    assert_eq!(wire.transmit(1, &mut bytes), None);
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
}

#[test]
fn who_does_not_know_the_session_ends_nothing_and_executes_nothing() {
    let (mut a, mut b, mut net) = pair();
    let (memory, _window) = window(&b, &a);
    recv(&mut b, 8, 1);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
    recv(&mut b, 8, 2);
    net.loss = 1000;
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    net.steps(3);
    let of_b = net.log.iter().map(|bytes| Frame::parse(bytes).unwrap()).find(|frame| frame.from == gid(2)).unwrap();
    let (ours, theirs) = (of_b.to_session, of_b.from_session);
    for (to_session, from_session) in [(1, 1), (ours ^ 1, theirs), (ours, theirs ^ 1), (theirs, ours)] {
        let head = Frame { to: gid(1), from: gid(2), to_session, from_session, body: Body::Reset };
        net.wires[0].receive(net.now, &written(&head)).unwrap();
        for sequence in 0..64 {
            net.wires[0].receive(net.now, &answer_frame(&head, &[(sequence, 0)])).unwrap();
        }
        // Of a sequence number that was not seen yet, else it would be a repetition.
        let body = Body::Request(request(1, 1, &b));
        let head = Frame { to: gid(2), from: gid(1), to_session: from_session, from_session: to_session, body };
        net.wires[1].receive(net.now, &written(&head)).unwrap();
    }
    net.steps(3);
    nothing(&mut a.endpoint);
    nothing(&mut b.endpoint);
    assert_eq!(look(&memory, 64), [0; 64]);
    // Somebody else with a session of its own has no say either.
    let stranger = Stranger::new(gid(9), a.ctx.provider());
    let all: Vec<_> = (0..64).map(|sequence| (sequence, 0)).collect();
    a.ctx.provider().receive(net.now, &answer_frame(&stranger.frame(Body::Alive), &all)).unwrap();
    stranger.say(Body::Data { sequence: 1, bytes: &[] }).unwrap();
    nothing(&mut a.endpoint);
    net.loss = 0;
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(done) if done.token == Token(2)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.token == Token(2)));
}

#[test]
fn more_strangers_than_there_are_places_displace_the_silent_and_not_who_is_waited_for() {
    let (mut a, mut b, mut net) = pair_with(config(1), config(2));
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    net.steps(10);
    let wire = a.ctx.provider().clone();
    let first = Stranger::new(gid(100), &wire);
    first.say(Body::Alive).unwrap();
    let (mut bytes, mut was_told) = ([0; FRAME], false);
    for n in 1..if cfg!(miri) { 20 } else { 600 } {
        Stranger::new(gid(100 + n), &wire).say(Body::Alive).unwrap();
        while let Some((to, len)) = wire.transmit(1_000_000, &mut bytes) {
            was_told |= to == first.gid && Frame::parse(&bytes[..len]).unwrap().body == Body::Reset;
        }
    }
    assert!(was_told, "the one silent for the longest is told that it is forgotten");
    first.say(Body::Alive).unwrap();
    let (to, len) = wire.transmit(1_000_000, &mut bytes).unwrap();
    assert_eq!((to, Frame::parse(&bytes[..len]).unwrap().body), (first.gid, Body::Reset), "it is not known any more");
    nothing(&mut a.endpoint);
    recv(&mut b, 8, 1);
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
}

#[test]
fn who_comes_when_all_places_are_taken_gets_one_and_its_message_through() {
    let (mut a, mut b, mut net) = pair();
    let wire = a.ctx.provider().clone();
    for n in 0..if cfg!(miri) { 20 } else { 300 } {
        Stranger::new(gid(100 + n), &wire).say(Body::Alive).unwrap();
    }
    recv(&mut a, 8, 1);
    b.endpoint.post(b.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Received(_)));
}

#[test]
fn whatever_floor_a_peer_claims_each_sequence_number_is_executed_once() {
    let (a, mut b, _) = pair();
    drop(a);
    let wire = b.ctx.provider().clone();
    let mut peer = Stranger::new(gid(50), &wire);
    let mut rng = 5u64;
    let mut random = move || {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rng >> 33
    };
    let mut floor = 0u64.wrapping_sub(20);
    let mut executed = std::collections::BTreeSet::new();
    for nth in 0..if cfg!(miri) { 40 } else { 3_000 } {
        if b.endpoint.can_post_recv() {
            recv(&mut b, 1, nth);
        }
        // Backwards too, and far ahead now and then.
        floor = match random() % 50 {
            0 => floor.wrapping_add(random() % 1000),
            1..5 => floor.wrapping_sub(random() % 100),
            _ => floor.wrapping_add(random() % 3),
        };
        let sequence = floor.wrapping_add(random() % 64);
        peer.say(Body::Request(Request { imm: Some(sequence as u32), ..request(sequence, floor, &b) })).unwrap();
        while let Some(event) = b.endpoint.poll() {
            let Event::Received(message) = event else { panic!("{event:?}") };
            assert!(executed.insert(message.imm.unwrap()), "{message:?} came twice");
        }
        for (_, status) in peer.statuses() {
            assert!(status == 0 || status == 10);
        }
    }
    assert!(executed.len() > 50 || cfg!(miri));
}

#[test]
fn a_write_of_any_shape_touches_only_what_its_key_opens() {
    let (a, mut b, _) = pair();
    let (memory, _window) = window(&b, &a);
    let (guard, _other) = window(&b, &a);
    let grant = efa_core::wire::Grant::parse(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    let wire = b.ctx.provider().clone();
    // By the one who is resolved here; A itself says nothing in this test.
    let mut peer = Stranger::new(gid(1), &wire);
    let data = [9; 64];
    let mut sequence = 0;
    let (mut done, mut refused) = (0, 0);
    let base = grant.address;
    let addresses = [base, base + 4096, base + 4032, base - 1, base.wrapping_sub(4096), 0, u64::MAX, u64::MAX - 63];
    for address in addresses.into_iter().take(if cfg!(miri) { 2 } else { 8 }) {
        for (length, at) in
            [(64, 0), (128, 64), (4096, 0), (4096, 4032), (4097, 4033), (u32::MAX, 0), (u32::MAX, u32::MAX - 64)]
        {
            for rkey in [grant.rkey.0, grant.rkey.0 ^ 1, 0] {
                let body = Request {
                    op: control1::OP_RDMA_WRITE,
                    rkey,
                    length,
                    address,
                    at,
                    part: 64,
                    data: &data,
                    ..request(sequence, sequence, &b)
                };
                peer.say(Body::Request(body)).unwrap();
                sequence += 1;
                match peer.statuses()[..] {
                    [(_, 0)] => done += 1,
                    [(_, 7)] => refused += 1,
                    ref other => panic!("{other:?}"),
                }
                let inside = address.checked_sub(base).is_some_and(|from| from + u64::from(length) <= 4096);
                assert_eq!(done + refused, sequence);
                let from = address.wrapping_sub(base).wrapping_add(at.into()) as usize;
                let mut expected = vec![0; 4096];
                if inside && rkey == grant.rkey.0 {
                    expected[from..from + 64].fill(9);
                }
                assert!(look(&memory, 4096) == expected, "{length} {at} {address:#x}");
                memory.copy_in(0, &[0; 4096]).unwrap();
            }
        }
    }
    assert!(done > 3 && refused > 30);
    assert_eq!(look(&guard, 4096), [0; 4096]);
    nothing(&mut b.endpoint);
}

#[test]
fn frames_for_others_or_of_our_own_are_refused() {
    let (a, _b, _) = pair();
    let wire = a.ctx.provider();
    let neighbour = wire.neighbour().unwrap();
    let hello = |to, from| Frame { to, from, to_session: 0, from_session: 1, body: Body::Hello };
    let for_others = wire.receive(0, &written(&hello(gid(7), gid(8)))).unwrap_err();
    assert_eq!(for_others, FrameError::NotForUs { to: gid(7) });
    let own = wire.receive(0, &written(&hello(wire.gid(), neighbour.gid()))).unwrap_err();
    assert_eq!(own, FrameError::FromUs { from: neighbour.gid() });
    assert!(for_others.to_string().contains("carrier") && own.to_string().contains("other addresses"));
    assert_eq!(wire.next_timeout(), None);
}

#[test]
fn a_wire_that_gave_us_up_while_we_slept_is_reached_again_without_a_failure() {
    let (mut a, mut b, mut net) = pair_with(config(1), config(2).patience(1_000_000));
    for side in [&mut a, &mut b] {
        recv(side, 8, 1);
    }
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    // Nobody drives A: what B sends is not answered, but what came waits at A's carrier.
    let sleeping = net.wires.remove(0);
    let late = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let kept = late.clone();
    net.filter = Some(Box::new(move |_, bytes| {
        kept.borrow_mut().push(bytes);
        None
    }));
    b.endpoint.post(b.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
    assert_eq!(status(&mut net, &mut b.endpoint), 13);
    net.settle();
    net.filter = None;
    net.wires.insert(0, sleeping);
    for frame in late.borrow().iter() {
        net.wires[0].receive(net.now, frame).unwrap();
    }
    recv(&mut b, 8, 3);
    a.endpoint.post(a.peer.send(bytes(&a, b"again")), Token(3)).unwrap();
    let Event::Received(message) = wait(&mut net, &mut a.endpoint) else { panic!("what came late was executed") };
    assert_eq!(message.len, 0);
    assert!(matches!(wait(&mut net, &mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.len == 5));
}

#[test]
fn a_message_waits_its_own_time_whenever_others_before_it_were_flushed() {
    let (a, b, mut net) = pair_with(config(1).patience(1_000_000), config(2));
    let (mut a, devices) = (a, [b.ctx.clone(), b.ctx.clone()]);
    net.loss = 1000;
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    net.steps(3);
    let ctx: Context<SoftDevice> = a.ctx.clone();
    drop(a);
    net.now += 5_000_000;
    let [mut c, _d] = connect([ctx, devices[0].clone()], Depth::new(8, 8)).unwrap();
    let began = net.now;
    c.endpoint.post(c.peer.send_empty(), Token(2)).unwrap();
    assert_eq!(status(&mut net, &mut c.endpoint), 15);
    assert!(net.now - began >= 1_000_000);
}
