//! Messages of all sizes, from and into all sorts of memory, on all profiles.

use efa_core::Token;
use efa_core::fabric::{Carries, Event, Memory, Messages, Returned, Violation, Why};
use efa_core::soft::{Config, Profile};

use super::two::{Happened, PACKET, profiles};
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
    assert!(Why::Truncated { len: 2, room: 1 }.to_string().contains("longer receives"));
    assert!(Why::Violation(Violation::Credits).to_string().contains("broke the protocol"));
}
