//! Loss, delay and what is sent again; one seed is one run.

use efa_core::Token;
use efa_core::soft::{Config, Profile, Side};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::Event;

use crate::common::{config, wait, wait_failed, zeros};
use crate::{bytes, look, pair, window};

fn rdma() -> Config {
    config(Profile::RDMA)
}

#[test]
fn srd_delivers_each_message_once_however_often_it_was_lost_or_late() {
    let rounds = if cfg!(miri) { 1 } else { 40 };
    let (mut a, mut b) = pair(rdma().lose(300, 200).delay(7).shuffle(true));
    let mut arrived = Vec::new();
    for round in 0..rounds {
        for nth in 0..8 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(nth)).unwrap();
            let number = round * 8 + nth;
            let message = bytes(&a, &number.to_le_bytes());
            a.endpoint.post(a.peer.send(message).imm(number as u32), Token(number)).unwrap();
        }
        for _ in 0..8 {
            assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
        }
        for _ in 0..8 {
            let Event::Received(mut message) = wait(&mut b.endpoint) else { panic!() };
            let number = u64::from(message.imm.unwrap());
            assert_eq!(message.buffers.take_slice().unwrap()[..], number.to_le_bytes());
            arrived.push(number);
        }
    }
    let in_order: Vec<u64> = (0..rounds * 8).collect();
    assert_ne!(arrived, in_order, "R16");
    arrived.sort_unstable();
    assert_eq!(arrived, in_order);
    let (requester, responder) = (a.ctx.provider().counters(), b.ctx.provider().counters());
    assert!(requester.retrans_pkts > 0 && responder.duplicates > 0, "{requester:?} {responder:?}");
    assert_eq!((responder.recv_wrs, requester.unresponsive_remote_events), (rounds * 8, 0));
}

#[test]
fn h19_a_wire_that_loses_everything_answers_15_after_as_many_retransmissions_as_it_was_told() {
    let (mut a, mut b) = pair(rdma().lose(1000, 3));
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send(bytes(&a, b"nobody")), Token(2)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!((failure.status(), failure.token), (Some(Status::LocalUnreachRemote), Some(Token(2))));
    let text = failure.to_string();
    assert!(text.contains("never answered") && text.contains("security group"), "{text}");
    let counters = a.ctx.provider().counters();
    assert_eq!((counters.retrans_pkts, counters.unresponsive_remote_events), (3, 1));
    assert_eq!(b.endpoint.in_flight(), 1);
}

#[test]
fn h19_what_is_not_answered_ends_with_15_until_the_peer_was_heard_and_with_13_from_then_on() {
    let (mut before, mut after, mut executed) = (0, 0, 0);
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        let (mut a, mut b) = pair(rdma().seed(seed).lose(400, 0));
        let (mut heard, mut sent, mut received) = (false, 0, 0);
        for number in 0..if cfg!(miri) { 6 } else { 12 } {
            while b.endpoint.can_post_recv() {
                b.endpoint.post_recv(zeros(&b.pd, 8), Token(0)).unwrap();
            }
            a.endpoint.post(a.peer.send_empty(), Token(number)).unwrap();
            match wait(&mut a.endpoint) {
                Event::Sent(_) => (heard, sent) = (true, sent + 1),
                Event::Failed { failure, .. } if heard => {
                    assert_eq!(failure.status(), Some(Status::LocalUnrespRemote), "{failure}");
                    after += 1;
                }
                Event::Failed { failure, .. } => {
                    assert_eq!(failure.status(), Some(Status::LocalUnreachRemote), "{failure}");
                    before += 1;
                }
                event => panic!("{event:?}"),
            }
            while let Some(event) = b.endpoint.poll() {
                assert!(matches!(event, Event::Received(_)), "{event:?}");
                received += 1;
            }
        }
        assert!(received >= sent, "a success that did not arrive");
        executed += received - sent;
    }
    assert!(cfg!(miri) || before > 0 && after > 0, "{before} {after}");
    assert!(cfg!(miri) || executed > 0, "an operation that failed with 13 or 15 may have been executed");
}

#[test]
fn a_message_is_late_by_no_more_turns_than_it_was_told() {
    let mut latest = 0;
    for seed in 0..if cfg!(miri) { 1 } else { 100 } {
        let (mut a, mut b) = pair(rdma().seed(seed).delay(9));
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
        let turns = (0..).take_while(|_| a.endpoint.poll().is_none()).count();
        assert!(turns <= 9, "{turns}");
        latest = latest.max(turns);
    }
    assert!(latest > 4 || cfg!(miri), "{latest}");
}

/// All that is random at once; what each side was told, in words.
fn run(seed: u64) -> Vec<String> {
    let config = rdma().seed(seed).shuffle(true).pieces(8).lose(250, 2).delay(4).unknown_senders(1).force_rnr(1);
    let (mut a, mut b) = pair(config);
    let (memory, window) = window(&b, &a);
    let mut told = Vec::new();
    let tell = |side: &mut Side, told: &mut Vec<String>| {
        if let Some(event) = side.endpoint.poll() {
            let what = match &event {
                Event::Failed { failure, .. } => format!("{:?}", failure.cause),
                Event::Received(message) => format!("received {:?} {:?}", message.len, message.imm),
                _ => "done".into(),
            };
            told.push(format!("{:?} {what}", event.token()));
        }
    };
    for nth in 0..if cfg!(miri) { 2 } else { 4 } {
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(nth)).unwrap();
        a.endpoint.post(a.peer.send_empty().imm(nth as u32), Token(10 + nth)).unwrap();
        let part = window.range(nth * 32..nth * 32 + 32).unwrap();
        a.endpoint.post(a.peer.write(bytes(&a, &[nth as u8 + 1; 32]), part), Token(20 + nth)).unwrap();
    }
    let mut seen = vec![0; 128];
    while a.endpoint.in_flight() > 0 {
        tell(&mut a, &mut told);
        tell(&mut b, &mut told);
        let now = look(&memory, 128);
        if now != seen {
            told.push(format!("{:x?}", now.iter().step_by(8).collect::<Vec<_>>()));
            seen = now;
        }
    }
    told
}

#[test]
fn one_seed_is_one_run_to_the_byte_and_another_seed_another() {
    let first = run(5);
    assert_eq!(run(5), first);
    assert!(cfg!(miri) || run(6) != first);
}
