//! The software device, driven as raw hardware: entries are written as bytes into rings, doorbells rung, and
//! completions compared byte for byte. Nothing of core's own posting code is used here.

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::thread;

use efa_core::entry::{
    BufferDescriptor, RecvDescriptor, RemoteBuffer, SendEntry, control1, control2, descriptor_flags,
};
use efa_core::flags::{Access, QpAttrMask as Mask, SendOps};
use efa_core::memory::{DmaBuf, Mr, RawMemory, RawParts};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState, QpType, transition};
use efa_core::ring::{AtomicWord, Word};
use efa_core::soft::{Config, Profile, SoftCq, SoftDevice, SoftPd, SoftQp, Storage};
use efa_core::{CqInit, CqRing, Error, Gid, Limit, Limits, Provider, Qkey, QpInit, Queues, Verb};
use zerocopy::{FromZeros, IntoBytes};

// ---- memory ----

/// Boxed words as DMA memory.
struct Words(Box<[u64]>);

// SAFETY: a box's memory stays where it is; the parts are its own until rebuilt.
unsafe impl DmaBuf for Words {
    fn into_raw(self) -> RawParts {
        let len = self.0.len();
        let base = NonNull::new(Box::into_raw(self.0).cast::<u8>()).unwrap();
        RawParts { base, len: len * 8, extra: 0 }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        let words = std::ptr::slice_from_raw_parts_mut(parts.base.as_ptr().cast::<u64>(), parts.len / 8);
        // SAFETY: from `into_raw`, by the caller's word.
        Self(unsafe { Box::from_raw(words) })
    }
}

/// Registered memory that the test looks at while the device is quiet.
struct Region {
    mr: Mr,
}

impl Region {
    fn new(device: &SoftDevice, pd: &SoftPd, words: usize, access: Access) -> Self {
        Self::try_new(device, pd, words, access).unwrap()
    }

    fn try_new(device: &SoftDevice, pd: &SoftPd, words: usize, access: Access) -> Result<Self, Error> {
        let memory = RawMemory::new(Words(vec![0; words].into_boxed_slice()));
        // SAFETY: valid until given back, and looked at by this test only while nothing is in flight.
        let mr = unsafe { device.reg_mr(pd, memory, access) }.map_err(|(_, error)| error)?;
        Ok(Self { mr })
    }

    fn addr(&self) -> u64 {
        self.mr.attr().iova
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.mr.attr().base.as_ptr().wrapping_add(offset)
    }

    fn fill(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.mr.attr().len);
        // SAFETY: inside the region, which is quiet.
        unsafe { self.at(at).copy_from(bytes.as_ptr(), bytes.len()) }
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.mr.attr().len);
        // SAFETY: inside the region, which is quiet.
        unsafe { std::slice::from_raw_parts(self.at(at), len) }.to_vec()
    }

    fn buffer(&self, at: u64, len: u32) -> BufferDescriptor {
        BufferDescriptor {
            length: len.into(),
            lkey: self.mr.attr().lkey.0.into(),
            addr: self.addr().wrapping_add(at).into(),
        }
    }

    fn remote(&self, at: u64, len: u32) -> RemoteBuffer {
        RemoteBuffer {
            length: len.into(),
            rkey: self.mr.attr().rkey.0.into(),
            addr: self.addr().wrapping_add(at).into(),
        }
    }
}

// ---- a raw driver ----

/// A word of a ring, or of exposed memory, that lives and has it.
fn word<'a>(base: NonNull<AtomicWord>, nth: usize) -> &'a AtomicWord {
    // SAFETY: inside what lives, as every caller sees to; aligned, and atomic on both sides.
    unsafe { &*base.as_ptr().wrapping_add(nth) }
}

fn put(base: NonNull<AtomicWord>, at: usize, bytes: &[u8]) {
    for (nth, chunk) in bytes.chunks_exact(size_of::<Word>()).enumerate() {
        word(base, at / size_of::<Word>() + nth)
            .store(Word::from_le_bytes(chunk.try_into().unwrap()), Ordering::Relaxed);
    }
}

