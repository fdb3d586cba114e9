//! The control path.

use efa_core::flags::{Access, QpAttrMask as Mask, SendOps};
use efa_core::memory::{DmaBuf, RawMemory, RawParts, Visible};
use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::soft::{Config, Profile, SoftDevice, SoftQp};
use efa_core::{CqInit, Error, Limit, Limits, MrInit, Provider, QpInit, Verb};

use crate::driver::{
    ALL_OPS, MEMORY, Pair, Region, Side, Words, bring_up, config, init, modify, pair, put, ring_bell, send, sent_bytes,
    small,
};
use crate::transitions::{expected, masks};

fn move_to(device: &SoftDevice, qp: &mut SoftQp, state: QpState) {
    let path: &[(QpState, Mask)] = &[
        (QpState::Init, Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::QKEY)),
        (QpState::Rtr, Mask::empty()),
        (QpState::Rts, Mask::SQ_PSN),
        (QpState::Sqd, Mask::empty()),
    ];
    modify(device, qp, QpState::Reset, Mask::empty(), 0).unwrap();
    let steps = match state {
        QpState::Reset => 0,
        QpState::Init | QpState::Err => 1,
        QpState::Rtr => 2,
        QpState::Rts | QpState::Sqe => 3,
        _ => 4,
    };
    for &(to, mask) in &path[..steps] {
        modify(device, qp, to, mask, 1).unwrap();
    }
    match state {
        QpState::Err => modify(device, qp, QpState::Err, Mask::empty(), 0).unwrap(),
        // No modify leads there: a send that fails does, here one of nothing but zeros.
        QpState::Sqe => {
            let queues = device.queues(qp);
            put(queues.send.entries, 0, &[0; 64]);
            ring_bell(queues.send.doorbell, 1);
            device.progress();
        }
        _ => {}
    }
}

/// A queue pair of either type.
fn both_types(device: &SoftDevice) -> [(QpType, SoftQp); 2] {
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(&CqInit { entries: 8, sgid: false, unsolicited: false }).unwrap();
    let make = |init| device.create_qp(&pd, &cq, &cq, &init).unwrap();
    let ud = QpInit { qp_type: QpType::Ud, ..init(SendOps::SEND) };
    [(QpType::Srd, make(init(ALL_OPS))), (QpType::Ud, make(ud))]
}

#[test]
fn r01_every_transition_with_every_mask_is_answered_as_the_table_says() {
    let device = SoftDevice::new(config(Profile::RDMA).stop_sends(true).shuffle(false));
    for (kind, mut qp) in both_types(&device) {
        for from in QpState::ALL {
            for to in QpState::ALL {
                for mask in masks() {
                    move_to(&device, &mut qp, from);
                    assert_eq!(device.query_qp(&qp), Ok(from));
                    let attr = QpAttr { cur_state: from, ..QpAttr::to(to, mask) };
                    let allowed = expected(kind, from, to).is_some_and(|line| line.allows(mask));
                    let answer = if allowed { Ok(()) } else { Err(Error::Device { verb: Verb::ModifyQp, errno: 22 }) };
                    assert_eq!(device.modify_qp(&mut qp, &attr), answer, "{kind} {from} to {to} with {mask:?}");
                }
            }
        }
    }
}

#[test]
fn r01_wrong_values_are_answered_as_the_driver_does() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let (pd, cq) = (
        device.alloc_pd().unwrap(),
        device.create_cq(&CqInit { entries: 8, sgid: false, unsolicited: false }).unwrap(),
    );
    let mut qp = device.create_qp(&pd, &cq, &cq, &init(ALL_OPS)).unwrap();
    let bring_up = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY;
    let to_init = QpAttr::to(QpState::Init, bring_up);
    let errno = |result: Result<(), Error>| match result {
        Err(Error::Device { verb: Verb::ModifyQp, errno }) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(errno(device.modify_qp(&mut qp, &QpAttr { port: 2, ..to_init })), 95);
    assert_eq!(errno(device.modify_qp(&mut qp, &QpAttr { pkey_index: 1, ..to_init })), 95);
    let unknown = Mask::from_bits_retain(bring_up.bits() | 1 << 8);
    assert_eq!(errno(device.modify_qp(&mut qp, &QpAttr { mask: unknown, ..to_init })), 95);
    move_to(&device, &mut qp, QpState::Rtr);
    let to_rts = QpAttr::to(QpState::Rts, Mask::STATE | Mask::SQ_PSN | Mask::RNR_RETRY | Mask::CUR_STATE);
    assert_eq!(errno(device.modify_qp(&mut qp, &QpAttr { cur_state: QpState::Rts, ..to_rts })), 22);
    let from_rtr = QpAttr { cur_state: QpState::Rtr, ..to_rts };
    assert_eq!(errno(device.modify_qp(&mut qp, &QpAttr { rnr_retry: 8, ..from_rtr })), 22);
    device.modify_qp(&mut qp, &from_rtr).unwrap();
}

