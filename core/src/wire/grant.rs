//! A remote key on its way to a peer, with what it opens and until when.

#![forbid(unsafe_code)]

use core::mem::offset_of;

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, Frame, ParseError};
use super::header::{self, Header};
use crate::flags::Access;
use crate::{Incarnation, RKey};

/// A range of exposed memory and the key to it.
///
/// It is as good as the peer's word: the device checks key, access and range again at each operation (status 7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// Where it starts, in the exposer's addresses.
    pub address: u64,
    /// Its bytes; `address + length` does not wrap if it was parsed.
    pub length: u64,
    /// The key.
    pub rkey: RKey,
    /// [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`] or both, and nothing else.
    pub access: Access,
    /// The life of the exposer's queue pair: a grant of another life is worth nothing.
    pub incarnation: Incarnation,
}

/// A [`Grant`] as it travels: 40 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GrantFrame {
    header: Header,
    address: U64,
    length: U64,
    rkey: U32,
    access: U32,
    incarnation: U64,
}

const_assert_eq!(GrantFrame::LEN, 40);
const_assert_eq!(offset_of!(GrantFrame, address), 8);
const_assert_eq!(offset_of!(GrantFrame, length), 16);
const_assert_eq!(offset_of!(GrantFrame, rkey), 24);
const_assert_eq!(offset_of!(GrantFrame, access), 28);
const_assert_eq!(offset_of!(GrantFrame, incarnation), 32);
assert_eq_align!(GrantFrame, u8);

const HEADER: Header = Header::new(header::GRANT, 40);

/// The rights that can be granted.
const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

impl GrantFrame {
    /// Bytes of the frame.
    pub const LEN: usize = size_of::<Self>();

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl Grant {
    /// Parses a frame. Whether it is of the expected peer's present life is not asked here.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::Magic`], [`ParseError::Version`],
    /// [`ParseError::Length`]; [`ParseError::RangeWraps`], [`ParseError::UnknownBits`] for the access,
    /// [`ParseError::NoAccess`], [`ParseError::Zero`] for the incarnation.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let frame = Frame::Grant;
        let raw: GrantFrame = HEADER.open(frame, bytes)?;
        let (address, length) = (raw.address.get(), raw.length.get());
        if address.checked_add(length).is_none() {
            return Err(ParseError::RangeWraps { address, length });
        }
        let access = Access::from_bits_retain(raw.access.get());
        if !REMOTE.contains(access) {
            let (known, found) = (REMOTE.bits(), access.bits());
            return Err(ParseError::UnknownBits { frame, field: Field::Access, known, found });
        }
        if access.is_empty() {
            return Err(ParseError::NoAccess);
        }
        Ok(Self {
            address,
            length,
            rkey: RKey(raw.rkey.get()),
            access,
            incarnation: header::incarnation(frame, Field::Incarnation, raw.incarnation.get())?,
        })
    }

    /// The frame that says this.
    pub fn to_frame(&self) -> GrantFrame {
        GrantFrame {
            header: HEADER,
            address: U64::new(self.address),
            length: U64::new(self.length),
            rkey: U32::new(self.rkey.0),
            access: U32::new(self.access.bits()),
            incarnation: U64::new(self.incarnation.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANT: Grant = Grant {
        address: 0x7F12_3456_7000,
        length: 0x1_0000_0001,
        rkey: RKey(0x8000_0055),
        access: Access::REMOTE_WRITE,
        incarnation: Incarnation(0x0123_4567_89AB_CDEF),
    };

    const GOLDEN: [u8; 40] = [
        b'E', b'F', b'A', b'G', 0, 1, 0, 40, // magic, version, length
        0, 0, 0x7f, 0x12, 0x34, 0x56, 0x70, 0, // address
        0, 0, 0, 1, 0, 0, 0, 1, // length
        0x80, 0, 0, 0x55, 0, 0, 0, 2, // rkey, access
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, // incarnation
    ];

    #[test]
    fn h04_the_frame_has_the_same_bytes_on_every_host() {
        assert_eq!(GRANT.to_frame().as_bytes(), GOLDEN);
        assert_eq!(Grant::parse(&GOLDEN), Ok(GRANT));
    }

    #[test]
    fn only_remote_rights_can_be_granted_and_at_least_one() {
        for access in 0..=u8::MAX {
            let mut bytes = GOLDEN;
            bytes[31] = access;
            let expected = match access {
                0 => Err(ParseError::NoAccess),
                2 | 4 | 6 => Ok(Grant { access: Access::from_bits_retain(access.into()), ..GRANT }),
                _ => Err(ParseError::UnknownBits {
                    frame: Frame::Grant,
                    field: Field::Access,
                    known: 6,
                    found: access.into(),
                }),
            };
            assert_eq!(Grant::parse(&bytes), expected);
        }
    }

    #[test]
    fn a_range_beyond_the_last_address_is_refused() {
        let (address, length) = (u64::MAX - 15, 16);
        let wraps = Grant { address, length, ..GRANT };
        assert_eq!(Grant::parse(wraps.to_frame().as_bytes()), Err(ParseError::RangeWraps { address, length }));
        let last = Grant { length: 15, ..wraps };
        assert_eq!(Grant::parse(last.to_frame().as_bytes()), Ok(last));
    }
}
