//! A raw driver: memory, entries written as bytes, doorbells, completions as they lie in the ring.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use efa_core::entry::{
    BufferDescriptor, RecvDescriptor, RemoteBuffer, SendEntry, control1, control2, descriptor_flags,
};
use efa_core::flags::{Access, QpAttrMask as Mask, SendOps};
use efa_core::memory::{DmaBuf, Mr, RawMemory, RawParts, Visible};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::ring::{AtomicWord, Word};
use efa_core::soft::{Config, Profile, SoftCq, SoftDevice, SoftPd, SoftQp};
use efa_core::{CqInit, CqRing, Error, Limits, MrInit, Provider, Qkey, QpInit, Queues};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Boxed words as DMA memory.
pub(crate) struct Words(pub(crate) Box<[u64]>);

// SAFETY: a box's memory stays where it is; the parts are its own until rebuilt.
unsafe impl DmaBuf for Words {
    type View = Visible;

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
pub(crate) struct Region {
    pub(crate) mr: Mr,
}

impl Region {
    pub(crate) fn new(device: &SoftDevice, pd: &SoftPd, words: usize, access: Access) -> Self {
        Self::try_new(device, pd, words, access).unwrap()
    }

    pub(crate) fn try_new(device: &SoftDevice, pd: &SoftPd, words: usize, access: Access) -> Result<Self, Error> {
        let memory = RawMemory::new(Words(vec![0; words].into_boxed_slice()));
        // SAFETY: valid until given back, and looked at by this test only while nothing is in flight.
        let mr = unsafe { device.reg_mr(pd, memory, &MrInit::new(access)) }.map_err(|(_, error)| error)?;
        Ok(Self { mr })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.mr.attr().iova
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        self.mr.attr().base.as_ptr().wrapping_add(offset)
    }

    pub(crate) fn fill(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.mr.attr().len);
        // SAFETY: inside the region, which is quiet.
        unsafe { self.at(at).copy_from(bytes.as_ptr(), bytes.len()) }
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.mr.attr().len);
        // SAFETY: inside the region, which is quiet.
        unsafe { std::slice::from_raw_parts(self.at(at), len) }.to_vec()
    }

    pub(crate) fn buffer(&self, at: u64, len: u32) -> BufferDescriptor {
        BufferDescriptor {
            length: len.into(),
            lkey: self.mr.attr().lkey.0.into(),
            addr: self.addr().wrapping_add(at).into(),
        }
    }

    pub(crate) fn remote(&self, at: u64, len: u32) -> RemoteBuffer {
        RemoteBuffer {
            length: len.into(),
            rkey: self.mr.attr().rkey.0.into(),
            addr: self.addr().wrapping_add(at).into(),
        }
    }
}

/// A word of a ring, or of exposed memory, that lives and has it.
pub(crate) fn word<'a>(base: NonNull<AtomicWord>, nth: usize) -> &'a AtomicWord {
    // SAFETY: inside what lives, as every caller sees to; aligned, and atomic on both sides.
    unsafe { &*base.as_ptr().wrapping_add(nth) }
}

pub(crate) fn put(base: NonNull<AtomicWord>, at: usize, bytes: &[u8]) {
    for (nth, chunk) in bytes.chunks_exact(size_of::<Word>()).enumerate() {
        word(base, at / size_of::<Word>() + nth)
            .store(Word::from_le_bytes(chunk.try_into().unwrap()), Ordering::Relaxed);
    }
}

pub(crate) fn ring_bell(bell: NonNull<AtomicU32>, producer: u32) {
    fence(Ordering::Release);
    // SAFETY: the queue pair lives.
    unsafe { bell.as_ref() }.store(producer & 0xFFFF, Ordering::Relaxed);
}

pub(crate) struct Cursor {
    pub(crate) ring: CqRing,
    pub(crate) next: u32,
}

impl Cursor {
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
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

pub(crate) struct Side {
    pub(crate) device: SoftDevice,
    pub(crate) pd: SoftPd,
    pub(crate) qp: Option<SoftQp>,
    pub(crate) queues: Queues,
    pub(crate) qkey: u32,
    pub(crate) send_cq: Cursor,
    pub(crate) recv_cq: Cursor,
    pub(crate) cqs: (SoftCq, SoftCq),
    pub(crate) sent: u32,
    pub(crate) posted: u32,
}

pub(crate) const ALL_OPS: SendOps = SendOps::all();
pub(crate) const MEMORY: Access = Access::LOCAL_WRITE;

pub(crate) fn init(ops: SendOps) -> QpInit {
    QpInit { send_sge: 2, recv_sge: 2, inline: 32, ..QpInit::new(QpType::Srd, ops, 8, 8) }
}

pub(crate) fn small() -> Limits {
    Limits { max_qp: 8, max_cq: 16, max_mr: 16, max_pd: 8, max_ah: 16, ..Config::LIMITS }
}

pub(crate) fn config(profile: Profile) -> Config {
    Config::new(profile).limits(small()).packets(64)
}

pub(crate) fn modify(device: &SoftDevice, qp: &mut SoftQp, state: QpState, mask: Mask, qkey: u32) -> Result<(), Error> {
    device.modify_qp(qp, &QpAttr { qkey: Qkey(qkey), ..QpAttr::to(state, mask | Mask::STATE) })
}

pub(crate) fn bring_up(device: &SoftDevice, qp: &mut SoftQp, qkey: u32) {
    modify(device, qp, QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY, qkey).unwrap();
    modify(device, qp, QpState::Rtr, Mask::empty(), 0).unwrap();
    modify(device, qp, QpState::Rts, Mask::SQ_PSN, 0).unwrap();
}

impl Side {
    pub(crate) fn new(device: &SoftDevice, init: QpInit, sgid: bool) -> Self {
        let pd = device.alloc_pd().unwrap();
        Self::in_domain(device, pd, init, sgid)
    }

