//! What a queue pair owns, and how that ends.
//!
//! `Drop` makes one call, the destroying one. If the device agrees, the buffers in flight go back to their
//! regions and everything is released, children first. If it refuses, it may still be using all of that:
//! nothing is released, and the leak is counted (R34).

#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::sync::atomic::AtomicU32;

use super::completions::{self, Are, Completions};
use super::table::moves_by_itself;
use super::{Depth, EntrySize, QpAttr, QpKind, QpState, QpType};
use crate::error::Limit;
use crate::memory::Buffers;
use crate::provider::{Provider, QpInit};
use crate::ring::{Finished, Place, RecvQueue, SendQueue};
use crate::work::{Event, Failure, Stats};
use crate::{Arms, Caps, DataPath, Error, Incarnation, Limits, PdId, Qkey, Qpn, Token, id};

/// A queue pair's parts, whatever its state.
#[derive(Debug)]
pub(crate) struct Inner<P: Provider> {
    pub(crate) send: SendQueue,
    pub(crate) recv: RecvQueue,
    pub(crate) completions: Completions,
    pub(crate) identity: Identity,
    /// Whether receive completions have room for the sender's GID.
    pub(crate) reports_gid: bool,
    pub(crate) provider: P,
    pub(crate) cause: Option<Failure>,
    pub(crate) stats: Stats,
    /// Whether operations go by a library's calls.
    by_calls: bool,
    destroyed: bool,
    handles: ManuallyDrop<Handles<P>>,
}

/// Dropped in this order, which is R34's: the queue pair, its completion queues, its domain.
struct Handles<P: Provider> {
    qp: P::Qp,
    send: P::Cq,
    recv: P::Cq,
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
    /// As wide as what is compared with it.
    pub(crate) max_rdma: u64,
    pub(crate) max_inline: u16,
    /// Buffers of one SEND.
    pub(crate) max_buffers: u8,
    pub(crate) qp_type: QpType,
    /// Bytes before the payload of what arrives.
    pub(crate) header: u8,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: Qkey,
    pub(crate) incarnation: Incarnation,
    pub(crate) max_msg: u32,
}

/// Whether operations go by a library's calls on that device.
pub(super) fn by_calls<P: Provider>(provider: &P) -> bool {
    P::BY_CALLS && provider.data_path() == DataPath::Verbs
}

/// What names a queue pair in one of its lives: never used twice in the process.
pub(super) fn next_id() -> Result<u32, Error> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    id::next(&LAST, Limit::QueuePairs)
}

impl<P: Provider> Inner<P> {
    /// Completions that can be there at once of a queue pair of that depth (R17).
    pub(crate) fn room<K: QpKind>(provider: &P, depth: Depth) -> Result<u32, Error> {
        Ok(completions::room(&checked::<K>(depth, &provider.limits())?, depth))
    }

