//! What the layer makes of packets that are made by hand, and of a peer with no receive.

use efa_core::connect::introduce;
use efa_core::fabric::efa::packet::inspect;
use efa_core::fabric::{BadPacket, Event, Fabric, Memory, Messages, Options, PeerId, Violation, Why};
use efa_core::qp::{Depth, Endpoint, InitAttr, RnrRetry, RtsAttr, SendOnly};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work;
use efa_core::{Caps, Context, ProtectionDomain, Qkey, SetRnrRetry, Token};

use super::hand::{ByHand, EAGER, HELLO, SEGMENT, SLOTS, changed};
use super::payload;
use super::two::{Happened, Layer, PACKET};

fn by_hand() -> ByHand {
    let mut this = ByHand::new(Config::new(Profile::NONE));
    assert_eq!(this.turns().1, [HELLO], "it greets first");
    this
}

#[test]
fn a_hello_of_or_to_a_life_that_is_over_is_a_strangers_and_the_right_one_answers() {
    let mut this = by_hand();
    let hello = this.hello();
    let wrong_life = changed(hello.clone(), 8, &(!this.own as u32).to_be_bytes());
    let wrong_echo = changed(hello.clone(), 24, &(this.life ^ 1).to_be_bytes());
    for (strangers, packet) in [(1, &wrong_life), (2, &wrong_echo), (3, &wrong_life)] {
        assert!(this.send(packet).0.is_empty());
        assert_eq!((this.layer.counters().strangers, this.layer.is_up(this.peer)), (strangers, Ok(false)));
    }
    let (events, kinds) = this.send(&hello);
    assert!(matches!(&events[..], [Event::Up(_)]), "{events:?}");
    assert_eq!(kinds, [HELLO]);
    // One more is answered if it says that ours did not arrive.
    assert_eq!(this.send(&hello).1, []);
    assert_eq!(this.send(&changed(hello.clone(), 24, &[0; 8])).1, [HELLO]);
    let counters = this.layer.counters();
    assert_eq!((counters.packets_received, counters.packets_sent, counters.violations), (6, 3, 0));
    // Another life of the same address is a restart, and who is lost is a stranger.
    let mut restarted = changed(hello.clone(), 16, &(this.own ^ 1).to_be_bytes());
    restarted = changed(restarted, 8, &((this.own ^ 1) as u32).to_be_bytes());
    let (events, _) = this.send(&restarted);
    assert!(matches!(&events[..], [Event::Lost { why: Why::Restarted { .. }, .. }]), "{events:?}");
    assert!(this.send(&hello).0.is_empty());
    assert_eq!(this.layer.counters().strangers, 4);
    assert!(matches!(this.layer.is_up(this.peer), Err(Why::Restarted { .. })));
}

#[test]
fn a_hello_without_a_place_breaks_the_protocol() {
    let mut this = by_hand();
    let (events, _) = this.send(&changed(this.hello(), 44, &[0xFF; 2]));
    let why = Why::Violation(Violation::Packet(BadPacket::Hello));
    assert!(matches!(&events[..], [Event::Lost { why: found, .. }] if *found == why), "{events:?}");
    assert_eq!(this.layer.counters().violations, 1);
}

#[test]
fn a_packet_of_another_place_or_life_is_a_strangers_and_the_right_one_is_a_message() {
    let mut this = ByHand::up();
    this.layer.recv(Memory::Plain(vec![0; 9]), Token(1)).unwrap();
    let eager = this.eager(0, b"message");
    let wrong_life = changed(eager.clone(), 8, &(!this.own as u32).to_be_bytes());
    for (strangers, packet) in [(1, changed(eager.clone(), 4, &[0, 3])), (2, wrong_life)] {
        assert!(this.send(&packet).0.is_empty());
        assert_eq!(this.layer.counters().strangers, strangers);
    }
    let (events, _) = this.send(&eager);
    assert!(
        matches!(&events[..], [Event::Received { len: 7, target: Memory::Plain(bytes), .. }] if &bytes[..7] == b"message")
    );
    let counters = this.layer.counters();
    assert_eq!((counters.copied, counters.packets_received, counters.violations), (7, 4, 0));
    // The same once more is behind its turn.
    let (events, _) = this.send(&eager);
    let why = Why::Violation(Violation::Sequence { found: 0, expected: 1 });
    assert!(matches!(&events[..], [Event::Lost { why: found, .. }] if *found == why), "{events:?}");
}

