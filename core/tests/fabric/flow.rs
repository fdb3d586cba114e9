//! Credits, places and waits: what goes out when, and what waits for what.

use efa_core::fabric::{Event, Memory, Messages};
use efa_core::flags::Access;
use efa_core::memory::ByMessages;
use efa_core::soft::{Config, Profile};
use efa_core::{Incarnation, Token, wire};

use super::hand::{ByHand, CLEAR, CREDIT, DATA, DONE, EAGER, GET, HELLO, LONG, PUT, SEGMENT, SLOTS, changed};
use super::two::{Happened, PACKET, pages};

/// The tokens of what was received.
fn received(events: &[Happened]) -> Vec<u64> {
    let token = |event: &Happened| match event {
        Event::Received { token, .. } => token.0,
        event => panic!("{event:?}"),
    };
    events.iter().map(token).collect()
}

#[test]
fn a_peer_that_only_sends_is_told_of_free_slots_when_half_are_and_twice_at_most_before_it_says_that_it_heard() {
    let mut this = ByHand::up();
    let mut sequence = 0;
    // After how many messages it was told how much.
    let mut messages = |this: &mut ByHand, count: u32| {
        let mut told = Vec::new();
        for nth in 1..=count {
            this.recv(1, 1);
            let (events, kinds) = this.send(&this.eager(sequence, b"x"));
            assert_eq!(received(&events), [1]);
            sequence += 1;
            if kinds == [CREDIT] {
                told.push((nth, this.number(12)));
            }
        }
        told
    };
    assert_eq!(messages(&mut this, 100), [(32, 32 + 64), (64, 64 + 64)]);
    // It heard of one; an older header says nothing new.
    this.heard = 1;
    assert_eq!(this.send(&this.credit()).1, [CREDIT]);
    assert_eq!((this.number(12), this.last[7]), (100 + 64, 1), "and one of its own was taken");
    this.heard = 0;
    assert_eq!(messages(&mut this, 40), []);
    this.heard = 3;
    assert_eq!(messages(&mut this, 1), [(1, 141 + 64)]);
    this.heard = 2;
    assert_eq!(messages(&mut this, 32), [(32, 173 + 64)]);
    assert_eq!(messages(&mut this, 40), []);
}

#[test]
fn what_has_no_credit_waits_for_some_which_an_older_packet_does_not_take_away_and_messages_leave_an_eighth() {
    let mut this = ByHand::up();
    let put = |this: &mut ByHand| {
        let ask = this.ask(PUT, 7, 0, 8);
        this.send(&ask).1
    };
    for token in 0..28 {
        this.layer.send(this.peer, Memory::Plain(vec![1]), Token(token)).unwrap();
        let (events, kinds) = this.turns();
        assert!(matches!(&events[..], [Event::Sent { .. }]) && kinds == [EAGER], "{token}: {events:?}, {kinds:?}");
    }
    let counters = this.layer.counters();
    assert_eq!((counters.copied, counters.packets_sent), (28, 2 + 28));
    // What must not wait for messages has the rest.
    for _ in 0..4 {
        assert_eq!(put(&mut this), [DONE]);
    }
    for _ in 0..2 {
        assert_eq!(put(&mut this), []);
    }
    let credit = |this: &mut ByHand, limit| {
        this.limit = limit;
        this.send(&this.credit()).1
    };
    assert_eq!(credit(&mut this, 33), [DONE]);
    assert_eq!(credit(&mut this, 34), [DONE]);
    this.layer.send(this.peer, Memory::Plain(vec![1]), Token(28)).unwrap();
    let (events, kinds) = this.turns();
    assert_eq!((events.len(), kinds.len()), (0, 0));
    assert_eq!(credit(&mut this, 38), []);
    assert_eq!(credit(&mut this, 39), [EAGER]);
    assert_eq!(credit(&mut this, 34), []);
    assert_eq!(put(&mut this), [DONE]);
}

#[test]
fn what_finds_no_slot_or_no_credit_goes_out_as_soon_as_there_is_one() {
    let mut this = ByHand::up();
    let long = |this: &mut ByHand| {
        this.layer.send(this.peer, Memory::Plain(vec![1; 40 * (PACKET - 32)]), Token(1)).unwrap();
        assert_eq!(this.turns().1, [LONG]);
        let id = this.number(20);
        let clear = this.clear(id, 40 * (PACKET as u64 - 32));
        (id, this.send(&clear).1)
    };
    let (first, kinds) = long(&mut this);
    assert_eq!(kinds, [DATA; 27]);
    this.limit = 1000;
    assert_eq!(this.send(&this.credit()).1, [DATA; 13]);
    // There are sixteen slots.
    let (second, kinds) = long(&mut this);
    assert_eq!(kinds, [DATA; 40]);
    for id in [first, second] {
        assert_eq!(this.send(&this.of(DONE, id, &[0; 4])).0.len(), 1);
    }
    for token in 0..16 {
        this.layer.send(this.peer, Memory::Plain(vec![1; 3 * (PACKET - 28)]), Token(token)).unwrap();
    }
    let (events, kinds) = this.turns();
    assert!(events.iter().all(|event| matches!(event, Event::Sent { .. })), "{events:?}");
    assert_eq!((events.len(), kinds), (16, vec![SEGMENT; 48]));
    // All of them are taken, since the peer has no receive left for what is in them: nor can it be answered.
    for nth in 0..64 + 16 {
        this.layer.send(this.peer, Memory::Plain(vec![1]), Token(nth)).unwrap();
        let sent = (0..100).filter_map(|_| this.layer.poll(this.now)).count();
        assert_eq!(sent, usize::from(nth < 64));
    }
    this.post(&this.ask(PUT, 7, 0, 8));
    assert!((0..100).all(|_| this.layer.poll(this.now).is_none()));
    let (events, mut kinds) = this.turns();
    kinds.sort_unstable();
    assert_eq!((events.len(), kinds), (16, [vec![EAGER; 64 + 16], vec![DONE]].concat()));
}

