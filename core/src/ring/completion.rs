//! The completion queue's consumer.

#![allow(unsafe_code)]

use core::ptr::NonNull;

use super::barrier::phase_was_seen;
use super::{AtomicWord, WORDS_PER_QUAD, load_quad};
use crate::Qpn;
use crate::entry::{Quad, completion_flags as flags};
use crate::provider::CqRing;

/// A completion queue's consumer.
///
/// One masked compare tells whether an entry is new, successful, solicited and, where it serves one queue of one
/// queue pair, of that queue and of that queue pair's number and generation (R20); what differs goes the long way
/// round.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// The next entry.
    next: NonNull<AtomicWord>,
    /// The first one, and behind the last one.
    base: NonNull<AtomicWord>,
    end: NonNull<AtomicWord>,
    /// Words of an entry.
    stride: usize,
    /// What the first quad of a good completion is, where `mask` is set; its phase flips at the wrap.
    expected: Quad,
    mask: Quad,
    /// As `mask`, for one whose operation is SEND besides.
    plain: Quad,
    /// What [`CompletionQueue::consumed`] said last.
    told: u32,
}

// SAFETY: the ring is this queue's alone on this side, and atomic.
unsafe impl Send for CompletionQueue {}

/// Whose completions a queue has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Serves {
    /// Of one queue of one queue pair.
    Queue {
        /// [`flags::QUEUE_SEND`] or [`flags::QUEUE_RECV`].
        kind: u8,
        qpn: Qpn,
        /// The generation bits of its request ids, and which bits those are.
        generation: (u16, u16),
    },
    /// Of both queues of one queue pair.
    Pair(Qpn),
    /// Of several queue pairs.
    Any,
}

/// A completion entry, copied out: its first 16 bytes, which is all that most need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(pub(crate) [Quad; 2]);

/// The other 16 bytes of an entry that has them, else zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest(pub(crate) [Quad; 2]);

/// Where the next entry's first quad differs from that of a good completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(Quad);

/// An entry that was consumed, not yet looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken([Quad; 2]);

/// An entry that was consumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumed {
    pub(crate) entry: Entry,
    /// It is a success, of whomever the queue serves; else decode it.
    pub(crate) good: bool,
}

/// Where the first quad has its parts.
const STATUS: Quad = 0xFF << 16;
const PHASE: Quad = flagged(flags::PHASE);
const QPN: Quad = 0xFFFF << 32;

const fn flagged(bits: u8) -> Quad {
    (bits as Quad) << 24
}

impl CompletionQueue {
    /// # Safety
    /// `ring` is as the provider's contract says and stays so while this is used; nobody else uses it.
    pub(crate) unsafe fn new(ring: &CqRing, serves: Serves) -> Self {
        let good = STATUS | flagged(flags::UNSOLICITED) | PHASE;
        let (expected, mask) = match serves {
            Serves::Queue { kind, qpn, generation: (bits, generation) } => (
                Quad::from(bits) | flagged(kind) | Quad::from(qpn.0) << 32,
                Quad::from(generation) | flagged(flags::QUEUE_MASK) | QPN,
            ),
            Serves::Pair(qpn) => (Quad::from(qpn.0) << 32, QPN),
            Serves::Any => (0, 0),
        };
        let stride = usize::from(ring.entry_size) / 8 * WORDS_PER_QUAD;
        Self {
            next: ring.base,
            base: ring.base,
            // SAFETY: the ring has so many entries, by the caller's word.
            end: unsafe { ring.base.add(ring.entries as usize * stride) },
            stride,
            expected: expected | PHASE,
            mask: mask | good,
            plain: mask | good | flagged(flags::OP_MASK),
            told: 0,
        }
    }

    /// One that stays empty.
    pub(crate) fn nothing() -> Self {
        static NOTHING: [AtomicWord; 2 * WORDS_PER_QUAD] = [const { AtomicWord::new(0) }; 2 * WORDS_PER_QUAD];
        let ring = CqRing { base: NonNull::from(&NOTHING).cast(), entries: 1, entry_size: 16 };
        // SAFETY: one entry, which nobody writes, so that its phase stays another than the first round's.
        unsafe { Self::new(&ring, Serves::Any) }
    }

