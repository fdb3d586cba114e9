//! The data path over libibverbs' calls, for a libefa that does not tell where the device's queues are.
//!
//! Core writes its entries into rings in memory, as it would into the device's; what it announced becomes calls, and what
//! the library polled becomes completion entries. Both are done in the calls that core makes for that
//! ([`announced`](efa_core::Provider::announced), [`collect`](efa_core::Provider::collect)), by nobody else and at no
//! other time.
//!
//! | file | holds |
//! |---|---|
//! | `shadow` | the rings |
//! | `work` | a send entry, read; and the session in which it is posted again |
//! | `queue_pair` | from announced entries to calls |
//! | `completions` | from the library's completions to entries |
//!
//! A request is known to the library by [`WrId`]: the entry's own request id, its operation and its queue.

mod completions;
mod queue_pair;
mod shadow;
mod work;

pub(crate) use completions::{Completions, FIELDS};
pub(crate) use queue_pair::QueuePair;

use efa_core::entry::completion_flags as flags;

/// What a request is known by to the library: all that its completion entry repeats.
#[derive(Clone, Copy)]
struct WrId(u64);

impl WrId {
    const RECV: u64 = 1 << 24;

    fn send(req_id: u16, op: u8) -> Self {
        Self(u64::from(req_id) | u64::from(op) << 16)
    }

    fn recv(req_id: u16) -> Self {
        Self(u64::from(req_id) | Self::RECV)
    }

    fn is_recv(self) -> bool {
        self.0 & Self::RECV != 0
    }

    /// The first quad of its completion, without the phase.
    fn head(self, status: u8, more: u8, qpn: u16) -> u64 {
        let queue = if self.is_recv() { flags::QUEUE_RECV } else { flags::QUEUE_SEND };
        let op = ((self.0 >> 16) as u8) << flags::OP_SHIFT & flags::OP_MASK;
        self.0 & 0xFFFF | u64::from(status) << 16 | u64::from(queue | op | more) << 24 | u64::from(qpn) << 32
    }
}
