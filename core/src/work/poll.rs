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
use crate::ring::{Consumed, Entry, Finished, InFlight, Rest};
use crate::status::CompletionStatus;
use crate::{Ahn, Gid, Qpn, Token};

impl<P: Provider> Inner<P> {
    #[inline(always)]
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.provider.progress();
        self.announce_forgotten();
        if !P::HAS_CQ_DOORBELL {
            return self.poll_ready();
        }
        let event = self.poll_ready();
        self.tell_consumed();
        event
    }

    /// A batch that was forgotten goes out now, or what waits for it would wait for ever; and whatever is staged
    /// next counts on it, as the doorbell counts entries.
    #[inline(always)]
    pub(crate) fn announce_forgotten(&mut self) {
        if self.send.batch_is_open() {
            self.announce_staged();
        }
    }

    /// What is in its own completion queues, without the device's taking a turn.
    #[inline(always)]
    pub(crate) fn poll_ready(&mut self) -> Option<Event> {
        self.collect();
        let Completions::Own { send, recv, turn } = &mut self.completions else { return self.poll_shared() };
        match (recv.peek(), send.peek()) {
            // Whose turn it is goes first, lest one keep the other waiting.
            (Some(seen), other) if *turn || other.is_none() => {
                *turn = false;
                let Consumed { entry, good } = recv.consume(seen);
                // Of its own generation, as this queue compares that.
                let header = self.identity.header;
                match self.recv.in_flight(entry.req_id()).filter(|receive| good && is_plain(&entry, receive, header)) {
                    Some(receive) => received(entry, receive, header),
                    None => self.odd_recv_or_next(entry, good),
                }
            }
            (_, Some(seen)) => {
                *turn = true;
                let Consumed { entry, good } = send.consume(seen);
                match self.send.in_flight(&entry).filter(|_| good) {
                    Some(operation) => sent(entry, operation),
                    None => self.odd_send_or_next(entry, good),
                }
            }
            _ => None,
        }
    }

    /// Of its own send queue, what does not end an operation well; if it is nothing, what comes next.
    #[cold]
    fn odd_send_or_next(&mut self, entry: Entry, good: bool) -> Option<Event> {
        let event = if good { self.stale() } else { self.odd_send(entry) };
        event.or_else(|| self.poll_on())
    }

    /// Of its own receive queue, what is no plain message; if it is nothing, what comes next.
    #[cold]
    fn odd_recv_or_next(&mut self, entry: Entry, good: bool) -> Option<Event> {
        self.any_recv(entry, good).or_else(|| self.poll_on())
    }

    fn any_recv(&mut self, entry: Entry, good: bool) -> Option<Event> {
        let rest = self.completions.rest();
        if good { self.good(entry, |_| rest) } else { self.odd_recv(entry, rest) }
    }

    /// After a completion of nothing.
    #[cold]
    fn poll_on(&mut self) -> Option<Event> {
        loop {
            let Completions::Own { send, recv, .. } = &mut self.completions else { return None };
            let event = match recv.next() {
                Some(Consumed { entry, good }) => self.any_recv(entry, good),
                None => match send.next()? {
                    Consumed { entry, good: true } => self.good(entry, |_| Rest::NONE),
                    Consumed { entry, good: false } => self.odd_send(entry),
                },
            };
            if event.is_some() {
                return event;
            }
        }
    }

    #[inline(never)]
    fn poll_shared(&mut self) -> Option<Event> {
        loop {
            let Completions::One(queue) = &mut self.completions else { return None };
            let Consumed { entry, good } = queue.next()?;
            if good {
                if let Some(event) = self.good(entry, |inner| inner.completions.rest()) {
                    return Some(event);
                }
            } else if let Some(event) = self.odd(entry, self.completions.rest()) {
                return Some(event);
            }
        }
    }

    /// A success of this queue pair, of either queue. `rest` is asked only where it matters.
    #[inline(always)]
    pub(crate) fn good(&mut self, entry: Entry, rest: impl FnOnce(&Self) -> Rest) -> Option<Event> {
        match entry.flags() & flags::QUEUE_MASK {
            flags::QUEUE_SEND => {
                if let Some(operation) = self.send.current(&entry) {
                    return sent(entry, operation);
                }
            }
            flags::QUEUE_RECV => {
                let header = self.identity.header;
                if let Some(receive) = self.recv.current(entry.req_id()) {
                    if is_plain(&entry, &receive, header) {
                        return received(entry, receive, header);
                    }
                    let rest = rest(self);
                    return self.arrived(entry, rest);
                }
            }
            _ => {}
        }
        self.stale()
    }

    /// Of either queue, what is not simply good.
    #[cold]
    pub(crate) fn odd(&mut self, entry: Entry, rest: Rest) -> Option<Event> {
        match entry.flags() & flags::QUEUE_MASK {
            flags::QUEUE_SEND => self.odd_send(entry),
            flags::QUEUE_RECV => self.odd_recv(entry, rest),
            _ => self.stale(),
        }
    }

    /// A completion of nothing in flight here.
    #[cold]
    fn stale(&mut self) -> Option<Event> {
        self.stats.stale = self.stats.stale.saturating_add(1);
        None
    }

    /// Any arrival.
    #[cold]
    fn arrived(&mut self, entry: Entry, rest: Rest) -> Option<Event> {
        let Done { token, buffers } = take(self.recv.current(entry.req_id())?.finish());
        Some(match entry.op() {
            control1::OP_SEND => {
                let (len, room) = (usize::from(entry.length()), buffers.bytes());
                let header = self.identity.header;
                if len > room {
                    let cause = Cause::LengthBeyondBuffers { reported: len, room };
                    return Some(self.failed(cause, Kind::Recv, Some(token), buffers));
                }
                if len < header.into() {
                    let cause = Cause::LengthBelowHeader { reported: len, header: header.into() };
                    return Some(self.failed(cause, Kind::Recv, Some(token), buffers));
                }
                let from = self.sender(&entry, &rest);
                Event::Received(Received { token, len, header, imm: entry.imm(), from, buffers })
            }
            op => match entry.imm().filter(|_| self.is_write(op)) {
                Some(imm) => {
                    let (len, from) = (self.written(&entry, &rest), self.sender(&entry, &rest));
                    Event::WriteArrived(WriteArrived { token, imm, len, from, buffers })
                }
                None => self.failed(Cause::Malformed { op }, Kind::Recv, Some(token), buffers),
            },
        })
    }

    /// A send completion that is not simply good: an error, or not ours.
    #[cold]
    fn odd_send(&mut self, entry: Entry) -> Option<Event> {
        let ours = entry.qpn() == self.identity.qpn.0
            && entry.flags() & (flags::QUEUE_MASK | flags::UNSOLICITED) == flags::QUEUE_SEND;
        let Some(finished) = ours.then(|| self.send.end_failed(&entry)).flatten() else {
            return self.stale();
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
    fn odd_recv(&mut self, entry: Entry, rest: Rest) -> Option<Event> {
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
                    let (len, from) = (self.written(&entry, &rest), self.sender(&entry, &rest));
                    Event::UnsolicitedWrite(UnsolicitedWrite { imm, len, from })
                }
                None => {
                    let cause = Cause::Malformed { op: entry.op() };
                    self.failed(cause, Kind::Recv, None, Buffers::default())
                }
            });
        }
        let found = if ours { self.recv.current(entry.req_id()) } else { None };
        let Some(receive) = found else {
            return self.stale();
        };
        let Done { token, buffers } = take(receive.finish());
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

    fn sender(&self, entry: &Entry, rest: &Rest) -> Sender {
        let (ahn, qpn) = (Ahn(entry.ah()), Qpn(entry.src_qpn()));
        if ahn != Ahn::UNKNOWN {
            return Sender::Known { ahn, qpn };
        }
        // The GID shares its bytes with the length of a write (R24).
        let reported = self.reports_gid && entry.op() == control1::OP_SEND;
        Sender::Unknown { gid: reported.then(|| Gid(rest.gid())).filter(|gid| !gid.is_zero()), qpn }
    }

    /// Whether an arrival is an RDMA write, as it cannot be on UD.
    fn is_write(&self, op: u8) -> bool {
        op == control1::OP_RDMA_WRITE && self.identity.qp_type == QpType::Srd
    }

    fn written(&self, entry: &Entry, rest: &Rest) -> Option<u32> {
        self.reports_gid.then(|| u32::from(rest.length_hi()) << 16 | u32::from(entry.length()))
    }
}

