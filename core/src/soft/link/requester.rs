//! The requester's side: messages become frames, and answers end them.

use super::channel::Flight;
use super::frame::{Body, DATA, FRAME, PAYLOAD, REQUEST, Request};
use super::node::{Node, Work};
use super::operations::{OpId, Operation};
use super::take_ready;
use crate::entry::control1;
use crate::soft::engine::RNR_FOREVER;
use crate::soft::memory::{self, Source, Span};
use crate::soft::responder::{Part, scatter};
use crate::soft::tables::{Packet, State};
use crate::status::CompletionStatus as Status;
use crate::{Caps, Gid};

/// Microseconds until a message that found no receive is tried again the first time; then twice as long each time.
const RNR_WAIT: u64 = 500;
const MAX_RNR_DOUBLINGS: u8 = 6;

impl State {
    fn node(&mut self, index: usize) -> Option<&mut Node> {
        self.link.as_mut()?.nodes.get_mut(index)
    }

    fn operation(&mut self, id: OpId) -> Option<&mut Operation> {
        self.link.as_mut()?.operations.get_mut(id)
    }

    /// Puts the message at the head into the link: it is for a device of another wire.
    #[cold]
    pub(in crate::soft) fn depart(&mut self, gid: Gid) {
        let Some(packet) = self.packet_at(self.head).copied() else { return };
        let Some(nic) = self.qp(packet.qp).map(|qp| qp.nic) else { return self.pop() };
        let (is_up, ours) = (self.is_up(nic), self.gid_of(nic));
        let Some(link) = self.link.as_mut() else { return };
        if !is_up {
            let node = link.find(nic, &gid).and_then(|index| link.nodes.get(index));
            let status = node.map_or(Status::LocalUnreachRemote, Node::unanswered);
            self.pop();
            return self.conclude_packet(&packet, status);
        }
        match link.depart(nic, ours, gid, packet) {
            Ok(()) => self.pop(),
            Err(_) => self.requeue(),
        }
    }

    /// Forgets what is on its way for a queue pair, flushing each if asked.
    pub(in crate::soft) fn recall(&mut self, qp: u16, flush: bool) {
        let mut from = 0;
        while let Some(packet) = self.link.as_mut().and_then(|link| link.take(&mut from, |op| op.packet.qp == qp)) {
            if flush {
                self.send_done(qp, packet.meta(), Status::Flushed);
            }
        }
    }

    /// Nobody is at an address.
    pub(super) fn link_unreachable(&mut self, gid: Gid) {
        for index in 0..self.link.as_ref().map_or(0, |link| link.nodes.len()) {
            if self.node(index).is_some_and(|node| node.gid == gid) {
                self.close_node(index);
            }
        }
    }

    /// Ends a session, and all of ours in it.
    pub(super) fn close_node(&mut self, index: usize) {
        let Some(node) = self.node(index) else { return };
        let (nic, status) = (node.nic, node.unanswered());
        if let Some(link) = self.link.as_mut() {
            link.end(index);
        }
        let (mut from, of) = (0, index as u16);
        while let Some(packet) = self.link.as_mut().and_then(|link| link.take(&mut from, |op| op.node == of)) {
            self.counters(nic).unresponsive_remote_events += 1;
            self.conclude_packet(&packet, status);
        }
    }

    fn conclude_packet(&mut self, packet: &Packet, status: Status) {
        self.conclude(packet.qp, packet.meta(), status);
    }

    /// Ends an operation.
    fn end(&mut self, id: OpId, status: Status) {
        let Some(link) = self.link.as_mut() else { return };
        let Some(operation) = link.remove(id) else { return };
        let nic = self.qp(operation.packet.qp).map(|qp| qp.nic);
        if let Some(nic) = nic.filter(|_| status == Status::Ok) {
            self.count(nic, Part::Requester, operation.op, operation.length);
        }
        self.conclude_packet(&operation.packet, status);
    }

    /// Ends what waited too long, and wakes what waited long enough.
    fn expire(&mut self, now: u64) {
        let Some(link) = self.link.as_ref() else { return };
        let patience = link.patience;
        for index in 0..link.nodes.len() {
            while let Some(node) = self.node(index) {
                node.unpark(now);
                let old = node.sending.older_than(now, patience);
                let is_silent = now.saturating_sub(node.heard_at) >= patience;
                let nic = node.nic;
                match old {
                    Some(op) if !is_silent => {
                        // They live, but this one does not get through.
                        node.sending.forget(op);
                        self.counters(nic).unresponsive_remote_events += 1;
                        self.end(op, Status::LocalUnrespRemote);
                    }
                    None if !node.gives_up(now, patience) => break,
                    _ => {
                        if let Some(link) = self.link.as_mut() {
                            link.say_reset(index);
                        }
                        self.close_node(index);
                        break;
                    }
                }
            }
        }
    }

