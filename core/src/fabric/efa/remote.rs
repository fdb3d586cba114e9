//! Writes to and reads of a peer's memory: by RDMA where both have it, else carried as messages, with the same results.

use core::ops::Range;

use super::tables::{Due, Inbound, Outbound, Receives, Sends, Source, Stage, Window};
use super::{Efa, Id, PeerFeatures};
use crate::fabric::{Carries, Denied, Memory, PeerId, Why};
use crate::flags::Access;
use crate::memory::{ExposedPart, RemoteRead, RemoteWrite};
use crate::peer::RemoteWindow;
use crate::provider::Provider;
use crate::wire;
pub use crate::wire::WindowFrame;
use crate::{Error, Refused, Token};

/// A window of this side's that peers may write or read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WindowId(Id);

/// Bytes of a peer's window.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRange {
    peer: Id,
    window: u32,
    offset: u64,
    len: u64,
    access: Access,
    read: Option<RemoteWindow<RemoteRead>>,
    write: Option<RemoteWindow<RemoteWrite>>,
}

impl RemoteRange {
    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn range(&self, range: Range<u64>) -> Result<Self, Error> {
        let len = match range.end.checked_sub(range.start) {
            Some(len) if range.end <= self.len => len,
            _ => {
                let len = range.end.saturating_sub(range.start);
                return Err(Error::OutOfBounds { offset: range.start, len, within: self.len });
            }
        };
        let read = self.read.map(|window| window.range(range.clone())).transpose()?;
        let write = self.write.map(|window| window.range(range.clone())).transpose()?;
        Ok(Self { offset: self.offset + range.start, len, read, write, ..*self })
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

const REMOTE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Opens memory to peers: to be read, written or both. As far as it was exposed for that peers do it by RDMA, else this
    /// side copies: memory exposed [`ByMessages`](crate::memory::ByMessages) needs no RDMA at all.
    ///
    /// # Errors
    /// [`Why::Full`], or [`Why::Refused`] with [`Error::ForeignDomain`]; with the memory.
    pub fn open(&mut self, bytes: ExposedPart, access: Access) -> Result<WindowId, Refused<ExposedPart, Why>> {
        let (of, domain) = (bytes.pd(), self.endpoint.pd_id());
        if of != domain {
            return Err(Refused::new(bytes, Why::Refused(Error::ForeignDomain { of, domain })));
        }
        match self.windows.insert(Window { bytes, access: access & REMOTE }) {
            Ok(id) => Ok(WindowId(id)),
            Err(window) => Err(Refused::new(window.bytes, Why::Full { limit: OPERATIONS })),
        }
    }

    /// Closes a window to what comes as messages. RDMA goes on until the memory is revoked.
    pub fn shut(&mut self, window: WindowId) -> Option<ExposedPart> {
        self.windows.remove(window.0).map(|window| window.bytes)
    }

    /// What a peer needs to reach a window: to be sent to it.
    ///
    /// # Errors
    /// [`Why::Denied`] if it is not open.
    pub fn describe(&self, window: WindowId) -> Result<WindowFrame, Why> {
        let Window { bytes, access } = self.windows.get(window.0).ok_or(Why::Denied(Denied::NoWindow))?;
        let mut grant = wire::Grant::parse(bytes.grant(&self.endpoint)?.as_bytes()).ok();
        if let Some(grant) = &mut grant {
            grant.access &= *access;
        }
        let described = wire::Window {
            id: window.0.to_bits(),
            access: *access,
            length: bytes.len() as u64,
            incarnation: self.endpoint.incarnation(),
            grant: grant.filter(|grant| !grant.access.is_empty()),
        };
        Ok(described.to_frame())
    }

    /// A peer's window, by what it sent of it.
    ///
    /// # Errors
    /// [`Why::UnknownPeer`], why the peer is lost, or [`Why::Refused`]: [`Error::Parse`], or [`Error::StaleGrant`] if it is of
    /// another peer or life.
    pub fn remote(&self, peer: PeerId, frame: &[u8]) -> Result<RemoteRange, Why> {
        let state = self.lookup(peer)?;
        let window = wire::Window::parse(frame).map_err(Error::from)?;
        if let Some(life) = state.life.filter(|life| *life != window.incarnation) {
            return Err(Why::Refused(Error::StaleGrant { granted_by: window.incarnation, peer: life }));
        }
        let long = |grant: &wire::Grant| grant.length == window.length;
        let (mut read, mut write) = (None, None);
        if let Some(grant) = window.grant.filter(long) {
            let frame = grant.to_frame();
            if grant.access.contains(Access::REMOTE_READ) {
                read = Some(state.peer.window(frame.as_bytes())?);
            }
            if grant.access.contains(Access::REMOTE_WRITE) {
                write = Some(state.peer.window(frame.as_bytes())?);
            }
        }
        let wire::Window { id, access, length, .. } = window;
        Ok(RemoteRange { peer: peer.0, window: id, offset: 0, len: length, access, read, write })
    }

    /// Writes to the start of a peer's window: [`Event::Written`](crate::fabric::Event::Written) when it is there. Like all
    /// of RDMA it is in no order with anything else.
    ///
    /// # Errors
    /// [`Why::TooLong`], [`Why::Denied`] if the window is not open for that, [`Why::Full`], [`Why::UnknownPeer`],
    /// [`Why::Refused`] for memory or windows of others, or why the peer is lost; with the source.
    pub fn write(
        &mut self,
        to: PeerId,
        source: Memory<S>,
        remote: RemoteRange,
        token: Token,
    ) -> Result<(), Refused<Memory<S>, Why>> {
        let total = source.len() as u64;
        if let Err(why) = self.check(to, &source, &remote, total, Access::REMOTE_WRITE) {
            return Err(Refused::new(source, why));
        }
        if self.is_full() {
            return Err(Refused::new(source, Why::Full { limit: OPERATIONS }));
        }
        let window = remote.write.filter(|_| self.own_features().contains(PeerFeatures::WRITE) && total > 0);
        let Some(window) = window else {
            let what = Sends::Put { window: remote.window, offset: remote.offset };
            self.enqueue(Outbound::new(to.0, token, what, Source::Memory(source), total, Stage::Queued));
            return Ok(());
        };
        let mut send = Outbound::new(to.0, token, Sends::Write, Source::Memory(source).share(), total, Stage::Queued);
        send.window = Some(window);
        if let Some(send) = self.insert_send(send) {
            self.set_stage(send, Stage::Writing);
        }
        Ok(())
    }

    /// Fills a target from the start of a peer's window: [`Event::Read`](crate::fabric::Event::Read) when it is full.
    ///
    /// # Errors
    /// As [`Efa::write`]; with the target.
    pub fn read(
        &mut self,
        from: PeerId,
        target: Memory<T>,
        remote: RemoteRange,
        token: Token,
    ) -> Result<(), Refused<Memory<T>, Why>> {
        let total = target.len() as u64;
        if let Err(why) = self.check(from, &target, &remote, total, Access::REMOTE_READ) {
            return Err(Refused::new(target, why));
        }
        if self.inbound.is_full() {
            return Err(Refused::new(target, Why::Full { limit: OPERATIONS }));
        }
        let registered = !matches!(target, Memory::Plain(_)) && total > 0;
        let window = remote.read.filter(|_| self.own_features().contains(PeerFeatures::READ) && registered);
        let (what, due) = match window {
            Some(_) => (Receives::Read, Due::Read),
            None => (Receives::Get { window: remote.window, offset: remote.offset }, Due::Get),
        };
        let mut entry = Inbound::new(from.0, token, what, Some(target), total, 0);
        entry.window = window;
        let inbound = self.insert_inbound(entry);
        self.set_due(inbound, due);
        Ok(())
    }

    fn check<B: AsRef<[u8]>>(
        &self,
        peer: PeerId,
        buffer: &Memory<B>,
        remote: &RemoteRange,
        len: u64,
        access: Access,
    ) -> Result<(), Why> {
        self.lookup(peer)?;
        self.check_domain(buffer)?;
        if remote.peer != peer.0 {
            return Err(Why::Refused(Error::WindowOfAnotherPeer));
        }
        if len > remote.len {
            return Err(Why::TooLong { len, limit: remote.len });
        }
        if remote.access.contains(access) { Ok(()) } else { Err(Why::Denied(Denied::NotAllowed)) }
    }

    /// Registered memory is of the endpoint's domain.
    pub(super) fn check_domain<B>(&self, buffer: &Memory<B>) -> Result<(), Why> {
        let domain = self.endpoint.pd_id();
        let of = match buffer {
            Memory::Plain(_) => return Ok(()),
            Memory::Slice(slice) => slice.pd(),
            Memory::Exposed(bytes) => bytes.pd(),
        };
        if of == domain { Ok(()) } else { Err(Why::Refused(Error::ForeignDomain { of, domain })) }
    }
}
