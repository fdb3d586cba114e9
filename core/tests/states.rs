//! Queue pairs: states and transitions, depths, what a new life does to the old one's peers.

mod common;

use common::{
    LIMITS, assert_idle, config, connect, context, page, required, slice, slice_of, wait, wait_failed, zeros,
};
use efa_core::flags::SendOps;
use efa_core::memory::RemoteWrite;
use efa_core::qp::{
    AnyQueuePair, Depth, Endpoint, Init, InitAttr, QpKind, QpState, QpType, QueuePair, Reset, RnrRetry, RtsAttr,
    SendOnly, Srd, Unsolicited, ops, transition,
};
use efa_core::soft::{Profile, SoftDevice, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Limit, Limits, ProtectionDomain, Qkey, SetRnrRetry, Token, Verb};

const DEPTH: Depth = Depth::new(4, 4);

type Pd = ProtectionDomain<SoftDevice>;

fn reset(ctx: &Context<SoftDevice>, pd: &Pd) -> QueuePair<SoftDevice, Reset> {
    pd.create_qp(required::<_, Srd>(ctx), DEPTH).unwrap()
}

fn open() -> (Context<SoftDevice>, Pd) {
    let ctx = context(Profile::RDMA);
    let pd = ctx.alloc_pd().unwrap();
    (ctx, pd)
}

/// An endpoint whose SEND shows whether the other can be reached by what it published.
fn reaches(from: &mut Endpoint<SoftDevice>, to: &mut Endpoint<SoftDevice>, pd: &Pd) {
    to.post_recv(zeros(pd, 8), Token(1)).unwrap();
    let (peer, _) = from.resolve(to.hello().as_bytes()).unwrap();
    from.post(peer.one_way().send_inline(b"hello"), Token(2)).unwrap();
    let event = wait(from);
    assert!(matches!(event, Event::Sent(_)), "{event:?}");
    assert!(matches!(wait(to), Event::Received(message) if message.len == 5));
}

#[test]
fn r01_r02_the_way_up_in_steps_permits_what_each_state_permits() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let mut init = reset(&ctx, &pd).init(InitAttr::new(Qkey(7))).unwrap();
    init.post_recv(zeros(&pd, 8), Token(1)).unwrap();
    assert!(init.can_post_recv());

    let mut rtr = init.rtr().unwrap();
    assert_eq!(rtr.address().qkey, Qkey(7));
    let (peer, _) = other.resolve(rtr.hello().as_bytes()).unwrap();
    other.post(peer.one_way().send_inline(b"early"), Token(2)).unwrap();
    assert!(matches!(wait(&mut rtr), Event::Received(message) if message.token == Token(1)));
    assert!(matches!(wait(&mut other), Event::Sent(_)));

    let mut rts = rtr.rts(RtsAttr::new().psn(5)).unwrap();
    reaches(&mut rts, &mut other, &pd);
    reaches(&mut other, &mut rts, &pd);
}

#[test]
fn r01_a_transition_that_the_device_refuses_gives_the_queue_pair_back() {
    let (ctx, pd) = open();
    let mut qp = reset(&ctx, &pd);
    let qpn = qp.qpn();
    for attr in [InitAttr::new(Qkey(1)).port(2), InitAttr::new(Qkey(1)).pkey_index(1)] {
        let refused = qp.init(attr).unwrap_err();
        assert_eq!(refused.error(), Error::Device { verb: Verb::ModifyQp, errno: 95 });
        let text = refused.to_string();
        assert!(text.contains("port 1") && text.contains("index 0"), "{text}");
        qp = refused.into_inner();
    }
    assert_eq!(qp.qpn(), qpn);
    let mut up = qp.prepare().unwrap();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    reaches(&mut other, &mut up, &pd);
}

