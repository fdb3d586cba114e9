//! Events: each of something in flight, which then is no more.

use efa_core::Token;
use efa_core::memory::{Buffer, Buffers};
use efa_core::peer::Sender;
use efa_core::work::{Event, Failure};

use super::holds::Kept;
use super::posts::UNTOUCHED;
use super::srd::{Kind, Life};
use super::{Fate, Lent, NODES, Piece, Qp, World};

impl<K: super::kind::Kind> World<K> {
    pub(super) fn poll(&mut self, node: usize, count: usize, fate: Fate) {
        for _ in 0..count {
            self.srd.observe();
            let life = self.nodes[node].life;
            let (event, stats, cause) = match &mut self.nodes[node].qp {
                Qp::None => return,
                Qp::Up(qp) => (qp.poll(), qp.stats(), qp.cause().copied()),
                Qp::Err(qp) => (qp.poll(), qp.stats(), qp.cause().copied()),
            };
            assert!(stats.stale == 0 || self.setup.stale > 0, "{stats:?}");
            let Some(event) = event else {
                // Both queues were read.
                self.nodes[node].haunted = false;
                continue;
            };
            self.resolve(node, life, event, fate);
            if let Some(expected) = self.srd.cause(life) {
                let cause = cause.map(|failure| (failure.token.unwrap().0, failure.status().unwrap().number()));
                assert_eq!(cause, expected, "R40");
            }
        }
    }

    pub(super) fn poll_all(&mut self) {
        (0..NODES).for_each(|node| self.poll(node, 1, Fate::Keep));
    }

    /// What an event says, against what the model allows.
    pub(super) fn resolve(&mut self, node: usize, life: Life, event: Event, fate: Fate) {
        let Token(token) = event.token().expect("arrivals consume receives here");
        let (owner, lent) = self.lent.remove(&token).unwrap_or_else(|| panic!("{event:?} of nothing in flight"));
        assert_eq!(owner, life, "{event:?}");
        let is_receive = self.srd.is_receive(token);
        let said = Said::of(&event);
        let kept = self.back(event.into_buffers(), &lent);
        let bytes: Vec<u8> = kept.iter().flat_map(|kept| kept.bytes().iter().copied()).collect();
        match said {
            Said::Done(kind) => {
                let read = self.srd.read_from(token);
                if let Some((memory, at)) = read {
                    self.srd.memory[memory].check(at, &bytes);
                }
                self.srd.done(token, kind);
                self.reached.insert(match kind {
                    Kind::Send => "a SEND done",
                    Kind::Write => "a write done",
                    Kind::Read => "a read done",
                });
            }
            Said::Received { len, imm, from } => {
                assert!(bytes[len..].iter().all(|byte| *byte == UNTOUCHED), "bytes beyond the message");
                self.check_sender(node, from, true);
                let addresses = &self.addresses;
                let may_be = |life| addresses.get(&life).is_some_and(|(_, qpn)| *qpn == from.qpn());
                self.srd.arrived(token, imm, Some(len), Some(&bytes[..len]), may_be);
                self.reached.insert("a message received");
            }
            Said::Written { len, imm, from } => {
                assert!(bytes.iter().all(|byte| *byte == UNTOUCHED), "bytes of a write in a receive");
                self.check_sender(node, from, false);
                let addresses = &self.addresses;
                let may_be = |life| addresses.get(&life).is_some_and(|(_, qpn)| *qpn == from.qpn());
                self.srd.arrived(token, Some(imm), len, None, may_be);
                self.reached.insert("a write with immediate received");
            }
            Said::Failed(failure) => {
                let status = failure.status().expect("a status").number();
                if is_receive {
                    self.srd.receive_failed(token, status);
                    assert_eq!(failure.kind, efa_core::work::Kind::Recv);
                } else {
                    let kind = self.srd.failed(token, status);
                    let same = match kind {
                        Kind::Send => efa_core::work::Kind::Send,
                        Kind::Write => efa_core::work::Kind::Write,
                        Kind::Read => efa_core::work::Kind::Read,
                    };
                    assert_eq!(failure.kind, same);
                }
                self.reached.insert(STATUSES.get(usize::from(status)).copied().unwrap_or("a status of its own"));
            }
            Said::Reclaimed => {
                self.srd.reclaimed(token);
                self.reached.insert("a request reclaimed");
            }
        }
        match fate {
            Fate::Keep => kept.into_iter().for_each(|kept| self.keep(node, kept)),
            Fate::Drop => drop(kept),
            Fate::Forget if self.forgotten.len() < 8 && !kept.is_empty() => {
                let owners: Vec<usize> = lent.iter().map(|lent| lent.owner).collect();
                self.forget(kept, owners);
                self.reached.insert("an event's buffers forgotten");
            }
            Fate::Forget => drop(kept),
        }
    }

    /// The very buffers that were posted.
    fn back(&self, buffers: Buffers, lent: &[Lent]) -> Vec<Kept> {
        assert_eq!(buffers.len(), lent.len());
        let back = buffers.zip(lent).map(|(buffer, lent)| {
            let kept = match buffer {
                Buffer::Slice(slice) => Kept::Piece(Piece { slice, owner: lent.owner }),
                Buffer::Frozen(frozen) => Kept::Frozen(frozen),
                Buffer::Exposed(part) => Kept::Part(part),
                other => panic!("{other:?} was not posted"),
            };
            assert_eq!(kept.lent(lent.owner), *lent);
            kept
        });
        back.collect()
    }

    /// A handle that is named is one that this node has, or had; else the device is told, of a message (R23, R24).
    fn check_sender(&mut self, node: usize, from: Sender, is_message: bool) {
        match from {
            Sender::Known { ahn, .. } => assert!(self.handles.contains(&(node, ahn)), "{from:?}"),
            Sender::Unknown { gid, qpn } => {
                let known = self.addresses.values().any(|address| (gid, qpn) == (Some(address.0), address.1));
                assert!(if is_message { known } else { gid.is_none() }, "{from:?}");
                self.reached.insert("an unknown sender");
            }
        }
    }
}

/// What an event says, without its buffers.
enum Said {
    Done(Kind),
    Received { len: usize, imm: Option<u32>, from: Sender },
    Written { len: Option<usize>, imm: u32, from: Sender },
    Failed(Failure),
    Reclaimed,
}

impl Said {
    fn of(event: &Event) -> Self {
        match event {
            Event::Sent(_) => Self::Done(Kind::Send),
            Event::Written(_) => Self::Done(Kind::Write),
            Event::Read(_) => Self::Done(Kind::Read),
            Event::Received(message) => Self::Received { len: message.len, imm: message.imm, from: message.from },
            Event::WriteArrived(write) => {
                Self::Written { len: write.len.map(|len| len as usize), imm: write.imm, from: write.from }
            }
            Event::Failed { failure, .. } => Self::Failed(*failure),
            Event::Reclaimed { .. } => Self::Reclaimed,
            Event::UnsolicitedWrite(_) => panic!("none was asked for"),
        }
    }
}

/// What was reached, by status.
const STATUSES: [&str; 16] = [
    "success as a failure",
    "a flush",
    "a queue pair failed",
    "an unsupported operation",
    "an operation without its address handle",
    "a bad local key",
    "a receive too short",
    "a bad remote address",
    "an abort",
    "a peer gone",
    "no receive",
    "a message too long",
    "a bad remote status",
    "an unresponsive peer",
    "an unknown peer",
    "an unreachable peer",
];
