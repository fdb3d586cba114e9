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
    /// The next vacant slot, while this one is vacant.
    next: u16,
    /// The slot of the operation that began before this one, whether or not that one still is.
    before: u16,
    occupied: bool,
    tag: u8,
    buffers: [RawBuffer; 2],
}

// SAFETY: its raw parts are of regions, whose memory is `Send`.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot as a queue pair expects it.
    pub const VACANT: Self =
        Self { token: 0, next: 0, before: 0, occupied: false, tag: 0, buffers: [RawBuffer::NONE; 2] };
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("occupied", &self.occupied).field("token", &self.token).finish_non_exhaustive()
    }
}

static_assertions::const_assert!(size_of::<Slot>() == 64);

/// What comes out of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) token: u64,
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
    /// The slot of the operation that began last.
    last: u16,
    /// The generation at its place in a request id.
    generation: u16,
    occupied: u16,
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
            last: NONE,
            generation: ((u32::from(generation) << shift) & 0xFFFF) as u16,
            occupied: 0,
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

    /// Records an operation; gives its request id, or `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn begin(&mut self, token: u64, tag: u8, buffers: [RawBuffer; 2]) -> Option<u16> {
        let index = self.head;
        if index >= self.limit {
            return None;
        }
        // SAFETY: less than the limit, which is the depth or 0.
        let slot = unsafe { &mut *self.slot(index) };
        self.head = slot.next;
        self.occupied += 1;
        slot.token = token;
        slot.before = self.last;
        self.last = index;
        slot.tag = tag;
        slot.occupied = true;
        slot.buffers = buffers;
        Some(index | self.generation)
    }

    /// Ends the operation of a completion's request id, which may be any number; `None` if there is none.
    #[inline(always)]
    pub(crate) fn end(&mut self, req_id: u16) -> Option<Finished> {
        let index = req_id & self.mask;
        // SAFETY: masked.
        let slot = unsafe { &mut *self.slot(index) };
        if !slot.occupied || req_id & !self.mask != self.generation {
            return None;
        }
        slot.occupied = false;
        slot.next = self.head;
        self.head = index;
        self.occupied -= 1;
        Some(Finished { token: slot.token, tag: slot.tag, buffers: slot.buffers })
    }

    /// Ends the operation that began last, as if it never had.
    ///
    /// Only for operations that no completion can have ended: then those that began last are a chain of slots
    /// that nobody else took meanwhile. `None` if there is none such.
    pub(crate) fn end_last(&mut self) -> Option<Finished> {
        let last = self.last;
        if last > self.mask {
            return None;
        }
        // SAFETY: last <= mask.
        self.last = unsafe { &*self.slot(last) }.before;
        self.end(last | self.generation)
    }

    /// Has no vacant slot any more: for a queue that failed.
    pub(crate) fn close(&mut self) {
        self.limit = 0;
    }

    /// Ends some operation, whichever: for after the queue pair was destroyed.
    pub(crate) fn end_any(&mut self) -> Option<Finished> {
        if self.occupied == 0 {
            return None;
        }
        // SAFETY: index <= mask.
        let index = (0..=self.mask).find(|&index| unsafe { &*self.slot(index) }.occupied)?;
        self.end(index | self.generation)
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
        let ids: Vec<u16> = (0..4).map(|t| slots.begin(t, 0, [RawBuffer::NONE; 2]).unwrap()).collect();
        assert!(slots.begin(9, 0, [RawBuffer::NONE; 2]).is_none());
        assert_eq!(slots.end(ids[2]).unwrap().token, 2);
        assert!(!slots.is_full());
        assert_eq!(slots.begin(9, 0, [RawBuffer::NONE; 2]), Some(ids[2]));
    }

    #[test]
    fn those_that_began_last_end_last_to_first_whatever_else_is_in_flight() {
        let mut storage = [const { Slot::VACANT }; 8];
        let mut slots = slots(&mut storage, 1);
        assert!(slots.end_last().is_none());
        let ids: Vec<u16> = (0..5).map(|t| slots.begin(t, 0, [RawBuffer::NONE; 2]).unwrap()).collect();
        slots.end(ids[4]).unwrap();
        slots.end(ids[1]).unwrap();
        for _ in 0..3 {
            let staged: Vec<u64> = (10..15).filter(|&t| slots.begin(t, 0, [RawBuffer::NONE; 2]).is_some()).collect();
            assert_eq!(staged.len(), 5);
            let ended: Vec<u64> = (0..5).map(|_| slots.end_last().unwrap().token).collect();
            assert_eq!(ended, [14, 13, 12, 11, 10]);
        }
        assert_eq!(slots.occupied(), 3);
        assert_eq!([ids[0], ids[2], ids[3]].map(|id| slots.end(id).unwrap().token), [0, 2, 3]);
    }

    #[test]
    fn r20_a_request_id_of_another_generation_or_of_a_vacant_slot_ends_nothing() {
        let mut storage = [Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 5);
        let id = slots.begin(7, 1, [RawBuffer::NONE; 2]).unwrap();
        let step = if cfg!(miri) { 97 } else { 1 };
        for other in (0..=u16::MAX).step_by(step).filter(|&other| other != id) {
            assert!(slots.end(other).is_none(), "{other:#x} ended {id:#x}");
        }
        assert_eq!(slots.end(id).unwrap().token, 7);
        assert!(slots.end(id).is_none());
    }
}
