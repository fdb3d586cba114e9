//! Counters that begin near their wrap: nothing is lost, doubled or taken for something else when they do.

use std::collections::BTreeSet;

use efa_core::Token;
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Config, Profile, Side, pair_of};
use efa_core::work::Event;

use crate::common::{config, connect, required, wait, zeros};
use crate::{bytes, look, window};

fn near(steps: u16) -> Config {
    config(Profile::RDMA).near_wrap(steps)
}

/// A message and a write, each checked.
fn exchange(a: &mut Side, b: &mut Side, number: u8) {
    let (memory, window) = window(b, a);
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send(bytes(a, &[number; 5])), Token(2)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(done) if done.token == Token(2)));
    let Event::Received(mut message) = wait(&mut b.endpoint) else { panic!() };
    assert_eq!((message.len, &message.buffers.take_slice().unwrap()[..5]), (5, &[number; 5][..]));
    let part = window.range(0..16).unwrap();
    a.endpoint.post(a.peer.write(bytes(a, &[number; 16]), part), Token(3)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(done) if done.token == Token(3)));
    assert_eq!(look(&memory, 16), [number; 16]);
    memory.revoke().unwrap();
}

#[test]
fn messages_arrive_while_turns_queue_indices_and_keys_wrap() {
    for steps in if cfg!(miri) { vec![9] } else { vec![0, 1, 9, 200] } {
        let (mut a, mut b) = pair_of(near(steps), Depth::new(4, 4)).unwrap();
        for number in 0..if cfg!(miri) { 3 } else { 250 } {
            exchange(&mut a, &mut b, number);
        }
        assert_eq!((a.endpoint.stats().stale, b.endpoint.stats().stale), (0, 0));
    }
}

#[test]
fn a_message_that_waits_across_the_wrap_of_turns_is_tried_again() {
    let (mut a, mut b) = pair_of(near(3).force_rnr(2).delay(3), Depth::new(4, 4)).unwrap();
    let exchanges = if cfg!(miri) { 1 } else { 9 };
    for number in 0..exchanges {
        exchange(&mut a, &mut b, number);
    }
    let (mut a, mut b) = pair_of(near(12).lose(300, 100), Depth::new(4, 4)).unwrap();
    for number in 0..exchanges {
        exchange(&mut a, &mut b, number);
    }
}

#[test]
fn the_wrap_of_turns_makes_no_retry_earlier_or_later() {
    let turns = |config: Config| {
        let (mut a, mut b) = pair_of::<Srd>(config.force_rnr(2), Depth::new(4, 4)).unwrap();
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
        (0..1000).take_while(|_| a.endpoint.poll().is_none()).count()
    };
    let expected = turns(config(Profile::RDMA));
    assert_eq!([1, 3, 6].map(|steps| turns(near(steps))), [expected; 3]);
}

#[test]
fn r20_generations_of_a_number_wrap_and_its_last_owners_completions_are_still_told_apart() {
    let (mut a, mut b) = pair_of(near(4).stale_completions(1), Depth::new(4, 4)).unwrap();
    for life in 1..if cfg!(miri) { 5 } else { 20 } {
        let qpn = b.endpoint.qpn();
        b.endpoint.close().unwrap();
        b.endpoint = b.pd.endpoint(required::<_, Srd>(&b.ctx), Depth::new(4, 4)).unwrap();
        assert_eq!(b.endpoint.qpn(), qpn);
        (a.peer, b.peer) = connect(&a.endpoint, &b.endpoint);
        exchange(&mut a, &mut b, life);
        // That of the send queue is found by the poll that finds nothing else.
        while b.endpoint.poll().is_some() {}
        assert!(b.endpoint.poll().is_none());
        assert_eq!(b.endpoint.stats().stale, 2, "life {life}");
    }
}

#[test]
fn address_handles_and_local_keys_wrap_without_two_that_are_alike_one_after_the_other() {
    let (a, b) = pair_of::<Srd>(near(3), Depth::new(4, 4)).unwrap();
    let pd = a.ctx.alloc_pd().unwrap();
    let qp = pd.endpoint(required::<_, Srd>(&a.ctx), Depth::new(4, 4)).unwrap();
    let mut numbers = Vec::new();
    for _ in 0..if cfg!(miri) { 5 } else { 70 } {
        let (peer, _ready) = qp.resolve(b.endpoint.hello().as_bytes()).unwrap();
        numbers.push(peer.ahn());
    }
    assert!(numbers.windows(2).all(|two| two[0] != two[1]), "{numbers:?}");
    assert!(numbers.iter().all(|ahn| ahn.0 != 0xFFFF), "that is nobody's");
    let distinct: BTreeSet<_> = numbers.iter().map(|ahn| ahn.0).collect();
    assert!(distinct.len() > 4);
}
