//! libfabric's address of an EFA endpoint, as 32 bytes in little-endian order and as text.

#![forbid(unsafe_code)]

use core::fmt;
use core::mem::offset_of;
use core::str::FromStr;

use static_assertions::{assert_eq_align, const_assert_eq};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::endpoint::EndpointInfo;
use super::error::{Field, Frame, ParseError};
use super::header;
use crate::{Gid, Qkey, Qpn};

/// A libfabric address as it travels (`FI_ADDR_EFA`); it may name nobody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LibfabricBytes {
    /// The device's address.
    pub gid: [u8; 16],
    /// The queue pair number.
    pub qpn: U16,
    /// Padding: written as zero, not looked at.
    pub pad: U16,
    /// The queue key.
    pub qkey: U32,
    /// A pointer of libfabric's own: written as zero, not looked at.
    pub reserved: U64,
}

const_assert_eq!(LibfabricBytes::LEN, 32);
const_assert_eq!(offset_of!(LibfabricBytes, qpn), 16);
const_assert_eq!(offset_of!(LibfabricBytes, qkey), 20);
const_assert_eq!(offset_of!(LibfabricBytes, reserved), 24);
assert_eq_align!(LibfabricBytes, u8);

impl LibfabricBytes {
    /// Bytes of the form.
    pub const LEN: usize = size_of::<Self>();

    /// The bytes, to be sent.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// An address in libfabric's forms: parsed from bytes or text, written as either.
///
/// ```
/// use efa_core::wire::LibfabricAddress;
///
/// let address: LibfabricAddress = "fi_addr_efa://[fe80::1]:12:34".parse().unwrap();
/// assert_eq!(address.0.qpn.0, 12);
/// assert_eq!(address.to_string(), "fi_addr_efa://[fe80::1]:12:34");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LibfabricAddress(pub EndpointInfo);

const SCHEME: &str = "fi_addr_efa://";

impl LibfabricAddress {
    /// Parses the 32-byte form. Padding and libfabric's pointer are not looked at.
    ///
    /// # Errors
    /// [`ParseError::Missing`], [`ParseError::Trailing`], [`ParseError::Zero`] for a GID of zeros (R27).
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let raw: LibfabricBytes = header::exactly(Frame::LibfabricBytes, bytes)?;
        Ok(Self(EndpointInfo {
            gid: header::gid(Frame::LibfabricBytes, raw.gid)?,
            qpn: Qpn(raw.qpn.get()),
            qkey: Qkey(raw.qkey.get()),
        }))
    }

    /// The address as libfabric sends it.
    pub fn to_bytes(&self) -> LibfabricBytes {
        LibfabricBytes {
            gid: self.0.gid.bytes(),
            qpn: U16::new(self.0.qpn.0),
            pad: U16::ZERO,
            qkey: U32::new(self.0.qkey.0),
            reserved: U64::ZERO,
        }
    }
}

impl fmt::Display for LibfabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndpointInfo { gid, qpn, qkey } = self.0;
        write!(f, "{SCHEME}[{gid}]:{qpn}:{}", qkey.0)
    }
}

/// All three parts must be there. libfabric's own reader takes zero for a number that is missing.
impl FromStr for LibfabricAddress {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let frame = Frame::LibfabricText;
        let absent = |field, rest: &str| ParseError::Text { frame, field, at: text.len().saturating_sub(rest.len()) };
        let rest = text.strip_prefix(SCHEME).ok_or(absent(Field::Scheme, text))?;
        let no_gid = absent(Field::Gid, rest);
        let (gid, rest) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).ok_or(no_gid)?;
        let gid = header::gid(frame, gid.parse::<Gid>().map_err(|_| no_gid)?.bytes())?;
        let rest = rest.strip_prefix(':').ok_or(absent(Field::QpNum, rest))?;
        let no_qpn = absent(Field::QpNum, rest);
        let (qpn, qkey) = rest.split_once(':').unwrap_or((rest, ""));
        let no_qkey = absent(Field::Qkey, qkey);
        let qpn = Qpn(number(qpn, Field::QpNum, u16::MAX.into(), no_qpn)?);
        let qkey = Qkey(number(qkey, Field::Qkey, u32::MAX.into(), no_qkey)?);
        Ok(Self(EndpointInfo { gid, qpn, qkey }))
    }
}

