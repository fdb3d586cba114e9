//! The send queue's producer.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;

use super::barrier::ring_send_doorbell;
use super::{AtomicWord, Entry, Finished, InFlight, Slots, WORDS_PER_QUAD, store_quad};
use crate::entry::{Quad, control, control1, control2, req_id_ex, with_length};
use crate::memory::{Buffers, RawBuffer, Tag};
use crate::peer::PeerCore;
use crate::provider::SendRing;

/// A send queue: entries are written to the ring, and a doorbell announces them: each, or those of a batch.
///
/// Where request ids have 64 bits, each carries the queue pair's life above slot and generation, which stay where they
/// are, and a completion is believed only if it repeats all of that: lives are not used twice, while generations wrap
/// (R20). libefa puts the caller's own id into all 64 bits there, and so has no generation to check.
#[derive(Debug)]
pub(crate) struct SendQueue {
    place: Place,
    ring: Ring,
    slots: Slots,
    /// Entries announced since the queue pair was made, of which the doorbell is told 16 bits. Of 32, as the compiler loads as
    /// many, and after a store of fewer the processor waits.
    producer: u32,
    max_batch: u16,
    doorbell: NonNull<AtomicU32>,
    /// Whether the device failed this queue: it then looks full.
    failed: bool,
}

/// Where the next entry goes. A batch has its own, which becomes the queue's when it is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    next: NonNull<AtomicWord>,
    /// The bits that every entry has, among them the request id's generation, and the phase, which flips at the wrap.
    control: Quad,
}

/// What the entries of a queue have in common.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// The first one, and behind the last one.
    base: NonNull<AtomicWord>,
    end: NonNull<AtomicWord>,
    /// The upper 48 bits of every request id, at their place in an entry; 0 where request ids have 16 bits.
    life: Quad,
}

const PHASE: Quad = control(0, control2::PHASE);

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for SendQueue {}

// SAFETY: it is used with its queue alone, through `&mut`, and says where; the ring is atomic.
unsafe impl Send for Place {}
// SAFETY: shared, it does nothing.
unsafe impl Sync for Place {}

/// An entry without request id, phase and fixed bits, and the buffers that it names.
pub(crate) struct SendParts<'p, D> {
    /// What its completion says.
    pub(crate) op: u8,
    /// Flags beside those that every entry has.
    pub(crate) ctrl1: u8,
    /// Buffers, or inline bytes.
    pub(crate) length: u16,
    /// The immediate, at its place.
    pub(crate) imm: Quad,
    /// Looked at when the entry is written: what it says would take registers before.
    pub(crate) to: &'p PeerCore,
    /// What follows the first 32 bytes.
    pub(crate) data: D,
    pub(crate) tag: Tag,
    pub(crate) buffers: [RawBuffer; 2],
}

impl<D> SendParts<'_, D> {
    #[inline(always)]
    pub(crate) fn first(&self) -> Quad {
        with_length(self.to.destination, self.length) | control(self.op | self.ctrl1, 0)
    }

    #[inline(always)]
    pub(crate) fn second(&self) -> Quad {
        self.imm | self.to.address_handle
    }

    #[inline(always)]
    pub(crate) fn third(&self) -> Quad {
        self.to.qkey.into()
    }
}

