//! Statuses that the peer answers.

use efa_core::entry::{RecvDescriptor, RemoteBuffer, SendEntry, descriptor_flags};
use efa_core::flags::{Access, QpAttrMask as Mask};
use efa_core::qp::{QpAttr, QpState};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Error, Gid, Provider, QpInit, Verb};

use crate::driver::{
    ALL_OPS, MEMORY, Pair, Region, Side, config, init, modify, pair, pair_with, rdma, ring_bell, send, with_imm,
};

#[test]
fn a_remote_key_that_is_gone_foreign_out_of_range_or_without_the_right_answers_7() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let local = a.region(2, MEMORY);
    let readable = b.region(1, MEMORY | Access::REMOTE_READ);
    let writable = b.region(1, MEMORY | Access::REMOTE_WRITE);
    let plain = b.region(1, MEMORY);
    let gone = b.region(1, MEMORY | Access::REMOTE_WRITE).remote(0, 8);
    let foreign = Side::new(&b.device, init(ALL_OPS), false).region(1, MEMORY | Access::REMOTE_WRITE);
    for (op, remote) in [
        (2, readable.remote(0, 8)),
        (1, writable.remote(0, 8)),
        (2, plain.remote(0, 8)),
        (2, gone),
        (2, foreign.remote(0, 8)),
        (2, writable.remote(1, 8)),
        (2, writable.remote(u64::MAX, 8)),
        (2, RemoteBuffer { rkey: (writable.mr.attr().rkey.0 ^ 1 << 31).into(), ..writable.remote(0, 8) }),
        (2, RemoteBuffer { rkey: writable.mr.attr().lkey.0.into(), ..writable.remote(0, 8) }),
    ] {
        a.post(rdma(op, 0, &to_b, &b, local.buffer(0, 8), remote));
        assert_eq!(a.status(), 7, "{op} {remote:?}");
    }
    // A remote status leaves the queue pair usable.
    b.post_recv(0, &[local_target(&b).buffer(0, 8)]);
    a.post(rdma(2, 0, &to_b, &b, local.buffer(0, 8), writable.remote(0, 8)));
    assert_eq!(a.status(), 0);
}

fn local_target(side: &Side) -> Region {
    side.region(1, MEMORY)
}

#[test]
fn a_queue_pair_that_is_not_there_has_another_key_or_cannot_receive_answers_9() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(1, MEMORY);
    b.post_recv(0, &[target.buffer(0, 8)]);
    let good = send(0, &to_b, &b, &[]);
    a.post(SendEntry { dest_qp_num: 0xFFFF.into(), ..good });
    assert_eq!(a.status(), 9);
    a.post(SendEntry { dest_qp_num: (b.qpn() + 1).into(), ..good });
    assert_eq!(a.status(), 9);
    a.post(SendEntry { qkey: (b.qkey ^ 1).into(), ..good });
    assert_eq!(a.status(), 9);
    b.modify(QpState::Reset);
    a.post(good);
    assert_eq!(a.status(), 9);
    let qkey = b.qkey;
    modify(&b.device, b.qp.as_mut().unwrap(), QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY, qkey).unwrap();
    a.post(good);
    assert_eq!(a.status(), 9);
    b.modify(QpState::Rtr);
    b.posted = 0;
    b.post_recv(1, &[target.buffer(0, 8)]);
    a.post(good);
    assert_eq!(a.status(), 0, "from RTR on");
    b.destroy();
    a.post(good);
    assert_eq!(a.status(), 9);
}

