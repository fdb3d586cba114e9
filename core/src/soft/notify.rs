//! When a completion queue raises an event.

#![forbid(unsafe_code)]

use super::ring::Doorbell;

const EVENTS_AT: u32 = 29;
const EVENTS: u32 = 0b11;

/// A completion queue's doorbell, and the events that it has raised.
#[derive(Debug)]
pub(super) struct Notify {
    doorbell: Doorbell,
    raised: u32,
    /// What was produced before the first entry.
    origin: u32,
    /// The doorbell was rung once.
    rung: bool,
    /// An entry was written while it was armed: an event is due even if that entry is consumed before anybody looks.
    due: bool,
}

impl Notify {
    pub(super) fn new(doorbell: Doorbell, origin: u32) -> Self {
        Self { doorbell, raised: 0, origin, rung: false, due: false }
    }

    /// An entry is about to be written.
    pub(super) fn produce(&mut self) {
        self.due |= self.look().1;
    }

    /// See [`SoftCq::take_event`](super::SoftCq::take_event).
    pub(super) fn take(&mut self, produced: u32) -> bool {
        let (word, armed) = self.look();
        let due = self.due || armed && produced.wrapping_sub(self.origin) as u16 != word as u16;
        self.due = false;
        self.raised = self.raised.wrapping_add(due.into());
        due
    }

    /// The doorbell, and whether it is armed.
    fn look(&mut self) -> (u32, bool) {
        let word = self.doorbell.word();
        self.rung |= word != 0;
        (word, self.rung && word >> EVENTS_AT & EVENTS == self.raised & EVENTS)
    }
}
