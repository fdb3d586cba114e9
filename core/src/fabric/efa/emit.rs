//! How packets go out: into a slot, and to the device.

use super::packet::{self, Eager, Layout};
use super::slots::{Of, Sent};
use super::tables::Part;
use super::{Efa, Id};
use crate::fabric::{Carries, Memory, Why};
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

    /// Sends a message that fits a packet, in a slot of its length; there is room and credit for it.
    #[inline(always)]
    pub(super) fn emit_message(
        &mut self,
        to: Id,
        sequence: u32,
        (index, mut slot): (u16, Slice),
        source: Memory<S>,
        token: Token,
    ) {
        let life = self.life();
        let mut shrunk = true;
        if let Some(state) = self.peers.get_mut(to) {
            state.sent = state.sent.wrapping_add(1);
            state.in_flight += 1;
            packet::write(&mut slot, state.header(life), false, &Eager { sequence: sequence.into() });
        }
        if let Some(room) = slot.get_mut(packet::before_payload::<Eager>()..) {
            self.counters.copied += room.len() as u64;
            shrunk = !source.copy_out(0, room);
            if shrunk {
                // What it has less than it said is not to be another's.
                room.fill(0);
            }
        }
        self.slots.note(index, Sent { peer: to, of: Of::Message { token, shrunk } });
        self.slots.keep(index, source);
        self.counters.packets_sent += 1;
        self.post_or_die(to, index, slot, None);
    }

    /// Sends any other packet that there is room and credit for.
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
        let copied = if let Payload::Copied { len, .. } = payload { len } else { 0 };
        let Some(state) = self.peers.get_mut(to) else { return };
        // A slot is longer than any of them.
        let Some((index, mut slot)) = self.slots.take(packet::before_payload::<L>() + copied) else { return };
        if counted {
            state.sent = state.sent.wrapping_add(1);
        }
        state.in_flight += 1;
        packet::write(&mut slot, state.header(life), grant, body);
        let mut part = None;
        match payload {
            Payload::Nothing => {}
            Payload::Copied { of, offset, .. } => {
                let room = slot.get_mut(packet::before_payload::<L>()..);
                if let (Some(room), Some(send)) = (room, self.sends.get_mut(of)) {
                    if !send.source.copy_out(offset, room) {
                        // As above.
                        room.fill(0);
                        send.failed.get_or_insert(Why::Shrunk);
                    }
                    self.counters.copied += copied as u64;
                }
            }
            Payload::Part(Part::Frozen(frozen)) => part = Some(Buffer::Frozen(frozen)),
            Payload::Part(Part::Exposed(bytes)) => part = Some(Buffer::Exposed(bytes)),
        }
        self.slots.note(index, Sent { peer: to, of: of.map_or(Of::Nothing, Of::Outbound) });
        if let Some(send) = of.and_then(|of| self.sends.get_mut(of)) {
            send.in_flight += 1;
        }
        self.counters.packets_sent += 1;
        self.post_or_die(to, index, slot, part);
    }

    #[inline(always)]
    fn post_or_die(&mut self, to: Id, index: u16, head: Slice, payload: Option<Buffer>) {
        if let Err((head, _, error)) = self.post(to, index, head, payload) {
            self.die(Why::Refused(error));
            self.packet_out(index, Some(head), None);
        }
    }

    /// Posts a packet that is in its slot.
    #[allow(clippy::type_complexity)] // what it took, and why
    #[inline(always)]
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
    #[inline(always)]
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
