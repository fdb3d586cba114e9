//! A file by RDMA writes in chunks that arrive in any order, hashed at both ends: between two software devices in this
//! program, or with `--listen` and `--connect` between two programs, on EFA devices where there are some.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use efa_core::soft::{Profile, SoftDevice};
use efa_core::{Context, Provider};
use efa_examples::describe::Description;
use efa_examples::fault::Fault;
use efa_examples::human::{Bytes, Rate, Time};
use efa_examples::programs::{Meeting, say};
use efa_examples::transfer::{MAX_WINDOW, Options, Report, receive, send, transfer};
use indicatif::{ProgressBar, ProgressStyle};

/// Transfers a file by unordered RDMA writes, and compares the hashes of both ends.
#[derive(Parser, Debug)]
#[command(version)]
struct Arguments {
    /// The file; of a program that listens there is none.
    #[arg(required_unless_present = "listen", conflicts_with = "listen")]
    file: Option<PathBuf>,
    #[command(flatten)]
    meeting: Meeting,
    /// Where to store what arrives; without it, it is hashed and dropped.
    #[arg(long, conflicts_with = "connect")]
    output: Option<PathBuf>,
    /// Bytes of a chunk, at least 1.
    #[arg(long, default_value = "16384", conflicts_with = "listen")]
    chunk: NonZeroU32,
    /// Chunks in flight at most, 1 to 64.
    #[arg(long, default_value_t = 32, conflicts_with = "listen", value_parser = clap::value_parser!(u8).range(1..=MAX_WINDOW as i64))]
    window: u8,
    /// Change one byte on its way: the hashes must differ.
    #[arg(long, conflicts_with = "listen")]
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
    let Some(path) = &arguments.file else {
        let address = arguments.meeting.listen.as_deref().unwrap_or_default();
        return listen(arguments, address).map_err(|fault| fault.to_string());
    };
    let (file, len) = open(arguments, path).map_err(|error| format!("{}: {error}", path.display()))?;
    let carried = match &arguments.meeting.connect {
        Some(address) => send_to(arguments, address, file, len),
        None => {
            let sink = create(arguments, Some(&file))?;
            alone(arguments, file, len, sink)
        }
    };
    carried.map_err(|fault| format!("{}: {fault}", path.display()))
}

/// The file and its length.
fn open(arguments: &Arguments, path: &Path) -> io::Result<(File, u64)> {
    // Asked before it is opened: opening a pipe waits for its other end.
    let kind = fs::metadata(path)?;
    if !kind.is_file() {
        let text = "not a file with a length, which is sent first: copy what is in it into one";
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    if arguments.corrupt && len == 0 {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it has no byte that --corrupt could change"));
    }
    Ok((file, len))
}

/// Where it is stored, which must not be where it is read, by whatever name.
fn create(arguments: &Arguments, source: Option<&File>) -> Result<Box<dyn Write>, String> {
    let Some(path) = &arguments.output else { return Ok(Box::new(io::sink())) };
    let emptied = || {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        let to = file.metadata()?;
        let from = source.map(File::metadata).transpose()?;
        if from.is_some_and(|from| (from.dev(), from.ino()) == (to.dev(), to.ino())) {
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

/// Both sides in this program.
fn alone(arguments: &Arguments, file: File, len: u64, sink: Box<dyn Write>) -> Result<(), Fault> {
    if let Some(contexts) = arguments.meeting.both_on_efa()? {
        return carry(arguments, contexts, file, len, sink);
    }
    let device = SoftDevice::new(Profile::RDMA);
    carry(arguments, [Context::open(device.neighbour()?), Context::open(device)], file, len, sink)
}

fn carry<P: Provider>(
    arguments: &Arguments,
    contexts: [Context<P>; 2],
    file: File,
    len: u64,
    sink: Box<dyn Write>,
) -> Result<(), Fault> {
    for (side, context) in ["from", "to"].iter().zip(&contexts) {
        say(format_args!("{side}: {}", Description(context)))?;
    }
    let bar = bar(Some(len));
    let report = transfer(options(arguments), contexts, file, len, sink, |stored| bar.set_position(stored));
    bar.finish_and_clear();
    report_of(&report?)
}

/// The side of this program that has the file.
fn send_to(arguments: &Arguments, address: &str, file: File, len: u64) -> Result<(), Fault> {
    let context = arguments.meeting.device()?;
    let mut channel = arguments.meeting.reach(address)?;
    let bar = bar(Some(len));
    let report = send(options(arguments), context, &mut channel, file, len, |stored| bar.set_position(stored));
    bar.finish_and_clear();
    report_of(&report?)
}

/// The side that gets it.
fn listen(arguments: &Arguments, address: &str) -> Result<(), Fault> {
    let sink = create(arguments, None).map_err(|error| Fault::Store(io::Error::other(error)))?;
    let context = arguments.meeting.device()?;
    let mut channel = arguments.meeting.accept(address)?;
    let bar = bar(None);
    let report = receive(context, &mut channel, sink, |_| (), |stored| bar.set_position(stored));
    bar.finish_and_clear();
    report_of(&report?)
}

fn options(arguments: &Arguments) -> Options {
    Options { chunk: arguments.chunk, window: arguments.window.into(), corrupt: arguments.corrupt }
}

fn bar(len: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let bar = len.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn report_of(report: &Report) -> Result<(), Fault> {
    let rate = Rate::of(report.bytes, report.took).map_or("-".into(), |rate| rate.bytes().to_string());
    let (bytes, took) = (Bytes(report.bytes), Time(report.took));
    let (chunks, early) = (report.chunks, report.early);
    say(format_args!("{bytes} ({} B) in {chunks} chunks, {early} out of order, {took}, {rate}", report.bytes))?;
    say(format_args!("hashes equal: {}", report.hash))
}
