//! H20, R25: a peer that dies, and one that comes back at the same address.

use efa_core::peer::PeerTable;
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Config, Profile, Side};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::Event;
use efa_core::{Error, Provider, Token, Verb};

use crate::common::{assert_idle, config, connect, required, wait, wait_failed, zeros};
use crate::{bytes, pair, window};

fn rdma() -> Config {
    config(Profile::RDMA)
}

/// A new program on the device of `side`, whose last one died.
fn restart(side: &Side) -> efa_core::qp::Endpoint<efa_core::soft::SoftDevice> {
    side.pd.endpoint(required::<_, Srd>(&side.ctx), Depth::new(8, 8)).unwrap()
}

#[test]
fn h20_what_is_in_flight_to_a_peer_that_dies_ends_with_status_9_and_says_why() {
    let (mut a, mut b) = pair(rdma());
    let (_memory, window) = window(&b, &a);
    // Two messages wait for a receive there, and the receives here for a message.
    a.endpoint.post(a.peer.send(bytes(&a, b"first")), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert_idle(&mut a.endpoint);
    b.ctx.provider().die();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window.range(0..8).unwrap()), Token(3)).unwrap();
    for _ in 0..3 {
        let failure = wait_failed(&mut a.endpoint);
        assert_eq!(failure.status(), Some(Status::RemoteBadDestQpn));
        let text = failure.to_string();
        assert!(text.contains("exited, restarted") && text.contains("exchange addresses again"), "{text}");
    }
    assert_eq!(a.endpoint.in_flight(), 0);
    // The dead one is told of nothing but its own: here, that there was nothing.
    assert_idle(&mut b.endpoint);
    // Its queue pair is in ERR and stays there.
    let refused = b.endpoint.error().unwrap().reset().unwrap_err();
    assert_eq!(refused.error(), Error::Device { verb: Verb::ModifyQp, errno: 5 });
    assert!(refused.into_inner().close().is_ok());
}

#[test]
fn h20_the_dead_programs_own_operations_are_flushed_or_never_complete_and_its_handles_can_be_destroyed() {
    for silent in [false, true] {
        let (a, mut b) = pair(rdma().silent_death(silent));
        for token in 0..3 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
        }
        b.endpoint.post(b.peer.send(zeros(&b.pd, 8)), Token(3)).unwrap();
        assert_idle(&mut b.endpoint);
        b.ctx.provider().die();
        b.endpoint.post(b.peer.send(zeros(&b.pd, 8)), Token(4)).unwrap();
        if silent {
            assert_idle(&mut b.endpoint);
        }
        let mut ends = Vec::new();
        let mut patience = 50;
        let expired = || {
            patience -= 1;
            patience < 0
        };
        b.endpoint
            .shut_down(expired, |event| match event {
                Event::Failed { failure, .. } if failure.is_flush() && !silent => ends.push(failure.token.unwrap().0),
                Event::Reclaimed { token, .. } if silent => ends.push(token.0),
                event => panic!("{event:?}"),
            })
            .unwrap();
        ends.sort_unstable();
        assert_eq!(ends, [0, 1, 2, 3, 4], "silent: {silent}");
        assert_eq!(b.ctx.provider().leaks().queue_pairs(), 0);
        drop(a);
    }
}

