//! What SRD promises, and no more: each operation ends once, with success or a status that its history allows; each
//! message arrives at most once, whole, and exactly once if its operation succeeded; nothing is ordered.
//!
//! It knows tokens, numbers and bytes, and nothing of core.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Memory;
use super::{NICS, NODES};

/// A queue pair from RESET to its end or its next RESET, by its number.
pub(super) type Life = usize;

/// The statuses of completions, as the device numbers them.
pub(super) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const FLUSHED: u8 = 1;
    pub(crate) const QP_FAILED: u8 = 2;
    pub(crate) const NO_HANDLE: u8 = 4;
    pub(crate) const RECV_TOO_SHORT: u8 = 6;
    pub(crate) const BAD_ADDRESS: u8 = 7;
    pub(crate) const NO_QP: u8 = 9;
    pub(crate) const NO_RECEIVE: u8 = 10;
    pub(crate) const TOO_LONG: u8 = 11;
    pub(crate) const UNRESPONSIVE: u8 = 13;
    pub(crate) const UNKNOWN_PEER: u8 = 14;
    pub(crate) const UNREACHABLE: u8 = 15;
}
use status::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Write,
    Read,
}

/// An operation as its program asked for it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) from: Life,
    /// None if the address was corrupted.
    pub(super) to: Option<Life>,
    pub(super) imm: Option<u32>,
    pub(super) len: usize,
    /// What must arrive; none if it was in exposed memory.
    pub(super) bytes: Option<Vec<u8>>,
    /// Of RDMA, unless the window was corrupted: which memory, and where.
    pub(super) remote: Option<(usize, usize)>,
}

/// A request in flight.
#[derive(Debug)]
struct Operation {
    request: Request,
    /// The statuses that it may end with, one bit each.
    may: u32,
    /// The peer's device had answered before it was posted.
    heard: bool,
    message: Option<usize>,
}

/// What arrives at a peer's program, if it does.
#[derive(Debug)]
struct Message {
    request: Request,
    state: State,
    /// It was received, or one that looks the same.
    arrived: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    InFlight,
    /// Its operation succeeded: it is there.
    Sent,
    /// Its operation ended otherwise: it is there or not.
    Perhaps,
    /// It was too long for a receive, which it took.
    TooLong,
    /// It is not there.
    Never,
}

#[derive(Debug)]
struct LifeState {
    node: usize,
    nic: usize,
    /// Peers can reach it.
    reachable: bool,
    /// What is in flight on it is flushed.
    flushed: bool,
    /// Its program died: nothing that it posts is done.
    dead: bool,
    /// Nobody polls it any more.
    lost: bool,
    /// How often a message of its finds no receive before it fails; none for ever.
    retries: Option<u8>,
    /// The first failure that was no flush (R40): which, and its status.
    cause: Option<(u64, u8)>,
    untold: bool,
    /// The device failed it.
    failed: bool,
    shortest_receive: usize,
    /// Receives that were too short, whose messages' operations are not known to have failed.
    too_short: usize,
}

/// What the device is asked to do wrong, as far as outcomes depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrongs {
    pub(super) lossy: bool,
    pub(super) rnr: u8,
    pub(super) forced: Option<u8>,
    pub(super) silent_death: bool,
}

#[derive(Debug)]
pub(super) struct Srd {
    wrongs: Wrongs,
    /// Operations of each device that are yet to be made to fail.
    forced: [Option<u8>; NICS],
    lives: Vec<LifeState>,
    operations: BTreeMap<u64, Operation>,
    receives: BTreeMap<u64, (Life, usize)>,
    /// Operations that no doorbell announced: they end with their queue pair.
    withheld: BTreeMap<u64, Life>,
    messages: Vec<Message>,
    pub(super) memory: Vec<Memory>,
    links: [bool; NICS],
    heard: BTreeSet<(usize, usize)>,
    /// By node and device: peers that it has there.
    resolved: [[usize; NICS]; NODES],
}

fn bits(statuses: &[u8]) -> u32 {
    statuses.iter().fold(0, |bits, status| bits | 1 << status)
}