#[test]
fn a_message_waits_for_a_receive_as_often_as_rnr_retry_says_and_then_answers_10() {
    // Turns are counted, so nothing is to be held back.
    let device = init(ALL_OPS);
    let Pair { mut a, mut b, to_b, .. } = pair_with(config(Profile::UNSOLICITED).shuffle(false), device, device);
    let target = b.region(1, MEMORY);
    a.post(send(0, &to_b, &b, &[]));
    for _ in 0..200 {
        a.device.progress();
    }
    assert!(a.send_cq.poll().is_none(), "7 is for ever");
    b.post_recv(0, &[target.buffer(0, 8)]);
    assert_eq!(a.status(), 0);
    let mut turns = Vec::new();
    for retries in [0, 1, 6] {
        a.modify(QpState::Reset);
        (a.sent, a.send_cq.next) = (0, a.send_cq.next);
        let (device, qp) = (a.device.clone(), a.qp.as_mut().unwrap());
        modify(&device, qp, QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY, 1).unwrap();
        modify(&device, qp, QpState::Rtr, Mask::empty(), 0).unwrap();
        let mask = Mask::STATE | Mask::SQ_PSN | Mask::RNR_RETRY;
        device.modify_qp(qp, &QpAttr { rnr_retry: retries, ..QpAttr::to(QpState::Rts, mask) }).unwrap();
        a.post(send(1, &to_b, &b, &[]));
        let mut count = 0;
        let completion = loop {
            device.progress();
            count += 1;
            if let Some(completion) = a.send_cq.poll() {
                break completion;
            }
        };
        assert_eq!(completion[2], 10);
        turns.push(count);
    }
    assert_eq!(turns, [1, 5, 25]);
}

#[test]
fn a_receive_that_is_too_short_is_consumed_with_an_error_and_the_send_answers_11() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let (source, target) = (a.region(2, MEMORY), b.region(2, MEMORY));
    source.fill(0, &[7; 16]);
    b.post_recv(1, &[target.buffer(0, 4), target.buffer(4, 4)]);
    b.post_recv(2, &[target.buffer(0, 9)]);
    a.post(send(0, &to_b, &b, &[source.buffer(0, 9)]));
    assert_eq!(a.status(), 11);
    let short = b.recv_cq.poll().unwrap();
    assert_eq!((&short[..3], &short[6..8]), (&[1, 0, 6][..], &[0, 0][..]));
    assert_eq!(target.bytes(0, 16), [0; 16]);
    a.post(send(0, &to_b, &b, &[source.buffer(0, 9)]));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[..3], [2, 0, 0]);
}

#[test]
fn r04_an_rdma_write_to_a_peer_that_has_not_resolved_us_answers_14() {
    let Pair { mut a, mut b, to_b, to_a } = pair();
    let (local, remote) = (a.region(1, MEMORY), b.region(1, MEMORY | Access::REMOTE_READ | Access::REMOTE_WRITE));
    let other = Side::new(&b.device, init(ALL_OPS), false);
    let kept = other.ah(&a);
    drop(to_a);
    for op in [1, 2] {
        a.post(rdma(op, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)));
        assert_eq!(a.status(), 14, "the other domain's handle is no help");
    }
    b.post_recv(0, &[local_target(&b).buffer(0, 8)]);
    drop(kept);
    let _to_a = b.ah(&a);
    a.post(rdma(2, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)));
    assert_eq!(a.status(), 0);
}

#[test]
fn r28_a_handle_made_before_its_device_was_there_resolves_it_when_it_comes() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let mut b = Side::new(&device, init(ALL_OPS), false);
    let nobody = Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    let to_nobody = b.device.create_ah(&b.pd, nobody).unwrap();
    let same = b.device.create_ah(&b.pd, nobody).unwrap();
    assert_eq!(to_nobody.attr().ahn, same.attr().ahn, "one for each domain and address");
    assert_eq!(to_nobody.attr().gid, nobody);
    let entry = send(0, &to_nobody, &b, &[]);
    drop(to_nobody);
    b.post(entry);
    assert_eq!(b.status(), 15, "and counted: the second keeps it");
    drop(same);
    b.post(entry);
    assert_eq!(b.status(), 4);
    let zero = b.device.create_ah(&b.pd, Gid([0; 16])).unwrap_err();
    assert_eq!(zero, Error::Device { verb: Verb::CreateAh, errno: 22 });
}

