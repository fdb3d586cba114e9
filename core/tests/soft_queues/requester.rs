//! Statuses that the requester's own side answers.

use efa_core::entry::{BufferDescriptor, SendEntry, control1, control2};
use efa_core::flags::{Access, SendOps};
use efa_core::qp::QpState;
use efa_core::soft::Profile;
use efa_core::{Limits, Provider, QpInit};

use crate::driver::{
    ALL_OPS, MEMORY, Pair, Side, config, init, inline, pair, pair_with, rdma, send, sent_bytes, small, with_imm,
};

#[test]
fn r20_what_is_in_flight_is_flushed_with_status_1_when_its_queue_pair_goes_to_err() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let target = b.region(1, MEMORY);
    b.modify(QpState::Err);
    a.post(send(5, &to_b, &b, &[]));
    assert_eq!(a.status(), 9, "a queue pair in error takes nothing");
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    a.post(send(5, &to_b, &b, &[]));
    a.device.progress();
    a.write(send(6, &to_b, &b, &[]));
    a.ring_send();
    a.modify(QpState::Err);
    let flushed: Vec<_> = std::iter::from_fn(|| a.send_cq.poll()).collect();
    assert_eq!(flushed, [sent_bytes(&a, 5, 1, 0), sent_bytes(&a, 6, 1, 0)]);
    b.post_recv(1, &[target.buffer(0, 4), target.buffer(4, 4)]);
    b.post_recv(2, &[target.buffer(0, 8)]);
    b.modify(QpState::Err);
    let flushed: Vec<_> = std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| entry[..3].to_vec()).collect();
    assert_eq!(flushed, [[1, 0, 1], [2, 0, 1]]);
    b.post_recv(3, &[target.buffer(0, 8)]);
    b.device.progress();
    assert_eq!(b.recv_cq.poll().unwrap()[..3], [3, 0, 1], "also what is posted later");
    a.post(send(7, &to_b, &b, &[]));
    assert_eq!(a.status(), 1);
}

#[test]
fn an_entry_with_a_wrong_phase_or_reserved_bits_answers_2() {
    let Pair { mut a, b, to_b, .. } = pair();
    let good = send(1, &to_b, &b, &[]);
    let bad = [
        SendEntry { ctrl2: good.ctrl2 | control2::PHASE, ..good },
        SendEntry { ctrl2: good.ctrl2 & !control2::COMP_REQ, ..good },
        SendEntry { ctrl1: good.ctrl1 & !control1::META_DESC, ..good },
        SendEntry { reserved15: 1, ..good },
        SendEntry { reserved20: [0, 0, 0, 0, 0, 1], ..good },
    ];
    for entry in bad {
        a.post(entry);
        assert_eq!(a.status(), 2, "{entry:?}");
    }
}

#[test]
fn r06_an_operation_that_the_queue_pair_was_not_made_with_answers_3() {
    let Pair { mut a, b, to_b, .. } = pair_with(config(Profile::RDMA), init(SendOps::SEND), init(ALL_OPS));
    let (local, remote) = (a.region(1, MEMORY), b.region(1, MEMORY | Access::REMOTE_WRITE));
    let write = rdma(2, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8));
    let inline_write = SendEntry { ctrl1: write.ctrl1 | control1::INLINE, ..write };
    for entry in [
        write,
        inline_write,
        rdma(1, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)),
        with_imm(send(0, &to_b, &b, &[]), 1),
        rdma(3, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)),
        SendEntry { length: 3.into(), ..send(0, &to_b, &b, &[]) },
    ] {
        a.post(entry);
        assert_eq!(a.status(), 3, "{entry:?}");
    }
}

#[test]
fn an_address_handle_that_is_gone_or_of_another_domain_answers_4() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let number = to_b.attr().ahn;
    let other = Side::new(&a.device, init(ALL_OPS), false);
    let foreign = other.ah(&b);
    a.post(send(0, &foreign, &b, &[]));
    assert_eq!(a.status(), 4);
    let mut stale = send(1, &to_b, &b, &[]);
    drop(to_b);
    a.post(stale);
    assert_eq!(a.status(), 4);
    let again = a.ah(&b);
    assert_ne!(again.attr().ahn, number, "a number is not reused at once");
    a.post(stale);
    assert_eq!(a.status(), 4);
    stale.ah = 0xFFFF.into();
    a.post(stale);
    assert_eq!(a.status(), 4);
    b.post_recv(0, &[b.region(1, MEMORY).buffer(0, 8)]);
}

#[test]
fn r15_local_memory_that_is_gone_foreign_out_of_range_or_read_only_answers_5() {
    let Pair { mut a, b, to_b, to_a: _to_a } = pair();
    let memory = a.region(1, Access::empty());
    let gone = a.region(1, MEMORY).buffer(0, 8);
    let remote = b.region(1, MEMORY | Access::REMOTE_READ);
    let foreign = Side::new(&a.device, init(ALL_OPS), false).region(1, MEMORY);
    let high = BufferDescriptor { lkey: (memory.mr.attr().lkey.0 | 1 << 24).into(), ..memory.buffer(0, 8) };
    for entry in [
        send(0, &to_b, &b, &[gone]),
        send(0, &to_b, &b, &[foreign.buffer(0, 8)]),
        send(0, &to_b, &b, &[high]),
        send(0, &to_b, &b, &[memory.buffer(0, 9)]),
        send(0, &to_b, &b, &[memory.buffer(8, 1)]),
        send(0, &to_b, &b, &[memory.buffer(u64::MAX - memory.addr(), 8)]),
        send(0, &to_b, &b, &[memory.buffer(u64::MAX, 1)]),
        send(0, &to_b, &b, &[memory.buffer(0, u32::MAX)]),
        rdma(1, 0, &to_b, &b, memory.buffer(0, 8), remote.remote(0, 8)),
        // A remote key is no local one.
        send(0, &to_b, &b, &[BufferDescriptor { lkey: memory.mr.attr().rkey.0.into(), ..memory.buffer(0, 8) }]),
    ] {
        a.post(entry);
        assert_eq!(a.status(), 5, "{entry:?}");
    }
}

#[test]
fn r11_a_message_longer_than_the_device_takes_answers_6() {
    let limits = Limits { max_msg_size: 64, max_rdma_size: 128, ..small() };
    let both = QpInit { inline: 16, ..init(ALL_OPS) };
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair_with(config(Profile::RDMA).limits(limits), both, both);
    let (local, remote) = (a.region(32, MEMORY), b.region(32, MEMORY | Access::REMOTE_WRITE));
    for entry in [
        send(0, &to_b, &b, &[local.buffer(0, 65)]),
        send(0, &to_b, &b, &[local.buffer(0, 64), local.buffer(0, 1)]),
        inline(0, &to_b, &b, &[1; 17]),
        SendEntry { length: 0xFFFF.into(), ..inline(0, &to_b, &b, &[]) },
        rdma(2, 0, &to_b, &b, local.buffer(0, 129), remote.remote(0, 129)),
        rdma(2, 0, &to_b, &b, local.buffer(0, 64), remote.remote(0, 63)),
    ] {
        a.post(entry);
        assert_eq!(a.status(), 6, "{entry:?}");
    }
    b.post_recv(0, &[remote.buffer(0, 64)]);
    a.post(send(0, &to_b, &b, &[local.buffer(0, 64)]));
    assert_eq!(a.status(), 0);
}