#[test]
fn a_packet_before_any_hello_is_a_strangers() {
    let mut this = by_hand();
    assert!(this.send(&this.eager(0, b"early")).0.is_empty());
    assert!(this.send(&this.credit()).0.is_empty());
    assert_eq!((this.layer.counters().strangers, this.layer.is_up(this.peer)), (2, Ok(false)));
}

#[test]
fn a_peer_is_told_to_be_up_before_its_first_message_is_told_even_if_both_are_here() {
    let mut this = by_hand();
    this.recv(1, 9);
    this.post(&this.hello());
    this.post(&this.eager(0, b"first"));
    let (events, _) = this.turns();
    assert!(matches!(&events[..], [Event::Up(_), Event::Received { len: 5, .. }]), "{events:?}");
}

#[test]
fn messages_that_are_early_wait_in_their_slots_and_are_told_in_their_order() {
    let mut this = ByHand::up();
    for token in 0..4 {
        this.layer.recv(Memory::Plain(vec![0; 1]), Token(token)).unwrap();
    }
    for sequence in [3, 1, 2_u32] {
        assert!(this.send(&this.eager(sequence, &[sequence as u8])).0.is_empty());
    }
    let (events, _) = this.send(&this.eager(0, &[0]));
    let told = |event: Happened| match event {
        Event::Received { token, target: Memory::Plain(bytes), .. } => (token.0, bytes[0]),
        event => panic!("{event:?}"),
    };
    assert_eq!(events.into_iter().map(told).collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3)]);
    // A peer that is removed while some wait leaves nothing behind.
    for sequence in [6, 7_u32] {
        assert!(this.send(&this.eager(sequence, &[9])).0.is_empty());
    }
    this.layer.remove(this.peer);
    assert!(matches!(&this.turns().0[..], [Event::Lost { why: Why::Removed, .. }]));
    assert_eq!(this.layer.is_up(this.peer), Err(Why::UnknownPeer));
}

#[test]
fn a_peer_that_sends_more_than_it_has_credits_for_breaks_the_protocol() {
    let mut this = ByHand::up();
    // None of them has a receive, or is next, so each stays in its slot.
    for sequence in 1..64 {
        assert!(this.send(&this.eager(sequence, b"early")).0.is_empty());
    }
    let segment = this.of(SEGMENT, 1, &[0; 8]);
    assert!(this.send(&segment).0.is_empty());
    assert_eq!(this.breaks(&segment), Violation::Credits);
}

#[test]
fn a_hello_that_nobody_can_work_with_is_no_packet() {
    let this = by_hand();
    let hello = this.hello();
    assert_eq!((inspect(&hello), inspect(&this.eager(0, b"abc"))), (Ok((HELLO, 0)), Ok((EAGER, 3))));
    let cases: [(usize, &[u8], bool); 6] = [
        (16, &[0; 8], false),
        (36, &255_u32.to_be_bytes(), false),
        (36, &256_u32.to_be_bytes(), true),
        (46, &7_u16.to_be_bytes(), false),
        (46, &8_u16.to_be_bytes(), true),
        (46, &u16::MAX.to_be_bytes(), true),
    ];
    for (at, to, good) in cases {
        let expected = if good { Ok((HELLO, 0)) } else { Err(BadPacket::Hello) };
        assert_eq!(inspect(&changed(hello.clone(), at, to)), expected, "{to:?} at {at}");
    }
}

#[test]
fn r23_a_hello_of_a_stranger_who_has_a_peers_number_changes_nothing_whatever_the_device_knows_of_senders() {
    for caps in [Caps::RNR_RETRY, Caps::RNR_RETRY | Caps::CQ_WITH_SGID] {
        let config = Config::new(Profile::with_caps(caps)).unknown_senders(u16::MAX);
        let mut this: ByHand = ByHand::up_on(config);
        let (mut stranger, _) = this.stranger();
        let number = this.side.endpoint.qpn();
        this.swap(&mut stranger);
        assert_eq!(this.side.endpoint.qpn(), number);
        let (events, kinds) = this.send(&this.hello());
        assert_eq!((events.len(), kinds.len(), this.layer.counters().strangers), (0, 0, 1));
        this.swap(&mut stranger);
        this.recv(1, 1);
        let (events, _) = this.send(&this.eager(0, b"x"));
        assert!(matches!(&events[..], [Event::Received { from, .. }] if *from == Some(this.peer)), "{events:?}");
    }
}

