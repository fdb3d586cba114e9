//! How operations and peers end: each once, with its buffer.

use super::packet::NO_PLACE;
use super::peer::Standing;
use super::slots::MAX_SLOTS;
use super::tables::{Due, Inbound, Sends, Stage};
use super::{Efa, Id, Told};
use crate::Error;
use crate::fabric::{Carries, Event, Messages, PeerId, Returned, Why};
use crate::provider::Provider;
use crate::qp::Shutdown;

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Moves a send on, and counts for its peer what that changes.
    pub(super) fn set_stage(&mut self, send: Id, stage: Stage) {
        let Some(entry) = self.sends.get_mut(send) else { return };
        let before = core::mem::replace(&mut entry.stage, stage);
        let id = entry.peer;
        let Some(state) = self.peers.get_mut(id) else { return };
        let streams = |stage| u16::from(matches!(stage, Stage::Streaming | Stage::Writing));
        let due = |stage| u16::from(stage == Stage::Finishing);
        state.streams = (state.streams + streams(stage)).saturating_sub(streams(before));
        state.due = (state.due + due(stage)).saturating_sub(due(before));
        if streams(stage) + due(stage) > 0 {
            self.attend(id);
        }
    }

    /// What a receive has to do next, counted for its peer.
    pub(super) fn set_due(&mut self, inbound: Id, due: Due) {
        let Some(entry) = self.inbound.get_mut(inbound) else { return };
        let before = core::mem::replace(&mut entry.due, due);
        let id = entry.peer;
        let Some(state) = self.peers.get_mut(id) else { return };
        let count = |due| u16::from(due != Due::Nothing);
        state.due = (state.due + count(due)).saturating_sub(count(before));
        if due != Due::Nothing {
            self.attend(id);
        }
    }

    /// Takes the head off its peer's queue.
    pub(super) fn dequeue(&mut self, id: Id, head: Id) {
        let next = self.sends.get_mut(head).and_then(|entry| entry.next.take());
        if let Some(state) = self.peers.get_mut(id) {
            state.queue = match next {
                Some(next) => [Some(next), state.queue[1]],
                None => [None; 2],
            };
        }
    }

    /// Ends a send, if nothing more comes of it.
    pub(super) fn settle_send(&mut self, send: Id) {
        if let Some(entry) = self.sends.get_mut(send)
            && entry.is_over()
            && !entry.ended
        {
            // As many as sends.
            entry.ended = self.ended_sends.push_back(send).is_ok();
            self.wake_at = 0;
        }
    }

    /// Moves a send on whose writes are done, or failed.
    pub(super) fn settle_write(&mut self, send: Id) {
        let Some(entry) = self.sends.get_mut(send) else { return };
        if entry.stage == Stage::Writing
            && entry.in_flight == 0
            && (entry.offset >= entry.total || entry.failed.is_some())
        {
            let stage = if entry.what == Sends::Write { Stage::Done } else { Stage::Finishing };
            self.set_stage(send, stage);
        }
        self.settle_send(send);
    }

    /// Ends a receive, if nothing more comes of it: a message after those before it.
    pub(super) fn settle_inbound(&mut self, inbound: Id) {
        let Some(entry) = self.inbound.get_mut(inbound).filter(|entry| entry.is_over() && !entry.ended) else { return };
        let (id, sequence) = (entry.peer, entry.sequence);
        let Some(sequence) = sequence else {
            // As many as receives.
            entry.ended = self.ended_inbound.push_back(inbound).is_ok();
            self.wake_at = 0;
            return;
        };
        let turn = self.peers.get(id).is_some_and(|state| state.telling == sequence || state.is_lost());
        if !turn {
            return;
        }
        entry.ended = self.ended_inbound.push_back(inbound).is_ok();
        self.wake_at = 0;
        let Some(state) = self.peers.get_mut(id).filter(|state| !state.is_lost()) else { return };
        state.telling = sequence.wrapping_add(1);
        if let Some(next) = self.message(id, sequence.wrapping_add(1)) {
            self.settle_inbound(next);
        }
    }

    /// A peer's message that is under way.
    fn message(&self, id: Id, sequence: u32) -> Option<Id> {
        let of = |entry: &Inbound<T>| entry.peer == id && entry.sequence == Some(sequence);
        self.inbound.iter().find(|(_, entry)| of(entry)).map(|(inbound, _)| inbound)
    }

    /// The event of something that ended, or is news.
    pub(super) fn next_ended(&mut self) -> Option<Told<S, T>> {
        while let Some(send) = self.ended_sends.pop_front() {
            let event = self.end_send(send);
            if event.is_some() {
                return event;
            }
        }
        while let Some(inbound) = self.ended_inbound.pop_front() {
            let Some(entry) = self.inbound.remove(inbound) else { continue };
            let peer = entry.peer;
            let event = entry.into_event();
            self.over(peer);
            if event.is_some() {
                return event;
            }
        }
        if let Some(why) = self.dead
            && let Some((target, token)) = self.recvs.pop_front()
        {
            return Some(Event::Failed { token, peer: None, why, buffer: Returned::Target(target) });
        }
        while let Some(id) = self.news.pop_front() {
            let Some(state) = self.peers.get_mut(id) else { continue };
            state.told = true;
            let event = match state.standing {
                Standing::Up => Some(Event::Up(PeerId(id))),
                Standing::Lost(why) => Some(Event::Lost { peer: PeerId(id), why }),
                Standing::Greeting => None,
            };
            self.release(id);
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// The event of a send that is over, if it has one.
    fn end_send(&mut self, send: Id) -> Option<Told<S, T>> {
        let entry = self.sends.remove(send)?;
        let peer = entry.peer;
        match entry.into_event() {
            Ok(event) => {
                self.over(peer);
                event
            }
            Err(mut entry) => {
                // A part of it is in flight, which was counted out: it cannot be. It waits.
                entry.ended = false;
                if let Ok(send) = self.sends.insert(entry) {
                    self.settle_send(send);
                }
                None
            }
        }
    }

    /// An operation of a peer's is over: another may have its place.
    fn over(&mut self, id: Id) {
        self.ended(id);
        self.release(id);
        self.has_place();
    }

    /// An operation of a peer's is none any more.
    pub(super) fn ended(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id) {
            state.operations = state.operations.saturating_sub(1);
        }
    }

    /// A peer's state is news.
    pub(super) fn tell(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id)
            && state.told
        {
            // As many as peers: each is in it once.
            state.told = self.news.push_back(id).is_err();
            self.wake_at = 0;
        }
    }

    /// A peer is lost: whatever is under way with it fails, as soon as the device has let go of it.
    pub(super) fn lose(&mut self, id: Id, why: Why) {
        let Some(state) = self.peers.get_mut(id).filter(|state| !state.is_lost()) else { return };
        let telling = state.telling;
        state.standing = Standing::Lost(why);
        (state.queue, state.due, state.streams) = ([None; 2], 0, 0);
        while let Some(slot) = self.peers.get_mut(id).and_then(|state| state.held.pop()) {
            self.repost(slot);
        }
        // The next messages in order are whole if they are all here, and their sender only was not told.
        for sequence in (0..OPERATIONS as u32).map(|ahead| telling.wrapping_add(ahead)) {
            let Some(inbound) = self.message(id, sequence) else { break };
            let Some(entry) = self.inbound.get_mut(inbound) else { break };
            let whole = entry.received >= entry.total && entry.failed.is_none();
            if !whole {
                break;
            }
            entry.due = Due::Nothing;
            self.settle_inbound(inbound);
        }
        for index in 0..OPERATIONS as u16 {
            if let Some(send) = self.sends.at(index)
                && let Some(entry) = self.sends.get_mut(send).filter(|entry| entry.peer == id)
            {
                // One whose packets are in flight may have arrived: nobody can tell any more.
                if !entry.ended {
                    entry.failed.get_or_insert(why);
                }
                entry.stage = Stage::Done;
                self.settle_send(send);
            }
            if let Some(inbound) = self.inbound.at(index)
                && let Some(entry) = self.inbound.get_mut(inbound).filter(|entry| entry.peer == id && !entry.ended)
            {
                entry.failed = entry.failed.filter(|why| !matches!(why, Why::Truncated { .. })).or(Some(why));
                entry.due = Due::Nothing;
                self.settle_inbound(inbound);
            }
        }
        // What waits to be tried again is not.
        for index in 0..MAX_SLOTS as u16 {
            if self.slots.sent(index).is_some_and(|sent| sent.peer == id)
                && let Some((head, payload)) = self.slots.take_waiting(index)
            {
                drop(payload);
                self.packet_out(index, Some(head), None);
            }
        }
        // Who is there is told.
        if matches!(why, Why::Removed | Why::Closed | Why::Violation(_))
            && let Some(state) = self.peers.get_mut(id).filter(|state| state.place != NO_PLACE)
        {
            state.bye_due = true;
            self.attend(id);
        }
        self.tell(id);
    }

    /// Nobody uses a peer's name any more: it goes once all was told.
    pub(super) fn forget(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id) {
            state.removed = true;
        }
        self.release(id);
    }

    /// Lets go of a peer whose name is not used any more, after its last completion.
    pub(super) fn release(&mut self, id: Id) {
        let over = self.peers.get(id).is_some_and(|state| {
            state.removed && state.told && !state.bye_due && state.operations == 0 && state.in_flight == 0
        });
        if over {
            self.peers.remove(id);
        }
    }

    /// The queue pair is beyond use: everything fails.
    pub(super) fn die(&mut self, why: Why) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(why);
        self.wake_at = 0;
        for index in 0..PEERS as u16 {
            if let Some(id) = self.peers.at(index) {
                self.lose(id, why);
            }
        }
    }

    /// Ends it: everything under way fails with [`Why::Closed`], as an event each, and the queue pair is shut down in R34's
    /// order, until nothing is in flight or `expired` says so.
    ///
    /// # Errors
    /// What the device answered; what it still has is then lost to the program, with its memory, and everything else was an
    /// event.
    pub fn close(
        mut self,
        mut expired: impl FnMut() -> bool,
        mut sink: impl FnMut(Told<S, T>),
    ) -> Result<Shutdown, Error> {
        for index in 0..PEERS as u16 {
            if let Some(id) = self.peers.at(index) {
                self.lose(id, Why::Closed);
            }
        }
        // What is in flight ends, and peers are told, as far as there is time.
        while !expired() && self.dead.is_none() {
            if let Some(event) = self.poll(0) {
                sink(event);
            }
            if self.peers.iter().all(|(_, state)| state.in_flight == 0 && !state.bye_due) {
                break;
            }
        }
        self.die(Why::Closed);
        while let Some(event) = self.next_ended() {
            sink(event);
        }
        let Self { endpoint, peers, mut sends, mut inbound, slots, .. } = self;
        let ended = endpoint.shut_down(expired, |event| {
            let (Some(token), mut buffers) = (event.token(), event.into_buffers()) else { return };
            if token.0 & !u64::from(u32::MAX) == super::emit::READ
                && let (Some(slice), Some(entry)) =
                    (buffers.take_slice(), inbound.get_mut(Id::from_bits(token.0 as u32)))
            {
                entry.parts[0] = super::tables::join(entry.parts[0].take(), Some(slice));
            }
        });
        let ended = ended?;
        for (peer, token, source) in slots.into_messages() {
            let why = peers.get(peer).and_then(|state| state.lost()).unwrap_or(Why::Closed);
            sink(Event::Failed { token, peer: Some(PeerId(peer)), why, buffer: Returned::Source(source) });
        }
        for index in 0..OPERATIONS as u16 {
            if let Some(entry) = sends.at(index).and_then(|send| sends.remove(send))
                && let Ok(Some(event)) = entry.into_event()
            {
                sink(event);
            }
            if let Some(entry) = inbound.at(index).and_then(|entry| inbound.remove(entry))
                && let Some(event) = entry.into_event()
            {
                sink(event);
            }
        }
        Ok(ended)
    }
}
