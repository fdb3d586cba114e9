//! Queue pairs that share a completion queue: routed, within budget, and none made over what another left.

mod common;

use std::collections::HashMap;

use common::{LIMITS, config, page, required, zeros};
use efa_core::connect::introduce;
use efa_core::flow::{Split, Step};
use efa_core::memory::{RemoteReadWrite, RemoteWrite};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Group, InitAttr, MemberId, QpKind, QpState, RtsAttr, Shutdown, Srd, Unsolicited, ops};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::status::CompletionStatus;
use efa_core::work::Event;
use efa_core::{Context, Error, Limit, Limits, ProtectionDomain, Provider, Qkey, Token, Verb};

const N: usize = 4;

/// A group, and a peer that keeps the address handle of its own device.
struct Stage<K: QpKind = Srd> {
    group: Group<SoftDevice, K, N>,
    handle: Option<Peer<Mutual, K::Features>>,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

fn stage<K: QpKind>(config: Config, entries: u32) -> Stage<K> {
    let ctx = Context::open(SoftDevice::new(config));
    let pd = ctx.alloc_pd().unwrap();
    Stage { group: pd.group(required::<_, K>(&ctx), entries).unwrap(), handle: None, pd, ctx }
}

impl<K: QpKind> Stage<K> {
    fn endpoint(&mut self) -> MemberId {
        self.group.endpoint(Depth::new(4, 4)).unwrap()
    }

    fn peer(&mut self, from: MemberId, to: MemberId) -> Peer<Mutual, K::Features> {
        let queue_pair = |member| self.group.queue_pair(member).unwrap();
        self.handle.get_or_insert_with(|| introduce(queue_pair(from), queue_pair(to)).unwrap().0);
        introduce(queue_pair(from), queue_pair(to)).unwrap().0
    }

    fn recv(&mut self, at: MemberId, token: u64) {
        let target = zeros(&self.pd, 8);
        self.group.member(at).unwrap().post_recv(target, Token(token)).unwrap();
    }

    /// The device's turns alone: completions stay unread.
    fn turns(&self) {
        (0..50).for_each(|_| self.ctx.provider().progress());
    }

    #[track_caller]
    fn wait(&mut self) -> (MemberId, Event) {
        (0..10_000).find_map(|_| self.group.poll()).expect("an event")
    }

    #[track_caller]
    fn idle(&mut self) {
        for _ in 0..20 {
            let event = self.group.poll();
            assert!(event.is_none(), "{event:?}");
        }
    }
}

impl Stage<Srd> {
    fn send(&mut self, from: MemberId, to: MemberId, token: u64) {
        let peer = self.peer(from, to);
        self.group.member(from).unwrap().post(peer.send_empty(), Token(token)).unwrap();
    }
}

fn quiet() -> Config {
    config(Profile::RDMA)
}

#[test]
fn receives_are_posted_on_a_member_as_a_list_and_what_had_no_room_stays() {
    let mut stage = stage::<Srd>(quiet(), 64);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    let targets: Vec<_> = (0..6).map(|token| (zeros(&stage.pd, 8), Token(token))).collect();
    let mut list = targets.into_iter();
    assert_eq!(stage.group.member(b).unwrap().post_recv_list(&mut list).unwrap(), 4);
    assert_eq!(list.len(), 2);
    for token in 10..14 {
        stage.send(a, b, token);
    }
    let mut received: Vec<_> =
        (0..8).map(|_| stage.wait()).filter(|(whose, _)| *whose == b).map(|(_, event)| event.token()).collect();
    received.sort();
    assert_eq!(received, [0, 1, 2, 3].map(|token| Some(Token(token))));
}

#[test]
fn every_completion_is_told_with_the_queue_pair_that_it_is_of() {
    let mut stage = stage::<Srd>(quiet().shuffle(true).strict_overruns(), 64);
    let members: Vec<MemberId> = (0..N).map(|_| stage.endpoint()).collect();
    assert!(stage.group.members().eq(members.iter().copied()));
    let mut expected = HashMap::new();
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        for (nth, &from) in members.iter().enumerate() {
            let to = members[(nth + 1 + round % (N - 1)) % N];
            let token = (round * N + nth) as u64;
            stage.recv(to, 1000 + token);
            stage.send(from, to, token);
            expected.insert(Token(token), from);
            expected.insert(Token(1000 + token), to);
        }
        for _ in 0..2 * N {
            let (whose, event) = stage.wait();
            let kind = if event.token().unwrap().0 < 1000 { "Sent" } else { "Received" };
            assert!(format!("{event:?}").starts_with(kind), "{event:?}");
            assert_eq!(expected.remove(&event.token().unwrap()), Some(whose), "{event:?}");
        }
    }
    assert!(expected.is_empty());
    stage.idle();
    assert_eq!((stage.group.stale(), stage.ctx.provider().counters().cq_overruns), (0, 0));
}

