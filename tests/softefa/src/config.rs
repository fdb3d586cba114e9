//! What the environment says: a function of names and values.

#![forbid(unsafe_code)]

use std::fmt;
use std::net::Ipv6Addr;

use efa_core::soft::{self, link};
use efa_core::{Gid, Limits};
use efa_os::carrier::Fabric;

use crate::driver::{Driver, Layout};

/// What each variable's name begins with.
pub const PREFIX: &str = "SOFTEFA_";

/// Devices that there can be.
pub const MAX_DEVICES: u32 = 4;

/// The fabric of those who name none.
const FABRIC: &str = "default";

/// What is written to standard error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Log {
    /// Nothing.
    #[default]
    Off,
    /// Calls that were refused.
    Errors,
    /// All calls.
    Calls,
}

/// What the library is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Devices of the process.
    pub devices: u32,
    /// The name of the fabric that it shares with other processes, if it does.
    pub fabric: Option<String>,
    /// The address of the first device, if it is to have this one.
    pub gid: Option<Gid>,
    /// What they are like.
    pub soft: soft::Config,
    /// What they can do.
    pub profile: soft::Profile,
    /// How much of it.
    pub limits: Limits,
    /// How the driver lets programs at them.
    pub driver: Driver,
    /// What is told.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        let limits = Limits {
            max_qp: 2048,
            max_cq: 4096,
            max_mr: 16384,
            max_pd: 256,
            max_ah: 1023,
            max_send_depth: 4096,
            max_recv_depth: 32768,
            max_cqe: 32768,
            ..soft::Config::LIMITS
        };
        let profile = soft::Profile::RDMA;
        let soft = soft::Config::new(profile.wide().counting()).limits(limits);
        Self {
            devices: 1,
            fabric: Some(FABRIC.into()),
            gid: None,
            soft,
            profile,
            limits,
            driver: Driver::default(),
            log: Log::Off,
        }
    }
}

/// A value that means nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The variable.
    pub name: String,
    /// Its value.
    pub value: String,
    /// What it takes.
    pub accepted: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={:?} is not understood: {}", self.name, self.value, self.accepted)
    }
}

const NAMES: &str = "the variables are SOFTEFA_FABRIC, SOFTEFA_GID, SOFTEFA_DEVICES, SOFTEFA_PROFILE, SOFTEFA_FEATURES, \
                     SOFTEFA_LIMITS, SOFTEFA_LAYOUT, SOFTEFA_SEED, SOFTEFA_SHUFFLE, SOFTEFA_HOSTILE and SOFTEFA_LOG";
const LIMITS: &str = "a list of name=number with the names qp, cq, mr, pd, ah, send, min_send, recv, cqe, msg, rdma \
                      and batch, none beyond what the device has";
const FEATURES: &str = "none, or a list of wide (send entries), id64 (request ids), cqmem (completion queues in the \
                        program's memory) and counters (of completions)";
const FABRICS: &str = "none, for a process alone, or a name of 1 to 32 letters, digits, dots, dashes and underscores";
const GIDS: &str = "an IPv6 address as fe80::7, not zero and no multicast address: the first device's, which no other \
                    process on the fabric has";
const MESSAGES: &str = "messages between processes have at most 32768 bytes; with SOFTEFA_FABRIC=none msg may be more";
const HOSTILE: &str = "a list of name=number with the names loss (of 1000), delay (turns), pieces (bytes), \
                       strangers (arrivals) and alarms (0 or 1)";

