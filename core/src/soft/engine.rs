//! The device's turn: entries are fetched from send queues, checked, and delivered in any order.
//!
//! A turn is bounded: so many messages, and so many bytes of each RDMA. Doorbells are memory here, so
//! two rung between turns look like one: what one of them announced (R18, `max_batch`) cannot be checked,
//! but that no more is outstanding than the queue holds is.

#![forbid(unsafe_code)]

use super::memory::Span;
use super::responder::Verdict;
use super::tables::{AhEntry, Meta, Packet, Qp, State};
use crate::entry::{Quad, control1, control2};
use crate::flags::{Access, SendOps};
use crate::qp::QpState;
use crate::status::CompletionStatus as Status;
use crate::{Ahn, Gid};

/// Messages tried in one turn.
const TURN: usize = 64;
/// Bytes of an RDMA moved in one try.
pub(super) const PIECE: u32 = 1 << 20;
/// Turns until a message that found no receive is tried again.
const RNR_TURNS: u32 = 4;
/// Under shuffle one message in so many is held back, for so many turns at most.
const HELD: u32 = 8;
const HELD_TURNS: u32 = 4;
/// The retry count that means for ever.
pub(super) const RNR_FOREVER: u8 = 7;

/// Of an entry's second quad.
const RESERVED: Quad = 0xFF << 56;

impl State {
    /// One turn.
    pub(super) fn turn(&mut self) {
        self.round = self.round.wrapping_add(1);
        for nth in 0..self.live_count {
            self.fetch(nth);
        }
        if self.hostile {
            (0..self.in_flight.min(TURN)).for_each(|_| self.deliver_hostile());
        } else {
            (0..self.in_flight.min(TURN)).for_each(|_| self.deliver());
        }
    }

    /// Takes what was announced to the n-th live queue pair.
    #[inline]
    fn fetch(&mut self, nth: usize) {
        let Some(Some(live)) = self.tables.live.get(nth) else { return };
        let (rung, index, flushing) = (live.doorbell.rung(), live.qp, live.flushing);
        if flushing {
            return self.flush(index);
        }
        if rung == live.seen {
            return;
        }
        let Some(qp) = self.qp(index) else { return };
        let (ring, mut next, nic, mut last, restarted) = (qp.send, qp.fetched, qp.nic, qp.last, qp.restarted);
        if qp.state != QpState::Rts {
            return if qp.state == QpState::Sqe {
                self.flush_sends(index)
            };
        }
        if u32::from(rung.wrapping_sub(qp.completed)) > ring.entries() {
            self.counters(nic).protocol_errors += 1;
            return self.fail(index);
        }
        while next != rung && self.has_room() {
            let at = u32::from(next);
            let place = self.place(self.in_flight);
            let held = if self.config.shuffle { self.hold() } else { None };
            let Some(packet) = self.packet_at_mut(place) else { break };
            let mut entry = [0; 16];
            for (quad, word) in (0..ring.quads()).zip(&mut entry) {
                *word = ring.load(at, quad);
            }
            // The phase is told apart by making a right one zero.
            let phase = if restarted { (entry[0] >> 24) as u8 & control2::PHASE } else { ring.phase(at) };
            entry[0] ^= Quad::from(phase) << 24;
            // A trial is begun below, where there is one.
            *packet = Packet { entry, qp: index, trial: packet.trial, ..Packet::FREE };
            last = entry[3];
            if let Some(until) = held {
                (packet.waiting, packet.retry_at) = (true, until);
            }
            self.in_flight += 1;
            if self.hostile {
                self.begin_trial(self.in_flight - 1, nic);
            }
            next = next.wrapping_add(1);
        }
        self.steps = self.steps.wrapping_add(1);
        if let Some(qp) = self.qp_mut(index) {
            (qp.fetched, qp.last) = (next, last);
        }
        if let Some(Some(live)) = self.tables.live.get_mut(nth) {
            live.seen = next;
        }
    }

    /// The turn until which a message is held back, if it is: so that those posted after it, and after polls, can
    /// overtake it (R16).
    fn hold(&mut self) -> Option<u32> {
        let bits = self.random() as u32;
        bits.is_multiple_of(HELD).then(|| self.round.wrapping_add(1 + (bits >> 16) % HELD_TURNS))
    }

    /// Puts the message to try next at the head; not if it waits, or there is none.
    #[inline(always)]
    pub(super) fn choose(&mut self) -> bool {
        if self.in_flight == 0 {
            // A responder that went into ERR took its own messages along.
            return false;
        }
        if self.config.shuffle && self.in_flight > 1 {
            let nth = ((u64::from(self.random() as u32) * self.in_flight as u64) >> 32) as usize;
            self.tables.order.swap(self.head, self.place(nth));
        }
        let Some(packet) = self.packet_at(self.head) else { return false };
        if packet.waiting && (self.round.wrapping_sub(packet.retry_at) as i32) < 0 {
            self.requeue();
            return false;
        }
        true
    }

