//! From a hello to a peer, and from a ready to a mutual one.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU64;

use super::{Ah, RemoteWindow};
use crate::caps::sealed::Sealed;
use crate::entry::{self, Quad};
use crate::memory::RemoteAccess;
use crate::provider::Provider;
use crate::qp::{FeatureSet, QpKind, QueuePair, Reachable, Solicited, State};
use crate::wire::{EndpointInfo, Grant, Hello, Ready, ReadyFrame};
use crate::{Error, Gid, Incarnation, Qkey, Qpn, Refused};

/// A peer of one queue pair, resolved so far as `R` says, with feature set `F`.
///
/// A peer is who it is by GID, queue pair number and queue key, and in this life by its incarnation: a
/// restarted process is another peer even if all else is the same (R25). It keeps its address handle, and it
/// can be used on the queue pair that resolved it only. Keep it for as long as the peer may reach us by RDMA:
/// dropping the last one drops the address handle, and its operations fail with status 14 (R04). Keep it, too,
/// until our operations to it are done: the device may give the handle's number to another address.
#[must_use = "dropping a peer drops its address handle: its RDMA to us then fails with status 14 (R04)"]
pub struct Peer<R = OneWay, F = Solicited> {
    pub(crate) core: PeerCore,
    typed: PhantomData<fn() -> (R, F)>,
}

/// We have an address handle for the peer; whether it has one for us is not known.
#[derive(Clone, Copy, Debug)]
pub struct OneWay(());

/// Both sides have an address handle for the other.
#[derive(Clone, Copy, Debug)]
pub struct Mutual(());

/// How far a peer is resolved.
pub trait Resolution: Sealed {}

impl Sealed for OneWay {}
impl Sealed for Mutual {}
impl Resolution for OneWay {}
impl Resolution for Mutual {}

/// Peers that can be the target of RDMA: they have resolved us.
#[diagnostic::on_unimplemented(
    message = "RDMA needs a peer that has resolved us, this one is `{Self}`: the device would answer status 14 (R04)",
    label = "not known to have an address handle for us",
    note = "`confirm(ready)` with the frame that the peer's own `resolve` of our hello gave it",
    note = "a peer that speaks the bare 24-byte form cannot tell: `assert_mutual()` takes your word for it"
)]
pub trait ResolvedUs: Resolution {}

impl ResolvedUs for Mutual {}

/// Peers that a SEND goes to without more ado.
#[diagnostic::on_unimplemented(
    message = "this peer is `{Self}`: not confirmed, so it may not be able to answer (R04)",
    label = "not confirmed",
    note = "`confirm(ready)` it first, or name the other road: `peer.one_way().send(..)`"
)]
pub trait SendTo: Resolution {}

impl SendTo for Mutual {}

/// What operations need of a peer, in the form the device's entries want.
pub(crate) struct PeerCore {
    pub(crate) destination: Quad,
    pub(crate) address_handle: Quad,
    pub(crate) qkey: u32,
    /// Who it is for as long as its handle lives: its queue pair, and its device by that handle.
    pub(crate) address: u32,
    /// The queue pair that resolved it.
    pub(crate) owner: u32,
    /// Bytes of one SEND to it. As wide as what is compared with it.
    pub(crate) max_msg: u64,
    /// Its life, as it said; none if it did not say.
    pub(crate) incarnation: Option<NonZeroU64>,
    local: Incarnation,
    handle: Ah,
}

impl PeerCore {
    pub(crate) fn qpn(&self) -> Qpn {
        Qpn((self.address >> 16) as u16)
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation.map(|bits| Incarnation(bits.get()))
    }
}

impl<P: Provider, S: State, K: QpKind> QueuePair<P, S, K> {
    /// Resolves a peer by its hello: makes its address handle, and the ready that tells it so.
    ///
    /// Resolving the same hello again is harmless and gives the same.
    ///
    /// # Errors
    /// [`Error::Parse`] for bytes that are no hello, [`Error::FeatureMismatch`] if the peer's queue pair has
    /// other features (R05), or what the device answered for its address.
    #[allow(clippy::type_complexity)] // a pair
    pub fn resolve(&self, hello: &[u8]) -> Result<(Peer<OneWay, K::Features>, ReadyFrame), Error>
    where
        S: Reachable,
    {
        let hello = Hello::parse(hello)?;
        let ours = <K::Features as FeatureSet>::FEATURES;
        if hello.features != ours {
            return Err(Error::FeatureMismatch { ours, theirs: hello.features });
        }
        let peer = self.peer(hello.endpoint, hello.max_message, Some(hello.incarnation))?;
        let EndpointInfo { gid, qpn, .. } = self.address();
        let ready = Ready { gid, qpn, incarnation: self.incarnation(), echo: hello.incarnation };
        Ok((peer, ready.to_frame()))
    }

