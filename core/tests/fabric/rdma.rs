//! RDMA with a side that speaks for itself: what is granted to whom, what fails and whom that ends, and in parts.

use efa_core::fabric::{Event, Memory, Messages, PeerFeatures, RemoteRange, Returned, Violation, Why};
use efa_core::flags::Access;
use efa_core::memory::{Exposed, Pages, RemoteRead, RemoteReadWrite, RemoteWrite};
use efa_core::qp::Srd;
use efa_core::soft::{Config, Profile};
use efa_core::status::CompletionStatus;
use efa_core::work::Cause;
use efa_core::{Incarnation, Limits, Token, wire};

use super::hand::{ByHand, CLEAR, DATA, DONE, FINISH, GET, LONG, SLOTS, changed};
use super::two::{Happened, PACKET, exposed, pages};
use super::{Two, payload};

type Hand = ByHand<Srd>;

const LEN: usize = 4 * PACKET;

fn hand(config: Config, features: u32) -> Hand {
    let mut this = Hand::new(config);
    this.features = features;
    this.come_up();
    this
}

fn granted(mut packet: Vec<u8>, grant: &[u8]) -> Vec<u8> {
    let at = packet.len() - 40;
    packet = changed(packet, at, grant);
    changed(packet, 3, &[1])
}

/// What the layer may have of 2048 bytes of this side's, for as long as they are kept: `there`, or where nothing is.
fn grant(this: &Hand, there: bool) -> (Exposed<Pages, RemoteReadWrite>, wire::Grant) {
    let memory = this.side.pd.expose(pages(&payload(9, LEN)), this.side.ctx.require::<RemoteReadWrite>().unwrap());
    let memory = memory.unwrap();
    let mut grant = wire::Grant::parse(memory.grant(&this.side.endpoint).unwrap().as_bytes()).unwrap();
    grant.length = LEN as u64;
    if !there {
        grant.address += 1 << 40;
    }
    (memory, grant)
}

fn window(this: &Hand, there: bool) -> (Exposed<Pages, RemoteReadWrite>, RemoteRange) {
    let (access, (memory, grant)) = (Access::REMOTE_READ | Access::REMOTE_WRITE, grant(this, there));
    let window =
        wire::Window { id: 9, access, length: LEN as u64, incarnation: Incarnation(this.own), grant: Some(grant) };
    (memory, this.layer.remote(this.peer, window.to_frame().as_bytes()).unwrap())
}

fn slice(this: &Hand, len: usize) -> Memory<Vec<u8>> {
    this.pd.register(payload(3, len)).unwrap().1.into()
}

/// The status of a failure of the device's, and the bytes of the buffer that came back with it.
fn failed(events: &[Happened]) -> Vec<(CompletionStatus, usize)> {
    let status = |event: &Happened| match event {
        Event::Failed { why: Why::Device(failure), buffer, .. } => {
            let Cause::Status(status) = failure.cause else { panic!("{failure:?}") };
            let (Returned::Source(memory) | Returned::Target(memory)) = buffer;
            Some((status, memory.len()))
        }
        Event::Lost { .. } => None,
        event => panic!("{event:?}"),
    };
    events.iter().filter_map(status).collect()
}