    /// Tries one message.
    fn deliver(&mut self) {
        if !self.choose() {
            return;
        }
        if self.has_datagram() {
            return self.deliver_datagram();
        }
        let Some(packet) = self.packet_at(self.head) else { return };
        let (qp, entry) = (packet.qp, packet.meta());
        match self.attempt(packet) {
            Verdict::Failed(status) => {
                self.pop();
                self.conclude(qp, entry, status);
            }
            Verdict::Moved(bytes) => {
                self.steps = self.steps.wrapping_add(1);
                if let Some(packet) = self.packet_at_mut(self.head) {
                    packet.done = packet.done.saturating_add(bytes);
                }
            }
            Verdict::NoReceive => self.wait(qp, entry),
            Verdict::Elsewhere(gid) => self.depart(gid),
            Verdict::Arrived(arrival) => {
                // Gone from the wire first: the responder may be put into ERR and be the requester too.
                self.pop();
                if let Some(requester) = arrival.requester_nic {
                    self.heard(requester, arrival.responder_nic);
                }
                let status = self.arrive(arrival);
                self.conclude(qp, entry, status);
            }
        }
    }

    /// Takes the message at the head off the wire.
    #[inline(always)]
    pub(super) fn pop(&mut self) {
        self.head = self.place(1);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.steps = self.steps.wrapping_add(1);
    }

    /// Completes a message that is off the wire; `entry` is how its send entry begins.
    #[inline(always)]
    pub(super) fn conclude(&mut self, qp: u16, entry: Meta, status: Status) {
        if status != Status::Ok {
            self.count_failure(qp, entry, status);
        }
        self.send_done(qp, entry, status);
        if status != Status::Ok && self.config.faults.stop_sends {
            self.stop_sends(qp);
        }
    }

    /// The message at the head found no receive: it waits, unless it did so often enough.
    pub(super) fn wait(&mut self, qp: u16, entry: Meta) {
        let retries = self.qp(qp).map_or(0, |qp| qp.rnr_retry);
        let retry_at = self.round.wrapping_add(RNR_TURNS);
        let Some(packet) = self.packet_at_mut(self.head) else { return };
        if retries != RNR_FOREVER && packet.attempts >= retries {
            self.pop();
            return self.conclude(qp, entry, Status::RemoteRnr);
        }
        packet.attempts = packet.attempts.saturating_add(1);
        packet.waiting = true;
        packet.retry_at = retry_at;
        self.requeue();
    }

    /// Puts the message at the head behind all others.
    pub(super) fn requeue(&mut self) {
        let tail = self.place(self.in_flight);
        self.tables.order.swap(self.head, tail);
        self.head = self.place(1);
    }

    fn count_failure(&mut self, qp: u16, [head, second, ..]: Meta, status: Status) {
        let Some((nic, pd)) = self.qp(qp).map(|qp| (qp.nic, qp.pd)) else { return };
        let peer = self.ah(nic, pd, (second >> 32) as u16).and_then(|ah| self.nic_at(&ah.gid));
        let counters = self.counters(nic);
        counters.wr_errors += 1;
        match (head >> 16) as u8 & control1::OP_MASK {
            control1::OP_RDMA_READ => counters.rdma_read_wr_err += 1,
            control1::OP_RDMA_WRITE => counters.rdma_write_wr_err += 1,
            _ => {}
        }
        let remote = matches!(status.number(), 7..=12 | 14 | 18);
        if let Some(peer) = peer.filter(|_| remote) {
            self.heard(nic, peer);
            self.counters(peer).rx_drops += 1;
        }
    }
}

/// A send entry whose fields and local memory were found good.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) op: u8,
    pub(super) imm: Option<u32>,
    pub(super) qpn: u16,
    pub(super) qkey: u32,
    pub(super) gid: Gid,
    /// Bytes in all.
    pub(super) len: u32,
    /// Local memory; none if the bytes are inline.
    pub(super) local: [Option<Span<'a>>; 2],
    /// Bytes in the entry itself.
    pub(super) inline: Option<usize>,
    pub(super) rkey: u32,
    pub(super) remote_addr: u64,
}