fn ring_bell(bell: NonNull<AtomicU32>, producer: u32) {
    fence(Ordering::Release);
    // SAFETY: the queue pair lives.
    unsafe { bell.as_ref() }.store(producer & 0xFFFF, Ordering::Relaxed);
}

struct Cursor {
    ring: CqRing,
    next: u32,
}

impl Cursor {
    fn poll(&mut self) -> Option<Vec<u8>> {
        let words = usize::from(self.ring.entry_size) / size_of::<Word>();
        let at = (self.next & (self.ring.entries - 1)) as usize * words;
        let word = |nth: usize| word(self.ring.base, at + nth).load(Ordering::Acquire);
        let phase = (self.next >> self.ring.entries.trailing_zeros() & 1) as u8 ^ 1;
        let first = word(0).to_le_bytes();
        if first[3] & 1 != phase {
            return None;
        }
        self.next = self.next.wrapping_add(1);
        Some((0..words).flat_map(|nth| word(nth).to_le_bytes()).collect())
    }
}

struct Side {
    device: SoftDevice,
    pd: SoftPd,
    qp: Option<SoftQp>,
    queues: Queues,
    qkey: u32,
    send_cq: Cursor,
    recv_cq: Cursor,
    cqs: (SoftCq, SoftCq),
    sent: u32,
    posted: u32,
}

const ALL_OPS: SendOps = SendOps::all();
const MEMORY: Access = Access::LOCAL_WRITE;

fn init(ops: SendOps) -> QpInit {
    QpInit { send_depth: 8, recv_depth: 8, send_sge: 2, recv_sge: 2, inline: 32, ops, unsolicited: false }
}

fn small() -> Limits {
    Limits { max_qp: 8, max_cq: 16, max_mr: 16, max_pd: 8, max_ah: 16, ..Config::LIMITS }
}

fn config(profile: Profile) -> Config {
    Config::new(profile).limits(small()).packets(64)
}

fn modify(device: &SoftDevice, qp: &mut SoftQp, state: QpState, mask: Mask, qkey: u32) -> Result<(), Error> {
    device.modify_qp(qp, &QpAttr { qkey: Qkey(qkey), ..QpAttr::to(state, mask | Mask::STATE) })
}

fn bring_up(device: &SoftDevice, qp: &mut SoftQp, qkey: u32) {
    modify(device, qp, QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY, qkey).unwrap();
    modify(device, qp, QpState::Rtr, Mask::empty(), 0).unwrap();
    modify(device, qp, QpState::Rts, Mask::SQ_PSN, 0).unwrap();
}

impl Side {
    fn new(device: &SoftDevice, init: QpInit, sgid: bool) -> Self {
        let pd = device.alloc_pd().unwrap();
        Self::in_domain(device, pd, init, sgid)
    }

    fn in_domain(device: &SoftDevice, pd: SoftPd, init: QpInit, sgid: bool) -> Self {
        static QKEYS: AtomicU32 = AtomicU32::new(0x1000_0001);
        let send = device.create_cq(&CqInit { entries: 16, sgid: false }).unwrap();
        let recv = device.create_cq(&CqInit { entries: 16, sgid }).unwrap();
        let mut qp = device.create_qp(&pd, &send, &recv, &init).unwrap();
        let qkey = QKEYS.fetch_add(1, Ordering::Relaxed);
        bring_up(device, &mut qp, qkey);
        Self {
            device: device.clone(),
            pd,
            queues: device.queues(&qp),
            qp: Some(qp),
            qkey,
            send_cq: Cursor { ring: device.completions(&send), next: 0 },
            recv_cq: Cursor { ring: device.completions(&recv), next: 0 },
            cqs: (send, recv),
            sent: 0,
            posted: 0,
        }
    }

    fn region(&self, words: usize, access: Access) -> Region {
        Region::new(&self.device, &self.pd, words, access)
    }

