//! R17, H34: unsolicited arrivals are bounded by the budget that the program asked for, and by nothing else.

use efa_core::Token;
use efa_core::qp::{Depth, Srd, Unsolicited, ops};
use efa_core::soft::{self, Config, Profile, pair_of};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::Event;

use crate::common::{config, wait, wait_failed, zeros};
use crate::window;

type Kind = Srd<{ ops::ALL }, Unsolicited>;
type Side = soft::Side<Kind>;

const BUDGET: u32 = 8;

fn pair(config: Config) -> (Side, Side) {
    // 8 receives and the budget: 16 entries.
    pair_of::<Kind>(config, Depth::new(8, 8).unsolicited(BUDGET)).unwrap()
}

fn rdma() -> Config {
    config(Profile::UNSOLICITED)
}

/// `count` writes with immediate that `b` does not poll for; how many succeeded.
fn flood(a: &mut Side, b: &Side, count: u32) -> u32 {
    let (memory, window) = window(b, a);
    let mut good = 0;
    for imm in 0..count {
        let write = a.peer.write(zeros(&a.pd, 8), window.range(0..8).unwrap()).imm(imm);
        a.endpoint.post(write, Token(imm.into())).unwrap();
        good += u32::from(matches!(wait(&mut a.endpoint), Event::Written(_)));
    }
    drop(memory);
    good
}

fn immediates(b: &mut Side) -> Vec<u32> {
    let arrivals = std::iter::from_fn(|| b.endpoint.poll());
    arrivals
        .map(|event| match event {
            Event::UnsolicitedWrite(arrived) => arrived.imm,
            event => panic!("{event:?}"),
        })
        .collect()
}

#[test]
fn h34_a_flood_beyond_the_budget_loses_completions_silently_on_hardware_and_is_counted_here() {
    let (mut a, mut b) = pair(rdma().count_overruns().shuffle(false));
    assert_eq!(flood(&mut a, &b, 19), 19, "the sender is told nothing");
    assert_eq!(b.ctx.provider().counters().cq_overruns, 3);
    let told = immediates(&mut b);
    assert!(told.len() < 19, "{told:?}");
    // By default nobody counts.
    let (mut a, b) = pair(rdma());
    assert_eq!(flood(&mut a, &b, 19), 19);
    assert_eq!(b.ctx.provider().counters().cq_overruns, 0);
}

#[test]
fn h34_where_it_is_strict_an_overrun_is_loud_and_what_was_unread_stays() {
    let (mut a, mut b) = pair(rdma().strict_overruns().shuffle(false));
    for token in 0..4 {
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
    }
    // Four of the eight places for receives are with the device, so that 12 arrivals are sure to have room.
    assert_eq!(flood(&mut a, &b, 17), 17, "16 arrivals, and one whose bytes are there but which found no room");
    assert_eq!(b.ctx.provider().counters().cq_overruns, 1 + 4, "it, and the flushes of the four receives");
    assert_eq!(immediates(&mut b), (0..16).collect::<Vec<_>>());
    a.endpoint.post(a.peer.send_empty(), Token(9)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(Status::RemoteBadDestQpn), "it is in ERR");
    b.endpoint.post(b.peer.send_empty(), Token(10)).unwrap();
    assert_eq!(wait_failed(&mut b.endpoint).status(), Some(Status::Flushed), "its program hears of it too");
    let mut reclaimed = 0;
    let report = b.endpoint.shut_down(|| true, |_| reclaimed += 1).unwrap();
    assert_eq!((report.reclaimed, reclaimed), (4, 4), "and gets back what no completion told of");
}

#[test]
fn r17_a_program_that_keeps_to_its_budget_is_never_reported_however_long_it_runs() {
    let (mut a, mut b) = pair(rdma().strict_overruns());
    let (_memory, window) = window(&b, &a);
    let target = window.range(0..8).unwrap();
    for round in 0..if cfg!(miri) { 3 } else { 300u32 } {
        // The receives' completions and the budget's are all unread before the first is polled.
        for token in 0..8 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
        }
        for nth in 0..8 {
            a.endpoint.post(a.peer.send_empty(), Token(0)).unwrap();
            assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
            if nth < BUDGET {
                a.endpoint.post(a.peer.write(zeros(&a.pd, 8), target).imm(nth), Token(1)).unwrap();
                assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
            }
        }
        let events: Vec<_> = std::iter::from_fn(|| b.endpoint.poll()).collect();
        assert_eq!(events.len(), 16, "round {round}");
        let unsolicited = events.iter().filter(|event| matches!(event, Event::UnsolicitedWrite(_)));
        assert_eq!(unsolicited.count(), 8);
    }
    assert_eq!(b.ctx.provider().counters().cq_overruns, 0);
    assert_eq!(a.ctx.provider().counters().cq_overruns, 0);
}

#[test]
fn r34_the_end_tells_of_every_unsolicited_arrival_that_is_there_and_of_what_came_behind_them() {
    for expired in [false, true] {
        let depth = Depth::new(1, 1).unsolicited(31);
        let (mut a, mut b) = pair_of::<Kind>(rdma().strict_overruns().shuffle(false), depth).unwrap();
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
        assert_eq!(flood(&mut a, &b, 24), 24);
        let mut events = Vec::new();
        let report = b.endpoint.shut_down(|| expired, |event| events.push(event)).unwrap();
        assert_eq!((report.completed, report.reclaimed, events.len()), (1, 0, 25));
        let told = events.iter().filter(|event| matches!(event, Event::UnsolicitedWrite(_)));
        assert_eq!(told.count(), 24);
    }
}

#[test]
fn r21_a_reset_forgets_the_unsolicited_arrivals_that_were_not_read() {
    let (mut a, b) = pair(rdma().strict_overruns());
    assert_eq!(flood(&mut a, &b, 8), 8);
    let b_qp = b.endpoint.reset().unwrap().prepare().unwrap();
    let (to_b, to_a) = crate::common::connect(&a.endpoint, &b_qp);
    (a.peer, _) = (to_b, to_a);
    let mut b = Side { endpoint: b_qp, ..b };
    assert_eq!(flood(&mut a, &b, 8), 8);
    assert_eq!(immediates(&mut b).len(), 8);
    assert_eq!(flood(&mut a, &b, 8), 8);
    assert_eq!(b.ctx.provider().counters().cq_overruns, 0);
    assert_eq!(b.endpoint.stats().stale, 8);
}