#[test]
fn more_of_what_is_long_is_cleared_when_half_of_what_was_is_here() {
    let mut this = ByHand::up();
    let (len, cleared) = (80 * PACKET as u64, 64 * PACKET as u64);
    this.recv(1, len as usize);
    assert_eq!(this.send(&this.long(0, len)).1, [CLEAR]);
    assert_eq!(this.last[24..32], cleared.to_be_bytes());
    let (name, mut at) = (this.number(20), 0);
    while at < len {
        let (_, kinds) = this.send(&this.data(name, at, &[1; 256]));
        at += 256;
        let expected = match at {
            _ if at == cleared / 2 => &[CLEAR][..],
            _ if at == len => &[DONE],
            _ => &[],
        };
        assert_eq!(
            kinds.iter().filter(|kind| **kind != CREDIT).collect::<Vec<_>>(),
            expected.iter().collect::<Vec<_>>()
        );
        if expected == [CLEAR] {
            assert_eq!(this.last[24..32], len.to_be_bytes());
        }
    }
}

#[test]
fn what_finds_no_place_waits_in_its_slot_until_there_is_one_and_gives_the_slot_back() {
    for start in [0, u32::MAX - 2] {
        let mut this: ByHand = ByHand::new(Config::new(Profile::NONE));
        this.start = start;
        this.come_up();
        this.limit = 1000;
        let exposed = this.pd.expose(pages(&[7; 64]), this.ctx.require::<ByMessages>().unwrap()).unwrap();
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let window = this.layer.open(exposed.part(0..64).unwrap(), access).unwrap();
        let window = wire::Window::parse(this.layer.describe(window).unwrap().as_bytes()).unwrap().id;
        // Puts, as many as there is room for and two more.
        let put = this.ask(PUT, window, 0, 8);
        let names: Vec<u32> = (0..16)
            .map(|_| {
                assert_eq!(this.send(&put).1, [CLEAR]);
                this.number(20)
            })
            .collect();
        let waiting = |this: &mut ByHand, packet: &[u8]| assert_eq!(this.send(packet).1, []);
        waiting(&mut this, &put);
        waiting(&mut this, &put);
        // A message in one packet that is early, and one in segments, do not get in their way.
        this.recv(1, 9);
        this.recv(2, 9);
        let segment = this.segment(start.wrapping_add(1), 2, 0, b"s");
        waiting(&mut this, &segment);
        for name in &names[..2] {
            let (_, kinds) = this.send(&this.data(*name, 0, &[1; 8]));
            assert_eq!(kinds, [DONE, CLEAR], "{name}");
        }
        let (_, kinds) = this.send(&this.data(names[2], 0, &[1; 8]));
        assert_eq!(kinds, [DONE]);
        let (events, _) = this.send(&this.eager(start, b"e"));
        assert_eq!(received(&events), [1]);
        let (events, _) = this.send(&this.segment(start.wrapping_add(1), 2, 1, b"s"));
        assert_eq!(received(&events), [2]);
        assert_eq!(this.layer.under_way(), [0, 15, 0]);

        // Gets, when as many sends as there is room for are under way.
        let ids: Vec<u32> = (0..16)
            .map(|token| {
                this.layer.send(this.peer, Memory::Plain(vec![1; 4 * PACKET]), Token(token)).unwrap();
                assert_eq!(this.turns().1, [LONG]);
                this.number(20)
            })
            .collect();
        assert_eq!(this.layer.under_way(), [16, 15, 0]);
        let get = this.ask(GET, window, 0, 8);
        waiting(&mut this, &get);
        waiting(&mut this, &get);
        let (events, kinds) = this.send(&this.of(DONE, ids[0], &[0; 4]));
        assert!(matches!(&events[..], [Event::Sent { .. }]) && kinds == [DATA, DATA], "{events:?}, {kinds:?}");
        assert_eq!(this.layer.endpoint().in_flight(), SLOTS);
    }
}

