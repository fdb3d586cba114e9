//! The hostile wire: a message that is lost, late, refused or in pieces, and a program that dies.
//!
//! A message that was executed but whose answer got lost stays on the wire with that answer: when it is sent
//! again its responder knows it, and answers without executing it.

#![forbid(unsafe_code)]

use super::completion::Arrival;
use super::engine::PIECE;
use super::faults::Overruns;
use super::responder::Verdict;
use super::tables::{Meta, NICS, Packet, State};
use crate::entry::{Quad, control1};
use crate::qp::QpState;
use crate::status::CompletionStatus as Status;
use crate::{Error, Verb};

/// Turns until what was lost is sent again.
const RETRANSMIT_TURNS: u32 = 8;

/// What a hostile wire knows of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// What it ends with, unexecuted.
    pub(super) forced: Option<Status>,
    /// It was executed, and this answer is on its way.
    answer: Option<Status>,
    /// Times in a row that it was lost.
    losses: u8,
    /// From which the order of its pieces comes.
    key: u32,
}

impl Trial {
    pub(super) const NONE: Self = Self { forced: None, answer: None, losses: 0, key: 0 };
}

/// One move of an RDMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) at: usize,
    pub(super) len: usize,
    /// What to add to [`Packet::done`]; 0 if this is the last move.
    pub(super) next: u32,
}

impl State {
    /// The next move of an RDMA of `len` bytes.
    #[inline]
    pub(super) fn step(&self, packet: &Packet, len: u32) -> Step {
        let piece = self.config.faults.piece;
        if piece != 0 {
            return shuffled(packet, len, piece);
        }
        let left = len.saturating_sub(packet.done);
        let moved = left.min(PIECE);
        Step { at: packet.done as usize, len: moved as usize, next: if left > moved { moved } else { 0 } }
    }

    /// Makes ready what was just fetched, the `nth` message in flight.
    #[cold]
    pub(super) fn begin_trial(&mut self, nth: usize, nic: u8) {
        let operations = &mut self.nics[usize::from(nic) % NICS].operations;
        *operations = operations.saturating_add(1);
        let count = *operations;
        let faults = self.config.faults;
        let key = if faults.piece > 0 { self.random() as u32 } else { 0 };
        let late = if faults.delay > 0 { self.random() % (u64::from(faults.delay) + 1) } else { 0 };
        let round = self.round;
        let Some(packet) = self.packet_at_mut(self.place(nth)) else { return };
        let forced = faults.fail.filter(|(nth, _)| *nth == count).map(|(_, status)| status);
        packet.trial = Trial { forced, key, ..Trial::NONE };
        if late > 0 {
            // Beyond what it is held back for already.
            let since = if packet.waiting { packet.retry_at } else { round };
            (packet.waiting, packet.retry_at) = (true, since.wrapping_add(late as u32));
        }
    }

