//! Who sent what arrived.

#![forbid(unsafe_code)]

use core::fmt;

use crate::{Ahn, Gid, Qpn};

/// Who sent what arrived, as well as the device knew.
///
/// Shortly after an address handle was made the device may not know it yet (R23): then the GID tells, where
/// the device can report it. [`PeerTable`](super::PeerTable) finds the peer by either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sender {
    /// We have an address handle for it.
    Known {
        /// The address handle's number.
        ahn: Ahn,
        /// The sending queue pair.
        qpn: Qpn,
    },
    /// The device knew no address handle for it.
    Unknown {
        /// Its device, where ours can report it.
        gid: Option<Gid>,
        /// The sending queue pair.
        qpn: Qpn,
    },
}

impl Sender {
    /// The sending queue pair.
    pub fn qpn(&self) -> Qpn {
        match self {
            Self::Known { qpn, .. } | Self::Unknown { qpn, .. } => *qpn,
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { ahn, qpn } => write!(f, "queue pair {qpn} behind address handle {ahn}"),
            Self::Unknown { gid: Some(gid), qpn } => write!(f, "queue pair {qpn} of unresolved device {gid}"),
            Self::Unknown { gid: None, qpn } => write!(f, "queue pair {qpn} of an unknown device"),
        }
    }
}