#[test]
fn memory_is_granted_as_far_as_it_was_exposed_and_to_peers_that_can_use_it() {
    for features in [0, 1, 2, 3, u32::MAX] {
        let mut this = hand(Config::new(Profile::RDMA), features);
        let both = PeerFeatures::from_bits_truncate(features);
        assert_eq!(this.layer.features(this.peer), Some(both));
        let to_read = this.pd.expose(pages(&[1; LEN]), this.ctx.require::<RemoteRead>().unwrap()).unwrap();
        let to_write = this.pd.expose(pages(&[1; LEN]), this.ctx.require::<RemoteWrite>().unwrap()).unwrap();
        let parts = || [to_read.part(0..LEN).unwrap(), to_write.part(0..LEN).unwrap()];
        for (part, may) in parts().into_iter().zip([both.contains(PeerFeatures::READ), false]) {
            this.layer.send(this.peer, part.into(), Token(1)).unwrap();
            assert_eq!((this.turns().1, this.last[3]), (vec![LONG], u8::from(may)), "{features}");
        }
        for (sequence, (part, may)) in (0..).zip(parts().into_iter().zip([false, both.contains(PeerFeatures::WRITE)])) {
            this.layer.recv(part.into(), Token(2)).unwrap();
            let long = this.long(sequence, LEN as u64);
            assert_eq!((this.send(&long).1, this.last[3]), (vec![CLEAR], u8::from(may)), "{features}");
        }
    }
    let mut none = ByHand::<efa_core::qp::SendOnly>::new(Config::new(Profile::RDMA));
    none.features = 3;
    none.come_up();
    assert_eq!(none.layer.features(none.peer), Some(PeerFeatures::empty()), "its kind has no RDMA");
}

#[test]
fn a_grant_counts_if_both_have_the_rdma_and_is_then_to_be_a_good_one_of_all_of_the_message() {
    let garbage = [0xFF; 40];
    for (features, taken) in [(0, false), (1, false), (2, true)] {
        let mut this = hand(Config::new(Profile::RDMA), features);
        this.layer.send(this.peer, slice(&this, LEN), Token(1)).unwrap();
        assert_eq!(this.turns().1, [LONG]);
        let clear = granted(this.clear(this.number(20), LEN as u64), &garbage);
        if taken {
            assert!(matches!(this.breaks(&clear), Violation::Grant(_)));
        } else {
            assert_eq!(this.send(&clear).1, [DATA; 5]);
        }
    }
    for (features, taken) in [(0, false), (2, false), (1, true)] {
        let this = hand(Config::new(Profile::RDMA), features);
        let short = wire::Grant { length: LEN as u64 - 1, ..grant(&this, true).1 };
        for grant in [&garbage, short.to_frame().as_bytes()] {
            let mut this = hand(Config::new(Profile::RDMA), features);
            this.layer.recv(slice(&this, LEN), Token(1)).unwrap();
            let long = granted(this.long(0, LEN as u64), grant);
            if taken {
                assert!(matches!(this.breaks(&long), Violation::Grant(_)));
            } else {
                assert_eq!(this.send(&long).1, [CLEAR]);
            }
        }
    }
}

#[test]
fn rdma_that_fails_for_the_memory_ends_itself_and_is_told_and_for_anything_else_it_ends_the_peer() {
    for (there, status) in [(false, CompletionStatus::RemoteBadAddress), (true, CompletionStatus::RemoteAbort)] {
        // The device's third operation, after two hellos, or its fourth.
        let config = |nth| match there {
            true => Config::new(Profile::RDMA).fail_nth(nth, status),
            false => Config::new(Profile::RDMA),
        };
        let told = |mut this: Hand, (events, kinds): (Vec<Happened>, Vec<u8>), kind: Option<u8>| {
            assert_eq!(failed(&events), [(status, LEN)]);
            assert_eq!(events.len() - 1, usize::from(there), "{events:?}");
            match (there, this.layer.is_up(this.peer)) {
                (false, Ok(true)) => {
                    assert_eq!(kinds, kind.as_slice());
                    assert!(kind.is_none() || this.number(20) == 4);
                }
                (true, Err(Why::Device(_))) => {}
                (_, other) => panic!("{other:?}"),
            }
            assert!(this.turns().0.is_empty());
            assert_eq!((this.layer.under_way(), this.layer.endpoint().in_flight()), ([0; 3], SLOTS));
        };
        let mut this = hand(config(3), 3);
        this.layer.recv(slice(&this, LEN), Token(1)).unwrap();
        let (_memory, grant) = self::grant(&this, there);
        let long = granted(this.long(0, LEN as u64), grant.to_frame().as_bytes());
        let happened = this.send(&long);
        told(this, happened, Some(DONE));

        let mut this = hand(config(4), 3);
        this.layer.send(this.peer, slice(&this, LEN), Token(1)).unwrap();
        assert_eq!(this.turns().1, [LONG]);
        let clear = this.clear(this.number(20), LEN as u64);
        let (_memory, grant) = self::grant(&this, there);
        let happened = this.send(&granted(clear, grant.to_frame().as_bytes()));
        told(this, happened, Some(FINISH));

        let mut this = hand(config(3), 3);
        let (_memory, window) = self::window(&this, there);
        this.layer.read(this.peer, slice(&this, LEN), window, Token(1)).unwrap();
        let happened = this.turns();
        told(this, happened, None);

        let mut this = hand(config(3), 3);
        let (_memory, window) = self::window(&this, there);
        this.layer.write(this.peer, slice(&this, LEN), window, Token(1)).unwrap();
        let happened = this.turns();
        told(this, happened, None);
    }
}

