//! The side that starts, times and decides.

use std::time::{Duration, Instant};

use efa_core::Provider;
use efa_core::memory::Slice;

use super::case::{BURST, Operation, Round, Schedule};
use super::kind::Kind;
use super::port::{Arrival, Happened, Port, expected};
use super::{Clock, Measured};
use crate::fault::Fault;

/// With nothing for so long, something is lost.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Empty polls between two looks at the clock.
const POLLS: u32 = 1 << 14;

#[derive(Debug)]
pub(super) struct Initiator<'m, P: Provider, K: Kind> {
    port: Port<'m, P, K>,
    schedule: Schedule,
    ready: Vec<Slice>,
    arrivals: Vec<Arrival>,
    told: bool,
}

impl<'m, P: Provider, K: Kind> Initiator<'m, P, K> {
    pub(super) fn new(port: Port<'m, P, K>, schedule: Schedule) -> Self {
        let (ready, arrivals) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
        Self { port, schedule, ready, arrivals, told: false }
    }

    /// All rounds. While it waits it calls `other`, which lets the other side go on if nobody else does.
    pub(super) fn run(&mut self, mut other: impl FnMut(Clock) -> Result<(), Fault>) -> Result<Measured, Fault> {
        let mut measured = Measured {
            samples: Vec::with_capacity(self.schedule.timed as usize),
            in_bursts: 0,
            bursts_took: Duration::ZERO,
        };
        for index in 0..self.schedule.rounds() {
            let round = self.schedule.round(index);
            let took = self.round(round, &mut other)?;
            if self.schedule.is_burst(index) {
                measured.in_bursts += round.count as u64;
                measured.bursts_took += took;
            } else if index >= self.schedule.warm_up {
                measured.samples.push(if round.pong.is_some() { took / 2 } else { took });
            }
        }
        Ok(measured)
    }

    pub(super) fn end(self) -> Result<(), Fault> {
        self.port.end()
    }

    fn round(&mut self, round: Round, other: &mut impl FnMut(Clock) -> Result<(), Fault>) -> Result<Duration, Fault> {
        for place in (0..round.count).rev() {
            let content = self.port.prepare(round.first + place as u64);
            self.ready.push(content.ok_or(Fault::Protocol("a burst has more operations than slots".into()))?);
        }

        let start = Instant::now();
        let mut sequence = round.first;
        let mut place = round.place;
        while let Some(content) = self.ready.pop() {
            self.port.launch(content, sequence, place)?;
            (sequence, place) = (sequence + 1, place + 1);
        }
        let pongs = usize::from(round.pong.is_some());
        self.wait("the operations of a round", other, Clock::Running, |this| {
            if pongs > 0 { this.arrivals.len() >= pongs } else { this.port.in_flight == 0 }
        })?;
        let took = start.elapsed();

        self.wait("the completions of a round", other, Clock::Stopped, |this| this.port.in_flight == 0)?;
        if self.port.case.operation == Operation::Read {
            self.port.verify_reads()?;
        }
        if let Some(pong) = round.pong {
            self.port.verify_arrivals(&mut self.arrivals, Round { first: pong, ..round })?;
        } else if !self.port.case.operation.is_told() {
            self.port.tell()?;
        }
        if round.told {
            self.wait("the other side's answer", other, Clock::Stopped, |this| core::mem::take(&mut this.told))?;
        }
        Ok(took)
    }

    fn wait(
        &mut self,
        waiting: &'static str,
        other: &mut impl FnMut(Clock) -> Result<(), Fault>,
        clock: Clock,
        mut is_over: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Fault> {
        let mut empty = 0_u32;
        let mut since = None;
        while !is_over(self) {
            match self.port.poll()? {
                Happened::Done => {}
                Happened::Arrived(arrival) => expected(&mut self.arrivals, arrival)?,
                Happened::Told => self.told = true,
                Happened::Nothing => {
                    other(clock)?;
                    empty += 1;
                    if empty.is_multiple_of(POLLS) {
                        // Also lets the other side's thread run where there is one core for both.
                        std::thread::yield_now();
                        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                            return Err(Fault::Stalled { waiting });
                        }
                    }
                }
            }
        }
        // What the other side put off while the clock ran.
        if clock == Clock::Stopped { other(clock) } else { Ok(()) }
    }
}
