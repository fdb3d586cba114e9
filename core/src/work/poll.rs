//! From completion entries to events.
//!
//! An entry is believed as far as it is checked: its queue pair, generation, queue and request must be those
//! of something in flight, else it is counted as stale and skipped (R20).

#![allow(unsafe_code)]

use super::event::{Cause, Done, Event, Failure, Kind, Received, UnsolicitedWrite, WriteArrived};
use crate::entry::{completion_flags as flags, control1};
use crate::memory::Buffers;
use crate::peer::Sender;
use crate::provider::Provider;
use crate::qp::{Completions, Inner, QpType};
use crate::ring::{Entry, Finished, Next};
use crate::status::CompletionStatus;
use crate::{Ahn, Gid, Qpn, Token};

impl<P: Provider> Inner<P> {
    #[inline]
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.provider.progress();
        self.announce_forgotten();
        self.poll_ready()
    }

    /// A batch that was forgotten goes out now, or what waits for it would wait for ever; and whatever is staged
    /// next counts on it, as the doorbell counts entries.
    #[inline(always)]
    pub(crate) fn announce_forgotten(&mut self) {
        if self.send.staged() != 0 {
            self.send.announce();
        }
    }

    /// What is in its own completion queues, without the device's taking a turn.
    #[inline]
    pub(crate) fn poll_ready(&mut self) -> Option<Event> {
        match &mut self.completions {
            Completions::Own { turn, .. } => {
                *turn = !*turn;
                if *turn {
                    self.poll_recv().or_else(|| self.poll_send())
                } else {
                    self.poll_send().or_else(|| self.poll_recv())
                }
            }
            Completions::One(_) => self.poll_both(),
            Completions::Grouped => None,
        }
    }

    // Each event is made where it is returned: it is large, and every detour moves it.

    #[inline]
    fn poll_send(&mut self) -> Option<Event> {
        loop {
            let Completions::Own { send, .. } = &mut self.completions else { return None };
            match send.next() {
                Next::Empty => return None,
                Next::Good(entry) => match self.send.end(&entry) {
                    Some(finished) => return Some(done(entry.op(), take(finished))),
                    None => self.count_stale(),
                },
                Next::Other(entry) => {
                    if let Some(event) = self.odd_send(entry) {
                        return Some(event);
                    }
                }
            }
        }
    }

    #[inline]
    fn poll_recv(&mut self) -> Option<Event> {
        loop {
            let Completions::Own { recv, .. } = &mut self.completions else { return None };
            match recv.next() {
                Next::Empty => return None,
                Next::Good(entry) => match self.recv.end(entry.req_id()) {
                    Some(finished) => return Some(self.arrived(entry, take(finished))),
                    None => self.count_stale(),
                },
                Next::Other(entry) => {
                    if let Some(event) = self.odd_recv(entry) {
                        return Some(event);
                    }
                }
            }
        }
    }

    #[inline(never)]
    fn poll_both(&mut self) -> Option<Event> {
        loop {
            let Completions::One(queue) = &mut self.completions else { return None };
            match queue.next() {
                Next::Empty => return None,
                Next::Good(entry) => {
                    if let Some(event) = self.good(entry) {
                        return Some(event);
                    }
                }
                Next::Other(entry) => {
                    if let Some(event) = self.odd(entry) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// A success of this queue pair, of either queue.
    #[inline]
    pub(crate) fn good(&mut self, entry: Entry) -> Option<Event> {
        match entry.flags() & flags::QUEUE_MASK {
            flags::QUEUE_SEND => {
                if let Some(finished) = self.send.end(&entry) {
                    return Some(done(entry.op(), take(finished)));
                }
            }
            flags::QUEUE_RECV => {
                if let Some(finished) = self.recv.end(entry.req_id()) {
                    return Some(self.arrived(entry, take(finished)));
                }
            }
            _ => {}
        }
        self.count_stale();
        None
    }

    /// Of either queue, what is not simply good.
    #[cold]
    pub(crate) fn odd(&mut self, entry: Entry) -> Option<Event> {
        match entry.flags() & flags::QUEUE_MASK {
            flags::QUEUE_SEND => self.odd_send(entry),
            flags::QUEUE_RECV => self.odd_recv(entry),
            _ => {
                self.count_stale();
                None
            }
        }
    }

    /// A completion of nothing in flight here.
    #[cold]
    fn count_stale(&mut self) {
        self.stats.stale = self.stats.stale.saturating_add(1);
    }

    #[inline]
    fn arrived(&mut self, entry: Entry, done: Done) -> Event {
        let Done { token, buffers } = done;
        match entry.op() {
            control1::OP_SEND => {
                let (len, room) = (usize::from(entry.length()), buffers.bytes());
                let header = self.identity.qp_type.header();
                if len > room {
                    let cause = Cause::LengthBeyondBuffers { reported: len, room };
                    return self.failed(cause, Kind::Recv, Some(token), buffers);
                }
                if len < header.into() {
                    let cause = Cause::LengthBelowHeader { reported: len, header: header.into() };
                    return self.failed(cause, Kind::Recv, Some(token), buffers);
                }
                let from = self.sender(&entry);
                Event::Received(Received { token, len, header, imm: entry.imm(), from, buffers })
            }
            op => match entry.imm().filter(|_| self.is_write(op)) {
                Some(imm) => {
                    let (len, from) = (self.written(&entry), self.sender(&entry));
                    Event::WriteArrived(WriteArrived { token, imm, len, from, buffers })
                }
                None => self.failed(Cause::Malformed { op }, Kind::Recv, Some(token), buffers),
            },
        }
    }

    /// A send completion that is not simply good: an error, or not ours.
    #[cold]
    fn odd_send(&mut self, entry: Entry) -> Option<Event> {
        let ours = entry.qpn() == self.identity.qpn.0
            && entry.flags() & (flags::QUEUE_MASK | flags::UNSOLICITED) == flags::QUEUE_SEND;
        let Some(finished) = ours.then(|| self.send.end_failed(&entry)).flatten() else {
            self.count_stale();
            return None;
        };
        // What was posted tells the kind: in an error the completion's own may mean nothing.
        let kind = match finished.op {
            control1::OP_RDMA_READ => Kind::Read,
            control1::OP_RDMA_WRITE => Kind::Write,
            _ => Kind::Send,
        };
        let Done { token, buffers } = take(finished);
        let status = CompletionStatus::from_number(entry.status());
        if status == CompletionStatus::LocalQpInternalError {
            // The queue pair is beyond use: what is posted from now on is refused, and this is why, whatever
            // failed before and left it usable (R40).
            if !self.send.has_failed() {
                self.cause = None;
            }
            self.send.fail();
        }
        Some(self.failed(Cause::Status(status), kind, Some(token), buffers))
    }

    /// A receive completion that is not simply good: an error, an unsolicited arrival, or not ours.
    #[cold]
    fn odd_recv(&mut self, entry: Entry) -> Option<Event> {
        let ours = entry.qpn() == self.identity.qpn.0 && entry.flags() & flags::QUEUE_MASK == flags::QUEUE_RECV;
        let status = CompletionStatus::from_number(entry.status());
        if ours && entry.flags() & flags::UNSOLICITED != 0 {
            // No request, so no generation: nothing here can tell a stale one (R20, R22).
            self.unsolicited_read();
            if status != CompletionStatus::Ok {
                return Some(self.failed(Cause::Status(status), Kind::Recv, None, Buffers::default()));
            }
            return Some(match entry.imm().filter(|_| self.is_write(entry.op())) {
                Some(imm) => {
                    let (len, from) = (self.written(&entry), self.sender(&entry));
                    Event::UnsolicitedWrite(UnsolicitedWrite { imm, len, from })
                }
                None => {
                    let cause = Cause::Malformed { op: entry.op() };
                    self.failed(cause, Kind::Recv, None, Buffers::default())
                }
            });
        }
        let Some(finished) = ours.then(|| self.recv.end(entry.req_id())).flatten() else {
            self.count_stale();
            return None;
        };
        let Done { token, buffers } = take(finished);
        Some(self.failed(Cause::Status(status), Kind::Recv, Some(token), buffers))
    }

    fn failed(&mut self, cause: Cause, kind: Kind, token: Option<Token>, buffers: Buffers) -> Event {
        let failure = Failure { cause, kind, token, qpn: self.identity.qpn };
        if failure.is_flush() {
            self.stats.flushed = self.stats.flushed.saturating_add(1);
        } else if self.cause.is_none() {
            self.cause = Some(failure);
        }
        Event::Failed { failure, buffers }
    }

    #[inline]
    fn sender(&self, entry: &Entry) -> Sender {
        let (ahn, qpn) = (Ahn(entry.ah()), Qpn(entry.src_qpn()));
        if ahn != Ahn::UNKNOWN {
            return Sender::Known { ahn, qpn };
        }
        // The GID shares its bytes with the length of a write (R24).
        let reported = self.reports_gid && entry.op() == control1::OP_SEND;
        Sender::Unknown { gid: reported.then(|| Gid(entry.gid())).filter(|gid| !gid.is_zero()), qpn }
    }

    /// Whether an arrival is an RDMA write, as it cannot be on UD.
    fn is_write(&self, op: u8) -> bool {
        op == control1::OP_RDMA_WRITE && self.identity.qp_type == QpType::Srd
    }

    fn written(&self, entry: &Entry) -> Option<u32> {
        self.reports_gid.then(|| u32::from(entry.length_hi()) << 16 | u32::from(entry.length()))
    }
}

#[inline(always)]
fn done(op: u8, done: Done) -> Event {
    match op {
        control1::OP_RDMA_WRITE => Event::Written(done),
        control1::OP_RDMA_READ => Event::Read(done),
        _ => Event::Sent(done),
    }
}

#[inline(always)]
fn take(finished: Finished) -> Done {
    let Finished { token, tag, buffers, .. } = finished;
    // SAFETY: its exact completion arrived, after the device's last access to its buffers by the provider's
    // contract, and the slot was ended once.
    Done { token: Token(token), buffers: unsafe { Buffers::from_raw(buffers, tag) } }
}