impl Srd {
    pub(super) fn new(wrongs: Wrongs) -> Self {
        Self {
            wrongs,
            forced: [wrongs.forced; NICS],
            lives: Vec::new(),
            operations: BTreeMap::new(),
            receives: BTreeMap::new(),
            withheld: BTreeMap::new(),
            messages: Vec::new(),
            memory: Vec::new(),
            links: [true; NICS],
            heard: BTreeSet::new(),
            resolved: [[0; NICS]; NODES],
        }
    }

    // --- what a program does

    pub(super) fn begin(&mut self, node: usize, nic: usize, retries: Option<u8>) -> Life {
        self.lives.push(LifeState {
            node,
            nic,
            reachable: true,
            flushed: false,
            dead: false,
            lost: false,
            retries,
            cause: None,
            untold: false,
            failed: false,
            shortest_receive: usize::MAX,
            too_short: 0,
        });
        self.lives.len() - 1
    }

    pub(super) fn post(&mut self, token: u64, request: Request) {
        let from = &self.lives[request.from];
        let mut may = if self.wrongs.lossy { bits(&[UNRESPONSIVE, UNREACHABLE]) } else { 0 };
        let is_there = request.remote.is_none_or(|(memory, _)| !self.memory[memory].is_revoked());
        if !from.dead && is_there && request.to.is_none_or(|to| self.lives[to].reachable) {
            may |= 1 << OK;
        }
        if request.kind != Kind::Send && request.remote.is_none() {
            may |= 1 << BAD_ADDRESS;
        }
        if request.to.is_none() {
            may |= bits(&[NO_QP, NO_RECEIVE, UNRESPONSIVE, UNREACHABLE]);
        }
        let heard = request.to.is_some_and(|to| self.heard.contains(&(from.nic, self.lives[to].nic)));
        if let Some((memory, at)) = request.remote {
            let bytes = (request.kind == Kind::Write).then_some(request.bytes.as_deref()).flatten();
            self.memory[memory].begin(token, at, request.len, bytes);
        }
        let arrives = request.kind == Kind::Send || request.imm.is_some();
        let message = arrives.then_some(self.messages.len());
        if arrives {
            self.messages.push(Message { request: request.clone(), state: State::InFlight, arrived: false });
        }
        let before = self.operations.insert(token, Operation { request, may, heard, message });
        assert!(before.is_none());
        self.observe();
    }

    pub(super) fn withhold(&mut self, token: u64, life: Life) {
        assert!(self.withheld.insert(token, life).is_none());
    }

    pub(super) fn receive(&mut self, token: u64, life: Life, room: usize) {
        assert!(self.receives.insert(token, (life, room)).is_none());
        let shortest = &mut self.lives[life].shortest_receive;
        *shortest = room.min(*shortest);
    }

    pub(super) fn link(&mut self, nic: usize, up: bool) {
        self.observe();
        self.links[nic] = up;
        self.observe();
    }

    /// All programs on a device die.
    pub(super) fn die(&mut self, nic: usize) {
        for life in self.lives.iter_mut().filter(|life| life.nic == nic) {
            (life.reachable, life.dead) = (false, true);
            life.flushed |= !self.wrongs.silent_death;
        }
        self.observe();
    }

    /// To ERR.
    pub(super) fn error(&mut self, life: Life) {
        let life = &mut self.lives[life];
        life.reachable = false;
        // A dead one is in ERR, and what it had in flight is gone.
        life.flushed |= !life.dead;
        self.observe();
    }

    /// Back to RTS, with a send queue that takes operations again.
    pub(super) fn resumed(&mut self, life: Life) {
        self.lives[life].failed = false;
    }

    /// Its end: all in flight is resolved.
    pub(super) fn end(&mut self, life: Life) {
        self.lives[life].reachable = false;
        assert_eq!(self.in_flight(life), 0);
        self.observe();
    }

    /// Its end without a word on what was in flight, or on what arrived and was not polled.
    pub(super) fn vanish(&mut self, life: Life) {
        self.lives[life].lost = true;
        for token in self.tokens(life) {
            self.reclaimed(token);
        }
        self.end(life);
    }