#[test]
fn r17_a_queue_pair_that_the_queue_has_no_room_for_is_refused_and_one_that_leaves_makes_room() {
    let mut stage = stage::<Srd>(quiet(), 20);
    assert_eq!((stage.group.entries(), stage.group.room()), (32, 32));
    // Depths are rounded up: 4 + 8.
    let first = stage.group.endpoint(Depth::new(3, 5)).unwrap();
    let _second = stage.group.endpoint(Depth::new(8, 8)).unwrap();
    assert_eq!((stage.group.entries(), stage.group.room()), (32, 4));
    let above = |asked| Error::AboveLimit { what: Limit::CompletionEntries, asked, limit: 32 };
    let refused = stage.group.endpoint(Depth::new(4, 1)).unwrap_err();
    assert_eq!(refused, above(33));
    assert!(refused.to_string().contains("R17"), "{refused}");
    assert_eq!(stage.group.endpoint(Depth::new(u32::MAX, 1)).unwrap_err(), {
        let limit = Config::LIMITS.max_send_depth.into();
        Error::AboveLimit { what: Limit::SendDepth, asked: u32::MAX.into(), limit }
    });
    stage.group.endpoint(Depth::new(2, 2)).unwrap();
    assert_eq!((stage.group.entries(), stage.group.room()), (32, 0));
    stage.group.close(first).unwrap();
    assert_eq!((stage.group.entries(), stage.group.room()), (32, 12));
    stage.idle();
    stage.group.endpoint(Depth::new(4, 8)).unwrap();
    assert_eq!(stage.group.endpoint(Depth::new(1, 1)).unwrap_err(), above(34));
}

#[test]
fn r17_unsolicited_arrivals_have_room_of_their_own_in_a_group() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let mut stage = stage::<Kind>(config(Profile::UNSOLICITED).strict_overruns(), 16);
    let depth = Depth::new(4, 1);
    let error = stage.group.endpoint(depth.unsolicited(12)).unwrap_err();
    assert_eq!(error, Error::AboveLimit { what: Limit::CompletionEntries, asked: 17, limit: 16 });
    let to = stage.group.endpoint(depth.unsolicited(4)).unwrap();
    let from = stage.group.endpoint(Depth::new(4, 1)).unwrap();
    let exposed = page::<_, RemoteWrite>(&stage.ctx, &stage.pd);
    let peer = stage.peer(from, to);
    let window =
        peer.window::<RemoteWrite>(exposed.grant(stage.group.queue_pair(to).unwrap()).unwrap().as_bytes()).unwrap();
    for _ in 0..5 {
        for imm in 0..4 {
            let source = zeros(&stage.pd, 8);
            stage.group.member(from).unwrap().post(peer.write(source, window).imm(imm), Token(0)).unwrap();
        }
        stage.turns();
        let events: Vec<_> = (0..8).map(|_| stage.wait()).collect();
        let arrived = events.iter().filter(|(at, event)| *at == to && matches!(event, Event::UnsolicitedWrite(_)));
        let written = events.iter().filter(|(at, event)| *at == from && matches!(event, Event::Written(_)));
        assert_eq!((arrived.count(), written.count()), (4, 4));
    }
    assert_eq!(stage.ctx.provider().counters().cq_overruns, 0);
}

