//! What the device says: packets that are out, RDMA that is done, and failures.

use super::emit::{PACKET, READ, RECEIVE, WRITE};
use super::slots::{Of, Sent};
use super::tables::{Outbound, Sends, Source, Stage};
use super::{Efa, Id, Told};
use crate::fabric::{Carries, Event, PeerId, Why};
use crate::memory::{Buffers, Slice};
use crate::provider::Provider;
use crate::status::CompletionStatus;
use crate::work::{self, Done, Failure};

/// The waits before a packet that found no receive is sent again: none, then this, then twice the last, up to that; in
/// microseconds.
const NOT_READY: [u64; 2] = [40, 1_000_000];

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Takes a completion that is neither a packet that arrived nor one that is out.
    #[inline(never)]
    pub(super) fn completed(&mut self, event: work::Event) {
        let failure = match &event {
            work::Event::Written(_) | work::Event::Read(_) => None,
            work::Event::Failed { failure, .. } => Some(*failure),
            // This layer's peers write without immediates, and nothing is reclaimed here.
            _ => return,
        };
        if let Some(token) = event.token() {
            self.resolve(token.0, event.into_buffers(), failure);
        }
    }

    /// What became of an operation of the device's.
    fn resolve(&mut self, token: u64, mut buffers: Buffers, failure: Option<Failure>) {
        let low = token as u32;
        match token & !u64::from(u32::MAX) {
            RECEIVE => {
                if let Some(slot) =
                    buffers.take_slice().filter(|_| failure.is_some_and(|failure| !self.is_end(&failure)))
                {
                    self.repost(slot);
                }
            }
            PACKET => {
                let (index, mut buffers) = (low as u16, buffers);
                let head = buffers.take_slice();
                let not_ready = |failure: &Failure| failure.status() == Some(CompletionStatus::RemoteRnr);
                match (failure, head) {
                    (Some(failure), Some(head)) if not_ready(&failure) => {
                        if let Some(head) = self.wait(index, head, &mut buffers) {
                            self.packet_out(index, Some(head), Some(failure));
                        }
                    }
                    (_, head) => {
                        // What else was sent goes before the operation that it is of is looked at.
                        drop(buffers);
                        self.packet_out(index, head, failure);
                    }
                }
            }
            READ => {
                let len = buffers.bytes();
                let slice = buffers.take_slice();
                self.read_done(Id::from_bits(low), slice, len, failure);
            }
            WRITE => {
                let len = buffers.bytes();
                drop(buffers);
                self.write_done(Id::from_bits(low), len, failure);
            }
            _ => {}
        }
        if let Some(failure) = failure.filter(|failure| self.is_end(failure)) {
            self.die(Why::Device(self.endpoint.cause().copied().unwrap_or(failure)));
        }
    }

    /// Whether the queue pair ended, or its device failed it.
    fn is_end(&self, failure: &Failure) -> bool {
        failure.is_flush() || failure.status() == Some(CompletionStatus::LocalQpInternalError)
    }

    /// Has a packet that found no receive wait; gives it back if it is nobody's.
    fn wait(&mut self, index: u16, head: Slice, buffers: &mut Buffers) -> Option<Slice> {
        let Some(sent) = self.slots.sent(index) else { return Some(head) };
        let alive = self.peers.get(sent.peer).is_some_and(|state| !state.is_lost());
        if !alive || matches!(sent.of, Of::Write(_)) {
            return Some(head);
        }
        let [first, last] = NOT_READY;
        let delay = match self.slots.not_ready(index) {
            0 => 0,
            attempts => first.checked_shl(u32::from(attempts) - 1).unwrap_or(last).min(last),
        };
        self.slots.wait(index, head, buffers.next(), self.now.saturating_add(delay));
        self.wake_at = 0;
        self.counters.not_ready += 1;
        None
    }

    /// Sends again what waited long enough.
    pub(super) fn try_again(&mut self) {
        while self.endpoint.can_post() {
            let Some(index) = self.slots.due(self.now) else { return };
            let Some(peer) = self.slots.sent(index).map(|sent| sent.peer) else { return };
            let Some((head, payload)) = self.slots.take_waiting(index) else { return };
            if let Err((head, _, error)) = self.post(peer, index, head, payload) {
                self.die(Why::Refused(error));
                return self.packet_out(index, Some(head), None);
            }
        }
    }

    /// A packet is with its peer: its slot is free, and what it was all of is over.
    #[inline(always)]
    #[allow(clippy::question_mark)] // which would move what is large once more
    pub(super) fn sent(&mut self, done: Done) -> Option<Told<S, T>> {
        let index = done.token.0 as u16;
        let Some(Sent { peer, of }) = self.slots.finish(index, done.buffers.into_slice()) else { return None };
        let up = match self.peers.get_mut(peer) {
            Some(state) => {
                state.in_flight = state.in_flight.saturating_sub(1);
                state.is_up()
            }
            None => false,
        };
        if let Of::Message { token, shrunk: false } = of
            && up
            && let Some(source) = self.slots.take_source(index)
        {
            self.has_place();
            return Some(Event::Sent { token, to: Some(PeerId(peer)), source });
        }
        self.over_with(index, peer, of, None);
        None
    }

    /// A packet is out, or never will be: its slot is free.
    pub(super) fn packet_out(&mut self, index: u16, head: Option<Slice>, failure: Option<Failure>) {
        let bytes = head.as_ref().map_or(0, |head| head.len());
        let Some(sent) = self.slots.finish(index, head) else { return };
        if let Of::Write(send) = sent.of {
            return self.write_done(send, bytes, failure);
        }
        if let Some(state) = self.peers.get_mut(sent.peer) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        self.over_with(index, sent.peer, sent.of, failure);
    }

    /// What a packet was of, which is out or never will be, goes on, or ends.
    #[inline(never)]
    fn over_with(&mut self, index: u16, peer: Id, of: Of, failure: Option<Failure>) {
        let send = match of {
            Of::Message { token, shrunk } => self.slots.take_source(index).and_then(|source| {
                let mut entry = Outbound::new(peer, token, Sends::Message(0), Source::Memory(source), 0, Stage::Done);
                let lost = self.peers.get(peer).and_then(|state| state.lost());
                entry.failed = if shrunk { Some(Why::Shrunk) } else { lost };
                self.insert_send(entry)
            }),
            Of::Outbound(send) => {
                if let Some(entry) = self.sends.get_mut(send) {
                    entry.in_flight = entry.in_flight.saturating_sub(1);
                }
                Some(send)
            }
            Of::Write(_) | Of::Nothing => None,
        };
        if let Some(failure) = failure
            && let Some(entry) = send.and_then(|send| self.sends.get_mut(send))
        {
            entry.failed.get_or_insert(Why::Device(failure));
        }
        if let Some(failure) = failure.filter(|failure| !self.is_end(failure)) {
            // A packet that is lost leaves a hole that nothing can fill.
            self.lose(peer, Why::Device(failure));
        }
        if let Some(send) = send {
            self.settle_send(send);
        }
        self.release(peer);
    }

    /// A write is done, or failed.
    fn write_done(&mut self, send: Id, len: usize, failure: Option<Failure>) {
        let Some(entry) = self.sends.get_mut(send) else { return };
        let peer = entry.peer;
        entry.in_flight = entry.in_flight.saturating_sub(1);
        if let Some(state) = self.peers.get_mut(peer) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        match failure {
            Some(failure) => {
                entry.failed.get_or_insert(Why::Device(failure));
            }
            None => self.counters.written += len as u64,
        }
        self.settle_write(send);
        if let Some(failure) = failure {
            self.judge(peer, failure);
        }
        self.attend(peer);
    }

    /// What a failure of RDMA says of the peer: that it is gone, or only that it opened no such memory.
    pub(super) fn judge(&mut self, peer: Id, failure: Failure) {
        let memory = matches!(
            failure.status(),
            Some(
                CompletionStatus::RemoteBadAddress
                    | CompletionStatus::RemoteBadLength
                    | CompletionStatus::LocalInvalidLkey
            )
        );
        if !memory && !self.is_end(&failure) {
            self.lose(peer, Why::Device(failure));
        }
    }
}