    fn ah(&self, to: &Self) -> Ah {
        self.device.create_ah(&self.pd, to.device.gid()).unwrap()
    }

    fn qpn(&self) -> u16 {
        self.queues.qpn.0
    }

    /// Writes an entry and rings.
    fn post(&mut self, entry: SendEntry) {
        self.write(entry);
        self.ring_send();
    }

    fn write(&mut self, mut entry: SendEntry) {
        let depth = self.queues.send.depth;
        entry.ctrl2 ^= (self.sent >> depth.trailing_zeros() & 1) as u8;
        put(self.queues.send.entries, (self.sent & (depth - 1)) as usize * 64, entry.as_bytes());
        self.sent += 1;
    }

    fn ring_send(&self) {
        ring_bell(self.queues.send.doorbell, self.sent);
    }

    fn post_recv(&mut self, req_id: u16, buffers: &[BufferDescriptor]) {
        for (nth, buffer) in buffers.iter().enumerate() {
            let first = if nth == 0 { descriptor_flags::FIRST } else { 0 };
            let last = if nth + 1 == buffers.len() { descriptor_flags::LAST } else { 0 };
            self.put_descriptor(RecvDescriptor {
                addr: buffer.addr,
                req_id: if nth == 0 { req_id } else { 0 }.into(),
                length: (buffer.length.get() as u16).into(),
                lkey_ctrl: (buffer.lkey.get() | first | last).into(),
            });
        }
        ring_bell(self.queues.recv.doorbell, self.posted);
    }

    fn put_descriptor(&mut self, descriptor: RecvDescriptor) {
        let at = (self.posted & (self.queues.recv.descriptors - 1)) as usize * 16;
        put(self.queues.recv.entries, at, descriptor.as_bytes());
        self.posted += 1;
    }

    fn modify(&mut self, state: QpState) {
        modify(&self.device, self.qp.as_mut().unwrap(), state, Mask::empty(), 0).unwrap();
    }

    fn destroy(&mut self) {
        self.device.destroy_qp(self.qp.as_mut().unwrap()).unwrap();
        self.qp = None;
    }

    /// Turns until a send completes; its status.
    fn status(&mut self) -> u8 {
        self.sent_completion()[2]
    }

    fn sent_completion(&mut self) -> Vec<u8> {
        for _ in 0..100 {
            self.device.progress();
            if let Some(entry) = self.send_cq.poll() {
                return entry;
            }
        }
        panic!("no completion")
    }
}

/// An entry to a peer, with no buffers.
fn entry(op: u8, req_id: u16, ah: &Ah, to: &Side) -> SendEntry {
    SendEntry {
        req_id: req_id.into(),
        ctrl1: op | control1::META_DESC,
        ctrl2: control2::FIXED,
        dest_qp_num: to.qpn().into(),
        ah: ah.attr().ahn.0.into(),
        qkey: to.qkey.into(),
        ..SendEntry::new_zeroed()
    }
}

fn send(req_id: u16, ah: &Ah, to: &Side, buffers: &[BufferDescriptor]) -> SendEntry {
    let mut entry = entry(control1::OP_SEND, req_id, ah, to);
    entry.length = (buffers.len() as u16).into();
    for (place, buffer) in entry.data.chunks_exact_mut(16).zip(buffers) {
        place.copy_from_slice(buffer.as_bytes());
    }
    entry
}

fn inline(req_id: u16, ah: &Ah, to: &Side, bytes: &[u8]) -> SendEntry {
    let mut entry = entry(control1::OP_SEND | control1::INLINE, req_id, ah, to);
    entry.length = (bytes.len() as u16).into();
    entry.data[..bytes.len()].copy_from_slice(bytes);
    entry
}

fn rdma(op: u8, req_id: u16, ah: &Ah, to: &Side, local: BufferDescriptor, remote: RemoteBuffer) -> SendEntry {
    let mut entry = entry(op, req_id, ah, to);
    entry.length = 1.into();
    entry.data[..16].copy_from_slice(remote.as_bytes());
    entry.data[16..].copy_from_slice(local.as_bytes());
    entry
}

