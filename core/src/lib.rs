//! EFA for Rust: the types, the data path and a software device.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod caps;
pub mod entry;
mod error;
pub mod flags;
mod gid;
mod id;
mod leaks;
pub mod memory;
pub mod peer;
mod provider;
pub mod qp;
pub mod ring;
#[cfg(feature = "soft")]
pub mod soft;
pub mod status;

pub use caps::{Caps, Granted, Limits, ReportSgid, Requirement, SetRnrRetry};
pub use error::{Error, Limit, Refused, Verb};
pub use gid::Gid;
pub use id::{Ahn, DeviceId, Incarnation, LKey, PdId, Qkey, Qpn, RKey, Token};
pub use leaks::Leaks;
pub use provider::{CqInit, CqRing, Provider, QpInit, Queues, RecvRing, SendRing};