    /// Writes the next frame to a device that is not busy: its addressee and length.
    pub(super) fn link_transmit(&mut self, now: u64, frame: &mut [u8; FRAME], busy: &[Gid]) -> Option<(Gid, usize)> {
        self.expire(now);
        while let Some(reply) = take_ready(&mut self.link.as_mut()?.replies, busy, |reply| reply.to) {
            if self.nic_at(&reply.from).is_some_and(|nic| self.is_up(nic)) {
                return Some((reply.to, reply.seal_short(frame)));
            }
        }
        let link = self.link.as_mut()?;
        link.datagram_first = !link.datagram_first;
        let (datagram_first, nodes) = (link.datagram_first, link.nodes.len());
        if datagram_first && let Some(sent) = self.transmit_datagram(frame, busy) {
            return Some(sent);
        }
        for _ in 0..nodes {
            let link = self.link.as_mut()?;
            let index = link.turn;
            link.turn = if index + 1 < link.nodes.len() { index + 1 } else { 0 };
            let is_busy = link.nodes.get(index).is_some_and(|node| busy.contains(&node.gid));
            if !is_busy && let Some(sent) = self.transmit_of(index, now, frame) {
                return Some(sent);
            }
        }
        self.transmit_datagram(frame, busy)
    }

    /// Writes the next frame of a node.
    fn transmit_of(&mut self, index: usize, now: u64, frame: &mut [u8; FRAME]) -> Option<(Gid, usize)> {
        let node = self.node(index)?;
        let (nic, gid, busy) = (node.nic, node.gid, node.operations > 0);
        if !self.is_up(nic) {
            if busy {
                self.close_node(index);
            }
            return None;
        }
        loop {
            let link = self.link.as_mut()?;
            let node = link.nodes.get_mut(index)?;
            // Each round of this loop that gives no frame ends, or defers, something that was to be sent.
            let len = match node.next(now, &mut link.operations)? {
                Work::Hello => Some(node.frame(Body::Hello).seal_short(frame)),
                Work::Alive => Some(node.frame(Body::Alive).seal_short(frame)),
                Work::Answers => {
                    let len = node.frame(Body::Alive).seal_answers(frame, node.serving.answers());
                    node.serving.answered();
                    Some(len)
                }
                Work::Read(sequence, read) => {
                    let head = node.frame(Body::Alive);
                    let part = read.part as usize;
                    let bytes = frame.get_mut(DATA..).and_then(|rest| rest.get_mut(..part))?;
                    self.serve_read(index, sequence, &read, bytes).then(|| head.seal_data(frame, sequence, part))
                }
                Work::Again(sequence, flight) => {
                    self.counters(nic).retrans_pkts += 1;
                    self.send_part(index, flight.op, Some((sequence, flight)), now, frame)
                }
                Work::New(op) => self.send_part(index, op, None, now, frame),
            };
            if let Some(len) = len {
                return Some((gid, len));
            }
        }
    }

    /// Writes a request: a part of an operation again, or its next one. `None` if it ended, or has to wait.
    fn send_part(
        &mut self,
        index: usize,
        id: OpId,
        again: Option<(u64, Flight)>,
        now: u64,
        frame: &mut [u8; FRAME],
    ) -> Option<usize> {
        let operation = *self.operation(id)?;
        let packet = operation.packet;
        let qp = self.qp(packet.qp)?;
        let request = match self.request(qp, &packet.entry) {
            Ok(request) => request,
            Err(status) => {
                self.end(id, status);
                return None;
            }
        };
        let (is_send, is_read) = (request.op == control1::OP_SEND, request.op == control1::OP_RDMA_READ);
        let at = again.map_or(packet.done, |(_, flight)| flight.at);
        let left = request.len.saturating_sub(at).min(PAYLOAD as u32);
        let part = again.map_or(left, |(_, flight)| flight.part);
        let is_last = at.saturating_add(part) >= request.len;
        let imm = request.imm.filter(|_| is_last);
        // What is told, or counted, when its last part is there must be there as a whole.
        let told = imm.is_some() || is_last && self.config.caps.contains(Caps::COMP_CNTR);
        if again.is_none() && told && operation.pending > 0 {
            self.operation(id)?.gated = true;
            return None;
        }
        let mut data = 0;
        if !is_read {
            let out = frame.get_mut(REQUEST..).and_then(|rest| rest.get_mut(..part as usize))?;
            data = out.len();
            let mut inline = [0; _];
            let sources = self.sources(&packet, &request, &mut inline);
            let [first, second] = sources;
            let from = [first.map(|source| source.part(at as usize, usize::MAX)), second];
            scatter(from, [Some(Span::of_bytes(out)), None]);
        }
        let mut written = Request {
            sequence: 0,
            floor: 0,
            op: request.op,
            imm,
            unsolicited: qp.unsolicited,
            source: qp.qpn,
            destination: request.qpn,
            qkey: request.qkey,
            rkey: if is_send { 0 } else { request.rkey },
            length: request.len,
            address: if is_send { 0 } else { request.remote_addr },
            at,
            part,
            data: &[],
        };
        let (op, length) = (request.op, request.len);
        let node = self.node(index)?;
        written.sequence = match again {
            Some((sequence, _)) => sequence,
            None => node.sending.push(Flight { op: id, at, part, first: now, sent: now, tries: 0 }),
        };
        written.floor = node.sending.floor();
        let len = node.frame(Body::Alive).seal_request(frame, &written, data);
        if again.is_none() {
            let operation = self.operation(id)?;
            (operation.op, operation.length) = (op, length);
            operation.needs_receive = is_send || imm.is_some();
            operation.packet.done = at.saturating_add(part);
            operation.pending += 1;
            operation.all_sent = is_last;
            if !is_last {
                self.node(index)?.enqueue(id);
            }
        }
        Some(len)
    }

