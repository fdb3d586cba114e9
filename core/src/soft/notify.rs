//! When a completion queue raises an event.

#![forbid(unsafe_code)]

use super::ring::Doorbell;

const EVENTS_AT: u32 = 29;
const EVENTS: u32 = 0b11;
const ARM: u32 = 1 << 31;

/// A completion queue's doorbell, and the events that it has raised.
#[derive(Debug)]
pub(super) struct Notify {
    bell: Bell,
    raised: u32,
    /// What was produced before the first entry.
    origin: u32,
    /// The doorbell was rung once.
    rung: bool,
    /// An entry was written while it was armed: an event is due even if that entry is consumed before anybody looks.
    due: bool,
}

/// Where the doorbell is.
#[derive(Debug)]
enum Bell {
    /// In the driver's memory, who is asked to look at it.
    Given(Doorbell),
    /// Here, for a channel.
    Own {
        word: u32,
        channel: u16,
        /// Events that were taken from the channel.
        taken: u32,
    },
}

impl Notify {
    pub(super) fn new(doorbell: Doorbell, origin: u32) -> Self {
        Self { bell: Bell::Given(doorbell), raised: 0, origin, rung: false, due: false }
    }

    /// Of a queue whose events go to a channel of the device.
    pub(super) fn on(channel: u16, origin: u32) -> Self {
        Self { bell: Bell::Own { word: 0, channel, taken: 0 }, raised: 0, origin, rung: false, due: false }
    }

    /// The channel, if it has one.
    #[inline(always)]
    pub(super) fn channel(&self) -> Option<u16> {
        match self.bell {
            Bell::Given(_) => None,
            Bell::Own { channel, .. } => Some(channel),
        }
    }

    /// Rings its own doorbell: so many entries were consumed, and an event is asked for.
    pub(super) fn arm(&mut self, consumed: u32) {
        if let Bell::Own { word, taken, .. } = &mut self.bell {
            *word = consumed & 0xFFFF | (*taken & EVENTS) << EVENTS_AT | ARM;
        }
    }

    /// Events that were not taken from its channel.
    pub(super) fn pending(&self) -> u32 {
        match self.bell {
            Bell::Given(_) => 0,
            Bell::Own { taken, .. } => self.raised.wrapping_sub(taken),
        }
    }

    /// They were.
    pub(super) fn take_pending(&mut self) -> u32 {
        let pending = self.pending();
        if let Bell::Own { taken, .. } = &mut self.bell {
            *taken = self.raised;
        }
        pending
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
        let word = match &self.bell {
            Bell::Given(doorbell) => doorbell.word(),
            Bell::Own { word, .. } => *word,
        };
        self.rung |= word != 0;
        (word, self.rung && word >> EVENTS_AT & EVENTS == self.raised & EVENTS)
    }
}
