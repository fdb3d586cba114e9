//! The responder's side: frames come in, requests are executed once, reads are made when their answer goes out.

use super::channel::{Admission, Read};
use super::frame::{Body, Frame, Request};
use super::{FrameError, Link};
use crate::Gid;
use crate::entry::control1;
use crate::qp::QpType;
use crate::soft::engine;
use crate::soft::memory::Span;
use crate::soft::responder::{Origin, Part, Verdict, scatter};
use crate::soft::tables::State;
use crate::status::CompletionStatus as Status;

impl State {
    /// Takes in a frame.
    pub(super) fn link_receive(&mut self, now: u64, bytes: &[u8]) -> Result<(), FrameError> {
        if !self.is_linked() {
            return Err(FrameError::NotLinked);
        }
        let frame = Frame::parse(bytes)?;
        let nic = self.nic_at(&frame.to).ok_or(FrameError::NotForUs { to: frame.to })?;
        if self.nic_at(&frame.from).is_some() {
            return Err(FrameError::FromUs { from: frame.from });
        }
        if !self.is_up(nic) {
            return Ok(());
        }
        if let Body::Ud(datagram) = frame.body {
            self.datagram_came(nic, frame.from, &datagram);
            return Ok(());
        }
        let Some(index) = self.link.as_mut().and_then(|link| link.listen(now, nic, &frame)) else { return Ok(()) };
        match frame.body {
            Body::Hello | Body::Alive | Body::Ud(_) => {}
            Body::Reset => self.close_node(index),
            Body::Request(request) => self.serve(index, nic, frame.from, &request),
            Body::Answers(answers) => {
                for (sequence, status) in answers.iter() {
                    self.answered(index, now, sequence, status);
                }
            }
            Body::Data { sequence, bytes } => self.data_came(index, sequence, bytes),
        }
        Ok(())
    }

    /// Executes a request, unless it was.
    fn serve(&mut self, index: usize, nic: u8, gid: Gid, request: &Request<'_>) {
        let Some(node) = self.link.as_mut().and_then(|link| link.nodes.get_mut(index)) else { return };
        match node.serving.admit(request.sequence, request.floor) {
            Admission::New => {}
            Admission::Again => return self.counters(nic).duplicates += 1,
            Admission::Outside => return,
        }
        let read = Read::of(request);
        if request.op == control1::OP_RDMA_READ {
            return node.serving.read(request.sequence, read);
        }
        let call = read.call(request.op, request.imm);
        let status = match self.respond_to(nic, &read.origin(gid), &call, (request.at, request.data)) {
            Ok(Verdict::Arrived(arrived)) => self.arrive(arrived),
            Ok(Verdict::NoReceive) => Status::RemoteRnr,
            Ok(_) => Status::RemoteBadStatus,
            Err(status) => status,
        };
        if status != Status::Ok {
            self.counters(nic).rx_drops += 1;
        }
        if let Some(node) = self.link.as_mut().and_then(|link| link.nodes.get_mut(index)) {
            node.serving.answer(request.sequence, status);
        }
    }

    /// Reads what was asked for; else its answer is a status.
    pub(super) fn serve_read(&mut self, index: usize, sequence: u64, read: &Read, bytes: &mut [u8]) -> bool {
        let Some(node) = self.link.as_ref().and_then(|link| link.nodes.get(index)) else { return false };
        let (nic, gid) = (node.nic, node.gid);
        let status = match self.read_for(nic, &read.origin(gid), &read.call(control1::OP_RDMA_READ, None)) {
            Ok(span) => {
                let from = span.part(read.at as usize, bytes.len()).into();
                scatter([Some(from), None], [Some(Span::of_bytes(bytes)), None]);
                if !read.again {
                    self.count(nic, Part::Responder, control1::OP_RDMA_READ, read.part);
                    if let Some(qp) = self.qp_of(nic, read.destination).filter(|_| read.is_last()) {
                        self.tally_remote(qp, control1::OP_RDMA_READ);
                    }
                }
                return true;
            }
            Err(status) => status,
        };
        self.counters(nic).rx_drops += 1;
        if let Some(node) = self.link.as_mut().and_then(|link| link.nodes.get_mut(index)) {
            node.serving.refuse_read(sequence, status);
        }
        false
    }
}

impl Read {
    fn of(request: &Request<'_>) -> Self {
        Self {
            source: request.source,
            destination: request.destination,
            unsolicited: request.unsolicited,
            qkey: request.qkey,
            rkey: request.rkey,
            length: request.length,
            address: request.address,
            at: request.at,
            part: request.part,
            again: false,
        }
    }

    fn is_last(&self) -> bool {
        self.at.saturating_add(self.part) >= self.length
    }

    fn origin(&self, gid: Gid) -> Origin {
        Origin { gid, nic: None, qp_type: QpType::Srd, qpn: self.source, unsolicited: self.unsolicited }
    }

    /// The request as the engine has it; its bytes are elsewhere.
    fn call(&self, op: u8, imm: Option<u32>) -> engine::Request<'static> {
        engine::Request {
            op,
            imm,
            qpn: self.destination,
            qkey: self.qkey,
            gid: Gid([0; 16]),
            len: self.length,
            local: [None, None],
            inline: None,
            rkey: self.rkey,
            remote_addr: self.address,
        }
    }
}

impl Link {
    /// Whose frame it is, if it is to be acted on: see the table of [`node`](super::node).
    fn listen(&mut self, now: u64, nic: u8, frame: &Frame<'_>) -> Option<usize> {
        let known = self.find(nic, &frame.from);
        let (ours, theirs) = match known.and_then(|index| self.nodes.get(index)) {
            Some(node) => (node.session, node.theirs),
            None => (self.stranger(nic, &frame.from), None),
        };
        let (to, from, to_session) = (frame.from, frame.to, frame.from_session);
        let back = |body, from_session| Frame { to, from, to_session, from_session, body };
        if frame.body == Body::Hello && frame.to_session == 0 {
            match known.and_then(|index| self.nodes.get_mut(index)).filter(|_| theirs.is_some()) {
                Some(node) => node.challenged = true,
                None => self.reply(back(Body::Hello, ours)),
            }
            return None;
        }
        let is_this = frame.to_session == ours;
        match frame.body {
            Body::Reset => known.filter(|_| is_this && theirs == Some(frame.from_session)),
            _ if is_this && theirs.is_none_or(|theirs| theirs == frame.from_session) => {
                let index = self.enter(nic, frame.to, frame.from)?;
                self.nodes.get_mut(index)?.hear(now, frame.from_session);
                Some(index)
            }
            Body::Hello => None,
            _ => {
                self.reply(back(Body::Reset, frame.to_session));
                None
            }
        }
    }
}
