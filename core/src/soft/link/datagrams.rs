//! Datagrams to and from other wires: a frame each, in no session, sent once and answered by nothing.

use alloc::vec;

use super::frame::{Body, DATAGRAM, FRAME, Frame, PAYLOAD, UdMessage};
use super::{DATAGRAMS, take_ready};
use crate::Gid;
use crate::entry::control1;
use crate::qp::QpType;
use crate::soft::engine;
use crate::soft::memory::Span;
use crate::soft::responder::{Origin, Part, Verdict, scatter};
use crate::soft::tables::State;
use crate::status::CompletionStatus as Status;

impl State {
    /// Sends the datagram at the head, which its own device found good, to a device of another wire: it is copied, and
    /// done. It goes behind all others while the link has no room.
    pub(in crate::soft) fn depart_datagram(&mut self, gid: Gid) {
        let Some(packet) = self.packet_at(self.head).copied() else { return };
        let Some(qp) = self.qp(packet.qp) else { return self.pop() };
        let Ok(request) = self.request(qp, &packet.entry) else { return self.pop() };
        let (nic, length) = (qp.nic, request.len);
        let is_up = self.is_up(nic);
        let is_full = self.link.as_ref().is_none_or(|link| link.datagrams.len() >= DATAGRAMS);
        if is_up && is_full {
            return self.requeue();
        }
        let mut sent = None;
        // What is longer than a frame was refused before.
        if is_up && length as usize <= PAYLOAD {
            let mut frame = vec![0; DATAGRAM + length as usize];
            let out = frame.get_mut(DATAGRAM..).unwrap_or_default();
            let mut inline = [0; _];
            scatter(self.sources(&packet, &request, &mut inline), [Some(Span::of_bytes(out)), None]);
            let head = Frame { to: gid, from: self.gid_of(nic), to_session: 0, from_session: 0, body: Body::Alive };
            let datagram =
                UdMessage { source: qp.qpn, destination: request.qpn, qkey: request.qkey, imm: request.imm, data: &[] };
            head.seal_datagram(&mut frame, &datagram, length as usize);
            sent = Some(frame);
        }
        if let (Some(link), Some(sent)) = (self.link.as_mut(), sent) {
            link.datagrams.push_back((nic, gid, sent));
        }
        self.pop();
        self.count(nic, Part::Requester, control1::OP_SEND, length);
        self.conclude(packet.qp, packet.meta(), Status::Ok);
    }

    /// Writes the next datagram of a device that is not unplugged, to one that is not busy: its addressee and length.
    pub(super) fn transmit_datagram(&mut self, frame: &mut [u8; FRAME], busy: &[Gid]) -> Option<(Gid, usize)> {
        while let Some((nic, gid, bytes)) = take_ready(&mut self.link.as_mut()?.datagrams, busy, |(_, gid, _)| *gid) {
            if self.is_up(nic) {
                frame.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                return Some((gid, bytes.len()));
            }
        }
        None
    }

    /// Puts a datagram into a receive, or drops it.
    pub(super) fn datagram_came(&mut self, nic: u8, gid: Gid, datagram: &UdMessage<'_>) {
        let origin = Origin { gid, nic: None, qp_type: QpType::Ud, qpn: datagram.source, unsolicited: false };
        let call = engine::Request {
            op: control1::OP_SEND,
            imm: datagram.imm,
            qpn: datagram.destination,
            qkey: datagram.qkey,
            gid: Gid([0; 16]),
            // No longer than a frame.
            len: datagram.data.len() as u32,
            local: [None, None],
            inline: None,
            rkey: 0,
            remote_addr: 0,
        };
        let status = match self.respond_to(nic, &origin, &call, (0, datagram.data)) {
            Ok(Verdict::Arrived(arrived)) => self.arrive(arrived),
            Ok(_) => Status::RemoteRnr,
            Err(status) => status,
        };
        if status != Status::Ok {
            self.counters(nic).rx_drops += 1;
        }
    }
}
