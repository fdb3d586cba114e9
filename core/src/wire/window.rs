//! A window of the fabric `efa` on its way to a peer: what it is called, how long it is, and the key to it if there is one.

#![forbid(unsafe_code)]

use core::mem::offset_of;

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, Frame, ParseError};
use super::grant::{Grant, GrantFrame};
use super::header::{self, Header};
use crate::Incarnation;
use crate::flags::Access;

/// A window as its owner describes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Its owner's name of it.
    pub id: u32,
    /// What it is open for.
    pub access: Access,
    /// Its bytes.
    pub length: u64,
    /// The life of the owner's queue pair.
    pub incarnation: Incarnation,
    /// The key to it, if it can be reached by RDMA.
    pub grant: Option<Grant>,
}

/// A [`Window`] as it travels: 72 bytes in network order; the grant's are zeros if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WindowFrame {
    header: Header,
    id: U32,
    access: U32,
    length: U64,
    incarnation: U64,
    grant: GrantFrame,
}

const_assert_eq!(WindowFrame::LEN, 72);
const_assert_eq!(offset_of!(WindowFrame, id), 8);
const_assert_eq!(offset_of!(WindowFrame, access), 12);
const_assert_eq!(offset_of!(WindowFrame, length), 16);
const_assert_eq!(offset_of!(WindowFrame, incarnation), 24);
const_assert_eq!(offset_of!(WindowFrame, grant), 32);
assert_eq_align!(WindowFrame, u8);

const HEADER: Header = Header::new(header::WINDOW, 72);

/// What a window can be open for.
const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

impl WindowFrame {
    /// Bytes of the frame.
    pub const LEN: usize = size_of::<Self>();

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl Window {
    /// Parses a frame. Whether it is of the expected peer's present life is not asked here.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::Magic`], [`ParseError::Version`],
    /// [`ParseError::Length`]; [`ParseError::UnknownBits`] and [`ParseError::NoAccess`] for the access, [`ParseError::Zero`]
    /// for the incarnation; those of [`Grant::parse`] for the grant, if there is one.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let frame = Frame::Window;
        let raw: WindowFrame = HEADER.open(frame, bytes)?;
        let access = Access::from_bits_retain(raw.access.get());
        if !REMOTE.contains(access) {
            let (known, found) = (REMOTE.bits(), access.bits());
            return Err(ParseError::UnknownBits { frame, field: Field::Access, known, found });
        }
        if access.is_empty() {
            return Err(ParseError::NoAccess);
        }
        let none = raw.grant == GrantFrame::new_zeroed();
        Ok(Self {
            id: raw.id.get(),
            access,
            length: raw.length.get(),
            incarnation: header::incarnation(frame, Field::Incarnation, raw.incarnation.get())?,
            grant: if none { None } else { Some(Grant::parse(raw.grant.as_bytes())?) },
        })
    }

    /// The frame that says this.
    pub fn to_frame(&self) -> WindowFrame {
        WindowFrame {
            header: HEADER,
            id: U32::new(self.id),
            access: U32::new(self.access.bits()),
            length: U64::new(self.length),
            incarnation: U64::new(self.incarnation.0),
            grant: self.grant.map_or_else(GrantFrame::new_zeroed, |grant| grant.to_frame()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RKey;

    const WINDOW: Window = Window {
        id: 0x0001_0002,
        access: Access::REMOTE_READ,
        length: 0x1_0000,
        incarnation: Incarnation(0x0123_4567_89AB_CDEF),
        grant: None,
    };

    #[test]
    fn h04_the_frame_has_the_same_bytes_on_every_host() {
        let mut golden = [0; 72];
        golden[..32].copy_from_slice(&[
            b'E', b'F', b'A', b'W', 0, 1, 0, 72, // magic, version, length
            0, 1, 0, 2, 0, 0, 0, 4, // id, access
            0, 0, 0, 0, 0, 1, 0, 0, // length
            0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, // incarnation
        ]);
        assert_eq!(WINDOW.to_frame().as_bytes(), golden);
        assert_eq!(Window::parse(&golden), Ok(WINDOW));
        golden[15] = 0;
        assert_eq!(Window::parse(&golden), Err(ParseError::NoAccess));
    }

    #[test]
    fn a_grant_is_parsed_as_one_or_is_not_there() {
        let (address, length, rkey, access) = (1 << 40, 0x1_0000, RKey(7), Access::REMOTE_READ);
        let grant = Some(Grant { address, length, rkey, access, incarnation: WINDOW.incarnation });
        let window = Window { grant, ..WINDOW };
        let mut bytes = [0; 72];
        bytes.copy_from_slice(window.to_frame().as_bytes());
        assert_eq!(Window::parse(&bytes), Ok(window));
        bytes[32] = 0;
        assert!(matches!(Window::parse(&bytes), Err(ParseError::Magic { frame: Frame::Grant, .. })));
    }
}
