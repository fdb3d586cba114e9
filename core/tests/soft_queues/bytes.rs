//! Golden bytes: what arrives, and what both completions say.

use efa_core::entry::{BufferDescriptor, control1};
use efa_core::flags::Access;
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Provider, QpInit};
use zerocopy::FromZeros;

use crate::driver::{
    ALL_OPS, MEMORY, Pair, Side, config, init, inline, le16, pair, pair_with, rdma, send, sent_bytes, with_imm,
};

#[test]
fn a_send_arrives_and_both_completions_have_the_devices_bytes() {
    let Pair { mut a, mut b, to_b, to_a } = pair();
    let (source, target) = (a.region(8, MEMORY), b.region(8, MEMORY));
    source.fill(3, b"hello");
    b.post_recv(0x4321, &[target.buffer(1, 60)]);
    a.post(send(0x1234, &to_b, &b, &[source.buffer(3, 5)]));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 0x1234, 0, 0));
    let ahn = le16(to_a.attr().ahn.0);
    let expected = [&[0x21, 0x43, 0, 1 | 2 << 1][..], &le16(b.qpn()), &[5, 0], &ahn, &le16(a.qpn()), &[0; 4]].concat();
    assert_eq!(b.recv_cq.poll().unwrap(), expected);
    assert_eq!(target.bytes(0, 8), b"\0hello\0\0");
    assert!(a.send_cq.poll().is_none() && b.recv_cq.poll().is_none());
}

#[test]
fn r13_an_immediate_arrives_exactly() {
    let Pair { mut a, mut b, to_b, to_a } = pair();
    b.post_recv(7, &[b.region(1, MEMORY).buffer(0, 0)]);
    let target = b.region(1, MEMORY);
    b.post_recv(8, &[target.buffer(0, 8)]);
    // The first receive's region is gone already: it fails alone.
    a.post(with_imm(send(1, &to_b, &b, &[]), 0xDEAD_BEEF));
    assert_eq!(a.status(), 12);
    assert_eq!(b.recv_cq.poll().unwrap()[2], 5);
    a.post(with_imm(send(2, &to_b, &b, &[]), 0xDEAD_BEEF));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 2, 0, 0));
    let ahn = le16(to_a.attr().ahn.0);
    let imm = [0xEF, 0xBE, 0xAD, 0xDE];
    let expected = [&[8, 0, 0, 1 | 2 << 1 | 1 << 3][..], &le16(b.qpn()), &[0, 0], &ahn, &le16(a.qpn()), &imm].concat();
    assert_eq!(b.recv_cq.poll().unwrap(), expected);
}

#[test]
fn inline_bytes_and_two_buffers_are_scattered_into_two() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let (source, target) = (a.region(8, MEMORY), b.region(8, MEMORY));
    source.fill(0, b"abcdefghijklmnop");
    b.post_recv(0, &[target.buffer(0, 5), target.buffer(8, 30)]);
    a.post(send(1, &to_b, &b, &[source.buffer(0, 3), source.buffer(4, 8)]));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[6], 11);
    assert_eq!(target.bytes(0, 16), b"abcef\0\0\0ghijkl\0\0");
    b.post_recv(1, &[target.buffer(32, 20), target.buffer(52, 12)]);
    a.post(inline(2, &to_b, &b, b"0123456789abcdefghijklmnopqrstuv"));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[6], 32);
    assert_eq!(target.bytes(32, 32), b"0123456789abcdefghijklmnopqrstuv");
}

#[test]
fn r14_a_zero_byte_send_needs_no_buffer_and_a_zero_byte_write_needs_one() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let target = b.region(1, MEMORY | Access::REMOTE_WRITE);
    let source = a.region(1, MEMORY);
    b.post_recv(3, &[target.buffer(0, 8)]);
    a.post(send(1, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[6..8], [0, 0]);
    a.post(rdma(control1::OP_RDMA_WRITE, 2, &to_b, &b, source.buffer(0, 0), target.remote(0, 0)));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 2, 0, 2));
    a.post(rdma(control1::OP_RDMA_WRITE, 3, &to_b, &b, BufferDescriptor::new_zeroed(), target.remote(0, 0)));
    assert_eq!(a.status(), 5);
}

