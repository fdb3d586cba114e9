//! Messages of all sizes, from and into all sorts of memory, on all profiles.

use std::cell::Cell;

use efa_core::connect::connect_of;
use efa_core::fabric::{BadPacket, Carries, Denied, Efa, Event, Memory, Messages, Options, Returned, Violation, Why};
use efa_core::qp::{Depth, SendOnly};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Context, ProtectionDomain, Token};

use super::two::{Happened, Layer, PACKET, profiles};
use super::{Two, payload};

/// Around what fits a packet, four packets, and a few of what a clear lets come.
const SIZES: [usize; 12] = [0, 1, 64, 491, 492, 493, 1936, 1937, 4 * PACKET, 40_000, 100_000, 300_001];

fn received(event: Happened) -> (u64, Vec<u8>) {
    match event {
        Event::Received { token, len, target: Memory::Plain(mut bytes), .. } => {
            bytes.truncate(len);
            (token.0, bytes)
        }
        Event::Received { token, len, target: Memory::Slice(slice), .. } => (token.0, slice[..len].to_vec()),
        event => panic!("{event:?}"),
    }
}

fn sent(event: Happened) -> u64 {
    match event {
        Event::Sent { token, .. } => token.0,
        event => panic!("{event:?}"),
    }
}

#[test]
fn messages_of_all_sizes_arrive_in_order_on_every_profile() {
    fn test<K: Carries>(profile: Profile) {
        let mut two = Two::<K>::new(profile);
        for (index, &size) in SIZES.iter().enumerate() {
            two.ends[1].layer.recv(Memory::Plain(vec![0; size + 3]), Token(100 + index as u64)).unwrap();
            let peer = two.ends[0].peer;
            two.ends[0].layer.send(peer, Memory::Plain(payload(index, size)), Token(index as u64)).unwrap();
        }
        let [done, arrived] = two.collect([SIZES.len(); 2]);
        let mut done: Vec<_> = done.into_iter().map(sent).collect();
        done.sort_unstable();
        assert!(done.iter().copied().eq(0..SIZES.len() as u64));
        let mut arrived: Vec<_> = arrived.into_iter().map(received).collect();
        arrived.sort_unstable_by_key(|(token, _)| *token);
        for (index, &size) in SIZES.iter().enumerate() {
            assert_eq!(arrived[index], (100 + index as u64, payload(index, size)), "{size} bytes");
        }
        assert_eq!(two.ends[0].layer.under_way(), [0; 3]);
    }
    profiles!(test);
}

#[test]
fn registered_slices_are_sent_without_a_copy_and_come_back_whole() {
    fn test<K: Carries>(profile: Profile) {
        let mut two = Two::<K>::new(profile);
        let (source, target) = (two.slice(0, payload(1, 50_000)), two.slice(1, vec![0; 60_000]));
        two.ends[1].layer.recv(target.into(), Token(1)).unwrap();
        let peer = two.ends[0].peer;
        two.ends[0].layer.send(peer, source.into(), Token(2)).unwrap();
        let [mut done, mut arrived] = two.collect([1; 2]);
        assert_eq!(received(arrived.remove(0)).1, payload(1, 50_000));
        assert!(matches!(done.remove(0), Event::Sent { source: Memory::Slice(slice), .. } if slice.len() == 50_000));
        let [from, to] = two.ends.each_ref().map(|end| end.layer.counters());
        assert_eq!((from.copied, to.copied), (0, 50_000), "a slice can be gathered, but not scattered");
    }
    profiles!(test);
}

#[test]
fn a_message_longer_than_its_receive_is_told_to_the_receiver_and_the_next_is_as_it_was() {
    fn test<K: Carries>(profile: Profile) {
        let mut two = Two::<K>::new(profile);
        for (index, size) in [100, 1000, 20_000].into_iter().enumerate() {
            let peer = two.ends[0].peer;
            two.ends[0].layer.send(peer, Memory::Plain(payload(index, size)), Token(1)).unwrap();
            two.ends[0].layer.send(peer, Memory::Plain(payload(7, 90)), Token(2)).unwrap();
            two.ends[1].layer.recv(Memory::Plain(vec![0; 99]), Token(3)).unwrap();
            two.ends[1].layer.recv(Memory::Plain(vec![0; 99]), Token(4)).unwrap();
            let [_, mut arrived] = two.collect([2; 2]);
            arrived.sort_unstable_by_key(|event| event.token().unwrap().0);
            let next = arrived.pop().unwrap();
            match arrived.pop().unwrap() {
                Event::Failed { why: Why::Truncated { len, room: 99 }, buffer: Returned::Target(target), .. } => {
                    assert!(len == size as u64 && target.len() == 99);
                }
                event => panic!("{event:?}"),
            }
            assert_eq!(received(next), (4, payload(7, 90)));
        }
    }
    profiles!(test);
}

