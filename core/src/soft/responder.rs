//! The peer's part: who is asked, whether it may be, where the bytes go, what its program is told.
//!
//! A receive that is too short, or whose memory is not good, is consumed: it completes with an error (6, 5)
//! at the responder and fails the SEND (11, 12).

#![forbid(unsafe_code)]

use super::completion::Arrival;
use super::engine::Request;
use super::memory::{self, Source, Span};
use super::tables::{Packet, Qp, State};
use crate::entry::{Quad, control1, descriptor_flags};
use crate::flags::Access;
use crate::qp::{QpState, QpType};
use crate::status::CompletionStatus as Status;
use crate::{Ahn, Gid};

/// What came of trying a message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It ends, and the responder's program hears nothing.
    Failed(Status),
    /// A piece of an RDMA was moved; there are more. What it adds to [`Packet::done`].
    Moved(u32),
    /// It needs a receive.
    NoReceive,
    /// It is for a device of another wire, at this address.
    Elsewhere(Gid),
    /// It ends at the responder.
    Arrived(Arrived),
}

/// A message that ends at its responder.
#[derive(Debug)]
pub(super) struct Arrived {
    responder: u16,
    pub(super) responder_nic: u8,
    /// `None` if it is on another wire.
    pub(super) requester_nic: Option<u8>,
    op: u8,
    bytes: u32,
    /// Nothing of it is still to come.
    is_whole: bool,
    /// The requester's.
    pub(super) status: Status,
    notice: Notice,
}

/// What the responder's program is told.
#[derive(Debug)]
enum Notice {
    Nothing,
    /// A completion, and the receive descriptors that it consumes.
    Completion {
        arrival: Arrival,
        descriptors: u16,
    },
    /// Its descriptors make no sense: it goes into ERR.
    Broken,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) gid: Gid,
    /// `None` if it is on another wire.
    pub(super) nic: Option<u8>,
    /// Asked only of those on another wire.
    #[cfg_attr(not(feature = "alloc"), allow(dead_code))]
    pub(super) qp_type: QpType,
    pub(super) qpn: u16,
    pub(super) unsolicited: bool,
}

/// A posted receive.
#[derive(Debug)]
struct Receive {
    req_id: u16,
    descriptors: u16,
    buffers: [(u64, Quad); 2],
}

impl State {
    /// Tries a message: all checks, and its bytes.
    #[inline(always)]
    pub(super) fn attempt(&self, packet: &Packet) -> Verdict {
        let Some(qp) = self.qp(packet.qp) else { return Verdict::Failed(Status::Flushed) };
        match self.request(qp, &packet.entry).and_then(|request| self.respond(qp, packet, &request)) {
            Ok(verdict) => verdict,
            Err(status) => Verdict::Failed(status),
        }
    }

    /// The device and queue pair that a request goes to.
    #[inline(always)]
    pub(super) fn route(&self, from: &Qp, request: &Request<'_>) -> Result<(u8, u16), Status> {
        let nic = self.nic_at(&request.gid).ok_or(Status::LocalUnreachRemote)?;
        if !self.is_up(nic) || !self.is_up(from.nic) {
            return Err(self.unanswered(from.nic, Some(nic)));
        }
        Ok((nic, self.destination(nic, from.qp_type, request)?))
    }