impl SendQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it. Entries that
    /// are staged have the ring's size.
    pub(crate) unsafe fn new(ring: &SendRing, generation: u16, life: u32) -> Self {
        // SAFETY: `depth` slots of this queue's, by the caller's word.
        let slots = unsafe { Slots::new(ring.slots, ring.depth, generation) };
        let words = ring.depth as usize * usize::from(ring.entry_size) / 8 * WORDS_PER_QUAD;
        let entries = Ring {
            base: ring.entries,
            // SAFETY: the ring has so many words, by the caller's word.
            end: unsafe { ring.entries.add(words) },
            life: if ring.req_id_64 { req_id_ex(life) } else { 0 },
        };
        Self {
            place: entries.start(&slots),
            ring: entries,
            slots,
            producer: 0,
            max_batch: ring.max_batch,
            doorbell: ring.doorbell,
            failed: false,
        }
    }

    /// No room for one more operation in flight.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    pub(crate) fn max_batch(&self) -> u16 {
        self.max_batch
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Writes an entry, which is then to be announced, and records its buffers. `false` if the queue is full: nothing
    /// happened, and the buffers are still the caller's.
    #[inline(always)]
    pub(crate) fn write<D: AsRef<[Quad]>>(&mut self, token: u64, parts: SendParts<'_, D>) -> bool {
        let Some(next) = self.ring.write(&self.place, &mut self.slots, token, parts) else {
            return false;
        };
        self.place.next = next;
        if next == self.ring.end {
            self.wrap();
        }
        true
    }

    /// To the first entry, in the phase of the round that begins there: as many entries were announced before it, but the last
    /// one. Made from their number, or the control bits would take a register until here.
    #[cold]
    #[inline(always)]
    fn wrap(&mut self) {
        self.place = self.ring.start(&self.slots);
        if self.producer.wrapping_add(1) & self.slots.depth() != 0 {
            self.place.control |= PHASE;
        }
    }

    /// As [`SendQueue::write`], at a place that is not this queue's yet.
    #[inline(always)]
    pub(crate) fn write_at<D: AsRef<[Quad]>>(
        &mut self,
        place: &mut Place,
        token: u64,
        parts: SendParts<'_, D>,
    ) -> bool {
        let Some(next) = self.ring.write(place, &mut self.slots, token, parts) else {
            return false;
        };
        place.next = next;
        if next == self.ring.end {
            *place = self.ring.wrapped(*place);
        }
        true
    }

    /// Where the next entry goes, and which slot it takes: where a batch begins.
    #[inline(always)]
    pub(crate) fn place(&self) -> (Place, u16) {
        (self.place, self.slots.next())
    }

    /// Announces the one entry that was written.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        self.producer = self.producer.wrapping_add(1);
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_send_doorbell(doorbell, self.producer & 0xFFFF);
    }

    /// Announces the `count` entries from this queue's place to that one.
    #[inline(always)]
    pub(crate) fn announce_to(&mut self, place: Place, count: u16) {
        self.place = place;
        self.producer = self.producer.wrapping_add(u32::from(count)).wrapping_sub(1);
        self.announce();
    }

    /// Takes entries back that were written elsewhere than at this queue's place, and which the device has not seen: so many,
    /// from the one in that slot on.
    pub(crate) fn take_back(&mut self, first: u16, count: u16) -> TakenBack<'_> {
        TakenBack { slots: &mut self.slots, next: first, left: count }
    }

    /// The operation of a good completion that says `op`, if that is of one in flight.
    #[inline(always)]
    pub(crate) fn current(&mut self, entry: &Entry, op: u8) -> Option<InFlight<'_>> {
        if self.is_of_this_life(entry) { self.slots.current(entry.req_id(), op) } else { None }
    }

    /// As [`SendQueue::current`], where the generation was compared already.
    #[inline(always)]
    pub(crate) fn in_flight(&mut self, entry: &Entry, op: u8) -> Option<InFlight<'_>> {
        if self.is_of_this_life(entry) { self.slots.in_flight(entry.req_id(), op) } else { None }
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
        self.ring.life == 0 || entry.req_id_ex() == self.ring.life
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
        if self.ring.life != 0 {
            self.ring.life = req_id_ex(life);
        }
        self.place = self.ring.start(&self.slots);
        self.producer = 0;
        self.reopen();
    }
}

/// The operations of a batch that is taken back. Those that are left when it is dropped, as by a panic of whoever takes
/// them, are taken back all the same.
#[derive(Debug)]
pub(crate) struct TakenBack<'q> {
    slots: &'q mut Slots,
    next: u16,
    left: u16,
}

