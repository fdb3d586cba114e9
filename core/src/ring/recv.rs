//! The receive queue's producer.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::barrier::ring_recv_doorbell;
use super::slots::{RECV, Vacant};
use super::{AtomicWord, Finished, InFlight, Slots, store_quad};
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
    descriptors: Descriptors,
    max_buffers: u8,
    doorbell: NonNull<AtomicU32>,
}

/// The ring.
#[derive(Debug)]
struct Descriptors {
    base: NonNull<AtomicWord>,
    /// Descriptors produced since the queue pair was made: what the doorbell is told.
    producer: u32,
    mask: u32,
    /// What the second quad of a receive's only descriptor has beside length and key: generation and flags.
    control: Quad,
}

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for RecvQueue {}

/// Room for one more receive, and so for its descriptors.
#[derive(Debug)]
pub(crate) struct RecvPlace<'q> {
    slot: Vacant<'q>,
    descriptors: &'q mut Descriptors,
}

impl RecvQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it.
    pub(crate) unsafe fn new(ring: &RecvRing, generation: u16) -> Self {
        // SAFETY: `depth` slots of this queue's, by the caller's word.
        let slots = unsafe { Slots::new(ring.slots, ring.depth, generation) };
        let control = Quad::from(slots.generation().0) | FIRST | LAST;
        Self {
            slots,
            descriptors: Descriptors { base: ring.entries, producer: 0, mask: ring.descriptors - 1, control },
            max_buffers: ring.max_sge,
            doorbell: ring.doorbell,
        }
    }

    /// `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn place(&mut self) -> Option<RecvPlace<'_>> {
        Some(RecvPlace { slot: self.slots.vacant()?, descriptors: &mut self.descriptors })
    }

    pub(crate) fn max_buffers(&self) -> u8 {
        self.max_buffers
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Announces what was staged.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_recv_doorbell(doorbell, self.descriptors.producer & 0xFFFF);
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
        self.descriptors.producer = 0;
    }
}

impl RecvPlace<'_> {
    /// Writes the descriptors of a receive of `count` buffers, which the doorbell has yet to announce.
    #[inline(always)]
    pub(crate) fn stage(self, token: u64, tag: Tag, count: usize, buffers: [RawBuffer; 2]) {
        let Self { slot, descriptors: Descriptors { base, producer, mask, control } } = self;
        let room = buffers.iter().take(count).fold(0, |room, buffer| buffer.len().wrapping_add(room));
        let mut head = *control | Quad::from(slot.index());
        slot.begin_recv(token, tag, room, buffers);
        for (nth, buffer) in buffers.iter().take(count).enumerate() {
            if nth + 1 < count {
                head ^= LAST;
            }
            let at = (*producer & *mask) as usize * QUADS;
            // SAFETY: masked to the ring.
            unsafe { store_quad(*base, at, buffer.addr) };
            // SAFETY: the other half of that descriptor.
            unsafe { store_quad(*base, at + 1, recv_tail(buffer.length_and_key) | head) };
            *producer = producer.wrapping_add(1);
            // Only the first has the request id.
            head = LAST;
        }
    }
}
