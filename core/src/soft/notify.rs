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
}

impl Notify {
    pub(super) fn new(doorbell: Doorbell, origin: u32) -> Self {
        Self { doorbell, raised: 0, origin, rung: false }
    }

    /// See [`SoftCq::take_event`](super::SoftCq::take_event).
    pub(super) fn take(&mut self, produced: u32) -> bool {
        let word = self.doorbell.word();
        self.rung |= word != 0;
        let armed = self.rung && word >> EVENTS_AT & EVENTS == self.raised & EVENTS;
        let due = armed && produced.wrapping_sub(self.origin) as u16 != word as u16;
        self.raised = self.raised.wrapping_add(due.into());
        due
    }
}