impl Iterator for TakenBack<'_> {
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

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl Ring {
    /// Writes an entry at a place of this ring; gives where the next one goes, or the ring's end. `None` if there is no slot.
    #[inline(always)]
    fn write<D: AsRef<[Quad]>>(
        &self,
        place: &Place,
        slots: &mut Slots,
        token: u64,
        parts: SendParts<'_, D>,
    ) -> Option<NonNull<AtomicWord>> {
        let slot = slots.vacant()?;
        let entry = place.next;
        let store = |quad: usize, value: Quad| {
            // SAFETY: below, a quad of the next entry, which is in the ring: one of its first four, or of the data behind
            // them, which it has room for by the contract of `SendQueue::new`.
            unsafe { store_quad(entry, quad, value) }
        };
        // The request id, the phase and the fixed bits are added here.
        store(0, parts.first() | Quad::from(slot.index()) | place.control);
        store(1, parts.second());
        store(2, parts.third());
        store(3, self.life);
        let SendParts { op, data, tag, buffers, .. } = parts;
        let data = data.as_ref();
        for (nth, value) in data.iter().enumerate() {
            store(4 + nth, *value);
        }
        // Last, when little else is held in registers.
        slot.begin(token, op, tag, buffers);
        // SAFETY: from an entry of the ring, which has that size by the contract of `SendQueue::new`, to the next, or to the
        // ring's end.
        Some(unsafe { entry.add((4 + data.len()) * WORDS_PER_QUAD) })
    }

    /// From the ring's end to the first entry, in the other phase.
    #[cold]
    #[inline(always)]
    fn wrapped(&self, place: Place) -> Place {
        Place { next: self.base, control: place.control ^ PHASE }
    }

    /// Where the first entry of the first round goes.
    fn start(&self, slots: &Slots) -> Place {
        let control = control(control1::META_DESC, control2::FIXED) | Quad::from(slots.generation().0);
        Place { next: self.base, control }
    }
}

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    extern crate std;
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    use super::*;
    use crate::entry::control1;
    use crate::ring::{Slot, Word};
    use crate::soft::{Profile, pair};

    const DEPTH: u16 = if cfg!(miri) { 8 } else { 32768 };
    const QUADS: usize = 8;

    fn parts(to: &PeerCore) -> SendParts<'_, [Quad; 4]> {
        let (tag, buffers) = (Tag::NONE, [RawBuffer::NONE; 2]);
        SendParts { op: control1::OP_SEND, ctrl1: 0, length: 0, imm: 0, to, data: [0; 4], tag, buffers }
    }

    /// Completes all that is in flight.
    fn complete(queue: &mut SendQueue) {
        let generation = queue.slots.generation().0;
        for index in 0..DEPTH {
            if let Some(operation) = queue.current(&Entry([(index | generation).into(), 0]), control1::OP_SEND) {
                let _ = operation.finish();
            }
        }
        assert_eq!(queue.slots.occupied(), 0);
    }

    #[test]
    fn a_batch_of_the_whole_ring_goes_out_or_is_taken_back_wherever_it_begins() {
        let (side, _other) = pair(Profile::RDMA).unwrap();
        let to = &side.peer.core;
        let words = usize::from(DEPTH) * QUADS * WORDS_PER_QUAD;
        let words: Vec<AtomicWord> = (0..words).map(|_| AtomicWord::new(0)).collect();
        let mut slots: Vec<Slot> = (0..DEPTH).map(|_| Slot::VACANT).collect();
        let doorbell = AtomicU32::new(0);
        let ring = SendRing {
            entries: NonNull::from(&words[..]).cast(),
            doorbell: NonNull::from(&doorbell),
            depth: DEPTH.into(),
            entry_size: 64,
            max_batch: DEPTH,
            inline: 32,
            req_id_64: false,
            slots: NonNull::new(slots.as_mut_ptr()).unwrap(),
        };
        // SAFETY: as large as it says, alive until the end, and nobody else's.
        let mut queue = unsafe { SendQueue::new(&ring, 1, 1) };
        let mut produced: usize = 0;
        for ahead in [0, 1, DEPTH - 2, DEPTH / 2, DEPTH - 1] {
            for token in 0..ahead {
                assert!(queue.write(token.into(), parts(to)));
                queue.announce();
            }
            complete(&mut queue);
            produced += usize::from(ahead);
            for count in [0, 1, DEPTH] {
                let before = queue.place;
                let (mut place, first) = queue.place();
                assert!((0..count).all(|token| queue.write_at(&mut place, token.into(), parts(to))));
                assert!(count < DEPTH || !queue.write_at(&mut place, u64::MAX, parts(to)), "there is no room");
                assert!(queue.take_back(first, count).map(|(token, _)| token).eq(0..u64::from(count)));
                assert_eq!((queue.place, queue.slots.occupied()), (before, 0));
            }
            let (mut place, _) = queue.place();
            assert!((0..DEPTH).all(|token| queue.write_at(&mut place, token.into(), parts(to))));
            queue.announce_to(place, DEPTH);
            complete(&mut queue);
            let begin = produced;
            produced += usize::from(DEPTH);
            assert_eq!(doorbell.load(Ordering::Relaxed), produced as u32 & 0xFFFF);
            for nth in begin..produced {
                let (at, round) = (nth % usize::from(DEPTH), nth / usize::from(DEPTH));
                let first = words[at * QUADS * WORDS_PER_QUAD].load(Ordering::Relaxed);
                assert_eq!(first >> 24 & 1, round as Word & 1, "the phase of entry {nth}");
            }
        }
        assert!(cfg!(miri) || produced > 2 * 65536, "the counter of the doorbell wrapped");
    }
}
