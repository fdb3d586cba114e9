//! What a queue pair owns, and how that ends.
//!
//! `Drop` makes one call, the destroying one. If the device agrees, the buffers in flight go back to their
//! regions and everything is released, children first. If it refuses, it may still be using all of that:
//! nothing is released, and the leak is counted (R34).

#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU32;

use super::{Depth, QpAttr, QpKind};
use crate::entry::completion_flags;
use crate::error::Limit;
use crate::memory::Buffers;
use crate::provider::{CqInit, Provider, QpInit};
use crate::ring::{CompletionQueue, Finished, RecvQueue, SendQueue};
use crate::work::{Failure, MAX_INLINE, Stats};
use crate::{Caps, Error, Incarnation, PdId, Qkey, Qpn, Token, id};

/// A queue pair's parts, whatever its state.
#[derive(Debug)]
pub(crate) struct Inner<P: Provider> {
    pub(crate) send: SendQueue,
    pub(crate) recv: RecvQueue,
    pub(crate) send_completions: CompletionQueue,
    pub(crate) recv_completions: CompletionQueue,
    pub(crate) identity: Identity,
    /// Which completion queue is looked at first by the next poll.
    pub(crate) turn: bool,
    pub(crate) provider: P,
    pub(crate) cause: Option<Failure>,
    pub(crate) stats: Stats,
    destroyed: bool,
    handles: ManuallyDrop<Handles<P>>,
}

/// Dropped in this order, which is R34's: the queue pair, its completion queues, its domain.
struct Handles<P: Provider> {
    qp: P::Qp,
    _send: P::Cq,
    _recv: P::Cq,
    pd: P::Pd,
}

// SAFETY: shared, it gives away its provider and its domain, which are `Sync`, and numbers that nobody changes then:
// rings, slots and the other handles are touched through `&mut` alone.
unsafe impl<P: Provider> Sync for Inner<P> {}

impl<P: Provider> core::fmt::Debug for Handles<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Handles")
    }
}

/// What operations are checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// This queue pair, unique in the process.
    pub(crate) id: u32,
    pub(crate) pd: PdId,
    pub(crate) max_rdma: u32,
    pub(crate) max_inline: u16,
    /// Buffers of one SEND.
    pub(crate) max_buffers: u8,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: Qkey,
    pub(crate) incarnation: Incarnation,
    pub(crate) max_msg: u32,
}

/// What names a queue pair in one of its lives: never used twice in the process.
pub(super) fn next_id() -> Result<u32, Error> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    id::next(&LAST, Limit::QueuePairs)
}

