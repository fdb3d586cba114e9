//! One device here and one elsewhere: their session, what is queued, what is answered, and when to act.
//!
//! A session is a pair of numbers, one from either side, and every frame but the first hello carries both. Ours
//! is told to whoever says hello, and nothing is kept of that; who names it was told it, and has the session.
//!
//! | we | they say | we do |
//! |---|---|---|
//! | have no session | hello | say hello back, naming their session |
//! | have no session | something that names our number | have the session, and act on it |
//! | have a session | hello without our number: they restarted, or it is late | say alive, which who restarted resets |
//! | have a session | reset of just this session | all of ours that is unanswered ends; the next session has another number |
//! | any | something else than hello or reset, of another session | say reset |

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::channel::{Flight, RESEND, Read, Sending, Serving};
use super::frame::{Body, Frame};
use super::operations::{OpId, Operations};
use crate::Gid;
use crate::status::CompletionStatus as Status;

/// Operations that ended and are still queued, at most, beside as many as there are.
const SLACK: usize = 64;

/// A hello without an answer yet.
#[derive(Clone, Copy, Debug)]
struct Opening {
    since: u64,
    again: u64,
}

/// What a node is to send next.
#[derive(Debug)]
pub(super) enum Work {
    Hello,
    Alive,
    Answers,
    Read(u64, Read),
    Again(u64, Flight),
    New(OpId),
}

/// A device here and one elsewhere.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) nic: u8,
    /// Its address, and theirs.
    pub(super) ours: Gid,
    pub(super) gid: Gid,
    /// Our number, and theirs if there is a session.
    pub(super) session: u64,
    pub(super) theirs: Option<u64>,
    opening: Option<Opening>,
    /// They are to say whether the session is there.
    pub(super) challenged: bool,
    /// They answered once, in whichever session.
    heard: bool,
    pub(super) heard_at: u64,
    pub(super) sending: Sending,
    pub(super) serving: Serving,
    /// Operations with a part to send; some may have ended.
    queue: VecDeque<OpId>,
    /// Operations that wait for a receive there, and until when.
    parked: Vec<(u64, OpId)>,
    /// Operations of ours.
    pub(super) operations: usize,
}

impl Node {
    pub(super) fn new(nic: u8, ours: Gid, gid: Gid, session: u64, first: u64) -> Self {
        Self {
            nic,
            ours,
            gid,
            session,
            theirs: None,
            opening: None,
            challenged: false,
            heard: false,
            heard_at: 0,
            sending: Sending::new(first),
            serving: Serving::new(),
            queue: VecDeque::new(),
            parked: Vec::new(),
            operations: 0,
        }
    }

    /// What an operation ends with that is not answered (H19).
    pub(super) fn unanswered(&self) -> Status {
        if self.heard { Status::LocalUnrespRemote } else { Status::LocalUnreachRemote }
    }

    /// They named our number.
    pub(super) fn hear(&mut self, now: u64, theirs: u64) {
        (self.heard, self.heard_at) = (true, now);
        if self.theirs.is_none() {
            (self.theirs, self.opening) = (Some(theirs), None);
        }
    }

    /// Ends the session; what was to be sent is forgotten.
    pub(super) fn close(&mut self, session: u64, first: u64) {
        let new = Self::new(self.nic, self.ours, self.gid, session, first);
        *self = Self { heard: self.heard, heard_at: self.heard_at, ..new };
    }

    /// An operation of ours is new.
    pub(super) fn joined(&mut self, op: OpId, operations: &mut Operations) {
        self.operations += 1;
        if self.queue.len() + self.parked.len() > 2 * self.operations + SLACK {
            // Of those that ended, while nobody took frames.
            self.queue.retain(|op| operations.get_mut(*op).is_some());
            self.parked.retain(|(_, op)| operations.get_mut(*op).is_some());
        }
        self.enqueue(op);
    }

    /// An operation of ours ended.
    pub(super) fn left(&mut self, op: OpId) {
        self.operations = self.operations.saturating_sub(1);
        self.sending.forget(op);
        if self.operations == 0 {
            // Who comes next begins to wait anew.
            self.opening = None;
        }
    }

    /// An operation has a part to send.
    pub(super) fn enqueue(&mut self, op: OpId) {
        self.queue.push_back(op);
    }

    /// An operation waits for a receive there.
    pub(super) fn park(&mut self, op: OpId, until: u64) {
        self.parked.push((until, op));
    }

    /// Operations whose time has come may send again.
    pub(super) fn unpark(&mut self, now: u64) {
        let queue = &mut self.queue;
        self.parked.retain(|(until, op)| {
            let waits = now < *until;
            if !waits {
                queue.push_back(*op);
            }
            waits
        });
    }

    /// Whether the hello was not answered for so long.
    pub(super) fn gives_up(&self, now: u64, patience: u64) -> bool {
        self.opening.is_some_and(|opening| now.saturating_sub(opening.since) >= patience)
    }

    /// What to send next, marked as if it was.
    pub(super) fn next(&mut self, now: u64, operations: &mut Operations) -> Option<Work> {
        while self.queue.front().is_some_and(|op| operations.get_mut(*op).is_none()) {
            self.queue.pop_front();
        }
        if self.theirs.is_none() {
            return self.say_hello(now);
        }
        if core::mem::take(&mut self.challenged) {
            return Some(Work::Alive);
        }
        if self.serving.is_due() {
            if let Some((sequence, read)) = self.serving.take_read() {
                return Some(Work::Read(sequence, read));
            }
            return Some(Work::Answers);
        }
        if let Some((sequence, flight)) = self.sending.take_due(now) {
            return Some(Work::Again(sequence, flight));
        }
        if self.sending.has_room() { self.queue.pop_front().map(Work::New) } else { None }
    }

    fn say_hello(&mut self, now: u64) -> Option<Work> {
        if self.operations == 0 {
            return None;
        }
        let opening = self.opening.get_or_insert(Opening { since: now, again: now });
        if now < opening.again {
            return None;
        }
        opening.again = now.saturating_add(RESEND);
        Some(Work::Hello)
    }

    /// When there is something to do, if nothing comes before: 0 for at once.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        let Some(_) = self.theirs else {
            return (self.operations > 0).then(|| self.opening.map_or(0, |opening| opening.again));
        };
        if self.challenged || self.serving.is_due() || (self.sending.has_room() && !self.queue.is_empty()) {
            return Some(0);
        }
        let parked = self.parked.iter().map(|(until, _)| *until).min();
        self.sending.wakes_at().into_iter().chain(parked).min()
    }

    /// A frame to them, in this session if there is one.
    pub(super) fn frame(&self, body: Body<'static>) -> Frame<'static> {
        Frame { to: self.gid, from: self.ours, to_session: self.theirs.unwrap_or(0), from_session: self.session, body }
    }
}
