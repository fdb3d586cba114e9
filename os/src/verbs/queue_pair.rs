//! From the entries that core announced to calls of the library.

#![allow(unsafe_code)]

use core::cell::Cell;
use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use efa_core::entry::descriptor_flags;
use efa_core::ring::AtomicWord;
use efa_core::status::CompletionStatus;

use super::shadow::WorkRing;
use super::work::{Extended, Work};
use super::{Completions, WrId};
use crate::ffi::*;

/// The rings of a queue pair that is posted on through the library.
pub(crate) struct QueuePair {
    raw: NonNull<IbvQp>,
    extended: Extended,
    post_recv: PostRecv,
    qpn: u16,
    send: WorkRing,
    recv: WorkRing,
    /// Entries taken so far.
    sent: Cell<u16>,
    received: Cell<u16>,
}

impl QueuePair {
    /// # Safety
    /// `raw` is a queue pair made with operations, `extended` the same one, `post_recv` its context's call; they are
    /// so while [`QueuePair::announced`] is called.
    pub(crate) unsafe fn new(
        raw: NonNull<IbvQp>,
        extended: NonNull<IbvQpEx>,
        post_recv: PostRecv,
        qpn: u16,
        sends: u32,
        descriptors: u32,
    ) -> Self {
        Self {
            raw,
            // SAFETY: by the caller's word.
            extended: unsafe { Extended::of(extended) },
            post_recv,
            qpn,
            send: WorkRing::new(sends, 8),
            recv: WorkRing::new(descriptors, 2),
            sent: Cell::new(0),
            received: Cell::new(0),
        }
    }

    /// Where core writes send entries, and the doorbell for them.
    pub(crate) fn send_ring(&self) -> (NonNull<AtomicWord>, NonNull<AtomicU32>) {
        (self.send.words.base(), self.send.doorbell())
    }

    /// Where core writes receive descriptors, and the doorbell for them.
    pub(crate) fn recv_ring(&self) -> (NonNull<AtomicWord>, NonNull<AtomicU32>) {
        (self.recv.words.base(), self.recv.doorbell())
    }

    /// Begins with the first entries again, after a move to RESET.
    pub(crate) fn reset(&self) {
        self.send.reset();
        self.recv.reset();
        self.sent.set(0);
        self.received.set(0);
    }

    /// Posts what was announced. What the library refuses completes with a status.
    ///
    /// # Safety
    /// The queue pair is alive, and `ah` gives live address handles of its domain by their number.
    pub(crate) unsafe fn announced(
        &self,
        ah: impl Fn(u16) -> Option<NonNull<IbvAh>>,
        send_cq: &Completions,
        recv_cq: &Completions,
    ) {
        let count = self.send.announced(self.sent.get());
        if count > 0 {
            let first = self.sent.replace(self.sent.get().wrapping_add(count));
            // SAFETY: by the caller's word.
            unsafe { self.post_sends(first, count, &ah, send_cq) };
        }
        self.post_receives(recv_cq);
    }

    /// All in one session, with one doorbell of the device's; if that is refused, one by one, to know which it was.
    unsafe fn post_sends(&self, first: u16, count: u16, ah: &impl Fn(u16) -> Option<NonNull<IbvAh>>, cq: &Completions) {
        // SAFETY: by the caller's word.
        if count > 1 && unsafe { self.post_together(first, count, ah) }.is_some() {
            return;
        }
        for nth in 0..count {
            let work = Work::read(self.send.entry(first.wrapping_add(nth)));
            // SAFETY: by the caller's word.
            if let Err(status) = unsafe { self.post_one(&work, ah) } {
                cq.push(work.wr_id().head(status.number(), 0, self.qpn));
            }
        }
    }

    unsafe fn post_together(&self, first: u16, count: u16, ah: &impl Fn(u16) -> Option<NonNull<IbvAh>>) -> Option<()> {
        let mut session = self.extended.start()?;
        for nth in 0..count {
            let work = Work::read(self.send.entry(first.wrapping_add(nth)));
            let ah = ah(work.ah)?;
            // SAFETY: by the caller's word.
            unsafe { session.push(&work, ah) }?;
        }
        session.complete().ok()
    }

    unsafe fn post_one(
        &self,
        work: &Work,
        ah: &impl Fn(u16) -> Option<NonNull<IbvAh>>,
    ) -> Result<(), CompletionStatus> {
        let ah = ah(work.ah).ok_or(CompletionStatus::LocalInvalidAh)?;
        let mut session = self.extended.start().ok_or(CompletionStatus::LocalUnsupportedOp)?;
        // SAFETY: by the caller's word.
        unsafe { session.push(work, ah) }.ok_or(CompletionStatus::LocalUnsupportedOp)?;
        session.complete().map_err(|_| CompletionStatus::LocalQpInternalError)
    }

    fn post_receives(&self, cq: &Completions) {
        let (mut sges, mut len) = ([IbvSge { addr: 0, length: 0, lkey: 0 }; 2], 0);
        let mut wr_id = WrId::recv(0);
        for _ in 0..self.recv.announced(self.received.get()) {
            let nth = self.received.replace(self.received.get().wrapping_add(1));
            let [addr, tail] = self.recv.entry(nth);
            let lkey_ctrl = (tail >> 32) as u32;
            if lkey_ctrl & descriptor_flags::FIRST != 0 {
                (wr_id, len) = (WrId::recv(tail as u16), 0);
            }
            if let Some(sge) = sges.get_mut(len) {
                let length = u32::from((tail >> 16) as u16);
                *sge = IbvSge { addr, length, lkey: lkey_ctrl & descriptor_flags::LKEY };
                len += 1;
            }
            if lkey_ctrl & descriptor_flags::LAST == 0 {
                continue;
            }
            let (next, sg_list) = (core::ptr::null_mut(), sges.as_mut_ptr());
            let mut receive = IbvRecvWr { wr_id: wr_id.0, next, sg_list, num_sge: len as c_int };
            let mut bad = core::ptr::null_mut();
            // SAFETY: a live queue pair, and a request with so many buffers, which are copied. What they name is registered and in
            // flight, by core's own rules.
            let returned = unsafe { (self.post_recv)(self.raw.as_ptr(), &mut receive, &mut bad) };
            if returned != 0 {
                cq.push(wr_id.head(CompletionStatus::LocalQpInternalError.number(), 0, self.qpn));
            }
        }
    }
}