#[test]
fn messages_that_find_no_receive_wait_and_their_sender_runs_out_of_room_with_its_buffer_back() {
    let mut two = Two::<efa_core::qp::Srd>::new(Profile::RDMA);
    let peer = two.ends[0].peer;
    let mut count = 0_u64;
    let refused = loop {
        for _ in 0..2000 {
            let _sent = two.poll(0);
            assert!(!matches!(two.poll(1), Some(Event::Received { .. })));
        }
        match two.ends[0].layer.send(peer, Memory::Plain(payload(count as usize, 80)), Token(count)) {
            Ok(()) => count += 1,
            Err(refused) => break refused,
        }
    };
    let (memory, why) = refused.into_parts();
    assert!(
        matches!((memory, why), (Memory::Plain(bytes), Why::Full { limit: 16 }) if bytes == payload(count as usize, 80))
    );
    assert_eq!(count, 56 + 16, "seven eighths of the credits, and the sender's own table");
    for index in 0..count {
        two.ends[1].layer.recv(Memory::Plain(vec![0; 80]), Token(index)).unwrap();
        loop {
            let _sent = two.poll(0);
            if let Some(event) = two.poll(1) {
                assert_eq!(received(event), (index, payload(index as usize, 80)));
                break;
            }
        }
    }
    assert_eq!(two.ends[0].layer.counters().not_ready, 0);
}

#[test]
fn the_cpu_copies_nothing_of_what_is_exposed_for_reading_or_into_what_is_exposed_for_writing() {
    use efa_core::memory::{RemoteRead, RemoteWrite};
    let mut two = Two::<efa_core::qp::Srd>::new(Config::new(Profile::RDMA).pieces(1000));
    let bytes = payload(3, 65_536);
    let [a, b] = &mut two.ends;
    // Read from exposed memory into a slice.
    let exposed = a.pd.expose(super::two::pages(&bytes), a.ctx.require::<RemoteRead>().unwrap()).unwrap();
    let target = b.pd.register(vec![0; 65_536]).unwrap().1;
    b.layer.recv(target.into(), Token(1)).unwrap();
    a.layer.send(a.peer, exposed.part(0..65_536).unwrap().into(), Token(2)).unwrap();
    let [_, mut arrived] = two.collect([1; 2]);
    assert_eq!(received(arrived.remove(0)).1, bytes);
    // Written from a slice into exposed memory.
    let [a, b] = &mut two.ends;
    let exposed = b.pd.expose(super::two::pages(&[0; 65_536]), b.ctx.require::<RemoteWrite>().unwrap()).unwrap();
    b.layer.recv(exposed.part(0..65_536).unwrap().into(), Token(1)).unwrap();
    let source = a.pd.register(bytes.clone()).unwrap().1;
    a.layer.send(a.peer, source.into(), Token(2)).unwrap();
    let [_, arrived] = two.collect([1; 2]);
    assert!(matches!(arrived[0], Event::Received { len: 65_536, .. }));
    let mut out = vec![0; 65_536];
    exposed.copy_out(0, &mut out).unwrap();
    assert!(out == bytes);
    let [from, to] = two.ends.each_ref().map(|end| end.layer.counters());
    assert_eq!((from.copied, to.copied, from.written, to.read), (0, 0, 65_536, 65_536));
}

