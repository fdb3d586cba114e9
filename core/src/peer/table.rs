//! Peers by what arrives: the address handle's number, or the GID, with the queue pair number.

#![forbid(unsafe_code)]

use heapless::index_map::{FnvIndexMap, IndexMap};

use super::{Mutual, Peer, Sender};
use crate::error::Limit;
use crate::qp::{FeatureSet, Solicited};
use crate::{Ahn, Error, Gid, Qpn, Refused};

/// Up to `N` peers of one device, `N` a power of two, found by who sent what arrived (R23). Finding them takes longer in a
/// table that is nearly full: twice as many places as peers are well spent.
///
/// A restarted peer has the same address and another incarnation: inserting it displaces its predecessor.
pub struct PeerTable<const N: usize, R = Mutual, F = Solicited> {
    peers: FnvIndexMap<(Ahn, Qpn), Peer<R, F>, N>,
    by_gid: FnvIndexMap<(Gid, Qpn), Ahn, N>,
}

impl<const N: usize, R, F: FeatureSet> PeerTable<N, R, F> {
    /// An empty table.
    pub const fn new() -> Self {
        Self { peers: IndexMap::new(), by_gid: IndexMap::new() }
    }

    /// Adds a peer; gives its predecessor at the same address, which is stale now.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if the table is full, [`Error::PeersOfTwoDevices`] if another address has the same
    /// handle number, which is so for peers of two devices only; with the peer.
    #[allow(clippy::type_complexity)] // what came in, or what went out
    pub fn insert(&mut self, peer: Peer<R, F>) -> Result<Option<Peer<R, F>>, Refused<Peer<R, F>>> {
        let (ahn, gid, qpn) = (peer.ahn(), peer.gid(), peer.qpn());
        if self.peers.get(&(ahn, qpn)).is_some_and(|other| other.gid() != gid) {
            return Err(Refused::new(peer, Error::PeersOfTwoDevices { ahn, qpn }));
        }
        let old = self.remove(gid, qpn);
        match self.peers.insert((ahn, qpn), peer) {
            Ok(_) => {
                // As many as in the other map, so there is room.
                let _ = self.by_gid.insert((gid, qpn), ahn);
                Ok(old)
            }
            Err((_, peer)) => Err(Refused::new(peer, Error::Exhausted { what: Limit::Peers, limit: N as u64 })),
        }
    }

    /// Takes a peer out, in any order.
    pub fn remove(&mut self, gid: Gid, qpn: Qpn) -> Option<Peer<R, F>> {
        let ahn = self.by_gid.swap_remove(&(gid, qpn))?;
        self.peers.swap_remove(&(ahn, qpn))
    }

    /// Who sent it, if it is in the table.
    pub fn find(&self, sender: &Sender) -> Option<&Peer<R, F>> {
        match *sender {
            Sender::Known { ahn, qpn } => self.peers.get(&(ahn, qpn)),
            Sender::Unknown { gid: Some(gid), qpn } => self.get(gid, qpn),
            Sender::Unknown { gid: None, .. } => None,
        }
    }

    /// The peer at an address.
    pub fn get(&self, gid: Gid, qpn: Qpn) -> Option<&Peer<R, F>> {
        let ahn = *self.by_gid.get(&(gid, qpn))?;
        self.peers.get(&(ahn, qpn))
    }

    /// All of them, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Peer<R, F>> {
        self.peers.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

impl<const N: usize, R, F: FeatureSet> Default for PeerTable<N, R, F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize, R, F> core::fmt::Debug for PeerTable<N, R, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.peers.values()).finish()
    }
}