#[test]
fn r01_init_again_puts_the_new_key_in_force_and_a_refused_one_keeps_the_old() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let init = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap();
    let init = init.init(InitAttr::new(Qkey(2))).unwrap();
    let init = init.init(InitAttr::new(Qkey(3)).port(2)).unwrap_err().into_inner();
    let rtr = init.rtr().unwrap();
    assert_eq!(rtr.address().qkey, Qkey(2));
    reaches(&mut other, &mut rtr.rts(RtsAttr::new()).unwrap(), &pd);
}

#[test]
fn prepare_goes_all_the_way_up_from_reset_and_from_init() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let mut from_reset = reset(&ctx, &pd).prepare().unwrap();
    assert_eq!(from_reset.address().qkey.0 >> 31, 0, "R26: not privileged");
    reaches(&mut other, &mut from_reset, &pd);
    let mut from_init = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap().prepare().unwrap();
    assert_ne!(from_init.address().qkey, Qkey(1));
    reaches(&mut other, &mut from_init, &pd);
}

#[test]
fn any_queue_pair_is_a_field_that_lives_through_bring_up() {
    struct Service {
        qp: Option<AnyQueuePair<SoftDevice, Srd>>,
    }
    impl Service {
        fn step(&mut self) -> QpState {
            let next = match self.qp.take().unwrap() {
                AnyQueuePair::Reset(qp) => qp.init(InitAttr::new(Qkey(1))).unwrap().into(),
                AnyQueuePair::Init(qp) => qp.rtr().unwrap().into(),
                AnyQueuePair::Rtr(qp) => qp.rts(RtsAttr::new()).unwrap().into(),
                AnyQueuePair::Rts(qp) => qp.drain().unwrap().into(),
                AnyQueuePair::Sqd(qp) => qp.error().unwrap().into(),
                AnyQueuePair::Err(qp) => qp.reset().unwrap().into(),
                AnyQueuePair::Sqe(qp) => qp.into(),
            };
            self.qp.insert(next).state()
        }
    }
    let (ctx, pd) = open();
    let mut service = Service { qp: Some(reset(&ctx, &pd).into()) };
    let states: Vec<QpState> = (0..6).map(|_| service.step()).collect();
    assert_eq!(states, [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Err, QpState::Reset]);
    let qp = service.qp.take().unwrap().into_init().unwrap_err();
    assert_eq!(qp.state(), QpState::Reset);
    assert!(qp.into_reset().unwrap().prepare().is_ok());
}

#[test]
fn r01_reset_is_refused_with_work_in_flight_and_allowed_after_err_and_the_flushes() {
    let (ctx, pd) = open();
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let (region, whole) = slice(&pd, &[0; 16]);
    let (first, second) = whole.split_at(8).unwrap();
    qp.post_recv(first, Token(1)).unwrap();
    qp.post_recv(second, Token(2)).unwrap();
    let refused = qp.reset().unwrap_err();
    assert_eq!(refused.error(), Error::InFlight { operations: 2 });
    assert!(refused.to_string().contains("ERR"), "{refused}");
    let mut err = refused.into_inner().error().unwrap();
    let mut slices = Vec::new();
    while err.in_flight() > 0 {
        let event = wait(&mut err);
        assert!(matches!(&event, Event::Failed { failure, .. } if failure.is_flush()), "{event:?}");
        slices.push(slice_of(event));
    }
    assert_eq!(err.cause(), None, "a flush is no cause (R40)");
    let mut again = err.reset().unwrap().prepare().unwrap();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    reaches(&mut other, &mut again, &pd);
    let [second, first] = [slices.pop().unwrap(), slices.pop().unwrap()];
    let whole = first.unsplit(second).unwrap();
    assert_eq!(region.close(whole).unwrap(), [0; 16]);
}

