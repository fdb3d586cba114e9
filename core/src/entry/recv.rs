//! The receive queue's descriptor: 16 bytes, one for each buffer of a receive.

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Quad;

/// A receive descriptor. `first` and the request id stand in a receive's first, `last` in its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecvDescriptor {
    /// Device address: low half, then high.
    pub addr: U64,
    /// Comes back in the completion.
    pub req_id: U16,
    /// Bytes: 16 bits, so at most 65,535 (R12).
    pub length: U16,
    /// Local key 23:0 and [`descriptor_flags`].
    pub lkey_ctrl: U32,
}

const_assert_eq!(size_of::<RecvDescriptor>(), 16);
const_assert_eq!(core::mem::offset_of!(RecvDescriptor, lkey_ctrl), 12);

/// Bits of [`RecvDescriptor::lkey_ctrl`].
pub mod descriptor_flags {
    /// The local key.
    pub const LKEY: u32 = 0x00FF_FFFF;
    /// The first buffer of a receive.
    pub const FIRST: u32 = 1 << 30;
    /// The last buffer of a receive.
    pub const LAST: u32 = 1 << 31;
}

/// The second quad less request id and flags, of what a send descriptor's first has: the length, of at most 16 bits (R12),
/// stands 16 bits higher.
#[inline(always)]
pub(crate) fn tail(length_and_key: Quad) -> Quad {
    (length_and_key >> 16 | length_and_key & 0xFFFF) << 16
}
