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
    /// The next entry.
    next: NonNull<AtomicWord>,
    /// The first one, and behind the last one.
    base: NonNull<AtomicWord>,
    end: NonNull<AtomicWord>,
    /// Entries produced since the queue pair was made, of which 16 bits count: what the doorbell is told.
    producer: u16,
    /// The bits that every entry has, among them the request id's generation, and the phase, which flips at the wrap.
    control: Quad,
    /// Whether that phase is 1, as it is in every second round.
    odd: bool,
    /// The upper 48 bits of every request id, at their place in an entry; 0 where request ids have 16 bits.
    life: Quad,
    slots: Slots,
    /// What is to be seen to beside the ring: [`OPEN`], [`BY_CALLS`].
    beside: u8,
    /// What `producer` is once one doorbell can announce no more of it.
    batch_end: u16,
    /// The slot of its first entry.
    first: u16,
    max_batch: u16,
    doorbell: NonNull<AtomicU32>,
    /// Whether the device failed this queue: it then looks full.
    failed: bool,
}

// SAFETY: the ring and the doorbell are this queue's alone on this side, and atomic.
unsafe impl Send for SendQueue {}

/// A batch was begun, and neither announced nor taken back.
const OPEN: u8 = 1;
/// Operations go by a library's calls.
const BY_CALLS: u8 = 2;

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
        Self {
            next: ring.entries,
            base: ring.entries,
            // SAFETY: the ring has so many words, by the caller's word.
            end: unsafe { ring.entries.add(words) },
            producer: 0,
            control: control_bits(&slots, false),
            odd: false,
            life: if ring.req_id_64 { req_id_ex(life) } else { 0 },
            slots,
            beside: 0,
            batch_end: 0,
            first: 0,
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

    /// Whether one doorbell could announce no more.
    #[inline(always)]
    pub(crate) fn batch_is_full(&self) -> bool {
        self.producer == self.batch_end
    }

    /// Whether a batch was begun, and neither announced nor taken back.
    #[inline(always)]
    pub(crate) fn batch_is_open(&self) -> bool {
        self.beside & OPEN != 0
    }

    /// Whether operations go by a library's calls.
    #[inline(always)]
    pub(crate) fn is_by_calls(&self) -> bool {
        self.beside & BY_CALLS != 0
    }

    /// Neither: what is written needs no more than its doorbell.
    #[inline(always)]
    pub(crate) fn is_by_itself(&self) -> bool {
        self.beside == 0
    }

    /// From now on operations go by a library's calls.
    pub(crate) fn go_by_calls(&mut self) {
        self.beside |= BY_CALLS;
    }

    /// Entries of the batch that no doorbell has announced yet.
    #[inline(always)]
    pub(crate) fn staged(&self) -> u16 {
        if self.batch_is_open() { self.producer.wrapping_sub(self.batch_end).wrapping_add(self.max_batch) } else { 0 }
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
    pub(crate) fn write<D: AsRef<[Quad]>>(&mut self, token: u64, parts: SendParts<'_, D>) -> bool {
        let Some(slot) = self.slots.vacant() else {
            return false;
        };
        // A copy, as stores through it could change it for all that the compiler knows.
        let entry = self.next;
        let store = |quad: usize, value: Quad| {
            // SAFETY: below, a quad of the next entry, which is in the ring: one of its first four, or of the data behind
            // them, which it has room for by `new`'s contract.
            unsafe { store_quad(entry, quad, value) }
        };
        store(0, parts.first() | Quad::from(slot.index()) | self.control);
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
        self.producer = self.producer.wrapping_add(1);
        // SAFETY: from an entry of the ring, which has that size by `new`'s contract, to the next, or to the ring's end.
        self.next = unsafe { entry.add((4 + data.len()) * WORDS_PER_QUAD) };
        if self.next == self.end {
            self.wrap();
        }
        true
    }

    /// To the first entry, in the other phase. Apart, or the compiler makes conditional moves of it.
    #[cold]
    fn wrap(&mut self) {
        self.next = self.base;
        self.flip();
    }

    /// To the other phase. Made anew, or the control bits would take a register until here.
    #[inline(always)]
    fn flip(&mut self) {
        self.odd = !self.odd;
        self.control = control_bits(&self.slots, self.odd);
    }

    /// Begins a batch, before which none is staged.
    pub(crate) fn begin_batch(&mut self) {
        self.first = self.slots.next();
        self.beside |= OPEN;
        self.batch_end = self.producer.wrapping_add(self.max_batch);
    }

    /// Announces what was written.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        self.ring_doorbell(self.producer);
    }

    #[inline(always)]
    fn ring_doorbell(&mut self, producer: u16) {
        // SAFETY: valid by `new`'s contract.
        let doorbell = unsafe { self.doorbell.as_ref() };
        ring_send_doorbell(doorbell, producer.into());
    }

    /// Announces what was written last, after a batch that was forgotten: by two doorbells, as one may announce no more than
    /// that (R18).
    pub(crate) fn announce_last(&mut self) {
        if self.batch_is_open() {
            self.ring_doorbell(self.producer.wrapping_sub(1));
        }
        self.announce_staged();
    }

    /// Announces the batch.
    #[inline(always)]
    pub(crate) fn announce_staged(&mut self) {
        self.announce();
        self.beside &= !OPEN;
    }

    /// Takes the batch back, which the device has not seen, first to last.
    pub(crate) fn unstage(&mut self) -> Unstaged<'_> {
        let count = self.staged();
        self.beside &= !OPEN;
        let at = self.at();
        self.producer = self.producer.wrapping_sub(count);
        if at < usize::from(count) {
            self.flip();
        }
        let words = (self.end.addr().get() - self.base.addr().get()) / size_of::<AtomicWord>();
        let stride = words >> (self.slots.depth().trailing_zeros() & 31);
        // SAFETY: masked to the ring.
        self.next = unsafe { self.base.add(self.at() * stride) };
        // Nobody polled since it was begun, as it borrows the queue pair: one that was forgotten is not taken back.
        Unstaged { slots: &mut self.slots, next: self.first, left: count }
    }

    /// The next entry's number in the ring.
    fn at(&self) -> usize {
        usize::from(self.producer) & (self.slots.depth() as usize - 1)
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
        (self.control, self.odd) = (control_bits(&self.slots, false), false);
        (self.next, self.producer) = (self.base, 0);
        self.beside &= !OPEN;
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

/// The control bits of a round: the first and every second after it is even.
fn control_bits(slots: &Slots, odd: bool) -> Quad {
    let phase = if odd { control2::PHASE } else { 0 };
    control(control1::META_DESC, control2::FIXED | phase) | Quad::from(slots.generation().0)
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

    fn write(queue: &mut SendQueue, to: &PeerCore, token: u64) -> bool {
        let (tag, buffers) = (Tag::NONE, [RawBuffer::NONE; 2]);
        let op = control1::OP_SEND;
        queue.write(token, SendParts { op, ctrl1: 0, length: 0, imm: 0, to, data: [0; 4], tag, buffers })
    }

    /// Announces, and completes all that is in flight.
    fn complete(queue: &mut SendQueue) {
        queue.announce_staged();
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
            assert!((0..ahead).all(|token| write(&mut queue, to, token.into())));
            complete(&mut queue);
            produced += usize::from(ahead);
            for count in [0, 1, DEPTH] {
                let before = (queue.next, queue.producer, queue.odd, queue.control);
                queue.begin_batch();
                for token in 0..count {
                    assert!(queue.staged() == token && !queue.batch_is_full());
                    assert!(write(&mut queue, to, token.into()));
                }
                assert_eq!((queue.staged(), queue.batch_is_full()), (count, count == DEPTH));
                assert!(count < DEPTH || !write(&mut queue, to, u64::MAX), "there is no room");
                assert!(queue.unstage().map(|(token, _)| token).eq(0..u64::from(count)));
                assert_eq!((queue.staged(), queue.slots.occupied()), (0, 0));
                assert_eq!((queue.next, queue.producer, queue.odd, queue.control), before);
            }
            queue.begin_batch();
            assert!((0..DEPTH).all(|token| write(&mut queue, to, token.into())));
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