#[test]
fn a_device_in_sqd_finishes_what_it_took_and_takes_no_more_until_rts() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(1, MEMORY);
    a.post(send(1, &to_b, &b, &[]));
    a.device.progress();
    a.modify(QpState::Sqd);
    a.post(send(2, &to_b, &b, &[]));
    b.post_recv(0, &[target.buffer(0, 8)]);
    b.post_recv(1, &[target.buffer(0, 8)]);
    assert_eq!(a.sent_completion()[..2], [1, 0]);
    (0..20).for_each(|_| a.device.progress());
    assert!(a.send_cq.poll().is_none());
    a.modify(QpState::Rts);
    assert_eq!(a.sent_completion()[..2], [2, 0]);
}

#[test]
fn after_a_reset_the_rings_begin_anew_and_nothing_of_before_arrives() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(1, MEMORY);
    for req_id in 0..3 {
        a.post(send(req_id, &to_b, &b, &[]));
    }
    a.device.progress();
    a.modify(QpState::Reset);
    b.post_recv(0, &[target.buffer(0, 8)]);
    (0..20).for_each(|_| a.device.progress());
    assert!(a.send_cq.poll().is_none() && b.recv_cq.poll().is_none());
    let device = a.device.clone();
    bring_up(&device, a.qp.as_mut().unwrap(), 77);
    a.sent = 0;
    a.post(send(9, &to_b, &b, &[]));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 9, 0, 0));
}

#[test]
fn r20_a_queue_pair_number_is_reused_with_another_generation() {
    let Pair { mut a, .. } = pair();
    let (qpn, generation) = (a.qpn(), a.queues.generation);
    a.destroy();
    let again = Side::in_domain(&a.device, a.pd.clone(), init(ALL_OPS), false);
    assert_eq!(again.qpn(), qpn);
    assert_ne!(again.queues.generation, generation);
}

#[test]
fn two_devices_may_have_the_same_queue_pair_number() {
    let Pair { a, b, .. } = pair();
    assert_eq!(a.qpn(), b.qpn());
    assert_ne!(a.device.gid(), b.device.gid());
    assert_ne!(a.device.device_id(), b.device.device_id());
}

#[test]
fn r37_a_region_of_nothing_of_part_words_or_with_rights_that_the_device_lacks_is_refused() {
    let device = SoftDevice::new(config(Profile::READ));
    let pd = device.alloc_pd().unwrap();
    let try_new = |words, access| Region::try_new(&device, &pd, words, access).err();
    assert_eq!(try_new(0, MEMORY), Some(Error::ZeroLength));
    assert!(matches!(try_new(1, Access::REMOTE_WRITE), Some(Error::Unsupported { .. })));
    assert_eq!(try_new(1, Access::REMOTE_READ), None);
    /// All but the last byte.
    struct Odd(Words);
    // SAFETY: as for the whole.
    unsafe impl DmaBuf for Odd {
        type View = Visible;

        fn into_raw(self) -> RawParts {
            let parts = self.0.into_raw();
            RawParts { len: parts.len - 1, ..parts }
        }

        unsafe fn from_raw(parts: RawParts) -> Self {
            // SAFETY: as the caller says.
            Self(unsafe { Words::from_raw(RawParts { len: parts.len + 1, ..parts }) })
        }
    }
    let odd = || RawMemory::new(Odd(Words(vec![0; 2].into_boxed_slice())));
    // SAFETY: the memory is given back at once, or kept.
    let refused = unsafe { device.reg_mr(&pd, odd(), &MrInit::new(Access::REMOTE_READ)) }.unwrap_err().1;
    assert!(matches!(refused, Error::Misaligned { len: 15, .. }));
    // SAFETY: as above.
    assert!(unsafe { device.reg_mr(&pd, odd(), &MrInit::new(MEMORY)) }.is_ok());
}

#[test]
fn r15_the_right_to_write_remotely_implies_the_local_one() {
    let Pair { b, .. } = pair();
    assert!(b.region(1, Access::REMOTE_WRITE).mr.attr().access.contains(Access::LOCAL_WRITE));
}

