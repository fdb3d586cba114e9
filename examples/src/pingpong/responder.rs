//! The side that answers. It never waits: whoever drives it calls [`Responder::step`], and [`Responder::settle`]
//! whenever no clock runs.

use std::time::Instant;

use efa_core::Provider;
use efa_core::memory::Slice;

use super::case::{BURST, Operation, Round, Schedule};
use super::initiator::PATIENCE;
use super::kind::Kind;
use super::port::{Arrival, Happened, Port, expected};
use crate::fault::Fault;

#[derive(Debug)]
pub(super) struct Responder<'m, P: Provider, K: Kind> {
    port: Port<'m, P, K>,
    schedule: Schedule,
    index: u32,
    arrivals: Vec<Arrival>,
    told: bool,
    pong: Option<Slice>,
    /// Whether the pong of this round is on its way.
    answered: bool,
}

impl<'m, P: Provider, K: Kind> Responder<'m, P, K> {
    pub(super) fn new(port: Port<'m, P, K>, schedule: Schedule) -> Result<Self, Fault> {
        let arrivals = Vec::with_capacity(2 * BURST);
        let mut this = Self { port, schedule, index: 0, arrivals, told: false, pong: None, answered: false };
        this.prepare()?;
        Ok(this)
    }

    /// Which round is awaited; none if all are over.
    pub(super) fn awaited(&self) -> Option<u32> {
        self.round().map(|_| self.index)
    }

    /// The round that is awaited, if there is one left.
    fn round(&self) -> Option<Round> {
        (self.index < self.schedule.rounds()).then(|| self.schedule.round(self.index))
    }

    /// What the next round needs of this side.
    fn prepare(&mut self) -> Result<(), Fault> {
        let Some(round) = self.round() else { return Ok(()) };
        if self.port.case.operation == Operation::Read {
            for place in 0..round.count {
                self.port.fill_shared(round.first + place as u64, place)?;
            }
        }
        self.answer()
    }

    /// Prepares the pong of the round as soon as a slot is free, and sends it as soon as the ping is here.
    #[inline]
    fn answer(&mut self) -> Result<(), Fault> {
        let Some(Round { pong: Some(sequence), place, .. }) = self.round().filter(|_| !self.answered) else {
            return Ok(());
        };
        if self.pong.is_none() {
            self.pong = self.port.prepare(sequence);
        }
        if self.arrivals.is_empty() {
            return Ok(());
        }
        let Some(content) = self.pong.take() else { return Ok(()) };
        self.answered = true;
        self.port.launch(content, sequence, place)
    }

    /// Takes one completion, and sends the pong if it was the ping.
    #[inline]
    pub(super) fn step(&mut self) -> Result<(), Fault> {
        match self.port.poll()? {
            Happened::Nothing | Happened::Done => {}
            Happened::Told => self.told = true,
            Happened::Arrived(arrival) => expected(&mut self.arrivals, arrival)?,
        }
        self.answer()
    }

    /// Verifies what arrived, if it is all here, and gets ready for the next round.
    pub(super) fn settle(&mut self) -> Result<(), Fault> {
        let Some(round) = self.round() else { return Ok(()) };
        if self.port.case.operation.is_told() {
            if self.arrivals.len() < round.count || round.pong.is_some() != self.answered {
                return Ok(());
            }
            self.port.verify_arrivals(&mut self.arrivals, round)?;
        } else {
            if !core::mem::take(&mut self.told) {
                return Ok(());
            }
            if self.port.case.operation == Operation::Write {
                for place in 0..round.count {
                    self.port.verify_shared(round.first + place as u64, place)?;
                }
            }
        }
        self.index += 1;
        self.answered = false;
        self.prepare()?;
        if round.told { self.port.tell() } else { Ok(()) }
    }

    /// Takes what is still to come of its own operations, and gives the memory back.
    pub(super) fn end(mut self) -> Result<(), Fault> {
        let begun = Instant::now();
        while self.port.in_flight > 0 {
            self.step()?;
            // A SEND that finds no receive is tried again for ever.
            if begun.elapsed() > PATIENCE {
                return Err(Fault::Stalled { waiting: "the completions of the last answers" });
            }
        }
        self.port.end()
    }
}
