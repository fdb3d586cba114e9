//! The 24-byte address of the PyPI package `efa`: GID, queue pair number, queue key, in network order.
//!
//! It has neither version nor features nor incarnation: the road to peers that speak nothing else.

#![forbid(unsafe_code)]

use core::fmt;
use core::mem::offset_of;

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::error::{Field, Frame, ParseError};
use super::header;
use crate::{Gid, Qkey, Qpn};

/// A 24-byte address as it travels; it may name nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EndpointBytes {
    /// The device's address.
    pub gid: [u8; 16],
    /// The queue pair number: 24 bits in the package, 16 on EFA (R13).
    pub qp_num: U32,
    /// The queue key.
    pub qkey: U32,
}

const_assert_eq!(EndpointBytes::LEN, 24);
const_assert_eq!(offset_of!(EndpointBytes, qp_num), 16);
const_assert_eq!(offset_of!(EndpointBytes, qkey), 20);
assert_eq_align!(EndpointBytes, u8);

impl EndpointBytes {
    /// Bytes of the form.
    pub const LEN: usize = size_of::<Self>();

    /// Accepts what the package accepts: 24 bytes with a queue pair number of 24 bits.
    ///
    /// [`EndpointBytes::resolve`] asks for what EFA asks for.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::OutOfRange`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        const LARGEST: u32 = 0xFF_FFFF;
        let this: Self = header::exactly(Frame::Endpoint, bytes)?;
        match this.qp_num.get() {
            0..=LARGEST => Ok(this),
            found => Err(ParseError::OutOfRange {
                frame: Frame::Endpoint,
                field: Field::QpNum,
                largest: LARGEST.into(),
                found: found.into(),
            }),
        }
    }

    /// The address, if a queue pair of an EFA device can have it.
    ///
    /// # Errors
    /// [`ParseError::Zero`] for a GID of zeros (R27), [`ParseError::OutOfRange`] for a queue pair number of more
    /// than 16 bits (R13).
    pub fn resolve(&self) -> Result<EndpointInfo, ParseError> {
        Ok(EndpointInfo {
            gid: header::gid(Frame::Endpoint, self.gid)?,
            qpn: header::qpn(Frame::Endpoint, self.qp_num.get())?,
            qkey: Qkey(self.qkey.get()),
        })
    }

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Where a queue pair is reached: its device, its number and the key that senders use (R25, R26).
///
/// Queue keys with the top bit set are privileged (R26). They are accepted: the peer chose its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EndpointInfo {
    /// The device; not zero if it was parsed.
    pub gid: Gid,
    /// The queue pair.
    pub qpn: Qpn,
    /// The queue pair's key.
    pub qkey: Qkey,
}

impl EndpointInfo {
    /// Parses a 24-byte address, and resolves it.
    ///
    /// # Errors
    /// As [`EndpointBytes::parse`] and [`EndpointBytes::resolve`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        EndpointBytes::parse(bytes)?.resolve()
    }

    /// The address as the package sends it.
    pub fn to_bytes(&self) -> EndpointBytes {
        EndpointBytes { gid: self.gid.bytes(), qp_num: U32::new(self.qpn.0.into()), qkey: U32::new(self.qkey.0) }
    }
}

impl TryFrom<EndpointBytes> for EndpointInfo {
    type Error = ParseError;

    fn try_from(bytes: EndpointBytes) -> Result<Self, ParseError> {
        bytes.resolve()
    }
}

impl From<EndpointInfo> for EndpointBytes {
    fn from(info: EndpointInfo) -> Self {
        info.to_bytes()
    }
}

impl fmt::Display for EndpointInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]:{}", self.gid, self.qpn)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    /// `struct.pack("!16sII", gid, 0x1234, 0x1EADBEEF)`, as the package does it.
    const GOLDEN: [u8; 24] = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15, // gid
        0, 0, 0x12, 0x34, // qp_num
        0x1e, 0xad, 0xbe, 0xef, // qkey
    ];

    fn with_qp_num(qp_num: u32) -> EndpointBytes {
        EndpointBytes { qp_num: U32::new(qp_num), ..EndpointBytes::read_from_bytes(&GOLDEN).unwrap() }
    }

    #[test]
    fn h04_the_address_has_the_same_bytes_on_every_host() {
        let gid = Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b815);
        let info = EndpointInfo { gid, qpn: Qpn(0x1234), qkey: Qkey(0x1EAD_BEEF) };
        assert_eq!(info.to_bytes().as_bytes(), GOLDEN);
        assert_eq!(EndpointInfo::parse(&GOLDEN), Ok(info));
        assert_eq!(info.to_string(), "[fe80::8ff:e2ff:fe9a:b815]:4660");
    }

    #[test]
    fn r13_a_queue_pair_number_of_24_bits_is_parsed_but_only_one_of_16_bits_is_resolved() {
        for (qp_num, parses, resolves) in
            [(0, true, true), (0xFFFF, true, true), (0x1_0000, true, false), (0xFF_FFFF, true, false)]
                .into_iter()
                .chain([(0x100_0000, false, false), (u32::MAX, false, false)])
        {
            let bytes = with_qp_num(qp_num);
            assert_eq!(EndpointBytes::parse(bytes.as_bytes()).is_ok(), parses, "{qp_num:#x}");
            assert_eq!(EndpointInfo::try_from(bytes).is_ok(), resolves, "{qp_num:#x}");
            assert_eq!(EndpointInfo::parse(bytes.as_bytes()).is_ok(), resolves, "{qp_num:#x}");
        }
        let largest = u64::from(u16::MAX);
        let (frame, field) = (Frame::Endpoint, Field::QpNum);
        assert_eq!(with_qp_num(70_000).resolve(), Err(ParseError::OutOfRange { frame, field, largest, found: 70_000 }));
    }

    #[test]
    fn r27_a_gid_of_zeros_is_parsed_but_not_resolved() {
        let bytes = EndpointBytes { gid: [0; 16], ..with_qp_num(1) };
        assert_eq!(EndpointBytes::parse(bytes.as_bytes()), Ok(bytes));
        assert_eq!(bytes.resolve(), Err(ParseError::Zero { frame: Frame::Endpoint, field: Field::Gid }));
    }

    #[test]
    fn r26_a_privileged_queue_key_is_the_peers_own_choice() {
        let bytes = EndpointBytes { qkey: U32::new(0x8000_0001), ..with_qp_num(1) };
        assert_eq!(bytes.resolve().unwrap().qkey, Qkey(0x8000_0001));
    }
}
