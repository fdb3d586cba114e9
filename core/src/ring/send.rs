//! The send queue's producer.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::barrier::ring_send_doorbell;
use super::{AtomicWord, Entry, Finished, InFlight, Slots, store_quad};
use crate::entry::{Quad, control, control1, control2, req_id_ex};
use crate::memory::{Buffers, RawBuffer, Tag};
use crate::provider::SendRing;

/// A send queue: entries are written to the ring, and a doorbell announces them: each, or those of a batch.
///
/// Where request ids have 64 bits, each carries the queue pair's life above slot and generation, which stay where they
/// are, and a completion is believed only if it repeats all of that: lives are not used twice, while generations wrap
/// (R20). libefa puts the caller's own id into all 64 bits there, and so has no generation to check.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: NonNull<AtomicWord>,
    /// Entries produced since the queue pair was made: what the doorbell is told.
    producer: u32,
    /// The ring's entries less one.
    mask: u32,
    /// The bits that every entry has, among them the request id's generation, and the phase, which flips at the wrap.
    control: Quad,
    /// The upper 48 bits of every request id, at their place in an entry; 0 where request ids have 16 bits.
    life: Quad,
    slots: Slots,
    /// Entries of a batch that no doorbell has announced yet.
    staged: u16,
    /// The slot of the first of them.
    first: u16,
    max_batch: u16,
    doorbell: NonNull<AtomicU32>,
    /// Whether the device failed this queue: it then looks full.
    failed: bool,
}

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for SendQueue {}

/// An entry without request id, phase and fixed bits, and the buffers that it names.
#[derive(Debug)]
pub(crate) struct SendParts<D> {
    /// What its completion says.
    pub(crate) op: u8,
    /// Its first 32 bytes.
    pub(crate) meta: [Quad; 4],
    /// What follows them.
    pub(crate) data: D,
    pub(crate) tag: Tag,
    pub(crate) buffers: [RawBuffer; 2],
}

impl SendQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it. Entries that
    /// are staged have the ring's size.
    pub(crate) unsafe fn new(ring: &SendRing, generation: u16, life: u32) -> Self {
        // SAFETY: `depth` slots of this queue's, by the caller's word.
        let slots = unsafe { Slots::new(ring.slots, ring.depth, generation) };
        Self {
            entries: ring.entries,
            producer: 0,
            mask: ring.depth - 1,
            control: first_control(&slots),
            life: if ring.req_id_64 { req_id_ex(life) } else { 0 },
            slots,
            staged: 0,
            first: 0,
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
    pub(crate) fn write<D: AsRef<[Quad]>>(&mut self, token: u64, parts: SendParts<D>) -> bool {
        let SendParts { op, meta: [head, second, third, fourth], data, tag, buffers } = parts;
        let Some(slot) = self.slots.begin(token, op, tag, buffers) else {
            return false;
        };
        let data = data.as_ref();
        // Known to the compiler: by the queue pair's kind, whose entries the ring has.
        let quads = 4 + data.len();
        let at = (self.producer & self.mask) as usize * quads;
        let meta = [head | Quad::from(slot) | self.control, second, third, fourth | self.life];
        for (quad, value) in meta.iter().enumerate() {
            // SAFETY: of an entry in the ring: masked.
            unsafe { store_quad(self.entries, at + quad, *value) };
        }
        for (quad, value) in data.iter().enumerate() {
            // SAFETY: another quad of that entry, which has these by `new`'s contract.
            unsafe { store_quad(self.entries, at + 4 + quad, *value) };
        }
        self.producer = self.producer.wrapping_add(1);
        if self.producer & self.mask == 0 {
            self.control ^= control(0, control2::PHASE);
        }
        true
    }

    /// Begins a batch, before which none is staged.
    pub(crate) fn begin_batch(&mut self) {
        self.first = self.slots.next();
    }

    /// As [`SendQueue::write`], and counts it in the batch.
    #[inline(always)]
    pub(crate) fn stage<D: AsRef<[Quad]>>(&mut self, token: u64, parts: SendParts<D>) -> bool {
        let staged = self.write(token, parts);
        self.staged += u16::from(staged);
        staged
    }

    /// Announces what was written.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_send_doorbell(doorbell, self.producer & 0xFFFF);
    }

    /// Announces the batch.
    #[inline(always)]
    pub(crate) fn announce_staged(&mut self) {
        self.announce();
        self.staged = 0;
    }

    /// Takes the batch back, which the device has not seen, first to last.
    pub(crate) fn unstage(&mut self) -> Unstaged<'_> {
        let count = core::mem::take(&mut self.staged);
        let wrapped = self.producer & self.mask < u32::from(count);
        self.producer = self.producer.wrapping_sub(count.into());
        if wrapped {
            self.control ^= control(0, control2::PHASE);
        }
        // Nobody polled since it was begun: who polls or posts announces a batch that was forgotten before.
        Unstaged { slots: &mut self.slots, next: self.first, left: count }
    }

    /// The operation of a good completion, if that is of one in flight.
    #[inline(always)]
    pub(crate) fn current(&mut self, entry: &Entry) -> Option<InFlight<'_>> {
        if self.is_of_this_life(entry) { self.slots.current(entry.req_id(), entry.op()) } else { None }
    }

    /// As [`SendQueue::current`], where the generation was compared already.
    #[inline(always)]
    pub(crate) fn in_flight(&mut self, entry: &Entry) -> Option<InFlight<'_>> {
        if self.is_of_this_life(entry) { self.slots.in_flight(entry.req_id(), entry.op()) } else { None }
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
        self.control = first_control(&self.slots);
        self.producer = 0;
        self.staged = 0;
        self.reopen();
    }
}

/// The operations of a batch that is taken back. Those that are left when it is dropped, as by a panic of whoever takes
/// them, are taken back all the same.
#[derive(Debug)]
pub(crate) struct Unstaged<'q> {
    slots: &'q mut Slots,
    next: u16,
    left: u16,
}

impl Iterator for Unstaged<'_> {
    type Item = (u64, Buffers);

    fn next(&mut self) -> Option<(u64, Buffers)> {
        self.left = self.left.checked_sub(1)?;
        let (finished, after) = self.slots.take_back(self.next);
        self.next = after;
        let Finished { token, tag, buffers, .. } = finished?;
        // SAFETY: no doorbell announced it, so the device never had it, and its slot was ended once.
        Some((token, unsafe { Buffers::from_raw(buffers, tag) }))
    }
}

impl Drop for Unstaged<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// The control bits of the first round.
fn first_control(slots: &Slots) -> Quad {
    control(control1::META_DESC, control2::FIXED) | Quad::from(slots.generation().0)
}