#[test]
fn each_refusal_says_what_to_do() {
    let packet = |bad| Violation::Packet(bad).into();
    let cases: [(Why, &str); 22] = [
        (Why::UnknownPeer, "add it"),
        (Why::Full { limit: 16 }, "16 are under way"),
        (Why::TooLong { len: 9, limit: 8 }, "9 bytes where there are 8"),
        (Why::Truncated { len: 2, room: 1 }, "longer receives"),
        (Why::Removed, "removed the peer"),
        (Why::Left, "let go of this side"),
        (Why::Closed, "was closed"),
        (Why::Shrunk, "`as_ref` must not change"),
        (Why::Denied(Denied::NoWindow), "ask it for another"),
        (Why::Denied(Denied::OutOfBounds), "not so many bytes"),
        (Why::Denied(Denied::NotAllowed), "not open for that"),
        (Why::Denied(Denied::Failed), "failed at the peer"),
        (Why::Denied(Denied::Unknown(77)), "by 77"),
        (Violation::Credits.into(), "broke the protocol: more packets"),
        (Violation::Sequence { found: 7, expected: 5 }.into(), "message 7 where it is the turn of 5"),
        (Violation::UnknownOperation(0x10003).into(), "operation 0x10003"),
        (Violation::Beyond { offset: 3, len: 4, within: 5 }.into(), "4 bytes at 3, where 5"),
        (packet(BadPacket::Short { found: 3, expected: 16 }), "3 bytes, its kind has at least 16"),
        (packet(BadPacket::Magic(1)), "begins with 0x01, not with 0xef"),
        (packet(BadPacket::Version(2)), "version 2, this side speaks 1"),
        (packet(BadPacket::Kind(13)), "no kind 13"),
        (packet(BadPacket::Hello), "nobody can work with"),
    ];
    for (why, says) in cases {
        assert!(why.to_string().contains(says), "{why:?}: {why}");
    }
}

/// A buffer that says once how long it is, and is empty from then on.
struct Shrinks(Cell<bool>);

impl AsRef<[u8]> for Shrinks {
    fn as_ref(&self) -> &[u8] {
        if self.0.replace(true) { &[] } else { &[7; 90] }
    }
}

#[test]
fn a_source_that_has_less_than_it_said_is_sent_as_zeros_and_comes_back_with_that() {
    let device = SoftDevice::new(Profile::NONE);
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    let depth = Depth::new(64, Layer::<SendOnly>::receives());
    let [a, b] = connect_of::<_, SendOnly>(contexts, depth).unwrap();
    let memory =
        |pd: &ProtectionDomain<SoftDevice>| pd.register(vec![0; Layer::<SendOnly>::memory(PACKET, 16)]).unwrap().1;
    let mut from: Efa<_, _, Shrinks, Vec<u8>> = Efa::new(a.endpoint, memory(&a.pd), Options::new(PACKET)).unwrap();
    let mut to = Layer::new(b.endpoint, memory(&b.pd), Options::new(PACKET)).unwrap();
    let (peer, _) = (from.add(a.peer).unwrap(), to.add(b.peer).unwrap());
    let (mut failed, mut arrived) = (None, None);
    for now in 0..10_000 {
        match from.poll(now) {
            Some(Event::Up(_)) => {
                to.recv(Memory::Plain(vec![1; 100]), Token(1)).unwrap();
                from.send(peer, Memory::Plain(Shrinks(Cell::new(false))), Token(2)).unwrap();
            }
            Some(Event::Failed { token: Token(2), why, .. }) => failed = Some(why),
            Some(event) => panic!("{:?}", event.token()),
            None => {}
        }
        if let Some(Event::Received { len, target, .. }) = to.poll(now) {
            arrived = Some((len, target.into_plain()));
        }
    }
    let expected = [vec![0; 90], vec![1; 10]].concat();
    assert_eq!((failed, arrived), (Some(Why::Shrunk), Some((90, Some(expected)))));
}

#[test]
fn a_buffer_says_how_long_it_is_and_comes_back_as_what_it_was() {
    let two = Two::<efa_core::qp::Srd>::new(Profile::RDMA);
    let plain: Memory<Vec<u8>> = Memory::Plain(vec![1; 3]);
    assert!(!plain.is_empty() && Memory::Plain(Vec::<u8>::new()).is_empty());
    assert_eq!((plain.len(), plain.into_slice().is_none()), (3, true));
    let slice: Memory<Vec<u8>> = two.slice(0, vec![1; 5]).into();
    assert_eq!(slice.into_slice().map(|slice| slice.len()), Some(5));
}