#[test]
fn r25_a_new_life_after_reset_makes_the_old_ones_peers_readies_and_grants_stale() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let qp = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let (to_other, to_qp) = connect(&qp, &other);
    let memory = page::<_, RemoteWrite>(&ctx, &pd);
    let old_grant = memory.grant(&qp).unwrap();
    let old_hello = qp.hello();
    let (old_qpn, old_life) = (qp.qpn(), to_qp.incarnation());

    let mut qp = qp.reset().unwrap().prepare().unwrap();
    assert_eq!(qp.qpn(), old_qpn);
    let refused = qp.post(to_other.send_empty(), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::ForeignPeer);
    let mut batch = qp.batch();
    assert_eq!(batch.push(to_other.send_empty(), Token(1)).unwrap_err().error(), Error::ForeignPeer);
    assert_eq!(batch.submit(), 0);

    // The other side: a ready that answers the old hello does not confirm the new life's peer, nor does a
    // grant of the old life open anything for it.
    let (_, ready_to_the_old) = other.resolve(old_hello.as_bytes()).unwrap();
    let (peer, _) = qp.resolve(other.hello().as_bytes()).unwrap();
    let refused = peer.confirm(ready_to_the_old.as_bytes()).unwrap_err();
    assert!(matches!(refused.error(), Error::StaleReady { .. }), "{refused}");
    let (to_new, ready_to_the_new) = other.resolve(qp.hello().as_bytes()).unwrap();
    assert_ne!(to_new.incarnation(), old_life);
    let stale = to_new.window::<RemoteWrite>(old_grant.as_bytes()).unwrap_err();
    assert!(matches!(stale, Error::StaleGrant { .. }), "{stale}");
    let peer = refused.into_inner().confirm(ready_to_the_new.as_bytes()).unwrap();
    other.post_recv(zeros(&pd, 8), Token(2)).unwrap();
    qp.post(peer.send_empty(), Token(3)).unwrap();
    assert!(matches!(wait(&mut qp), Event::Sent(_)));
}

#[test]
fn r22_r25_an_unsolicited_arrival_of_one_life_is_not_told_in_the_next() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let depth = Depth::new(4, 4).unsolicited(4);
    let (mut a, b) = pair_of::<Kind>(config(Profile::UNSOLICITED), depth).unwrap();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window).imm(7), Token(1)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
    let mut again = b.endpoint.error().unwrap().reset().unwrap().prepare().unwrap();
    assert_idle(&mut again);
    assert_eq!(again.stats().stale, 1);
    let (to_again, to_a) = connect(&a.endpoint, &again);
    again.post(to_a.send_empty(), Token(2)).unwrap();
    a.endpoint.post_recv(zeros(&a.pd, 8), Token(3)).unwrap();
    assert!(matches!(wait(&mut again), Event::Sent(_)));
    let window = to_again.window::<RemoteWrite>(memory.grant(&again).unwrap().as_bytes()).unwrap();
    a.endpoint.post(to_again.write(zeros(&a.pd, 8), window).imm(8), Token(4)).unwrap();
    assert!(matches!(wait(&mut again), Event::UnsolicitedWrite(arrived) if arrived.imm == 8));
}

#[test]
fn r01_r02_a_drained_send_queue_receives_and_sends_again_after_rts() {
    let (ctx, pd) = open();
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let (to_other, to_qp) = connect(&qp, &other);
    for token in 0..4 {
        other.post_recv(zeros(&pd, 8), Token(token)).unwrap();
    }
    qp.post(to_other.send_empty(), Token(1)).unwrap();
    let mut sqd = qp.drain().unwrap();
    assert_idle(&mut sqd);
    assert_eq!(sqd.in_flight(), 1, "the device had not begun it");
    sqd.post_recv(zeros(&pd, 8), Token(2)).unwrap();
    other.post(to_qp.send_empty(), Token(3)).unwrap();
    while !matches!(wait(&mut sqd), Event::Received(message) if message.token == Token(2)) {}
    let mut qp = sqd.resume().unwrap();
    qp.post(to_other.send_empty(), Token(4)).unwrap();
    while qp.in_flight() > 0 {
        assert!(matches!(wait(&mut qp), Event::Sent(_)));
    }
    let arrived = (0..100).filter_map(|_| other.poll()).filter(|event| matches!(event, Event::Received(_))).count();
    assert_eq!(arrived, 2);
}

