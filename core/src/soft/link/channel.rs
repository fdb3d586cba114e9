//! Each request once, over a carrier that loses, repeats and reorders: the window of either side.
//!
//! A request has a sequence number, and is sent again until its answer comes. The answer is its acknowledgement:
//! answers themselves are not acknowledged, but given again when the request comes again. What the responder knows
//! of a request it may forget once the requester's floor has passed it, and what comes from below the floor it
//! drops. So there is one window for each direction, it is the requester's alone, and an answer never waits for
//! room: whatever the other direction does, whoever can receive can answer.

use alloc::collections::VecDeque;

use super::frame::WINDOW;
use super::operations::OpId;
use crate::status::CompletionStatus as Status;

/// Microseconds until a request is sent again the first time; then twice as long each time, up to 16 times.
pub(super) const RESEND: u64 = 20_000;
const MAX_DOUBLINGS: u8 = 4;
/// Requests that a session begins with, until answers show that more go through.
const FIRST: usize = 16;
/// And that it keeps, however many are lost.
const LEAST: usize = 2;

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) op: OpId,
    /// The part that it is.
    pub(super) at: u32,
    pub(super) part: u32,
    /// When it was sent first, and last.
    pub(super) first: u64,
    pub(super) sent: u64,
    pub(super) tries: u8,
}

impl Flight {
    fn again_at(&self) -> u64 {
        self.sent.saturating_add(RESEND << self.tries.min(MAX_DOUBLINGS))
    }
}

/// The requester's side.
#[derive(Debug)]
pub(super) struct Sending {
    /// The sequence number of the first flight.
    floor: u64,
    flights: VecDeque<Option<Flight>>,
    /// Those that are no gaps.
    unanswered: usize,
    /// How many may be unanswered for now: what is lost halves it, what is answered adds to it.
    allowed: usize,
    /// No flight is to be sent again before.
    quiet_until: u64,
    slowed_at: u64,
}

impl Sending {
    pub(super) fn new(floor: u64) -> Self {
        Self { floor, flights: VecDeque::new(), unanswered: 0, allowed: FIRST, quiet_until: u64::MAX, slowed_at: 0 }
    }

    /// Everything below was answered, or is not wanted any more.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn has_room(&self) -> bool {
        self.unanswered < self.allowed && self.flights.len() < WINDOW
    }

    /// Enters a request that goes out now; its sequence number.
    pub(super) fn push(&mut self, flight: Flight) -> u64 {
        let sequence = self.floor.wrapping_add(self.flights.len() as u64);
        self.quiet_until = self.quiet_until.min(flight.again_at());
        self.flights.push_back(Some(flight));
        self.unanswered += 1;
        sequence
    }

    /// The answer to a request came: the request, unless it is not waited for.
    pub(super) fn settle(&mut self, sequence: u64) -> Option<Flight> {
        let nth = usize::try_from(sequence.wrapping_sub(self.floor)).ok()?;
        let flight = self.flights.get_mut(nth)?.take()?;
        self.unanswered = self.unanswered.saturating_sub(1);
        self.allowed = (self.allowed + 1).min(WINDOW);
        self.trim();
        Some(flight)
    }

    /// Forgets all requests of an operation.
    pub(super) fn forget(&mut self, op: OpId) {
        for place in self.flights.iter_mut().filter(|place| place.is_some_and(|flight| flight.op == op)) {
            *place = None;
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        self.trim();
    }

    fn trim(&mut self) {
        while let Some(None) = self.flights.front() {
            self.flights.pop_front();
            self.floor = self.floor.wrapping_add(1);
        }
    }

    /// A request that is to be sent again, marked as if it was.
    pub(super) fn take_due(&mut self, now: u64) -> Option<(u64, Flight)> {
        if now < self.quiet_until {
            return None;
        }
        let due = |place: &Option<Flight>| place.is_some_and(|flight| flight.again_at() <= now);
        let found = self.flights.iter().position(due);
        let taken = found.and_then(|nth| {
            let flight = self.flights.get_mut(nth)?.as_mut()?;
            flight.sent = now;
            flight.tries = flight.tries.saturating_add(1);
            Some((self.floor.wrapping_add(nth as u64), *flight))
        });
        if taken.is_none() {
            let times = self.flights.iter().flatten().map(Flight::again_at);
            self.quiet_until = times.min().unwrap_or(u64::MAX);
        } else if now.saturating_sub(self.slowed_at) >= RESEND {
            self.slowed_at = now;
            self.allowed = (self.allowed / 2).max(LEAST);
        }
        taken
    }

    /// The oldest request, if it was sent for the first time so long ago.
    pub(super) fn older_than(&self, now: u64, patience: u64) -> Option<OpId> {
        // Requests are entered in the order of time, and the first is never a gap.
        let oldest = self.flights.front()?.as_ref()?;
        (now.saturating_sub(oldest.first) >= patience).then_some(oldest.op)
    }

    /// When the next request is to be sent again, or earlier.
    pub(super) fn wakes_at(&self) -> Option<u64> {
        (!self.flights.is_empty()).then_some(self.quiet_until)
    }
}

