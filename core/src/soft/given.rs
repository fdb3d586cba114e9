//! Queues in memory that the driver has already, and what such a driver needs besides.
//!
//! For a driver that is another program, behind a kernel's ABI: it maps the rings and doorbells itself, writes whatever
//! it likes into them at any time, keeps its own account of what is in flight, and sleeps until a completion queue that
//! it armed has something for it.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::{SoftCq, SoftDevice, SoftPd, SoftQp, objects, verbs};
#[cfg(doc)]
use crate::Provider;
use crate::flags::Access;
use crate::memory::{Mr, RawMemory};
use crate::ring::AtomicWord;
use crate::{CqInit, Error, MrInit, QpInit, Verb};

/// Where a completion queue is: `entries`, rounded up to a power of two, of 16 bytes, or of 32 if
/// [`CqInit::sgid`], and its doorbell if it is to raise events.
#[derive(Clone, Copy, Debug)]
pub struct CqMemory {
    /// The ring, aligned to 64 bytes, or the first of several, which follow each other.
    pub ring: NonNull<AtomicWord>,
    /// How many rings there are, 1, 2 or 4: each has `entries`, and a phase of its own.
    pub sub_cqs: u16,
    /// The rings may go while the queue is used: [`Config::mover`](super::Config::mover) alone writes them, in any
    /// alignment, the byte with the phase by a call of its own. They are zeros already, as the device does not clear them.
    pub moved: bool,
    /// Bits 15:0 count the entries consumed, 30:29 the events taken, 31 arms: see [`SoftCq::take_event`].
    pub doorbell: Option<NonNull<AtomicU32>>,
}

/// Where a queue pair's rings are: as many entries as its depths rounded up to powers of two, a receive having
/// [`QpInit::recv_sge`] descriptors of 16 bytes.
#[derive(Clone, Copy, Debug)]
pub struct QpRings {
    /// Send entries, aligned to 64 bytes.
    pub send: NonNull<AtomicWord>,
    /// Receive descriptors, aligned to 64 bytes.
    pub recv: NonNull<AtomicWord>,
    /// Counts the send entries written.
    pub send_doorbell: NonNull<AtomicU32>,
    /// Counts the receive descriptors written.
    pub recv_doorbell: NonNull<AtomicU32>,
    /// Which rings of the completion queues sends and receives complete in, counted from 0.
    pub sub_cqs: [u8; 2],
    /// Its driver writes request ids of 64 bits, which the device must have ([`Config::req_id_64`](super::Config::req_id_64)).
    pub req_id_64: bool,
}

impl SoftDevice {
    /// [`Provider::create_cq`] in memory given by the caller, which it clears unless it is moved to.
    ///
    /// # Errors
    /// As `create_cq`, and EINVAL for a number of rings that cannot be, or memory that is moved to without a mover; the
    /// memory is then not used.
    ///
    /// # Safety
    /// Until the last handle of the queue is dropped, those included that queue pairs have, the memory is valid and everybody reaches it by atomics, as another
    /// program's writes are. Rings that are moved to are valid now, from then on what the mover can bear, and the queue
    /// is given to [`SoftDevice::create_qp_in`] alone.
    pub unsafe fn create_cq_in(&self, init: &CqInit, memory: CqMemory) -> Result<SoftCq, Error> {
        self.make_cq(init, Some(memory), None)
    }

    /// [`Provider::create_qp`] with rings and doorbells given by the caller; it clears the doorbells. The queue pair has no slots
    /// for what is in flight: [`Provider::queues`] of it is good for its number alone.
    ///
    /// # Errors
    /// As `create_qp`, and EINVAL for rings or request ids that are not there; the memory is then not used.
    ///
    /// # Safety
    /// Until the handle is dropped the memory is valid and everybody reaches it by atomics, as another program's writes
    /// are; for ever, if it is dropped alive and cannot be destroyed, since the device goes on then.
    pub unsafe fn create_qp_in(
        &self,
        pd: &SoftPd,
        send: &SoftCq,
        recv: &SoftCq,
        init: &QpInit,
        rings: QpRings,
    ) -> Result<SoftQp, Error> {
        self.make_qp(pd, send, recv, init, Some(rings))
    }

    /// [`Provider::reg_mr`], the device seeing the first byte at `iova`.
    ///
    /// # Errors
    /// As `reg_mr`.
    ///
    /// # Safety
    /// As for `reg_mr`.
    pub unsafe fn reg_mr_at(
        &self,
        pd: &SoftPd,
        memory: RawMemory,
        iova: u64,
        access: Access,
    ) -> Result<Mr, (RawMemory, Error)> {
        if let Err(error) = self.invalid(Verb::RegMr, &[pd.device()]) {
            return Err((memory, error));
        }
        // SAFETY: by the caller's word.
        unsafe { objects::register(self.wire(), self.nic(), pd.index(), memory, iova, &MrInit::new(access)) }
    }

    /// [`Provider::progress`]; whether the device did anything. False also where somebody else drives it just now.
    pub fn turn(&self) -> bool {
        self.wire().try_lock().is_some_and(|mut state| state.turn_did())
    }

    /// Whether operations are on their way within the wire: turns that did nothing may have to pass before they arrive. What
    /// waits for devices elsewhere is not among them.
    pub fn is_carrying(&self) -> bool {
        self.wire().lock().in_flight > 0
    }

    /// [`SoftDevice::turn`], which waits for whoever is at it, rather than leave it to them: for who is about to sleep, and
    /// not for an interrupt.
    pub fn drive(&self) -> bool {
        self.wire().lock().turn_did()
    }
}

impl super::tables::State {
    /// Takes a turn; whether there was anything to do.
    fn turn_did(&mut self) -> bool {
        let before = self.steps;
        self.turn();
        self.steps != before
    }
}

impl SoftCq {
    /// Whether an event is due, of a queue made with a doorbell; it then counts as raised.
    ///
    /// The queue is armed if the doorbell says that all events raised so far were taken: the arm bit itself cannot be
    /// relied on, since a poll after it overwrites it, and memory is not looked at in between. An event is due if it is
    /// armed and holds entries that the doorbell does not say were consumed, or was armed when an entry was written,
    /// however soon that was consumed. So one that was never asked for can
    /// come after each one taken, none before the doorbell was first rung, and none is lost.
    pub fn take_event(&self) -> bool {
        let mut state = self.device().wire().lock();
        state.cq_mut(self.index()).is_some_and(|cq| cq.take_event())
    }
}

impl SoftQp {
    /// Whether everything that was announced to the send queue, and taken by the device, has completed: in SQD, that the
    /// queue is drained.
    ///
    /// # Errors
    /// EINVAL once it was destroyed.
    pub fn is_drained(&self) -> Result<bool, Error> {
        let state = self.device().wire().lock();
        let qp = state.qp(self.index()).filter(|_| self.is_alive());
        qp.map(|qp| qp.fetched == qp.completed).ok_or(verbs::refused(Verb::QueryQp, verbs::EINVAL))
    }
}
