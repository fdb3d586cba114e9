//! A global identifier: the address of an EFA device.

#![forbid(unsafe_code)]

use core::fmt;
use core::net::Ipv6Addr;

/// A device's address: sixteen bytes in network order, whatever the host's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Whether it names nobody: EFA has no such address (R27).
    pub const fn is_zero(&self) -> bool {
        u128::from_ne_bytes(self.0) == 0
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}
