//! A file by RDMA writes in chunks that arrive in any order, hashed at both ends. On two software devices of one wire.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_examples::connect::Description;
use efa_examples::fault::Fault;
use efa_examples::human::{Bytes, Rate, Time};
use efa_examples::transfer::{MAX_WINDOW, Options, transfer};
use indicatif::{ProgressBar, ProgressStyle};

/// Transfers a file by unordered RDMA writes, and compares the hashes of both ends.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// The file.
    file: PathBuf,
    /// Where to store what arrives; without it, it is hashed and dropped.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Bytes of a chunk.
    #[arg(long, default_value = "16384")]
    chunk: NonZeroU32,
    /// Chunks in flight at most.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=MAX_WINDOW as i64))]
    window: u8,
    /// Change one byte on its way: the hashes must differ.
    #[arg(long)]
    corrupt: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("error: {}: {fault}", arguments.file.display());
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Fault> {
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.neighbour()?), Context::open(device)];
    for (side, context) in ["from", "to"].iter().zip(&contexts) {
        println!("{side}: {}", Description(context));
    }
    let file = File::open(&arguments.file)?;
    let len = file.metadata()?.len();
    let sink: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(BufWriter::new(File::create(path)?)),
        None => Box::new(io::sink()),
    };
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let bar = ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let options = Options { chunk: arguments.chunk, window: arguments.window.into(), corrupt: arguments.corrupt };
    let report = transfer(options, contexts, file, len, sink, |stored| bar.set_position(stored));
    bar.finish_and_clear();
    let report = report?;
    let rate = Rate::of(report.bytes, report.took).map_or("-".into(), |rate| rate.bytes().to_string());
    let (bytes, took) = (Bytes(report.bytes), Time(report.took));
    println!("{bytes} ({} B) in {} chunks, {} out of order, {took}, {rate}", report.bytes, report.chunks, report.early);
    println!("hashes equal: {}", report.hash);
    Ok(())
}