#[test]
fn r17_unread_arrivals_of_one_that_left_do_not_count_against_those_that_stay() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let mut stage = stage::<Kind>(config(Profile::UNSOLICITED).strict_overruns(), 16);
    let from = stage.group.endpoint(Depth::new(4, 1)).unwrap();
    let exposed = page::<_, RemoteWrite>(&stage.ctx, &stage.pd);
    for round in 0..5 {
        let to = stage.group.endpoint(Depth::new(4, 1).unsolicited(4)).unwrap();
        let peer = stage.peer(from, to);
        let window =
            peer.window::<RemoteWrite>(exposed.grant(stage.group.queue_pair(to).unwrap()).unwrap().as_bytes()).unwrap();
        for imm in 0..4 {
            let source = zeros(&stage.pd, 8);
            stage.group.member(from).unwrap().post(peer.write(source, window).imm(imm), Token(0)).unwrap();
        }
        stage.turns();
        stage.group.close(to).unwrap();
        for _ in 0..4 {
            assert!(matches!(stage.wait(), (whose, Event::Written(_)) if whose == from));
        }
        stage.idle();
        assert_eq!((stage.group.stale(), stage.ctx.provider().counters().cq_overruns), (4 * (round + 1), 0));
    }
}

#[test]
fn r17_a_full_group_whose_completions_are_all_unread_loses_none() {
    let mut stage = stage::<Srd>(quiet().strict_overruns(), 32);
    let members: Vec<MemberId> = (0..N).map(|_| stage.endpoint()).collect();
    assert_eq!((stage.group.entries(), stage.group.room()), (32, 0));
    for round in 0..3 {
        for nth in 0..N {
            for token in 0..4 {
                stage.recv(members[nth], 4 + token);
                stage.send(members[nth], members[(nth + 1) % N], token);
            }
        }
        stage.turns();
        let mut seen = HashMap::new();
        while let Some((whose, event)) = stage.group.poll() {
            *seen.entry((whose, event.token().unwrap().0)).or_insert(0) += 1;
        }
        assert_eq!((seen.len(), seen.values().all(|&times| times == 1)), (32, true), "round {round}");
    }
    assert_eq!((stage.group.stale(), stage.ctx.provider().counters().cq_overruns), (0, 0));
}

#[test]
fn r20_r21_no_queue_pair_is_made_until_what_another_left_was_read() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let (gone, other) = (stage.endpoint(), stage.endpoint());
    let qpn = stage.group.queue_pair(gone).unwrap().qpn();
    stage.recv(other, 1);
    stage.send(gone, other, 2);
    stage.turns();
    stage.group.close(gone).unwrap();
    let refused = stage.group.endpoint(Depth::new(4, 4)).unwrap_err();
    assert_eq!(refused, Error::UnreadCompletions { at_most: 32 });
    assert!(refused.to_string().contains("R21"), "{refused}");
    // What is the other's is told; what is nobody's is counted.
    assert_eq!(stage.wait().0, other);
    stage.idle();
    assert_eq!(stage.group.stale(), 1);
    let new = stage.endpoint();
    assert_eq!(stage.group.queue_pair(new).unwrap().qpn(), qpn, "the device gives the number again");
    stage.send(new, other, 3);
    stage.recv(other, 4);
    assert_eq!([stage.wait().0, stage.wait().0].map(|whose| whose == new).iter().filter(|is| **is).count(), 1);
}

#[test]
fn r21_a_queue_that_is_never_empty_takes_a_new_queue_pair_once_so_many_as_it_has_room_for_were_read() {
    let mut stage = stage::<Srd>(quiet(), 16);
    let busy = stage.group.endpoint(Depth::new(4, 4)).unwrap();
    let gone = stage.group.endpoint(Depth::new(1, 1)).unwrap();
    stage.group.close(gone).unwrap();
    for read in 0..=16 {
        // One more than is read each time.
        stage.recv(busy, 1);
        stage.send(busy, busy, 2);
        if read == 0 {
            stage.recv(busy, 1);
            stage.send(busy, busy, 2);
        }
        stage.turns();
        let made = stage.group.endpoint(Depth::new(1, 1));
        match read.cmp(&8) {
            std::cmp::Ordering::Less => {
                assert_eq!(made.unwrap_err(), Error::UnreadCompletions { at_most: 16 - 2 * read });
            }
            _ => return assert!(made.is_ok(), "{made:?}"),
        }
        for _ in 0..2 {
            assert_eq!(stage.wait().0, busy);
        }
    }
    panic!("it was never made");
}

