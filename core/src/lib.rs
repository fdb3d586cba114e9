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
mod numbered;
pub mod opcode;
pub mod peer;
pub mod port;
mod provider;
pub mod qp;
pub mod ring;
pub mod status;
pub mod wire;

pub use caps::{Caps, Granted, Limits, ReportSgid, Requirement, SetRnrRetry};
pub use error::{Error, Limit, Refused, Verb};
pub use gid::Gid;
pub use gid::ParseGidError;
pub use id::{Ahn, DeviceId, Incarnation, LKey, PdId, Qkey, Qpn, RKey, Token};
pub use leaks::Leaks;
pub use provider::{CqInit, CqRing, Provider, QpInit, Queues, RecvRing, SendRing};