    /// With completion queues of its own, as `depth` says, or with `group`'s.
    pub(crate) fn new<K: QpKind>(provider: &P, pd: &P::Pd, depth: Depth, group: Option<&P::Cq>) -> Result<Self, Error> {
        let limits = provider.limits();
        let init = checked::<K>(depth, &limits)?;
        // Before anything is made: a queue pair must not be dropped but by destroying it.
        let id = next_id()?;
        let (send_cq, recv_cq) = match group {
            Some(cq) => (cq.clone(), cq.clone()),
            None => Completions::create(provider, &init, depth)?,
        };
        let qp = provider.create_qp(pd, &send_cq, &recv_cq, &init)?;

        let queues = provider.queues(&qp);
        // SAFETY: by the provider's contract ring and doorbell are this queue pair's alone and valid until it is
        // destroyed, after which they are not used, and slots while its handle lives, which `Handles` keeps longer than
        // this.
        let send = unsafe { SendQueue::new(&queues.send, queues.generation, id) };
        // SAFETY: likewise.
        let recv = unsafe { RecvQueue::new(&queues.recv, queues.generation) };
        let (send_ring, recv_ring) = (provider.completions(&send_cq), provider.completions(&recv_cq));
        let (sends, receives) = (send.slots().generation(), recv.slots().generation());
        let completions = match group {
            Some(_) => Completions::grouped(),
            // SAFETY: likewise, for completion queues that only this queue pair uses.
            None => unsafe {
                Completions::over(depth.one_queue, queues.qpn, (&send_ring, sends), (&recv_ring, receives))
            },
        };
        let inner = Self {
            send,
            recv,
            completions,
            identity: Identity {
                id,
                pd: P::pd_id(pd),
                max_rdma: limits.max_rdma_size.into(),
                max_inline: init.inline.min(queues.send.inline),
                qp_type: K::TYPE,
                header: K::TYPE.header(),
                qpn: queues.qpn,
                qkey: Qkey(0),
                incarnation: Incarnation::from_random(provider.entropy()),
                max_buffers: init.send_sge,
                // The length in a completion, with the header, has 16 bits.
                max_msg: limits.max_msg_size.min(u32::from(u16::MAX - u16::from(K::TYPE.header()))),
            },
            reports_gid: recv_ring.reports_gid(),
            provider: provider.clone(),
            cause: None,
            stats: Stats::default(),
            by_calls: by_calls(provider),
            destroyed: false,
            handles: ManuallyDrop::new(Handles { qp, send: send_cq, recv: recv_cq, pd: pd.clone() }),
        };
        let (asked, given) = (K::Entries::BYTES, queues.send.entry_size);
        // Not before: it is destroyed when it is dropped. What is posted relies on this.
        if asked == given { Ok(inner) } else { Err(Error::EntrySize { asked, given }) }
    }

    pub(crate) fn pd(&self) -> &P::Pd {
        &self.handles.pd
    }

    /// An unsolicited arrival was read.
    pub(crate) fn unsolicited_read(&mut self) {
        self.provider.unsolicited_read(&self.handles.qp);
    }

    /// Whether operations go by a library's calls.
    #[inline(always)]
    pub(crate) fn goes_by_calls(&self) -> bool {
        P::BY_CALLS && self.by_calls
    }

    /// Hands on what was announced, where that takes calls.
    #[inline(always)]
    pub(crate) fn hand_on(&mut self) {
        if self.goes_by_calls() {
            self.hand_on_by_calls();
        }
    }

    #[cold]
    #[inline(never)]
    fn hand_on_by_calls(&mut self) {
        self.provider.announced(&self.handles.qp);
    }

    /// Announces the one operation that was written.
    #[inline(always)]
    pub(crate) fn announce_one(&mut self) {
        self.send.announce();
        self.hand_on();
    }

    /// Announces the operations of a batch, which end at `place`.
    #[inline(always)]
    pub(crate) fn announce_to(&mut self, place: Place, count: u16) {
        self.send.announce_to(place, count);
        self.hand_on();
    }

    /// Has its own completion queues filled, where that takes calls.
    #[inline(always)]
    pub(crate) fn collect(&mut self) {
        if !self.goes_by_calls() {
            return;
        }
        match self.completions.are {
            Are::Two => {
                self.provider.collect(&self.handles.send);
                self.provider.collect(&self.handles.recv);
            }
            Are::One => self.provider.collect(&self.handles.recv),
            Are::Grouped => {}
        }
    }

    /// Tells what was consumed of its own completion queues, where they have doorbells.
    #[inline(always)]
    pub(crate) fn tell_consumed(&mut self) {
        let Completions { send, recv, are, .. } = &mut self.completions;
        if *are == Are::Two {
            self.provider.consumed(&self.handles.send, send.consumed());
        }
        if *are != Are::Grouped {
            self.provider.consumed(&self.handles.recv, recv.consumed());
        }
    }

    /// Asks for an event of its own completion queues.
    pub(super) fn arm(&mut self) -> Result<(), Error>
    where
        P: Arms,
    {
        let Completions { send, recv, are, .. } = &mut self.completions;
        if *are == Are::Two {
            self.provider.arm_cq(&self.handles.send, send.consumed())?;
        }
        if *are != Are::Grouped {
            self.provider.arm_cq(&self.handles.recv, recv.consumed())?;
        }
        Ok(())
    }

