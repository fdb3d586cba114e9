//! What comes in: packets, each taken at once, held for its turn, or refused.

use super::packet::{self, BadPacket, Body, Eager, Header, Hello};
use super::peer::{SILENCES, Standing};
use super::tables::{Due, Inbound, Receives, Sends, Source, Stage};
use super::{Efa, Id, Outbound, Told};
use crate::fabric::{Carries, Denied, Event, Memory, PeerFeatures, PeerId, Returned, Violation, Why};
use crate::flags::Access;
use crate::memory::{ExposedPart, Slice};
use crate::peer::Sender;
use crate::provider::Provider;
use crate::work::Received;
use crate::{Incarnation, Token};

/// What became of a packet that makes sense.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was taken.
    Taken,
    /// It waits for its turn, for a receive, or for a place.
    Held,
}

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// A packet arrived.
    #[inline(always)]
    #[allow(clippy::question_mark)] // which would move what is large once more
    pub(super) fn arrived(&mut self, message: Received) -> Option<Told<S, T>> {
        let Received { len, from, buffers, .. } = message;
        let Some(slot) = buffers.into_slice() else { return None };
        self.counters.packets_received += 1;
        let (header, body) = match packet::parse(slot.get(..len).unwrap_or_default()) {
            Ok(packet) => packet,
            Err(bad) => {
                self.unparsed(bad, &from);
                self.repost(slot);
                return None;
            }
        };
        if let Body::Hello(hello) = body {
            self.hello(header, hello, &from);
            self.repost(slot);
            return None;
        }
        let found = self.peers.entry(header.place.get()).filter(|(_, state)| state.is_sender(header, &from));
        let Some((id, state)) = found else {
            self.counters.strangers += 1;
            self.repost(slot);
            return None;
        };
        (state.heard_at, state.probe_due, state.silence) = (self.now, false, SILENCES[0]);
        let more = state.hear(header) && (state.queue[0].is_some() || state.streams > 0 || state.due > 0);
        let Body::Eager(eager, _) = body else {
            if more {
                self.attend(id);
            }
            self.other(id, slot, len);
            return None;
        };
        let sequence = eager.sequence.get();
        let ahead = state.count().and_then(|()| state.ahead(sequence));
        if more {
            self.attend(id);
        }
        match ahead {
            Ok(0) => match self.receive_for(id, sequence) {
                Some((target, token)) => return self.whole(id, (slot, len), target, token),
                None => self.take_or_hold(id, slot, len),
            },
            Ok(_) => self.hold(id, slot, len, Some(sequence), true),
            Err(violation) => {
                self.violated(id, violation);
                self.repost(slot);
            }
        }
        None
    }

    /// A packet of a peer's that is not all of a message.
    #[inline(never)]
    fn other(&mut self, id: Id, slot: Slice, len: usize) {
        // It was parsed before.
        let Ok((_, body)) = packet::parse(slot.get(..len).unwrap_or_default()) else { return self.repost(slot) };
        let Some(state) = self.peers.get_mut(id) else { return self.repost(slot) };
        match body {
            Body::Credit => {
                state.credits_taken = state.credits_taken.wrapping_add(1);
                // It heard of ours, so that another may go.
                if state.owes_credit() {
                    self.attend(id);
                }
                self.repost(slot);
            }
            Body::Bye => {
                self.lose(id, Why::Left);
                self.repost(slot);
            }
            _ => match state.count() {
                Ok(()) => self.take_or_hold(id, slot, len),
                Err(violation) => {
                    self.violated(id, violation);
                    self.repost(slot);
                }
            },
        }
    }

    #[cold]
    fn unparsed(&mut self, bad: BadPacket, from: &Sender) {
        let peer = self.peers.iter().find(|(_, state)| state.is(from) && state.is_up()).map(|(id, _)| id);
        match peer {
            Some(id) => self.violated(id, Violation::Packet(bad)),
            None => self.counters.strangers += 1,
        }
    }

    /// The receive for a message that came in one packet, and whose turn it is, if it can be told at once.
    #[inline(always)]
    fn receive_for(&mut self, id: Id, sequence: u32) -> Option<(Memory<T>, Token)> {
        let state = self.peers.get_mut(id)?;
        // Else after those that came before it and are not all here, or not told.
        if state.telling != sequence || !self.ended_inbound.is_empty() || self.recvs.is_empty() {
            return None;
        }
        let next = sequence.wrapping_add(1);
        (state.expected, state.telling, state.freed) = (next, next, state.freed.wrapping_add(1));
        let (is_next, attend) = (state.held.has_message(next), state.held.has_others() || state.owes_credit());
        if is_next {
            self.go_on_with(id);
        }
        if attend {
            self.attend(id);
        }
        self.recvs.pop_front()
    }

    /// Takes a message that came in one packet into its receive.
    #[inline(always)]
    fn whole(
        &mut self,
        id: Id,
        (slot, len): (Slice, usize),
        mut target: Memory<T>,
        token: Token,
    ) -> Option<Told<S, T>> {
        let payload = slot.get(packet::before_payload::<Eager>()..len).unwrap_or_default();
        let (len, room) = (payload.len(), target.len());
        let fits = len <= room;
        let copied = fits && target.copy_in(0, payload);
        self.repost(slot);
        let peer = Some(PeerId(id));
        if copied {
            self.counters.copied += len as u64;
            return Some(Event::Received { token, from: peer, len, target });
        }
        let why = if fits { Why::Shrunk } else { Why::Truncated { len: len as u64, room: room as u64 } };
        Some(Event::Failed { token, peer, why, buffer: Returned::Target(target) })
    }

    /// The next message of a peer is here, in one packet: it is taken before anything else is done.
    #[inline(always)]
    fn go_on_with(&mut self, id: Id) {
        if let Some(other) = self.next.replace(id).filter(|other| *other != id) {
            self.attend(other);
        }
    }

    /// Takes what is next and here already, until there is an event.
    #[inline(always)]
    pub(super) fn go_on(&mut self) -> Option<Told<S, T>> {
        while let Some(id) = self.next.take() {
            let Some(state) = self.peers.get_mut(id) else { continue };
            let sequence = state.expected;
            let Some((slot, len)) = state.held.take_message(sequence) else { continue };
            match self.receive_for(id, sequence) {
                Some((target, token)) => return self.whole(id, (slot, len), target, token),
                None => self.take_or_hold(id, slot, len),
            }
        }
        None
    }

    /// A slot of a counted packet is free again.
    fn freed(&mut self, id: Id, slot: Slice) {
        self.repost(slot);
        let Some(state) = self.peers.get_mut(id) else { return };
        state.freed = state.freed.wrapping_add(1);
        if state.owes_credit() {
            self.attend(id);
        }
    }

    /// Takes a packet, or holds it.
    #[inline(never)]
    fn take_or_hold(&mut self, id: Id, slot: Slice, len: usize) {
        // It was parsed before.
        let Ok((_, body)) = packet::parse(slot.get(..len).unwrap_or_default()) else { return self.repost(slot) };
        let (sequence, whole) = (body.sequence(), matches!(body, Body::Eager(..)));
        match self.take(id, body) {
            Ok(Fate::Taken) => self.freed(id, slot),
            Ok(Fate::Held) => self.hold(id, slot, len, sequence, whole),
            Err(violation) => {
                self.violated(id, violation);
                self.repost(slot);
            }
        }
    }

    /// Holds a packet: of a message or not, all of it or not.
    #[inline(always)]
    fn hold(&mut self, id: Id, slot: Slice, len: usize, sequence: Option<u32>, whole: bool) {
        let Some(state) = self.peers.get_mut(id) else { return self.repost(slot) };
        let held = match sequence {
            Some(sequence) if whole => state.held.put_message(sequence, (slot, len)),
            _ => state.held.put_other(sequence, (slot, len)),
        };
        match held {
            Ok(()) => {
                if state.owes_credit() {
                    self.attend(id);
                }
            }
            // There are as many places as credits, so there is one with its number.
            Err(slot) => {
                let violation = Violation::Sequence { found: sequence.unwrap_or_default(), expected: state.expected };
                self.violated(id, violation);
                self.repost(slot);
            }
        }
    }

    /// Takes what was held and can be taken now, until there is an event.
    pub(super) fn take_held(&mut self, id: Id) -> Option<Told<S, T>> {
        let state = self.peers.get_mut(id).filter(|state| !state.held.is_empty())?;
        if state.held.has_message(state.expected) {
            self.go_on_with(id);
        }
        // Those that were looked at, since something was taken.
        let mut seen = 0_u64;
        loop {
            if let Some(event) = self.go_on() {
                return Some(event);
            }
            let state = self.peers.get_mut(id)?;
            let place = state.held.ripe(state.expected, seen)?;
            let (slot, len) = state.held.take_other(place)?;
            let fate = match packet::parse(slot.get(..len).unwrap_or_default()) {
                Ok((_, body)) => self.take(id, body),
                // It was parsed before.
                Err(bad) => Err(Violation::Packet(bad)),
            };
            if let Ok(Fate::Held) = fate {
                // There it was.
                let _ = self.peers.get_mut(id)?.held.put_back(place, (slot, len));
                seen |= 1 << place;
                continue;
            }
            seen = 0;
            match fate {
                Ok(_) => self.freed(id, slot),
                Err(violation) => {
                    self.violated(id, violation);
                    self.repost(slot);
                }
            }
        }
    }

    /// There is a place in a table again: has those served whose packets wait, if some do for that.
    #[inline(always)]
    pub(super) fn has_place(&mut self) {
        if core::mem::take(&mut self.wants_place) {
            self.attend_held();
        }
    }

    /// Has those served whose packets wait.
    #[inline(never)]
    pub(super) fn attend_held(&mut self) {
        for index in 0..PEERS as u16 {
            let waiting =
                self.peers.at(index).filter(|id| self.peers.get(*id).is_some_and(|state| !state.held.is_empty()));
            if let Some(id) = waiting {
                self.attend(id);
            }
        }
    }

    /// Takes a packet, if it can be taken now.
    fn take(&mut self, id: Id, body: Body<'_>) -> Result<Fate, Violation> {
        let taken = Ok(Fate::Taken);
        match body {
            Body::Hello(_) | Body::Credit | Body::Bye => taken,
            Body::Eager(eager, payload) => {
                let sequence = eager.sequence.get();
                let Some((target, token)) = self.turn(id, sequence)? else { return Ok(Fate::Held) };
                let total = payload.len() as u64;
                let inbound = self.begin(id, Receives::Segments(sequence), sequence, target, token, total, 0);
                self.put_in(inbound, total, 0, payload)?;
                taken
            }
            Body::Segment(segment, payload) => {
                let (sequence, total, offset) = (segment.sequence.get(), segment.total.get(), segment.offset.get());
                let of = |entry: &Inbound<T>| entry.peer == id && entry.what == Receives::Segments(sequence);
                let begun = self.inbound.iter().find(|(_, entry)| of(entry)).map(|(inbound, _)| inbound);
                let inbound = match begun {
                    Some(inbound) => inbound,
                    None => {
                        let Some((target, token)) = self.turn(id, sequence)? else { return Ok(Fate::Held) };
                        self.begin(id, Receives::Segments(sequence), sequence, target, token, total.into(), 0)
                    }
                };
                self.put_in(inbound, total.into(), offset.into(), payload)?;
                taken
            }
            Body::Long(long, grant) => {
                let sequence = long.sequence.get();
                let Some((target, token)) = self.turn(id, sequence)? else { return Ok(Fate::Held) };
                let (total, name) = (long.total.get(), long.id.get());
                let inbound = self.begin(id, Receives::Long, sequence, target, token, total, name);
                self.fetch(inbound, grant)?;
                taken
            }
            Body::Put(put, grant) => {
                if self.inbound.is_full() {
                    self.wants_place = true;
                    return Ok(Fate::Held);
                }
                let total = put.total.get();
                let window = self.opened(put.window.get(), put.offset.get(), total, Access::REMOTE_WRITE);
                let (target, denied) = match window {
                    Ok(bytes) => (Some(Memory::Exposed(bytes)), None),
                    Err(denied) => (None, Some(denied)),
                };
                let mut entry = Inbound::new(id, Token(0), Receives::Put, target, total, put.id.get());
                entry.failed = denied.map(Why::Denied);
                let inbound = self.insert_inbound(entry);
                match denied {
                    Some(denied) => self.set_due(inbound, Due::Done(denied.to_number())),
                    None => self.fetch(inbound, grant)?,
                }
                taken
            }
            Body::Get(get) => {
                if self.is_full() {
                    self.wants_place = true;
                    return Ok(Fate::Held);
                }
                let total = get.total.get();
                let window = self.opened(get.window.get(), get.offset.get(), total, Access::REMOTE_READ);
                let (source, status) = match window {
                    Ok(bytes) => (Source::Memory(Memory::Exposed(bytes)), 0),
                    Err(denied) => (Source::Nothing, denied.to_number()),
                };
                let mut answer = Outbound::new(id, Token(0), Sends::Answer(status), source, total, Stage::Queued);
                (answer.to, answer.upto) = (get.id.get(), total);
                let empty = status == 0 && total == 0;
                if let Some(send) = self.insert_send(answer) {
                    self.set_stage(send, if status == 0 && !empty { Stage::Streaming } else { Stage::Finishing });
                }
                taken
            }
            Body::Clear(clear, grant) => self.cleared(id, clear, grant).map(|()| Fate::Taken),
            Body::Data(data, payload) => {
                let inbound = self.receiving(id, data.to.get())?;
                let total = self.inbound.get(inbound).map_or(0, |entry| entry.total);
                self.put_in(inbound, total, data.offset.get(), payload)?;
                taken
            }
            Body::Done(done) => self.done(id, done).map(|()| Fate::Taken),
            Body::Finish(finish) => self.finished(id, finish).map(|()| Fate::Taken),
        }
    }

    /// The receive for a message whose turn it is; none if it is not, or there is none, or no place.
    #[allow(clippy::type_complexity)] // a receive
    fn turn(&mut self, id: Id, sequence: u32) -> Result<Option<(Memory<T>, Token)>, Violation> {
        let Some(state) = self.peers.get_mut(id) else { return Ok(None) };
        if state.ahead(sequence)? > 0 {
            return Ok(None);
        }
        if self.inbound.is_full() {
            self.wants_place = true;
            return Ok(None);
        }
        let receive = self.recvs.pop_front();
        if receive.is_none() {
            self.wants_receive = true;
            return Ok(None);
        }
        state.expected = sequence.wrapping_add(1);
        let (is_next, others) = (state.held.has_message(state.expected), state.held.has_others());
        if is_next {
            self.go_on_with(id);
        }
        if others {
            self.attend(id);
        }
        Ok(receive)
    }

    /// Begins to receive a message that is not told at once.
    #[allow(clippy::too_many_arguments)] // a message and a receive
    fn begin(
        &mut self,
        id: Id,
        what: Receives,
        sequence: u32,
        target: Memory<T>,
        token: Token,
        total: u64,
        name: u32,
    ) -> Id {
        let room = target.len() as u64;
        let mut entry = Inbound::new(id, token, what, Some(target), total, name);
        entry.sequence = Some(sequence);
        if total > room {
            entry.failed = Some(Why::Truncated { len: total, room });
        }
        self.insert_inbound(entry)
    }

    /// Keeps what there is room for.
    pub(super) fn insert_inbound(&mut self, entry: Inbound<T>) -> Id {
        let id = entry.peer;
        match self.inbound.insert(entry) {
            Ok(inbound) => {
                self.begun(id);
                inbound
            }
            // It was asked for before.
            Err(_) => Id::NONE,
        }
    }

    /// Likewise.
    #[inline(always)]
    pub(super) fn insert_send(&mut self, entry: Outbound<S>) -> Option<Id> {
        let id = entry.peer;
        let send = self.sends.insert(entry).ok()?;
        self.begun(id);
        Some(send)
    }

    fn begun(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id) {
            state.operations += 1;
        }
    }

    /// The bytes of a window that a peer wants.
    fn opened(&self, window: u32, offset: u64, total: u64, access: Access) -> Result<ExposedPart, Denied> {
        let window = self.windows.get(Id::from_bits(window)).ok_or(Denied::NoWindow)?;
        if !window.access.contains(access) {
            return Err(Denied::NotAllowed);
        }
        let start = usize::try_from(offset).map_err(|_| Denied::OutOfBounds)?;
        let end = offset.checked_add(total).and_then(|end| usize::try_from(end).ok()).ok_or(Denied::OutOfBounds)?;
        window.bytes.part(start..end).map_err(|_| Denied::OutOfBounds)
    }

    /// First contact, or again.
    fn hello(&mut self, header: &Header, hello: &Hello, from: &Sender) {
        let life = Incarnation(hello.incarnation.get());
        let here = |state: &super::PeerState<K::Features>| state.is(from) && !state.is_lost();
        let same = self.peers.iter().find(|(_, state)| here(state) && state.life == Some(life));
        let sure = !matches!(from, Sender::Unknown { gid: None, .. });
        let found = same.or_else(|| self.peers.iter().find(|(_, state)| here(state) && sure)).map(|(id, _)| id);
        let ours = self.endpoint.incarnation().0;
        let (own, start, echo) = (self.own_features(), self.start, hello.echo.get());
        let Some(state) = found.and_then(|id| self.peers.get_mut(id)) else {
            self.counters.strangers += 1;
            return;
        };
        let Some(id) = found else { return };
        if let Some(old) = state.life.filter(|old| *old != life) {
            return self.lose(id, Why::Restarted { old: Some(old), new: life });
        }
        if life.0 as u32 != header.life.get() || (echo != 0 && echo != ours) {
            // Of, or to, a life that is over.
            self.counters.strangers += 1;
            return;
        }
        state.life = Some(life);
        if state.place == packet::NO_PLACE {
            if hello.place.get() == packet::NO_PLACE {
                return self.violated(id, Violation::Packet(packet::BadPacket::Hello));
            }
            state.place = hello.place.get();
            state.packet = (hello.packet.get() as usize).min(self.packet);
            state.features = PeerFeatures::from_bits_truncate(hello.features.get()) & own;
            let credits = u32::from(hello.credits.get());
            state.reserve = credits / 8;
            state.sent = start;
            state.limit = start.wrapping_add(credits);
            let theirs = hello.start.get();
            (state.arrived, state.freed, state.told_freed) = (theirs, theirs, theirs);
            (state.expected, state.telling) = (theirs, theirs);
            state.credits_taken = theirs as u16;
        }
        if echo == ours && state.standing == Standing::Greeting {
            state.standing = Standing::Up;
            self.tell(id);
        }
        let Some(state) = self.peers.get_mut(id) else { return };
        state.hello_due |= !state.greeted || echo == 0;
        self.attend(id);
    }

    /// A peer broke the protocol.
    fn violated(&mut self, id: Id, violation: Violation) {
        self.counters.violations += 1;
        self.lose(id, violation.into());
    }
}