#[test]
fn messages_in_segments_that_are_early_are_taken_as_soon_as_those_before_them_are() {
    let mut this = ByHand::up();
    for token in 0..4 {
        this.recv(token, 9);
    }
    let early = |this: &mut ByHand, packet: &[u8]| assert!(this.send(packet).0.is_empty());
    let [first, second] = [this.segment(1, 2, 0, b"a"), this.segment(1, 2, 1, b"b")];
    early(&mut this, &second);
    early(&mut this, &first);
    let [first, second] = [this.segment(3, 2, 0, b"c"), this.segment(3, 2, 1, b"d")];
    early(&mut this, &second);
    early(&mut this, &first);
    let eager = this.eager(2, b"e");
    early(&mut this, &eager);
    let (events, _) = this.send(&this.eager(0, b"f"));
    assert_eq!(received(&events), [0, 1, 2, 3]);
    assert_eq!(this.layer.endpoint().in_flight(), SLOTS);
}

#[test]
fn a_hello_is_repeated_after_waits_that_double_and_nothing_else_goes_out_before_it_is_answered() {
    let mut this: ByHand = ByHand::new(Config::new(Profile::NONE));
    this.layer.send(this.peer, Memory::Plain(vec![1]), Token(1)).unwrap();
    let greeted = |this: &mut ByHand, until| {
        let mut times = Vec::new();
        while this.now < until {
            let (events, kinds) = this.turns_until(this.now + 1000, 100);
            assert!(events.is_empty() && kinds.iter().all(|kind| *kind == HELLO), "{events:?}, {kinds:?}");
            times.extend(kinds.iter().map(|_| this.now / 1000));
        }
        times
    };
    let times = greeted(&mut this, 4_500_000);
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits.len(), 10, "{waits:?}");
    for (wait, expected) in waits.iter().zip([10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]) {
        assert!(wait.abs_diff(expected) <= 1, "{waits:?}");
    }
    assert_eq!(this.last[24..32], [0; 8], "nobody is known");
    // It does not know us yet: it is answered, and greeted on.
    let unknowing = changed(this.hello(), 24, &[0; 8]);
    this.post(&unknowing);
    let until = this.now + 2_500_000;
    let times = greeted(&mut this, until);
    assert_eq!(times.len(), 3, "{times:?}");
    assert_eq!(this.last[24..32], this.own.to_be_bytes(), "that it is known");
    assert_eq!((this.layer.is_up(this.peer), this.layer.features(this.peer)), (Ok(false), None));
    let (events, kinds) = this.send(&this.hello());
    assert!(matches!(&events[..], [Event::Up(_), Event::Sent { .. }]) && kinds == [EAGER], "{events:?}, {kinds:?}");
    let (events, kinds) = this.turns_until(this.now + 3_000_000, 100);
    assert!(events.is_empty() && kinds.is_empty(), "{events:?}, {kinds:?}");
}

#[test]
fn a_silent_peer_is_asked_whether_it_is_there_while_something_is_awaited_and_less_and_less_often() {
    let mut this = ByHand::up();
    assert_eq!(this.turns_until(this.now + 5_000_000, 1000).1, []);
    this.layer.send(this.peer, Memory::Plain(vec![1; 4 * PACKET]), Token(1)).unwrap();
    assert_eq!(this.turns().1, [LONG]);
    let asked = |this: &mut ByHand, seconds: u64| {
        let (from, mut times) = (this.now, Vec::new());
        while this.now < from + seconds * 1_000_000 {
            let (events, kinds) = this.turns_until(this.now + 100_000, 10_000);
            assert!(events.is_empty() && kinds.iter().all(|kind| *kind == CREDIT), "{events:?}, {kinds:?}");
            times.extend(kinds.iter().map(|_| this.now / 100_000));
        }
        times.windows(2).map(|pair| (pair[1] - pair[0]).div_ceil(10)).collect::<Vec<_>>()
    };
    let doubling = [2, 4, 8, 16, 32, 60, 60];
    assert_eq!(asked(&mut this, 190), doubling);
    // Once it is heard that begins anew.
    assert_eq!(this.send(&this.credit()).1, []);
    assert_eq!(asked(&mut this, 40), doubling[..4]);
}

#[test]
fn a_write_by_messages_is_asked_for_at_once() {
    let mut this = ByHand::up();
    let window = wire::Window {
        id: 9,
        access: Access::REMOTE_WRITE,
        length: 8,
        incarnation: Incarnation(this.own),
        grant: None,
    };
    let range = this.layer.remote(this.peer, window.to_frame().as_bytes()).unwrap();
    assert!(!range.is_empty() && range.range(3..3).unwrap().is_empty());
    this.layer.write(this.peer, Memory::Plain(vec![1; 5]), range.range(2..8).unwrap(), Token(3)).unwrap();
    assert_eq!(
        (this.turns().1, this.number(16), &this.last[24..40]),
        (vec![PUT], 9, &[2_u64.to_be_bytes(), 5_u64.to_be_bytes()].concat()[..])
    );
    let id = this.number(20);
    assert_eq!(this.send(&this.clear(id, 5)).1, [DATA]);
    let (events, _) = this.send(&this.of(DONE, id, &[0; 4]));
    assert!(matches!(&events[..], [Event::Written { token: Token(3), .. }]), "{events:?}");
}