fn with_imm(mut entry: SendEntry, imm: u32) -> SendEntry {
    entry.ctrl1 |= control1::HAS_IMM;
    entry.immediate = imm.into();
    entry
}

/// Two sides on two devices of one wire, each resolved by the other.
struct Pair {
    a: Side,
    b: Side,
    to_b: Ah,
    to_a: Ah,
}

fn pair_with(config: Config, a: QpInit, b: QpInit) -> Pair {
    let device = SoftDevice::new(config);
    let a = Side::new(&device, a, false);
    let b = Side::new(&device.neighbour().unwrap(), b, false);
    Pair { to_b: a.ah(&b), to_a: b.ah(&a), a, b }
}

fn pair() -> Pair {
    let device = init(ALL_OPS);
    pair_with(config(Profile::UNSOLICITED), device, device)
}

fn le16(value: u16) -> [u8; 2] {
    value.to_le_bytes()
}

/// The bytes of a send completion in the ring's first round.
fn sent_bytes(side: &Side, req_id: u16, status: u8, op: u8) -> Vec<u8> {
    [&le16(req_id)[..], &[status, 1 | 1 << 1 | op << 4], &le16(side.qpn()), &[0; 10]].concat()
}

// ---- golden bytes ----

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

// ---- statuses ----

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
    let Pair { mut a, mut b, to_b, .. } = pair();
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

// ---- order ----

fn arrivals(config: Config, count: u16) -> Vec<u16> {
    let both = QpInit { send_depth: 16, recv_depth: 16, ..init(ALL_OPS) };
    let Pair { mut a, mut b, to_b, .. } = pair_with(config, both, both);
    let target = b.region(1, MEMORY);
    for nth in 0..count {
        b.post_recv(nth, &[target.buffer(0, 8)]);
        a.write(with_imm(send(nth, &to_b, &b, &[]), nth.into()));
    }
    a.ring_send();
    (0..count).for_each(|_| assert_eq!(a.status(), 0));
    std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| u16::from_le_bytes([entry[12], entry[13]])).collect()
}

#[test]
fn r16_messages_arrive_in_any_order_by_default_the_same_for_the_same_seed() {
    let config = config(Profile::NONE);
    let only_sends = |config: Config| {
        // SENDs alone: the profile has no RDMA.
        let both = QpInit { send_depth: 16, recv_depth: 16, ..init(SendOps::SEND | SendOps::SEND_WITH_IMM) };
        let Pair { mut a, mut b, to_b, .. } = pair_with(config, both, both);
        let target = b.region(1, MEMORY);
        for nth in 0..12 {
            b.post_recv(nth, &[target.buffer(0, 8)]);
            a.write(with_imm(send(nth, &to_b, &b, &[]), nth.into()));
        }
        a.ring_send();
        (0..12).for_each(|_| assert_eq!(a.status(), 0));
        std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| entry[12].into()).collect::<Vec<u16>>()
    };
    let sorted: Vec<u16> = (0..12).collect();
    let first = only_sends(config);
    assert_ne!(first, sorted);
    assert_eq!(first.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), sorted);
    assert_eq!(only_sends(config), first);
    assert_ne!(only_sends(config.seed(2)), first);
    assert_eq!(arrivals(self::config(Profile::RDMA).shuffle(false), 12), sorted);
}

#[test]
fn what_does_not_fit_on_the_wire_waits_in_its_queue() {
    assert_eq!(arrivals(config(Profile::RDMA).shuffle(false).packets(3), 12), (0..12).collect::<Vec<u16>>());
}

// ---- control path ----

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
        QpState::Rts => 3,
        _ => 4,
    };
    for &(to, mask) in &path[..steps] {
        modify(device, qp, to, mask, 1).unwrap();
    }
    if state == QpState::Err {
        modify(device, qp, QpState::Err, Mask::empty(), 0).unwrap();
    }
}

