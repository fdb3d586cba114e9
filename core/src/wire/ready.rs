//! The answer to a hello: I have resolved you, in this life of yours and of mine.

#![forbid(unsafe_code)]

use core::mem::offset_of;

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, Frame, ParseError};
use super::header::{self, Header};
use crate::{Gid, Incarnation, Qpn};

/// The sender holds an address handle for the receiver, so that RDMA can be answered (R04).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ready {
    /// The sender's device.
    pub gid: Gid,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// The sender's incarnation, as in its hello.
    pub incarnation: Incarnation,
    /// The incarnation of the hello that this answers.
    pub echo: Incarnation,
}

/// A [`Ready`] as it travels: 44 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReadyFrame {
    header: Header,
    gid: [u8; 16],
    qp_num: U32,
    incarnation: U64,
    echo: U64,
}

const_assert_eq!(ReadyFrame::LEN, 44);
const_assert_eq!(offset_of!(ReadyFrame, gid), 8);
const_assert_eq!(offset_of!(ReadyFrame, qp_num), 24);
const_assert_eq!(offset_of!(ReadyFrame, incarnation), 28);
const_assert_eq!(offset_of!(ReadyFrame, echo), 36);
assert_eq_align!(ReadyFrame, u8);

const HEADER: Header = Header::new(header::READY, 44);

impl ReadyFrame {
    /// Bytes of the frame.
    pub const LEN: usize = size_of::<Self>();

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl Ready {
    /// Parses a frame. Whether it answers the receiver's own hello is not asked here.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::Magic`], [`ParseError::Version`],
    /// [`ParseError::Length`]; [`ParseError::Zero`] for GID, incarnation or echo, [`ParseError::OutOfRange`] for
    /// the queue pair number.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let frame = Frame::Ready;
        let raw: ReadyFrame = HEADER.open(frame, bytes)?;
        Ok(Self {
            gid: header::gid(frame, raw.gid)?,
            qpn: header::qpn(frame, raw.qp_num.get())?,
            incarnation: header::incarnation(frame, Field::Incarnation, raw.incarnation.get())?,
            echo: header::incarnation(frame, Field::Echo, raw.echo.get())?,
        })
    }

    /// The frame that says this.
    pub fn to_frame(&self) -> ReadyFrame {
        ReadyFrame {
            header: HEADER,
            gid: self.gid.bytes(),
            qp_num: U32::new(self.qpn.0.into()),
            incarnation: U64::new(self.incarnation.0),
            echo: U64::new(self.echo.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Ready = Ready {
        gid: Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b815),
        qpn: Qpn(0x1234),
        incarnation: Incarnation(0x0123_4567_89AB_CDEF),
        echo: Incarnation(0xFEDC_BA98_7654_3210),
    };

    const GOLDEN: [u8; 44] = [
        b'E', b'F', b'A', b'R', 0, 1, 0, 44, // magic, version, length
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15, // gid
        0, 0, 0x12, 0x34, // qp_num
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, // incarnation
        0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10, // echo
    ];

    #[test]
    fn h04_the_frame_has_the_same_bytes_on_every_host() {
        assert_eq!(READY.to_frame().as_bytes(), GOLDEN);
        assert_eq!(Ready::parse(&GOLDEN), Ok(READY));
    }

    #[test]
    fn a_frame_that_names_nobody_or_echoes_nothing_is_refused() {
        let frame = Frame::Ready;
        for (range, field) in [(8..24, Field::Gid), (28..36, Field::Incarnation), (36..44, Field::Echo)] {
            let mut bytes = GOLDEN;
            bytes[range].fill(0);
            assert_eq!(Ready::parse(&bytes), Err(ParseError::Zero { frame, field }));
        }
    }
}
