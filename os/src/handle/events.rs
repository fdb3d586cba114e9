//! Asynchronous events of an open device: each is acknowledged by the call that reads it, before which what it is of
//! cannot go.

#![allow(unsafe_code)]

use core::ffi::c_int;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use efa_core::{Error, Qpn, Verb};

use super::channel::unblock;
use super::context::Context;
use crate::error::errno;
use crate::ffi::*;

/// Which completion queues each queue pair has, by their addresses.
#[derive(Default)]
pub(crate) struct Served(Mutex<HashMap<u16, [usize; 2]>>);

impl Served {
    fn lock(&self) -> MutexGuard<'_, HashMap<u16, [usize; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn made(&self, (qpn, cqs): (Qpn, [usize; 2])) {
        self.lock().insert(qpn.0, cqs);
    }

    /// One that was never made known is not known, whoever has its number.
    pub(super) fn gone(&self, (qpn, cqs): (Qpn, [usize; 2])) {
        let mut served = self.lock();
        if served.get(&qpn.0) == Some(&cqs) {
            served.remove(&qpn.0);
        }
    }

    /// Queue pairs that complete there, in the order of their numbers.
    fn on(&self, cq: usize) -> Vec<Qpn> {
        let served = self.lock();
        let mut found: Vec<_> = served.iter().filter(|(_, cqs)| cqs.contains(&cq)).map(|(qpn, _)| Qpn(*qpn)).collect();
        found.sort_by_key(|qpn| qpn.0);
        found
    }
}

/// What an event is of.
pub(crate) enum Of {
    QueuePair(Qpn),
    CompletionQueue(Vec<Qpn>),
    /// Of the device, or of this port of it.
    Port(u32),
}

impl Context {
    /// Reads of their file do not block from now on.
    ///
    /// # Errors
    /// The errno.
    pub(crate) fn unblock_events(&self) -> Result<(), c_int> {
        unblock(self.events_file())
    }

    /// The file that they come from.
    pub(crate) fn events_file(&self) -> BorrowedFd<'_> {
        // SAFETY: an open device's own field, which never changes.
        let fd = unsafe { (*self.raw()).async_fd };
        // SAFETY: open until the device is closed.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// Takes one event, if there is one, and acknowledges it.
    ///
    /// # Errors
    /// What the system answered.
    pub(crate) fn take_async(&self) -> Result<Option<(c_int, Of)>, Error> {
        let mut event = IbvAsyncEvent::zeroed();
        // SAFETY: an open device, and a struct of ours.
        if unsafe { self.table.ibv_get_async_event(self.raw(), &mut event) } != 0 {
            return match errno() {
                libc::EAGAIN | libc::EINTR => Ok(None),
                errno => Err(Error::Device { verb: Verb::TakeEvent, errno }),
            };
        }
        let of = match event.event_type {
            IBV_EVENT_CQ_ERR => Of::CompletionQueue(self.served.on(event.element.addr())),
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED => {
                // SAFETY: a queue pair of this device, whose destruction waits for what follows; its number never changes.
                let number = unsafe { (*event.element.cast::<IbvQp>()).qp_num };
                Of::QueuePair(Qpn(number as u16))
            }
            // In C it is an `int` in the same place.
            _ => Of::Port(event.element.addr() as u32),
        };
        // SAFETY: as it was read, once. Of what EFA lacks, which has no such events, nothing was made.
        unsafe { self.table.ibv_ack_async_event(&mut event) };
        Ok(Some((event.event_type, of)))
    }
}