#[test]
fn r01_every_transition_with_every_mask_is_answered_as_the_table_says() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(&CqInit { entries: 8, sgid: false }).unwrap());
    let mut qp = device.create_qp(&pd, &cq, &cq, &init(ALL_OPS)).unwrap();
    let bits: Vec<Mask> = Mask::all().iter().collect();
    // SQE is reached by no modify, and the device never enters it by itself.
    let reachable = QpState::ALL.into_iter().filter(|&state| state != QpState::Sqe);
    for from in reachable {
        for to in QpState::ALL {
            for chosen in (0..1u32 << bits.len()).step_by(if cfg!(miri) { 37 } else { 1 }) {
                let mask =
                    bits.iter().enumerate().filter(|(nth, _)| chosen >> nth & 1 != 0).map(|(_, &bit)| bit).collect();
                move_to(&device, &mut qp, from);
                let attr = QpAttr { cur_state: from, ..QpAttr::to(to, mask) };
                let allowed = transition(QpType::Srd, from, to).is_some_and(|row| row.allows(mask));
                let expected = if allowed { Ok(()) } else { Err(Error::Device { verb: Verb::ModifyQp, errno: 22 }) };
                assert_eq!(device.modify_qp(&mut qp, &attr), expected, "{from} to {to} with {mask:?}");
            }
        }
    }
}

#[test]
fn r01_wrong_values_are_answered_as_the_driver_does() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let (pd, cq) = (device.alloc_pd().unwrap(), device.create_cq(&CqInit { entries: 8, sgid: false }).unwrap());
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
    let refused = unsafe { device.reg_mr(&pd, odd(), Access::REMOTE_READ) }.unwrap_err().1;
    assert!(matches!(refused, Error::Misaligned { len: 15, .. }));
    // SAFETY: as above.
    assert!(unsafe { device.reg_mr(&pd, odd(), MEMORY) }.is_ok());
}

#[test]
fn r15_the_right_to_write_remotely_implies_the_local_one() {
    let Pair { b, .. } = pair();
    assert!(b.region(1, Access::REMOTE_WRITE).mr.attr().access.contains(Access::LOCAL_WRITE));
}

#[test]
fn what_is_above_a_limit_is_refused_with_both_numbers() {
    let limits =
        Limits { max_qp: 1, max_cq: 2, max_pd: 2, max_mr: 1, max_send_depth: 64, max_recv_depth: 64, ..small() };
    let device = SoftDevice::new(Config::new(Profile::READ).limits(limits));
    let pd = device.alloc_pd().unwrap();
    let cq = device.create_cq(&CqInit { entries: 3, sgid: true }).unwrap();
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
        device.create_cq(&CqInit { entries: 1 << 20, sgid: false }).map(drop).unwrap_err(),
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

// ---- lives ----

#[test]
fn everything_can_be_dropped_in_any_order() {
    for order in 0..6 {
        let device = SoftDevice::new(config(Profile::RDMA));
        let Side { device: again, pd, qp, cqs, .. } = Side::new(&device, init(ALL_OPS), false);
        let neighbour = device.neighbour().unwrap();
        let region = Region::new(&device, &pd, 4, MEMORY | Access::REMOTE_WRITE);
        let ah = device.create_ah(&pd, neighbour.gid()).unwrap();
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new((device, again)),
            Box::new(pd),
            Box::new(qp),
            Box::new(cqs),
            Box::new((region.mr.clone(), region.mr)),
            Box::new((ah, neighbour)),
        ];
        things.rotate_left(order);
        if order % 2 == 1 {
            things.reverse();
        }
        things.into_iter().for_each(drop);
    }
}

#[test]
fn memory_outlives_every_handle_but_its_own() {
    let region = {
        let Pair { a, .. } = pair();
        a.region(2, MEMORY)
    };
    region.fill(0, b"still here");
    assert_eq!(region.bytes(0, 10), b"still here");
}

