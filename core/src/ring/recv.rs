//! The receive queue's producer.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::barrier::ring_recv_doorbell;
use super::slots::{RECV, Vacant};
use super::{AtomicWord, Finished, InFlight, Slots, WORDS_PER_QUAD, store_quad};
use crate::entry::{Quad, descriptor_flags, recv_tail};
use crate::memory::{RawBuffer, Tag};
use crate::provider::RecvRing;

const QUADS: usize = 2;

/// Flags at their place in the second quad.
const FIRST: Quad = (descriptor_flags::FIRST as Quad) << 32;
const LAST: Quad = (descriptor_flags::LAST as Quad) << 32;

/// A receive queue: one descriptor for each buffer, one doorbell for a list of receives.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    slots: Slots,
    ring: Ring,
    written: Written,
    max_buffers: u8,
    doorbell: NonNull<AtomicU32>,
}

/// How far the ring was written. A list of receives has a copy, which becomes the queue's when it is announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Where the next descriptor goes.
    next: NonNull<AtomicWord>,
    /// Descriptors since the queue pair was made, of which the doorbell is told 16 bits. Of 32, as the compiler loads as many, and
    /// after a store of fewer the processor waits.
    producer: u32,
}

#[derive(Debug)]
struct Ring {
    /// The first descriptor, and behind the last one.
    base: NonNull<AtomicWord>,
    end: NonNull<AtomicWord>,
    /// What the second quad of a receive's only descriptor has beside length and key: generation and flags.
    control: Quad,
}

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for RecvQueue {}

/// Room for one more receive, and so for its descriptors.
#[derive(Debug)]
pub(crate) struct RecvPlace<'q> {
    slot: Vacant<'q>,
    ring: &'q Ring,
    written: &'q mut Written,
}

impl RecvQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it.
    pub(crate) unsafe fn new(ring: &RecvRing, generation: u16) -> Self {
        // SAFETY: `depth` slots of this queue's, by the caller's word.
        let slots = unsafe { Slots::new(ring.slots, ring.depth, generation) };
        let control = Quad::from(slots.generation().0) | FIRST | LAST;
        let words = ring.descriptors as usize * QUADS * WORDS_PER_QUAD;
        // SAFETY: the ring has so many words, by the caller's word.
        let end = unsafe { ring.entries.add(words) };
        Self {
            slots,
            ring: Ring { base: ring.entries, end, control },
            written: Written { next: ring.entries, producer: 0 },
            max_buffers: ring.max_sge,
            doorbell: ring.doorbell,
        }
    }

    /// `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> Option<RecvPlace<'_>> {
        Some(RecvPlace { slot: self.slots.vacant()?, ring: &self.ring, written: &mut self.written })
    }

    /// As [`RecvQueue::place`], beyond what was announced.
    #[inline(always)]
    pub(crate) fn place_after<'q>(&'q mut self, written: &'q mut Written) -> Option<RecvPlace<'q>> {
        Some(RecvPlace { slot: self.slots.vacant()?, ring: &self.ring, written })
    }

    /// As far as was announced.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    pub(crate) fn max_buffers(&self) -> u8 {
        self.max_buffers
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Announces what was written as far as that.
    #[inline(always)]
    pub(crate) fn announce_to(&mut self, written: Written) {
        self.written = written;
        self.announce();
    }

    /// Announces what was written.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_recv_doorbell(doorbell, self.written.producer & 0xFFFF);
    }

    /// The receive of a completion, if it is one in flight.
    #[inline(always)]
    pub(crate) fn current(&mut self, req_id: u16) -> Option<InFlight<'_>> {
        self.slots.current(req_id, RECV)
    }

    /// As [`RecvQueue::current`], where the generation was compared already.
    #[inline(always)]
    pub(crate) fn in_flight(&mut self, req_id: u16) -> Option<InFlight<'_>> {
        self.slots.in_flight(req_id, RECV)
    }

    /// Ends some receive, whichever: for after the queue pair was destroyed.
    pub(crate) fn end_any(&mut self) -> Option<Finished> {
        self.slots.end_any()
    }

    /// Back to the first descriptor, as the device is after a move to RESET; nothing is in flight.
    pub(crate) fn rewind(&mut self) {
        self.written = Written { next: self.ring.base, producer: 0 };
    }
}

impl RecvPlace<'_> {
    /// Writes the descriptors of a receive of `count` buffers, which the doorbell has yet to announce.
    #[inline(always)]
    pub(crate) fn stage(self, token: u64, tag: Tag, count: usize, buffers: [RawBuffer; 2]) {
        let Self { slot, ring, written } = self;
        let room = buffers.iter().take(count).fold(0, |room, buffer| buffer.len().wrapping_add(room));
        let mut head = ring.control | Quad::from(slot.index());
        slot.begin_recv(token, tag, room, buffers);
        for (nth, buffer) in buffers.iter().take(count).enumerate() {
            if nth + 1 < count {
                head ^= LAST;
            }
            let at = written.next;
            // SAFETY: the next descriptor is in the ring.
            unsafe { store_quad(at, 0, buffer.addr) };
            // SAFETY: its other half.
            unsafe { store_quad(at, 1, recv_tail(buffer.length_and_key) | head) };
            // SAFETY: from a descriptor of the ring to the next, or to the ring's end.
            written.next = unsafe { at.add(QUADS * WORDS_PER_QUAD) };
            if written.next == ring.end {
                written.next = ring.first();
            }
            written.producer = written.producer.wrapping_add(1);
            // Only the first has the request id.
            head = LAST;
        }
    }
}

impl Ring {
    /// Apart, or the compiler makes a conditional move of it.
    #[cold]
    #[inline(always)]
    fn first(&self) -> NonNull<AtomicWord> {
        self.base
    }
}
