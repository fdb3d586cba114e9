//! Latency and bandwidth of every operation, every byte verified: between two software devices in this program, or with
//! `--listen` and `--connect` between two programs, on EFA devices where there are some.

use std::process::ExitCode;

use clap::Parser;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Context, Provider};
use efa_examples::describe::Description;
use efa_examples::fault::Fault;
use efa_examples::pingpong::{self, Operation, Options, Row};
use efa_examples::programs::{Meeting, say};
use indicatif::ProgressBar;

/// Latency and bandwidth of every operation, from 8 bytes up, every byte verified.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    meeting: Meeting,
    /// Round trips that are timed for each operation and size (fewer where sizes are large).
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// The largest size in bytes, the smaller one of two programs'; a SEND also ends at what the device takes.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(8..=1 << 30))]
    max_size: u64,
    /// Where contents and the wire's disorder come from.
    #[arg(long, default_value_t = 0x0EFA)]
    seed: u64,
    /// Two threads, one for each side, instead of one that polls both in turn.
    #[arg(long, conflicts_with_all = ["listen", "connect"])]
    threads: bool,
    /// Change one byte on its way: the run must fail.
    #[arg(long)]
    corrupt: bool,
    /// At most 200 round trips.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let ran = match (&arguments.meeting.listen, &arguments.meeting.connect) {
        (Some(address), _) => listen(&arguments, address),
        (_, Some(address)) => connect(&arguments, address),
        _ => alone(&arguments),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

impl Arguments {
    fn options(&self) -> Options {
        Options {
            operations: Operation::ALL.to_vec(),
            iterations: if self.quick { self.iterations.min(200) } else { self.iterations },
            max_size: self.max_size as usize,
            seed: self.seed,
            corrupt: self.corrupt,
            threads: self.threads,
        }
    }
}

/// Both sides in this program.
fn alone(arguments: &Arguments) -> Result<(), Fault> {
    if let Some(contexts) = arguments.meeting.both_on_efa()? {
        return both(arguments, contexts);
    }
    let device = SoftDevice::new(Config::new(Profile::RDMA).seed(arguments.seed));
    both(arguments, [Context::open(device.neighbour()?), Context::open(device)])
}

fn both<P: Provider>(arguments: &Arguments, contexts: [Context<P>; 2]) -> Result<(), Fault> {
    let options = arguments.options();
    for (side, context) in ["A", "B"].iter().zip(&contexts) {
        say(format_args!("{side}: {}", Description(context)))?;
    }
    let bar = ProgressBar::new(pingpong::cases(&options, &contexts[0].limits()).len() as u64);
    let rows = pingpong::run(&options, contexts, |_| bar.inc(1));
    bar.finish_and_clear();
    report(&rows?, if arguments.threads { "a thread for each side" } else { "one thread polls both sides" })
}

fn listen(arguments: &Arguments, address: &str) -> Result<(), Fault> {
    let context = arguments.meeting.device()?;
    let mut channel = arguments.meeting.accept(address)?;
    let cases = pingpong::respond(&arguments.options(), context, &mut channel)?;
    say(format_args!("{cases} cases, every byte verified"))
}

fn connect(arguments: &Arguments, address: &str) -> Result<(), Fault> {
    let context = arguments.meeting.device()?;
    let mut channel = arguments.meeting.reach(address)?;
    let bar = ProgressBar::no_length();
    let rows = pingpong::lead(
        &arguments.options(),
        context,
        &mut channel,
        |cases| bar.set_length(cases as u64),
        |_| bar.inc(1),
    );
    bar.finish_and_clear();
    report(&rows?, "two programs")
}

fn report(rows: &[Row], how: &str) -> Result<(), Fault> {
    say(format_args!(
        "latency is half of the way there and back; of RDMA read and write, from post to completion; {how}"
    ))?;
    say(format_args!("\n{}\nevery byte verified", pingpong::table(rows)))
}
