//! The first frame of the exchange: who I am, where I am reached, what I can do.

#![forbid(unsafe_code)]

use core::mem::offset_of;

use bitflags::bitflags;
use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::endpoint::{EndpointBytes, EndpointInfo};
use super::error::{Field, Frame, ParseError};
use super::header::{self, Header};
use crate::flags::SendOps;
use crate::{Caps, Incarnation, Qkey};

bitflags! {
    /// What two queue pairs must agree on (R05).
    ///
    /// A set with a bit that is not named here is refused on the wire: it may change what the others mean.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Features: u32 {
        /// RDMA write with immediate consumes no receive at the responder.
        const UNSOLICITED_WRITE_RECV = 1 << 0;
        /// The queue pair is UD; without it, SRD. One cannot reach the other.
        const DATAGRAM = 1 << 1;
    }
}

/// What a queue pair says of itself, to be sent to whom it wants to talk to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Where it is reached.
    pub endpoint: EndpointInfo,
    /// What both sides must have in common.
    pub features: Features,
    /// Operations its queue pair was made to post (R06). What its device answers is said by `caps`.
    pub ops: SendOps,
    /// What its device can do. Bits that are not known are kept: they say more of the device and change nothing.
    pub caps: Caps,
    /// Bytes of the longest SEND it takes (R11).
    pub max_message: u32,
    /// Bytes of the longest RDMA operation its device takes (R11).
    pub max_rdma: u32,
    /// This life of its queue pair: random and never zero.
    pub incarnation: Incarnation,
}

/// A [`Hello`] as it travels: 60 bytes in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HelloFrame {
    header: Header,
    endpoint: EndpointBytes,
    features: U32,
    ops: U32,
    caps: U32,
    max_message: U32,
    max_rdma: U32,
    incarnation: U64,
}

const_assert_eq!(HelloFrame::LEN, 60);
const_assert_eq!(offset_of!(HelloFrame, endpoint), 8);
const_assert_eq!(offset_of!(HelloFrame, features), 32);
const_assert_eq!(offset_of!(HelloFrame, ops), 36);
const_assert_eq!(offset_of!(HelloFrame, caps), 40);
const_assert_eq!(offset_of!(HelloFrame, max_message), 44);
const_assert_eq!(offset_of!(HelloFrame, max_rdma), 48);
const_assert_eq!(offset_of!(HelloFrame, incarnation), 52);
assert_eq_align!(HelloFrame, u8);

const HEADER: Header = Header::new(header::HELLO, 60);

impl HelloFrame {
    /// Bytes of the frame.
    pub const LEN: usize = size_of::<Self>();

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

impl Hello {
    /// Parses a frame. Whether features and limits suit is not asked here.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::Magic`], [`ParseError::Version`],
    /// [`ParseError::Length`]; [`ParseError::Zero`] for GID or incarnation, [`ParseError::OutOfRange`] for the
    /// queue pair number, [`ParseError::UnknownBits`] for features or operations.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let frame = Frame::Hello;
        let raw: HelloFrame = HEADER.open(frame, bytes)?;
        let unknown = |field, known, found: U32| ParseError::UnknownBits { frame, field, known, found: found.get() };
        Ok(Self {
            endpoint: EndpointInfo {
                gid: header::gid(frame, raw.endpoint.gid)?,
                qpn: header::qpn(frame, raw.endpoint.qp_num.get())?,
                qkey: Qkey(raw.endpoint.qkey.get()),
            },
            features: Features::from_bits(raw.features.get())
                .ok_or_else(|| unknown(Field::Features, Features::all().bits(), raw.features))?,
            ops: u8::try_from(raw.ops.get())
                .ok()
                .and_then(SendOps::from_bits)
                .ok_or_else(|| unknown(Field::Ops, SendOps::all().bits().into(), raw.ops))?,
            caps: Caps::from_bits_retain(raw.caps.get()),
            max_message: raw.max_message.get(),
            max_rdma: raw.max_rdma.get(),
            incarnation: header::incarnation(frame, Field::Incarnation, raw.incarnation.get())?,
        })
    }