    /// An answer came.
    pub(super) fn answered(&mut self, index: usize, now: u64, sequence: u64, status: u8) {
        let Some(flight) = self.node(index).and_then(|node| node.sending.settle(sequence)) else { return };
        let Some(operation) = self.operation(flight.op) else { return };
        let is_read = operation.op == control1::OP_RDMA_READ;
        match Status::from_number(status) {
            Status::Ok if !is_read => self.advance(index, flight.op),
            Status::RemoteRnr if operation.needs_receive => self.wait_for_receive(index, now, &flight),
            status @ (Status::RemoteBadAddress
            | Status::RemoteAbort
            | Status::RemoteBadDestQpn
            | Status::RemoteBadLength
            | Status::RemoteBadStatus
            | Status::RemoteUnknownPeer
            | Status::RemoteFeatureMismatch) => self.end(flight.op, status),
            _ => self.end(flight.op, Status::RemoteBadStatus),
        }
    }

    /// The data of a read came.
    pub(super) fn data_came(&mut self, index: usize, sequence: u64, bytes: &[u8]) {
        let Some(flight) = self.node(index).and_then(|node| node.sending.settle(sequence)) else { return };
        let Some(packet) = self.operation(flight.op).map(|operation| operation.packet) else { return };
        let Some(qp) = self.qp(packet.qp) else { return };
        match self.request(qp, &packet.entry) {
            Ok(request) => {
                let local = request.local[0].filter(|_| request.op == control1::OP_RDMA_READ);
                match local.filter(|_| bytes.len() == flight.part as usize) {
                    Some(local) => {
                        memory::copy(local.part(flight.at as usize, bytes.len()), Source::of_bytes(bytes));
                        self.advance(index, flight.op);
                    }
                    None => self.end(flight.op, Status::RemoteBadStatus),
                }
            }
            Err(status) => self.end(flight.op, status),
        }
    }

    /// A part was answered well.
    fn advance(&mut self, index: usize, id: OpId) {
        let Some(operation) = self.operation(id) else { return };
        operation.pending = operation.pending.saturating_sub(1);
        if operation.pending > 0 {
            return;
        }
        if operation.all_sent {
            return self.end(id, Status::Ok);
        }
        if core::mem::take(&mut operation.gated)
            && let Some(node) = self.node(index)
        {
            node.enqueue(id);
        }
    }

    /// A message found no receive: it waits, unless it did so often enough.
    fn wait_for_receive(&mut self, index: usize, now: u64, flight: &Flight) {
        let Some(packet) = self.operation(flight.op).map(|operation| operation.packet) else { return };
        let retries = self.qp(packet.qp).map_or(0, |qp| qp.rnr_retry);
        if retries != RNR_FOREVER && packet.attempts >= retries {
            return self.end(flight.op, Status::RemoteRnr);
        }
        let wait = RNR_WAIT << packet.attempts.min(MAX_RNR_DOUBLINGS);
        if let Some(operation) = self.operation(flight.op) {
            operation.packet.attempts = packet.attempts.saturating_add(1);
            operation.packet.done = flight.at;
            operation.pending = operation.pending.saturating_sub(1);
            operation.all_sent = false;
        }
        if let Some(node) = self.node(index) {
            node.park(flight.op, now.saturating_add(wait));
        }
    }
}
