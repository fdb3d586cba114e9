//! Every operation between two endpoints: latency, bandwidth, and each byte verified.
//!
//! Side A starts, times and decides; side B answers. A case is one operation with one size, and runs in rounds:
//!
//! | | messages (SEND, write with immediate) | RDMA read and write |
//! |---|---|---|
//! | latency | B answers with the same operation: half of the way there and back | from post to completion |
//! | bandwidth | bursts, from the first post to the last completion at A | the same |
//!
//! Contents are written before the clock starts and verified after it stopped. What tells nobody of itself, a plain
//! read or write, is followed by an empty SEND, upon which B verifies or writes anew, and answers. No message is sent
//! without a receive posted for it: a burst is half of the receives, and the next waits until B has reposted them.

mod case;
mod initiator;
mod kind;
mod port;
mod remote;
mod responder;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use efa_core::Context;
use efa_core::connect::connect_of;
use efa_core::qp::{Depth, SendOnly, Srd};
use efa_core::{Limits, Provider};

pub use case::Operation;
pub use remote::{lead, respond};

use crate::fault::Fault;
use crate::human::{Bytes, Rate, Time};
use crate::stats::Summary;
use crate::table::Table;
use case::{BURST, Case, RECEIVES, Schedule};
use initiator::{Initiator, PATIENCE};
use kind::{Common, Kind, SendRead, has};
use port::{Memory, Port};
use responder::Responder;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which operations.
    pub operations: Vec<Operation>,
    /// Round trips that are timed in each case; of large sizes there are fewer.
    pub iterations: u32,
    /// The largest size of an RDMA operation, and of a SEND if it is less than the device's largest.
    pub max_size: usize,
    /// Where contents come from.
    pub seed: u64,
    /// Changes one byte on its way, so that verification must fail.
    pub corrupt: bool,
    /// One thread for each side, instead of one that polls both in turn.
    pub threads: bool,
}

/// What one case measured.
#[derive(Debug, Clone)]
pub struct Row {
    /// The operation.
    pub operation: Operation,
    /// Bytes of each.
    pub size: usize,
    /// Latency.
    pub latency: Summary<Duration>,
    /// Operations for each second, in bursts.
    pub rate: Rate,
}

/// The cases of a run, in order: each operation at each of its sizes, of those that move any byte.
pub fn cases(options: &Options, limits: &Limits) -> Vec<(Operation, usize)> {
    let sizes = |operation: Operation| {
        let largest = operation.largest(limits).min(options.max_size);
        let steps = (3..).step_by(3).map(|power| 1_usize << power).take_while(move |size| *size < largest);
        steps.chain((largest > 0).then_some(largest)).map(move |size| (operation, size))
    };
    options.operations.iter().copied().flat_map(sizes).collect()
}

/// Runs every case that devices of both have, with two devices that reach each other; `done` sees each row as it comes.
///
/// # Errors
/// The first [`Fault`]: a byte that is not what was sent, an operation that failed, a call that was refused.
pub fn run<P: Provider>(
    options: &Options,
    contexts: [Context<P>; 2],
    done: impl FnMut(&Row),
) -> Result<Vec<Row>, Fault> {
    match Common::of(contexts[0].caps() & contexts[1].caps()) {
        Common::All => run_as::<P, Srd>(options, contexts, done),
        Common::SendRead => run_as::<P, SendRead>(options, contexts, done),
        Common::SendOnly => run_as::<P, SendOnly>(options, contexts, done),
    }
}

/// B answers while A's next message may be under way: more room than a burst.
const DEPTH: Depth = Depth::new(2 * BURST as u32, RECEIVES as u32);

