//! What goes out: whatever is due and there is credit and room for.

use super::emit::{Payload, WRITE};
use super::packet::{self, Bye, Clear, Credit, Data, Done, Eager, Finish, Get, Hello, Long, Put, Segment};
use super::peer::{HELLO_DELAYS, SILENCES, Standing};
use super::slots::{Of, Sent};
use super::tables::{Due, Part, Receives, Sends, Source, Stage};
use super::{CREDITS, Efa, Id, PeerFeatures, SEGMENTS, Told};
use crate::fabric::{Carries, Memory, Why};
use crate::flags::Access;
use crate::provider::Provider;
use crate::{Refused, Token};

/// RDMA writes of one operation in flight.
const WRITES: u32 = 8;
/// Packets that one clear lets come.
pub(super) const CLEARED: u64 = 64;

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Does all that is due: gives the events of what ended, and serves peers.
    #[inline(always)]
    pub(super) fn do_due(&mut self) -> Option<Told<S, T>> {
        if self.now >= self.wake_at { self.do_what_is_due() } else { None }
    }

    #[inline(never)]
    fn do_what_is_due(&mut self) -> Option<Told<S, T>> {
        let event = self.next_ended().or_else(|| self.serve_all()).or_else(|| self.next_ended());
        if event.is_none() {
            // Nothing ended, and is news.
            let at_once = !self.attended.is_empty() || self.slots.waiting > 0;
            self.wake_at = if at_once { 0 } else { self.hello_at.min(self.probe_at) };
        }
        event
    }

    /// Serves each peer that there is something to do for, once, or until there is an event.
    fn serve_all(&mut self) -> Option<Told<S, T>> {
        if self.now >= self.hello_at {
            self.greet_again();
        }
        if self.now >= self.probe_at {
            self.probe();
        }
        if self.slots.waiting > 0 {
            self.try_again();
        }
        for _ in 0..self.attended.len() {
            let id = self.attended.pop_front()?;
            if let Some(event) = self.serve(id) {
                return Some(event);
            }
        }
        None
    }

    fn serve(&mut self, id: Id) -> Option<Told<S, T>> {
        let state = self.peers.get_mut(id)?;
        state.attended = false;
        if state.is_lost() {
            if state.bye_due {
                match self.ready() {
                    true => self.part(id),
                    false => self.attend(id),
                }
            }
            return None;
        }
        let mut blocked = false;
        if state.hello_due {
            match self.ready() {
                true => self.greet(id),
                false => blocked = true,
            }
        }
        if self.peers.get(id).is_some_and(|state| state.is_up()) {
            blocked |= self.serve_due(id);
            blocked |= self.send_queued(id);
            blocked |= self.stream(id);
        }
        let event = self.take_held(id);
        if self.peers.get(id).is_some_and(|state| state.is_up() && state.owes_credit()) {
            match self.ready() {
                true => {
                    if let Some(state) = self.peers.get_mut(id) {
                        state.credits_sent = state.credits_sent.wrapping_add(1);
                        state.probe_due = false;
                    }
                    self.emit(id, &Credit {}, false, false, None, Payload::Nothing);
                }
                false => blocked = true,
            }
        }
        // An event ends the looking through what is held.
        if blocked || event.is_some() && self.peers.get(id).is_some_and(|state| state.held.has_others()) {
            self.attend(id);
        }
        event
    }

    /// Says hello.
    fn greet(&mut self, id: Id) {
        let (now, start) = (self.now, self.start);
        let (own, packet) = (self.own_features(), self.packet as u32);
        let incarnation = self.endpoint.incarnation().0;
        let Some(state) = self.peers.get_mut(id) else { return };
        state.hello_due = false;
        // It knows that we know it.
        state.greeted = state.place != packet::NO_PLACE;
        let echo = state.life.filter(|_| state.greeted).map_or(0, |life| life.0);
        if state.standing == Standing::Greeting {
            let [first, last] = HELLO_DELAYS;
            state.hello_delay = state.hello_delay.saturating_mul(2).clamp(first, last);
            state.hello_at = now.saturating_add(state.hello_delay);
            self.hello_at = self.hello_at.min(state.hello_at);
            self.wake_at = self.wake_at.min(self.hello_at);
        }
        let hello = Hello {
            incarnation: incarnation.into(),
            echo: echo.into(),
            start: start.into(),
            packet: packet.into(),
            features: own.bits().into(),
            place: id.index.into(),
            credits: (CREDITS as u16).into(),
        };
        self.emit(id, &hello, false, false, None, Payload::Nothing);
    }

    /// Says bye.
    fn part(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id) {
            state.bye_due = false;
        }
        self.emit(id, &Bye {}, false, false, None, Payload::Nothing);
    }

    /// Has those greeted again that have not answered.
    fn greet_again(&mut self) {
        self.hello_at = u64::MAX;
        for index in 0..PEERS as u16 {
            let Some(id) = self.peers.at(index) else { continue };
            let Some(state) = self.peers.get_mut(id) else { continue };
            if state.standing == Standing::Greeting && !state.hello_due {
                if state.hello_at <= self.now {
                    state.hello_due = true;
                    self.attend(id);
                } else {
                    self.hello_at = self.hello_at.min(state.hello_at);
                }
            }
        }
    }

    /// Has those asked whether they are there that something is awaited from, and that were silent for long: if they are not,
    /// their device says so of the question.
    fn probe(&mut self) {
        let [first, last] = SILENCES;
        self.probe_at = self.now.saturating_add(first);
        for index in 0..PEERS as u16 {
            let Some(id) = self.peers.at(index) else { continue };
            let Some(state) = self.peers.get_mut(id) else { continue };
            let silent = self.now.saturating_sub(state.heard_at) >= state.silence;
            if state.is_up() && state.operations > 0 && silent {
                (state.heard_at, state.silence) = (self.now, state.silence.saturating_mul(2).min(last));
                state.probe_due = true;
                self.attend(id);
            }
        }
    }

    /// What is to be said or posted, of operations under way; whether this side has no room for some of it.
    fn serve_due(&mut self, id: Id) -> bool {
        for index in 0..OPERATIONS as u16 {
            if self.peers.get(id).is_none_or(|state| state.due == 0) {
                return false;
            }
            if let Some(inbound) = self.inbound.at(index)
                && self.serve_inbound(id, inbound)
            {
                return true;
            }
            if let Some(send) = self.sends.at(index)
                && self.serve_finish(id, send)
            {
                return true;
            }
        }
        false
    }

    fn serve_inbound(&mut self, id: Id, inbound: Id) -> bool {
        let Some(entry) = self.inbound.get(inbound).filter(|entry| entry.peer == id) else { return false };
        let Some(state) = self.peers.get(id) else { return false };
        let (credits, data) = (state.credits(), state.data_credits());
        let packet = state.packet as u64;
        match entry.due {
            Due::Nothing => return false,
            Due::Read => return self.post_read(inbound),
            Due::Get if data == 0 => return false,
            _ if credits == 0 => return false,
            _ if !self.ready() => return true,
            Due::Get => {
                let Receives::Get { window, offset } = entry.what else { return false };
                let total = entry.total;
                let get = Get {
                    window: window.into(),
                    id: inbound.to_bits().into(),
                    offset: offset.into(),
                    total: total.into(),
                };
                if let Some(entry) = self.inbound.get_mut(inbound) {
                    entry.cleared = total;
                }
                self.set_due(inbound, Due::Nothing);
                self.emit(id, &get, false, true, None, Payload::Nothing);
            }
            Due::Clear => {
                let upto = entry.total.min(entry.received.saturating_add(CLEARED * packet));
                let grant = match &entry.target {
                    Some(Memory::Exposed(bytes)) if entry.writable => bytes.grant(&self.endpoint).ok(),
                    _ => None,
                };
                let clear = Clear {
                    id: entry.id.into(),
                    to: inbound.to_bits().into(),
                    upto: upto.into(),
                    grant: grant.unwrap_or_else(packet::no_grant),
                };
                if let Some(entry) = self.inbound.get_mut(inbound) {
                    entry.cleared = upto;
                }
                self.set_due(inbound, Due::Nothing);
                self.emit(id, &clear, grant.is_some(), true, None, Payload::Nothing);
            }
            Due::Done(status) => {
                let done = Done { id: entry.id.into(), status: status.into() };
                self.set_due(inbound, Due::Nothing);
                self.emit(id, &done, false, true, None, Payload::Nothing);
                self.settle_inbound(inbound);
            }
        }
        false
    }

    fn serve_finish(&mut self, id: Id, send: Id) -> bool {
        let Some(entry) = self.sends.get(send).filter(|entry| entry.peer == id) else { return false };
        if entry.stage != Stage::Finishing || self.peers.get(id).is_none_or(|state| state.credits() == 0) {
            return false;
        }
        if !self.ready() {
            return true;
        }
        let status = match (entry.what, entry.failed) {
            (Sends::Answer(status), _) => status,
            (_, None) => 0,
            (_, Some(_)) => crate::fabric::Denied::Failed.to_number(),
        };
        let finish = Finish { to: entry.to.into(), status: status.into() };
        // Who hears that it failed, or got what it asked for, says nothing more.
        let last = if status != 0 || matches!(entry.what, Sends::Answer(_)) { Stage::Done } else { Stage::Out };
        self.set_stage(send, last);
        self.emit(id, &finish, false, true, Some(send), Payload::Nothing);
        false
    }

    /// Sends from a peer's queue, as far as it has credits; whether this side has no room for more.
    pub(super) fn send_queued(&mut self, id: Id) -> bool {
        loop {
            let Some(state) = self.peers.get(id) else { return false };
            let Some(head) = state.queue[0] else { return false };
            if state.data_credits() == 0 {
                return false;
            }
            if !self.ready() {
                return true;
            }
            let packet = state.packet;
            let Some(entry) = self.sends.get_mut(head) else { return false };
            let (total, offset) = (entry.total, entry.offset);
            let in_one = packet.saturating_sub(packet::before_payload::<Eager>()) as u64;
            if let Sends::Message(sequence) = entry.what
                && let Source::Memory(_) = &entry.source
                && total <= in_one
            {
                let len = packet::before_payload::<Eager>() + total as usize;
                let Some(slot) = self.slots.take(len) else { return true };
                let source = core::mem::replace(&mut entry.source, Source::Nothing);
                let token = entry.token;
                self.dequeue(id, head);
                self.sends.clear(head);
                self.ended(id);
                if let Source::Memory(source) = source {
                    self.emit_message(id, sequence, slot, source, token);
                }
                continue;
            }
            let can_be_read = state.features.contains(PeerFeatures::READ);
            let Some(entry) = self.sends.get(head) else { return false };
            let grant = match &entry.source {
                Source::Memory(Memory::Exposed(bytes))
                    if can_be_read && bytes.access().contains(Access::REMOTE_READ) =>
                {
                    bytes.grant(&self.endpoint).ok()
                }
                _ => None,
            };
            let in_each = packet.saturating_sub(packet::before_payload::<Segment>()) as u64;
            match entry.what {
                Sends::Message(sequence) if total <= in_each * SEGMENTS as u64 => {
                    let len = in_each.min(total - offset);
                    let segment = Segment {
                        sequence: sequence.into(),
                        total: (total as u32).into(),
                        offset: (offset as u32).into(),
                    };
                    if let Some(entry) = self.sends.get_mut(head) {
                        entry.offset += len;
                    }
                    if offset + len == total {
                        self.set_stage(head, Stage::Done);
                        self.dequeue(id, head);
                    }
                    let payload = Payload::Copied { of: head, offset: offset as usize, len: len as usize };
                    self.emit(id, &segment, false, true, Some(head), payload);
                }
                Sends::Message(sequence) => {
                    let long = Long {
                        sequence: sequence.into(),
                        id: head.to_bits().into(),
                        total: total.into(),
                        grant: grant.unwrap_or_else(packet::no_grant),
                    };
                    self.set_stage(head, Stage::Asked);
                    self.dequeue(id, head);
                    self.emit(id, &long, grant.is_some(), true, Some(head), Payload::Nothing);
                }
                Sends::Put { window, offset } => {
                    let put = Put {
                        window: window.into(),
                        id: head.to_bits().into(),
                        offset: offset.into(),
                        total: total.into(),
                        grant: grant.unwrap_or_else(packet::no_grant),
                    };
                    self.set_stage(head, Stage::Asked);
                    self.dequeue(id, head);
                    self.emit(id, &put, grant.is_some(), true, Some(head), Payload::Nothing);
                }
                // These are never in a queue.
                Sends::Write | Sends::Answer(_) => return false,
            }
        }
    }

    /// Goes on with what streams or writes to a peer; whether this side has no room for more.
    fn stream(&mut self, id: Id) -> bool {
        for index in 0..OPERATIONS as u16 {
            if self.peers.get(id).is_none_or(|state| state.streams == 0) {
                return false;
            }
            let Some(send) = self.sends.at(index) else { continue };
            let blocked = match self.sends.get(send).filter(|entry| entry.peer == id).map(|entry| entry.stage) {
                Some(Stage::Streaming) => self.stream_one(id, send),
                Some(Stage::Writing) => self.write_one(id, send),
                _ => false,
            };
            if blocked {
                return true;
            }
        }
        false
    }

    fn stream_one(&mut self, id: Id, send: Id) -> bool {
        loop {
            let Some(entry) = self.sends.get(send).filter(|entry| entry.offset < entry.upto) else { return false };
            let Some(state) = self.peers.get(id).filter(|state| state.data_credits() > 0) else { return false };
            if !self.ready() {
                return true;
            }
            let packet = state.packet;
            let (offset, left) = (entry.offset, entry.upto - entry.offset);
            let len = left.min((packet - packet::before_payload::<Data>()) as u64);
            let data = Data { to: entry.to.into(), spare: 0.into(), offset: offset.into() };
            let part = if self.gathers { entry.source.part(offset as usize, len as usize) } else { None };
            let payload = match part {
                Some(part) => Payload::Part(part),
                None => Payload::Copied { of: send, offset: offset as usize, len: len as usize },
            };
            if let Some(entry) = self.sends.get_mut(send) {
                entry.offset += len;
                if entry.offset == entry.total {
                    let last = if let Sends::Answer(_) = entry.what { Stage::Done } else { Stage::Out };
                    self.set_stage(send, last);
                }
            }
            self.emit(id, &data, false, true, Some(send), payload);
        }
    }

    fn write_one(&mut self, id: Id, send: Id) -> bool {
        loop {
            let Some(entry) = self.sends.get_mut(send) else { return false };
            if entry.offset >= entry.total || entry.in_flight >= WRITES || entry.failed.is_some() {
                return false;
            }
            let Some(state) = self.peers.get_mut(id) else { return false };
            if !self.endpoint.can_post() {
                return true;
            }
            let left = entry.total - entry.offset;
            let whole = left.min(self.endpoint.max_rdma_size().into());
            let part = entry.source.part(entry.offset as usize, whole as usize);
            let len = if part.is_some() { whole } else { left.min(self.packet as u64) };
            let range = entry.offset..entry.offset + len;
            let Some(window) = entry.window.and_then(|window| window.range(range).ok()) else {
                // It was found long enough before.
                entry.failed = Some(Why::Refused(crate::Error::WindowOfAnotherPeer));
                self.settle_write(send);
                return false;
            };
            let token = Token(WRITE | u64::from(send.to_bits()));
            let posted =
                match part {
                    Some(Part::Frozen(part)) => K::write(&mut self.endpoint, &state.peer, part, window, token)
                        .map_err(|refused| refused.error()),
                    Some(Part::Exposed(part)) => K::write(&mut self.endpoint, &state.peer, part, window, token)
                        .map_err(|refused| refused.error()),
                    None => {
                        let Some((index, mut head)) = self.slots.take(len as usize) else { return true };
                        if !entry.source.copy_out(entry.offset as usize, &mut head) {
                            head.fill(0);
                            entry.failed = Some(Why::Shrunk);
                        }
                        self.counters.copied += len;
                        self.slots.note(index, Sent { peer: id, of: Of::Write(send) });
                        let token = Token(super::emit::PACKET | u64::from(index));
                        K::write(&mut self.endpoint, &state.peer, head, window, token).map_err(|refused: Refused<_>| {
                            let (head, error) = refused.into_parts();
                            self.slots.finish(index, Some(head));
                            error
                        })
                    }
                };
            match posted {
                Ok(()) => {
                    entry.offset += len;
                    entry.in_flight += 1;
                    state.in_flight += 1;
                }
                Err(error) => {
                    entry.failed.get_or_insert(Why::Refused(error));
                    self.settle_write(send);
                    return false;
                }
            }
        }
    }
}
