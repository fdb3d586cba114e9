//! What a host is for EFA, and what is wrong with it: the modules of the program `efa`.
//!
//! | file | holds |
//! |---|---|
//! | [`view`], `live` | a host as data, and this machine as that |
//! | `imds` | the instance metadata service |
//! | `bus`, `rails` | devices on the PCI bus; which card for which GPU |
//! | `software`, `version`, `fabric` | libraries and packages; the fabric that is in force |
//! | `lists`, `lists/*.csv` | instance types, systems and versions, each list with its date |
//! | [`devices`] | `efa devices` |
//! | [`doctor`] | `efa doctor`: the checks, a file for each group, and their report |
//! | [`compare`], [`probe`], [`meet`] | two hosts compared; traffic on one and between two; how they meet |
//! | [`counters`], [`prometheus`] | `efa stat` |
//! | `redact` | a report without addresses and names |
//!
//! A check is a function over a [`Host`], which is made of a [`view::View`]: of this machine by [`Host::live`], or of
//! files that a test made up.

pub mod compare;
pub mod counters;
pub mod devices;
pub mod doctor;
pub mod meet;
pub mod probe;
pub mod prometheus;
pub mod view;

mod bus;
mod fabric;
mod imds;
mod instance;
mod lists;
mod live;
mod rails;
mod redact;
mod software;
mod version;

pub use bus::{Bus, Function, Peer, Rdma};
pub use imds::Metadata;
pub use instance::Instance;
pub use live::{Ask, live};
pub use redact::redact;
pub use software::Software;
use view::View;

/// A host: what is known of it, and what that means.
#[derive(Clone, Debug)]
pub struct Host {
    /// All that was read and asked.
    pub view: View,
    /// Its devices.
    pub bus: Bus,
    /// Its software.
    pub software: Software,
    /// What EC2 says that it is.
    pub instance: Instance,
}

impl Host {
    /// A host of this view.
    pub fn of(view: View) -> Self {
        let (bus, software, instance) = (Bus::of(&view), Software::of(&view), Instance::of(&view));
        Self { view, bus, software, instance }
    }

    /// This machine, asked for all that can be asked without traffic.
    pub fn live(ask: Ask) -> Self {
        Self::of(live(ask))
    }

    /// Whether it has GPUs of NVIDIA's.
    pub(crate) fn has_gpus(&self) -> bool {
        !self.bus.gpus.is_empty()
    }
}
