//! A global identifier: the address of an EFA device.

#![forbid(unsafe_code)]

use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

/// A device's address: sixteen bytes in network order, whatever the host's.
///
/// It is written as an IPv6 address. There is no integer inside that a host could swap: the two halves are
/// asked for as numbers and given as numbers, and are the same on every host.
///
/// ```
/// use efa_core::Gid;
///
/// let gid: Gid = "fe80::8ff:e2ff:fe9a:b815".parse().unwrap();
/// assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
/// assert_eq!(gid.to_string(), "fe80::8ff:e2ff:fe9a:b815");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address made of its two halves, given as numbers.
    pub const fn from_parts(subnet_prefix: u64, interface_id: u64) -> Self {
        Self((((subnet_prefix as u128) << 64) | interface_id as u128).to_be_bytes())
    }

    /// The sixteen bytes, in network order.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// The first half as a number: the most significant byte comes first in the address.
    pub const fn subnet_prefix(&self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The second half as a number: the most significant byte comes first in the address.
    pub const fn interface_id(&self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Whether it names nobody: EFA has no such address (R27).
    pub const fn is_zero(&self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }

    /// Whether it is in fe80::/10, as every address of an EFA device is: never filter those out (R27).
    pub const fn is_link_local(&self) -> bool {
        u128::from_be_bytes(self.0) >> 118 == 0xfe80 >> 6
    }
}

impl From<[u8; 16]> for Gid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl From<Gid> for [u8; 16] {
    fn from(gid: Gid) -> Self {
        gid.0
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        Self::from(gid.0)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

/// The text is not an address: [`Gid`] is written as an IPv6 address without brackets, zone or prefix length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParseGidError(());

impl fmt::Display for ParseGidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a GID: write it as an IPv6 address such as fe80::8ff:e2ff:fe9a:b815, \
             without brackets, %zone or /length",
        )
    }
}

impl core::error::Error for ParseGidError {}

impl FromStr for Gid {
    type Err = ParseGidError;

    fn from_str(text: &str) -> Result<Self, ParseGidError> {
        text.parse::<Ipv6Addr>().map(Self::from).map_err(|_| ParseGidError(()))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    const BYTES: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15];

    #[test]
    fn h04_bytes_numbers_and_text_of_an_address_are_the_same_on_every_host() {
        let gid = Gid(BYTES);
        assert_eq!(gid.bytes(), BYTES);
        assert_eq!(gid.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(gid.interface_id(), 0x08ff_e2ff_fe9a_b815);
        assert_eq!(gid.to_string(), "fe80::8ff:e2ff:fe9a:b815");
        assert_eq!(Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b815), gid);
        assert_eq!("fe80::8ff:e2ff:fe9a:b815".parse(), Ok(gid));
        assert_eq!("fe80:0000:0000:0000:08ff:e2ff:fe9a:b815".parse(), Ok(gid));
        assert_eq!(Gid::from(Ipv6Addr::from(gid)), gid);
        assert_eq!(<[u8; 16]>::from(Gid::from(BYTES)), BYTES);
    }

    #[test]
    fn r27_only_all_zeros_is_zero_and_only_fe80_10_is_link_local() {
        assert!(Gid::default().is_zero());
        assert!((0..128).all(|bit| !Gid((1u128 << bit).to_be_bytes()).is_zero()));
        for (text, link_local) in
            [("fe80::", true), ("febf:ffff::1", true), ("fec0::", false), ("fe7f::1", false), ("::", false)]
        {
            assert_eq!(text.parse::<Gid>().unwrap().is_link_local(), link_local, "{text}");
        }
    }

    #[test]
    fn text_that_is_no_address_is_refused() {
        for text in ["", "fe80", "[fe80::1]", "fe80::1%eth0", "fe80::1/64", "10.0.0.1", " fe80::1", "fe80::12345"] {
            assert!(text.parse::<Gid>().is_err(), "{text}");
        }
    }
}