    /// Resolves a peer by its bare address, which says neither features nor incarnation: that both queue pairs are SRD
    /// or both UD, and their features the same, is the caller's word (R05).
    ///
    /// # Errors
    /// What the device answered for its address.
    pub fn resolve_address(&self, address: EndpointInfo) -> Result<Peer<OneWay, K::Features>, Error>
    where
        S: Reachable,
    {
        self.peer(address, self.inner.identity.max_msg, None)
    }

    fn peer(
        &self,
        address: EndpointInfo,
        max_msg: u32,
        incarnation: Option<Incarnation>,
    ) -> Result<Peer<OneWay, K::Features>, Error> {
        if address.gid.is_zero() {
            return Err(Error::ZeroGid);
        }
        let identity = &self.inner.identity;
        let handle = self.inner.provider.create_ah(self.inner.pd(), address.gid)?;
        let (qpn, ahn) = (address.qpn.0, handle.attr().ahn.0);
        let core = PeerCore {
            destination: entry::destination(qpn),
            address_handle: entry::address_handle(ahn),
            address: u32::from(qpn) << 16 | u32::from(ahn),
            qkey: address.qkey.0,
            owner: identity.id,
            max_msg: max_msg.min(identity.max_msg).into(),
            incarnation: incarnation.and_then(|life| NonZeroU64::new(life.0)),
            local: identity.incarnation,
            handle,
        };
        Ok(Peer { core, typed: PhantomData })
    }
}

impl<F: FeatureSet> Peer<OneWay, F> {
    /// Takes the peer's ready, which proves that it has an address handle for us, in both sides' present lives.
    ///
    /// # Errors
    /// [`Error::Parse`] for bytes that are no ready, [`Error::NotThisPeer`] if it is of another peer,
    /// [`Error::StaleReady`] if either side has begun another life since; with the peer.
    pub fn confirm(self, ready: &[u8]) -> Result<Peer<Mutual, F>, Refused<Self>> {
        match self.check_ready(ready) {
            Ok(()) => Ok(Peer { core: self.core, typed: PhantomData }),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    fn check_ready(&self, ready: &[u8]) -> Result<(), Error> {
        let ready = Ready::parse(ready)?;
        let theirs = (self.gid(), self.qpn());
        let from = (ready.gid, ready.qpn);
        if theirs != from {
            return Err(Error::NotThisPeer { expected: theirs, found: from });
        }
        let expected = self.core.incarnation().unwrap_or(ready.incarnation);
        if ready.incarnation != expected {
            return Err(Error::StaleReady { expected, found: ready.incarnation });
        }
        if ready.echo != self.core.local {
            return Err(Error::StaleReady { expected: self.core.local, found: ready.echo });
        }
        Ok(())
    }

    /// Takes your word that the peer has an address handle for us: for peers that speak the bare 24-byte
    /// form, and for tests. If it has none, RDMA to it fails with status 14.
    pub fn assert_mutual(self) -> Peer<Mutual, F> {
        Peer { core: self.core, typed: PhantomData }
    }
}

impl<R, F> Peer<R, F> {
    /// Its device.
    pub fn gid(&self) -> Gid {
        self.core.handle.attr().gid
    }

    /// Its queue pair.
    pub fn qpn(&self) -> Qpn {
        self.core.qpn()
    }

    /// Its queue key.
    pub fn qkey(&self) -> Qkey {
        Qkey(self.core.qkey)
    }

    /// Its address handle's number here.
    pub fn ahn(&self) -> crate::Ahn {
        self.core.handle.attr().ahn
    }

    /// Its life, if it said so in a hello.
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.core.incarnation()
    }

    /// Bytes of one SEND to it: the smaller of both sides' limits.
    pub fn max_msg_size(&self) -> u32 {
        // It was made of as many bits.
        self.core.max_msg as u32
    }

    /// Memory that it granted, by the frame that it sent, for access `A`.
    ///
    /// # Errors
    /// [`Error::Parse`] for bytes that are no grant, [`Error::StaleGrant`] if it is of another peer or of
    /// another life of this one, [`Error::AccessNotGranted`] if it does not grant `A`.
    pub fn window<A: RemoteAccess>(&self, grant: &[u8]) -> Result<RemoteWindow<A>, Error> {
        RemoteWindow::new(Grant::parse(grant)?, &self.core)
    }
}

impl<R, F> fmt::Debug for Peer<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("gid", &format_args!("{}", self.gid()))
            .field("qpn", &self.qpn())
            .field("qkey", &format_args!("{}", self.qkey()))
            .field("ahn", &self.ahn())
            .field("incarnation", &self.incarnation())
            .finish()
    }
}
