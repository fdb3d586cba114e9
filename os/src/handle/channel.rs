//! Completion channels: the files that events come from, and the queues that raise them.
//!
//! The kernel tells the library how many events of a queue were read when it destroys it, and the library waits until as
//! many were acknowledged. Here each is acknowledged by the call that reads it, so nothing waits for anybody who might
//! never come. In between, the queue it is of cannot go, whoever destroys it meanwhile: that call waits for this one.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use efa_core::{Error, Verb};

use super::context::Context;
use super::{answered, made};
use crate::error::errno;
use crate::ffi::*;

/// A completion channel; closed when its last handle is dropped, which queues on it have too.
pub(crate) struct Channel {
    raw: NonNull<IbvCompChannel>,
    pub(crate) context: Arc<Context>,
    /// Held while an event is read: the library counts a queue's events without a lock of its own.
    order: Mutex<()>,
}

// SAFETY: the verbs may be called from any thread, with any channel.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    /// Makes a channel whose file does not block.
    ///
    /// # Errors
    /// What the system answered.
    pub(crate) fn create(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        // SAFETY: an open device.
        let raw = made(Verb::CreateChannel, unsafe { context.table.ibv_create_comp_channel(context.raw()) })?;
        // From here on it is closed when it is dropped.
        let channel = Self { raw, context: context.clone(), order: Mutex::new(()) };
        unblock(channel.as_fd()).map_err(|errno| Error::Device { verb: Verb::CreateChannel, errno })?;
        Ok(Arc::new(channel))
    }

    pub(super) fn raw(&self) -> *mut IbvCompChannel {
        self.raw.as_ptr()
    }

    /// Takes one event, if there is one, and acknowledges it.
    ///
    /// # Errors
    /// What the system answered.
    pub(crate) fn take(&self) -> Result<bool, Error> {
        let _order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut cq, mut taken) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: a live channel, and room for two pointers. Only queues of `Bell::attach` are on it.
        if unsafe { self.context.table.ibv_get_cq_event(self.raw(), &mut cq, &mut taken) } != 0 {
            return match errno() {
                libc::EAGAIN | libc::EINTR => Ok(false),
                errno => Err(Error::Device { verb: Verb::TakeEvent, errno }),
            };
        }
        // SAFETY: the queue's own count, which is there for as long as the queue is, and that waits for what follows.
        if let Some(taken) = unsafe { taken.cast::<AtomicU32>().as_ref() } {
            taken.fetch_add(1, Ordering::AcqRel);
        }
        // SAFETY: a queue that is there, since an event of it was read and not acknowledged.
        unsafe { self.context.table.ibv_ack_cq_events(cq, 1) };
        Ok(true)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a live channel's own field, which never changes.
        let fd = unsafe { (*self.raw()).fd };
        // SAFETY: open until the channel is destroyed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made, and destroyed once; queues on it keep it.
        let returned = unsafe { self.context.table.ibv_destroy_comp_channel(self.raw()) };
        if answered(Verb::CreateChannel, returned).is_err() {
            self.context.leaks.count_object();
        }
    }
}

/// What a completion queue on a channel has besides.
pub(super) struct Bell {
    /// Events taken of it. The queue names this, and keeps it where it cannot be destroyed.
    taken: Arc<AtomicU32>,
    /// The doorbell, on the direct data path: elsewhere the library rings it.
    doorbell: Option<NonNull<AtomicU32>>,
    /// What was rung last, and whether anything was.
    rung: AtomicU64,
    _channel: Arc<Channel>,
}

impl Bell {
    /// Of a queue that was just made on `channel`.
    ///
    /// # Safety
    /// The queue is alive and was not armed yet; this is kept until it is gone, for ever if it stays.
    pub(super) unsafe fn attach(raw: NonNull<IbvCq>, channel: &Arc<Channel>) -> Self {
        let taken = Arc::new(AtomicU32::new(0));
        let named: *const AtomicU32 = Arc::as_ptr(&taken);
        // SAFETY: by the caller's word; the field is its user's, and libefa's calls leave it as it is.
        unsafe { (*raw.as_ptr()).cq_context = named.cast_mut().cast::<c_void>() };
        Self { taken, doorbell: None, rung: AtomicU64::new(0), _channel: channel.clone() }
    }

    /// # Safety
    /// The queue's own doorbell, until the queue is gone.
    pub(super) unsafe fn ring_at(&mut self, doorbell: NonNull<AtomicU32>) {
        self.doorbell = Some(doorbell);
    }

    /// So many entries were consumed: told to the device, as libefa tells it after each poll, without asking for an event.
    #[inline]
    pub(super) fn consumed(&self, consumed: u32) {
        if let Some(doorbell) = self.doorbell
            && self.rung.load(Ordering::Relaxed) as u16 != consumed as u16
        {
            self.ring(doorbell, self.word(consumed));
        }
    }

    /// Asks for an event, of `cq`, that so many entries were consumed of.
    ///
    /// # Errors
    /// What the library answered.
    pub(super) fn arm(&self, cq: &super::Cq, consumed: u32) -> Result<(), Error> {
        let Some(doorbell) = self.doorbell else {
            // SAFETY: alive, and made on the channel.
            return unsafe { cq.context.request_notification(cq.raw()) };
        };
        let word = self.word(consumed) | ARM;
        // The same word again asks for the same event, which the device has raised by now or will: a store to a device
        // costs more than this.
        if self.rung.load(Ordering::Relaxed) != u64::from(word) {
            self.ring(doorbell, word);
        }
        Ok(())
    }

    /// What a doorbell is rung with: bits 15:0 count the entries consumed, 30:29 the events taken.
    fn word(&self, consumed: u32) -> u32 {
        consumed & 0xFFFF | (self.taken.load(Ordering::Acquire) & 0b11) << 29
    }

    fn ring(&self, doorbell: NonNull<AtomicU32>, word: u32) {
        self.rung.store(word.into(), Ordering::Relaxed);
        // SAFETY: the queue's own doorbell, and the queue is alive.
        unsafe { doorbell.as_ref() }.store(word, Ordering::Release);
    }
}

/// Bit 31 of a doorbell asks for an event.
const ARM: u32 = 1 << 31;

/// Reads of a file answer at once from now on.
///
/// # Errors
/// The errno.
pub(super) fn unblock(fd: BorrowedFd<'_>) -> Result<(), c_int> {
    use std::os::fd::AsRawFd;
    // SAFETY: an open file, of which flags are asked.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: an open file, and flags of its own with one more.
    if flags < 0 || unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(errno());
    }
    Ok(())
}