    pub(crate) fn modify(&mut self, attr: &QpAttr) -> Result<(), Error> {
        self.provider.modify_qp(&mut self.handles.qp, attr)
    }

    /// The state that the device says it is in, if a device moves a queue pair there from `from`, or leaves it there.
    pub(crate) fn query(&mut self, from: QpState) -> Result<QpState, Error> {
        let state = self.provider.query_qp(&self.handles.qp)?;
        if state == from || moves_by_itself(from, state) { Ok(state) } else { Err(Error::WrongState { state }) }
    }

    /// After a move to RESET: the rings start over, in a new life that peers must resolve anew.
    pub(crate) fn start_over(&mut self, id: u32) {
        self.identity.id = id;
        self.collect();
        self.stats.stale = self.stats.stale.saturating_add(self.completions.drain());
        self.tell_consumed();
        self.send.rewind(id);
        self.recv.rewind();
        self.identity.incarnation = Incarnation::from_random(self.provider.entropy());
        self.cause = None;
    }

    /// Operations and receives in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        u32::from(self.send.slots().occupied()) + u32::from(self.recv.slots().occupied())
    }

    /// Ends the queue pair at the device, once.
    pub(crate) fn destroy(&mut self) -> Result<(), Error> {
        if !self.destroyed {
            self.provider.destroy_qp(&mut self.handles.qp)?;
            self.destroyed = true;
        }
        Ok(())
    }

    /// What was in flight when the queue pair was destroyed, one by one; nothing before.
    pub(crate) fn reclaim(&mut self) -> Option<Event> {
        if !self.destroyed {
            return None;
        }
        let Finished { token, tag, buffers, .. } = self.send.end_any().or_else(|| self.recv.end_any())?;
        // SAFETY: the device touches nothing of this queue pair any more, and the slot was ended once.
        let buffers = unsafe { Buffers::from_raw(buffers, tag) };
        Some(Event::Reclaimed { token: Token(token), buffers })
    }
}

impl<P: Provider> Drop for Inner<P> {
    fn drop(&mut self) {
        match self.destroy() {
            Ok(()) => {
                while let Some(event) = self.reclaim() {
                    drop(event);
                }
                // SAFETY: the queue pair is gone, so its rings and slots may be; this is the only drop.
                unsafe { ManuallyDrop::drop(&mut self.handles) }
            }
            // The device may still use rings, slots and buffers: keep them all, for ever.
            Err(_) => self.provider.leaks().count_queue_pair(),
        }
    }
}

/// What a device of these limits is asked for, if it takes that.
fn checked<K: QpKind>(depth: Depth, limits: &Limits) -> Result<QpInit, Error> {
    let above = |what, asked: u32, limit: u32| {
        let error = Error::AboveLimit { what, asked: asked.into(), limit: limit.into() };
        if asked > limit { Err(error) } else { Ok(()) }
    };
    // A wide entry takes two places of 64 bytes (R18).
    above(Limit::SendDepth, depth.send, limits.max_send_depth / u32::from(K::Entries::BYTES / 64))?;
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
    let max_inline = K::Entries::max_inline(limits);
    let inline = depth.inline.unwrap_or(max_inline);
    above(Limit::InlineBytes, inline.into(), max_inline.into())?;
    Ok(QpInit {
        qp_type: K::TYPE,
        send_depth: depth.send.max(limits.min_send_depth).max(1),
        recv_depth: depth.recv.max(1),
        send_sge: send_buffers,
        recv_sge: depth.recv_buffers,
        entry_size: K::Entries::BYTES,
        inline,
        inline_write: K::NEEDS.contains(Caps::INLINE_WRITE),
        ops: K::OPS,
        unsolicited: K::NEEDS.contains(Caps::UNSOLICITED_WRITE_RECV),
        service_level: depth.service_level,
    })
}