    /// It goes on at the device, and nobody hears of it.
    pub(super) fn forget(&mut self, life: Life) {
        self.lives[life].lost = true;
        let messages = self.operations.values().filter(|operation| operation.request.from == life);
        for message in messages.filter_map(|operation| operation.message) {
            self.messages[message].state = State::Perhaps;
        }
        // Its operations and receives stay, and what they do to memory.
    }

    /// A node has one peer more or less on a device.
    pub(super) fn resolves(&mut self, node: usize, nic: usize, more: bool) {
        let count = &mut self.resolved[node][nic];
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            // The handle is gone, and its number may be another's.
            let lives = &self.lives;
            let by_handle = |operation: &&mut Operation| {
                let Request { from, to, .. } = operation.request;
                lives[from].node == node && to.is_none_or(|to| lives[to].nic == nic)
            };
            for operation in self.operations.values_mut().filter(by_handle) {
                operation.may |= bits(&[NO_HANDLE, NO_QP, UNRESPONSIVE, UNREACHABLE]);
                operation.heard = false;
            }
        }
        self.observe();
    }

    // --- what happens meanwhile

    /// Notes what each operation may end with as things are now. Called before the device does anything.
    pub(super) fn observe(&mut self) {
        let mut may = Vec::with_capacity(self.operations.len());
        for operation in self.operations.values() {
            let Request { from, to, len, remote, kind, .. } = operation.request;
            let (from, mut now) = (&self.lives[from], 0);
            if from.flushed {
                now |= 1 << FLUSHED;
            }
            if !self.links[from.nic] || to.is_none_or(|to| !self.links[self.lives[to].nic]) {
                now |= bits(&[UNRESPONSIVE, UNREACHABLE]);
            }
            if remote.is_some_and(|(memory, _)| !self.memory[memory].is_open()) {
                now |= 1 << BAD_ADDRESS;
            }
            if let Some(life) = to {
                let to = &self.lives[life];
                if !to.reachable {
                    now |= 1 << NO_QP;
                }
                if kind != Kind::Send && self.resolved[to.node][from.nic] == 0 {
                    now |= 1 << UNKNOWN_PEER;
                }
                if kind == Kind::Send && to.shortest_receive < len {
                    now |= 1 << TOO_LONG;
                }
                let retries = from.retries.unwrap_or(u8::MAX);
                if operation.message.is_some() && retries < u8::MAX {
                    let forced = retries < self.wrongs.rnr;
                    now |= u32::from(forced || self.is_starved(life)) << NO_RECEIVE;
                }
            }
            may.push(now);
        }
        for (operation, now) in self.operations.values_mut().zip(may) {
            operation.may |= now;
        }
    }

    /// Whether there may be more messages than receives.
    fn is_starved(&self, life: Life) -> bool {
        let receives = self.receives.values().filter(|receive| receive.0 == life).count();
        let messages = self.messages.iter().filter(|message| !message.arrived && message.state != State::Never);
        receives < messages.filter(|message| message.request.to.is_none_or(|to| to == life)).count()
    }

    // --- what its program is told

    /// An operation's success.
    pub(super) fn done(&mut self, token: u64, kind: Kind) {
        let operation = self.take(token);
        assert_eq!(operation.request.kind, kind);
        assert!(operation.may & 1 << OK != 0, "{token} cannot have been done: {operation:?}");
        self.hear(&operation);
        self.finish(token, &operation, true, State::Sent);
    }

    /// An operation's failure; its kind.
    pub(super) fn failed(&mut self, token: u64, status: u8) -> Kind {
        let operation = self.take(token);
        let from = operation.request.from;
        let allowed = operation.may & 1 << status != 0 && !(status == UNREACHABLE && operation.heard);
        let forced = &mut self.forced[self.lives[from].nic];
        let is_free = forced.is_none();
        if !allowed {
            assert!(status != OK && *forced == Some(status), "{token} cannot end with {status}: {operation:?}");
            *forced = None;
        }
        if is_free && matches!(status, BAD_ADDRESS | NO_QP | NO_RECEIVE | TOO_LONG | UNKNOWN_PEER) {
            self.hear(&operation);
        }
        let mut state = match status {
            BAD_ADDRESS | NO_RECEIVE | UNKNOWN_PEER => State::Never,
            TOO_LONG => State::TooLong,
            _ => State::Perhaps,
        };
        if let (State::TooLong, Some(to)) = (state, operation.request.to) {
            let too_short = &mut self.lives[to].too_short;
            if *too_short > 0 {
                (*too_short, state) = (*too_short - 1, State::Never);
            }
        }
        self.finish(token, &operation, false, state);
        self.blame(from, token, status);
        operation.request.kind
    }

    /// Given back when its queue pair was destroyed, an operation or a receive.
    pub(super) fn reclaimed(&mut self, token: u64) {
        if self.receives.remove(&token).is_none() && self.withheld.remove(&token).is_none() {
            let operation = self.take(token);
            self.finish(token, &operation, false, State::Perhaps);
        }
    }

    /// Something arrived in a receive: a message with its bytes, or a write with none, from a life that may be `from`.
    pub(super) fn arrived(
        &mut self,
        token: u64,
        imm: Option<u32>,
        len: Option<usize>,
        bytes: Option<&[u8]>,
        from: impl Fn(Life) -> bool,
    ) {
        let (life, room) = self.receives.remove(&token).expect("a receive in flight");
        let kind = if bytes.is_some() { Kind::Send } else { Kind::Write };
        assert!(kind == Kind::Write || len.is_some_and(|len| len <= room));
        let fits = |message: &&mut Message| {
            let Message { request, arrived, .. } = message;
            let same = match (bytes, &request.bytes) {
                (Some(arrived), Some(sent)) => arrived == sent,
                _ => true,
            };
            let to_here = request.to.is_none_or(|to| to == life) && from(request.from);
            let alike = request.kind == kind && request.imm == imm && len.is_none_or(|len| len == request.len);
            !*arrived && to_here && alike && same
        };
        // Of those that look alike first the one that is known to be here.
        for state in [State::Sent, State::InFlight, State::Perhaps] {
            if let Some(message) = self.messages.iter_mut().filter(|message| message.state == state).find(fits) {
                return message.arrived = true;
            }
        }
        panic!("{bytes:?} with {imm:?} of {len:?} bytes was not sent to {life}, or arrived before");
    }

    /// A receive failed.
    pub(super) fn receive_failed(&mut self, token: u64, status: u8) {
        let (life, room) = self.receives.remove(&token).expect("a receive in flight");
        match status {
            FLUSHED => assert!(self.lives[life].flushed, "nothing ended {life}"),
            RECV_TOO_SHORT => {
                let messages =
                    self.messages.iter_mut().filter(|message| message.request.to.is_none_or(|to| to == life));
                let mut longer = messages.filter(|message| message.request.len > room);
                match longer.find(|message| message.state == State::TooLong) {
                    Some(message) => message.state = State::Never,
                    None => {
                        assert!(longer.next().is_some() || self.is_sent_longer(life, room), "none was longer");
                        self.lives[life].too_short += 1;
                    }
                }
            }
            _ => panic!("a receive cannot end with {status}"),
        }
        self.blame(life, token, status);
    }

    fn is_sent_longer(&self, life: Life, room: usize) -> bool {
        let mut messages = self.messages.iter().filter(|message| message.request.to.is_none_or(|to| to == life));
        messages.any(|message| message.request.len > room)
    }

    fn take(&mut self, token: u64) -> Operation {
        self.operations.remove(&token).unwrap_or_else(|| panic!("{token} ends and was not in flight"))
    }

    fn finish(&mut self, token: u64, operation: &Operation, good: bool, state: State) {
        if let Some((memory, _)) = operation.request.remote {
            self.memory[memory].end(token, good);
        }
        if let Some(message) = operation.message.map(|message| &mut self.messages[message])
            && message.state == State::InFlight
        {
            message.state = state;
        }
    }

    /// A device has answered another.
    fn hear(&mut self, operation: &Operation) {
        let Request { from, to: Some(to), .. } = operation.request else { return };
        let (from, to) = (&self.lives[from], &self.lives[to]);
        if self.resolved[from.node][to.nic] > 0 {
            self.heard.insert((from.nic, to.nic));
        }
    }

    fn blame(&mut self, life: Life, token: u64, status: u8) {
        let life = &mut self.lives[life];
        if status == FLUSHED {
            return;
        }
        if life.cause.is_none() || (status == QP_FAILED && !life.failed) {
            life.cause = Some((token, status));
        }
        life.failed |= status == QP_FAILED;
    }

    /// A write in parts failed: which part, and so the cause, is not followed.
    pub(super) fn part_failed(&mut self, life: Life, qp_failed: bool) {
        (self.lives[life].cause, self.lives[life].untold) = (None, true);
        self.lives[life].failed |= qp_failed;
    }

    // --- what is asked of it

    pub(super) fn in_flight(&self, life: Life) -> usize {
        self.tokens(life).len()
    }

    pub(super) fn sends(&self, life: Life) -> usize {
        let operations = self.operations.values().filter(|operation| operation.request.from == life);
        operations.count() + self.withheld.values().filter(|of| **of == life).count()
    }

    pub(super) fn tokens(&self, life: Life) -> Vec<u64> {
        let operations = self.operations.iter().filter(|(_, operation)| operation.request.from == life);
        let receives = self.receives.iter().filter(|(_, receive)| receive.0 == life);
        let withheld = self.withheld.iter().filter(|(_, of)| **of == life).map(|(token, _)| *token);
        operations.map(|(token, _)| *token).chain(receives.map(|(token, _)| *token)).chain(withheld).collect()
    }

    pub(super) fn is_receive(&self, token: u64) -> bool {
        self.receives.contains_key(&token)
    }

    /// Where in which memory an RDMA read reads.
    pub(super) fn read_from(&self, token: u64) -> Option<(usize, usize)> {
        let request = &self.operations.get(&token)?.request;
        request.remote.filter(|_| request.kind == Kind::Read)
    }

    pub(super) fn is_dead(&self, life: Life) -> bool {
        self.lives.get(life).is_some_and(|life| life.dead)
    }

    pub(super) fn has_failed(&self, life: Life) -> bool {
        self.lives[life].failed
    }

    /// The cause of its failure, if it has one (R40), and is followed.
    pub(super) fn cause(&self, life: Life) -> Option<Option<(u64, u8)>> {
        let life = &self.lives[life];
        (!life.untold).then_some(life.cause)
    }

    /// What is in flight though all devices were plugged and polled for long, for no reason.
    pub(super) fn overdue(&self) -> Vec<u64> {
        let waits = |operation: &Operation| {
            let Request { from, to, .. } = operation.request;
            let from = &self.lives[from];
            let starved = operation.message.is_some() && to.is_none_or(|to| self.is_starved(to));
            from.lost || (!from.flushed && (from.dead || starved))
        };
        let operations = self.operations.iter().filter(|(_, operation)| !waits(operation)).map(|(token, _)| *token);
        let flushed = |life: &LifeState| life.flushed && !life.lost;
        let receives = self.receives.iter().filter(|(_, receive)| flushed(&self.lives[receive.0]));
        operations.chain(receives.map(|(token, _)| *token)).collect()
    }

    /// What was done arrived, and nothing else did: asked when all was polled. Of messages that look alike as many.
    pub(super) fn check_arrivals(&self) {
        for message in self.messages.iter().filter(|message| message.state == State::Sent || message.arrived) {
            let about = |message: &Message| {
                let Request { kind, to, imm, len, bytes, .. } = message.request.clone();
                (kind, to, imm, len, bytes)
            };
            let (mut sent, mut arrived, mut perhaps) = (0, 0, 0);
            for other in self.messages.iter().filter(|other| about(other) == about(message)) {
                sent += u32::from(other.state == State::Sent);
                arrived += u32::from(other.arrived);
                perhaps += u32::from(matches!(other.state, State::Sent | State::InFlight | State::Perhaps));
            }
            assert!(arrived <= perhaps, "arrived though it failed there: {message:?}");
            let heard = message.request.to.is_some_and(|to| !self.lives[to].lost);
            assert!(!heard || sent <= arrived, "done, and never arrived: {message:?}");
        }
    }
}
