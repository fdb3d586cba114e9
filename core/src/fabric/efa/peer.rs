//! One peer, as the layer keeps it: credits, order, and what waits.

use super::held::Held;
use super::packet::{self, Header, PeerFeatures};
use super::{CREDITS, Id};
use crate::Incarnation;
use crate::fabric::{Violation, Why};
use crate::peer::{Mutual, Peer, Sender};

/// First wait for an answer to a hello, and the longest: each is twice the last, in microseconds.
pub(super) const HELLO_DELAYS: [u64; 2] = [10_000, 1_000_000];

/// How long a peer that something is awaited from may be silent before it is asked, and the longest: each is twice the last.
pub(super) const SILENCES: [u64; 2] = [1_000_000, 60_000_000];

#[derive(Debug)]
pub(super) struct PeerState<F> {
    pub(super) peer: Peer<Mutual, F>,
    pub(super) life: Option<Incarnation>,
    pub(super) standing: Standing,
    /// Its state is to be told to the application.
    pub(super) told: bool,
    pub(super) removed: bool,
    /// It is to be told that it is lost.
    pub(super) bye_due: bool,
    /// It is in the list of those to be served.
    pub(super) attended: bool,

    // Hello.
    pub(super) hello_due: bool,
    /// It was told that we know it.
    pub(super) greeted: bool,
    pub(super) hello_at: u64,
    pub(super) hello_delay: u64,

    // As it said.
    pub(super) place: u16,
    /// Bytes of a packet: its own, or ours if those are less.
    pub(super) packet: usize,
    pub(super) reserve: u32,
    /// What RDMA it has, and we too.
    pub(super) features: PeerFeatures,

    // What we send: counted packets, and how many there may have been.
    pub(super) sent: u32,
    pub(super) limit: u32,
    pub(super) next_sequence: u32,
    pub(super) queue: [Option<Id>; 2],
    /// Messages, puts and answers that stream or write.
    pub(super) streams: u16,
    /// Operations with something to be said or posted.
    pub(super) due: u16,
    /// Packets and RDMA in flight to it, and operations under way with it.
    pub(super) in_flight: u32,
    pub(super) operations: u32,

    // What it sends: counted packets that came, those whose slots are free again, and what it was told of that.
    pub(super) arrived: u32,
    pub(super) freed: u32,
    pub(super) told_freed: u32,
    /// The message whose turn it is to be given to a receive, and the one whose turn it is to be told.
    pub(super) expected: u32,
    pub(super) telling: u32,
    /// Credit packets: ours to it, of these it has taken, and its own that we took.
    pub(super) credits_sent: u16,
    pub(super) credits_heard: u16,
    pub(super) credits_taken: u16,
    /// When it was heard or asked last, for how long it may be silent, and whether it is to be asked whether it is there.
    pub(super) heard_at: u64,
    pub(super) silence: u64,
    pub(super) probe_due: bool,
    pub(super) held: Held,
}

/// How a peer stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It has not answered.
    Greeting,
    Up,
    Lost(Why),
}

