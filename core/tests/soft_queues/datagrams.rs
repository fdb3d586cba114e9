//! UD queue pairs at the raw queues.

use efa_core::entry::{BufferDescriptor, SendEntry, control1};
use efa_core::flags::{Access, SendOps};
use efa_core::qp::{QpState, QpType};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Error, Limits, Provider, QpInit, Verb};

use crate::driver::{
    ALL_OPS, MEMORY, Pair, Side, config, init, inline, le16, pair_with, rdma, ring_bell, send, sent_bytes, small,
    with_imm,
};

const BOTH_SENDS: SendOps = SendOps::SEND.union(SendOps::SEND_WITH_IMM);

fn ud() -> QpInit {
    QpInit { qp_type: QpType::Ud, ..init(BOTH_SENDS) }
}

fn pair() -> Pair {
    pair_with(config(Profile::UNSOLICITED), ud(), ud())
}

#[test]
fn a_datagram_and_its_completion_lie_as_the_device_lays_them() {
    let Pair { mut a, mut b, to_b, to_a } = pair();
    let (source, target) = (a.region(2, MEMORY), b.region(8, MEMORY));
    source.fill(0, b"0123456789");
    target.fill(0, &[0xEE; 64]);
    b.post_recv(7, &[target.buffer(0, 64)]);
    a.post(with_imm(send(3, &to_b, &b, &[source.buffer(0, 4), source.buffer(4, 6)]), 0x8000_0001));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 3, 0, 0));
    let arrived = b.recv_cq.poll().unwrap();
    let expected = [
        &le16(7)[..],
        &[0, 1 | 2 << 1 | 1 << 3],
        &le16(b.qpn()),
        &le16(50),
        &le16(to_a.attr().ahn.0),
        &le16(a.qpn()),
        &0x8000_0001u32.to_le_bytes(),
    ];
    assert_eq!(arrived, expected.concat());
    assert_eq!(target.bytes(0, 40), [0xEE; 40], "what the header holds is not known: it is left as it is");
    assert_eq!(target.bytes(40, 10), b"0123456789");
    assert_eq!(target.bytes(50, 14), [0xEE; 14]);
    let (sent, received) = (a.device.counters(), b.device.counters());
    assert_eq!((sent.send_wrs, sent.send_bytes, sent.tx_pkts, sent.tx_bytes), (1, 10, 1, 10));
    assert_eq!((received.recv_wrs, received.recv_bytes, received.rx_drops), (1, 10, 0));
}

#[test]
fn what_its_own_side_finds_wrong_with_a_datagram_is_reported() {
    let Pair { mut a, b, to_b, .. } = pair();
    let (local, remote) = (a.region(1, MEMORY), b.region(1, MEMORY | Access::REMOTE_READ | Access::REMOTE_WRITE));
    let good = send(0, &to_b, &b, &[]);
    let gone = a.region(1, MEMORY).buffer(0, 8);
    let write = rdma(2, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8));
    let read = rdma(1, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8));
    for (entry, status) in [
        (SendEntry { reserved15: 1, ..good }, 2),
        (write, 3),
        (with_imm(write, 1), 3),
        (read, 3),
        (SendEntry { length: 3.into(), ..good }, 3),
        (SendEntry { ah: 0xFFFF.into(), ..good }, 4),
        (send(0, &to_b, &b, &[gone]), 5),
        (send(0, &to_b, &b, &[local.buffer(0, 9)]), 5),
        (SendEntry { length: 33.into(), ctrl1: good.ctrl1 | control1::INLINE, ..good }, 6),
    ] {
        a.post(entry);
        assert_eq!(a.status(), status, "{entry:?}");
    }
    assert_eq!(a.device.counters().wr_errors, 9);
    assert_eq!((a.device.counters().send_wrs, b.device.counters().rx_drops), (0, 0));
}

#[test]
fn r11_a_datagram_whose_length_no_completion_could_tell_answers_6() {
    let limits = Limits { max_msg_size: 65_535, ..small() };
    let Pair { mut a, mut b, to_b, .. } = pair_with(config(Profile::NONE).limits(limits), ud(), ud());
    let (source, target) = (a.region(8192, MEMORY), b.region(9000, MEMORY));
    b.post_recv(0, &[target.buffer(0, 40_000), target.buffer(40_000, 30_000)]);
    a.post(send(0, &to_b, &b, &[source.buffer(0, 65_496)]));
    assert_eq!(a.status(), 6);
    a.post(send(0, &to_b, &b, &[source.buffer(0, 65_495)]));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[..8], [0, 0, 0, 1 | 2 << 1, b.qpn() as u8, 0, 0xFF, 0xFF]);
}