/// What is to be read for a request, when its answer goes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) unsolicited: bool,
    pub(super) qkey: u32,
    pub(super) rkey: u32,
    pub(super) length: u32,
    pub(super) address: u64,
    pub(super) at: u32,
    pub(super) part: u32,
    /// It was counted already.
    pub(super) again: bool,
}

/// What is known of a request that came.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Answer(u8),
    Read(Read),
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// Execute it.
    New,
    /// Do not: it was, and its answer goes out again.
    Again,
    /// Drop it: it is settled, or beyond the window.
    Outside,
}

/// The responder's side. A request's bit and slot are those of its number modulo [`WINDOW`].
#[derive(Debug)]
pub(super) struct Serving {
    /// `None` until the first request tells it.
    floor: Option<u64>,
    seen: u64,
    due: u64,
    slots: [Slot; WINDOW],
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % WINDOW as u64)
}

impl Serving {
    pub(super) const fn new() -> Self {
        Self { floor: None, seen: 0, due: 0, slots: [Slot::Answer(0); WINDOW] }
    }

    /// Whether a request is to be executed. One that is must be followed by `answer` or `read`.
    pub(super) fn admit(&mut self, sequence: u64, floor: u64) -> Admission {
        let known = *self.floor.get_or_insert(floor);
        let passed = floor.wrapping_sub(known);
        if passed != 0 && passed <= u64::MAX / 2 {
            for nth in 0..passed.min(WINDOW as u64) {
                self.seen &= !bit(known.wrapping_add(nth));
            }
            self.due &= self.seen;
            self.floor = Some(floor);
        }
        let floor = self.floor.unwrap_or(floor);
        if sequence.wrapping_sub(floor) >= WINDOW as u64 {
            return Admission::Outside;
        }
        let bit = bit(sequence);
        let seen = self.seen & bit != 0;
        self.seen |= bit;
        self.due |= bit;
        if seen { Admission::Again } else { Admission::New }
    }

    fn put(&mut self, sequence: u64, slot: Slot) {
        if let Some(place) = self.slots.get_mut((sequence % WINDOW as u64) as usize) {
            *place = slot;
        }
    }

    /// How a request ended.
    pub(super) fn answer(&mut self, sequence: u64, status: Status) {
        self.put(sequence, Slot::Answer(status.number()));
    }

    /// A request is to be answered by a read.
    pub(super) fn read(&mut self, sequence: u64, read: Read) {
        self.put(sequence, Slot::Read(read));
    }

    pub(super) fn is_due(&self) -> bool {
        self.due != 0
    }

    fn all_due(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let floor = self.floor.unwrap_or(0);
        let sequences = (0..WINDOW as u64).map(move |nth| floor.wrapping_add(nth));
        let due = sequences.filter(|sequence| self.due & bit(*sequence) != 0);
        due.filter_map(|sequence| Some((sequence, self.slots.get((sequence % WINDOW as u64) as usize)?)))
    }

    /// A read that is to be answered, marked as if it was.
    pub(super) fn take_read(&mut self) -> Option<(u64, Read)> {
        if self.due == 0 {
            return None;
        }
        let reads = self.all_due().filter_map(|(sequence, slot)| match slot {
            Slot::Read(read) => Some((sequence, *read)),
            Slot::Answer(_) => None,
        });
        let (sequence, read) = { reads }.next()?;
        self.due &= !bit(sequence);
        self.put(sequence, Slot::Read(Read { again: true, ..read }));
        Some((sequence, read))
    }

    /// A read failed: it is to be answered so.
    pub(super) fn refuse_read(&mut self, sequence: u64, status: Status) {
        self.answer(sequence, status);
        self.due |= bit(sequence);
    }

    /// The answers that are to go out; see [`Serving::answered`].
    pub(super) fn answers(&self) -> impl Iterator<Item = (u64, u8)> {
        self.all_due().filter_map(|(sequence, slot)| match slot {
            Slot::Answer(status) => Some((sequence, *status)),
            Slot::Read(_) => None,
        })
    }

    /// They went out.
    pub(super) fn answered(&mut self) {
        let reads = self.all_due().filter(|(_, slot)| matches!(slot, Slot::Read(_)));
        self.due = reads.fold(0, |due, (sequence, _)| due | bit(sequence));
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_floor_that_passes_an_answer_takes_it_back_and_frees_its_place() {
        let window = WINDOW as u64;
        let mut serving = Serving::new();
        assert_eq!(serving.admit(0, 0), Admission::New);
        serving.answer(0, Status::Ok);
        // The place of request 0 is now that of request `window`, which did not come yet.
        assert_eq!(serving.admit(window + 1, window), Admission::New);
        serving.answer(window + 1, Status::RemoteRnr);
        let answers: Vec<_> = serving.answers().collect();
        assert_eq!(answers, [(window + 1, Status::RemoteRnr.number())]);
        assert_eq!(serving.admit(window, window), Admission::New);
        assert_eq!(serving.admit(0, window), Admission::Outside);
    }
}
