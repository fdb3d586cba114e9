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
use crate::qp::{Are, Completions, Inner, QpKind, QpType};
use crate::ring::{CompletionQueue, Consumed, Entry, Finished, InFlight, Rest, Seen, Taken};
use crate::status::CompletionStatus;
use crate::{Ahn, Gid, Qpn, Token};

impl<P: Provider> Inner<P> {
    #[inline(always)]
    pub(crate) fn poll<K: QpKind>(&mut self) -> Option<Event> {
        self.provider.progress();
        if !P::HAS_CQ_DOORBELL {
            return self.poll_ready::<K>();
        }
        let event = self.poll_ready::<K>();
        self.tell_consumed();
        event
    }

    /// What is in its own completion queues, without the device's taking a turn.
    #[inline(always)]
    pub(crate) fn poll_ready<K: QpKind>(&mut self) -> Option<Event> {
        let Completions { send, recv, sends_first, .. } = &mut self.completions;
        if *sends_first {
            if let Some(seen) = send.peek() {
                return self.next_send(seen);
            }
            if let Some(seen) = recv.peek() {
                *sends_first = false;
                return self.next_recv::<K>(seen);
            }
        } else {
            if let Some(seen) = recv.peek() {
                return self.next_recv::<K>(seen);
            }
            if let Some(seen) = send.peek() {
                *sends_first = true;
                return self.next_send(seen);
            }
        }
        // Each call from here on is the last that is made, which costs no registers.
        if self.goes_by_calls() { self.poll_on() } else { None }
    }

    /// Of its own send queue, what was seen; if it is nothing, what comes next.
    ///
    /// No event is made elsewhere than where it is returned: it is large, and every detour moves it.
    #[inline(always)]
    fn next_send(&mut self, seen: Seen) -> Option<Event> {
        let Completions { send, sends_first, .. } = &mut self.completions;
        let taken = send.consume(seen, || *sends_first = false);
        if let Some(entry) = send.plain(taken) {
            // Of its own generation, as this queue compares that.
            if let Some(operation) = self.send.in_flight(&entry, control1::OP_SEND) {
                return Some(sent(operation));
            }
        }
        self.next_rdma(taken)
    }

    /// Of its own receive queue, or of that for both, what was seen; if it is nothing, what comes next.
    #[inline(always)]
    fn next_recv<K: QpKind>(&mut self, seen: Seen) -> Option<Event> {
        let Completions { recv, are, sends_first, .. } = &mut self.completions;
        let taken = recv.consume(seen, || *sends_first = true);
        let header = K::TYPE.header();
        if let Some(entry) = recv.plain(taken).filter(|_| *are == Are::Two)
            && let Some(receive) = self.recv.in_flight(entry.req_id())
            && is_plain(&entry, &receive, header)
        {
            return Some(received(&entry, receive, header));
        }
        self.any_or_next::<K>(taken)
    }

    /// Of its own send queue, what is no good SEND.
    #[inline(never)]
    fn next_rdma(&mut self, taken: Taken) -> Option<Event> {
        let Consumed { entry, good } = self.completions.send.decoded(taken);
        if good
            && entry.op() == control1::OP_RDMA_WRITE
            && let Some(operation) = self.send.in_flight(&entry, control1::OP_RDMA_WRITE)
        {
            return Some(written(operation));
        }
        if good
            && entry.op() == control1::OP_RDMA_READ
            && let Some(operation) = self.send.in_flight(&entry, control1::OP_RDMA_READ)
        {
            return Some(read(operation));
        }
        self.odd_send_or_next(entry, good)
    }

    /// Of its own send queue, what does not end an operation well; if it is nothing, what comes next.
    #[cold]
    fn odd_send_or_next(&mut self, entry: Entry, good: bool) -> Option<Event> {
        let event = if good { self.stale() } else { self.odd_send(entry) };
        event.or_else(|| self.poll_on())
    }

    /// Of the queue for both, or what is no plain message; if it is nothing, what comes next.
    #[inline(never)]
    fn any_or_next<K: QpKind>(&mut self, taken: Taken) -> Option<Event> {
        let Completions { recv, are, .. } = &self.completions;
        if *are == Are::One {
            // Its number and generation are compared with the queue pair's here, as far as the queue does not.
            if let Some(entry) = recv.plain(taken)
                && let Some(event) = self.plain::<K, _>(&entry, |event| event)
            {
                return Some(event);
            }
        }
        let consumed = self.completions.recv.decoded(taken);
        match self.any_recv(consumed) {
            Some(event) => Some(event),
            None => self.poll_on(),
        }
    }