#[test]
fn writes_and_reads_move_bytes_and_only_an_immediate_is_told() {
    let Pair { mut a, mut b, to_b, to_a } = pair();
    let (local, remote) = (a.region(16, MEMORY), b.region(16, MEMORY | Access::REMOTE_READ | Access::REMOTE_WRITE));
    local.fill(0, &(0..128).collect::<Vec<u8>>());
    a.post(rdma(control1::OP_RDMA_WRITE, 1, &to_b, &b, local.buffer(5, 70), remote.remote(3, 70)));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 1, 0, 2));
    assert!(b.recv_cq.poll().is_none());
    assert_eq!(remote.bytes(3, 70), (5..75).collect::<Vec<u8>>());
    assert_eq!((remote.bytes(0, 3), remote.bytes(73, 7)), (vec![0; 3], vec![0; 7]));

    a.post(rdma(control1::OP_RDMA_READ, 2, &to_b, &b, local.buffer(100, 20), remote.remote(4, 20)));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 2, 0, 1));
    assert_eq!(local.bytes(100, 20), (6..26).collect::<Vec<u8>>());

    let unused = b.region(1, MEMORY);
    b.post_recv(9, &[unused.buffer(0, 8)]);
    let write = rdma(control1::OP_RDMA_WRITE, 3, &to_b, &b, local.buffer(0, 16), remote.remote(0, 16));
    a.post(with_imm(write, 0x0102_0304));
    assert_eq!(a.sent_completion(), sent_bytes(&a, 3, 0, 2));
    let flags = 1 | 2 << 1 | 1 << 3 | 2 << 4;
    let (ahn, from) = (le16(to_a.attr().ahn.0), le16(a.qpn()));
    let expected = [&[9, 0, 0, flags][..], &le16(b.qpn()), &[16, 0], &ahn, &from, &[4, 3, 2, 1]].concat();
    assert_eq!(b.recv_cq.poll().unwrap(), expected);
    assert_eq!(unused.bytes(0, 8), [0; 8]);
}

#[test]
fn r22_an_unsolicited_write_consumes_no_receive_and_says_so() {
    let both = QpInit { unsolicited: true, ..init(ALL_OPS) };
    let Pair { mut a, mut b, to_b, to_a } = pair_with(config(Profile::UNSOLICITED), both, both);
    let (local, remote) = (a.region(4, MEMORY), b.region(4, MEMORY | Access::REMOTE_WRITE));
    let write = rdma(control1::OP_RDMA_WRITE, 3, &to_b, &b, local.buffer(0, 16), remote.remote(0, 16));
    a.post(with_imm(write, 7));
    assert_eq!(a.status(), 0);
    let flags = 1 | 2 << 1 | 1 << 3 | 2 << 4 | 1 << 7;
    let (ahn, from) = (le16(to_a.attr().ahn.0), le16(a.qpn()));
    let expected = [&[0, 0, 0, flags][..], &le16(b.qpn()), &[16, 0], &ahn, &from, &[7, 0, 0, 0]].concat();
    assert_eq!(b.recv_cq.poll().unwrap(), expected);
}

#[test]
fn r24_the_senders_gid_is_reported_only_where_no_handle_is_known_and_never_for_a_write() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let mut a = Side::new(&device, init(ALL_OPS), false);
    let mut b = Side::new(&device.neighbour().unwrap(), init(ALL_OPS), true);
    let to_b = a.ah(&b);
    let (source, target) = (a.region(8, MEMORY), b.region(8, MEMORY | Access::REMOTE_WRITE));
    for req_id in 0..3 {
        b.post_recv(req_id, &[target.buffer(0, 8)]);
    }
    a.post(send(0, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
    let unknown = b.recv_cq.poll().unwrap();
    assert_eq!((&unknown[8..10], &unknown[16..]), (&[0xFF, 0xFF][..], &a.device.gid().0[..]));
    let to_a = b.ah(&a);
    a.post(send(1, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
    let known = b.recv_cq.poll().unwrap();
    assert_eq!((&known[8..10], &known[16..]), (&le16(to_a.attr().ahn.0)[..], &[0; 16][..]));
    a.post(with_imm(rdma(2, 2, &to_b, &b, source.buffer(0, 8), target.remote(0, 8)), 1));
    assert_eq!(a.status(), 0);
    assert_eq!(b.recv_cq.poll().unwrap()[16..], [0; 16]);
}

#[test]
fn a_write_with_immediate_tells_its_length_in_32_bits_where_entries_have_32_bytes() {
    if cfg!(miri) {
        return;
    }
    let device = SoftDevice::new(config(Profile::RDMA));
    let mut a = Side::new(&device, init(ALL_OPS), false);
    let mut b = Side::new(&device, init(ALL_OPS), true);
    let (to_b, _to_a) = (a.ah(&b), b.ah(&a));
    let len = 3 * 1024 * 1024 + 40;
    let (source, target) = (a.region(len / 8, MEMORY), b.region(len / 8, MEMORY | Access::REMOTE_WRITE));
    source.fill(len - 5, b"last!");
    b.post_recv(0, &[target.buffer(0, 8)]);
    a.post(with_imm(rdma(2, 0, &to_b, &b, source.buffer(0, len as u32), target.remote(0, len as u32)), 1));
    assert_eq!(a.status(), 0);
    let told = b.recv_cq.poll().unwrap();
    assert_eq!(u32::from_le_bytes([told[6], told[7], told[16], told[17]]), len as u32);
    assert_eq!(target.bytes(len - 5, 5), b"last!");
}

#[test]
fn phases_flip_as_rings_wrap() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(1, MEMORY);
    for round in 0..if cfg!(miri) { 40 } else { 70_000u32 } {
        b.post_recv(round as u16, &[target.buffer(0, 8)]);
        a.post(send(round as u16, &to_b, &b, &[]));
        let sent = a.sent_completion();
        assert_eq!((&sent[..2], sent[2]), (&le16(round as u16)[..], 0), "round {round}");
        assert_eq!(b.recv_cq.poll().unwrap()[..2], le16(round as u16));
    }
}
