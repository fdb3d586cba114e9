//! The send queue's entry: 64 bytes, or 128 for more inline bytes.

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Quad;

/// A send queue entry: 32 bytes that say what and to whom, 32 bytes of data, or 96 in a [`WideSendEntry`].
///
/// In 64 bytes `data` holds two [`BufferDescriptor`]s for a SEND, up to 32 inline bytes, or a [`RemoteBuffer`] and one
/// [`BufferDescriptor`] for RDMA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SendEntry<const DATA: usize = 32> {
    /// Comes back in the completion.
    pub req_id: U16,
    /// Operation and flags: [`control1`].
    pub ctrl1: u8,
    /// Phase and fixed bits: [`control2`].
    pub ctrl2: u8,
    /// The peer's queue pair.
    pub dest_qp_num: U16,
    /// Bytes if inline, else the number of local buffers.
    pub length: U16,
    /// The immediate, exact (R13).
    pub immediate: U32,
    /// The peer's address handle.
    pub ah: U16,
    /// Processing hints: [`control3`].
    pub ctrl3: u8,
    /// Zero.
    pub reserved15: u8,
    /// The peer's queue key.
    pub qkey: U32,
    /// Zero.
    pub reserved20: [u8; 6],
    /// The upper 48 bits of a 64-bit request id.
    pub req_id_ex: [U16; 3],
    /// Buffers or inline bytes.
    pub data: [u8; DATA],
}

/// A send queue entry of 128 bytes.
///
/// `data` holds what that of a 64-byte entry does, or up to 80 inline bytes: those of a SEND from its start, and those
/// of an RDMA write behind the [`RemoteBuffer`], where else the [`BufferDescriptor`] is. The rest is zero.
pub type WideSendEntry = SendEntry<96>;

const_assert_eq!(size_of::<WideSendEntry>(), 128);

/// A local buffer in a send queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BufferDescriptor {
    /// Bytes.
    pub length: U32,
    /// Local key, 24 bits.
    pub lkey: U32,
    /// Device address: low half, then high.
    pub addr: U64,
}

/// The remote buffer of an RDMA entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemoteBuffer {
    /// Bytes.
    pub length: U32,
    /// Remote key.
    pub rkey: U32,
    /// Remote device address: low half, then high.
    pub addr: U64,
}

/// Bits of [`SendEntry::ctrl1`].
pub mod control1 {
    /// SEND.
    pub const OP_SEND: u8 = 0;
    /// RDMA read.
    pub const OP_RDMA_READ: u8 = 1;
    /// RDMA write.
    pub const OP_RDMA_WRITE: u8 = 2;
    /// Where the operation is.
    pub const OP_MASK: u8 = 0x0F;
    /// The entry has an immediate.
    pub const HAS_IMM: u8 = 1 << 4;
    /// The data is inline.
    pub const INLINE: u8 = 1 << 5;
    /// Zero on this device.
    pub const META_EXTENSION: u8 = 1 << 6;
    /// One on every entry.
    pub const META_DESC: u8 = 1 << 7;
}

/// Bits of [`SendEntry::ctrl2`].
pub mod control2 {
    /// Flips at each wrap of the ring; 0 in the first round.
    pub const PHASE: u8 = 1 << 0;
    /// One on every entry.
    pub const FIRST: u8 = 1 << 2;
    /// One on every entry.
    pub const LAST: u8 = 1 << 3;
    /// One on every entry: EFA has no unsignaled operation (R08).
    pub const COMP_REQ: u8 = 1 << 4;
    /// What every entry carries.
    pub const FIXED: u8 = FIRST | LAST | COMP_REQ;
}

/// Bits of [`SendEntry::ctrl3`].
pub mod control3 {
    /// Processing hint: a burst follows, packet rate matters.
    pub const HINT_BURST: u8 = 1 << 0;
}

/// `dest_qp_num` at its place in the first quad, and a `length` of 1, which most entries have.
pub(crate) fn destination(qpn: u16) -> Quad {
    Quad::from(qpn) << 32 | 1 << 48
}

/// A [`destination`] with another `length`, in the uppermost bits.
#[inline(always)]
pub(crate) fn with_length(destination: Quad, length: u16) -> Quad {
    destination.wrapping_add(Quad::from(length.wrapping_sub(1)) << 48)
}

/// `ah` at its place in the second quad.
pub(crate) fn address_handle(ahn: u16) -> Quad {
    Quad::from(ahn) << 32
}

/// `ctrl1` and `ctrl2` at their place in the first quad.
#[inline(always)]
pub(crate) const fn control(ctrl1: u8, ctrl2: u8) -> Quad {
    (ctrl1 as Quad) << 16 | (ctrl2 as Quad) << 24
}

/// A length and a key: the first quad of either kind of buffer.
#[inline(always)]
pub(crate) fn length_and_key(length: u32, key: u32) -> Quad {
    Quad::from(length) | Quad::from(key) << 32
}

/// The upper 48 bits of a 64-bit request id, in the fourth quad: what tells one life of a queue pair from the others.
#[inline(always)]
pub(crate) fn req_id_ex(life: u32) -> Quad {
    Quad::from(life) << 16
}
