//! The completion queue's consumer.

#![allow(unsafe_code)]

use core::ptr::NonNull;

use super::{AtomicWord, load_quad};
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
    base: NonNull<AtomicWord>,
    /// Where the next entry is, in quads.
    position: u32,
    /// The ring's length, in quads.
    end: u32,
    /// Quads of an entry: 2 or 4.
    stride: u32,
    /// What the first quad of a good completion is, where `mask` is set; its phase flips at the wrap.
    expected: Quad,
    mask: Quad,
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

/// What the next entry is.
pub(crate) enum Next {
    /// None yet.
    Empty,
    /// A success, of whomever the queue serves.
    Good(Entry),
    /// Anything else: decode it.
    Other(Entry),
}

/// A completion entry, copied out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(pub(crate) [Quad; 4]);

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
        Self {
            base: ring.base,
            position: 0,
            end: ring.entries * u32::from(ring.entry_size / 8),
            stride: u32::from(ring.entry_size / 8),
            expected: expected | PHASE,
            mask: mask | good,
        }
    }

    /// The next entry, which is then consumed.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Next {
        let at = self.position as usize;
        let head = self.head();
        let differs = (head ^ self.expected) & self.mask;
        if differs & PHASE != 0 {
            return Next::Empty;
        }
        // SAFETY: another quad of that entry.
        let second = unsafe { load_quad(self.base, at + 1) };
        let mut entry = Entry([head, second, 0, 0]);
        if self.stride == 4 {
            // SAFETY: the third quad of a 32-byte entry.
            entry.0[2] = unsafe { load_quad(self.base, at + 2) };
            // SAFETY: the fourth.
            entry.0[3] = unsafe { load_quad(self.base, at + 3) };
        }
        self.position += self.stride;
        if self.position == self.end {
            self.wrap();
        }
        if differs == 0 { Next::Good(entry) } else { Next::Other(entry) }
    }

    /// Entries that it holds.
    pub(crate) fn entries(&self) -> u32 {
        // Never by 0, which the compiler cannot see.
        self.end.checked_div(self.stride).unwrap_or(0)
    }

    /// Consumes whatever there is; gives how many entries that was.
    pub(crate) fn drain(&mut self) -> u32 {
        let (mut count, mut passed) = (0, 0);
        // At most as many as there are places: a device that goes on writing does not hold this up.
        while passed < self.end && !matches!(self.next(), Next::Empty) {
            passed += self.stride;
            count += 1;
        }
        count
    }

    /// Whether there is none yet.
    pub(crate) fn is_empty(&self) -> bool {
        (self.head() ^ self.expected) & PHASE != 0
    }

    #[inline(always)]
    fn head(&self) -> Quad {
        // SAFETY: the position is that of an entry in the ring. The load acquires: the device wrote the
        // rest of the entry before it flipped the phase, which is in the lowest word.
        unsafe { load_quad(self.base, self.position as usize) }
    }

    fn wrap(&mut self) {
        self.position = 0;
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

    /// Of the receive queue, wide: the sender's GID.
    pub(crate) fn gid(&self) -> [u8; 16] {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&self.0[2].to_le_bytes());
        gid[8..].copy_from_slice(&self.0[3].to_le_bytes());
        gid
    }

    /// Of the receive queue, wide, an RDMA write: bytes, upper 16 bits.
    pub(crate) fn length_hi(&self) -> u16 {
        self.0[2] as u16
    }
}