impl Config {
    /// Reads variables; those whose names begin otherwise are skipped.
    ///
    /// # Errors
    /// The first whose value, or name, is not known, and what is.
    pub fn parse(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let (mut seed, mut shuffle, mut wide, mut counters, mut hostile) = (None, true, true, true, Vec::new());
        let mut limits_were = None;
        for (name, value) in variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            let error = |accepted: &str| ConfigError {
                name: name.clone(),
                value: value.clone(),
                accepted: accepted.to_owned(),
            };
            match &name[PREFIX.len()..] {
                "FABRIC" if value == "none" => config.fabric = None,
                "FABRIC" => {
                    Fabric::new(&value, 0).map_err(|_| error(FABRICS))?;
                    config.fabric = Some(value.clone());
                }
                "GID" => {
                    let gid = value.parse::<Ipv6Addr>().ok();
                    let gid = gid.filter(|gid| !gid.is_unspecified() && !gid.is_multicast());
                    config.gid = Some(Gid(gid.ok_or_else(|| error(GIDS))?.octets()));
                }
                "DEVICES" => {
                    let devices = number(&value).filter(|devices| (1..=u64::from(MAX_DEVICES)).contains(devices));
                    config.devices = devices.ok_or_else(|| error("1 to 4 devices"))? as u32;
                }
                "PROFILE" => {
                    config.profile = match value.as_str() {
                        "none" => soft::Profile::NONE,
                        "read" => soft::Profile::READ,
                        "rdma" => soft::Profile::RDMA,
                        "unsolicited" => soft::Profile::UNSOLICITED,
                        _ => return Err(error("none, read, rdma or unsolicited")),
                    };
                }
                "FEATURES" => {
                    let names: Vec<&str> = value.split(',').filter(|_| value != "none").collect();
                    if names.iter().any(|name| !["wide", "id64", "cqmem", "counters"].contains(name)) {
                        return Err(error(FEATURES));
                    }
                    wide = names.contains(&"wide");
                    counters = names.contains(&"counters");
                    config.driver.req_id_64 = names.contains(&"id64");
                    config.driver.cq_memory = names.contains(&"cqmem");
                }
                "LAYOUT" => {
                    let layout = &mut config.driver.layout;
                    for (place, number) in list(&value).ok_or_else(|| error(Layout::NAMES))? {
                        layout.set(place, number).ok_or_else(|| error(Layout::NAMES))?;
                    }
                    if !layout.is_sound() {
                        return Err(error(Layout::NAMES));
                    }
                }
                "LIMITS" => {
                    for (limit, number) in list(&value).ok_or_else(|| error(LIMITS))? {
                        set_limit(&mut config.limits, limit, number).ok_or_else(|| error(LIMITS))?;
                    }
                    if config.limits.min_send_depth > config.limits.max_send_depth {
                        return Err(error(LIMITS));
                    }
                    limits_were = Some(value.clone());
                }
                "SEED" => seed = Some(number(&value).ok_or_else(|| error("a number of up to 64 bits"))?),
                "SHUFFLE" => {
                    shuffle = match value.as_str() {
                        "0" => false,
                        "1" => true,
                        _ => return Err(error("0, in the order of posting, or 1, in any order")),
                    };
                }
                "HOSTILE" => {
                    for (what, number) in list(&value).ok_or_else(|| error(HOSTILE))? {
                        let most = match what {
                            "alarms" => 1,
                            "loss" => 1000,
                            "pieces" => u32::MAX.into(),
                            "delay" | "strangers" => u16::MAX.into(),
                            _ => return Err(error(HOSTILE)),
                        };
                        if number > most {
                            return Err(error(HOSTILE));
                        }
                        hostile.push((what.to_owned(), number));
                    }
                }
                "LOG" => {
                    config.log = match value.as_str() {
                        "off" => Log::Off,
                        "errors" => Log::Errors,
                        "calls" => Log::Calls,
                        _ => return Err(error("off, errors or calls")),
                    };
                }
                // Read by `run`.
                "LIBRARY" => {}
                _ => return Err(error(NAMES)),
            }
        }
        if let Some(value) = limits_were
            && config.fabric.is_some()
            && config.limits.max_msg_size as usize > link::PAYLOAD
        {
            return Err(ConfigError { name: format!("{PREFIX}LIMITS"), value, accepted: MESSAGES.into() });
        }
        let profile = if wide { config.profile.wide() } else { config.profile };
        let profile = if counters { profile.counting() } else { profile };
        config.soft = soft::Config::new(profile).limits(config.limits).shuffle(shuffle);
        config.soft = config.soft.req_id_64(config.driver.req_id_64);
        if let Some(seed) = seed {
            config.soft = config.soft.seed(seed);
        }
        for (what, number) in hostile {
            config.soft = match what.as_str() {
                "loss" => config.soft.lose(number as u16, 7),
                "delay" => config.soft.delay(number as u16),
                "pieces" => config.soft.pieces(number as u32),
                "alarms" => {
                    config.driver.alarms = number != 0;
                    config.soft
                }
                _ => config.soft.unknown_senders(number as u16),
            };
        }
        Ok(config)
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn list(text: &str) -> Option<Vec<(&str, u64)>> {
    text.split(',').map(|pair| pair.split_once('=').and_then(|(name, value)| Some((name, number(value)?)))).collect()
}

/// Sets a limit by its name, if the device goes that far.
fn set_limit(limits: &mut Limits, name: &str, value: u64) -> Option<()> {
    let value = u32::try_from(value).ok()?;
    if name == "batch" {
        limits.max_batch = u16::try_from(value).ok().filter(|value| *value > 0)?;
        return Some(());
    }
    let (limit, most) = match name {
        "qp" => (&mut limits.max_qp, 16384),
        "cq" => (&mut limits.max_cq, 32768),
        "mr" => (&mut limits.max_mr, 16384),
        "pd" => (&mut limits.max_pd, 32768),
        "ah" => (&mut limits.max_ah, 1023),
        "send" => (&mut limits.max_send_depth, 32768),
        "min_send" => (&mut limits.min_send_depth, 32768),
        "recv" => (&mut limits.max_recv_depth, 32768),
        "cqe" => (&mut limits.max_cqe, 32768),
        "msg" => (&mut limits.max_msg_size, 65535),
        "rdma" => (&mut limits.max_rdma_size, u32::MAX),
        _ => return None,
    };
    *limit = Some(value).filter(|value| (1..=most).contains(value))?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::parse(variables.iter().map(|(name, value)| (format!("SOFTEFA_{name}"), (*value).to_owned())))
    }