#[test]
fn r34_a_queue_pair_that_cannot_be_destroyed_is_leaked_and_counted() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Config::new(Profile::RDMA).fail_destroy(2)).unwrap();
    let mut side = Side::new(&device, init(SendOps::SEND), false);
    let failed = device.destroy_qp(side.qp.as_mut().unwrap());
    assert_eq!(failed, Err(Error::Device { verb: Verb::DestroyQp, errno: 5 }));
    assert_eq!(device.leaks().queue_pairs(), 0, "whoever has the handle decides");
    let queues = side.queues;
    drop(side);
    assert_eq!(device.leaks().queue_pairs(), 1);
    let mut other = Side::new(&device, init(SendOps::SEND), false);
    assert_ne!(other.qpn(), queues.qpn.0, "it lives on");
    other.destroy();
    drop(other);
    assert_eq!(device.leaks().queue_pairs(), 1);
}

#[test]
fn r34_a_region_that_cannot_be_deregistered_keeps_its_memory_and_is_counted() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Config::new(Profile::RDMA).fail_deregister(1)).unwrap();
    let pd = device.alloc_pd().unwrap();
    let region = Region::new(&device, &pd, 4, MEMORY);
    let attr = *region.mr.attr();
    // A static keeps what is leaked here in reach, for leak checkers.
    static LEAKED: AtomicU32 = AtomicU32::new(0);
    LEAKED.store(attr.lkey.0, Ordering::Relaxed);
    drop(region);
    assert_eq!(device.leaks().regions(), 1);
    let other = Region::new(&device, &pd, 4, MEMORY);
    assert_ne!(other.mr.attr().lkey, attr.lkey);
    drop(other);
    assert_eq!(device.leaks().regions(), 1);
}

#[test]
fn a_static_device_starts_once_and_does_all_that_one_on_the_heap_does() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Profile::RDMA).unwrap();
    assert_eq!(NIC.start(Profile::RDMA).map(drop).unwrap_err(), Error::AlreadyStarted);
    for _ in 0..3 {
        let mut a = Side::new(&device, init(SendOps::SEND | SendOps::RDMA_WRITE), false);
        let mut b = Side::new(&device, init(SendOps::SEND), true);
        let (to_b, _to_a) = (a.ah(&b), b.ah(&a));
        let (source, target) = (a.region(2, MEMORY), b.region(2, MEMORY | Access::REMOTE_WRITE));
        source.fill(0, b"static memory..!");
        b.post_recv(0, &[target.buffer(0, 16)]);
        a.post(send(0, &to_b, &b, &[source.buffer(0, 7)]));
        assert_eq!((a.status(), b.recv_cq.poll().unwrap()[6]), (0, 7));
        a.post(rdma(2, 1, &to_b, &b, source.buffer(7, 9), target.remote(7, 9)));
        assert_eq!(a.status(), 0);
        assert_eq!(target.bytes(0, 16), b"static memory..!");
        let limits = device.limits();
        assert_eq!((limits.max_qp, limits.max_send_depth, limits.max_mr, limits.max_cqe), (2, 8, 4, 32));
        assert_eq!(
            device.create_qp(&a.pd, &a.cqs.0, &a.cqs.1, &init(SendOps::SEND)).map(drop).unwrap_err(),
            Error::Exhausted { what: Limit::QueuePairs, limit: 2 }
        );
    }
}

#[test]
fn a_wire_has_room_for_eight_devices() {
    static NIC: Storage<1, 1, 1> = Storage::new();
    let first = NIC.start(Profile::NONE).unwrap();
    let all: Vec<_> = (1..8).map(|_| first.neighbour().unwrap()).collect();
    assert_eq!(first.neighbour().map(drop).unwrap_err(), Error::Exhausted { what: Limit::Devices, limit: 8 });
    let gids: BTreeSet<_> = all.iter().map(Provider::gid).chain([first.gid()]).collect();
    assert_eq!(gids.len(), 8);
    assert_eq!(all[6].name(), "software7");
}

