//! States, ends and regions: what a lying device, or provider, may not bring about.

use super::*;

#[test]
fn status_2_closes_the_send_queue_gives_operations_back_and_leaves_the_rest_to_come_back() {
    for mut stage in stages(CAPS) {
        let (before, first, second, recv) = (stage.send(0), stage.send(1), stage.send(2), stage.recv(3));
        stage.device.send_done(before, 10, control1::OP_SEND);
        let (failure, _) = stage.failed();
        assert_eq!(stage.qp.cause(), Some(&failure), "which left the queue pair usable");
        stage.device.send_done(first, 2, control1::OP_SEND);
        let (failure, _) = stage.failed();
        assert_eq!(failure.status(), Some(CompletionStatus::LocalQpInternalError));
        assert!(!stage.qp.can_post());
        let refused = stage.qp.post(stage.peer.send(slice(&stage.pd, b"kept").1), Token(4)).unwrap_err();
        assert_eq!(refused.error(), Error::QueueFailed);
        assert!(refused.to_string().contains("cause()"), "{refused}");
        assert_eq!(&refused.into_inner()[..], b"kept");
        stage.device.send_done(second, 1, control1::OP_SEND);
        stage.device.recv_done(recv_entry(recv, 0));
        for _ in 0..2 {
            assert!(matches!(stage.qp.poll(), Some(Event::Failed { .. } | Event::Received(_))));
        }
        assert_eq!(stage.qp.in_flight(), 0);
        assert_eq!(stage.qp.cause().unwrap().token, Some(Token(1)), "R40");
        stage.qp.close().unwrap();
    }
}

#[test]
fn a_queue_pair_that_failed_sends_again_in_its_next_life() {
    let mut stage = stage(CAPS);
    let id = stage.send(1);
    stage.device.send_done(id, 2, control1::OP_SEND);
    let _ = stage.failed();
    let mut qp = stage.qp.error().unwrap().reset().unwrap().prepare().unwrap();
    assert!(qp.can_post(), "RESET makes the send queue anew");
    assert_eq!(qp.cause(), None);
    let peer = qp.resolve_address(EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) }).unwrap();
    for token in 0..u64::from(DEPTH) {
        qp.post(peer.one_way().send_empty(), Token(token)).unwrap();
    }
    assert!(!qp.can_post(), "all of its depth, and no more");
}

#[test]
fn r34_what_the_device_never_completed_is_reclaimed_after_the_deadline_and_what_it_did_is_not() {
    let mut stage = stage(CAPS);
    let (done, _) = (stage.send(1), stage.send(2));
    stage.recv(3);
    stage.device.send_done(done, 1, control1::OP_SEND);
    let (mut turns, mut flushed, mut reclaimed) = (0, Vec::new(), Vec::new());
    let expired = || {
        turns += 1;
        turns > 5
    };
    let report = stage.qp.shut_down(expired, |event| match event {
        Event::Reclaimed { token, buffers } => reclaimed.push((token, buffers.bytes())),
        event => flushed.push(event.token().unwrap()),
    });
    assert_eq!(report.unwrap(), Shutdown { completed: 1, reclaimed: 2 });
    assert_eq!((turns, flushed), (6, vec![Token(1)]));
    assert_eq!(reclaimed, [(Token(2), 8), (Token(3), 8)]);
}

#[test]
fn r36_r37_a_region_of_nothing_or_of_too_much_is_refused_before_the_device_is_asked() {
    const REGION: usize = 1 << 16;
    let stage = stage(CAPS);
    stage.device.limit_regions(REGION);
    let refused = stage.pd.register(Vec::new()).unwrap_err();
    assert_eq!(refused.error(), Error::ZeroLength);
    let refused = stage.pd.register(vec![7; REGION + 1]).unwrap_err();
    let (asked, limit) = (REGION as u64 + 1, REGION as u64);
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RegionBytes, asked, limit });
    assert!(refused.to_string().contains("R36"), "{refused}");
    assert_eq!(refused.into_inner().len(), REGION + 1);
    assert_eq!(zeros(&stage.pd, REGION).len(), REGION);
}

