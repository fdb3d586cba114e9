//! Completion queue entries: 16 bytes, or 32 where the sender's GID is asked for.

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What every completion starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Completion {
    /// The request's.
    pub req_id: U16,
    /// See [`CompletionStatus`](crate::status::CompletionStatus).
    pub status: u8,
    /// [`completion_flags`].
    pub flags: u8,
    /// The local queue pair.
    pub qp_num: U16,
}

/// A send queue completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SendCompletion {
    /// The common part.
    pub common: Completion,
    /// The upper 48 bits of a 64-bit request id.
    pub req_id_ex: [U16; 3],
    /// Zero.
    pub reserved: [u8; 4],
}

/// A receive queue completion; the last 16 bytes exist in 32-byte entries only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecvCompletion {
    /// The common part.
    pub common: Completion,
    /// Bytes, low 16 bits; of a UD queue pair those of the header too.
    pub length: U16,
    /// The sender's address handle, or 0xFFFF (R23).
    pub ah: U16,
    /// The sender's queue pair.
    pub src_qp_num: U16,
    /// The immediate.
    pub imm: U32,
    /// The sender's GID if `ah` is unknown and this is a SEND, else the upper half of an RDMA write's length in its first two bytes (R24).
    pub source: [u8; 16],
}

const_assert_eq!(size_of::<Completion>(), 6);
const_assert_eq!(size_of::<SendCompletion>(), 16);
const_assert_eq!(size_of::<RecvCompletion>(), 32);
const_assert_eq!(core::mem::offset_of!(RecvCompletion, imm), 12);
const_assert_eq!(core::mem::offset_of!(RecvCompletion, source), 16);

/// Bits of [`Completion::flags`].
pub mod completion_flags {
    /// Flips at each wrap of the ring; 1 in the first round.
    pub const PHASE: u8 = 1 << 0;
    /// Where the queue's kind is.
    pub const QUEUE_MASK: u8 = 0b110;
    /// Of the send queue.
    pub const QUEUE_SEND: u8 = 1 << 1;
    /// Of the receive queue.
    pub const QUEUE_RECV: u8 = 2 << 1;
    /// There is an immediate.
    pub const HAS_IMM: u8 = 1 << 3;
    /// Where the operation is: as in [`control1`](crate::entry::control1), shifted by [`OP_SHIFT`].
    pub const OP_MASK: u8 = 0b0111_0000;
    /// See [`OP_MASK`].
    pub const OP_SHIFT: u32 = 4;
    /// No receive was consumed: there is no request (R22).
    pub const UNSOLICITED: u8 = 1 << 7;
}
