//! Operations in flight: who owns which buffers while the device has them.
//!
//! A request id is a slot's index and, in the bits above, the queue pair's generation. Buffers go in before
//! the doorbell, and come out by the exact completion or after the queue pair was destroyed. Slots have no
//! Drop glue: what is never completed and never destroyed is leaked, not freed.

#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;

use crate::memory::RawBuffer;

/// Memory for one operation in flight; a provider gives a queue pair as many as its depth.
#[repr(C, align(64))]
pub struct Slot {
    token: u64,
    /// The next vacant slot; of an operation that was not announced yet, the one staged before it.
    next: u16,
    /// What is in it; [`Slot::EMPTY`] if it is vacant.
    mark: u8,
    tag: u8,
    buffers: [RawBuffer; 2],
}

// SAFETY: its raw parts are of regions, whose memory is `Send`.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot as a queue pair expects it.
    pub const VACANT: Self = Self { token: 0, next: 0, mark: Self::EMPTY, tag: 0, buffers: [RawBuffer::NONE; 2] };

    const EMPTY: u8 = 0;
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("mark", &self.mark).field("token", &self.token).finish_non_exhaustive()
    }
}

static_assertions::const_assert!(size_of::<Slot>() == 64);

/// What comes out of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) token: u64,
    /// What it was begun as.
    pub(crate) op: u8,
    pub(crate) tag: u8,
    pub(crate) buffers: [RawBuffer; 2],
}

/// The slots of one queue.
#[derive(Debug)]
pub(crate) struct Slots {
    base: NonNull<Slot>,
    /// The first vacant slot; `NONE` if the queue is full.
    head: u16,
    /// The depth; 0 once the queue was closed.
    limit: u16,
    mask: u16,
    /// The operation staged last; `NONE` if all are announced.
    staged: u16,
    /// The generation at its place in a request id.
    generation: u16,
    occupied: u16,
    /// Where [`Slots::end_any`] goes on.
    drained: u16,
}

// SAFETY: the slots are this queue's alone, and a slot is `Send`.
unsafe impl Send for Slots {}

const NONE: u16 = u16::MAX;

impl Slots {
    /// Takes over `depth` vacant slots.
    ///
    /// # Safety
    /// `base` is valid for `depth` slots, a power of two up to 32768, for as long as this is used, and
    /// nobody else touches them.
    pub(crate) unsafe fn new(base: NonNull<Slot>, depth: u32, generation: u16) -> Self {
        let mask = (depth - 1) as u16;
        let shift = depth.trailing_zeros();
        let this = Self {
            base,
            head: 0,
            limit: depth as u16,
            mask,
            staged: NONE,
            generation: ((u32::from(generation) << shift) & 0xFFFF) as u16,
            occupied: 0,
            drained: 0,
        };
        for index in 0..depth as u16 {
            let next = if index == mask { NONE } else { index + 1 };
            // SAFETY: index < depth.
            let slot = unsafe { &mut *this.slot(index) };
            *slot = Slot { next, ..Slot::VACANT };
        }
        this
    }

    /// Valid, and this queue's alone, if `index <= mask`.
    #[inline(always)]
    fn slot(&self, index: u16) -> *mut Slot {
        self.base.as_ptr().wrapping_add(usize::from(index))
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.head >= self.limit
    }

    pub(crate) fn occupied(&self) -> u16 {
        self.occupied
    }

    pub(crate) fn depth(&self) -> u32 {
        u32::from(self.mask) + 1
    }

    /// The bits that every request id of this queue has, and which bits those are.
    pub(crate) fn generation(&self) -> (u16, u16) {
        (self.generation, !self.mask)
    }