impl<P: Provider> Inner<P> {
    pub(crate) fn new<K: QpKind>(provider: &P, pd: &P::Pd, depth: Depth) -> Result<Self, Error> {
        let limits = provider.limits();
        let above = |what, asked: u32, limit: u32| {
            let error = Error::AboveLimit { what, asked: asked.into(), limit: limit.into() };
            if asked > limit { Err(error) } else { Ok(()) }
        };
        above(Limit::SendDepth, depth.send, limits.max_send_depth)?;
        above(Limit::RecvDepth, depth.recv.saturating_mul(depth.recv_buffers.into()), limits.max_recv_depth)?;
        above(Limit::RecvBuffers, depth.recv_buffers.into(), u32::from(limits.max_recv_sge).min(2))?;
        let max_buffers = limits.max_send_sge.min(2);
        let send_buffers = depth.send_buffers.unwrap_or(max_buffers);
        above(Limit::SendBuffers, send_buffers.into(), max_buffers.into())?;
        for (what, buffers) in [(Limit::RecvBuffers, depth.recv_buffers), (Limit::SendBuffers, send_buffers)] {
            if buffers == 0 {
                return Err(Error::BelowLimit { what, asked: 0, limit: 1 });
            }
        }
        let max_inline = limits.max_inline.min(MAX_INLINE as u16);
        let inline = depth.inline.unwrap_or(max_inline);
        above(Limit::InlineBytes, inline.into(), max_inline.into())?;

        // Before anything is made: a queue pair must not be dropped but by destroying it.
        let id = next_id()?;
        let init = QpInit {
            send_depth: depth.send.max(limits.min_send_depth).max(1),
            recv_depth: depth.recv.max(1),
            send_sge: send_buffers,
            recv_sge: depth.recv_buffers,
            inline,
            ops: K::OPS,
            unsolicited: K::NEEDS.contains(Caps::UNSOLICITED_WRITE_RECV),
        };
        // Each queue has a completion queue of its own, with room for all that can be in flight: it cannot
        // overrun (R17), and dies with the queue pair, so no stale completion is left for the next (R21).
        let sgid = provider.caps().contains(Caps::CQ_WITH_SGID);
        let send_cq = provider.create_cq(&CqInit { entries: rounded(init.send_depth), sgid: false })?;
        let room = rounded(init.recv_depth).saturating_add(depth.unsolicited);
        above(Limit::CompletionEntries, room, limits.max_cqe)?;
        let recv_cq = provider.create_cq(&CqInit { entries: room, sgid })?;
        let qp = provider.create_qp(pd, &send_cq, &recv_cq, &init)?;

        let queues = provider.queues(&qp);
        // SAFETY: by the provider's contract the ring and slots are this queue pair's alone and valid while
        // its handle lives, which `Handles` keeps longer than this.
        let send = unsafe { SendQueue::new(&queues.send, queues.generation) };
        // SAFETY: likewise.
        let recv = unsafe { RecvQueue::new(&queues.recv, queues.generation) };
        let (send_ring, recv_ring) = (provider.completions(&send_cq), provider.completions(&recv_cq));
        let generation = send.slots().generation();
        let kind = completion_flags::QUEUE_SEND;
        // SAFETY: likewise, for the completion queue that only this queue pair uses.
        let send_completions = unsafe { CompletionQueue::new(&send_ring, kind, queues.qpn, generation) };
        let generation = recv.slots().generation();
        let kind = completion_flags::QUEUE_RECV;
        // SAFETY: likewise.
        let recv_completions = unsafe { CompletionQueue::new(&recv_ring, kind, queues.qpn, generation) };
        Ok(Self {
            send,
            recv,
            send_completions,
            recv_completions,
            identity: Identity {
                id,
                pd: P::pd_id(pd),
                max_rdma: limits.max_rdma_size,
                max_inline: inline.min(queues.send.inline),
                qpn: queues.qpn,
                qkey: Qkey(0),
                incarnation: Incarnation::from_random(provider.entropy()),
                max_buffers: send_buffers,
                max_msg: limits.max_msg_size,
            },
            turn: false,
            provider: provider.clone(),
            cause: None,
            stats: Stats::default(),
            destroyed: false,
            handles: ManuallyDrop::new(Handles { qp, _send: send_cq, _recv: recv_cq, pd: pd.clone() }),
        })
    }

    pub(crate) fn pd(&self) -> &P::Pd {
        &self.handles.pd
    }

    /// An unsolicited arrival was read.
    pub(crate) fn unsolicited_read(&self) {
        self.provider.unsolicited_read(&self.handles.qp);
    }

    pub(crate) fn modify(&mut self, attr: &QpAttr) -> Result<(), Error> {
        if self.send.staged() != 0 {
            // A batch was forgotten: the device completes only what it was told of.
            self.send.announce();
        }
        self.provider.modify_qp(&mut self.handles.qp, attr)
    }

    /// After a move to RESET: the rings start over, in a new life that peers must resolve anew.
    pub(crate) fn start_over(&mut self, id: u32) {
        self.identity.id = id;
        let stale = self.send_completions.drain().saturating_add(self.recv_completions.drain());
        self.stats.stale = self.stats.stale.saturating_add(stale);
        self.send.rewind();
        self.recv.rewind();
        self.identity.incarnation = Incarnation::from_random(self.provider.entropy());
        self.cause = None;
    }

    /// Operations and receives in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        u32::from(self.send.slots().occupied()) + u32::from(self.recv.slots().occupied())
    }

    /// Ends the queue pair at the device, once; what was in flight goes to `sink`.
    pub(crate) fn destroy(&mut self, sink: &mut dyn FnMut(Token, Buffers)) -> Result<(), Error> {
        if !self.destroyed {
            self.provider.destroy_qp(&mut self.handles.qp)?;
            self.destroyed = true;
        }
        // Also if it was destroyed before: a sink that panicked left the rest in the slots.
        while let Some(Finished { token, tag, buffers, .. }) = self.send.end_any().or_else(|| self.recv.end_any()) {
            // SAFETY: the device touches nothing of this queue pair any more, and the slot was ended once.
            sink(Token(token), unsafe { Buffers::from_raw(buffers, tag) });
        }
        Ok(())
    }
}

impl<P: Provider> Drop for Inner<P> {
    fn drop(&mut self) {
        match self.destroy(&mut |_, _| {}) {
            // SAFETY: the queue pair is gone, so its rings and slots may be; this is the only drop.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.handles) },
            // The device may still use rings, slots and buffers: keep them all, for ever.
            Err(_) => self.provider.leaks().count_queue_pair(),
        }
    }
}

/// What a queue of that depth has room for.
fn rounded(depth: u32) -> u32 {
    depth.max(1).checked_next_power_of_two().unwrap_or(u32::MAX)
}