#[test]
fn a_device_that_is_not_on_the_wire_or_unplugged_answers_15() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let other_wire = Side::new(&SoftDevice::new(config(Profile::RDMA)), init(ALL_OPS), false);
    let elsewhere = a.ah(&other_wire);
    a.post(send(0, &elsewhere, &other_wire, &[]));
    assert_eq!(a.status(), 15);
    b.device.link(false);
    a.post(send(0, &to_b, &b, &[]));
    assert_eq!(a.status(), 15);
    b.device.link(true);
    let target = b.region(1, MEMORY);
    b.post_recv(0, &[target.buffer(0, 8)]);
    a.post(send(0, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
}

#[test]
fn r05_a_write_with_immediate_between_different_feature_sets_answers_18_and_all_do_where_strict() {
    let (plain, unsolicited) = (init(ALL_OPS), QpInit { unsolicited: true, ..init(ALL_OPS) });
    for (strict, expected) in [(false, [0, 0, 18]), (true, [18, 18, 18])] {
        for (one, other) in [(plain, unsolicited), (unsolicited, plain)] {
            let config = config(Profile::UNSOLICITED).strict_features(strict);
            let Pair { mut a, mut b, to_b, to_a: _to_a } = pair_with(config, one, other);
            let (local, remote) = (a.region(1, MEMORY), b.region(1, MEMORY | Access::REMOTE_WRITE));
            b.post_recv(0, &[remote.buffer(0, 8)]);
            let write = rdma(2, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8));
            let statuses = [send(0, &to_b, &b, &[]), write, with_imm(write, 1)].map(|entry| {
                a.post(entry);
                a.status()
            });
            assert_eq!(statuses, expected);
        }
    }
}

#[test]
fn r18_a_doorbell_that_announces_more_than_the_queue_holds_puts_the_queue_pair_into_err() {
    let Pair { mut a, b, to_b, .. } = pair();
    a.sent = 9;
    a.ring_send();
    a.device.progress();
    assert_eq!(a.device.counters().protocol_errors, 1);
    assert!(a.send_cq.poll().is_none());
    a.post(send(0, &to_b, &b, &[]));
    assert_eq!(a.status(), 1);
}

#[test]
fn descriptors_that_make_no_sense_put_the_responder_into_err_and_the_send_answers_9() {
    for broken in 0..3 {
        let Pair { mut a, mut b, to_b, .. } = pair();
        let target = b.region(1, MEMORY);
        let buffer = target.buffer(0, 8);
        let lkey = buffer.lkey.get();
        let descriptor = |bits: u32| RecvDescriptor {
            addr: buffer.addr,
            req_id: 1.into(),
            length: 8.into(),
            lkey_ctrl: (lkey | bits).into(),
        };
        match broken {
            0 => b.put_descriptor(descriptor(descriptor_flags::LAST)),
            1 => (0..2).for_each(|_| b.put_descriptor(descriptor(descriptor_flags::FIRST))),
            _ => b.posted = 17,
        }
        ring_bell(b.queues.recv.doorbell, b.posted);
        a.post(send(0, &to_b, &b, &[]));
        assert_eq!(a.status(), 9, "{broken}");
        assert_eq!(b.device.counters().protocol_errors, 1);
    }
}

#[test]
fn a_queue_pair_that_breaks_itself_by_what_it_sends_gets_each_completion_once() {
    let Pair { mut a, b, to_b, .. } = pair();
    let to_self = a.ah(&a);
    a.posted = 17;
    ring_bell(a.queues.recv.doorbell, a.posted);
    a.write(send(1, &to_self, &a, &[]));
    a.write(send(2, &to_b, &b, &[]));
    a.write(send(3, &to_self, &a, &[]));
    a.ring_send();
    (0..20).for_each(|_| a.device.progress());
    let mut ids: Vec<_> = std::iter::from_fn(|| a.send_cq.poll()).map(|entry| (entry[0], entry[2])).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids.iter().filter(|(_, status)| *status == 9).count(), 1);
    assert!(ids.iter().map(|(id, _)| *id).eq([1, 2, 3]));
}
