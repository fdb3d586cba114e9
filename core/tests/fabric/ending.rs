//! How operations, peers and endpoints end, by a side that speaks for itself: with every buffer, slot and name.

use efa_core::fabric::{Event, Memory, Messages, Returned, Violation, Why};
use efa_core::soft::{Config, Profile};
use efa_core::{Token, work};

use super::hand::{BYE, ByHand, CLEAR, DONE, EAGER, FINISH, GET, LONG, PUT, SEGMENT, SLOTS};
use super::payload;
use super::two::{Happened, PACKET};

/// What became of receives: the token, and why it failed if it did.
fn receives(events: &[Happened]) -> Vec<(u64, Option<Why>)> {
    let told = |event: &Happened| match event {
        Event::Received { token, .. } => Some((token.0, None)),
        Event::Failed { token, why, buffer: Returned::Target(_), .. } => Some((token.0, Some(*why))),
        _ => None,
    };
    events.iter().filter_map(told).collect()
}

#[test]
fn when_a_peer_leaves_what_is_all_here_is_received_and_what_is_not_or_comes_after_it_fails_for_that() {
    let mut this = ByHand::up();
    let names: Vec<u32> = (0..3)
        .map(|sequence| {
            this.recv(sequence.into(), 600);
            assert_eq!(this.send(&this.long(sequence, 600)).1, [CLEAR]);
            this.number(20)
        })
        .collect();
    // All that the layer may send: it cannot say that it has them.
    for _ in 3..32 {
        assert_eq!(this.send(&this.ask(PUT, 7, 0, 8)).1, [DONE]);
    }
    for (name, parts) in names.into_iter().zip([2, 1, 2]) {
        for part in 0..parts {
            let data = this.data(name, part * 300, &[1; 300]);
            let (events, kinds) = this.send(&data);
            assert_eq!((events.len(), kinds.len()), (0, 0));
        }
    }
    let (events, _) = this.send(&this.bye());
    assert_eq!(receives(&events), [(0, None), (1, Some(Why::Left)), (2, Some(Why::Left))]);
    assert!(matches!(events.last(), Some(Event::Lost { why: Why::Left, .. })), "{events:?}");
    assert_eq!((this.layer.under_way(), this.layer.endpoint().in_flight()), ([0; 3], SLOTS));

    // One of which there is too much for its receive, and not yet all.
    let mut this = ByHand::up();
    this.recv(5, 9);
    assert!(this.send(&this.segment(0, 1000, 0, &[1; 400])).0.is_empty());
    let (events, _) = this.send(&this.bye());
    assert_eq!(receives(&events), [(5, Some(Why::Left))]);
}

#[test]
fn a_peer_that_is_lost_leaves_its_slots_to_its_next_life_and_no_more_are_posted_for_that() {
    let mut this = ByHand::up();
    for _ in 0..5 {
        for sequence in 1..=10 {
            assert!(this.send(&this.eager(sequence, b"early")).0.is_empty());
        }
        assert!(this.send(&this.segment(12, 2, 0, b"e")).0.is_empty());
        assert_eq!(this.layer.endpoint().in_flight(), SLOTS - 11);
        let (events, _) = this.send(&this.bye());
        assert!(matches!(&events[..], [Event::Lost { why: Why::Left, .. }]), "{events:?}");
        assert_eq!(this.layer.endpoint().in_flight(), SLOTS);
        this.layer.remove(this.peer);
        assert_eq!(this.layer.is_up(this.peer), Err(Why::UnknownPeer));
        this.again();
        this.come_up();
    }
    let _other = this.another();
    assert!(this.turns().0.is_empty());
    assert_eq!(this.layer.endpoint().in_flight(), 2 * SLOTS);
}

#[test]
fn packets_that_are_longer_than_a_slot_are_nobodys_and_their_slots_are_posted_again() {
    let mut this = ByHand::up();
    let mut failed = 0;
    for _ in 0..SLOTS + 2 {
        this.post(&[0xEF; PACKET + 1]);
        for _ in 0..100 {
            this.now += 1;
            assert!(this.layer.poll(this.now).is_none());
            failed += u32::from(matches!(this.side.endpoint.poll(), Some(work::Event::Failed { .. })));
        }
    }
    assert_eq!((failed, this.layer.endpoint().in_flight()), (SLOTS + 2, SLOTS));
    this.recv(1, 1);
    let (events, _) = this.send(&this.eager(0, b"x"));
    assert_eq!(receives(&events), [(1, None)]);
}