    /// The next entry, if there is one: to be consumed before anything else is done with the queue.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Seen> {
        // Before the load, which orders all that comes after.
        let expected = self.expected;
        // SAFETY: the next entry is in the ring.
        let seen = unsafe { load_quad(self.next, 0) } ^ expected;
        if seen & PHASE != 0 {
            return None;
        }
        // The device wrote the rest of the entry, and what it tells of, before it flipped the phase, which is in the
        // lowest word.
        phase_was_seen();
        if WORDS_PER_QUAD == 1 {
            return Some(Seen(seen));
        }
        // The other word was loaded before the fence.
        // SAFETY: as above.
        Some(Seen(unsafe { load_quad(self.next, 0) } ^ expected))
    }

    /// Consumes the entry that was just seen. If it was the ring's last one, `at_wrap` is called.
    ///
    /// Gives its first and second quad, the first as what was seen, which [`CompletionQueue::plain`] and
    /// [`CompletionQueue::decoded`] look at.
    #[inline(always)]
    pub(crate) fn consume(&mut self, Seen(seen): Seen, at_wrap: impl FnOnce()) -> Taken {
        let at = self.next;
        // SAFETY: from an entry of the ring to the next, or to the ring's end.
        self.next = unsafe { at.add(self.stride) };
        if self.next == self.end {
            self.wrap();
            at_wrap();
        }
        // SAFETY: another quad of the entry there, which is in the ring.
        let second = unsafe { load_quad(at, 1) };
        Taken([seen, second])
    }

    /// The entry, if it is a good one of a SEND. Of what the queue expects it has zeros: it is known.
    #[inline(always)]
    pub(crate) fn plain(&self, Taken([seen, second]): Taken) -> Option<Entry> {
        if seen & self.plain == 0 { Some(Entry([seen, second])) } else { None }
    }

    /// The entry as the device wrote it, less its phase.
    #[inline(always)]
    pub(crate) fn decoded(&self, Taken([seen, second]): Taken) -> Consumed {
        Consumed { entry: Entry([(seen ^ self.expected) & !PHASE, second]), good: seen & self.mask == 0 }
    }

    /// The next entry, which is then consumed.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Consumed> {
        let seen = self.peek()?;
        let taken = self.consume(seen, || {});
        Some(self.decoded(taken))
    }

    /// What the entry that was consumed last has beyond the first 16 bytes.
    pub(crate) fn rest(&self) -> Rest {
        if self.stride != 4 * WORDS_PER_QUAD {
            return Rest::NONE;
        }
        let behind = if self.next == self.base { self.end } else { self.next };
        // SAFETY: the entry before it, of 32 bytes; before the first was consumed that is the last one.
        let at = unsafe { behind.sub(self.stride) };
        // SAFETY: its third quad.
        let third = unsafe { load_quad(at, 2) };
        // SAFETY: its fourth.
        let fourth = unsafe { load_quad(at, 3) };
        Rest([third, fourth])
    }

    /// Entries that were consumed so far. It is to be asked at least once in two rounds of the ring, which it tells apart
    /// by their phases: so that nothing is counted where nobody asks.
    pub(crate) fn consumed(&mut self) -> u32 {
        let entries = self.entries();
        let round = if self.expected & PHASE == 0 { entries } else { 0 };
        let at = round.wrapping_add(self.entries_to(self.next));
        let two_rounds = entries.wrapping_mul(2).wrapping_sub(1);
        self.told = self.told.wrapping_add(at.wrapping_sub(self.told) & two_rounds);
        self.told
    }

    /// Entries that it holds.
    pub(crate) fn entries(&self) -> u32 {
        self.entries_to(self.end)
    }

    /// Entries before one of the ring.
    #[inline(always)]
    fn entries_to(&self, entry: NonNull<AtomicWord>) -> u32 {
        let words = (entry.addr().get() - self.base.addr().get()) / size_of::<AtomicWord>();
        // A power of two, 16 or 32 bytes.
        (words >> (self.stride.trailing_zeros() & 31)) as u32
    }

    /// Consumes whatever there is; gives how many entries that was.
    pub(crate) fn drain(&mut self) -> u32 {
        // At most as many as there are places: a device that goes on writing does not hold this up.
        (0..self.entries()).take_while(|_| self.next().is_some()).count() as u32
    }

    /// Whether there is none yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.peek().is_none()
    }

    #[cold]
    #[inline(always)]
    fn wrap(&mut self) {
        self.next = self.base;
        self.expected ^= PHASE;
    }
}

impl Entry {
    #[inline(always)]
    pub(crate) fn req_id(&self) -> u16 {
        self.0[0] as u16
    }

    #[inline(always)]
    pub(crate) fn status(&self) -> u8 {
        (self.0[0] >> 16) as u8
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        (self.0[0] >> 24) as u8
    }

    pub(crate) fn qpn(&self) -> u16 {
        (self.0[0] >> 32) as u16
    }

    /// Of the send queue: the upper 48 bits of a 64-bit request id, at their place in a send entry's fourth quad.
    #[inline(always)]
    pub(crate) fn req_id_ex(&self) -> Quad {
        (self.0[0] >> 48) << 16 | self.0[1] << 32
    }

    /// Operation: as in `control1`.
    #[inline(always)]
    pub(crate) fn op(&self) -> u8 {
        (self.flags() & flags::OP_MASK) >> flags::OP_SHIFT
    }

    /// Of the receive queue: bytes, low 16 bits.
    #[inline(always)]
    pub(crate) fn length(&self) -> u16 {
        (self.0[0] >> 48) as u16
    }

    #[inline(always)]
    pub(crate) fn ah(&self) -> u16 {
        self.0[1] as u16
    }

    #[inline(always)]
    pub(crate) fn src_qpn(&self) -> u16 {
        (self.0[1] >> 16) as u16
    }

    /// Of the receive queue: the immediate, if there is one.
    #[inline(always)]
    pub(crate) fn imm(&self) -> Option<u32> {
        (self.flags() & flags::HAS_IMM != 0).then_some((self.0[1] >> 32) as u32)
    }
}

impl Rest {
    pub(crate) const NONE: Self = Self([0; 2]);

    /// Of the receive queue: the sender's GID.
    pub(crate) fn gid(&self) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&self.0[0].to_le_bytes());
        gid[8..].copy_from_slice(&self.0[1].to_le_bytes());
        gid
    }

    /// Of the receive queue, an RDMA write: bytes, upper 16 bits.
    pub(crate) fn length_hi(&self) -> u16 {
        self.0[0] as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_drains_no_more_entries_than_it_holds() {
        let ring = [const { AtomicWord::new(0) }; 16 * WORDS_PER_QUAD];
        for entry_size in [16, 32] {
            let entries = 128 / u32::from(entry_size);
            let ring = CqRing { base: NonNull::from(&ring).cast(), entries, entry_size };
            // SAFETY: 128 bytes, all zeros, which nobody else uses.
            let mut queue = unsafe { CompletionQueue::new(&ring, Serves::Any) };
            assert_eq!((queue.entries(), queue.drain()), (entries, 0));
        }
    }
}
