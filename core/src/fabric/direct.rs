//! The fabric `efa-direct`: the device as it is, behind the interface of both.

use heapless::index_map::{FnvIndexMap, IndexMap};

use super::efa::{Id, Slab};
use super::{Event, Fabric, Messages, PeerId, Returned, Why};
use crate::caps::sealed::Sealed;
use crate::memory::{Buffers, Slice};
use crate::peer::{Mutual, Peer, Sender};
use crate::provider::Provider;
use crate::qp::{Endpoint, HasSend, QpKind, Srd};
use crate::work::{self, Kind};
use crate::{Ahn, Qpn, Refused, Token};

/// Messages over the device as it is: of registered memory, of up to [`Messages::max_message`] bytes, in no order, and only
/// as many as the peer has receives for (R12, R15, R16).
///
/// It adds nothing but the peers' names, up to `PEERS` of them, a power of two. What else the endpoint can do is still
/// there, by [`EfaDirect::endpoint`].
#[derive(Debug)]
pub struct EfaDirect<P: Provider, K: QpKind = Srd, const PEERS: usize = 16> {
    endpoint: Endpoint<P, K>,
    peers: Slab<Peer<Mutual, K::Features>, PEERS>,
    by_sender: FnvIndexMap<(Ahn, Qpn), Id, PEERS>,
}

/// Memory that `efa-direct` takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not registered memory, which is all that `efa-direct` takes (R15)",
    label = "not registered",
    note = "register the memory once, `pd.register(memory)?`, and use the slice again and again: registration is slow (R35)",
    note = "the fabric `efa` takes any bytes, and copies them: `Efa`, and `Memory::Plain(bytes)`"
)]
pub trait Registered: Sealed + Sized {
    #[doc(hidden)]
    fn into_slice(self) -> Slice;
    #[doc(hidden)]
    fn from_slice(slice: Slice) -> Self;
}

impl Registered for Slice {
    fn into_slice(self) -> Slice {
        self
    }

    fn from_slice(slice: Slice) -> Self {
        slice
    }
}

impl<P: Provider, K: HasSend, const PEERS: usize> EfaDirect<P, K, PEERS> {
    /// Over an endpoint.
    pub fn new(endpoint: Endpoint<P, K>) -> Self {
        Self { endpoint, peers: Slab::new(0), by_sender: IndexMap::new() }
    }

    /// Names a peer, which the endpoint resolved.
    ///
    /// # Errors
    /// [`Why::Full`], with the peer.
    #[allow(clippy::type_complexity)] // a peer and why
    pub fn add(&mut self, peer: Peer<Mutual, K::Features>) -> Result<PeerId, Refused<Peer<Mutual, K::Features>, Why>> {
        let address = (peer.ahn(), peer.qpn());
        if let Some(old) = self.by_sender.get(&address).copied() {
            self.remove(PeerId(old));
        }
        let id = self.peers.insert(peer).map_err(|peer| Refused::new(peer, Why::Full { limit: PEERS }))?;
        // As many as peers, so there is room.
        let _ = self.by_sender.insert(address, id);
        Ok(PeerId(id))
    }

    /// Takes a peer's name away. What is under way with it goes on: keep the peer until that is done.
    pub fn remove(&mut self, peer: PeerId) -> Option<Peer<Mutual, K::Features>> {
        let gone = self.peers.remove(peer.0)?;
        self.by_sender.swap_remove(&(gone.ahn(), gone.qpn()));
        Some(gone)
    }

    /// Sends a message of registered memory.
    ///
    /// # Errors
    /// As [`Messages::send`].
    pub fn send<B: Registered>(&mut self, to: PeerId, source: B, token: Token) -> Result<(), Refused<B, Why>> {
        let Some(peer) = self.peers.get(to.0) else { return Err(Refused::new(source, Why::UnknownPeer)) };
        let (source, limit) = (source.into_slice(), peer.max_msg_size().into());
        if source.len() as u64 > limit {
            let why = Why::TooLong { len: source.len() as u64, limit };
            return Err(Refused::new(B::from_slice(source), why));
        }
        self.endpoint.post(peer.send(source), token).map_err(|refused| refused_of(refused.into_parts()))
    }

    /// Takes a message into registered memory.
    ///
    /// # Errors
    /// As [`Messages::recv`].
    pub fn recv<B: Registered>(&mut self, target: B, token: Token) -> Result<(), Refused<B, Why>> {
        self.endpoint.post_recv(target.into_slice(), token).map_err(|refused| refused_of(refused.into_parts()))
    }

    /// The endpoint. What it is polled for is missing from [`Messages::poll`].
    pub fn endpoint(&mut self) -> &mut Endpoint<P, K> {
        &mut self.endpoint
    }

    /// The endpoint, with whatever is under way on it, and without the peers.
    pub fn into_endpoint(self) -> Endpoint<P, K> {
        self.endpoint
    }

    fn who(&self, sender: &Sender) -> Option<PeerId> {
        let id = match *sender {
            Sender::Known { ahn, qpn } => self.by_sender.get(&(ahn, qpn)).copied(),
            Sender::Unknown { gid: Some(gid), qpn } => {
                self.peers.iter().find(|(_, peer)| (peer.gid(), peer.qpn()) == (gid, qpn)).map(|(id, _)| id)
            }
            Sender::Unknown { gid: None, .. } => None,
        };
        id.map(PeerId)
    }
}

fn refused_of<B: Registered>((slice, error): (Slice, crate::Error)) -> Refused<B, Why> {
    Refused::new(B::from_slice(slice), error.into())
}

impl<P: Provider, K: HasSend, const PEERS: usize> Messages for EfaDirect<P, K, PEERS> {
    type Source = Slice;
    type Target = Slice;

    fn send(&mut self, to: PeerId, source: Slice, token: Token) -> Result<(), Refused<Slice, Why>> {
        EfaDirect::send(self, to, source, token)
    }

    fn recv(&mut self, target: Slice, token: Token) -> Result<(), Refused<Slice, Why>> {
        EfaDirect::recv(self, target, token)
    }

    /// Events of other operations of the endpoint are dropped, with their buffers: poll the endpoint for them.
    fn poll(&mut self, _now: u64) -> Option<Event<Slice, Slice>> {
        loop {
            let event = self.endpoint.poll()?;
            if let Some(event) = self.told(event) {
                return Some(event);
            }
        }
    }

    fn fabric(&self) -> Fabric {
        Fabric::EfaDirect
    }

    fn max_message(&self) -> u64 {
        self.endpoint.provider().limits().max_msg_size.into()
    }
}

impl<P: Provider, K: HasSend, const PEERS: usize> EfaDirect<P, K, PEERS> {
    fn told(&self, event: work::Event) -> Option<Event<Slice, Slice>> {
        let token = event.token()?;
        let slice = Buffers::into_slice;
        Some(match event {
            work::Event::Sent(done) => Event::Sent { token, to: None, source: slice(done.buffers)? },
            work::Event::Received(message) => Event::Received {
                token,
                from: self.who(&message.from),
                len: message.len,
                target: slice(message.buffers)?,
            },
            work::Event::Failed { failure, buffers } => {
                let buffer = slice(buffers)?;
                let why = Why::Device(failure);
                let buffer =
                    if failure.kind == Kind::Recv { Returned::Target(buffer) } else { Returned::Source(buffer) };
                Event::Failed { token, peer: None, why, buffer }
            }
            _ => return None,
        })
    }
}