#[test]
fn r01_every_transition_takes_exactly_its_attributes_and_gives_the_queue_pair_back_when_refused() {
    use QpAttrMask as Mask;
    let stage = stage(CAPS | Caps::RNR_RETRY);
    let device = &stage.device;
    let bring_up = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY;
    let reset: QueuePair<Puppet, _> = stage.pd.create_qp(required::<_, Srd>(&stage.ctx), Depth::new(4, 4)).unwrap();
    /// Refused once and then taken; both times with this state and these attributes.
    macro_rules! step {
        ($qp:expr, $call:ident($($attr:expr)?), $state:ident, $mask:expr) => {{
            let qp = $qp;
            let (qpn, mask): (_, Mask) = (qp.qpn(), $mask);
            device.refuse_modify(22);
            let refused = qp.$call($($attr)?).unwrap_err();
            assert!(refused.to_string().contains("R01"), "{refused}");
            assert_eq!((device.last_move().state, device.last_move().mask), (QpState::$state, mask));
            let qp = refused.into_inner();
            assert_eq!(qp.qpn(), qpn);
            let moved = qp.$call($($attr)?).unwrap();
            assert_eq!((device.last_move().state, device.last_move().mask), (QpState::$state, mask));
            moved
        }};
    }
    let init = step!(reset, init(InitAttr::new(Qkey(5))), Init, bring_up);
    assert_eq!((device.last_move().qkey, device.last_move().port, device.last_move().pkey_index), (Qkey(5), 1, 0));
    let init = step!(init, init(InitAttr::new(Qkey(6))), Init, bring_up);
    let rtr = step!(init, rtr(), Rtr, Mask::STATE);
    assert_eq!(rtr.address().qkey, Qkey(6));
    let retry = efa_core::qp::RnrRetry::times(3).unwrap();
    let attr = RtsAttr::new().psn(9).rnr_retry(required(&stage.ctx), retry);
    let rts = step!(rtr, rts(attr), Rts, Mask::STATE | Mask::SQ_PSN | Mask::RNR_RETRY);
    assert_eq!((device.last_move().sq_psn, device.last_move().rnr_retry), (9, 3));
    let sqd = step!(rts, drain(), Sqd, Mask::STATE);
    let sqd = step!(sqd, drain(), Sqd, Mask::STATE);
    let rts = step!(sqd, resume(), Rts, Mask::STATE);
    let err = step!(rts, error(), Err, Mask::STATE);
    let err = step!(err, error(), Err, Mask::STATE);
    let reset = step!(err, reset(), Reset, Mask::STATE);
    let reset = step!(reset, reset(), Reset, Mask::STATE);
    let rtr = reset.init(InitAttr::new(Qkey(1))).unwrap().rtr().unwrap();
    let rts = step!(rtr, rts(RtsAttr::new()), Rts, Mask::STATE | Mask::SQ_PSN);
    let reset = step!(rts, reset(), Reset, Mask::STATE);

    // Refused somewhere on the way, `prepare` says how far it came.
    device.refuse_modify(22);
    let back = reset.prepare().unwrap_err().into_inner();
    assert_eq!(back.state(), QpState::Reset);
    let init = back.into_reset().unwrap().init(InitAttr::new(Qkey(1))).unwrap();
    device.refuse_modify(22);
    let back = init.prepare().unwrap_err().into_inner();
    assert_eq!(back.state(), QpState::Init);
    let rtr = back.into_init().unwrap().rtr().unwrap();
    assert_eq!(rtr.address().qkey, Qkey(1), "the refused key is not in force");
    // And a refused ERR leaves shutting down where it was.
    device.refuse_modify(5);
    let back = rtr.shut_down(|| true, |_| ()).unwrap_err().into_inner();
    assert_eq!(back.state(), QpState::Rtr);
}

#[test]
fn r01_a_state_that_no_device_moves_a_queue_pair_to_by_itself_is_not_believed() {
    let stage = stage(CAPS);
    let device = &stage.device;
    let reset = || stage.pd.create_qp(required::<_, Srd>(&stage.ctx), Depth::new(4, 4)).unwrap();
    let init = || reset().init(InitAttr::new(Qkey(5))).unwrap();
    let rtr = || init().rtr().unwrap();
    let rts = || rtr().rts(RtsAttr::new()).unwrap();
    let sqe = || {
        device.pretend(QpState::Sqe);
        rts().query().unwrap().into_sqe().unwrap()
    };
    /// Whatever the device says, the queue pair is where it was, or where a device moves it.
    macro_rules! believes {
        ($qp:expr, $from:ident, $($by_itself:ident)*) => {
            for said in QpState::ALL.into_iter().chain([QpState::Unknown(7)]) {
                let qp = $qp;
                device.pretend(said);
                match qp.query() {
                    Ok(any) => {
                        assert!([QpState::$from $(, QpState::$by_itself)*].contains(&said), "{said}");
                        assert_eq!(any.state(), said);
                    }
                    Err(refused) => {
                        assert!(![QpState::$from $(, QpState::$by_itself)*].contains(&said), "{said}");
                        assert_eq!(refused.error(), Error::WrongState { state: said });
                    }
                }
            }
        };
    }
    believes!(reset(), Reset, Err);
    believes!(init(), Init, Err);
    believes!(rtr(), Rtr, Err);
    believes!(rts(), Rts, Sqe Err);
    believes!(rts().drain().unwrap(), Sqd, Sqe Err);
    believes!(sqe(), Sqe, Err);
    believes!(rts().error().unwrap(), Err,);
}
