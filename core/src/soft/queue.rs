//! A completion queue as the device writes it: one ring, or several behind each other, each with a phase of its own.

#![forbid(unsafe_code)]

use super::memory::Mover;
use super::notify::Notify;
use super::ring::{Block, Line, Ring};
use crate::entry::{Quad, completion_flags as flags};

/// Rings that a completion queue may have.
pub(super) const SUB_CQS: usize = 4;

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) handles: usize,
    /// All rings, as one.
    all: Ring,
    /// Entries of each.
    entries: u32,
    /// Of each ring that there is.
    produced: [u32; SUB_CQS],
    /// In all rings.
    total: u32,
    /// Entries in all: counted only if overruns are.
    pub(super) written: u32,
    /// Of one with a doorbell.
    notify: Option<Notify>,
    /// Of one whose memory may go while it is used.
    mover: Option<Mover>,
    /// Keeps the rings, unless they are the driver's.
    _memory: Option<Block<Line>>,
}

/// What a completion queue has besides its rings.
#[derive(Debug)]
pub(super) struct Besides {
    pub(super) notify: Option<Notify>,
    pub(super) mover: Option<Mover>,
    pub(super) memory: Option<Block<Line>>,
}

impl Cq {
    /// Of rings of so many entries, whose number is a power of two; each will have produced `origin` before its first
    /// entry.
    pub(super) fn new(all: Ring, entries: u32, origin: u32, besides: Besides) -> Self {
        let Besides { notify, mover, memory } = besides;
        let produced = [origin; SUB_CQS];
        Self { handles: 1, all, entries, produced, total: origin, written: 0, notify, mover, _memory: memory }
    }

    /// Whether there is such a ring.
    pub(super) fn has(&self, sub: u8) -> bool {
        u32::from(sub) * self.entries < self.all.entries()
    }

    /// Entries that it has room for in all.
    pub(super) fn room(&self) -> u32 {
        self.all.entries()
    }

    /// See [`SoftCq::take_event`](super::SoftCq::take_event).
    pub(super) fn take_event(&mut self) -> bool {
        let total = self.total;
        self.notify.as_mut().is_some_and(|notify| notify.take(total))
    }

    /// The channel that its events go to, if it has one.
    #[inline(always)]
    pub(super) fn channel(&self) -> Option<u16> {
        self.notify.as_ref()?.channel()
    }

    /// What raises them.
    pub(super) fn notify_mut(&mut self) -> Option<&mut Notify> {
        self.notify.as_mut()
    }

    /// Writes an entry into a ring that there is: the phase last. `first` has it as zero.
    #[inline(always)]
    pub(super) fn write(&mut self, sub: u8, first: Quad, second: Quad, rest: [Quad; 2]) {
        let (ring, entries) = (self.all, self.entries);
        let Some(produced) = self.produced.get_mut(usize::from(sub)) else { return };
        let nth = *produced;
        if let Some(notify) = &mut self.notify {
            notify.produce();
        }
        *produced = nth.wrapping_add(1);
        self.total = self.total.wrapping_add(1);
        let phase = (nth >> entries.trailing_zeros() & 1) as u8 ^ flags::PHASE;
        let first = first | Quad::from(phase) << 24;
        let index = u32::from(sub) * entries + (nth & (entries - 1));
        if let Some(mover) = self.mover {
            return ring.publish_by(mover, index, [first, second, rest[0], rest[1]]);
        }
        ring.store(index, 1, second);
        if ring.quads() == 4 {
            ring.store(index, 2, rest[0]);
            ring.store(index, 3, rest[1]);
        }
        ring.publish(index, 0, first);
    }
}
