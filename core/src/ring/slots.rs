//! Operations in flight: who owns which buffers while the device has them.
//!
//! A request id is a slot's index and, in the bits above, the queue pair's generation. Buffers go in before
//! the doorbell, and come out by the exact completion or after the queue pair was destroyed. Slots have no
//! Drop glue: what is never completed and never destroyed is leaked, not freed.

#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;

use crate::memory::{RawBuffer, Tag};

/// Memory for one operation in flight; a provider gives a queue pair as many as its depth.
#[repr(C, align(64))]
pub struct Slot {
    token: u64,
    /// The next vacant slot; of one that is taken, the one that was next then.
    next: u16,
    /// The operation in it; [`Slot::EMPTY`] if it is vacant.
    mark: u8,
    tag: Tag,
    /// Of a receive: bytes of the buffers.
    room: u32,
    buffers: [RawBuffer; 2],
}

// SAFETY: its raw parts are of regions, whose memory is `Send`.
unsafe impl Send for Slot {}

impl Slot {
    /// A slot as a queue pair expects it.
    pub const VACANT: Self =
        Self { token: 0, next: 0, mark: Self::EMPTY, tag: Tag::NONE, room: 0, buffers: [RawBuffer::NONE; 2] };

    const EMPTY: u8 = 0xFF;
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
    pub(crate) tag: Tag,
    pub(crate) buffers: [RawBuffer; 2],
}

/// An operation that was found in flight, and stays so while this borrows its queue.
#[derive(Debug)]
pub(crate) struct InFlight<'s> {
    slots: &'s mut Slots,
    /// Of a slot that is taken. A machine word, which costs no conversions.
    index: usize,
}

impl InFlight<'_> {
    /// Of a receive: bytes of its buffers.
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        // SAFETY: of the depth.
        unsafe { &*self.slots.slot(self.index) }.room
    }

    /// Ends it.
    #[inline(always)]
    pub(crate) fn finish(self) -> Finished {
        let Self { slots, index } = self;
        // SAFETY: of the depth.
        let slot = unsafe { &mut *slots.slot(index) };
        let op = core::mem::replace(&mut slot.mark, Slot::EMPTY);
        slot.next = slots.head;
        slots.head = index as u16;
        slots.occupied -= 1;
        Finished { token: slot.token, op, tag: slot.tag, buffers: slot.buffers }
    }
}

/// The slot that the next operation takes, and stays so while this borrows its queue.
#[derive(Debug)]
pub(crate) struct Vacant<'s> {
    slots: &'s mut Slots,
    /// Below the limit.
    index: u16,
}

impl Vacant<'_> {
    /// What the request id says of it.
    #[inline(always)]
    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Records an operation in it, whose completion says `op`.
    #[inline(always)]
    pub(crate) fn begin(mut self, token: u64, op: u8, tag: Tag, buffers: [RawBuffer; 2]) {
        self.fill(token, op, tag, buffers);
    }

    /// Records a receive of so many bytes in it.
    #[inline(always)]
    pub(crate) fn begin_recv(mut self, token: u64, tag: Tag, room: u32, buffers: [RawBuffer; 2]) {
        self.fill(token, RECV, tag, buffers).room = room;
    }

    #[inline(always)]
    fn fill(&mut self, token: u64, op: u8, tag: Tag, buffers: [RawBuffer; 2]) -> &mut Slot {
        let Self { slots, index } = self;
        // SAFETY: less than the limit, which is the depth or 0.
        let slot = unsafe { &mut *slots.slot(*index) };
        slots.head = slot.next;
        slots.occupied += 1;
        slot.token = token;
        slot.mark = op & 0xF;
        slot.tag = tag;
        // A store less where the caller's type says that there is none.
        if tag.has_first() {
            slot.buffers[0] = buffers[0];
        }
        if tag.has_second() {
            slot.buffers[1] = buffers[1];
        }
        slot
    }
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
    /// The generation at its place in a request id.
    generation: u16,
    occupied: u16,
    /// Where [`Slots::end_any`] goes on.
    drained: u16,
}

// SAFETY: the slots are this queue's alone, and a slot is `Send`.
unsafe impl Send for Slots {}

const NONE: u16 = u16::MAX;