    /// Tries the message at the head.
    pub(super) fn deliver_hostile(&mut self) {
        if !self.choose() {
            return;
        }
        if self.has_datagram() {
            return self.deliver_datagram();
        }
        let Some(packet) = self.packet_at(self.head) else { return };
        let (qp, entry, trial, attempts) = (packet.qp, packet.meta(), packet.trial, packet.attempts);
        let Some(from) = self.qp(qp) else { return self.pop() };
        let nic = from.nic;
        // What its own device finds wrong needs no wire.
        let request = match trial.forced {
            Some(status) => Err(status),
            None => self.request(from, &packet.entry),
        };
        let (needs_receive, route) = match request {
            // What another wire does to it is up to the carrier.
            Ok(request) if self.goes_elsewhere(&request) => return self.depart(request.gid),
            Ok(request) => (
                request.op == control1::OP_SEND || request.imm.is_some(),
                self.route(from, &request).map(|(nic, _)| nic),
            ),
            Err(status) => {
                self.pop();
                return self.conclude(qp, entry, status);
            }
        };
        if self.is_lost() {
            if self.give_up() {
                let status = self.unanswered(nic, self.peer(qp, entry));
                self.conclude(qp, entry, status);
            }
            return;
        }
        if let Some(answer) = trial.answer {
            // Who executed it may be gone, and with it the knowledge that it did.
            let answer = match route {
                Ok(peer) => {
                    self.counters(peer).duplicates += 1;
                    answer
                }
                Err(status) => status,
            };
            return self.end_answered(qp, entry, answer);
        }
        if needs_receive && attempts < self.config.faults.rnr && route.is_ok() {
            return self.wait(qp, entry);
        }
        let Some(packet) = self.packet_at(self.head) else { return };
        match self.attempt(packet) {
            Verdict::Failed(status) => self.end_answered(qp, entry, status),
            Verdict::Moved(bytes) => {
                self.steps = self.steps.wrapping_add(1);
                if let Some(packet) = self.packet_at_mut(self.head) {
                    packet.done = packet.done.saturating_add(bytes);
                    packet.trial.losses = 0;
                }
            }
            Verdict::NoReceive => self.wait(qp, entry),
            Verdict::Elsewhere(gid) => self.depart(gid),
            Verdict::Arrived(arrived) if self.is_lost() => {
                if let Some(packet) = self.packet_at_mut(self.head) {
                    packet.trial.answer = Some(arrived.status);
                }
                // Behind the others, or off the wire, before the responder hears: it may be the requester, and fail.
                let (given_up, peer) = (self.give_up(), arrived.responder_nic);
                self.arrive(arrived);
                if given_up {
                    let status = self.unanswered(nic, Some(peer));
                    self.conclude(qp, entry, status);
                }
            }
            Verdict::Arrived(arrived) => {
                self.pop();
                self.heard(nic, arrived.responder_nic);
                let status = self.arrive(arrived);
                self.conclude(qp, entry, status);
            }
        }
    }

    /// Ends the message at the head with its responder's answer, unless that is lost.
    fn end_answered(&mut self, qp: u16, entry: Meta, mut status: Status) {
        let Some(nic) = self.qp(qp).map(|qp| qp.nic) else { return self.pop() };
        let peer = self.peer(qp, entry);
        let answered = !matches!(status, Status::LocalUnreachRemote | Status::LocalUnrespRemote);
        if answered && self.is_lost() {
            if !self.give_up() {
                return;
            }
            status = self.unanswered(nic, peer);
        } else {
            self.pop();
            if let Some(peer) = peer.filter(|_| answered) {
                self.heard(nic, peer);
            }
        }
        self.conclude(qp, entry, status);
    }

    /// Whether this request or answer is lost.
    pub(super) fn is_lost(&mut self) -> bool {
        let loss = u64::from(self.config.faults.loss);
        loss > 0 && self.random() % 1000 < loss
    }

    /// The message at the head was lost: it is sent again later, or is off the wire and to be concluded.
    fn give_up(&mut self) -> bool {
        let (retry_at, limit) = (self.round.wrapping_add(RETRANSMIT_TURNS), self.config.faults.retransmissions);
        let Some(packet) = self.packet_at_mut(self.head) else { return false };
        let (qp, given_up) = (packet.qp, packet.trial.losses >= limit);
        packet.trial.losses = packet.trial.losses.saturating_add(1);
        packet.waiting = true;
        packet.retry_at = retry_at;
        if let Some(nic) = self.qp(qp).map(|qp| qp.nic) {
            let counters = self.counters(nic);
            if given_up {
                counters.unresponsive_remote_events += 1;
            } else {
                counters.retrans_pkts += 1;
            }
        }
        if given_up {
            self.pop();
        } else {
            self.requeue();
        }
        given_up
    }

    /// The device that a message goes to, if it is on the wire.
    fn peer(&self, qp: u16, [_, second, ..]: Meta) -> Option<u8> {
        let qp = self.qp(qp)?;
        self.nic_at(&self.ah(qp.nic, qp.pd, (second >> 32) as u16)?.gid)
    }

    /// A device has answered another.
    #[inline(always)]
    pub(super) fn heard(&mut self, requester: u8, responder: u8) {
        self.nics[usize::from(requester) % NICS].heard |= 1 << (usize::from(responder) % NICS);
    }

