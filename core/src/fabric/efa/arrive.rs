//! What comes in: packets, each taken at once, held for its turn, or refused.

use super::packet::{self, Body, Header, Hello};
use super::peer::{SILENCES, Standing};
use super::tables::{Due, Inbound, Receives, Sends, Source, Stage};
use super::{Efa, Id, Outbound, Told};
use crate::fabric::{Carries, Denied, Event, Memory, PeerFeatures, Returned, Violation, Why};
use crate::flags::Access;
use crate::memory::{ExposedPart, Slice};
use crate::peer::Sender;
use crate::provider::Provider;
use crate::work::Received;
use crate::{Incarnation, Token};

/// A message that came in one packet, and its receive.
struct Message<T> {
    token: Token,
    target: Memory<T>,
    len: usize,
    /// Why it is not in its receive.
    failed: Option<Failed>,
}

/// Of [`Why`], what can be.
#[derive(Clone, Copy)]
enum Failed {
    Truncated,
    Shrunk,
}

/// What became of a packet that makes sense.
enum Fate<T> {
    /// It was taken.
    Taken,
    /// It was all of a message, which is told at once.
    Message(Message<T>),
    /// It waits for its turn, for a receive, or for a place.
    Held,
}

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// A packet arrived.
    pub(super) fn arrived(&mut self, message: Received) -> Option<Told<S, T>> {
        let Received { len, from, mut buffers, .. } = message;
        let slot = buffers.take_slice()?;
        self.counters.packets_received += 1;
        let bytes = slot.get(..len).unwrap_or_default();
        let (header, body) = match packet::parse(bytes) {
            Ok((header, Body::Hello(hello))) => {
                self.hello(&header, &hello, &from);
                self.repost(slot);
                return None;
            }
            Ok(packet) => packet,
            Err(bad) => {
                let peer = self.peers.iter().find(|(_, state)| state.is(&from) && state.is_up()).map(|(id, _)| id);
                match peer {
                    Some(id) => self.violated(id, Violation::Packet(bad)),
                    None => self.counters.strangers += 1,
                }
                self.repost(slot);
                return None;
            }
        };
        let now = self.now;
        let Some(id) = self.sender(&header, &from) else {
            self.counters.strangers += 1;
            self.repost(slot);
            return None;
        };
        let state = self.peers.get_mut(id)?;
        (state.heard_at, state.probe_due, state.silence) = (now, false, SILENCES[0]);
        if state.hear(&header) && (state.queue[0].is_some() || state.streams > 0 || state.due > 0) {
            self.attend(id);
        }
        if let Body::Credit = body {
            if let Some(state) = self.peers.get_mut(id) {
                state.credits_taken = state.credits_taken.wrapping_add(1);
                // It heard of ours, so that another may go.
                if state.owes_credit() {
                    self.attend(id);
                }
            }
            self.repost(slot);
            return None;
        }
        if let Body::Bye = body {
            self.lose(id, Why::Left);
            self.repost(slot);
            return None;
        }
        let counted = self.peers.get_mut(id).map_or(Ok(()), |state| state.count());
        let sequence = body.sequence();
        match counted.and_then(|()| self.take(id, body)) {
            Ok(Fate::Message(message)) => {
                self.freed(id, slot);
                Some(self.whole(id, message))
            }
            Ok(Fate::Taken) => {
                self.freed(id, slot);
                None
            }
            Ok(Fate::Held) => {
                self.hold(id, slot, len, sequence);
                None
            }
            Err(violation) => {
                self.violated(id, violation);
                self.repost(slot);
                None
            }
        }
    }

    /// Who sent a packet, if it is a peer in its present life that greeted us.
    fn sender(&self, header: &Header, from: &Sender) -> Option<Id> {
        let id = self.peers.at(header.place.get())?;
        let state = self.peers.get(id)?;
        let life = state.life?.0 as u32;
        let known = state.is(from) && life == header.life.get() && state.place != packet::NO_PLACE;
        (known && state.lost().is_none()).then_some(id)
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

    fn hold(&mut self, id: Id, slot: Slice, len: usize, sequence: Option<u32>) {
        let Some(state) = self.peers.get_mut(id) else { return self.repost(slot) };
        match state.held.push(slot, len, sequence) {
            Ok(()) => self.held += 1,
            // As many as credits.
            Err(slot) => self.repost(slot),
        }
    }

    /// Takes what was held and can be taken now, until there is an event.
    pub(super) fn take_held(&mut self, id: Id) -> Option<Told<S, T>> {
        // Those that were looked at, since something was taken.
        let mut seen = 0;
        loop {
            let state = self.peers.get_mut(id).filter(|state| !state.held.is_empty())?;
            let place = state.held.ripe(state.expected, seen)?;
            let (slot, len) = state.held.take(place)?;
            let fate = match packet::parse(slot.get(..len).unwrap_or_default()) {
                Ok((_, body)) => self.take(id, body),
                // It was parsed before.
                Err(bad) => Err(Violation::Packet(bad)),
            };
            if let Ok(Fate::Held) = fate {
                self.peers.get_mut(id)?.held.put_back(place, slot, len);
                seen |= 1 << place;
                continue;
            }
            seen = 0;
            self.held -= 1;
            match fate {
                Ok(Fate::Message(message)) => {
                    self.freed(id, slot);
                    return Some(self.whole(id, message));
                }
                Ok(Fate::Taken) => self.freed(id, slot),
                Ok(Fate::Held) => {}
                Err(violation) => {
                    self.violated(id, violation);
                    self.repost(slot);
                }
            }
        }
    }

    /// Has those served whose packets wait.
    pub(super) fn attend_held(&mut self) {
        if self.held == 0 {
            return;
        }
        for index in 0..PEERS as u16 {
            let waiting =
                self.peers.at(index).filter(|id| self.peers.get(*id).is_some_and(|state| !state.held.is_empty()));
            if let Some(id) = waiting {
                self.attend(id);
            }
        }
    }

    /// Takes a packet, if it can be taken now.
    #[inline]
    fn take(&mut self, id: Id, body: Body<'_>) -> Result<Fate<T>, Violation> {
        let taken = Ok(Fate::Taken);
        match body {
            Body::Hello(_) | Body::Credit | Body::Bye => taken,
            Body::Eager(eager, payload) => {
                let sequence = eager.sequence.get();
                // Told at once, or after those that came before it and are not all here.
                let at_once =
                    self.ended_inbound.is_empty() && self.peers.get(id).is_some_and(|state| state.telling == sequence);
                let Some((target, token)) = self.turn(id, sequence, !at_once)? else { return Ok(Fate::Held) };
                if at_once {
                    if let Some(state) = self.peers.get_mut(id) {
                        state.telling = sequence.wrapping_add(1);
                    }
                    return Ok(Fate::Message(self.eager(target, token, payload)));
                }
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
                        let Some((target, token)) = self.turn(id, sequence, true)? else { return Ok(Fate::Held) };
                        self.begin(id, Receives::Segments(sequence), sequence, target, token, total.into(), 0)
                    }
                };
                self.put_in(inbound, total.into(), offset.into(), payload)?;
                taken
            }
            Body::Long(long, grant) => {
                let sequence = long.sequence.get();
                let Some((target, token)) = self.turn(id, sequence, true)? else { return Ok(Fate::Held) };
                let (total, name) = (long.total.get(), long.id.get());
                let inbound = self.begin(id, Receives::Long, sequence, target, token, total, name);
                self.fetch(inbound, grant)?;
                taken
            }
            Body::Put(put, grant) => {
                if self.inbound.is_full() {
                    self.starved = true;
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
                if self.sends.is_full() {
                    self.starved = true;
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
                if let Ok(send) = self.sends.insert(answer) {
                    self.begun(id);
                    self.set_stage(send, if status == 0 && !empty { Stage::Streaming } else { Stage::Finishing });
                }
                taken
            }
            Body::Clear(clear, grant) => self.cleared(id, &clear, grant).map(|()| Fate::Taken),
            Body::Data(data, payload) => {
                let inbound = self.receiving(id, data.to.get())?;
                let total = self.inbound.get(inbound).map_or(0, |entry| entry.total);
                self.put_in(inbound, total, data.offset.get(), payload)?;
                taken
            }
            Body::Done(done) => self.done(id, &done).map(|()| Fate::Taken),
            Body::Finish(finish) => self.finished(id, &finish).map(|()| Fate::Taken),
        }
    }

    /// The receive for a message whose turn it is; none if it is not, or there is none, or no place.
    #[allow(clippy::type_complexity)] // a receive
    fn turn(&mut self, id: Id, sequence: u32, place: bool) -> Result<Option<(Memory<T>, Token)>, Violation> {
        let Some(state) = self.peers.get_mut(id) else { return Ok(None) };
        if state.ahead(sequence)? > 0 {
            return Ok(None);
        }
        if place && self.inbound.is_full() {
            self.starved = true;
            return Ok(None);
        }
        let receive = self.recvs.pop_front();
        if receive.is_some() {
            state.expected = sequence.wrapping_add(1);
            // The next may be here.
            if !state.held.is_empty() {
                self.attend(id);
            }
        }
        Ok(receive)
    }

    #[inline]
    fn eager(&mut self, mut target: Memory<T>, token: Token, payload: &[u8]) -> Message<T> {
        let len = payload.len();
        let failed = if len > target.len() {
            Some(Failed::Truncated)
        } else {
            self.counters.copied += len as u64;
            if target.copy_in(0, payload) { None } else { Some(Failed::Shrunk) }
        };
        Message { token, target, len, failed }
    }

    /// The event of a message that came in one packet.
    #[inline]
    fn whole(&self, id: Id, message: Message<T>) -> Told<S, T> {
        let Message { token, target, len, failed } = message;
        let peer = Some(crate::fabric::PeerId(id));
        let why = match failed {
            None => return Event::Received { token, from: peer, len, target },
            Some(Failed::Truncated) => Why::Truncated { len: len as u64, room: target.len() as u64 },
            Some(Failed::Shrunk) => Why::Shrunk,
        };
        Event::Failed { token, peer, why, buffer: Returned::Target(target) }
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

    pub(super) fn begun(&mut self, id: Id) {
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
        let here = |state: &super::PeerState<K::Features>| state.is(from) && state.lost().is_none();
        let same = self.peers.iter().find(|(_, state)| here(state) && state.life == Some(life));
        let sure = !matches!(from, Sender::Unknown { gid: None, .. });
        let found = same.or_else(|| self.peers.iter().find(|(_, state)| here(state) && sure)).map(|(id, _)| id);
        let ours = self.endpoint.incarnation().0;
        let (start, echo) = (self.start, hello.echo.get());
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
            state.packet = hello.packet.get() as usize;
            state.features = PeerFeatures::from_bits_truncate(hello.features.get());
            let credits = u32::from(hello.credits.get());
            state.reserve = credits / 4;
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