#[test]
fn a_message_that_came_twice_is_never_told_as_another() {
    let mut this = ByHand::up();
    for token in 0..16 {
        this.recv(token, 600);
    }
    assert!(this.send(&this.eager(1, b"first")).0.is_empty());
    // Before the one that waited is looked at: the next, and the same number once more.
    this.post(&this.long(0, 600));
    this.post(&this.eager(1, b"second"));
    let (events, kinds) = this.turns();
    assert_eq!((events.len(), &kinds[..]), (0, &[CLEAR][..]));
    let name = this.number(20);
    assert!(this.send(&this.data(name, 0, &[1; 300])).0.is_empty());
    let (events, _) = this.send(&this.data(name, 300, &[1; 300]));
    assert_eq!(receives(&events), [(0, None), (1, None)]);
    // Up to the next at its place, for which there is a receive.
    for sequence in 2..66 {
        this.recv(u64::from(sequence) + 14, 600);
        let (events, _) = this.send(&this.eager(sequence, b"next"));
        let [Event::Received { target: Memory::Plain(bytes), .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(&bytes[..4], b"next");
    }
}

#[test]
fn a_peer_with_shorter_packets_gets_none_that_is_longer() {
    let mut this: ByHand = ByHand::new(Config::new(Profile::NONE));
    this.packet = 256;
    this.come_up();
    for (len, expected) in [(236, &[EAGER][..]), (237, &[SEGMENT; 2]), (4 * 228, &[SEGMENT; 4]), (4 * 228 + 1, &[LONG])]
    {
        this.layer.send(this.peer, Memory::Plain(payload(1, len)), Token(1)).unwrap();
        assert_eq!(this.turns().1, expected, "{len}");
    }
    let id = this.number(20);
    assert_eq!(this.send(&this.clear(id, 4 * 228 + 1)).1.len(), 5);
}

#[test]
fn a_peer_cannot_touch_what_is_under_way_with_another() {
    for nth in 0..4 {
        let (mut this, receiving) = ByHand::sending(600);
        this.layer.send(this.peer, Memory::Plain(vec![1; 4 * PACKET]), Token(2)).unwrap();
        assert_eq!(this.turns().1, [LONG]);
        let sending = this.number(20);
        let mut other = this.another();
        this.swap(&mut other);
        this.come_up();
        let (name, packet) = match nth {
            0 => (receiving, this.data(receiving, 0, &[6; 300])),
            1 => (receiving, this.of(FINISH, receiving, &4_u32.to_be_bytes())),
            2 => (sending, this.clear(sending, 4)),
            _ => (sending, this.of(DONE, sending, &[0; 4])),
        };
        assert_eq!(this.breaks(&packet), Violation::UnknownOperation(name), "{nth}");
        this.swap(&mut other);
        assert!(this.send(&this.data(receiving, 0, &[7; 300])).0.is_empty());
        let (events, _) = this.send(&this.data(receiving, 300, &[7; 300]));
        let [Event::Received { target: Memory::Plain(bytes), .. }] = &events[..] else { panic!("{events:?}") };
        assert!(bytes.iter().all(|byte| *byte == 7));
        let (events, _) = this.send(&this.of(DONE, sending, &[0; 4]));
        assert!(matches!(&events[..], [Event::Sent { token: Token(2), .. }]), "{events:?}");
    }
}

#[test]
fn messages_of_two_peers_that_wait_for_receives_are_all_told_each_in_its_order() {
    let mut this = ByHand::up();
    let mut other = this.another();
    this.swap(&mut other);
    this.come_up();
    for sequence in 0..3 {
        for of in [1, 2_u8] {
            this.swap(&mut other);
            assert!(this.send(&this.eager(sequence, &[of, sequence as u8])).0.is_empty());
        }
    }
    for token in 0..6 {
        this.recv(token, 2);
    }
    let (events, _) = this.turns();
    let mut told = [Vec::new(), Vec::new()];
    for event in &events {
        let Event::Received { target: Memory::Plain(bytes), .. } = event else { panic!("{event:?}") };
        told[usize::from(bytes[0]) - 1].push(bytes[1]);
    }
    assert_eq!(told, [[0, 1, 2]; 2]);
}

#[test]
fn an_operation_is_unknown_to_a_peer_that_was_not_asked_for_it_yet() {
    // No credit is left to say anything.
    let spent = |count| {
        let mut this = ByHand::up();
        for _ in 0..count {
            assert_eq!(this.send(&this.ask(PUT, 7, 0, 8)).1, [DONE]);
        }
        this
    };
    let next = |used: u32| used << 16;
    // A message that is to be cleared, a message in segments, one that is to be sent.
    let mut this = spent(32);
    this.recv(1, 600);
    assert_eq!(this.send(&this.long(0, 600)).1, []);
    let early = this.data(next(32), 0, &[]);
    assert_eq!(this.breaks(&early), Violation::UnknownOperation(next(32)));
    let mut this = ByHand::up();
    this.recv(1, 600);
    assert_eq!(this.send(&this.segment(0, 2, 0, b"s")).1, []);
    let other = this.of(FINISH, 0, &4_u32.to_be_bytes());
    assert_eq!(this.breaks(&other), Violation::UnknownOperation(0));
    let mut this = spent(32);
    this.layer.send(this.peer, Memory::Plain(vec![1; 4 * PACKET]), Token(2)).unwrap();
    assert_eq!(this.turns().1, []);
    let early = this.clear(0, 4);
    assert_eq!(this.breaks(&early), Violation::UnknownOperation(0));
    // A read of nothing, not asked for yet, and then asked for.
    let window = efa_core::wire::Window {
        id: 9,
        access: efa_core::flags::Access::REMOTE_READ,
        length: 8,
        incarnation: efa_core::Incarnation(this.own),
        grant: None,
    };
    for (credits, early) in [(32, true), (31, true), (27, false)] {
        let mut this = spent(credits);
        let window = efa_core::wire::Window { incarnation: efa_core::Incarnation(this.own), ..window };
        let range = this.layer.remote(this.peer, window.to_frame().as_bytes()).unwrap();
        this.layer.read(this.peer, Memory::Plain(Vec::new()), range, Token(3)).unwrap();
        assert_eq!(this.turns().1, if early { vec![] } else { vec![GET] });
        let name = next(credits);
        let finish = this.of(FINISH, name, &[0; 4]);
        if early {
            assert_eq!(this.breaks(&finish), Violation::UnknownOperation(name));
            continue;
        }
        assert_eq!(this.number(20), name);
        let (events, _) = this.send(&finish);
        assert!(matches!(&events[..], [Event::Read { token: Token(3), .. }]), "{events:?}");
    }
}

#[test]
fn closing_tells_the_peer_ends_before_it_must_and_gives_back_what_the_device_still_has() {
    let mut this = ByHand::up();
    this.recv(1, 600);
    this.layer.send(this.peer, Memory::Plain(vec![1; 4 * PACKET]), Token(2)).unwrap();
    assert_eq!(this.turns().1, [LONG]);
    let (mut turns, mut events, mut kinds) = (0, Vec::new(), Vec::new());
    let ByHand { layer, mut side, .. } = this;
    let expired = || {
        turns += 1;
        if let Some(work::Event::Received(message)) = side.endpoint.poll() {
            kinds.push(message.buffers.into_slice().unwrap()[2]);
        }
        turns > 1000
    };
    layer.close(expired, |event| events.push(event)).unwrap();
    assert!(turns < 100 && kinds == [BYE], "{turns}, {kinds:?}");
    let told = |token| events.iter().filter(move |event| event.token() == Some(Token(token))).count();
    assert_eq!((told(1), told(2)), (1, 1), "{events:?}");

    // The peer has no receive for the last of these: the device would try for ever.
    let mut this = ByHand::up();
    this.limit = 1000;
    assert_eq!(this.send(&this.credit()).1, []);
    for _ in 0..64 {
        this.layer.send(this.peer, Memory::Plain(vec![1; 9]), Token(1)).unwrap();
        let mut polls = (0..1000).filter_map(|_| this.layer.poll(this.now));
        assert!(matches!(polls.next(), Some(Event::Sent { .. })));
    }
    this.layer.send(this.peer, Memory::Plain(vec![2; 9]), Token(2)).unwrap();
    assert!((0..1000).all(|_| this.layer.poll(this.now).is_none()));
    assert_eq!((this.layer.under_way(), this.layer.endpoint().in_flight()), ([1, 0, 0], SLOTS + 1));
    let (mut turns, mut events) = (0, Vec::new());
    let expired = || {
        turns += 1;
        assert!(turns < 1000, "it ends when it must");
        turns > 100
    };
    this.layer.close(expired, |event| events.push(event)).unwrap();
    let failed = events.iter().filter_map(|event| match event {
        Event::Failed { token, why, buffer: Returned::Source(Memory::Plain(bytes)), .. } => Some((*token, *why, bytes)),
        _ => None,
    });
    assert!(failed.eq([(Token(2), Why::Closed, &vec![2; 9])]), "{events:?}");
}
