//! Memory that a peer granted.

#![forbid(unsafe_code)]

use core::marker::PhantomData;
use core::num::NonZeroU64;
use core::ops::Range;

use super::PeerCore;
use crate::flags::Access;
use crate::memory::RemoteAccess;
use crate::wire::Grant;
use crate::{Error, RKey};

/// A range of a peer's memory that it granted for access `A`, in its present life.
///
/// It is good until the peer revokes it; then operations on it fail with status 7.
#[derive(Debug)]
pub struct RemoteWindow<A> {
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) rkey: RKey,
    /// Who granted it, as [`PeerCore`] has it.
    pub(crate) granter: u32,
    pub(crate) incarnation: Option<NonZeroU64>,
    access: PhantomData<fn() -> A>,
}

impl<A> Clone for RemoteWindow<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for RemoteWindow<A> {}

impl<A: RemoteAccess> RemoteWindow<A> {
    pub(super) fn new(grant: Grant, peer: &PeerCore) -> Result<Self, Error> {
        let (granter, incarnation) = (peer.address, peer.incarnation);
        if let Some(peer) = peer.incarnation().filter(|peer| *peer != grant.incarnation) {
            return Err(Error::StaleGrant { granted_by: grant.incarnation, peer });
        }
        let needs = A::ACCESS & (Access::REMOTE_READ | Access::REMOTE_WRITE);
        if !grant.access.contains(needs) {
            return Err(Error::AccessNotGranted { needs, granted: grant.access });
        }
        let Grant { address: addr, length: len, rkey, .. } = grant;
        Ok(Self { addr, len, rkey, granter, incarnation, access: PhantomData })
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn range(&self, range: Range<u64>) -> Result<Self, Error> {
        match range.end.checked_sub(range.start) {
            Some(len) if range.end <= self.len => Ok(Self { addr: self.addr + range.start, len, ..*self }),
            _ => {
                let len = range.end.saturating_sub(range.start);
                Err(Error::OutOfBounds { offset: range.start, len, within: self.len })
            }
        }
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
