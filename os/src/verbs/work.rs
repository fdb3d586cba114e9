//! A send entry of core's, and the session in which it is posted through the library.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::ptr::NonNull;

use efa_core::entry::control1;

use super::WrId;
use crate::error::answer;
use crate::ffi::*;

/// A send entry, read: see [`efa_core::entry::SendEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) req_id: u16,
    pub(super) op: u8,
    pub(super) ah: u16,
    qpn: u16,
    qkey: u32,
    imm: Option<u32>,
    /// Bytes if inline, else buffers.
    length: u16,
    inline: bool,
    data: [u64; 4],
}

impl Work {
    pub(super) fn read(quads: [u64; 8]) -> Self {
        let [head, second, third, _, data @ ..] = quads;
        let ctrl1 = (head >> 16) as u8;
        Self {
            req_id: head as u16,
            op: ctrl1 & control1::OP_MASK,
            qpn: (head >> 32) as u16,
            length: (head >> 48) as u16,
            imm: (ctrl1 & control1::HAS_IMM != 0).then_some(second as u32),
            ah: (second >> 32) as u16,
            qkey: third as u32,
            inline: ctrl1 & control1::INLINE != 0,
            data,
        }
    }

    pub(super) fn wr_id(&self) -> WrId {
        WrId::send(self.req_id, self.op)
    }

    /// The buffers of a SEND, and how many.
    fn buffers(&self) -> ([IbvSge; 2], usize) {
        let [first, first_addr, second, second_addr] = self.data;
        ([sge(first, first_addr), sge(second, second_addr)], usize::from(self.length.min(2)))
    }

    /// The remote key and address of RDMA, and its local buffer.
    fn rdma(&self) -> (u32, u64, IbvSge) {
        let [remote, remote_addr, local, local_addr] = self.data;
        ((remote >> 32) as u32, remote_addr, sge(local, local_addr))
    }
}

fn sge(length_and_key: u64, addr: u64) -> IbvSge {
    IbvSge { addr, length: length_and_key as u32, lkey: (length_and_key >> 32) as u32 }
}

/// A queue pair with the calls that post on it, all there; operations that it was not made with have none (R06).
#[derive(Clone, Copy)]
pub(super) struct Extended {
    raw: NonNull<IbvQpEx>,
    calls: IbvQpEx,
}

impl Extended {
    /// # Safety
    /// `raw` is a queue pair that was made with operations, and is so while this is used.
    pub(super) unsafe fn of(raw: NonNull<IbvQpEx>) -> Self {
        // SAFETY: by the caller's word; nobody posts on it yet.
        let calls = unsafe { raw.read() };
        Self { raw, calls }
    }

    /// Begins a session, which is completed or aborted, and holds the send queue's lock meanwhile (R32).
    pub(super) fn start(&self) -> Option<Session<'_>> {
        let start = self.calls.wr_start?;
        // Whoever begins must be able to end.
        let (complete, abort) = (self.calls.wr_complete?, self.calls.wr_abort?);
        // SAFETY: a live queue pair, and no session is open: it would borrow this, which its one user has.
        unsafe { start(self.raw.as_ptr()) };
        Some(Session { qp: self, complete, abort, open: true })
    }
}

/// An open session; aborted if it is dropped.
pub(super) struct Session<'q> {
    qp: &'q Extended,
    complete: unsafe extern "C" fn(*mut IbvQpEx) -> c_int,
    abort: unsafe extern "C" fn(*mut IbvQpEx),
    open: bool,
}