    /// What a message ends with that is not answered (H19).
    pub(super) fn unanswered(&self, requester: u8, responder: Option<u8>) -> Status {
        let heard = self.nics.get(usize::from(requester)).map_or(0, |nic| nic.heard);
        match responder {
            Some(responder) if heard & 1 << (usize::from(responder) % NICS) != 0 => Status::LocalUnrespRemote,
            _ => Status::LocalUnreachRemote,
        }
    }

    /// Counts a call of a verb, and answers for it if it is to fail.
    pub(super) fn call(&mut self, nic: u8, verb: Verb) -> Result<(), Error> {
        let Some(count) = self.nics[usize::from(nic) % NICS].calls.get_mut(verb as usize) else { return Ok(()) };
        *count = count.saturating_add(1);
        let count = *count;
        self.config.faults.verb(verb, count)
    }

    /// Ends all queue pairs of a device: see [`SoftDevice::die`](super::SoftDevice::die).
    pub(super) fn die(&mut self, nic: u8) {
        for index in 0..self.tables.qps.len() as u16 {
            let Some(qp) = self.qp_mut(index).filter(|qp| qp.nic == nic) else { continue };
            qp.dead = true;
            let (qpn, last) = (qp.qpn, qp.last);
            self.free_number(nic, qpn, index, last);
            if self.config.faults.silent_death {
                self.purge(index, false);
                if let Some(qp) = self.qp_mut(index) {
                    qp.state = QpState::Err;
                }
            } else {
                self.fail(index);
            }
        }
    }

    /// Completions of a queue pair's predecessor, whose generation was the one before; or, where request ids of sends
    /// have 64 bits, the same, as after a wrap: there their upper bits tell.
    pub(super) fn haunt(&mut self, index: u16, generation: u16) {
        let Some(qp) = self.qp(index) else { return };
        let number = self.tables.numbers.get(self.number_index(qp.nic, qp.qpn)).copied();
        let Some(number) = number.filter(|number| number.used) else { return };
        let (send, recv) = (qp.send.entries(), qp.recv.entries() / u32::from(qp.recv_sge.max(1)));
        let id = |depth: u32, generation: u16, nth: u16| {
            let generation = u32::from(generation) << depth.trailing_zeros();
            generation as u16 | nth & (depth - 1) as u16
        };
        let before = generation.wrapping_sub(1);
        let of_send = if self.config.req_id_64 { generation } else { before };
        for nth in 0..self.config.faults.stale {
            let status = if nth % 2 == 0 { Status::Ok } else { Status::Flushed };
            self.send_entry(index, [Quad::from(id(send, of_send, nth)), 0, 0, number.last], status);
            self.recv_done(index, Arrival { status, ..Arrival::flushed(id(recv, before, nth)) });
        }
    }

    /// What may be unread in a completion queue: see [`Config::count_overruns`](super::Config::count_overruns).
    fn unread(&self, cq: u16) -> u32 {
        let mut count = 0u32;
        for qp in self.tables.qps.all().iter().filter_map(|entry| entry.qp.as_ref()) {
            if qp.send_cq == cq {
                let with_device = qp.send_doorbell.rung().wrapping_sub(qp.completed);
                count = count.saturating_add(qp.send.entries().saturating_sub(with_device.into()));
            }
            if qp.recv_cq == cq {
                let buffers = u32::from(qp.recv_sge.max(1));
                let with_device = u32::from(qp.recv_doorbell.rung().wrapping_sub(qp.taken)).div_ceil(buffers);
                let receives = (qp.recv.entries() / buffers).saturating_sub(with_device);
                count = count.saturating_add(receives).saturating_add(qp.arrivals);
            }
        }
        count
    }