impl State {
    /// The checks that need nothing of the peer, in the device's order.
    #[inline(always)]
    pub(super) fn request(&self, qp: &Qp, entry: &[Quad; 16]) -> Result<Request<'_>, Status> {
        let [head, second, third, fourth, ..] = *entry;
        let (ctrl1, ctrl2) = ((head >> 16) as u8, (head >> 24) as u8);
        // The phase was made zero where it is right; what is reserved is zero, and what is fixed is one.
        let unused = if qp.req_id_64 { 0xFFFF } else { Quad::MAX };
        let reserved = second & RESERVED | third >> 32 | fourth & unused;
        let meta = ctrl1 & (control1::META_DESC | control1::META_EXTENSION);
        if meta != control1::META_DESC || ctrl2 != control2::FIXED || reserved != 0 {
            return Err(Status::LocalQpInternalError);
        }
        let op = ctrl1 & control1::OP_MASK;
        let has_imm = ctrl1 & control1::HAS_IMM != 0;
        let inline = ctrl1 & control1::INLINE != 0;
        let needs = match (op, has_imm) {
            (control1::OP_SEND, false) => SendOps::SEND,
            (control1::OP_SEND, true) => SendOps::SEND_WITH_IMM,
            (control1::OP_RDMA_READ, false) => SendOps::RDMA_READ,
            (control1::OP_RDMA_WRITE, false) => SendOps::RDMA_WRITE,
            (control1::OP_RDMA_WRITE, true) => SendOps::RDMA_WRITE_WITH_IMM,
            _ => return Err(Status::LocalUnsupportedOp),
        };
        let may_inline = op == control1::OP_SEND || (op == control1::OP_RDMA_WRITE && qp.inline_write);
        if !qp.ops.contains(needs) || (inline && !may_inline) {
            return Err(Status::LocalUnsupportedOp);
        }
        let ah = self.ah(qp.nic, qp.pd, (second >> 32) as u16).ok_or(Status::LocalInvalidAh)?;
        let count = (head >> 48) as u16;
        let mut request = Request {
            op,
            imm: has_imm.then_some(second as u32),
            qpn: (head >> 32) as u16,
            qkey: third as u32,
            gid: ah.gid,
            len: 0,
            local: [None, None],
            inline: None,
            rkey: 0,
            remote_addr: 0,
        };
        if op == control1::OP_SEND {
            self.send_buffers(qp, entry, count, inline, &mut request)?;
        } else {
            self.rdma_buffers(qp, entry, count, inline, &mut request)?;
        }
        Ok(request)
    }

    #[inline(always)]
    fn send_buffers<'a>(
        &'a self,
        qp: &Qp,
        entry: &[Quad; 16],
        count: u16,
        inline: bool,
        request: &mut Request<'a>,
    ) -> Result<(), Status> {
        let [_, _, _, _, first, first_addr, second, second_addr, ..] = *entry;
        if inline {
            request.len = u32::from(count);
            request.inline = Some(usize::from(count));
            return if count <= qp.inline { Ok(()) } else { Err(Status::LocalBadLength) };
        }
        if count > u16::from(qp.send_sge.min(2)) {
            return Err(Status::LocalUnsupportedOp);
        }
        let buffers = [(first, first_addr), (second, second_addr)];
        for ((buffer, addr), local) in buffers.iter().take(usize::from(count)).zip(&mut request.local) {
            let span = self.local(qp.nic, qp.pd, (buffer >> 32) as u32, *addr, *buffer as u32, Access::empty());
            *local = Some(span.ok_or(Status::LocalInvalidLkey)?);
            request.len = request.len.checked_add(*buffer as u32).ok_or(Status::LocalBadLength)?;
        }
        // With its header, which counts, a datagram must not have more than a completion can tell.
        let longest = self.config.limits.max_msg_size.min(u32::from(u16::MAX - u16::from(qp.qp_type.header())));
        if request.len > longest { Err(Status::LocalBadLength) } else { Ok(()) }
    }

    #[inline(always)]
    fn rdma_buffers<'a>(
        &'a self,
        qp: &Qp,
        entry: &[Quad; 16],
        count: u16,
        inline: bool,
        request: &mut Request<'a>,
    ) -> Result<(), Status> {
        let [_, _, _, _, remote, remote_addr, local, local_addr, ..] = *entry;
        request.rkey = (remote >> 32) as u32;
        request.remote_addr = remote_addr;
        if inline {
            request.len = u32::from(count);
            request.inline = Some(usize::from(count));
            let fits = count <= qp.inline && request.len == remote as u32;
            return if fits { Ok(()) } else { Err(Status::LocalBadLength) };
        }
        if count != 1 {
            return Err(Status::LocalUnsupportedOp);
        }
        let access = if request.op == control1::OP_RDMA_READ { Access::LOCAL_WRITE } else { Access::empty() };
        request.len = local as u32;
        let span = self.local(qp.nic, qp.pd, (local >> 32) as u32, local_addr, request.len, access);
        request.local[0] = Some(span.ok_or(Status::LocalInvalidLkey)?);
        let fits = request.len <= self.config.limits.max_rdma_size && request.len == remote as u32;
        if fits { Ok(()) } else { Err(Status::LocalBadLength) }
    }

    /// The handle by which a domain resolves a device of another wire.
    pub(super) fn resolved_gid(&self, pd: u16, gid: &Gid) -> Ahn {
        let same = |entry: &AhEntry| entry.ah.is_some_and(|ah| ah.pd == pd && ah.gid == *gid);
        self.tables.ahs.all().iter().position(same).map_or(Ahn::UNKNOWN, |index| self.ahn(index))
    }

    /// The handle by which a domain resolves a device of the wire.
    #[inline(always)]
    pub(super) fn resolved(&self, pd: u16, nic: u8) -> Ahn {
        self.pd(pd).and_then(|pd| pd.resolves.get(usize::from(nic))).copied().unwrap_or(Ahn::UNKNOWN)
    }
}