impl Session<'_> {
    fn raw(&self) -> *mut IbvQpEx {
        self.qp.raw.as_ptr()
    }

    /// Adds an operation; `None` if the queue pair was not made with it: nothing was added then.
    ///
    /// # Safety
    /// `ah` is a live address handle of the queue pair's domain.
    pub(super) unsafe fn push(&mut self, work: &Work, ah: NonNull<IbvAh>) -> Option<()> {
        let calls = &self.qp.calls;
        let (set_address, set_buffers) = (calls.wr_set_ud_addr?, calls.wr_set_sge_list?);
        let set_inline = calls.wr_set_inline_data?;
        // SAFETY: a field of a live queue pair, whose lock this session holds.
        unsafe { (*self.raw()).wr_id = work.wr_id().0 };
        // SAFETY: likewise. Every operation is signaled by the queue pair's own making (R08).
        unsafe { (*self.raw()).wr_flags = 0 };
        let (remote_key, remote_addr, local) = work.rdma();
        let (mut buffers, mut count) = work.buffers();
        // The verbs have immediates in the network's byte order, the device in the host's (R13).
        match (work.op, work.imm.map(u32::to_be)) {
            (control1::OP_SEND, None) => {
                let send = calls.wr_send?;
                // SAFETY: in a session of a live queue pair.
                unsafe { send(self.raw()) };
            }
            (control1::OP_SEND, Some(imm)) => {
                let send = calls.wr_send_imm?;
                // SAFETY: likewise.
                unsafe { send(self.raw(), imm) };
            }
            (control1::OP_RDMA_READ, _) => {
                let read = calls.wr_rdma_read?;
                (buffers[0], count) = (local, 1);
                // SAFETY: likewise; the device checks key and address.
                unsafe { read(self.raw(), remote_key, remote_addr) };
            }
            (control1::OP_RDMA_WRITE, None) => {
                let write = calls.wr_rdma_write?;
                (buffers[0], count) = (local, 1);
                // SAFETY: likewise.
                unsafe { write(self.raw(), remote_key, remote_addr) };
            }
            (control1::OP_RDMA_WRITE, Some(imm)) => {
                let write = calls.wr_rdma_write_imm?;
                (buffers[0], count) = (local, 1);
                // SAFETY: likewise.
                unsafe { write(self.raw(), remote_key, remote_addr, imm) };
            }
            _ => return None,
        }
        // SAFETY: an operation was begun; the address handle is live by the caller's word.
        unsafe { set_address(self.raw(), ah.as_ptr(), work.qpn.into(), work.qkey) };
        if work.inline {
            let mut bytes = [0u8; 32];
            for (to, from) in bytes.iter_mut().zip(work.data.iter().flat_map(|quad| quad.to_le_bytes())) {
                *to = from;
            }
            let len = usize::from(work.length).min(bytes.len());
            // SAFETY: an operation was begun, and so many bytes are there; they are copied.
            unsafe { set_inline(self.raw(), bytes.as_mut_ptr().cast(), len) };
        } else {
            // SAFETY: an operation was begun, and so many buffers are there, which are copied. What they name is registered and in
            // flight, by core's own rules.
            unsafe { set_buffers(self.raw(), count, buffers.as_ptr()) };
        }
        Some(())
    }

    /// Sends all out that was added, or none of it.
    ///
    /// # Errors
    /// The errno.
    pub(super) fn complete(mut self) -> Result<(), c_int> {
        self.open = false;
        // SAFETY: this session is open, and ends here.
        answer(unsafe { (self.complete)(self.raw()) })
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.open {
            // SAFETY: this session is open, and ends here.
            unsafe { (self.abort)(self.raw()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_core_writes_it() {
        let head = 0x0102 | u64::from(control1::OP_RDMA_WRITE | control1::HAS_IMM | 0x80) << 16 | 7 << 32 | 1 << 48;
        let quads = [head, 0x8000_0001 | 9 << 32, 0x55, 0, 64 | 0xAAAA << 32, 0x1000, 64 | 0xBB << 32, 0x2000];
        let work = Work::read(quads);
        assert_eq!((work.req_id, work.op, work.qpn, work.ah), (0x0102, control1::OP_RDMA_WRITE, 7, 9));
        assert_eq!((work.imm, work.qkey, work.inline, work.length), (Some(0x8000_0001), 0x55, false, 1));
        let (key, addr, local) = work.rdma();
        assert_eq!((key, addr, local.addr, local.length, local.lkey), (0xAAAA, 0x1000, 0x2000, 64, 0xBB));
    }
}
