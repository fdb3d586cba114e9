//! How packets go out: into a slot, and to the device.

use super::packet::{self, Layout};
use super::slots::{Of, Sent};
use super::tables::Part;
use super::{Efa, Id};
use crate::fabric::{Carries, Why};
use crate::memory::{Buffer, Slice};
use crate::provider::Provider;
use crate::{Error, Token};

/// What a token names: in its upper half, with a name or an index in the lower.
pub(super) const RECEIVE: u64 = 1 << 32;
pub(super) const PACKET: u64 = 2 << 32;
pub(super) const READ: u64 = 3 << 32;
pub(super) const WRITE: u64 = 4 << 32;

/// What a packet carries behind its fields.
pub(super) enum Payload {
    Nothing,
    /// So many bytes of a send, from an offset on, copied.
    Copied {
        of: Id,
        offset: usize,
        len: usize,
    },
    /// A registered part, where it is.
    Part(Part),
}

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Whether a packet can go out now, as far as this side is concerned.
    pub(super) fn ready(&self) -> bool {
        self.slots.has_free() && self.endpoint.can_post() && self.dead.is_none()
    }

    /// Sends a packet that there is room and credit for.
    pub(super) fn emit<L: Layout>(
        &mut self,
        to: Id,
        body: &L,
        grant: bool,
        counted: bool,
        of: Option<Id>,
        payload: Payload,
    ) {
        let life = self.life();
        let Some(state) = self.peers.get_mut(to) else { return };
        let Some((index, mut slot)) = self.slots.take() else { return };
        let header = state.header(life);
        if counted {
            state.sent = state.sent.wrapping_add(1);
        }
        let Some(start) = packet::write(&mut slot, header, grant, body) else {
            // A slot is longer than any of them.
            return self.slots.untake(index, slot);
        };
        let mut len = start;
        let mut part = None;
        match payload {
            Payload::Nothing => {}
            Payload::Copied { of, offset, len: bytes } => {
                let room = slot.get_mut(start..).and_then(|room| room.get_mut(..bytes));
                if let (Some(room), Some(send)) = (room, self.sends.get_mut(of)) {
                    if !send.source.copy_out(offset, room) {
                        // What it has less than it said is not to be another's.
                        room.fill(0);
                        send.failed.get_or_insert(Why::Shrunk);
                    }
                    len += bytes;
                    self.counters.copied += bytes as u64;
                }
            }
            Payload::Part(registered) => part = Some(registered),
        }
        let Ok((head, rest)) = slot.split_at(len) else { return };
        self.slots.note(index, rest, Sent { peer: to, of: of.map(Of::Outbound), attempts: 0, waits: None });
        let payload = part.map(|part| match part {
            Part::Frozen(frozen) => Buffer::Frozen(frozen),
            Part::Exposed(part) => Buffer::Exposed(part),
        });
        if let Some(state) = self.peers.get_mut(to) {
            state.in_flight += 1;
        }
        if let Some(send) = of.and_then(|of| self.sends.get_mut(of)) {
            send.in_flight += 1;
        }
        self.counters.packets_sent += 1;
        if let Err((head, _, error)) = self.post(to, index, head, payload) {
            self.die(Why::Refused(error));
            self.packet_out(index, Some(head), None);
        }
    }

    /// Posts a packet that is in its slot.
    #[allow(clippy::type_complexity)] // what it took, and why
    pub(super) fn post(
        &mut self,
        to: Id,
        index: u16,
        head: Slice,
        payload: Option<Buffer>,
    ) -> Result<(), (Slice, Option<Buffer>, Error)> {
        let Some(state) = self.peers.get(to) else { return Err((head, payload, Error::ForeignPeer)) };
        let token = Token(PACKET | u64::from(index));
        let peer = &state.peer;
        match payload {
            Some(Buffer::Frozen(part)) => self.endpoint.post(peer.send((head, part)), token).map_err(|refused| {
                let ((head, part), error) = refused.into_parts();
                (head, Some(Buffer::Frozen(part)), error)
            }),
            Some(Buffer::Exposed(part)) => self.endpoint.post(peer.send((head, part)), token).map_err(|refused| {
                let ((head, part), error) = refused.into_parts();
                (head, Some(Buffer::Exposed(part)), error)
            }),
            payload => self.endpoint.post(peer.send(head), token).map_err(|refused| {
                let (head, error) = refused.into_parts();
                (head, payload, error)
            }),
        }
    }

    /// Posts a slot to receive into.
    pub(super) fn repost(&mut self, slot: Slice) {
        if self.dead.is_some() {
            return;
        }
        if let Err(refused) = self.endpoint.post_recv(slot, Token(RECEIVE)) {
            // There is room for as many as there are, so the queue pair is beyond use.
            let error = refused.error();
            self.die(Why::Refused(error));
        }
    }
}