/// Whether an arrival is a message of a known sender that fits.
#[inline(always)]
fn is_plain(entry: &Entry, receive: &InFlight<'_>, header: u8) -> bool {
    let len = entry.length();
    entry.op() == control1::OP_SEND
        && entry.ah() != Ahn::UNKNOWN.0
        && u32::from(len) <= receive.room()
        && len >= header.into()
}

// What looks is in its caller, what makes events is not. Each is made where it is returned: it is large, and every
// detour moves it.

#[inline(never)]
fn sent(entry: Entry, operation: InFlight<'_>) -> Option<Event> {
    let done = take(operation.finish());
    Some(match entry.op() {
        control1::OP_RDMA_WRITE => Event::Written(done),
        control1::OP_RDMA_READ => Event::Read(done),
        _ => Event::Sent(done),
    })
}

#[inline(never)]
fn received(entry: Entry, receive: InFlight<'_>, header: u8) -> Option<Event> {
    let Done { token, buffers } = take(receive.finish());
    let from = Sender::Known { ahn: Ahn(entry.ah()), qpn: Qpn(entry.src_qpn()) };
    Some(Event::Received(Received { token, len: entry.length().into(), header, imm: entry.imm(), from, buffers }))
}

#[inline(always)]
fn take(finished: Finished) -> Done {
    let Finished { token, tag, buffers, .. } = finished;
    // SAFETY: its exact completion arrived, after the device's last access to its buffers by the provider's
    // contract, and the slot was ended once.
    Done { token: Token(token), buffers: unsafe { Buffers::from_raw(buffers, tag) } }
}
