//! What a case is: an operation, a size, and the rounds that both sides go through.

use core::fmt;

use efa_core::Limits;

use crate::pattern::Pattern;

/// Operations in flight at most.
pub(super) const BURST: usize = 16;
/// Receives that each side keeps posted.
pub(super) const RECEIVES: usize = 2 * BURST;
/// Bytes in flight at most, if one operation has not more.
pub(super) const IN_FLIGHT: usize = 16 << 20;
/// Bursts of a case, at most and at least, and the bytes between.
const BURSTS: (u64, u64) = (64, 4);
const BURST_BYTES: u64 = 256 << 20;
/// Bytes of all timed round trips beyond which there are fewer than was asked for, but no fewer than 100.
const TIMED_BYTES: u64 = 512 << 20;

/// A case has 2^32 sequence numbers, and a round takes up to 17.
const MAX_TIMED: u64 = 1 << 27;

/// An operation that the device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImm,
    /// SEND of bytes that travel in the entry.
    SendInline,
    /// SEND of two registered buffers.
    SendTwo,
    /// RDMA read.
    Read,
    /// RDMA write.
    Write,
    /// RDMA write with immediate.
    WriteImm,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Send, Self::SendImm, Self::SendInline, Self::SendTwo, Self::Read, Self::Write, Self::WriteImm];

    /// The most bytes that one of them moves.
    pub fn largest(self, limits: &Limits) -> usize {
        let largest = match self {
            Self::Send | Self::SendImm | Self::SendTwo => limits.max_msg_size,
            Self::SendInline => limits.max_inline.into(),
            Self::Read | Self::Write | Self::WriteImm => limits.max_rdma_size,
        };
        largest as usize
    }

    /// Whether it reaches memory that the other side exposes.
    pub(super) fn is_rdma(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::WriteImm)
    }

    /// Whether the other side is told of its arrival.
    pub(super) fn is_told(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::SendImm => "SEND with immediate",
            Self::SendInline => "SEND inline",
            Self::SendTwo => "SEND of two buffers",
            Self::Read => "RDMA read",
            Self::Write => "RDMA write",
            Self::WriteImm => "RDMA write with immediate",
        })
    }
}

/// One operation at one size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) operation: Operation,
    pub(super) size: usize,
    pub(super) seed: u64,
    /// The first sequence number; a case has fewer than 2^32 of them.
    pub(super) first: u64,
    pub(super) corrupt: bool,
}

impl Case {
    /// The content with this sequence number.
    pub(super) fn content(&self, sequence: u64) -> Pattern {
        Pattern::new(self.seed, sequence)
    }

    /// Writes it; wrongly once, if the case is to be corrupted.
    pub(super) fn fill(&self, sequence: u64, bytes: &mut [u8]) {
        self.content(sequence).fill(bytes);
        if self.corrupt && sequence == self.first {
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
        }
    }

    /// Operations in flight at most.
    pub(super) fn burst(&self) -> usize {
        (IN_FLIGHT / self.size).clamp(1, BURST)
    }
}

/// One exchange: so many operations of A, and B's answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// The sequence number of the first operation.
    pub(super) first: u64,
    /// How many there are.
    pub(super) count: usize,
    /// Where in exposed memory the first one goes. A may write the next ping while B verifies the last.
    pub(super) place: usize,
    /// B answers with the same operation, with this sequence number.
    pub(super) pong: Option<u64>,
    /// B answers with an empty SEND when it has verified: A waits for that.
    pub(super) told: bool,
}

/// The rounds of a case: warm-up, latency, bursts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    case: Case,
    pub(super) warm_up: u32,
    pub(super) timed: u32,
    bursts: u32,
}

impl Schedule {
    pub(super) fn new(case: Case, iterations: u32) -> Self {
        let size = case.size as u64;
        let most = (TIMED_BYTES / size).clamp(100, MAX_TIMED);
        let timed = u64::from(iterations).min(most) as u32;
        let (most, least) = BURSTS;
        let bursts = (BURST_BYTES / (size * case.burst() as u64)).clamp(least, most).min(timed.into()) as u32;
        Self { case, warm_up: (timed / 10).max(4), timed, bursts }
    }

    pub(super) fn rounds(&self) -> u32 {
        self.warm_up + self.timed + self.bursts
    }

    pub(super) fn round(&self, index: u32) -> Round {
        let first = self.case.first + u64::from(index) * (BURST as u64 + 1);
        let pongs = !self.is_burst(index) && self.case.operation.is_told();
        Round {
            first,
            count: if self.is_burst(index) { self.case.burst() } else { 1 },
            place: if pongs { index as usize % 2 } else { 0 },
            pong: pongs.then_some(first + BURST as u64),
            told: !pongs || self.is_burst(index + 1),
        }
    }

    pub(super) fn is_burst(&self, index: u32) -> bool {
        index >= self.warm_up + self.timed
    }
}
