//! From the library's completions to entries of core's.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use efa_core::CqRing;
use efa_core::entry::{completion_flags as flags, control1};

use super::WrId;
use super::shadow::CompletionRing;
use crate::ffi::*;

/// A completion queue's ring, which [`Completions::collect`] fills.
pub(crate) struct Completions {
    raw: NonNull<IbvCqEx>,
    readers: Readers,
    /// The reader of senders' GIDs, if the queue was made with it (R24).
    sgid: Option<(NonNull<EfadvCq>, ReadSgid)>,
    ring: Mutex<CompletionRing>,
    layout: CqRing,
}

type ReadSgid = unsafe extern "C" fn(*mut EfadvCq, *mut IbvGid) -> c_int;
type Read = unsafe extern "C" fn(*mut IbvCqEx) -> u32;

/// The calls that read a completion: all that the queue was made with (R31).
#[derive(Clone, Copy)]
struct Readers {
    start: unsafe extern "C" fn(*mut IbvCqEx, *mut IbvPollCqAttr) -> c_int,
    end: unsafe extern "C" fn(*mut IbvCqEx),
    opcode: unsafe extern "C" fn(*mut IbvCqEx) -> c_int,
    vendor_err: Read,
    byte_len: Read,
    imm: Read,
    qp_num: Read,
    src_qp: Read,
    flags: Read,
    slid: Read,
}

/// The fields that a completion queue must have been made with.
pub(crate) const FIELDS: u64 =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP | IBV_WC_EX_WITH_SLID;

// SAFETY: the library's queue is polled under the lock of the ring alone; the rest never changes.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    /// A ring for `entries` completions; `None` if the queue lacks a reader.
    ///
    /// # Safety
    /// `raw` is a completion queue made with [`FIELDS`], `efa` the same one to libefa if it was made with the sender's GID;
    /// they are so while this is used, and nobody else polls it.
    pub(crate) unsafe fn new(raw: NonNull<IbvCqEx>, efa: Option<NonNull<EfadvCq>>, entries: u32) -> Option<Self> {
        // SAFETY: by the caller's word; the calls never change.
        let calls = unsafe { raw.read() };
        let readers = Readers {
            start: calls.start_poll?,
            end: calls.end_poll?,
            opcode: calls.read_opcode?,
            vendor_err: calls.read_vendor_err?,
            byte_len: calls.read_byte_len?,
            imm: calls.read_imm_data?,
            qp_num: calls.read_qp_num?,
            src_qp: calls.read_src_qp?,
            flags: calls.read_wc_flags?,
            slid: calls.read_slid?,
        };
        let sgid = match efa {
            Some(efa) => {
                // SAFETY: by the caller's word; the call never changes.
                let read = unsafe { (*efa.as_ptr()).wc_read_sgid };
                Some((efa, read?))
            }
            None => None,
        };
        let entries = entries.max(1).next_power_of_two();
        let entry_size = if sgid.is_some() { 32 } else { 16 };
        let ring = CompletionRing::new(entries, entry_size);
        let layout = CqRing { base: ring.words.base(), entries, entry_size };
        Some(Self { raw, readers, sgid, ring: Mutex::new(ring), layout })
    }

    /// Where core reads.
    pub(crate) fn layout(&self) -> CqRing {
        self.layout
    }

    fn lock(&self) -> MutexGuard<'_, CompletionRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps everybody from polling meanwhile, where the library does not.
    pub(crate) fn hold(&self) -> impl Sized + '_ {
        self.lock()
    }

    /// Writes a completion of what the library never took.
    pub(super) fn push(&self, head: u64) {
        self.lock().push([head, 0, 0, 0]);
    }

    /// Takes what the library has.
    ///
    /// Each completion in a session of its own: after one of a queue pair that is gone, which is an error in the middle of a session,
    /// some releases of libefa go wrong at its end.
    pub(crate) fn collect(&self) {
        let mut ring = self.lock();
        for _ in 0..self.layout.entries {
            let mut attr = IbvPollCqAttr { comp_mask: 0 };
            // SAFETY: a live queue, polled under the lock by this alone, and no session is open.
            match unsafe { (self.readers.start)(self.raw.as_ptr(), &mut attr) } {
                0 => {
                    ring.push(self.read());
                    // SAFETY: the session that was begun, which ends here.
                    unsafe { (self.readers.end)(self.raw.as_ptr()) };
                }
                libc::ENOENT => return,
                // Of a queue pair that is gone: it was consumed, and nothing here waits for it (H31).
                _ => {}
            }
        }
    }

    /// The completion of the session that is open.
    fn read(&self) -> [u64; 4] {
        let raw = self.raw.as_ptr();
        // SAFETY: in a session; the field is written by its beginning.
        let wr_id = WrId(unsafe { (*raw).wr_id });
        let read = |reader: Read| {
            // SAFETY: in a session, of a queue that was made with this reader.
            unsafe { reader(raw) }
        };
        let (status, qpn) = (read(self.readers.vendor_err) as u8, read(self.readers.qp_num) as u16);
        let has_imm = read(self.readers.flags) & IBV_WC_WITH_IMM != 0;
        let mut more = if has_imm { flags::HAS_IMM } else { 0 };
        if !wr_id.is_recv() {
            return [wr_id.head(status, more, qpn), 0, 0, 0];
        }
        // SAFETY: likewise.
        if unsafe { (self.readers.opcode)(raw) } == IBV_WC_RECV_RDMA_WITH_IMM {
            more |= control1::OP_RDMA_WRITE << flags::OP_SHIFT;
        }
        let len = read(self.readers.byte_len);
        // The sender's address handle number stands where InfiniBand has the sender's port.
        let (ah, src_qp) = (read(self.readers.slid) as u16, read(self.readers.src_qp) as u16);
        let imm = if has_imm { u32::from_be(read(self.readers.imm)) } else { 0 };
        let head = wr_id.head(status, more, qpn) | u64::from(len as u16) << 48;
        let second = u64::from(ah) | u64::from(src_qp) << 16 | u64::from(imm) << 32;
        let [third, fourth] = match self.sgid {
            Some(_) if more & flags::OP_MASK != 0 => [u64::from(len >> 16), 0],
            Some((efa, read_sgid)) if ah == u16::MAX => Self::sgid(efa, read_sgid),
            _ => [0, 0],
        };
        [head, second, third, fourth]
    }

    fn sgid(efa: NonNull<EfadvCq>, read: ReadSgid) -> [u64; 2] {
        let mut gid = IbvGid { raw: IbvGidBytes([0; 16]) };
        // SAFETY: in a session of that queue, and a struct of ours. It stays zeros where there is none.
        unsafe { read(efa.as_ptr(), &mut gid) };
        let [first, second] = [0, 8].map(|at| core::array::from_fn(|byte| gid.raw.0[at + byte]));
        [u64::from_le_bytes(first), u64::from_le_bytes(second)]
    }
}