#[test]
fn what_is_granted_can_be_asked_and_is_at_least_what_was_asked_for() {
    let (ctx, pd) = open();
    let qp = pd.create_qp(required::<_, Srd>(&ctx), Depth::new(5, 3).recv_buffers(2).inline(16)).unwrap();
    let granted = qp.granted();
    assert_eq!((granted.send, granted.recv, granted.recv_buffers, granted.inline), (8, 4, 2, 16));
    assert_eq!((granted.batch, qp.max_rdma_size()), (8, LIMITS.max_rdma_size));
    let qp = pd.create_qp(required::<_, Srd>(&ctx), Depth::new(0, 0).inline(0)).unwrap();
    assert_eq!((qp.granted().send, qp.granted().recv, qp.granted().inline), (1, 1, 0));
}

#[test]
fn a_depth_above_the_limit_is_refused_with_both_numbers() {
    let limits = Limits { max_send_depth: 64, max_recv_depth: 32, max_cqe: 64, max_inline: 16, ..LIMITS };
    let ctx = Context::open(SoftDevice::new(config(Profile::UNSOLICITED).limits(limits)));
    let pd = ctx.alloc_pd().unwrap();
    let cases = [
        (Depth::new(65, 1), Limit::SendDepth, 65, 64),
        (Depth::new(1, 33), Limit::RecvDepth, 33, 32),
        (Depth::new(1, 17).recv_buffers(2), Limit::RecvDepth, 34, 32),
        (Depth::new(1, 1).recv_buffers(3), Limit::RecvBuffers, 3, 2),
        (Depth::new(1, 1).inline(17), Limit::InlineBytes, 17, 16),
        (Depth::new(1, 32).unsolicited(33), Limit::CompletionEntries, 65, 64),
    ];
    for (depth, what, asked, limit) in cases {
        let error = pd.create_qp(required::<_, Srd>(&ctx), depth).unwrap_err();
        assert_eq!(error, Error::AboveLimit { what, asked, limit }, "{depth:?}");
        let text = error.to_string();
        assert!(text.contains(&asked.to_string()) && text.contains(&limit.to_string()), "{text}");
    }
    let none = pd.create_qp(required::<_, Srd>(&ctx), Depth::new(1, 1).recv_buffers(0)).unwrap_err();
    assert_eq!(none, Error::BelowLimit { what: Limit::RecvBuffers, asked: 0, limit: 1 });
    // R10: who asks for no number of inline bytes gets what there is.
    assert_eq!(pd.create_qp(required::<_, Srd>(&ctx), Depth::new(64, 32)).unwrap().granted().inline, 16);
    // R17: the budget of unsolicited arrivals has its room in the completion queue.
    let _ =
        pd.create_qp(required::<_, Srd<{ ops::ALL }, Unsolicited>>(&ctx), Depth::new(1, 32).unsolicited(32)).unwrap();
}

#[test]
fn h15_queue_pairs_run_out_with_a_number_and_come_back_when_dropped() {
    let (ctx, pd) = open();
    let all: Vec<_> = (0..LIMITS.max_qp).map(|_| reset(&ctx, &pd)).collect();
    let error = pd.create_qp(required::<_, Srd>(&ctx), DEPTH).unwrap_err();
    assert!(matches!(error, Error::Exhausted { limit: 8 | 16, .. }), "{error:?}");
    drop(all);
    let _ = reset(&ctx, &pd).prepare().unwrap();
}