#[test]
fn a_receive_too_short_for_header_and_payload_fails_with_6_and_the_send_succeeds() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(8, MEMORY);
    for (req_id, room, bytes) in [(1, 39, &b""[..]), (2, 0, b""), (3, 44, b"five!")] {
        b.post_recv(req_id, &[target.buffer(0, room)]);
        a.post(inline(9, &to_b, &b, bytes));
        assert_eq!(a.status(), 0);
        let short = b.recv_cq.poll().unwrap();
        assert_eq!((&short[..3], &short[6..8]), (&[req_id as u8, 0, 6][..], &[0, 0][..]));
    }
    b.post_recv(4, &[BufferDescriptor { lkey: (target.mr.attr().lkey.0 ^ 1).into(), ..target.buffer(0, 64) }]);
    a.post(inline(9, &to_b, &b, b"five!"));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[..3], [4, 0, 5], "and memory that is not good fails with 5");
    assert_eq!(target.bytes(0, 64), [0; 64]);
    b.post_recv(5, &[target.buffer(0, 45)]);
    a.post(inline(9, &to_b, &b, b"five!"));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[..3], [5, 0, 0]);
    assert_eq!(b.device.counters().rx_drops, 4);
}

#[test]
fn descriptors_that_make_no_sense_put_the_receiver_into_err_and_the_datagrams_send_succeeds() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    b.posted = 17;
    ring_bell(b.queues.recv.doorbell, b.posted);
    a.post(send(0, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
    assert_eq!(b.device.counters().protocol_errors, 1);
    // One that does so to itself gets each completion once.
    let to_self = a.ah(&a);
    a.posted = 17;
    ring_bell(a.queues.recv.doorbell, a.posted);
    a.write(send(1, &to_self, &a, &[]));
    a.write(send(2, &to_b, &b, &[]));
    a.ring_send();
    (0..20).for_each(|_| a.device.progress());
    let mut ids: Vec<_> = std::iter::from_fn(|| a.send_cq.poll()).map(|entry| entry[0]).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
}

#[test]
fn between_srd_and_ud_a_message_ends_with_9_and_a_datagram_is_dropped() {
    let config = config(Profile::UNSOLICITED);
    let Pair { mut a, mut b, to_b, to_a } = pair_with(config, init(ALL_OPS), ud());
    let (here, there) = (a.region(8, MEMORY), b.region(8, MEMORY | Access::REMOTE_WRITE));
    a.post_recv(0, &[here.buffer(0, 64)]);
    b.post_recv(0, &[there.buffer(0, 64)]);
    for entry in [
        send(0, &to_b, &b, &[]),
        inline(0, &to_b, &b, b"hello"),
        rdma(2, 0, &to_b, &b, here.buffer(0, 8), there.remote(0, 8)),
    ] {
        a.post(entry);
        assert_eq!(a.status(), 9);
    }
    assert_eq!(b.device.counters().rx_drops, 3);
    b.post(inline(0, &to_a, &a, b"hello"));
    assert_eq!(b.status(), 0);
    assert_eq!(a.device.counters().rx_drops, 1);
    assert!(a.recv_cq.poll().is_none() && b.recv_cq.poll().is_none());
    assert_eq!((here.bytes(0, 64), there.bytes(0, 64)), (vec![0; 64], vec![0; 64]));
}

#[test]
fn r06_a_ud_queue_pair_for_rdma_or_unsolicited_arrivals_is_not_made() {
    let device = SoftDevice::new(config(Profile::UNSOLICITED));
    let Side { pd, cqs, .. } = &Side::new(&device, ud(), false);
    let refused = Err(Error::Device { verb: Verb::CreateQp, errno: 95 });
    for op in SendOps::all().difference(BOTH_SENDS) {
        let made = device.create_qp(pd, &cqs.0, &cqs.1, &QpInit { ops: BOTH_SENDS | op, ..ud() });
        assert_eq!(made.map(drop), refused, "{op:?}");
    }
    let made = device.create_qp(pd, &cqs.0, &cqs.1, &QpInit { unsolicited: true, ..ud() });
    assert_eq!(made.map(drop), refused);
}

#[test]
fn a_ud_queue_pair_in_sqd_holds_its_datagrams_back_until_rts() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(8, MEMORY);
    b.post_recv(0, &[target.buffer(0, 64)]);
    a.modify(QpState::Sqd);
    a.post(inline(1, &to_b, &b, b"later"));
    (0..20).for_each(|_| a.device.progress());
    assert!(a.send_cq.poll().is_none() && b.recv_cq.poll().is_none());
    a.modify(QpState::Rts);
    assert_eq!(a.status(), 0);
    assert_eq!(target.bytes(40, 5), b"later");
}