    /// Records an operation, whose completion says `op`; gives its request id, or `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn begin(&mut self, token: u64, op: u8, tag: u8, buffers: [RawBuffer; 2]) -> Option<u16> {
        let index = self.head;
        if index >= self.limit {
            return None;
        }
        // SAFETY: less than the limit, which is the depth or 0.
        let slot = unsafe { &mut *self.slot(index) };
        self.head = slot.next;
        self.occupied += 1;
        slot.token = token;
        slot.next = self.staged;
        self.staged = index;
        slot.mark = Self::mark(op);
        slot.tag = tag;
        slot.buffers = buffers;
        Some(index | self.generation)
    }

    const fn mark(op: u8) -> u8 {
        (op & 0xF) + 1
    }

    /// What was begun is announced now: it can be taken back no more.
    #[inline(always)]
    pub(crate) fn announced(&mut self) {
        self.staged = NONE;
    }

    /// Ends the operation of a good completion, if its request id, which may be any number, is that of an
    /// `op` in flight.
    #[inline(always)]
    pub(crate) fn end(&mut self, req_id: u16, op: u8) -> Option<Finished> {
        self.end_if(req_id, |mark| mark == Self::mark(op))
    }

    /// Ends the operation of a completion that is not good: there the operation's kind tells nothing.
    pub(crate) fn end_failed(&mut self, req_id: u16) -> Option<Finished> {
        self.end_if(req_id, |mark| mark != Slot::EMPTY)
    }

    #[inline(always)]
    fn end_if(&mut self, req_id: u16, is_it: impl Fn(u8) -> bool) -> Option<Finished> {
        let index = req_id & self.mask;
        // SAFETY: masked.
        let slot = unsafe { &mut *self.slot(index) };
        if !is_it(slot.mark) || req_id & !self.mask != self.generation {
            return None;
        }
        let op = slot.mark.wrapping_sub(1);
        slot.mark = Slot::EMPTY;
        slot.next = self.head;
        self.head = index;
        self.occupied -= 1;
        Some(Finished { token: slot.token, op, tag: slot.tag, buffers: slot.buffers })
    }

    /// Ends the operation staged last, as if it never was; `None` if there is none.
    ///
    /// Nothing was polled since it was staged, so no completion has ended it and the chain is whole.
    pub(crate) fn end_last(&mut self) -> Option<Finished> {
        let index = self.staged;
        if index > self.mask {
            return None;
        }
        // SAFETY: index <= mask.
        self.staged = unsafe { &*self.slot(index) }.next;
        self.end_failed(index | self.generation)
    }

    /// Has no vacant slot any more: for a queue that failed.
    pub(crate) fn close(&mut self) {
        self.limit = 0;
    }

    /// Undoes [`Slots::close`]: for a queue that was reset.
    pub(crate) fn reopen(&mut self) {
        // The depth; the mask of the deepest is one less than 32768, so this does not overflow.
        self.limit = self.mask + 1;
    }

    /// Ends some operation, whichever: for after the queue pair was destroyed, when none begins any more.
    pub(crate) fn end_any(&mut self) -> Option<Finished> {
        if self.occupied == 0 {
            return None;
        }
        // What is behind the last one found is vacant: it goes on from there.
        let index = (self.drained..=self.mask).find(|&index| {
            // SAFETY: index <= mask.
            let slot = unsafe { &*self.slot(index) };
            slot.mark != Slot::EMPTY
        })?;
        self.drained = index;
        self.end_failed(index | self.generation)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn slots(storage: &mut [Slot], generation: u16) -> Slots {
        let depth = storage.len() as u32;
        // SAFETY: the storage outlives the test's slots.
        unsafe { Slots::new(NonNull::new(storage.as_mut_ptr()).unwrap(), depth, generation) }
    }

    #[test]
    fn a_full_queue_gives_no_request_id_and_each_end_makes_room_for_one() {
        let mut storage = [Slot::VACANT, Slot::VACANT, Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 3);
        let ids: Vec<u16> = (0..4).map(|t| slots.begin(t, 0, 0, [RawBuffer::NONE; 2]).unwrap()).collect();
        assert!(slots.begin(9, 0, 0, [RawBuffer::NONE; 2]).is_none());
        assert_eq!(slots.end(ids[2], 0).unwrap().token, 2);
        assert!(!slots.is_full());
        assert_eq!(slots.begin(9, 0, 0, [RawBuffer::NONE; 2]), Some(ids[2]));
    }

    #[test]
    fn r20_a_request_id_of_another_generation_or_of_a_vacant_slot_ends_nothing() {
        let mut storage = [Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 5);
        let id = slots.begin(7, 2, 1, [RawBuffer::NONE; 2]).unwrap();
        let step = if cfg!(miri) { 97 } else { 1 };
        for other in (0..=u16::MAX).step_by(step).filter(|&other| other != id) {
            assert!(slots.end_failed(other).is_none(), "{other:#x} ended {id:#x}");
        }
        assert_eq!(slots.end(id, 2).unwrap().token, 7);
        assert!(slots.end(id, 2).is_none());
    }

    #[test]
    fn a_completion_of_another_operation_than_the_one_in_flight_ends_nothing() {
        let mut storage = [Slot::VACANT];
        let mut slots = slots(&mut storage, 0);
        let id = slots.begin(7, 2, 0, [RawBuffer::NONE; 2]).unwrap();
        assert!(slots.end(id, 0).is_none() && slots.end(id, 1).is_none());
        assert_eq!(slots.end(id, 2).unwrap().token, 7);
    }

    #[test]
    fn what_was_staged_comes_back_last_to_first_and_what_was_announced_does_not() {
        let mut storage = [Slot::VACANT, Slot::VACANT, Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 1);
        let announced = slots.begin(0, 0, 0, [RawBuffer::NONE; 2]).unwrap();
        slots.announced();
        for token in 1..4 {
            slots.begin(token, 0, 0, [RawBuffer::NONE; 2]).unwrap();
        }
        let back: Vec<u64> = core::iter::from_fn(|| slots.end_last()).map(|finished| finished.token).collect();
        assert_eq!(back, [3, 2, 1]);
        assert_eq!(slots.end(announced, 0).unwrap().token, 0);
    }
}