#[test]
fn r34_shutting_down_tells_what_is_polled_meanwhile_with_whose_it_is_and_reclaims_the_rest() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let (gone, other) = (stage.endpoint(), stage.endpoint());
    for token in 0..3 {
        stage.recv(gone, token);
    }
    stage.recv(other, 10);
    stage.send(other, other, 11);
    let mut events = Vec::new();
    let report = stage.group.shut_down(gone, || false, |whose, event| events.push((whose, event))).unwrap();
    assert_eq!(report, Shutdown { completed: 3, reclaimed: 0 });
    let mut told: Vec<_> = events.iter().map(|(whose, event)| (*whose == other, event.token().unwrap().0)).collect();
    told.sort_unstable();
    assert_eq!(told, [(false, 0), (false, 1), (false, 2), (true, 10), (true, 11)]);

    // A deadline that is over at once, and a device whose programs die without a flush.
    let mut stage = self::stage::<Srd>(quiet().silent_death(true), 32);
    let gone = stage.endpoint();
    for token in 0..3 {
        stage.recv(gone, token);
    }
    stage.ctx.provider().die();
    let mut reclaimed = Vec::new();
    let report = stage.group.shut_down(
        gone,
        || true,
        |whose, event| {
            assert!(whose == gone && matches!(event, Event::Reclaimed { .. }), "{event:?}");
            reclaimed.push(event.token().unwrap().0);
        },
    );
    assert_eq!((report, reclaimed), (Ok(Shutdown { completed: 0, reclaimed: 3 }), vec![0, 1, 2]));
}

#[test]
fn r34_one_that_cannot_be_destroyed_stays_in_err_and_keeps_its_room_until_it_can() {
    let mut stage = stage::<Srd>(quiet().fail_destroy(1), 32);
    let (stuck, other) = (stage.endpoint(), stage.endpoint());
    stage.recv(stuck, 1);
    let mut flushed = 0;
    let failed = stage.group.shut_down(stuck, || false, |_, _| flushed += 1);
    assert_eq!((failed, flushed), (Err(Error::Device { verb: Verb::DestroyQp, errno: 5 }), 1));
    assert_eq!((stage.group.entries(), stage.group.room(), stage.group.members().count()), (32, 16, 2));
    let wrong = Error::WrongState { state: QpState::Err };
    assert_eq!(stage.group.member(stuck).map(drop).unwrap_err(), wrong);
    assert_eq!(stage.group.queue_pair(stuck).map(drop).unwrap_err(), wrong);
    assert_eq!((stage.group.query(stuck), stage.group.resume(stuck)), (Ok(QpState::Err), Err(wrong)));
    stage.recv(other, 2);
    assert_eq!(stage.group.shut_down(stuck, || false, |_, _| {}), Ok(Shutdown { completed: 0, reclaimed: 0 }));
    assert_eq!((stage.group.entries(), stage.group.room(), stage.group.members().collect()), (32, 24, vec![other]));
}

#[test]
fn a_name_of_one_that_left_or_of_another_group_names_nobody() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let mut foreign = self::stage::<Srd>(quiet(), 32);
    let (gone, theirs) = (stage.endpoint(), foreign.endpoint());
    stage.group.close(gone).unwrap();
    let new = stage.endpoint();
    assert_ne!(gone, new);
    for name in [gone, theirs] {
        assert_eq!(stage.group.member(name).map(drop), Err(Error::NotAMember));
        assert_eq!(stage.group.queue_pair(name).map(drop), Err(Error::NotAMember));
        assert_eq!(stage.group.shut_down(name, || true, |_, _| {}), Err(Error::NotAMember));
        assert_eq!(stage.group.close(name), Err(Error::NotAMember));
        assert_eq!(stage.group.query(name), Err(Error::NotAMember));
        assert_eq!(stage.group.resume(name), Err(Error::NotAMember));
    }
    assert!(stage.group.member(new).is_ok() && foreign.group.member(theirs).is_ok());
}