#[test]
fn r07_the_rnr_retry_takes_a_token_and_0_to_6_or_forever() {
    for times in 0..=6 {
        assert_eq!(RnrRetry::times(times).unwrap().number(), times);
    }
    assert_eq!(RnrRetry::FOREVER.number(), 7);
    let error = RnrRetry::times(7).unwrap_err();
    assert_eq!(error, Error::AboveLimit { what: Limit::RnrRetries, asked: 7, limit: 6 });
    assert!(error.to_string().contains("FOREVER"), "{error}");

    let without = Context::open(SoftDevice::new(config(Profile::with_caps(Caps::RDMA_READ))));
    let error = without.require::<SetRnrRetry>().unwrap_err();
    assert_eq!(error, Error::Unsupported { needs: Caps::RNR_RETRY, has: Caps::RDMA_READ });

    let (ctx, pd) = open();
    let rtr = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
    let refused = rtr.rts(RtsAttr::new().psn(1 << 24)).unwrap_err();
    let (asked, limit) = (1 << 24, (1 << 24) - 1);
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::SequenceNumber, asked, limit });
    let rtr = refused.into_inner();
    let last = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
    let _started = last.rts(RtsAttr::new().psn((1 << 24) - 1)).unwrap();
    let (elsewhere, _) = open();
    let foreign = required::<_, SetRnrRetry>(&elsewhere);
    let refused = rtr.rts(RtsAttr::new().rnr_retry(foreign, RnrRetry::FOREVER)).unwrap_err();
    assert!(matches!(refused.error(), Error::ForeignToken { .. }), "{refused}");
    let own = required::<_, SetRnrRetry>(&ctx);
    let _ = refused.into_inner().rts(RtsAttr::new().rnr_retry(own, RnrRetry::times(0).unwrap())).unwrap();
}

#[test]
fn h21_a_finite_retry_ends_with_status_10_and_the_queue_pair_stays_usable() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    for times in [0, 3] {
        let retry = RtsAttr::new().rnr_retry(required(&ctx), RnrRetry::times(times).unwrap());
        let rtr = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
        let mut qp = rtr.rts(retry).unwrap();
        let (to_other, _) = connect(&qp, &other);
        qp.post(to_other.send_empty(), Token(1)).unwrap();
        let failure = wait_failed(&mut qp);
        assert_eq!(failure.status(), Some(CompletionStatus::RemoteRnr));
        assert_eq!(failure.token, Some(Token(1)));
        assert!(failure.to_string().contains("no receive posted"), "{failure}");
        other.post_recv(zeros(&pd, 8), Token(2)).unwrap();
        qp.post(to_other.send_empty(), Token(3)).unwrap();
        assert!(matches!(wait(&mut qp), Event::Sent(done) if done.token == Token(3)));
        assert!(matches!(wait(&mut other), Event::Received(_)));
    }
}

#[test]
fn h21_the_default_waits_for_ever_and_delivers_once_a_receive_is_posted() {
    let (ctx, pd) = open();
    let mut other = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), DEPTH).unwrap();
    let (to_other, _) = connect(&qp, &other);
    qp.post(to_other.send_inline(b"patient"), Token(1)).unwrap();
    for _ in 0..20 {
        assert_idle(&mut qp);
    }
    other.post_recv(zeros(&pd, 8), Token(2)).unwrap();
    assert!(matches!(wait(&mut qp), Event::Sent(done) if done.token == Token(1)));
    assert_eq!(&slice_of(wait(&mut other))[..7], b"patient");
}