    /// Counts a completion that is about to be written; whether it may be.
    #[cold]
    pub(super) fn finds_room(&mut self, cq: u16, qp: u16, unsolicited: bool) -> bool {
        if let Some(qp) = self.qp_mut(qp) {
            qp.arrivals = qp.arrivals.saturating_add(unsolicited.into());
        }
        let Some(entry) = self.cq_mut(cq) else { return false };
        entry.written = entry.written.saturating_add(1);
        let (written, room) = (entry.written, entry.room());
        if self.unread(cq).min(written) <= room {
            return true;
        }
        let Some(nic) = self.qp(qp).map(|qp| qp.nic) else { return true };
        self.counters(nic).cq_overruns += 1;
        if self.config.faults.overruns != Overruns::Strict {
            return true;
        }
        if let Some(entry) = self.cq_mut(cq) {
            entry.written -= 1;
        }
        if let Some(qp) = self.qp_mut(qp) {
            qp.arrivals = qp.arrivals.saturating_sub(unsolicited.into());
        }
        if self.qp(qp).is_some_and(|qp| qp.state != QpState::Err) {
            self.fail(qp);
        }
        false
    }

    /// One unsolicited arrival of a queue pair was read.
    pub(super) fn unsolicited_read(&mut self, qp: u16) {
        if let Some(qp) = self.qp_mut(qp) {
            qp.arrivals = qp.arrivals.saturating_sub(1);
        }
    }
}

/// The next move of an RDMA in pieces: moves with an even number are pieces not moved before, in an order that
/// `key` tells; the odd ones, some of which are left out, move one of them again.
fn shuffled(packet: &Packet, len: u32, piece: u32) -> Step {
    let (count, key) = (len.div_ceil(piece).max(1), packet.trial.key);
    let (nth, again) = (packet.done / 2, packet.done % 2 == 1);
    let chance = mixed(key ^ nth.wrapping_mul(0x9E37_79B9));
    let which = if again { chance % (nth + 1) } else { nth };
    let at = permuted(which.min(count - 1), count, key).saturating_mul(piece).min(len);
    let skips = !again && chance >> 31 == 0;
    let is_last = nth + 1 >= count && (again || skips);
    let next = if is_last { 0 } else { 1 + u32::from(skips) };
    Step { at: at as usize, len: piece.min(len - at) as usize, next }
}

/// Where `index` is in the order of `key` of so many.
fn permuted(index: u32, count: u32, key: u32) -> u32 {
    let half = (32 - (count - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut value = index;
    // A Feistel network permutes the next power of four; who falls outside is permuted again.
    loop {
        let (mut left, mut right) = (value >> half & mask, value & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ mixed(right ^ key.rotate_left(8 * round)) & mask);
        }
        value = left << half | right;
        if value < count {
            return value;
        }
    }
}

/// Murmur3's finalizer.
fn mixed(mut value: u32) -> u32 {
    value = (value ^ value >> 16).wrapping_mul(0x85EB_CA6B);
    value = (value ^ value >> 13).wrapping_mul(0xC2B2_AE35);
    value ^ value >> 16
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn every_piece_is_moved_some_again_and_every_key_has_an_order_of_its_own() {
        let counts = if cfg!(miri) { 1..9 } else { 1..70 };
        for (len, piece) in counts.map(|count| (count * 10 - 3, 10)).chain([(0, 7), (1, 1), (5, 100)]) {
            let mut orders = BTreeSet::new();
            let mut repeats = 0;
            for key in 0..16 {
                let trial = Trial { key, ..Trial::NONE };
                let mut packet = Packet { trial, ..Packet::FREE };
                let mut moved = Vec::new();
                loop {
                    let step = shuffled(&packet, len, piece);
                    assert!(step.at + step.len <= len as usize && step.len <= piece as usize);
                    moved.push((step.at, step.len));
                    packet.done += step.next;
                    if step.next == 0 {
                        break;
                    }
                }
                let distinct: BTreeSet<_> = moved.iter().copied().collect();
                assert_eq!(distinct.iter().map(|(_, len)| len).sum::<usize>(), len as usize);
                assert_eq!(distinct.len(), len.div_ceil(piece).max(1) as usize);
                repeats += moved.len() - distinct.len();
                orders.insert(moved);
            }
            assert!(len < 60 || (orders.len() > 8 && repeats > 16), "{len}");
        }
    }
}