fn run_as<P: Provider, K: Kind>(
    options: &Options,
    contexts: [Context<P>; 2],
    mut done: impl FnMut(&Row),
) -> Result<Vec<Row>, Fault> {
    let plan = Plan::new::<K>(options, &contexts[0].limits());
    let [mut a, mut b] = connect_of::<P, K>(contexts, DEPTH)?;
    let mut a_memory = Memory::new(&a.ctx, &a.pd, &mut a.endpoint, plan.largest())?;
    let mut b_memory = Memory::new(&b.ctx, &b.pd, &mut b.endpoint, plan.largest())?;
    let (mut a_window, mut b_window) = (None, None);
    if let (Some(a_shared), Some(b_shared)) = (&a_memory.shared, &b_memory.shared) {
        a_window = Some(b.peer.window(a_shared.grant(&a.endpoint)?.as_bytes())?);
        b_window = Some(a.peer.window(b_shared.grant(&b.endpoint)?.as_bytes())?);
    }
    let mut rows = Vec::new();
    for case in plan.cases() {
        let schedule = Schedule::new(case, options.iterations);
        let initiator = Initiator::new(Port::new(&mut a, &mut a_memory, b_window, case)?, schedule);
        let responder = Responder::new(Port::new(&mut b, &mut b_memory, a_window, case)?, schedule)?;
        let measured =
            if options.threads { two_threads(initiator, responder)? } else { one_thread(initiator, responder)? };
        let row = measured.row(case);
        done(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// What both sides go through.
struct Plan {
    cases: Vec<(Operation, usize)>,
    seed: u64,
    corrupt: bool,
}

impl Plan {
    /// Of queue pairs of this kind.
    fn new<K: Kind>(options: &Options, limits: &Limits) -> Self {
        let mut cases = cases(options, limits);
        cases.retain(|(operation, _)| has::<K>(*operation));
        Self { cases, seed: options.seed, corrupt: options.corrupt }
    }

    /// The most bytes of one operation.
    fn largest(&self) -> usize {
        self.cases.iter().map(|(_, size)| *size).max().unwrap_or(1)
    }

    fn cases(&self) -> impl Iterator<Item = Case> {
        self.cases.iter().enumerate().map(|(number, &(operation, size))| Case {
            operation,
            size,
            seed: self.seed,
            first: (number as u64) << 32,
            corrupt: self.corrupt,
        })
    }
}

/// What one case took.
struct Measured {
    samples: Vec<Duration>,
    in_bursts: u64,
    bursts_took: Duration,
}

impl Measured {
    fn row(mut self, case: Case) -> Row {
        let none = Summary {
            count: 0,
            min: Duration::ZERO,
            p50: Duration::ZERO,
            p99: Duration::ZERO,
            p99_9: Duration::ZERO,
            max: Duration::ZERO,
        };
        let latency = Summary::of(&mut self.samples).unwrap_or(none);
        let rate = Rate::of(self.in_bursts, self.bursts_took).unwrap_or(Rate { per_second: 0.0 });
        Row { operation: case.operation, size: case.size, latency, rate }
    }
}

/// Whether the clock runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Running,
    Stopped,
}

fn one_thread<P: Provider, K: Kind>(mut a: Initiator<'_, P, K>, mut b: Responder<'_, P, K>) -> Result<Measured, Fault> {
    let measured = a.run(|clock| {
        b.step()?;
        if clock == Clock::Stopped { b.settle() } else { Ok(()) }
    })?;
    a.end()?;
    b.end(PATIENCE)?;
    Ok(measured)
}

fn two_threads<P: Provider, K: Kind>(
    mut a: Initiator<'_, P, K>,
    mut b: Responder<'_, P, K>,
) -> Result<Measured, Fault> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                if let Err(fault) = b.step().and_then(|()| b.settle()) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(fault);
                }
            }
            b.end(PATIENCE)
        });
        let measured = a.run(|_| if stop.load(Ordering::Relaxed) { Err(Fault::OtherSide) } else { Ok(()) });
        stop.store(true, Ordering::Relaxed);
        let answered = other.join().unwrap_or(Err(Fault::OtherSide));
        match (measured, answered) {
            // B's own fault says more.
            (Err(Fault::OtherSide), Err(fault)) | (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
            (Ok(measured), Ok(())) => a.end().map(|()| measured),
        }
    })
}

/// The rows as a table for a terminal.
pub fn table(rows: &[Row]) -> impl std::fmt::Display {
    let mut table = Table::new(["operation", "size", "p50", "p99", "p99.9", "operations", "bandwidth"]);
    for Row { operation, size, latency, rate } in rows {
        table.row([
            operation.to_string(),
            Bytes(*size as u64).to_string(),
            Time(latency.p50).to_string(),
            Time(latency.p99).to_string(),
            Time(latency.p99_9).to_string(),
            rate.operations().to_string(),
            Rate { per_second: rate.per_second * *size as f64 }.bytes().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use efa_core::soft::{Profile, SoftDevice};

    fn contexts() -> [Context<SoftDevice>; 2] {
        let device = SoftDevice::new(Profile::RDMA);
        [Context::open(device.neighbour().unwrap()), Context::open(device)]
    }

    fn options() -> Options {
        Options {
            operations: Operation::ALL.to_vec(),
            iterations: 20,
            max_size: 20_000,
            seed: 7,
            corrupt: false,
            threads: false,
        }
    }

    #[test]
    fn every_operation_runs_at_every_size_and_every_byte_is_right() {
        let rows = run(&options(), contexts(), |_| {}).unwrap();
        assert_eq!(rows.len(), cases(&options(), &contexts()[0].limits()).len());
        assert!(rows.iter().all(|row| row.latency.count == 20 && row.rate.per_second > 0.0));
    }

    #[test]
    fn two_threads_do_the_same() {
        let options = Options { threads: true, ..options() };
        run(&options, contexts(), |_| {}).unwrap();
    }

    #[test]
    fn one_changed_byte_of_any_operation_is_found_whichever_way_it_runs() {
        for operation in Operation::ALL {
            for threads in [false, true] {
                let options = Options { operations: vec![operation], corrupt: true, threads, ..options() };
                let fault = run(&options, contexts(), |_| {}).unwrap_err();
                assert!(matches!(fault, Fault::Mismatch { .. }), "{operation}: {fault}");
                assert!(fault.to_string().contains("expected 0x"), "{fault}");
            }
        }
    }

    #[test]
    fn sizes_go_up_to_what_each_operation_and_the_options_allow() {
        let limits = contexts()[0].limits();
        let sizes = |operation| {
            let options = Options { operations: vec![operation], max_size: 1 << 20, ..options() };
            cases(&options, &limits).into_iter().map(|(_, size)| size).collect::<Vec<_>>()
        };
        assert_eq!(sizes(Operation::SendInline), [8, 32]);
        assert_eq!(sizes(Operation::Send), [8, 64, 512, 4096, limits.max_msg_size as usize]);
        assert_eq!(sizes(Operation::Read), [8, 64, 512, 4096, 32_768, 262_144, 1 << 20]);
    }

    #[test]
    fn an_operation_that_moves_no_byte_on_one_of_the_devices_has_no_case() {
        let mut limits = contexts()[0].limits();
        limits.max_inline = 0;
        let some = cases(&options(), &limits);
        assert!(some.iter().all(|(operation, size)| *operation != Operation::SendInline && *size > 0));
        assert!(some.iter().any(|(operation, _)| *operation == Operation::Send));
        (limits.max_msg_size, limits.max_rdma_size) = (0, 0);
        assert_eq!(cases(&options(), &limits), []);
    }
}
