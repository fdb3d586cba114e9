//! The host that this process is on its fabric: its addresses, its devices, and what carries their frames.

#![forbid(unsafe_code)]

use efa_core::soft::SoftDevice;
use efa_os::carrier::{self, Carrier, ClaimError, Fabric};

use crate::config::Config;
use crate::{own, sys};

/// The devices, all on one wire, and the carrier of its link, if it has one.
///
/// # Errors
/// What is wrong, and which variable to set.
pub fn make(config: &Config, process: i32) -> Result<(Vec<SoftDevice>, Option<Carrier>), String> {
    let soft = config.soft.mover(own::mover());
    let soft = config.gid.map_or(soft, |gid| soft.gid(gid));
    let Some(name) = &config.fabric else {
        return Ok((devices(SoftDevice::new(soft), config.devices)?, None));
    };
    let fabric = Fabric::new(name, sys::user()).map_err(|error| error.to_string())?;
    let claims = match config.gid {
        Some(gid) => fabric.claim_from(gid, config.devices),
        None => fabric.claim_free(process.cast_unsigned(), config.devices),
    };
    let claims = claims.map_err(|error| format!("{error}: set {}", remedy(config, &error)))?;
    let life = sys::random().map_err(|errno| {
        let error = std::io::Error::from_raw_os_error(errno.0);
        format!("the system has no random bits: {error}; SOFTEFA_FABRIC=none needs none")
    })?;
    let (devices, carrier) = carrier::linked(soft, claims, life).map_err(|error| error.to_string())?;
    Ok((devices, Some(carrier)))
}

fn remedy(config: &Config, error: &ClaimError) -> &'static str {
    match config.gid {
        _ if !error.is_taken() => "SOFTEFA_FABRIC=none, which needs none",
        Some(_) => "SOFTEFA_GID to another address, or to none of them, or SOFTEFA_FABRIC to another name",
        None => "SOFTEFA_GID to an address that is free, or SOFTEFA_FABRIC to another name",
    }
}

fn devices(first: SoftDevice, count: u32) -> Result<Vec<SoftDevice>, String> {
    let mut devices = vec![first.clone()];
    while devices.len() < count as usize {
        devices.push(first.neighbour().map_err(|error| error.to_string())?);
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use efa_core::{Gid, Provider};

    fn config(fabric: &str) -> Config {
        Config { fabric: Some(format!("{fabric}-{}", std::process::id())), ..Config::default() }
    }

    #[test]
    fn a_process_that_says_nothing_has_addresses_that_are_free() {
        let config = Config { devices: 4, ..config("free") };
        let (first, _first_carrier) = make(&config, 7).unwrap();
        // As of another process with that number.
        let (second, _second_carrier) = make(&config, 7).unwrap();
        let mut gids: Vec<_> = first.iter().chain(&second).map(|device| device.gid().0).collect();
        gids.sort();
        gids.dedup();
        assert_eq!(gids.len(), 8);
    }

    #[test]
    fn an_address_that_is_taken_is_an_error_that_says_what_to_set() {
        let gid = Some(Gid::from_parts(0xFE80 << 48, 9));
        let config = Config { gid, devices: 2, ..config("taken") };
        let (devices, carrier) = make(&config, 7).unwrap();
        assert_eq!(devices[1].gid(), Gid::from_parts(0xFE80 << 48, 10));
        let error = make(&config, 8).unwrap_err();
        for part in ["fe80::9", "SOFTEFA_GID", "SOFTEFA_FABRIC", "taken-"] {
            assert!(error.contains(part), "{error}");
        }
        drop(carrier);
        make(&config, 8).unwrap();
    }

    #[test]
    fn a_process_alone_claims_nothing() {
        let alone = Config { fabric: None, ..config("alone") };
        let (devices, carrier) = make(&alone, 7).unwrap();
        assert!(devices.len() == 1 && carrier.is_none());
    }
}
