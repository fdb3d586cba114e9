//! The side that answers. It never waits: whoever drives it calls [`Responder::step`], and [`Responder::settle`]
//! whenever no clock runs.

use std::time::{Duration, Instant};

use efa_core::Provider;
use efa_core::memory::Slice;

use super::case::{BURST, Operation, Round, Schedule};
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

    /// Takes what is still to come of its own operations, for so long, and gives the memory back.
    pub(super) fn end(mut self, patience: Duration) -> Result<(), Fault> {
        let begun = Instant::now();
        while self.port.in_flight > 0 {
            self.step()?;
            // A SEND that finds no receive is tried again for ever.
            if begun.elapsed() > patience {
                return Err(Fault::Stalled { waiting: "the completions of the last answers" });
            }
        }
        self.port.end()
    }
}

#[cfg(test)]
mod tests {
    use efa_core::connect::connect_of;
    use efa_core::qp::SendOnly;
    use efa_core::soft::{Profile, SoftDevice};
    use efa_core::{Context, Token};

    use super::super::case::Case;
    use super::super::port::Memory;
    use super::super::{DEPTH, PATIENCE};
    use super::*;

    #[test]
    fn an_answer_that_nobody_takes_is_not_waited_for_for_ever() {
        let device = SoftDevice::new(Profile::RDMA);
        let contexts = [Context::open(device.neighbour().unwrap()), Context::open(device)];
        let [mut a, mut b] = connect_of::<_, SendOnly>(contexts, DEPTH).unwrap();
        let mut memory = Memory::new(&b.ctx, &b.pd, &mut b.endpoint, 8).unwrap();
        let case = Case { operation: Operation::Send, size: 8, seed: 1, first: 0, corrupt: false };
        let port = Port::new(&mut b, &mut memory, None, case).unwrap();
        let mut responder = Responder::new(port, Schedule::new(case, 1)).unwrap();
        // It has no receive for the answer.
        a.endpoint.post(a.peer.send_inline(&[0; 8]), Token(1)).unwrap();
        let begun = Instant::now();
        while responder.port.in_flight == 0 {
            responder.step().unwrap();
            assert!(begun.elapsed() < PATIENCE, "no question came");
        }
        let (begun, patience) = (Instant::now(), Duration::from_millis(20));
        let fault = responder.end(patience).unwrap_err();
        assert!(matches!(fault, Fault::Stalled { .. }) && fault.to_string().contains("last answers"), "{fault}");
        assert!((patience..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