    pub(crate) fn in_domain(device: &SoftDevice, pd: SoftPd, init: QpInit, sgid: bool) -> Self {
        static QKEYS: AtomicU32 = AtomicU32::new(0x1000_0001);
        let send = device.create_cq(&CqInit { entries: 16, sgid: false, unsolicited: false }).unwrap();
        let recv = device.create_cq(&CqInit { entries: 16, sgid, unsolicited: init.unsolicited }).unwrap();
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

    pub(crate) fn region(&self, words: usize, access: Access) -> Region {
        Region::new(&self.device, &self.pd, words, access)
    }

    pub(crate) fn ah(&self, to: &Self) -> Ah {
        self.device.create_ah(&self.pd, to.device.gid()).unwrap()
    }

    pub(crate) fn qpn(&self) -> u16 {
        self.queues.qpn.0
    }

    /// Writes an entry, of either size, and rings.
    pub(crate) fn post(&mut self, entry: impl IntoBytes + Immutable) {
        self.write(entry);
        self.ring_send();
    }

    pub(crate) fn write(&mut self, entry: impl IntoBytes + Immutable) {
        let (depth, mut bytes) = (self.queues.send.depth, entry.as_bytes().to_vec());
        assert_eq!(bytes.len(), usize::from(self.queues.send.entry_size));
        bytes[3] ^= (self.sent >> depth.trailing_zeros() & 1) as u8;
        put(self.queues.send.entries, (self.sent & (depth - 1)) as usize * bytes.len(), &bytes);
        self.sent += 1;
    }

    pub(crate) fn ring_send(&self) {
        ring_bell(self.queues.send.doorbell, self.sent);
    }

    pub(crate) fn post_recv(&mut self, req_id: u16, buffers: &[BufferDescriptor]) {
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

    pub(crate) fn put_descriptor(&mut self, descriptor: RecvDescriptor) {
        let at = (self.posted & (self.queues.recv.descriptors - 1)) as usize * 16;
        put(self.queues.recv.entries, at, descriptor.as_bytes());
        self.posted += 1;
    }

    pub(crate) fn modify(&mut self, state: QpState) {
        modify(&self.device, self.qp.as_mut().unwrap(), state, Mask::empty(), 0).unwrap();
    }

    pub(crate) fn destroy(&mut self) {
        self.device.destroy_qp(self.qp.as_mut().unwrap()).unwrap();
        self.qp = None;
    }

    /// Turns until a send completes; its status.
    pub(crate) fn status(&mut self) -> u8 {
        self.sent_completion()[2]
    }

    pub(crate) fn sent_completion(&mut self) -> Vec<u8> {
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
pub(crate) fn entry(op: u8, req_id: u16, ah: &Ah, to: &Side) -> SendEntry {
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

pub(crate) fn send(req_id: u16, ah: &Ah, to: &Side, buffers: &[BufferDescriptor]) -> SendEntry {
    let mut entry = entry(control1::OP_SEND, req_id, ah, to);
    entry.length = (buffers.len() as u16).into();
    for (place, buffer) in entry.data.chunks_exact_mut(16).zip(buffers) {
        place.copy_from_slice(buffer.as_bytes());
    }
    entry
}

pub(crate) fn inline(req_id: u16, ah: &Ah, to: &Side, bytes: &[u8]) -> SendEntry {
    let mut entry = entry(control1::OP_SEND | control1::INLINE, req_id, ah, to);
    entry.length = (bytes.len() as u16).into();
    entry.data[..bytes.len()].copy_from_slice(bytes);
    entry
}

pub(crate) fn rdma(
    op: u8,
    req_id: u16,
    ah: &Ah,
    to: &Side,
    local: BufferDescriptor,
    remote: RemoteBuffer,
) -> SendEntry {
    let mut entry = entry(op, req_id, ah, to);
    entry.length = 1.into();
    entry.data[..16].copy_from_slice(remote.as_bytes());
    entry.data[16..].copy_from_slice(local.as_bytes());
    entry
}

pub(crate) fn with_imm(mut entry: SendEntry, imm: u32) -> SendEntry {
    entry.ctrl1 |= control1::HAS_IMM;
    entry.immediate = imm.into();
    entry
}

/// Two sides on two devices of one wire, each resolved by the other.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) to_b: Ah,
    pub(crate) to_a: Ah,
}

pub(crate) fn pair_with(config: Config, a: QpInit, b: QpInit) -> Pair {
    let device = SoftDevice::new(config);
    let a = Side::new(&device, a, false);
    let b = Side::new(&device.neighbour().unwrap(), b, false);
    Pair { to_b: a.ah(&b), to_a: b.ah(&a), a, b }
}

pub(crate) fn pair() -> Pair {
    let device = init(ALL_OPS);
    pair_with(config(Profile::UNSOLICITED), device, device)
}

pub(crate) fn le16(value: u16) -> [u8; 2] {
    value.to_le_bytes()
}

/// The bytes of a send completion in the ring's first round.
pub(crate) fn sent_bytes(side: &Side, req_id: u16, status: u8, op: u8) -> Vec<u8> {
    [&le16(req_id)[..], &[status, 1 | 1 << 1 | op << 4], &le16(side.qpn()), &[0; 10]].concat()
}