    /// What comes next, however long that takes.
    #[cold]
    #[inline(never)]
    fn poll_on(&mut self) -> Option<Event> {
        loop {
            let event = match self.completions.recv.next() {
                Some(consumed) => self.any_recv(consumed),
                None => match self.completions.send.next() {
                    Some(Consumed { entry, good: true }) => self.good(entry, Rest::NONE),
                    Some(Consumed { entry, good: false }) => self.odd_send(entry),
                    None if self.collects_more() => continue,
                    None => return None,
                },
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Whether there is more in its completion queues, which seemed to be empty.
    fn collects_more(&mut self) -> bool {
        if !self.goes_by_calls() {
            return false;
        }
        self.collect();
        !(self.completions.recv.is_empty() && self.completions.send.is_empty())
    }

    /// Of its own receive queue, or of that for both, what was consumed.
    fn any_recv(&mut self, Consumed { entry, good }: Consumed) -> Option<Event> {
        let rest = self.completions.recv.rest();
        match good {
            true => self.good(entry, rest),
            // What is in a queue for receives alone is taken for nothing else.
            false if self.completions.are == Are::Two => self.odd_recv(entry, rest),
            false => self.odd(entry, rest),
        }
    }

    /// Of a completion queue that others' completions are in too, what was consumed of this queue pair.
    pub(crate) fn any(&mut self, Consumed { entry, good }: Consumed, queue: &CompletionQueue) -> Option<Event> {
        if good { self.good(entry, queue.rest()) } else { self.odd(entry, queue.rest()) }
    }

    /// A plain completion of this queue pair, of either queue, as what `make` makes of its event; `None` if it is another one,
    /// or of nothing: then nothing was done.
    #[inline(always)]
    pub(crate) fn plain<K: QpKind, R>(&mut self, entry: &Entry, make: impl FnOnce(Event) -> R) -> Option<R> {
        let kind = entry.flags() & flags::QUEUE_MASK;
        if kind == flags::QUEUE_SEND {
            let operation = self.send.current(entry, control1::OP_SEND)?;
            return Some(make(sent(operation)));
        }
        if kind != flags::QUEUE_RECV {
            return None;
        }
        let receive = self.recv.current(entry.req_id())?;
        let header = K::TYPE.header();
        if is_plain(entry, &receive, header) { Some(make(received(entry, receive, header))) } else { None }
    }

    /// A success of this queue pair, of either queue.
    #[inline(never)]
    fn good(&mut self, entry: Entry, rest: Rest) -> Option<Event> {
        if entry.flags() & flags::QUEUE_MASK == flags::QUEUE_SEND {
            let op = entry.op();
            return match self.send.current(&entry, op) {
                Some(operation) if op == control1::OP_SEND => Some(sent(operation)),
                Some(operation) if op == control1::OP_RDMA_WRITE => Some(written(operation)),
                Some(operation) if op == control1::OP_RDMA_READ => Some(read(operation)),
                _ => self.stale(),
            };
        }
        if entry.flags() & flags::QUEUE_MASK == flags::QUEUE_RECV && self.recv.current(entry.req_id()).is_some() {
            return self.arrived(entry, rest);
        }
        self.stale()
    }

    /// Of either queue, what is not simply good.
    #[cold]
    fn odd(&mut self, entry: Entry, rest: Rest) -> Option<Event> {
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

/// Whether a SEND that arrived is of a known sender, and fits.
#[inline(always)]
fn is_plain(entry: &Entry, receive: &InFlight<'_>, header: u8) -> bool {
    let len = entry.length();
    entry.ah() != Ahn::UNKNOWN.0 && u32::from(len) <= receive.room() && len >= header.into()
}

// Each with the variant that it makes, from parts: a whole `Done` would be moved into it.

#[inline(always)]
fn sent(operation: InFlight<'_>) -> Event {
    let Done { token, buffers } = take(operation.finish());
    Event::Sent(Done { token, buffers })
}

#[inline(always)]
fn written(operation: InFlight<'_>) -> Event {
    let Done { token, buffers } = take(operation.finish());
    Event::Written(Done { token, buffers })
}

#[inline(always)]
fn read(operation: InFlight<'_>) -> Event {
    let Done { token, buffers } = take(operation.finish());
    Event::Read(Done { token, buffers })
}

#[inline(always)]
fn received(entry: &Entry, receive: InFlight<'_>, header: u8) -> Event {
    let Done { token, buffers } = take(receive.finish());
    let from = Sender::Known { ahn: Ahn(entry.ah()), qpn: Qpn(entry.src_qpn()) };
    Event::Received(Received { token, len: entry.length().into(), header, imm: entry.imm(), from, buffers })
}

#[inline(always)]
fn take(finished: Finished) -> Done {
    let Finished { token, tag, buffers, .. } = finished;
    // SAFETY: its exact completion arrived, after the device's last access to its buffers by the provider's
    // contract, and the slot was ended once.
    Done { token: Token(token), buffers: unsafe { Buffers::from_raw(buffers, tag) } }
}
