//! Where a queue pair's completions arrive.
//!
//! | completion queues | asked for by |
//! |---|---|
//! | one for sends, one for receives | nothing: the default, and the fastest to poll |
//! | one for both | [`Depth::one_completion_queue`] |
//! | one for several queue pairs | [`Group`](super::Group) |
//!
//! One of a queue pair's own has room for all that can be in flight, so it cannot overrun (R17), and dies with
//! the queue pair, so no stale completion is left for the next (R21).

#![allow(unsafe_code)]

use super::Depth;
use crate::entry::completion_flags as flags;
use crate::error::Limit;
use crate::provider::{CqInit, CqRing, Provider, QpInit};
use crate::ring::{CompletionQueue, Serves};
use crate::{Caps, Error, Qpn};

/// A queue pair's completion queues.
#[derive(Debug)]
pub(crate) struct Completions {
    /// Of its sends. Where it has none for them alone it is one that stays empty: polls need not ask then.
    pub(crate) send: CompletionQueue,
    /// Of its receives, or of both; of a group's member it is one that stays empty.
    pub(crate) recv: CompletionQueue,
    pub(crate) are: Are,
    /// Which of the two is looked at first: the one that had something last, until it was read once around, lest it keep
    /// the other waiting.
    pub(crate) sends_first: bool,
}

/// Whose they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Are {
    /// One for each of its queues.
    Two,
    /// One for both.
    One,
    /// The group's, which polls it.
    Grouped,
}

/// The generation bits of a queue's request ids, and which bits those are.
type Generation = (u16, u16);

impl Completions {
    /// Makes a queue pair's own.
    pub(super) fn create<P: Provider>(provider: &P, init: &QpInit, depth: Depth) -> Result<(P::Cq, P::Cq), Error> {
        let (limits, caps) = (provider.limits(), provider.caps());
        let create = |entries: u32, receives: bool| {
            if entries > limits.max_cqe {
                let (asked, limit) = (entries.into(), limits.max_cqe.into());
                return Err(Error::AboveLimit { what: Limit::CompletionEntries, asked, limit });
            }
            let sgid = receives && caps.contains(Caps::CQ_WITH_SGID);
            provider.create_cq(&CqInit { entries, sgid, unsolicited: receives && init.unsolicited })
        };
        if depth.one_queue {
            let cq = create(room(init, depth), true)?;
            return Ok((cq.clone(), cq));
        }
        let receives = rounded(init.recv_depth).saturating_add(depth.unsolicited);
        Ok((create(rounded(init.send_depth), false)?, create(receives, true)?))
    }

    /// Those of a group's member: none.
    pub(super) fn grouped() -> Self {
        let nothing = CompletionQueue::nothing;
        Self { send: nothing(), recv: nothing(), are: Are::Grouped, sends_first: false }
    }

    /// The consumers of queue pair `qpn`'s own, each with its ring and the generation of the request ids in it.
    ///
    /// # Safety
    /// As for [`CompletionQueue::new`], for both rings; `one` says that they are the same.
    pub(super) unsafe fn over(one: bool, qpn: Qpn, send: (&CqRing, Generation), recv: (&CqRing, Generation)) -> Self {
        if one {
            // SAFETY: by the caller's word.
            let recv = unsafe { CompletionQueue::new(recv.0, Serves::Pair(qpn)) };
            return Self { send: CompletionQueue::nothing(), recv, are: Are::One, sends_first: false };
        }
        let serves = |kind, generation| Serves::Queue { kind, qpn, generation };
        // SAFETY: likewise.
        let send = unsafe { CompletionQueue::new(send.0, serves(flags::QUEUE_SEND, send.1)) };
        // SAFETY: likewise.
        let recv = unsafe { CompletionQueue::new(recv.0, serves(flags::QUEUE_RECV, recv.1)) };
        Self { send, recv, are: Are::Two, sends_first: false }
    }

    /// Entries that they hold, all together.
    pub(super) fn entries(&self) -> u32 {
        match self.are {
            Are::Two => self.send.entries().saturating_add(self.recv.entries()),
            Are::One => self.recv.entries(),
            Are::Grouped => 0,
        }
    }

    /// Consumes whatever there is; gives how many entries that was.
    pub(super) fn drain(&mut self) -> u32 {
        self.send.drain().saturating_add(self.recv.drain())
    }
}

/// Completions that can be there at once of a queue pair made so (R17).
pub(super) fn room(init: &QpInit, depth: Depth) -> u32 {
    rounded(init.send_depth).saturating_add(rounded(init.recv_depth)).saturating_add(depth.unsolicited)
}

/// What a queue of that depth has room for.
fn rounded(depth: u32) -> u32 {
    depth.max(1).checked_next_power_of_two().unwrap_or(u32::MAX)
}
