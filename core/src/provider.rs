//! The hardware abstraction: what core asks of whoever drives a device.
//!
//! A provider makes and destroys the device's objects and says where a queue pair's rings are. The
//! entries in those rings are written and read by [`crate::ring`], the same way for every provider.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use crate::flags::Access;
use crate::memory::{MemoryKind, Mr, RawMemory};
use crate::peer::Ah;
use crate::qp::{QpAttr, QpState, QpType};
use crate::ring::{AtomicWord, Slot};
use crate::{Caps, DataPath, DeviceId, Error, Gid, Leaks, Limits, PdId, Qpn};

/// A driver of EFA devices.
///
/// Handles keep their parents: a queue pair keeps its domain and completion queues, an [`Mr`] its
/// domain, and everything keeps the device. Where nothing else is said the calls are safe because
/// a provider checks what it is given.
///
/// # Safety
/// Memory is freed on the word of a provider, so it promises that
/// 1. the device touches registered memory only after `reg_mr` and not after the [`Mr`]'s
///    deregistration returned `Ok`, and the provider itself none that is not visible to the CPU;
/// 2. it touches rings, and local memory on behalf of a queue pair, not after `destroy_qp` returned `Ok`;
/// 3. what [`Provider::queues`] and [`Provider::completions`] return is valid, of the sizes that it says, aligned,
///    exclusive to that queue pair or completion queue, and stays so while the `Qp` or `Cq` handle lives; rings and
///    doorbells of a queue pair until `destroy_qp` returned `Ok`, which may unmap them, its slots also after; each call
///    that makes one makes a new one, [`Notifies::create_cq_on`](crate::Notifies::create_cq_on) too;
/// 4. a send or receive completion is written once, after the device's last access to that request's memory;
/// 5. `reg_mr` that fails, and deregistration, give back the very memory that was registered;
/// 6. local keys have 24 bits (R13): what stands beside them in a descriptor is not the key's;
/// 7. `pd_id` and `device_id` are made by [`PdId::unique`] and [`DeviceId::unique`], once for each object;
/// 8. the device takes an entry only once a doorbell announced it, each once and in the order of the ring; a move to
///    RESET that returned `Ok`, and nothing else, makes it begin again with the first. What `query_qp` says is not
///    trusted.
pub unsafe trait Provider: Clone + Send + Sync + 'static {
    /// A protection domain; clones name the same one, the last one dropped frees it.
    type Pd: Clone + Send + Sync;
    /// A completion queue; clones name the same one, the last one dropped frees it.
    type Cq: Clone + Send;
    /// A queue pair. Dropped only after `destroy_qp` returned `Ok`; then its rings and slots are freed.
    type Qp: Send;

    /// The device's name, for messages and tools.
    fn name(&self) -> &str;
    /// The device, unique in the process.
    fn device_id(&self) -> DeviceId;
    /// What the device can do.
    fn caps(&self) -> Caps;
    /// How much of it.
    fn limits(&self) -> Limits;
    /// The device's address on its fabric.
    fn gid(&self) -> Gid;
    /// Random bits, for queue keys and incarnations.
    fn entropy(&self) -> u64;
    /// What could not be released so far.
    fn leaks(&self) -> &Leaks;
    /// How operations reach the device.
    fn data_path(&self) -> DataPath {
        DataPath::Direct
    }
    /// Lets a software device take its turn; nothing on hardware. Never blocks.
    #[inline(always)]
    fn progress(&self) {}
    /// Whether operations may go by a library's calls, as [`Provider::data_path`] says: if it is [`DataPath::Verbs`] of one
    /// with this, [`Provider::announced`] and [`Provider::collect`] are called, and else never.
    const BY_CALLS: bool = false;
    /// Entries of a queue pair's rings were announced: they are to be handed on. Never blocks.
    #[inline(always)]
    fn announced(&self, _qp: &Self::Qp) {}
    /// Whether the device is told what was consumed of its completion queues, by [`Provider::consumed`]: those with a
    /// doorbell, as they have for events.
    const HAS_CQ_DOORBELL: bool = false;
    /// So many entries of a completion queue were consumed so far; after each poll, of providers with
    /// [`Provider::HAS_CQ_DOORBELL`]. The last 16 bits are what a doorbell takes. Never blocks.
    #[inline(always)]
    fn consumed(&self, _cq: &Self::Cq, _consumed: u32) {}
    /// Of a completion queue's ring all was read, or is about to be: it is to be filled. Never blocks.
    #[inline(always)]
    fn collect(&self, _cq: &Self::Cq) {}

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Exhausted`] or what the device answered.
    fn alloc_pd(&self) -> Result<Self::Pd, Error>;
    /// The domain's identity.
    fn pd_id(pd: &Self::Pd) -> PdId;

    /// Registers memory; the region owns it until it is deregistered.
    ///
    /// # Errors
    /// [`Error::PageOffset`], [`Error::OpaqueMemory`] or what the device answered, with the memory.
    ///
    /// # Safety
    /// `memory` is valid for reads and writes of its length until it is given back, and reached by nothing
    /// else but through the region, atomically where it is shared or the access has a remote right; by the device alone
    /// if it is not visible.
    unsafe fn reg_mr(&self, pd: &Self::Pd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)>;

    /// What registration in a domain cost so far, where the provider counts; its time, where it has a clock.
    fn registrations(&self, _pd: &Self::Pd) -> Option<Registrations> {
        None
    }

    /// Makes, or counts, the address handle of `gid` in `pd`: one for each pair of them (R28).
    ///
    /// # Errors
    /// What the device answered.
    fn create_ah(&self, pd: &Self::Pd, gid: Gid) -> Result<Ah, Error>;

    /// Makes a completion queue.
    ///
    /// # Errors
    /// [`Error::Exhausted`], [`Error::AboveLimit`] or what the device answered.
    fn create_cq(&self, init: &CqInit) -> Result<Self::Cq, Error>;

    /// Makes a queue pair in RESET, each call with a generation that differs from the last of the same number.
    /// Depths are rounded up to powers of two and no further: completion queues are made for that (R17).
    /// Send entries have the size that `init` says: a queue pair with others is destroyed and refused with
    /// [`Error::EntrySize`].
    ///
    /// # Errors
    /// [`Error::Exhausted`], [`Error::AboveLimit`] or what the device answered.
    fn create_qp(&self, pd: &Self::Pd, send: &Self::Cq, recv: &Self::Cq, init: &QpInit) -> Result<Self::Qp, Error>;

    /// Moves a queue pair; the device checks the attributes.
    ///
    /// # Errors
    /// What the device answered; the state is then unchanged.
    fn modify_qp(&self, qp: &mut Self::Qp, attr: &QpAttr) -> Result<(), Error>;

    /// The state that a queue pair is in: a device moves one by itself, to SQE or ERR.
    ///
    /// # Errors
    /// What the device answered.
    fn query_qp(&self, qp: &Self::Qp) -> Result<QpState, Error>;

    /// Ends a queue pair: after `Ok` the device touches neither its rings nor, on its behalf, any memory, and nobody here
    /// touches its rings and doorbells.
    ///
    /// # Errors
    /// What the device answered; the queue pair must then be assumed to be alive.
    fn destroy_qp(&self, qp: &mut Self::Qp) -> Result<(), Error>;

    /// An unsolicited arrival (R22) of the queue pair was read. For software devices that watch for overruns:
    /// such arrivals are the only completions that no request bounds. Nothing on hardware.
    #[inline(always)]
    fn unsolicited_read(&self, _qp: &Self::Qp) {}

    /// The queue pair's rings, slots and identity.
    fn queues(&self, qp: &Self::Qp) -> Queues;
    /// The completion queue's ring.
    fn completions(&self, cq: &Self::Cq) -> CqRing;
}

/// What registration in a protection domain cost so far, what was deregistered since included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registrations {
    /// Regions that were registered.
    pub regions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it took in nanoseconds, where it was measured: the software device has no clock.
    pub nanoseconds: Option<u64>,
}

impl core::fmt::Display for Registrations {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { regions, bytes, nanoseconds } = self;
        let plural = if *regions == 1 { "" } else { "s" };
        write!(f, "{regions} registration{plural} of {bytes} bytes")?;
        match nanoseconds {
            Some(time) => write!(f, " in {} us", time / 1000),
            None => Ok(()),
        }
    }
}

/// What memory is registered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MrInit {
    /// The rights to it.
    pub access: Access,
    /// Where the device is to see the first byte: what the owner says, or its address, if nothing is said here.
    pub iova: Option<u64>,
    /// It is reached by others while operations on it are in flight, all of them by atomic words: so it is exposed, whatever
    /// the rights are.
    pub shared: bool,
}

impl MrInit {
    /// These rights, at the address that the owner of the memory knows it by.
    pub const fn new(access: Access) -> Self {
        Self { access, iova: None, shared: false }
    }

    /// Where the device will see the first byte of `memory`, on a machine with pages of so many bytes, a power of two.
    ///
    /// # Errors
    /// [`Error::PageOffset`] if that is elsewhere in a page than the memory, [`Error::OutOfBounds`] if the last byte
    /// would have no address.
    pub fn place(&self, memory: &RawMemory, page: u64) -> Result<u64, Error> {
        let parts = memory.parts();
        let address = parts.base.addr().get() as u64;
        let (memory, natural) = match memory.kind() {
            MemoryKind::File(file) => (file.offset, file.iova),
            _ => (address, address),
        };
        let (iova, len) = (self.iova.unwrap_or(natural), parts.len as u64);
        if (memory ^ iova) & page.wrapping_sub(1) != 0 {
            return Err(Error::PageOffset { memory, iova, page });
        }
        match iova.checked_add(len) {
            Some(_) => Ok(iova),
            None => Err(Error::OutOfBounds { offset: iova, len, within: u64::MAX }),
        }
    }
}

/// What a completion queue is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CqInit {
    /// Entries wanted; the device rounds up to a power of two.
    pub entries: u32,
    /// Report the sender's GID where the address handle is unknown: 32-byte entries (R24).
    pub sgid: bool,
    /// Tell arrivals that consume no receive: without it no queue pair with unsolicited receive may use it (R22).
    pub unsolicited: bool,
}

/// What a queue pair is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Its type. SRD is a driver type of EFA's own to the verbs, UD is theirs; UD has SEND and SEND with immediate
    /// for `ops`, and is never `unsolicited`.
    pub qp_type: QpType,
    /// Send queue entries wanted.
    pub send_depth: u32,
    /// Receives wanted.
    pub recv_depth: u32,
    /// Buffers of one SEND, 1 or 2.
    pub send_sge: u8,
    /// Buffers of one receive, 1 or 2.
    pub recv_sge: u8,
    /// Bytes of a send queue entry: 64, or 128 where the device has [`Caps::WIDE_ENTRIES`] (R10). libefa chooses
    /// 128 by itself if more than 32 inline bytes or inline writes are asked for, and only then.
    pub entry_size: u16,
    /// Inline bytes wanted of one SEND or inline write.
    pub inline: u16,
    /// Inline writes are posted (`EFADV_QP_FLAGS_INLINE_WRITE`, R10): only with 128-byte entries, and only where the
    /// device has [`Caps::INLINE_WRITE`].
    pub inline_write: bool,
    /// Operations it may post (`send_ops_flags`, R06).
    pub ops: crate::flags::SendOps,
    /// RDMA write with immediate consumes no receive here (R05).
    pub unsolicited: bool,
    /// The service level (`sl`), of SRD.
    pub service_level: u8,
}

impl QpInit {
    /// A queue pair of these operations and depths; no more than one buffer of each, 64-byte entries, and nothing inline.
    pub const fn new(qp_type: QpType, ops: crate::flags::SendOps, send_depth: u32, recv_depth: u32) -> Self {
        let (send_sge, recv_sge) = (1, 1);
        let (entry_size, inline, inline_write) = (64, 0, false);
        let (unsolicited, service_level) = (false, 0);
        Self {
            qp_type,
            send_depth,
            recv_depth,
            send_sge,
            recv_sge,
            entry_size,
            inline,
            inline_write,
            ops,
            unsolicited,
            service_level,
        }
    }
}

/// Where a queue pair's rings are: raw parts, good until it is destroyed, its slots while its `Qp` lives.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// Its number.
    pub qpn: Qpn,
    /// Its generation: goes into the request ids above the slot's index (R20).
    pub generation: u16,
    /// The send queue.
    pub send: SendRing,
    /// The receive queue.
    pub recv: RecvRing,
}

/// A send queue: write-only (never read back).
#[derive(Clone, Copy, Debug)]
pub struct SendRing {
    /// `depth` entries of `entry_size` bytes, in words.
    pub entries: NonNull<AtomicWord>,
    /// The producer counter's register.
    pub doorbell: NonNull<AtomicU32>,
    /// Entries: a power of two, at most 32768.
    pub depth: u32,
    /// Bytes of an entry: as [`QpInit::entry_size`] asked for.
    pub entry_size: u16,
    /// Entries, of that size, that one doorbell may announce, at least 1 (R18).
    pub max_batch: u16,
    /// Inline bytes of one SEND or inline write (R10).
    pub inline: u16,
    /// Whether request ids have 64 bits (`EFADV_WQ_CAPS_64_BIT_REQ_ID`): a completion of this queue then repeats
    /// bytes 26 to 32 of its entry in its own bytes 6 to 12, flushed or not, and what stands there here names the
    /// queue pair's life (R20).
    pub req_id_64: bool,
    /// `depth` slots for operations in flight, all vacant at first.
    pub slots: NonNull<Slot>,
}

/// A receive queue: 16-byte descriptors, one for each buffer (R19).
#[derive(Clone, Copy, Debug)]
pub struct RecvRing {
    /// `descriptors` entries of 16 bytes, in words.
    pub entries: NonNull<AtomicWord>,
    /// The producer counter's register.
    pub doorbell: NonNull<AtomicU32>,
    /// Descriptors: a power of two, at most 32768.
    pub descriptors: u32,
    /// Receives: a power of two, `descriptors / max_sge`.
    pub depth: u32,
    /// Buffers of one receive.
    pub max_sge: u8,
    /// `depth` slots for receives in flight, all vacant at first.
    pub slots: NonNull<Slot>,
}

/// A completion queue's ring.
#[derive(Clone, Copy, Debug)]
pub struct CqRing {
    /// `entries` entries of `entry_size` bytes, in words, zeroed at first.
    pub base: NonNull<AtomicWord>,
    /// Entries: a power of two, at most 32768.
    pub entries: u32,
    /// 16 or 32 bytes (R24).
    pub entry_size: u8,
}

impl CqRing {
    /// Whether entries have room for the sender's GID.
    pub(crate) fn reports_gid(&self) -> bool {
        self.entry_size == 32
    }
}