/// What a receive's slot is marked with: what arrives in it is the sender's choice.
pub(crate) const RECV: u8 = 0;

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
    fn slot(&self, index: impl Into<usize>) -> *mut Slot {
        self.base.as_ptr().wrapping_add(index.into())
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

    /// A slot for an operation, or `None` if the queue is full.
    #[inline(always)]
    pub(crate) fn vacant(&mut self) -> Option<Vacant<'_>> {
        let index = self.head;
        if index < self.limit { Some(Vacant { slots: self, index }) } else { None }
    }

    /// The slot that the next operation takes.
    pub(crate) fn next(&self) -> u16 {
        self.head
    }

    /// What is in flight in the slot of a request id, if that is an `op`. Of which generation is not looked at.
    #[inline(always)]
    pub(crate) fn in_flight(&mut self, req_id: u16, op: u8) -> Option<InFlight<'_>> {
        self.find(req_id, |mark| mark == op)
    }

    #[inline(always)]
    fn find(&mut self, req_id: u16, is: impl FnOnce(u8) -> bool) -> Option<InFlight<'_>> {
        let index = usize::from(req_id & self.mask);
        // SAFETY: masked.
        let mark = unsafe { &*self.slot(index) }.mark;
        (mark != Slot::EMPTY && is(mark)).then_some(InFlight { slots: self, index })
    }

    /// What is in flight by a request id, if it has this queue's generation.
    #[inline(always)]
    pub(crate) fn current(&mut self, req_id: u16, op: u8) -> Option<InFlight<'_>> {
        if self.is_current(req_id) { self.in_flight(req_id, op) } else { None }
    }

    /// Whether a request id, which may be any number, has this queue's generation.
    #[inline(always)]
    fn is_current(&self, req_id: u16) -> bool {
        req_id & !self.mask == self.generation
    }

    /// Ends the operation of a completion that is not good: there the operation's kind tells nothing.
    pub(crate) fn end_failed(&mut self, req_id: u16) -> Option<Finished> {
        if !self.is_current(req_id) {
            return None;
        }
        self.find(req_id, |_| true).map(InFlight::finish)
    }

    /// Ends an operation that was begun, as if it never was; gives the slot of the one begun after it.
    ///
    /// That is right if `index` was [`Slots::next`] before it began and nothing ended since.
    pub(crate) fn take_back(&mut self, index: u16) -> (Option<Finished>, u16) {
        // SAFETY: masked.
        let after = unsafe { &*self.slot(index & self.mask) }.next;
        (self.end_failed(index & self.mask | self.generation), after)
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

    /// The request id of an operation that begins.
    fn begin(slots: &mut Slots, token: u64, op: u8) -> Option<u16> {
        let vacant = slots.vacant()?;
        let index = vacant.index();
        vacant.begin(token, op, Tag::NONE, [RawBuffer::NONE; 2]);
        Some(index | slots.generation().0)
    }

    /// The end of a good completion.
    fn end(slots: &mut Slots, req_id: u16, op: u8) -> Option<Finished> {
        slots.current(req_id, op).map(InFlight::finish)
    }

    #[test]
    fn a_full_queue_gives_no_request_id_and_each_end_makes_room_for_one() {
        let mut storage = [Slot::VACANT, Slot::VACANT, Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 3);
        let ids: Vec<u16> = (0..4).map(|t| begin(&mut slots, t, 0).unwrap()).collect();
        assert!(begin(&mut slots, 9, 0).is_none());
        assert_eq!(end(&mut slots, ids[2], 0).unwrap().token, 2);
        assert!(!slots.is_full());
        assert_eq!(begin(&mut slots, 9, 0), Some(ids[2]));
    }

    #[test]
    fn r20_a_request_id_of_another_generation_or_of_a_vacant_slot_ends_nothing() {
        let mut storage = [Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 5);
        let id = begin(&mut slots, 7, 2).unwrap();
        let step = if cfg!(miri) { 97 } else { 1 };
        for other in (0..=u16::MAX).step_by(step).filter(|&other| other != id) {
            assert!(slots.end_failed(other).is_none(), "{other:#x} ended {id:#x}");
        }
        assert_eq!(end(&mut slots, id, 2).unwrap().token, 7);
        assert!(end(&mut slots, id, 2).is_none());
    }

    #[test]
    fn a_queue_that_was_closed_has_no_vacant_slot_whichever_is_next_until_it_is_reopened() {
        let mut storage = [Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 1);
        for token in 0..3 {
            slots.close();
            assert!(slots.is_full() && slots.vacant().is_none(), "after {token} operations");
            slots.reopen();
            assert_eq!(begin(&mut slots, token, 0).is_some(), token < 2);
        }
    }

    #[test]
    fn a_completion_of_another_operation_than_the_one_in_flight_ends_nothing() {
        let mut storage = [Slot::VACANT];
        let mut slots = slots(&mut storage, 0);
        let id = begin(&mut slots, 7, 2).unwrap();
        assert!(end(&mut slots, id, 0).is_none() && end(&mut slots, id, 1).is_none());
        assert_eq!(end(&mut slots, id, 2).unwrap().token, 7);
    }

    #[test]
    fn what_was_begun_is_taken_back_in_the_order_in_which_it_began_whatever_ended_before() {
        let mut storage = [Slot::VACANT, Slot::VACANT, Slot::VACANT, Slot::VACANT];
        let mut slots = slots(&mut storage, 1);
        let before: Vec<u16> = (0..3).map(|token| begin(&mut slots, token, 0).unwrap()).collect();
        end(&mut slots, before[1], 0).unwrap();
        end(&mut slots, before[0], 0).unwrap();
        let mut next = slots.next();
        for token in 10..13 {
            begin(&mut slots, token, 0).unwrap();
        }
        assert!(slots.is_full());
        for token in 10..13 {
            let (finished, after) = slots.take_back(next);
            assert_eq!(finished.unwrap().token, token);
            next = after;
        }
        assert_eq!((end(&mut slots, before[2], 0).unwrap().token, slots.occupied()), (2, 0));
    }
}
