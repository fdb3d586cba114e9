//! Latency and bandwidth of every operation, every byte verified. On two software devices of one wire.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use efa_core::Context;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_examples::describe::Description;
use efa_examples::fault::Fault;
use efa_examples::pingpong::{self, Operation, Options};
use indicatif::ProgressBar;

/// Latency and bandwidth of every operation, from 8 bytes up, every byte verified.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// Round trips that are timed for each operation and size (fewer where sizes are large).
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// The largest size in bytes; a SEND also ends at what the device takes.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(8..=1 << 30))]
    max_size: u64,
    /// Where contents and the wire's disorder come from.
    #[arg(long, default_value_t = 0x0EFA)]
    seed: u64,
    /// Two threads, one for each side, instead of one that polls both in turn.
    #[arg(long)]
    threads: bool,
    /// Change one byte on its way: the run must fail.
    #[arg(long)]
    corrupt: bool,
    /// At most 200 round trips.
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Fault> {
    let device = SoftDevice::new(Config::new(Profile::RDMA).seed(arguments.seed));
    let contexts = [Context::open(device.neighbour()?), Context::open(device)];
    let mut out = io::stdout();
    for (side, context) in ["A", "B"].iter().zip(&contexts) {
        writeln!(out, "{side}: {}", Description(context)).map_err(Fault::Print)?;
    }
    let options = Options {
        operations: Operation::ALL.to_vec(),
        iterations: if arguments.quick { arguments.iterations.min(200) } else { arguments.iterations },
        max_size: arguments.max_size as usize,
        seed: arguments.seed,
        corrupt: arguments.corrupt,
        threads: arguments.threads,
    };
    let bar = ProgressBar::new(pingpong::cases(&options, &contexts[0].limits()).len() as u64);
    let rows = pingpong::run(&options, contexts, |_| bar.inc(1));
    bar.finish_and_clear();
    let rows = rows?;
    let threads = if arguments.threads { "a thread for each side" } else { "one thread polls both sides" };
    writeln!(
        out,
        "latency is half of the way there and back; of RDMA read and write, from post to completion; {threads}"
    )
    .and_then(|()| writeln!(out, "\n{}\nevery byte verified", pingpong::table(&rows)))
    .map_err(Fault::Print)
}
