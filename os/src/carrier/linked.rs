//! The devices that a process has on a fabric, all on one wire.

use std::error::Error;
use std::fmt;

use efa_core::soft::{Config, SoftDevice};
use efa_core::{Gid, Provider};

use super::{Carrier, Claim};

/// Devices that have these addresses, each its own, and what carries their frames. `life` is as for
/// [`Config::linked`]: random bits that no earlier process at these addresses had.
///
/// # Errors
/// [`LinkedError`]: no address, more than a wire has places for, or addresses that do not follow each other.
pub fn linked(config: Config, claims: Vec<Claim>, life: u64) -> Result<(Vec<SoftDevice>, Carrier), LinkedError> {
    let first = claims.first().ok_or(LinkedError::NoAddress)?.gid();
    let mut devices = vec![SoftDevice::new(config.gid(first).linked(life))];
    while devices.len() < claims.len() {
        devices.push(devices[0].neighbour().map_err(LinkedError::Device)?);
    }
    for (device, claim) in devices.iter().zip(&claims) {
        let (has, claimed) = (device.gid(), claim.gid());
        if has != claimed {
            return Err(LinkedError::Address { has, claimed });
        }
    }
    let carrier = Carrier::new(&devices[0], claims);
    Ok((devices, carrier))
}

/// Why there can be no such devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkedError {
    /// No address was claimed.
    NoAddress,
    /// The wire makes no more devices.
    Device(efa_core::Error),
    /// A device has the address that follows its neighbour's, and another was claimed.
    Address {
        /// The device's.
        has: Gid,
        /// What was claimed.
        claimed: Gid,
    },
}

impl fmt::Display for LinkedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str("a device has an address: claim one of the fabric"),
            Self::Device(error) => error.fmt(f),
            Self::Address { has, claimed } => write!(
                f,
                "a device has the address {has} and not {claimed}, which was claimed: claim addresses that follow each other"
            ),
        }
    }
}

impl Error for LinkedError {}