impl<F: crate::qp::FeatureSet> PeerState<F> {
    pub(super) fn new(peer: Peer<Mutual, F>, start: u32) -> Self {
        Self {
            life: peer.incarnation(),
            peer,
            standing: Standing::Greeting,
            told: true,
            removed: false,
            bye_due: false,
            attended: false,
            hello_due: true,
            greeted: false,
            hello_at: 0,
            hello_delay: 0,
            place: packet::NO_PLACE,
            packet: 0,
            reserve: 0,
            features: PeerFeatures::empty(),
            sent: 0,
            limit: 0,
            next_sequence: start,
            queue: [None; 2],
            streams: 0,
            due: 0,
            in_flight: 0,
            operations: 0,
            arrived: 0,
            freed: 0,
            told_freed: 0,
            expected: 0,
            telling: 0,
            credits_sent: start as u16,
            credits_heard: start as u16,
            credits_taken: 0,
            heard_at: 0,
            silence: SILENCES[0],
            probe_due: false,
            held: Held::new(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.standing, Standing::Up)
    }

    /// Why nothing can be sent to it any more.
    pub(super) fn lost(&self) -> Option<Why> {
        match self.standing {
            Standing::Lost(why) => Some(why),
            _ => None,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self.standing, Standing::Lost(_))
    }

    /// Whether a packet is its own, of its present life, after it greeted us.
    #[inline(always)]
    pub(super) fn is_sender(&self, header: &Header, from: &Sender) -> bool {
        let life = self.life.is_some_and(|life| life.0 as u32 == header.life.get());
        self.is(from) && life && self.place != packet::NO_PLACE && !self.is_lost()
    }

    /// Whether a packet came from its address, as far as the device knew.
    #[inline(always)]
    pub(super) fn is(&self, sender: &Sender) -> bool {
        match *sender {
            Sender::Known { ahn, qpn } => self.peer.ahn() == ahn && self.peer.qpn() == qpn,
            Sender::Unknown { gid: Some(gid), qpn } => self.peer.gid() == gid && self.peer.qpn() == qpn,
            Sender::Unknown { gid: None, qpn } => self.peer.qpn() == qpn,
        }
    }

    /// Packets that it has room for.
    pub(super) fn credits(&self) -> u32 {
        let left = self.limit.wrapping_sub(self.sent);
        if left < 1 << 31 { left } else { 0 }
    }

    /// Those of them that messages may have: the rest is for what must never wait for the application.
    pub(super) fn data_credits(&self) -> u32 {
        self.credits().saturating_sub(self.reserve)
    }

    /// What every packet's header says of us.
    #[inline(always)]
    pub(super) fn header(&mut self, life: u32) -> Header {
        self.told_freed = self.freed;
        Header {
            place: self.place.into(),
            heard: self.credits_taken.into(),
            life: life.into(),
            limit: self.freed.wrapping_add(CREDITS).into(),
            ..Header::default()
        }
    }

    /// What a packet's header says; whether there is more room than before.
    #[inline(always)]
    pub(super) fn hear(&mut self, header: &Header) -> bool {
        let heard = header.heard.get();
        if self.credits_sent.wrapping_sub(heard) < self.credits_sent.wrapping_sub(self.credits_heard) {
            self.credits_heard = heard;
        }
        let limit = header.limit.get();
        let more = limit.wrapping_sub(self.limit);
        // Packets pass one another, so an older limit may come later.
        if more == 0 || more >= 1 << 31 {
            return false;
        }
        self.limit = limit;
        true
    }

    /// A counted packet came.
    #[inline(always)]
    pub(super) fn count(&mut self) -> Result<(), Violation> {
        if self.arrived.wrapping_sub(self.freed) >= CREDITS {
            return Err(Violation::Credits);
        }
        self.arrived = self.arrived.wrapping_add(1);
        Ok(())
    }

    /// Whether a credit packet is due: when it has no more left than there is to give and no two are under way, or it was
    /// silent for long.
    #[inline(always)]
    pub(super) fn owes_credit(&self) -> bool {
        let untold = self.freed.wrapping_sub(self.told_freed);
        let left = CREDITS.saturating_sub(self.arrived.wrapping_sub(self.told_freed));
        let under_way = self.credits_sent.wrapping_sub(self.credits_heard);
        self.probe_due || (untold >= left.max(1) && under_way < super::CREDIT_PACKETS)
    }

    /// How far ahead of its turn a message is.
    #[inline(always)]
    pub(super) fn ahead(&self, sequence: u32) -> Result<u32, Violation> {
        let ahead = sequence.wrapping_sub(self.expected);
        // Each message up to this one has a packet that was not freed.
        if ahead < CREDITS { Ok(ahead) } else { Err(Violation::Sequence { found: sequence, expected: self.expected }) }
    }
}
