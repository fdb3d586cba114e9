//! What this crate's frames start with.

#![forbid(unsafe_code)]

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, Frame, ParseError};
use crate::{Gid, Incarnation, Qpn};

/// Magic, version and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    magic: [u8; 4],
    version: U16,
    /// Bytes of the whole frame, header included.
    length: U16,
}

const_assert_eq!(size_of::<Header>(), 8);
assert_eq_align!(Header, u8);

/// The one version of all frames so far.
const VERSION: u16 = 1;

/// What a [`Hello`](super::Hello) starts with.
pub(super) const HELLO: [u8; 4] = *b"EFAH";
/// What a [`Ready`](super::Ready) starts with.
pub(super) const READY: [u8; 4] = *b"EFAR";
/// What a [`Grant`](super::Grant) starts with.
pub(super) const GRANT: [u8; 4] = *b"EFAG";
/// What a [`Window`](super::Window) starts with.
pub(super) const WINDOW: [u8; 4] = *b"EFAW";

impl Header {
    /// The header of a frame of `length` bytes.
    pub(super) const fn new(magic: [u8; 4], length: u16) -> Self {
        Self { magic, version: U16::new(VERSION), length: U16::new(length) }
    }

    /// Reads a frame that must start with this header and be all of `bytes`.
    pub(super) fn open<F>(&self, frame: Frame, bytes: &[u8]) -> Result<F, ParseError>
    where
        F: FromBytes + KnownLayout + Immutable,
    {
        let missing = ParseError::Missing { frame, expected: size_of::<F>(), found: bytes.len() };
        let (found, _) = Self::read_from_prefix(bytes).map_err(|_| missing)?;
        if found.magic != self.magic {
            return Err(ParseError::Magic { frame, expected: self.magic, found: found.magic });
        }
        if found.version != self.version {
            return Err(ParseError::Version { frame, expected: self.version.get(), found: found.version.get() });
        }
        if found.length != self.length {
            return Err(ParseError::Length { frame, expected: self.length.get(), found: found.length.get() });
        }
        exactly(frame, bytes)
    }
}

/// Reads a form that must be all of `bytes`.
pub(super) fn exactly<F: FromBytes + KnownLayout + Immutable>(frame: Frame, bytes: &[u8]) -> Result<F, ParseError> {
    let (expected, found) = (size_of::<F>(), bytes.len());
    F::read_from_bytes(bytes).map_err(|_| match found < expected {
        true => ParseError::Missing { frame, expected, found },
        false => ParseError::Trailing { frame, expected, found },
    })
}

/// R27: a zero GID names nobody.
pub(super) fn gid(frame: Frame, bytes: [u8; 16]) -> Result<Gid, ParseError> {
    let gid = Gid(bytes);
    if gid.is_zero() { Err(ParseError::Zero { frame, field: Field::Gid }) } else { Ok(gid) }
}

/// R13: EFA's queue pair numbers have 16 bits.
pub(super) fn qpn(frame: Frame, number: u32) -> Result<Qpn, ParseError> {
    u16::try_from(number).map(Qpn).map_err(|_| ParseError::OutOfRange {
        frame,
        field: Field::QpNum,
        largest: u16::MAX.into(),
        found: number.into(),
    })
}

/// Zero stands for none: a peer without random bits could not be told from its predecessor.
pub(super) fn incarnation(frame: Frame, field: Field, number: u64) -> Result<Incarnation, ParseError> {
    if number == 0 { Err(ParseError::Zero { frame, field }) } else { Ok(Incarnation(number)) }
}