    /// The frame that says this.
    pub fn to_frame(&self) -> HelloFrame {
        HelloFrame {
            header: HEADER,
            endpoint: self.endpoint.to_bytes(),
            features: U32::new(self.features.bits()),
            ops: U32::new(self.ops.bits().into()),
            caps: U32::new(self.caps.bits()),
            max_message: U32::new(self.max_message),
            max_rdma: U32::new(self.max_rdma),
            incarnation: U64::new(self.incarnation.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gid, Qpn};

    const HELLO: Hello = Hello {
        endpoint: EndpointInfo {
            gid: Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b815),
            qpn: Qpn(0x1234),
            qkey: Qkey(0x1EAD_BEEF),
        },
        features: Features::UNSOLICITED_WRITE_RECV,
        ops: SendOps::SEND.union(SendOps::RDMA_READ),
        caps: Caps::RDMA_READ.union(Caps::RDMA_WRITE),
        max_message: 8928,
        max_rdma: 1 << 30,
        incarnation: Incarnation(0x0123_4567_89AB_CDEF),
    };

    const GOLDEN: [u8; 60] = [
        b'E', b'F', b'A', b'H', 0, 1, 0, 60, // magic, version, length
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15, // gid
        0, 0, 0x12, 0x34, 0x1e, 0xad, 0xbe, 0xef, // qp_num, qkey
        0, 0, 0, 1, 0, 0, 0, 0x14, 0, 0, 0, 0x09, // features, ops, caps
        0, 0, 0x22, 0xe0, 0x40, 0, 0, 0, // max_message, max_rdma
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, // incarnation
    ];

    fn changed(offset: usize, value: u8) -> Result<Hello, ParseError> {
        let mut bytes = GOLDEN;
        bytes[offset] = value;
        Hello::parse(&bytes)
    }

    #[test]
    fn h04_the_frame_has_the_same_bytes_on_every_host() {
        assert_eq!(HELLO.to_frame().as_bytes(), GOLDEN);
        assert_eq!(Hello::parse(&GOLDEN), Ok(HELLO));
    }

    #[test]
    fn each_wrong_field_is_an_error_of_its_own_with_what_was_expected_and_what_came() {
        let frame = Frame::Hello;
        let magic = ParseError::Magic { frame, expected: *b"EFAH", found: *b"EFAR" };
        assert_eq!(changed(3, b'R'), Err(magic));
        assert_eq!(changed(5, 2), Err(ParseError::Version { frame, expected: 1, found: 2 }));
        assert_eq!(changed(7, 61), Err(ParseError::Length { frame, expected: 60, found: 61 }));
        let qpn = ParseError::OutOfRange { frame, field: Field::QpNum, largest: 65_535, found: 0x1_1234 };
        assert_eq!(changed(25, 1), Err(qpn));
        let features = ParseError::UnknownBits { frame, field: Field::Features, known: 3, found: 5 };
        assert_eq!(changed(35, 5), Err(features));
        let ops = ParseError::UnknownBits { frame, field: Field::Ops, known: 0x1F, found: 0x114 };
        assert_eq!(changed(38, 1), Err(ops));
        let mut bytes = GOLDEN;
        bytes[8..24].fill(0);
        assert_eq!(Hello::parse(&bytes), Err(ParseError::Zero { frame, field: Field::Gid }));
        let mut bytes = GOLDEN;
        bytes[52..].fill(0);
        assert_eq!(Hello::parse(&bytes), Err(ParseError::Zero { frame, field: Field::Incarnation }));
    }

    #[test]
    fn an_unknown_version_is_told_whatever_its_length() {
        let mut bytes = [0; 80];
        bytes[..8].copy_from_slice(&[b'E', b'F', b'A', b'H', 0, 2, 0, 80]);
        let error = ParseError::Version { frame: Frame::Hello, expected: 1, found: 2 };
        assert_eq!(Hello::parse(&bytes), Err(error));
        assert_eq!(Hello::parse(&bytes[..8]), Err(error));
    }

    #[test]
    fn unknown_capabilities_of_a_newer_device_are_kept() {
        let hello = changed(40, 0x80).unwrap();
        assert_eq!(hello.caps.bits(), 0x8000_0009);
        assert_eq!(Hello::parse(hello.to_frame().as_bytes()), Ok(hello));
    }
}
