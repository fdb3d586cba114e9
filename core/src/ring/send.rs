//! The send queue's producer.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::barrier::ring_send_doorbell;
use super::{AtomicWord, Entry, Finished, Slots, store_quad};
use crate::entry::{Quad, control, control1, control2, req_id_ex};
use crate::memory::RawBuffer;
use crate::provider::SendRing;

/// A send queue: entries are staged in the ring, and one doorbell announces them all.
///
/// Where request ids have 64 bits, each carries the queue pair's life above slot and generation, which stay where they
/// are, and a completion is believed only if it repeats all of that: lives are not used twice, while generations wrap
/// (R20). libefa puts the caller's own id into all 64 bits there, and so has no generation to check.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: NonNull<AtomicWord>,
    /// Where the next entry goes, in quads.
    position: u32,
    /// The ring's length, in quads.
    end: u32,
    /// Quads of an entry: 8 or 16.
    quads: u32,
    /// The upper 48 bits of every request id, at their place in an entry; 0 where request ids have 16 bits.
    life: Quad,
    /// The bits that every entry has, and the phase; XORed at the wrap.
    control: Quad,
    slots: Slots,
    /// Entries produced since the queue pair was made: what the doorbell is told.
    producer: u32,
    /// Entries that no doorbell has announced yet.
    staged: u16,
    max_batch: u16,
    doorbell: NonNull<AtomicU32>,
    /// Whether the device failed this queue: it then looks full.
    failed: bool,
}

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for SendQueue {}

impl SendQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it. Entries that
    /// are staged have the ring's size.
    pub(crate) unsafe fn new(ring: &SendRing, generation: u16, life: u32) -> Self {
        let quads = u32::from(ring.entry_size / 8);
        Self {
            entries: ring.entries,
            position: 0,
            end: ring.depth * quads,
            quads,
            life: if ring.req_id_64 { req_id_ex(life) } else { 0 },
            control: control(control1::META_DESC, control2::FIXED),
            // SAFETY: `depth` slots of this queue's, by the caller's word.
            slots: unsafe { Slots::new(ring.slots, ring.depth, generation) },
            producer: 0,
            staged: 0,
            max_batch: ring.max_batch,
            doorbell: ring.doorbell,
            failed: false,
        }
    }

    /// Room for one more operation in flight.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Whether one doorbell could announce one more.
    #[inline(always)]
    pub(crate) fn batch_is_full(&self) -> bool {
        self.staged >= self.max_batch
    }

    pub(crate) fn staged(&self) -> u16 {
        self.staged
    }

    pub(crate) fn max_batch(&self) -> u16 {
        self.max_batch
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Writes an entry that the doorbell has yet to announce, and records its buffers. The request id, the
    /// phase and the fixed bits are added here. `false` if the queue is full: nothing happened, and the
    /// buffers are still the caller's.
    #[inline(always)]
    pub(crate) fn stage<D: AsRef<[Quad]>>(
        &mut self,
        token: u64,
        tag: u8,
        [head, second, third, fourth]: [Quad; 4],
        data: D,
        buffers: [RawBuffer; 2],
    ) -> bool {
        let Some(req_id) = self.slots.begin(token, op_of(head), tag, buffers) else {
            return false;
        };
        let (at, data) = (self.position as usize, data.as_ref());
        // Known to the compiler: by the queue pair's kind.
        let quads = 4 + data.len() as u32;
        debug_assert_eq!(quads, self.quads, "the ring has entries of the kind's size");
        let meta = [head | Quad::from(req_id) | self.control, second, third, fourth | self.life];
        for (quad, value) in meta.iter().enumerate() {
            // SAFETY: the position is that of an entry in the ring.
            unsafe { store_quad(self.entries, at + quad, *value) };
        }
        for (quad, value) in data.iter().enumerate() {
            // SAFETY: another quad of that entry, which has these by `new`'s contract.
            unsafe { store_quad(self.entries, at + 4 + quad, *value) };
        }
        self.position += quads;
        if self.position == self.end {
            self.wrap();
        }
        self.producer = self.producer.wrapping_add(1);
        self.staged += 1;
        true
    }

    fn wrap(&mut self) {
        self.position = 0;
        self.control ^= control(0, control2::PHASE);
    }

    /// Announces what was staged.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_send_doorbell(doorbell, self.producer & 0xFFFF);
        self.staged = 0;
        self.slots.announced();
    }

    /// Takes the last staged entry back, which the device has not seen; `None` if there is none.
    pub(crate) fn unstage(&mut self) -> Option<Finished> {
        if self.staged == 0 {
            return None;
        }
        self.step_back();
        // The request id stands in the entry, which is write-only: the slots know which began last. Nobody polled
        // since it was staged: a batch that was forgotten is announced before anything else is staged.
        self.slots.end_last()
    }

    fn step_back(&mut self) {
        self.staged -= 1;
        self.producer = self.producer.wrapping_sub(1);
        if self.position == 0 {
            self.position = self.end;
            self.control ^= control(0, control2::PHASE);
        }
        self.position -= self.quads;
    }

    /// Ends the operation of a good completion, if that is of one in flight.
    #[inline(always)]
    pub(crate) fn end(&mut self, entry: &Entry) -> Option<Finished> {
        if !self.is_of_this_life(entry) {
            return None;
        }
        self.slots.end(entry.req_id(), entry.op())
    }

    /// Ends the operation of a completion that is not good.
    pub(crate) fn end_failed(&mut self, entry: &Entry) -> Option<Finished> {
        if !self.is_of_this_life(entry) {
            return None;
        }
        self.slots.end_failed(entry.req_id())
    }

    #[inline(always)]
    fn is_of_this_life(&self, entry: &Entry) -> bool {
        self.life == 0 || entry.req_id_ex() == self.life
    }

    /// Ends some operation, whichever: for after the queue pair was destroyed.
    pub(crate) fn end_any(&mut self) -> Option<Finished> {
        self.slots.end_any()
    }

    /// Refuses all further operations.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        self.slots.close();
    }

    /// Undoes [`SendQueue::fail`].
    pub(crate) fn reopen(&mut self) {
        self.failed = false;
        self.slots.reopen();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Back to the first entry, as the device is after a move to RESET; nothing is in flight.
    pub(crate) fn rewind(&mut self, life: u32) {
        if self.life != 0 {
            self.life = req_id_ex(life);
        }
        self.position = 0;
        self.control = control(control1::META_DESC, control2::FIXED);
        self.producer = 0;
        self.staged = 0;
        self.reopen();
    }
}

/// The operation of an entry's first quad.
#[inline(always)]
fn op_of(head: Quad) -> u8 {
    (head >> 16) as u8 & control1::OP_MASK
}