/// A device that takes a few turns for RDMA of at most so many bytes.
fn slow(max_rdma_size: u32) -> Config {
    Config::new(Profile::RDMA).pieces(8).limits(Limits { max_rdma_size, ..Config::LIMITS })
}

/// An event within some time.
fn poll(this: &mut Hand) -> Option<Happened> {
    this.now += 1;
    assert!(this.now < 100_000, "nothing more happens");
    this.layer.poll(this.now)
}

#[test]
fn a_removed_peer_keeps_its_name_for_as_long_as_the_device_has_something_of_it() {
    for what in 0..4 {
        let mut this = hand(slow(400), 3);
        let (_memory, window) = window(&this, true);
        let (layer, source) = (&mut this.layer, this.pd.register(payload(3, LEN)).unwrap().1.into());
        match what {
            0 => layer.send(this.peer, Memory::Plain(vec![1]), Token(1)).unwrap(),
            1 => layer.send(this.peer, source, Token(1)).unwrap(),
            2 => layer.write(this.peer, source, window, Token(1)).unwrap(),
            _ => layer.read(this.peer, source, window, Token(1)).unwrap(),
        }
        while this.layer.endpoint().in_flight() == SLOTS {
            assert!(poll(&mut this).is_none());
        }
        this.layer.remove(this.peer);
        let (mut ended, mut lost) = (false, false);
        while this.layer.is_up(this.peer) != Err(Why::UnknownPeer) {
            assert_eq!(this.layer.is_up(this.peer), Err(Why::Removed));
            match poll(&mut this) {
                Some(Event::Failed { token: Token(1), why: Why::Removed, .. }) if !ended => ended = true,
                Some(Event::Lost { why: Why::Removed, .. }) if !lost => lost = true,
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        assert_eq!((ended, lost, this.layer.endpoint().in_flight()), (true, true, SLOTS), "{what}");
    }
}

#[test]
fn of_one_write_eight_parts_are_in_flight_and_none_is_posted_after_one_failed() {
    for (len, there, most) in [(64, true, 1), (LEN, true, 8), (LEN, false, 8)] {
        let mut this = hand(slow(64).delay(50), 3);
        let (_memory, window) = window(&this, there);
        let window = window.range(0..len as u64).unwrap();
        this.layer.write(this.peer, slice(&this, len), window, Token(1)).unwrap();
        let (mut peak, mut fell) = (0, false);
        let event = loop {
            let event = poll(&mut this);
            let in_flight = this.layer.endpoint().in_flight() - SLOTS;
            fell |= in_flight < peak;
            assert!(there || !fell || in_flight < most, "none after one failed");
            peak = peak.max(in_flight);
            if let Some(event) = event {
                break event;
            }
        };
        let good = matches!(&event, Event::Written { source, .. } if source.len() == len);
        assert_eq!((peak, good), (most, there), "{event:?}");
    }
}

#[test]
fn what_takes_many_parts_is_whole_when_it_is_told_whoever_moves_it() {
    const MANY: usize = 10_001;
    let bytes = payload(3, MANY);
    for from in 0..3 {
        for to in 0..3 {
            let mut two = Two::<Srd>::new(slow(700).pieces(100).seed((from * 3 + to) as u64));
            let memory = |two: &Two<Srd>, side: usize, kind, bytes: Vec<u8>| match kind {
                0 => Memory::Plain(bytes),
                1 => two.slice(side, bytes).into(),
                _ => exposed(&two.ends[side], Profile::RDMA, &bytes).into(),
            };
            let (source, target) = (memory(&two, 0, from, bytes.clone()), memory(&two, 1, to, vec![0; MANY]));
            two.ends[1].layer.recv(target, Token(1)).unwrap();
            let peer = two.ends[0].peer;
            two.ends[0].layer.send(peer, source, Token(2)).unwrap();
            let [_, mut arrived] = two.collect([0, 1]);
            let Event::Received { len: MANY, target, .. } = arrived.remove(0) else { panic!("{from} {to}") };
            let mut out = vec![0; MANY];
            match target {
                Memory::Plain(bytes) => out = bytes,
                Memory::Slice(slice) => out.copy_from_slice(&slice),
                Memory::Exposed(part) => part.copy_out(0, &mut out).unwrap(),
            }
            assert!(out == bytes, "{from} {to}");
            two.collect([1, 0]);
            // As the table of `Memory` has it: read, written, or copied by one or both.
            let [a, b] = two.ends.each_ref().map(|end| end.layer.counters());
            let expected = match (from, to) {
                (2, 1 | 2) => [0, 0, 0, MANY as u64],
                (1, 2) => [0, 0, MANY as u64, 0],
                (0, _) => [MANY as u64, MANY as u64, 0, 0],
                _ => [0, MANY as u64, 0, 0],
            };
            assert_eq!([a.copied, b.copied, a.written, b.read], expected, "{from} {to}");
        }
    }
}

#[test]
fn rdma_takes_no_packets_and_what_has_no_bytes_is_asked_for_by_one() {
    let mut this = hand(Config::new(Profile::RDMA), 3);
    let (_memory, window) = window(&this, true);
    this.layer.write(this.peer, slice(&this, 100), window, Token(1)).unwrap();
    this.layer.read(this.peer, slice(&this, 100), window, Token(2)).unwrap();
    let (events, kinds) = this.turns();
    assert!(events.len() == 2 && kinds.is_empty(), "{events:?}, {kinds:?}");
    let empty = this.pd.register(vec![0; 8]).unwrap().1.split_at(0).unwrap().0;
    this.layer.read(this.peer, empty.into(), window, Token(3)).unwrap();
    let (events, kinds) = this.turns();
    assert!(events.is_empty() && kinds == [GET], "{events:?}, {kinds:?}");
    // Its window is described as it was opened, not as its memory was exposed.
    let exposed = this.pd.expose(pages(&[0; 64]), this.ctx.require::<RemoteReadWrite>().unwrap()).unwrap();
    let opened = this.layer.open(exposed.part(0..64).unwrap(), Access::REMOTE_READ).unwrap();
    let described = wire::Window::parse(this.layer.describe(opened).unwrap().as_bytes()).unwrap();
    assert_eq!(described.grant.map(|grant| grant.access), Some(Access::REMOTE_READ));
}

#[test]
fn a_slice_that_is_read_into_when_its_endpoint_is_closed_comes_back_whole() {
    let mut this = hand(slow(400), 3);
    let (_memory, window) = window(&this, true);
    this.layer.read(this.peer, slice(&this, LEN), window, Token(1)).unwrap();
    while this.layer.counters().read == 0 || this.layer.endpoint().in_flight() == SLOTS {
        assert!(poll(&mut this).is_none());
    }
    let mut events = Vec::new();
    this.layer.close(|| true, |event| events.push(event)).unwrap();
    let [Event::Lost { .. }, Event::Failed { why: Why::Closed, buffer: Returned::Target(target), .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(target.len(), LEN);
}