#[test]
fn a_group_takes_as_many_as_its_type_says_and_more_than_the_device_has_are_refused() {
    let mut stage = stage::<Srd>(quiet(), 64);
    for _ in 0..N {
        stage.group.endpoint(Depth::new(1, 1)).unwrap();
    }
    let error = stage.group.endpoint(Depth::new(1, 1)).unwrap_err();
    assert_eq!(error, Error::Exhausted { what: Limit::Members, limit: N as u64 });
    let error = stage.pd.group::<Srd, 1>(required(&stage.ctx), 1 << 20).map(drop).unwrap_err();
    let limit = Config::LIMITS.max_cqe.into();
    assert_eq!(error, Error::AboveLimit { what: Limit::CompletionEntries, asked: 1 << 20, limit });
    let stranger = common::context(Profile::RDMA);
    assert!(matches!(stage.pd.group::<Srd, 1>(required(&stranger), 8), Err(Error::ForeignToken { .. })));
}

#[test]
fn a_bring_up_that_the_device_refuses_leaves_the_group_as_it_was() {
    let mut stage = stage::<Srd>(quiet().fail_verb(Verb::ModifyQp, 2, 5).fail_verb(Verb::CreateQp, 2, 12), 32);
    let error = |verb, errno| Err(Error::Device { verb, errno });
    assert_eq!(stage.group.endpoint(Depth::new(4, 4)), error(Verb::ModifyQp, 5));
    assert_eq!(stage.group.endpoint(Depth::new(4, 4)), error(Verb::CreateQp, 12));
    assert_eq!((stage.group.entries(), stage.group.room(), stage.group.members().count()), (32, 32, 0));
    let init = InitAttr::new(Qkey(7));
    let member = stage.group.endpoint_with(Depth::new(4, 4), init, RtsAttr::new().psn(5)).unwrap();
    assert_eq!(stage.group.queue_pair(member).unwrap().address().qkey, Qkey(7));
    assert_eq!(stage.ctx.leaks().queue_pairs(), 0);
}

#[test]
fn r21_a_queue_pair_that_never_was_leaves_nothing_in_the_queue() {
    let mut stage = stage::<Srd>(quiet().fail_verb(Verb::CreateQp, 3, 12), 32);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    stage.recv(b, 1);
    stage.send(a, b, 2);
    stage.turns();
    let refused = stage.group.endpoint(Depth::new(4, 4));
    assert_eq!(refused, Err(Error::Device { verb: Verb::CreateQp, errno: 12 }));
    // The others' completions are unread, and nobody left.
    assert!(stage.group.endpoint(Depth::new(4, 4)).is_ok());
}

#[test]
fn a_batch_that_was_forgotten_on_a_member_never_goes_out_and_the_members_go_on() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    let to_b = stage.peer(a, b);
    let mut member = stage.group.member(a).unwrap();
    let mut batch = member.batch();
    batch.push(to_b.send_empty(), Token(2)).unwrap();
    std::mem::forget(batch);
    stage.recv(b, 1);
    stage.send(a, b, 3);
    let _ = (stage.wait(), stage.wait());
    stage.idle();
    let mut back = Vec::new();
    let ended = stage.group.shut_down(a, || true, |whose, event| back.push((whose, event.token()))).unwrap();
    assert_eq!((back, ended.reclaimed), (vec![(a, Some(Token(2)))], 1));
}

