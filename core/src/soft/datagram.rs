//! Datagrams: each is tried once, its send succeeds, and nobody hears what became of it.
//!
//! What the 40 bytes before the payload hold is the device's own: this one leaves them as they are.

#![forbid(unsafe_code)]

use super::responder::Verdict;
use super::tables::State;
use crate::qp::QpType;
use crate::status::CompletionStatus as Status;

impl State {
    /// Whether the message at the head is of a UD queue pair.
    #[inline(always)]
    pub(super) fn has_datagram(&self) -> bool {
        let qp = self.packet_at(self.head).and_then(|packet| self.qp(packet.qp));
        qp.is_some_and(|qp| qp.qp_type == QpType::Ud)
    }

    /// Tries the datagram at the head; what its own device finds wrong is told, and nothing else.
    pub(super) fn deliver_datagram(&mut self) {
        let lost = self.is_lost();
        let Some(packet) = self.packet_at(self.head) else { return };
        let (index, entry, forced) = (packet.qp, packet.meta(), packet.trial.forced);
        let Some(qp) = self.qp(index) else { return self.pop() };
        let nic = qp.nic;
        let request = match forced {
            Some(status) => Err(status),
            None => self.request(qp, &packet.entry),
        };
        let request = match request {
            Ok(request) => request,
            Err(status) => {
                self.pop();
                return self.conclude(index, entry, status);
            }
        };
        if self.goes_elsewhere(&request) {
            return self.depart_datagram(request.gid);
        }
        let (peer, bytes) = (self.nic_at(&request.gid), request.len);
        let tried = if lost {
            Err(Status::LocalUnreachRemote)
        } else if self.config.faults.rnr > 0 {
            self.route(qp, &request).map(|_| Verdict::NoReceive)
        } else {
            self.respond(qp, packet, &request)
        };
        // Gone from the wire first: the responder may be put into ERR and be the requester too.
        self.pop();
        let status = match tried {
            Ok(Verdict::Arrived(arrived)) => self.arrive(arrived),
            Ok(Verdict::Failed(status)) | Err(status) => status,
            Ok(Verdict::Elsewhere(_)) => Status::LocalUnreachRemote,
            Ok(Verdict::NoReceive | Verdict::Moved(_)) => Status::RemoteRnr,
        };
        if status != Status::Ok {
            let counters = self.counters(nic);
            counters.tx_bytes += u64::from(bytes);
            counters.tx_pkts += 1;
            counters.send_wrs += 1;
            counters.send_bytes += u64::from(bytes);
            let reached = !matches!(status, Status::LocalUnreachRemote | Status::LocalUnrespRemote);
            if let Some(peer) = peer.filter(|_| reached) {
                self.counters(peer).rx_drops += 1;
            }
        }
        self.conclude(index, entry, Status::Ok);
    }
}