#[test]
fn h07_a_profile_without_a_capability_is_a_typed_error_that_lists_what_the_device_has() {
    let common = Caps::RNR_RETRY | Caps::CQ_WITH_SGID;
    let ctx = |profile| context(profile);
    let none = ctx(Profile::NONE);
    assert_eq!(
        none.require::<Srd>().unwrap_err(),
        Error::Unsupported { needs: Caps::RDMA_READ | Caps::RDMA_WRITE, has: common }
    );
    let text = none.require::<Srd>().unwrap_err().to_string();
    assert!(text.contains("no RDMA_READ and RDMA_WRITE") && text.contains("RNR_RETRY and CQ_WITH_SGID"), "{text}");
    let send_only = required::<_, SendOnly>(&none);
    let _ = none.alloc_pd().unwrap().endpoint(send_only, DEPTH).unwrap();

    let read = ctx(Profile::READ);
    assert!(read.require::<RemoteWrite>().is_err() && read.require::<Srd<{ ops::RDMA_WRITE }>>().is_err());
    let _ = required::<_, Srd<{ ops::SEND | ops::RDMA_READ }>>(&read);

    let rdma = ctx(Profile::RDMA);
    let error = rdma.require::<Srd<{ ops::ALL }, Unsolicited>>().unwrap_err();
    assert!(matches!(error, Error::Unsupported { needs, .. } if needs.contains(Caps::UNSOLICITED_WRITE_RECV)));
    assert!(error.to_string().contains("no UNSOLICITED_WRITE_RECV"), "{error}");
    let _ = required::<_, Srd<{ ops::ALL }, Unsolicited>>(&ctx(Profile::UNSOLICITED));
}

#[test]
fn r07_a_token_of_another_device_is_refused_and_memory_comes_back() {
    let (ctx, pd) = open();
    let (elsewhere, _) = open();
    let error = pd.endpoint(required::<_, Srd>(&elsewhere), DEPTH).unwrap_err();
    assert!(matches!(error, Error::ForeignToken { .. }), "{error}");
    assert!(error.to_string().contains("require"), "{error}");
    let refused = pd.expose(vec![1; 8], required::<_, RemoteWrite>(&elsewhere)).unwrap_err();
    assert!(matches!(refused.error(), Error::ForeignToken { .. }));
    assert_eq!(refused.into_inner(), [1; 8]);
    drop(ctx);
}

#[test]
fn every_subset_of_the_five_operations_can_be_named_and_made() {
    fn make<const OPS: u8>(ctx: &Context<SoftDevice>, pd: &Pd) {
        let qp = pd.create_qp(required::<_, Srd<OPS>>(ctx), Depth::new(1, 1)).unwrap();
        let init = qp.init(InitAttr::new(Qkey(1))).unwrap();
        assert_eq!(efa_core::wire::Hello::parse(init.rtr().unwrap().hello().as_bytes()).unwrap().ops.bits(), OPS);
    }
    macro_rules! make {
        ($($ops:literal)*) => { |ctx: &Context<SoftDevice>, pd: &Pd| { $(make::<$ops>(ctx, pd);)* } };
    }
    let all = make!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    let (ctx, pd) = open();
    all(&ctx, &pd);
}

#[test]
fn a_queue_pair_in_init_dropped_gives_its_receives_back() {
    let (ctx, pd) = open();
    let (region, whole) = slice(&pd, b"12345678");
    let mut init: QueuePair<_, Init> = reset(&ctx, &pd).init(InitAttr::new(Qkey(1))).unwrap();
    let (posted, kept) = whole.split_at(8).unwrap();
    init.post_recv(posted, Token(1)).unwrap();
    drop(init);
    assert_eq!(ctx.leaks().queue_pairs(), 0);
    // The slice went back to the region as a handle, not to us: only dropping it all frees the memory.
    drop((kept, region));
    assert_eq!(ctx.leaks().regions(), 0);
}

#[test]
fn every_state_has_the_verbs_number_and_one_that_nobody_knows_leads_nowhere() {
    for (number, state) in (0..).zip(QpState::ALL) {
        assert_eq!((state.number(), QpState::from_number(number)), (number, state));
        for unknown in [QpState::Unknown(7), QpState::from_number(u32::MAX)] {
            assert!(
                transition(QpType::Srd, unknown, state).is_none() && transition(QpType::Srd, state, unknown).is_none()
            );
        }
    }
    assert_eq!(QpState::from_number(9).number(), 9);
}

#[test]
fn r06_a_kind_without_rdma_has_both_sends_and_nothing_else() {
    assert_eq!(<SendOnly as QpKind>::OPS, SendOps::SEND | SendOps::SEND_WITH_IMM);
    assert_eq!(<Srd as QpKind>::OPS, SendOps::all());
}