    /// The queue pair of a device that a request goes to.
    #[inline(always)]
    fn destination(&self, nic: u8, from: QpType, request: &Request<'_>) -> Result<u16, Status> {
        let index = self.qp_of(nic, request.qpn).ok_or(Status::RemoteBadDestQpn)?;
        let qp = self.qp(index).ok_or(Status::RemoteBadDestQpn)?;
        let receives = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe);
        let takes = receives && qp.qkey == request.qkey && qp.qp_type == from;
        if takes { Ok(index) } else { Err(Status::RemoteBadDestQpn) }
    }

    #[inline(always)]
    pub(super) fn respond(&self, from: &Qp, packet: &Packet, request: &Request<'_>) -> Result<Verdict, Status> {
        let (nic, index) = match self.route(from, request) {
            Err(Status::LocalUnreachRemote) if self.goes_elsewhere(request) => {
                return Ok(Verdict::Elsewhere(request.gid));
            }
            route => route?,
        };
        let origin = Origin {
            gid: self.gid_of(from.nic),
            nic: Some(from.nic),
            qp_type: from.qp_type,
            qpn: from.qpn,
            unsolicited: from.unsolicited,
        };
        let (qp, arrival, arrived) = self.admit(nic, index, &origin, request)?;
        if request.op == control1::OP_SEND {
            let mut inline = [0; _];
            Ok(self.send(qp, self.sources(packet, request, &mut inline), arrival, arrived))
        } else {
            self.rdma(qp, packet, request, arrival, arrived)
        }
    }

    /// Whether a request is for another wire.
    #[cold]
    pub(super) fn goes_elsewhere(&self, request: &Request<'_>) -> bool {
        self.is_linked() && self.nic_at(&request.gid).is_none()
    }

    /// What a request sends: local memory, or the bytes in its entry.
    #[inline(always)]
    pub(super) fn sources<'a>(
        &self,
        packet: &Packet,
        request: &Request<'a>,
        inline: &'a mut [u8; 96],
    ) -> [Option<Source<'a>>; 2] {
        let Some(count) = request.inline else { return request.local.map(|span| span.map(Source::from)) };
        // Those of a write are behind the remote buffer.
        *inline = packet.inline_bytes(if request.op == control1::OP_SEND { 4 } else { 6 });
        [Some(Source::of_bytes(inline).part(0, count)), None]
    }

    /// A request that came over the link, executed but for what the responder's program is told: see
    /// [`State::arrive`]. Of an RDMA write it is the part from `at` on.
    #[cfg(feature = "alloc")]
    pub(super) fn respond_to(
        &self,
        nic: u8,
        origin: &Origin,
        request: &Request<'_>,
        (at, data): (u32, &[u8]),
    ) -> Result<Verdict, Status> {
        let index = self.destination(nic, origin.qp_type, request)?;
        let (qp, arrival, mut arrived) = self.admit(nic, index, origin, request)?;
        let data = Source::of_bytes(data);
        if request.op == control1::OP_SEND {
            return Ok(self.send(qp, [Some(data), None], arrival, arrived));
        }
        let to = self.remote_part(qp, request)?;
        memory::copy(to.part(at as usize, data.len()), data);
        arrived.bytes = data.len() as u32;
        arrived.is_whole = at.saturating_add(arrived.bytes) >= request.len;
        Ok(self.notify(qp, request, arrival, arrived))
    }

    /// The bytes that a read asks for.
    #[cfg(feature = "alloc")]
    pub(super) fn read_for(&self, nic: u8, origin: &Origin, request: &Request<'_>) -> Result<Span<'_>, Status> {
        let index = self.destination(nic, origin.qp_type, request)?;
        let (qp, ..) = self.admit(nic, index, origin, request)?;
        self.remote_part(qp, request)
    }

    /// Whether a queue pair takes requests of this origin: it, and what arrives if so.
    #[inline(always)]
    fn admit(
        &self,
        nic: u8,
        index: u16,
        origin: &Origin,
        request: &Request<'_>,
    ) -> Result<(&Qp, Arrival, Arrived), Status> {
        let qp = self.qp(index).ok_or(Status::RemoteBadDestQpn)?;
        // R04: both sides resolved.
        let ah = match origin.nic {
            Some(from) => self.resolved(qp.pd, from),
            None => self.resolved_gid(qp.pd, &origin.gid),
        };
        let is_send = request.op == control1::OP_SEND;
        if !is_send && ah == Ahn::UNKNOWN {
            return Err(Status::RemoteUnknownPeer);
        }
        // R05.
        let checked = self.config.strict_features || (!is_send && request.imm.is_some());
        if checked && qp.unsolicited != origin.unsolicited {
            return Err(Status::RemoteFeatureMismatch);
        }
        let arrival = Arrival {
            req_id: 0,
            status: Status::Ok,
            op: request.op,
            imm: request.imm,
            unsolicited: false,
            length: request.len,
            ah,
            src_qpn: origin.qpn,
            source: origin.gid,
        };
        let arrived = Arrived {
            responder: index,
            responder_nic: nic,
            requester_nic: origin.nic,
            op: request.op,
            bytes: request.len,
            is_whole: true,
            status: Status::Ok,
            notice: Notice::Nothing,
        };
        Ok((qp, arrival, arrived))
    }

    #[inline(always)]
    fn send(&self, qp: &Qp, sources: [Option<Source<'_>>; 2], mut arrival: Arrival, mut arrived: Arrived) -> Verdict {
        let receive = match next_receive(qp) {
            Ok(Some(receive)) => receive,
            Ok(None) => return Verdict::NoReceive,
            Err(Malformed) => return broken(arrived),
        };
        arrival.req_id = receive.req_id;
        let mut targets = [None; 2];
        let mut room = 0;
        for ((addr, tail), target) in receive.buffers.iter().take(usize::from(receive.descriptors)).zip(&mut targets) {
            let len = (tail >> 16) as u16;
            let lkey = (tail >> 32) as u32 & descriptor_flags::LKEY;
            *target = self.local(qp.nic, qp.pd, lkey, *addr, u32::from(len), Access::LOCAL_WRITE);
            if target.is_none() {
                arrival.status = Status::LocalInvalidLkey;
                arrived.status = Status::RemoteBadStatus;
            }
            room += u32::from(len);
        }
        // A datagram's header is part of its length.
        let header = u32::from(qp.qp_type.header());
        arrival.length += header;
        let targets = behind(targets, header as usize);
        if arrived.status == Status::Ok && room < arrival.length {
            arrival.status = Status::LocalBadLength;
            arrived.status = Status::RemoteBadLength;
        }
        if arrived.status != Status::Ok {
            arrival.length = 0;
        } else {
            scatter(sources, targets);
        }
        arrived.notice = Notice::Completion { arrival, descriptors: receive.descriptors };
        Verdict::Arrived(arrived)
    }

    fn rdma(
        &self,
        qp: &Qp,
        packet: &Packet,
        request: &Request<'_>,
        arrival: Arrival,
        arrived: Arrived,
    ) -> Result<Verdict, Status> {
        let reads = request.op == control1::OP_RDMA_READ;
        let remote = self.remote_part(qp, request)?;
        let mut inline = [0; _];
        let [local, _] = self.sources(packet, request, &mut inline);
        let (from, to) = match reads {
            true => (Some(remote.into()), request.local[0]),
            false => (local, Some(remote)),
        };
        let (Some(from), Some(to)) = (from, to) else { return Err(Status::LocalInvalidLkey) };
        let step = self.step(packet, request.len);
        memory::copy(to.part(step.at, step.len), from.part(step.at, step.len));
        if step.next != 0 {
            return Ok(Verdict::Moved(step.next));
        }
        Ok(self.notify(qp, request, arrival, arrived))
    }

    /// The remote memory of an RDMA operation, all of it.
    #[inline(always)]
    fn remote_part(&self, qp: &Qp, request: &Request<'_>) -> Result<Span<'_>, Status> {
        let reads = request.op == control1::OP_RDMA_READ;
        let access = if reads { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
        self.remote(qp.nic, qp.pd, request.rkey, request.remote_addr, request.len, access)
            .ok_or(Status::RemoteBadAddress)
    }

    /// What the responder's program is told of an RDMA operation whose bytes are there.
    #[inline(always)]
    fn notify(&self, qp: &Qp, request: &Request<'_>, mut arrival: Arrival, mut arrived: Arrived) -> Verdict {
        if request.imm.is_some() {
            let mut descriptors = 0;
            if qp.unsolicited {
                arrival.unsolicited = true;
            } else {
                match next_receive(qp) {
                    Ok(Some(receive)) => {
                        arrival.req_id = receive.req_id;
                        descriptors = receive.descriptors;
                    }
                    Ok(None) => return Verdict::NoReceive,
                    Err(Malformed) => return broken(arrived),
                }
            }
            arrived.notice = Notice::Completion { arrival, descriptors };
        }
        Verdict::Arrived(arrived)
    }

    #[inline(always)]
    pub(super) fn is_up(&self, nic: u8) -> bool {
        self.nics.get(usize::from(nic)).is_some_and(|nic| nic.up)
    }

    #[inline(always)]
    pub(super) fn gid_of(&self, nic: u8) -> Gid {
        self.nics.get(usize::from(nic)).map_or(Gid([0; 16]), |nic| nic.gid)
    }

    /// Tells the responder's program and counts; gives the requester's status.
    #[inline(always)]
    pub(super) fn arrive(&mut self, arrived: Arrived) -> Status {
        let Arrived { responder, requester_nic, op, bytes, is_whole, status, notice, .. } = arrived;
        let Some(qp) = self.qp_mut(responder) else { return Status::RemoteBadDestQpn };
        let nic = qp.nic;
        match notice {
            Notice::Nothing => {}
            Notice::Completion { mut arrival, descriptors } => {
                if qp.strangers != 0 {
                    // R23.
                    qp.strangers -= 1;
                    arrival.ah = Ahn::UNKNOWN;
                }
                qp.taken = qp.taken.wrapping_add(descriptors);
                self.recv_done(responder, arrival);
            }
            Notice::Broken => {
                self.counters(nic).protocol_errors += 1;
                self.fail(responder);
            }
        }
        if status == Status::Ok {
            self.count(nic, Part::Responder, op, bytes);
            if is_whole {
                self.tally_remote(responder, op);
            }
            if let Some(requester) = requester_nic {
                self.count(requester, Part::Requester, op, bytes);
            }
        }
        status
    }

    /// Counts what a device did of an operation.
    #[inline(always)]
    pub(super) fn count(&mut self, nic: u8, part: Part, op: u8, bytes: u32) {
        let packets = u64::from(bytes.div_ceil(self.config.limits.max_msg_size.max(1)).max(1));
        let bytes = u64::from(bytes);
        let counters = self.counters(nic);
        if (part == Part::Requester) == (op == control1::OP_RDMA_READ) {
            counters.rx_bytes += bytes;
            counters.rx_pkts += packets;
        } else {
            counters.tx_bytes += bytes;
            counters.tx_pkts += packets;
        }
        match (op, part) {
            (control1::OP_SEND, Part::Requester) => {
                counters.send_wrs += 1;
                counters.send_bytes += bytes;
            }
            (control1::OP_SEND, Part::Responder) => {
                counters.recv_wrs += 1;
                counters.recv_bytes += bytes;
            }
            (control1::OP_RDMA_READ, Part::Requester) => {
                counters.rdma_read_wrs += 1;
                counters.rdma_read_bytes += bytes;
            }
            (control1::OP_RDMA_READ, Part::Responder) => counters.rdma_read_resp_bytes += bytes,
            (_, Part::Requester) => {
                counters.rdma_write_wrs += 1;
                counters.rdma_write_bytes += bytes;
            }
            (_, Part::Responder) => counters.rdma_write_recv_bytes += bytes,
        }
    }
}

/// What a device is to an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Requester,
    Responder,
}

fn broken(arrived: Arrived) -> Verdict {
    Verdict::Arrived(Arrived { status: Status::RemoteBadDestQpn, notice: Notice::Broken, ..arrived })
}

struct Malformed;

/// The next posted receive, which stays where it is.
#[inline(always)]
fn next_receive(qp: &Qp) -> Result<Option<Receive>, Malformed> {
    let announced = qp.recv_doorbell.rung().wrapping_sub(qp.taken);
    if u32::from(announced) > qp.recv.entries() {
        return Err(Malformed);
    }
    let mut buffers = [(0, 0); 2];
    for nth in 0..u16::from(qp.recv_sge.min(2)) {
        if nth >= announced {
            return Ok(None);
        }
        let at = u32::from(qp.taken.wrapping_add(nth));
        let (addr, tail) = (qp.recv.load(at, 0), qp.recv.load(at, 1));
        let control = (tail >> 32) as u32;
        if (control & descriptor_flags::FIRST != 0) != (nth == 0) {
            return Err(Malformed);
        }
        if let Some(buffer) = buffers.get_mut(usize::from(nth)) {
            *buffer = (addr, tail);
        }
        if control & descriptor_flags::LAST != 0 {
            return Ok(Some(Receive { req_id: buffers[0].1 as u16, descriptors: nth + 1, buffers }));
        }
    }
    Err(Malformed)
}

/// The targets without their first `count` bytes.
#[inline(always)]
fn behind(mut targets: [Option<Span<'_>>; 2], mut count: usize) -> [Option<Span<'_>>; 2] {
    for target in targets.iter_mut().flatten() {
        let skipped = target.len().min(count);
        *target = target.part(skipped, usize::MAX);
        count -= skipped;
    }
    targets
}

/// Copies the sources, one after the other, into the targets, which have the room.
#[inline(always)]
pub(super) fn scatter(sources: [Option<Source<'_>>; 2], targets: [Option<Span<'_>>; 2]) {
    let mut targets = targets.into_iter().flatten();
    let mut target = targets.next();
    for mut source in sources.into_iter().flatten() {
        while source.len() > 0 {
            let Some(to) = target else { return };
            memory::copy(to, source);
            let moved = to.len().min(source.len());
            source = source.part(moved, usize::MAX);
            target = if moved < to.len() { Some(to.part(moved, usize::MAX)) } else { targets.next() };
        }
    }
}