    #[test]
    fn what_is_not_said_is_at_its_default_and_other_variables_are_skipped() {
        let other = [("SYSFS_PATH".to_owned(), "softefa".to_owned())];
        assert_eq!(Config::parse(other), Ok(Config::default()));
    }

    #[test]
    fn each_variable_is_understood() {
        let config = parse(&[
            ("DEVICES", "2"),
            ("FABRIC", "rack-7.a_b"),
            ("GID", "fe80::7"),
            ("PROFILE", "unsolicited"),
            ("FEATURES", "id64,cqmem"),
            ("LIMITS", "qp=16,msg=0x1000,batch=4,min_send=32"),
            ("LAYOUT", "sub_cqs=2,llq=64,send=256,recv=512"),
            ("SEED", "7"),
            ("SHUFFLE", "0"),
            ("HOSTILE", "loss=10,delay=3,pieces=512,strangers=2,alarms=1"),
            ("LOG", "calls"),
            ("LIBRARY", "/tmp/libsoftefa.so"),
        ])
        .unwrap();
        assert_eq!((config.devices, config.log, config.profile), (2, Log::Calls, soft::Profile::UNSOLICITED));
        assert_eq!(
            (config.fabric.as_deref(), config.gid),
            (Some("rack-7.a_b"), Some(Gid::from_parts(0xFE80 << 48, 7)))
        );
        assert_eq!((config.limits.max_qp, config.limits.max_msg_size), (16, 4096));
        assert_eq!((config.limits.max_batch, config.limits.min_send_depth), (4, 32));
        let layout = Layout { sub_cqs: 2, llq: 64, doorbells: [256, 512, 0] };
        assert_eq!(config.driver, Driver { cq_memory: true, req_id_64: true, alarms: true, layout });
        let soft = soft::Config::new(soft::Profile::UNSOLICITED).limits(config.limits).shuffle(false).seed(7);
        let soft = soft.req_id_64(true);
        assert_eq!(config.soft, soft.lose(10, 7).delay(3).pieces(512).unknown_senders(2));
    }

    #[test]
    fn a_process_alone_has_longer_messages() {
        let config = parse(&[("FABRIC", "none"), ("LIMITS", "msg=65535")]).unwrap();
        assert_eq!((config.fabric, config.limits.max_msg_size), (None, 65535));
    }

    #[test]
    fn a_bad_value_is_an_error_with_the_variable_the_value_and_what_is_accepted() {
        for (name, value) in [
            ("DEVICES", "0"),
            ("DEVICES", "5"),
            ("FABRIC", ""),
            ("FABRIC", "a/b"),
            ("GID", "::"),
            ("GID", "ff02::1"),
            ("GID", "10.0.0.1"),
            ("LIMITS", "msg=32769"),
            ("PROFILE", "efa1"),
            ("LIMITS", "qp"),
            ("LIMITS", "qp=0"),
            ("LIMITS", "mr=16385"),
            ("LIMITS", "qps=1"),
            ("LIMITS", "batch=0"),
            ("LIMITS", "min_send=32769"),
            ("LIMITS", "min_send=32,send=16"),
            ("FEATURES", ""),
            ("FEATURES", "wide,none"),
            ("LAYOUT", "sub_cqs=3"),
            ("LAYOUT", "send=128"),
            ("SEED", "x"),
            ("SHUFFLE", "yes"),
            ("HOSTILE", "loss=1001"),
            ("HOSTILE", "alarms=2"),
            ("HOSTILE", "gravity=1"),
            ("LOG", ""),
            ("DEVICE", "1"),
        ] {
            let error = parse(&[(name, value)]).unwrap_err();
            assert_eq!((error.name.as_str(), error.value.as_str()), (&*format!("SOFTEFA_{name}"), value));
            let text = error.to_string();
            assert!(text.contains(name) && text.contains(value) && text.contains(&error.accepted), "{text}");
        }
    }
}