#[test]
fn memory_in_flight_on_a_group_is_freed_with_it_and_not_before() {
    let limits = Limits { max_mr: 1, ..LIMITS };
    let mut stage = stage::<Srd>(quiet().limits(limits), 32);
    let member = stage.endpoint();
    stage.recv(member, 1);
    let Stage { group, pd, ctx, .. } = stage;
    let full = Error::Exhausted { what: Limit::MemoryRegions, limit: 1 };
    assert_eq!(pd.register(vec![0; 8]).map(drop).unwrap_err().error(), full);
    drop(group);
    assert!(pd.register(vec![0; 8]).is_ok());
    assert_eq!(ctx.leaks().queue_pairs(), 0);
}

#[test]
fn r01_a_member_whose_send_queue_failed_is_found_in_sqe_and_resumed() {
    let mut stage = stage::<Srd>(quiet().stop_sends(true).fail_nth(1, CompletionStatus::RemoteAbort), 32);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    stage.send(a, b, 1);
    assert!(matches!(stage.wait(), (whose, Event::Failed { .. }) if whose == a));
    assert_eq!((stage.group.query(b), stage.group.query(a)), (Ok(QpState::Rts), Ok(QpState::Sqe)));
    assert_eq!(stage.group.member(a).map(drop), Err(Error::WrongState { state: QpState::Sqe }));
    assert_eq!(stage.group.resume(b), Err(Error::WrongState { state: QpState::Rts }));
    stage.group.resume(a).unwrap();
    stage.recv(b, 2);
    stage.send(a, b, 3);
    let _ = (stage.wait(), stage.wait());
    stage.idle();
}

#[test]
fn each_kind_of_operation_comes_back_as_what_it_was_from_a_queue_for_all() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    let exposed = page::<_, RemoteReadWrite>(&stage.ctx, &stage.pd);
    let peer = stage.peer(a, b);
    let grant = exposed.grant(stage.group.queue_pair(b).unwrap()).unwrap();
    let window = peer.window::<RemoteReadWrite>(grant.as_bytes()).unwrap().range(0..8).unwrap();
    for _ in 0..3 {
        stage.recv(b, 1);
        let [sent, written, read] = [(); 3].map(|()| zeros(&stage.pd, 8));
        stage.group.member(a).unwrap().post(peer.send(sent), Token(2)).unwrap();
        let events = [stage.wait(), stage.wait()];
        assert!(events.iter().any(|(whose, event)| *whose == a && matches!(event, Event::Sent(_))), "{events:?}");
        assert!(events.iter().any(|(whose, event)| *whose == b && matches!(event, Event::Received(_))), "{events:?}");
        stage.group.member(a).unwrap().post(peer.write(written, window), Token(3)).unwrap();
        let event = stage.wait();
        assert!(matches!(&event, (whose, Event::Written(_)) if *whose == a), "{event:?}");
        stage.group.member(a).unwrap().post(peer.read(read, window), Token(4)).unwrap();
        let event = stage.wait();
        assert!(matches!(&event, (whose, Event::Read(_)) if *whose == a), "{event:?}");
    }
}

#[test]
fn r20_members_whose_numbers_differ_by_the_groups_size_are_not_taken_for_one_another() {
    let ctx = Context::open(SoftDevice::new(quiet()));
    let pd = ctx.alloc_pd().unwrap();
    let mut group: Group<_, Srd, 2> = pd.group(required::<_, Srd>(&ctx), 32).unwrap();
    let first = group.endpoint(Depth::new(4, 4)).unwrap();
    let _between = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let second = group.endpoint(Depth::new(4, 4)).unwrap();
    let [one, other] = [first, second].map(|member| group.queue_pair(member).unwrap());
    assert_eq!((one.qpn().0 % 2, one.qpn() == other.qpn()), (other.qpn().0 % 2, false));
    let (to_second, to_first) = introduce(one, other).unwrap();
    for (from, to) in [(&to_second, first), (&to_first, second)].map(|(peer, from)| (from, peer)) {
        // Both have a send and a receive in the same slot; one of them completes.
        for member in [first, second] {
            let mut member = group.member(member).unwrap();
            if member.in_flight() == 0 {
                member.post_recv(zeros(&pd, 8), Token(1)).unwrap();
            }
        }
        group.member(from).unwrap().post(to.send_empty(), Token(2)).unwrap();
        let mut told: Vec<_> = (0..if cfg!(miri) { 50 } else { 10_000 })
            .filter_map(|_| group.poll())
            .map(|(whose, event)| (whose == from, event))
            .collect();
        told.sort_by_key(|(sender, _)| *sender);
        assert!(matches!(&told[..], [(false, Event::Received(_)), (true, Event::Sent(_))]), "{told:?}");
    }
}