/// A layer with a peer that has no receive, of which it is told at once; and what is to be kept.
fn unready(delay: u16) -> (Layer<SendOnly>, PeerId, Endpoint<SoftDevice, SendOnly>, ProtectionDomain<SoftDevice>) {
    let device = SoftDevice::new(Config::new(Profile::RDMA).shuffle(false).delay(delay));
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    let [ours, theirs] = &contexts;
    let (pd, their_pd) = (ours.alloc_pd().unwrap(), theirs.alloc_pd().unwrap());
    let depth = Depth::new(64, Layer::<SendOnly>::receives());
    let never = RtsAttr::new().rnr_retry(ours.require::<SetRnrRetry>().unwrap(), RnrRetry::times(0).unwrap());
    let qp = pd.create_qp(ours.require::<SendOnly>().unwrap(), depth).unwrap();
    let qp = qp.init(InitAttr::new(Qkey(7))).unwrap().rtr().unwrap().rts(never).unwrap();
    let other = their_pd.endpoint(theirs.require::<SendOnly>().unwrap(), depth).unwrap();
    let (to_other, _) = introduce(&qp, &other).unwrap();
    let memory = pd.register(vec![0; Layer::<SendOnly>::memory(PACKET, 16)]).unwrap().1;
    let mut layer = Layer::<SendOnly>::new(qp, memory, Options::new(PACKET)).unwrap();
    let peer = layer.add(to_other).unwrap();
    (layer, peer, other, their_pd)
}

#[test]
fn a_peer_without_a_receive_is_tried_again_at_once_then_after_waits_that_double_and_arrives_once() {
    let (mut layer, _, mut other, their_pd) = unready(0);
    // The hello, which nobody has a receive for: until it is repeated it is the only packet.
    let mut tries = Vec::new();
    for now in 0..9_000 {
        for _ in 0..4 {
            let before = layer.counters().not_ready;
            assert!(layer.poll(now).is_none());
            assert!(other.poll().is_none());
            if layer.counters().not_ready > before {
                tries.push(now);
            }
        }
    }
    let waits: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.len() >= 7 && waits[0] <= 3, "{tries:?}");
    for (nth, wait) in waits[1..].iter().enumerate() {
        let least = 40 << nth;
        assert!((least..least + 10).contains(wait), "{nth}: {tries:?}");
    }
    other.post_recv(their_pd.register(vec![0; PACKET]).unwrap().1, Token(1)).unwrap();
    let arrived = (9_000..20_000).filter(|now| {
        assert!(layer.poll(*now).is_none());
        matches!(other.poll(), Some(work::Event::Received(_)))
    });
    assert_eq!(arrived.count(), 1);
}

#[test]
fn what_waits_to_be_tried_again_or_is_tried_when_its_peer_is_removed_does_not_go_out_any_more() {
    // While the device has it, and while it waits.
    for (delay, in_flight) in [(20, SLOTS + 1), (0, SLOTS)] {
        let (mut layer, peer, mut other, _) = unready(delay);
        let mut now = 0;
        while now < 500 || layer.endpoint().in_flight() != in_flight {
            now += 1;
            assert!(now < 10_000 && layer.poll(now).is_none() && other.poll().is_none());
        }
        let tried = layer.counters().not_ready;
        layer.remove(peer);
        let told: Vec<Happened> = (now..now + 50).filter_map(|now| layer.poll(now)).collect();
        assert!(matches!(&told[..], [Event::Lost { why: Why::Removed, .. }]), "{told:?}");
        assert_eq!((layer.is_up(peer), layer.endpoint().in_flight()), (Err(Why::UnknownPeer), SLOTS));
        assert_eq!(layer.counters().not_ready, tried);
        assert!((now..now + 100_000).all(|now| layer.poll(now).is_none()));
        assert_eq!(layer.counters().not_ready, tried);
    }
}

#[test]
fn an_endpoint_says_what_it_is_and_what_a_peer_costs() {
    let mut this = ByHand::up();
    assert_eq!((this.layer.fabric(), this.layer.max_message()), (Fabric::Efa, u64::MAX));
    // 64 slots that are counted and four that are not, and what is kept besides.
    let [small, large] = [1000, 2000].map(Layer::<SendOnly>::memory_per_peer);
    assert_eq!(large - small, 68 * 1000);
    assert!((1..8192).contains(&(small - 68 * 1000)), "{small}");
    assert_eq!(Layer::<SendOnly>::memory(1000, 16), 1000 * (4 * 68 + 16));
    // In one packet, which has 20 bytes before the payload.
    this.layer.send(this.peer, Memory::Plain(payload(1, PACKET - 20)), Token(1)).unwrap();
    assert_eq!(this.turns().1, [EAGER]);
    this.layer.send(this.peer, Memory::Plain(payload(1, PACKET - 19)), Token(2)).unwrap();
    assert_eq!(this.turns().1, [4, 4], "segments");
}