#[test]
fn h20_a_death_on_a_lossy_wire_resolves_each_operation_once_with_success_9_or_13() {
    let (mut unanswered, mut gone) = (0, 0);
    for seed in 0..if cfg!(miri) { 1 } else { 200 } {
        let (mut a, mut b) = pair(rdma().seed(seed).lose(400, 3).delay(20).shuffle(true));
        for token in 0..6 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
            a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
        }
        let mut resolved = [0; 6];
        let mut sent = 0;
        // Some turns more than it takes, lest one be resolved twice.
        let mut more = if cfg!(miri) { 10 } else { 100 };
        for turn in 0.. {
            more -= i32::from(a.endpoint.in_flight() == 0);
            if more == 0 {
                break;
            }
            assert!(turn < 10_000, "{resolved:?}");
            if turn == 16 {
                b.ctx.provider().die();
            }
            match a.endpoint.poll() {
                Some(Event::Sent(done)) => {
                    resolved[done.token.0 as usize] += 1;
                    sent += 1;
                }
                Some(Event::Failed { failure, .. }) => {
                    resolved[failure.token.unwrap().0 as usize] += 1;
                    match failure.status().unwrap() {
                        Status::RemoteBadDestQpn => gone += 1,
                        Status::LocalUnrespRemote => unanswered += 1,
                        Status::LocalUnreachRemote => assert_eq!(sent, 0, "never heard of"),
                        status => panic!("{status:?}"),
                    }
                }
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        assert_eq!(resolved, [1; 6], "seed {seed}");
    }
    assert!(gone > 0 && (unanswered > 0 || cfg!(miri)), "{gone} {unanswered}");
}

#[test]
fn r25_a_restarted_peer_has_the_same_address_and_another_key_and_displaces_its_predecessor() {
    let (mut a, b) = pair(rdma());
    let (gid, qpn) = (b.ctx.provider().gid(), b.endpoint.qpn());
    let qkey = b.endpoint.address().qkey;
    b.ctx.provider().die();
    let mut again = restart(&b);
    assert_eq!((again.provider().gid(), again.qpn()), (gid, qpn), "the old handle is still there");
    assert_ne!(again.address().qkey, qkey);
    let (to_again, _to_a) = connect(&a.endpoint, &again);
    assert_eq!(to_again.ahn(), a.peer.ahn());
    // Who still has the old key is refused, and no receive of the new program is touched.
    again.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(Status::RemoteBadDestQpn));
    assert_eq!(again.in_flight(), 1);
    let mut table: PeerTable<4> = PeerTable::new();
    assert!(table.insert(a.peer).unwrap().is_none());
    let old = table.insert(to_again).unwrap().expect("the predecessor");
    assert_eq!((old.qkey(), table.len()), (qkey, 1));
    // That the dead one's handle goes leaves the number to the living.
    drop(b.endpoint);
    let peer = table.get(gid, qpn).unwrap();
    a.endpoint.post(peer.send_empty(), Token(3)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut again), Event::Received(message) if message.token == Token(1)));
}

#[test]
fn r20_numbers_may_also_be_used_one_after_the_other_before_any_is_used_again() {
    let (a, b) = pair(rdma().reuse_numbers(false));
    let first = b.endpoint.qpn();
    b.ctx.provider().die();
    let mut seen = vec![first];
    for _ in 0..9 {
        seen.push(restart(&b).qpn());
    }
    assert!(seen[..8].windows(2).all(|two| two[0] != two[1]), "{seen:?}");
    assert_eq!(seen[8], first, "there are eight: {seen:?}");
    drop(a);
}

#[test]
fn h19_a_host_that_goes_away_answers_13_if_it_was_heard_before_and_15_if_not() {
    let (mut a, mut b) = pair(rdma());
    let unplugged = |a: &mut Side, b: &Side| {
        b.ctx.provider().link(false);
        a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
        let failure = wait_failed(&mut a.endpoint);
        b.ctx.provider().link(true);
        failure
    };
    let failure = unplugged(&mut a, &b);
    assert_eq!(failure.status(), Some(Status::LocalUnreachRemote));
    assert!(failure.to_string().contains("security group"), "{failure}");
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(2)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(3)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
    assert!(matches!(wait(&mut b.endpoint), Event::Received(_)));
    let failure = unplugged(&mut a, &b);
    assert_eq!(failure.status(), Some(Status::LocalUnrespRemote));
    let text = failure.to_string();
    assert!(text.contains("stopped answering") && text.contains("process and host are alive"), "{text}");
    // A refusal is an answer too; the other direction was never tried.
    b.ctx.provider().die();
    a.ctx.provider().link(false);
    let fresh = restart(&b);
    let (to_a, _ready) = fresh.resolve(a.endpoint.hello().as_bytes()).unwrap();
    let mut fresh = fresh;
    fresh.post(to_a.one_way().send_empty(), Token(4)).unwrap();
    assert_eq!(wait_failed(&mut fresh).status(), Some(Status::LocalUnreachRemote));
}
