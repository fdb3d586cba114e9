//! A file by RDMA writes in chunks that arrive in any order, hashed at both ends. On two software devices of one wire.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_examples::describe::Description;
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
    /// Bytes of a chunk, at least 1.
    #[arg(long, default_value = "16384")]
    chunk: NonZeroU32,
    /// Chunks in flight at most, 1 to 64.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..=MAX_WINDOW as i64))]
    window: u8,
    /// Change one byte on its way: the hashes must differ.
    #[arg(long)]
    corrupt: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let (file, len) = open(arguments).map_err(|error| format!("{}: {error}", arguments.file.display()))?;
    let sink = create(arguments, &file)?;
    carry(arguments, file, len, sink).map_err(|fault| format!("{}: {fault}", arguments.file.display()))
}

/// The file and its length.
fn open(arguments: &Arguments) -> io::Result<(File, u64)> {
    // Asked before it is opened: opening a pipe waits for its other end.
    let kind = fs::metadata(&arguments.file)?;
    if !kind.is_file() {
        let text = "not a file with a length, which is sent first: copy what is in it into one";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let file = File::open(&arguments.file)?;
    let len = file.metadata()?.len();
    if arguments.corrupt && len == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it has no byte that --corrupt could change"));
    }
    Ok((file, len))
}

/// Where it is stored, which must not be where it is read, by whatever name.
fn create(arguments: &Arguments, source: &File) -> Result<Box<dyn Write>, String> {
    let Some(path) = &arguments.output else { return Ok(Box::new(io::sink())) };
    let emptied = || {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let (from, to) = (source.metadata()?, file.metadata()?);
        if (from.dev(), from.ino()) == (to.dev(), to.ino()) {
            let text = "this is the file itself, which would be lost: name another";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        if to.is_file() {
            file.set_len(0)?;
        }
        Ok(file)
    };
    let file = emptied().map_err(|error| format!("--output {}: {error}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

fn carry(arguments: &Arguments, file: File, len: u64, sink: Box<dyn Write>) -> Result<(), Fault> {
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.neighbour()?), Context::open(device)];
    let mut out = io::stdout();
    for (side, context) in ["from", "to"].iter().zip(&contexts) {
        writeln!(out, "{side}: {}", Description(context)).map_err(Fault::Print)?;
    }
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let bar = ProgressBar::new(len).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let options = Options { chunk: arguments.chunk, window: arguments.window.into(), corrupt: arguments.corrupt };
    let report = transfer(options, contexts, file, len, sink, |stored| bar.set_position(stored));
    bar.finish_and_clear();
    let report = report?;
    let rate = Rate::of(report.bytes, report.took).map_or("-".into(), |rate| rate.bytes().to_string());
    let (bytes, took) = (Bytes(report.bytes), Time(report.took));
    let (chunks, early) = (report.chunks, report.early);
    writeln!(out, "{bytes} ({} B) in {chunks} chunks, {early} out of order, {took}, {rate}", report.bytes)
        .and_then(|()| writeln!(out, "hashes equal: {}", report.hash))
        .map_err(Fault::Print)
}
