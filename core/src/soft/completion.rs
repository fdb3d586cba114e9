//! What completions hold.

#![forbid(unsafe_code)]

use super::tables::{Meta, State};
use super::tally::CountedOps;
use crate::entry::{Quad, completion_flags as flags};
use crate::status::CompletionStatus as Status;
use crate::{Ahn, Gid};

/// What a receive queue completion tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) req_id: u16,
    pub(super) status: Status,
    pub(super) op: u8,
    pub(super) imm: Option<u32>,
    pub(super) unsolicited: bool,
    pub(super) length: u32,
    pub(super) ah: Ahn,
    pub(super) src_qpn: u16,
    /// The sender's address, to be reported if nothing else tells it.
    pub(super) source: Gid,
}

impl Arrival {
    /// A receive that got nothing.
    pub(super) const fn flushed(req_id: u16) -> Self {
        Self {
            req_id,
            status: Status::Flushed,
            op: 0,
            imm: None,
            unsolicited: false,
            length: 0,
            ah: Ahn::UNKNOWN,
            src_qpn: 0,
            source: Gid([0; 16]),
        }
    }
}

/// The common part and the 16 bits behind it.
#[inline(always)]
fn head(req_id: u16, status: Status, flags: u8, qpn: u16, behind: u16) -> Quad {
    Quad::from(req_id)
        | Quad::from(status.number()) << 16
        | Quad::from(flags) << 24
        | Quad::from(qpn) << 32
        | Quad::from(behind) << 48
}

impl State {
    /// Completes the send entry that begins so.
    #[inline(always)]
    pub(super) fn send_done(&mut self, index: u16, entry: Meta, status: Status) {
        let Some(qp) = self.qp_mut(index) else { return };
        qp.completed = qp.completed.wrapping_add(1);
        let counter = qp.counters.of(CountedOps::posted((entry[0] >> 16) as u8));
        self.send_entry(index, entry, status);
        self.tally(counter, status);
    }

    /// Writes a send completion.
    #[inline(always)]
    pub(super) fn send_entry(&mut self, index: u16, [first, _, _, fourth]: Meta, status: Status) {
        let Some(qp) = self.qp_mut(index) else { return };
        let (cq, sub, qpn) = (qp.send_cq, qp.sub_cqs[0], qp.qpn);
        let op = (first >> 16) as u8 & (flags::OP_MASK >> flags::OP_SHIFT);
        let bits = flags::QUEUE_SEND | op << flags::OP_SHIFT;
        // The upper 48 bits of the request id, where there are any.
        let upper = if qp.req_id_64 { fourth >> 16 } else { 0 };
        self.complete((cq, sub), index, head(first as u16, status, bits, qpn, upper as u16), upper >> 16, [0; 2]);
    }

    /// Completes a receive, or tells of an unsolicited write.
    #[inline(always)]
    pub(super) fn recv_done(&mut self, index: u16, arrival: Arrival) {
        let Some(qp) = self.qp_mut(index) else { return };
        let (cq, sub, qpn) = (qp.recv_cq, qp.sub_cqs[1], qp.qpn);
        let counter = qp.counters.of(CountedOps::RECV).filter(|_| !arrival.unsolicited);
        let mut bits = flags::QUEUE_RECV | arrival.op << flags::OP_SHIFT;
        if arrival.imm.is_some() {
            bits |= flags::HAS_IMM;
        }
        if arrival.unsolicited {
            bits |= flags::UNSOLICITED;
        }
        let first = head(arrival.req_id, arrival.status, bits, qpn, arrival.length as u16);
        let second =
            Quad::from(arrival.ah.0) | Quad::from(arrival.src_qpn) << 16 | Quad::from(arrival.imm.unwrap_or(0)) << 32;
        // R24: the sender's address shares its bytes with the upper half of a write's length.
        let rest = if arrival.op == crate::entry::control1::OP_RDMA_WRITE {
            [Quad::from(arrival.length >> 16), 0]
        } else if arrival.ah == Ahn::UNKNOWN {
            crate::entry::quads(&arrival.source.0)
        } else {
            [0; 2]
        };
        self.complete((cq, sub), index, first, second, rest);
        self.tally(counter, arrival.status);
    }

    /// Writes an entry. Whether there is room the device does not know: an overrun loses completions (R17).
    #[inline(always)]
    fn complete(&mut self, (index, sub): (u16, u8), qp: u16, first: Quad, second: Quad, rest: [Quad; 2]) {
        let unsolicited = (first >> 24) as u8 & flags::UNSOLICITED != 0;
        if self.watching && !self.finds_room(index, qp, unsolicited) {
            return;
        }
        if let Some(cq) = self.cq_mut(index) {
            cq.write(sub, first, second, rest);
            if let Some(channel) = cq.channel() {
                self.raise_if_due(index, channel);
            }
        }
    }
}
