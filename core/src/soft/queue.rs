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
    rings: [Option<Written>; SUB_CQS],
    /// In all rings.
    produced: u32,
    /// Entries in all: counted only if overruns are.
    pub(super) written: u32,
    /// Of one with a doorbell.
    notify: Option<Notify>,
    /// Of one whose memory may go while it is used.
    mover: Option<Mover>,
    /// Keeps the rings, unless they are the driver's.
    _memory: Option<Block<Line>>,
}

/// A ring, and how many entries it was given.
#[derive(Clone, Copy, Debug)]
struct Written {
    ring: Ring,
    produced: u32,
}

impl Cq {
    /// With no ring yet; `origin` is what each will have produced before its first entry.
    pub(super) fn new(origin: u32, notify: Option<Notify>, mover: Option<Mover>, memory: Option<Block<Line>>) -> Self {
        let rings = [None; SUB_CQS];
        Self { handles: 1, rings, produced: origin, written: 0, notify, mover, _memory: memory }
    }

    /// Gives it its next ring; what would be one too many is left out.
    pub(super) fn add(&mut self, ring: Ring) {
        let written = Written { ring, produced: self.produced };
        if let Some(place) = self.rings.iter_mut().find(|place| place.is_none()) {
            *place = Some(written);
        }
    }

    /// Whether there is such a ring.
    pub(super) fn has(&self, sub: u8) -> bool {
        self.rings.get(usize::from(sub)).is_some_and(Option::is_some)
    }

    /// Entries that it has room for in all.
    pub(super) fn room(&self) -> u32 {
        self.rings.iter().flatten().map(|written| written.ring.entries()).sum()
    }

    /// See [`SoftCq::take_event`](super::SoftCq::take_event).
    pub(super) fn take_event(&mut self) -> bool {
        let produced = self.produced;
        self.notify.as_mut().is_some_and(|notify| notify.take(produced))
    }

    /// Writes an entry into a ring: the phase last. `first` has it as zero.
    #[inline(always)]
    pub(super) fn write(&mut self, sub: u8, first: Quad, second: Quad, rest: [Quad; 2]) {
        let Some(Some(written)) = self.rings.get_mut(usize::from(sub)) else { return };
        let (ring, index) = (written.ring, written.produced);
        written.produced = index.wrapping_add(1);
        self.produced = self.produced.wrapping_add(1);
        let first = first | Quad::from(ring.phase(index) ^ flags::PHASE) << 24;
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