#[test]
fn counters_tell_what_was_moved() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let (local, remote) = (a.region(4, MEMORY), b.region(4, MEMORY | Access::REMOTE_READ | Access::REMOTE_WRITE));
    b.post_recv(0, &[remote.buffer(0, 8)]);
    a.post(send(0, &to_b, &b, &[local.buffer(0, 5)]));
    a.status();
    a.post(rdma(2, 0, &to_b, &b, local.buffer(0, 16), remote.remote(0, 16)));
    a.status();
    a.post(rdma(1, 0, &to_b, &b, local.buffer(0, 32), remote.remote(0, 32)));
    a.status();
    a.post(rdma(1, 0, &to_b, &b, local.buffer(0, 32), remote.remote(1, 32)));
    assert_eq!(a.status(), 7);
    let (a, b) = (a.device.counters(), b.device.counters());
    assert_eq!((a.tx_bytes, a.tx_pkts, a.rx_bytes, a.rx_pkts), (21, 2, 32, 1));
    assert_eq!((b.tx_bytes, b.tx_pkts, b.rx_bytes, b.rx_pkts), (32, 1, 21, 2));
    assert_eq!((a.send_wrs, a.send_bytes, b.recv_wrs, b.recv_bytes), (1, 5, 1, 5));
    assert_eq!((a.rdma_write_wrs, a.rdma_write_bytes, b.rdma_write_recv_bytes), (1, 16, 16));
    assert_eq!((a.rdma_read_wrs, a.rdma_read_bytes, b.rdma_read_resp_bytes, a.rdma_read_wr_err), (1, 32, 32, 1));
    assert_eq!((a.wr_errors, b.rx_drops), (1, 1));
}

// ---- threads ----

#[test]
fn one_thread_may_drive_the_device_while_others_post_and_look_at_exposed_memory() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let rounds = if cfg!(miri) { 12 } else { 20_000u32 };
    let (local, remote) = (a.region(4, MEMORY), b.region(4, MEMORY | Access::REMOTE_WRITE));
    let target = b.region(4, MEMORY);
    let (stop, driver) = (AtomicU32::new(0), a.device.clone());
    let look = remote.mr.clone();
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                driver.progress();
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                for nth in 0..32 / size_of::<Word>() {
                    std::hint::black_box(word(look.attr().base.cast(), nth).load(Ordering::Relaxed));
                }
                thread::yield_now();
            }
        });
        for round in 0..rounds {
            local.fill(0, &[round as u8; 32]);
            b.post_recv(round as u16, &[target.buffer(0, 32)]);
            a.write(send(0, &to_b, &b, &[local.buffer(0, 32)]));
            a.write(rdma(2, 1, &to_b, &b, local.buffer(0, 27), remote.remote(3, 27)));
            a.ring_send();
            for _ in 0..2 {
                let completion = loop {
                    if let Some(completion) = a.send_cq.poll() {
                        break completion;
                    }
                    thread::yield_now();
                };
                assert_eq!(completion[2], 0);
            }
            assert_eq!(b.recv_cq.poll().unwrap()[..2], le16(round as u16));
            assert_eq!(target.bytes(0, 32), [round as u8; 32]);
        }
        stop.store(1, Ordering::Release);
    });
    assert_eq!(remote.bytes(3, 27), [(rounds - 1) as u8; 27]);
}

#[test]
fn handles_may_be_made_and_dropped_while_another_thread_drives_the_device() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let stop = AtomicU32::new(0);
    let rounds = if cfg!(miri) { 4 } else { 2_000 };
    thread::scope(|scope| {
        let (driver, stop) = (device.clone(), &stop);
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                driver.progress();
                thread::yield_now();
            }
        });
        let workers = [(), ()].map(|()| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let side = Side::new(&device, init(ALL_OPS), true);
                    let region = side.region(2, MEMORY | Access::REMOTE_READ);
                    let ah = side.ah(&side);
                    assert_eq!(ah.attr().gid, device.gid());
                    drop((region, side));
                }
            })
        });
        let ends = workers.map(|worker| worker.join());
        stop.store(1, Ordering::Release);
        assert!(ends.iter().all(Result::is_ok));
    });
}