#[test]
fn h35_r22_a_queue_pair_with_unsolicited_receive_needs_a_completion_queue_that_tells_it() {
    let device = SoftDevice::new(config(Profile::UNSOLICITED));
    let pd = device.alloc_pd().unwrap();
    let cq = |unsolicited| device.create_cq(&CqInit { entries: 8, sgid: false, unsolicited }).unwrap();
    let refused = Error::Device { verb: Verb::CreateQp, errno: 22 };
    assert!(refused.to_string().contains("R22"), "{refused}");
    for (queue_pair, queue, expected) in
        [(false, false, Ok(())), (false, true, Ok(())), (true, false, Err(refused)), (true, true, Ok(()))]
    {
        let init = QpInit { unsolicited: queue_pair, ..init(ALL_OPS) };
        let made = device.create_qp(&pd, &cq(false), &cq(queue), &init).map(drop);
        assert_eq!(made, expected, "queue pair {queue_pair}, queue {queue}");
    }
    let plain = SoftDevice::new(config(Profile::RDMA));
    let made = plain.create_cq(&CqInit { entries: 8, sgid: false, unsolicited: true }).map(drop);
    assert!(matches!(made, Err(Error::Unsupported { .. })), "{made:?}");
}

#[test]
fn what_is_above_a_limit_is_refused_with_both_numbers() {
    let limits =
        Limits { max_qp: 1, max_cq: 2, max_pd: 2, max_mr: 1, max_send_depth: 64, max_recv_depth: 64, ..small() };
    let device = SoftDevice::new(Config::new(Profile::READ).limits(limits));
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(&CqInit { entries: 3, sgid: true, unsolicited: false }).unwrap();
    assert_eq!((device.completions(&cq).entries, device.completions(&cq).entry_size), (4, 32));
    let make = |init: QpInit| device.create_qp(&pd, &cq, &cq, &init).map(drop).unwrap_err();
    let good = init(SendOps::SEND);
    let above = |what, asked, limit| Error::AboveLimit { what, asked, limit };
    assert_eq!(make(QpInit { send_depth: 65, ..good }), above(Limit::SendDepth, 65, 64));
    assert_eq!(make(QpInit { recv_depth: 33, ..good }), above(Limit::RecvDepth, 33, 32));
    assert_eq!(make(QpInit { recv_sge: 3, ..good }), above(Limit::RecvBuffers, 3, 2));
    assert_eq!(make(QpInit { inline: 33, ..good }), above(Limit::InlineBytes, 33, 32));
    assert!(matches!(make(QpInit { unsolicited: true, ..good }), Error::Unsupported { .. }));
    assert!(matches!(make(init(ALL_OPS)), Error::Unsupported { .. }));
    let qp = device.create_qp(&pd, &cq, &cq, &QpInit { send_depth: 5, recv_depth: 3, ..good }).unwrap();
    let queues = device.queues(&qp);
    assert_eq!((queues.send.depth, queues.recv.depth, queues.recv.descriptors), (8, 4, 8));
    assert_eq!(make(good), Error::Exhausted { what: Limit::QueuePairs, limit: 1 });
    assert_eq!(
        device.create_cq(&CqInit { entries: 1 << 20, sgid: false, unsolicited: false }).map(drop).unwrap_err(),
        above(Limit::CompletionEntries, 1 << 20, Config::LIMITS.max_cqe.into())
    );
    let region = Region::new(&device, &pd, 1, MEMORY);
    let exhausted = Error::Exhausted { what: Limit::MemoryRegions, limit: 1 };
    assert_eq!(Region::try_new(&device, &pd, 1, MEMORY).err(), Some(exhausted));
    drop(region);
    Region::new(&device, &pd, 1, MEMORY);
    let _second = device.alloc_pd().unwrap();
    assert!(matches!(device.alloc_pd(), Err(Error::Exhausted { what: Limit::ProtectionDomains, limit: 2 })));
}

#[test]
fn a_handle_of_another_device_is_refused() {
    let Pair { a, b, .. } = pair();
    let invalid = |verb| Error::Device { verb, errno: 22 };
    assert_eq!(Region::try_new(&a.device, &b.pd, 1, MEMORY).err(), Some(invalid(Verb::RegMr)));
    assert_eq!(a.device.create_ah(&b.pd, a.device.gid()).unwrap_err(), invalid(Verb::CreateAh));
    let qp = a.device.create_qp(&a.pd, &a.cqs.0, &b.cqs.1, &init(ALL_OPS)).map(drop);
    assert_eq!(qp.unwrap_err(), invalid(Verb::CreateQp));
}