/// A decimal number up to `largest`: digits only, no sign.
fn number<T: TryFrom<u64>>(digits: &str, field: Field, largest: u64, absent: ParseError) -> Result<T, ParseError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(absent);
    }
    let found = digits.parse().unwrap_or(u64::MAX);
    T::try_from(found).map_err(|_| ParseError::OutOfRange { frame: Frame::LibfabricText, field, largest, found })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    const GOLDEN: [u8; 32] = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15, // gid
        0x34, 0x12, 0, 0, // qpn, pad
        0xef, 0xbe, 0xad, 0x1e, // qkey
        0, 0, 0, 0, 0, 0, 0, 0, // reserved
    ];
    const TEXT: &str = "fi_addr_efa://[fe80::8ff:e2ff:fe9a:b815]:4660:514703087";

    #[test]
    fn h04_bytes_and_text_of_an_address_are_the_same_on_every_host() {
        let address = LibfabricAddress::parse(&GOLDEN).unwrap();
        assert_eq!((address.0.qpn, address.0.qkey), (Qpn(0x1234), Qkey(0x1EAD_BEEF)));
        assert_eq!(address.to_bytes().as_bytes(), GOLDEN);
        assert_eq!(address.to_string(), TEXT);
        assert_eq!(TEXT.parse(), Ok(address));
    }

    #[test]
    fn padding_and_libfabrics_pointer_are_not_looked_at() {
        let mut bytes = GOLDEN;
        bytes[18] = 1;
        bytes[24..].fill(0xAA);
        assert_eq!(LibfabricAddress::parse(&bytes), LibfabricAddress::parse(&GOLDEN));
    }

    #[test]
    fn other_lengths_and_a_gid_of_zeros_are_refused() {
        let frame = Frame::LibfabricBytes;
        assert_eq!(LibfabricAddress::parse(&GOLDEN[..24]), Err(ParseError::Missing { frame, expected: 32, found: 24 }));
        assert_eq!(LibfabricAddress::parse(&[1; 33]), Err(ParseError::Trailing { frame, expected: 32, found: 33 }));
        assert_eq!(LibfabricAddress::parse(&[0; 32]), Err(ParseError::Zero { frame, field: Field::Gid }));
    }

    #[test]
    fn a_text_is_refused_with_the_part_and_the_place() {
        let frame = Frame::LibfabricText;
        let no = |field, at| ParseError::Text { frame, field, at };
        for (text, error) in [
            ("", no(Field::Scheme, 0)),
            ("fi_addr_ib://[fe80::1]:1:2", no(Field::Scheme, 0)),
            ("fi_addr_efa://", no(Field::Gid, 14)),
            ("fi_addr_efa://fe80::1:1:2", no(Field::Gid, 14)),
            ("fi_addr_efa://[fe80::g]:1:2", no(Field::Gid, 14)),
            ("fi_addr_efa://[fe80::1]", no(Field::QpNum, 23)),
            ("fi_addr_efa://[fe80::1]1:2", no(Field::QpNum, 23)),
            ("fi_addr_efa://[fe80::1]::2", no(Field::QpNum, 24)),
            ("fi_addr_efa://[fe80::1]:+1:2", no(Field::QpNum, 24)),
            ("fi_addr_efa://[fe80::1]:0x1:2", no(Field::QpNum, 24)),
            ("fi_addr_efa://[fe80::1]:1", no(Field::Qkey, 25)),
            ("fi_addr_efa://[fe80::1]:1:", no(Field::Qkey, 26)),
            ("fi_addr_efa://[fe80::1]:1:2 ", no(Field::Qkey, 26)),
            ("fi_addr_efa://[fe80::1]:1:2:3", no(Field::Qkey, 26)),
            ("fi_addr_efa://[::]:1:2", ParseError::Zero { frame, field: Field::Gid }),
        ] {
            assert_eq!(text.parse::<LibfabricAddress>(), Err(error), "{text}");
        }
    }

    #[test]
    fn r13_a_number_in_a_text_that_is_too_large_is_named() {
        let frame = Frame::LibfabricText;
        let above = |field, largest, found| Err(ParseError::OutOfRange { frame, field, largest, found });
        let parse = |numbers| std::format!("fi_addr_efa://[fe80::1]:{numbers}").parse::<LibfabricAddress>();
        assert!(parse("65535:4294967295").is_ok());
        assert_eq!(parse("65536:1"), above(Field::QpNum, 65_535, 65_536));
        assert_eq!(parse("1:4294967296"), above(Field::Qkey, u32::MAX.into(), 1 << 32));
        assert_eq!(parse("1:99999999999999999999999"), above(Field::Qkey, u32::MAX.into(), u64::MAX));
    }
}