#[test]
fn rdma_in_parts_is_posted_on_a_member_as_on_a_queue_pair_of_its_own() {
    let mut stage = stage::<Srd>(quiet(), 32);
    let (a, b) = (stage.endpoint(), stage.endpoint());
    let exposed = page::<_, RemoteWrite>(&stage.ctx, &stage.pd);
    let peer = stage.peer(a, b);
    let window =
        peer.window::<RemoteWrite>(exposed.grant(stage.group.queue_pair(b).unwrap()).unwrap().as_bytes()).unwrap();
    let (_, source) = common::slice(&stage.pd, &[7; 100]);
    let mut split = Split::<_, 4>::new(source, window, 16, Token(1)).unwrap();
    let done = loop {
        split.post(&mut stage.group.member(a).unwrap(), |part, window| peer.write(part, window)).unwrap();
        if let Step::Done { slice, failed: None } = split.step(stage.wait().1) {
            break slice;
        }
    };
    let mut there = [0; 101];
    exposed.copy_out(0, &mut there).unwrap();
    assert_eq!((done.len(), &there[..100], there[100]), (100, &[7; 100][..], 0));
}

/// A random program on a group over a hostile device.
fn random_program(seed: u64) {
    let config = quiet()
        .seed(seed)
        .shuffle(true)
        .lose(100, 20)
        .delay(3)
        .unknown_senders(2)
        .stale_completions(2)
        .req_id_64(seed % 2 == 1);
    let mut stage = stage::<Srd>(config, 64);
    let mut random = {
        let mut state = seed;
        move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        }
    };
    let (mut members, mut open) = (Vec::new(), HashMap::<u64, MemberId>::new());
    let resolve = |open: &mut HashMap<u64, MemberId>, whose: MemberId, event: Event| {
        let token = event.token().expect("none is unsolicited").0;
        assert_eq!(open.remove(&token), Some(whose), "{event:?}");
    };
    for token in 0..if cfg!(miri) { 60 } else { 2000 } {
        match random(12) {
            0 => match stage.group.endpoint(Depth::new(4, 4)) {
                Ok(member) => members.push(member),
                Err(Error::UnreadCompletions { .. } | Error::Exhausted { .. }) => {}
                Err(error) => panic!("{error}"),
            },
            1 if members.len() > 2 => {
                let gone = members.swap_remove(random(members.len() as u64) as usize);
                let patience = random(20);
                let mut turns = 0;
                let expired = || {
                    turns += 1;
                    turns > patience
                };
                stage.group.shut_down(gone, expired, |whose, event| resolve(&mut open, whose, event)).unwrap();
                assert!(open.values().all(|&whose| whose != gone), "all that it had is resolved");
            }
            2..6 if !members.is_empty() => {
                let at = members[random(members.len() as u64) as usize];
                let target = zeros(&stage.pd, 8);
                if stage.group.member(at).unwrap().post_recv(target, Token(token)).is_ok() {
                    open.insert(token, at);
                }
            }
            6..9 if !members.is_empty() => {
                let pick = |random: u64| members[random as usize % members.len()];
                let (from, to) = (pick(random(64)), pick(random(64)));
                let peer = stage.peer(from, to);
                if stage.group.member(from).unwrap().post(peer.send_empty(), Token(token)).is_ok() {
                    open.insert(token, from);
                }
            }
            _ => {
                if let Some((whose, event)) = stage.group.poll() {
                    resolve(&mut open, whose, event);
                }
            }
        }
    }
    for member in members {
        stage.group.shut_down(member, || false, |whose, event| resolve(&mut open, whose, event)).unwrap();
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn each_operation_of_a_random_program_on_a_group_is_resolved_once_and_with_whose_it_is() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        random_program(seed);
    }
}
