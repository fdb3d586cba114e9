//! Latency and bandwidth by size: what the example `pingpong` measures, with every byte verified, in one process whose one
//! thread polls both sides, and between two that each poll.

use std::fmt::Write as _;
use std::process::{Child, Command};
use std::time::Duration;

use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_examples::exchange::{Listener, Tcp};
use efa_examples::fault::Fault;
use efa_examples::human::{Bytes, Rate, Time};
use efa_examples::pingpong::{self, Operation, Row};
use efa_examples::table::Table;
use efa_os::soft;

use crate::Options;

/// How a row came about.
pub(crate) const ONE: &str = "one process";
pub(crate) const TWO: &str = "two processes";

/// How long the processes wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const OPERATIONS: [Operation; 4] = [Operation::Send, Operation::Write, Operation::WriteImm, Operation::Read];

fn pingpong_options(options: &Options) -> pingpong::Options {
    pingpong::Options {
        operations: OPERATIONS.to_vec(),
        iterations: if options.quick { 300 } else { 5_000 },
        max_size: match options {
            Options { quick: true, .. } => 1 << 16,
            Options { all: true, .. } => 1 << 30,
            _ => 16 << 20,
        },
        seed: 7,
        corrupt: false,
        threads: false,
    }
}

pub(crate) fn in_one_process(options: &Options) -> Result<Vec<(&'static str, Row)>, Fault> {
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.neighbour()?), Context::open(device)];
    let rows = pingpong::run(&pingpong_options(options), contexts, |_| ())?;
    Ok(rows.into_iter().map(|row| (ONE, row)).collect())
}

/// Ends the other process, whatever becomes of this one.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn device(fabric: u32) -> Result<Context<soft::Device>, Fault> {
    let mut opened = soft::Options::new(Profile::RDMA).fabric(&format!("end-to-end-{fabric}")).open()?;
    Ok(Context::open(opened.swap_remove(0)))
}

pub(crate) fn between_two(options: &Options) -> Result<Vec<(&'static str, Row)>, Fault> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let context = device(std::process::id())?;
    let mut command = Command::new(std::env::current_exe().map_err(Fault::Read)?);
    command.args(options.quick.then_some("--quick")).args(options.all.then_some("--all"));
    command.arg("--respond").arg(format!("{}/{}", listener.address(), std::process::id()));
    let mut other = Other(command.spawn().map_err(Fault::Read)?);
    let mut channel = listener.accept(PATIENCE)?;
    let rows = pingpong::lead(&pingpong_options(options), context, &mut channel, |_| (), |_| ())?;
    if other.0.wait().map_err(Fault::Read)?.success() {
        Ok(rows.into_iter().map(|row| (TWO, row)).collect())
    } else {
        Err(Fault::OtherSide)
    }
}

/// The other process: `address` is where this one listens, and its number.
pub(crate) fn respond(options: &Options, address: &str) -> Result<(), Fault> {
    let parts = address.split_once('/').and_then(|(address, number)| Some((address, number.parse().ok()?)));
    let (address, fabric) = parts.ok_or(Fault::Protocol("no address and number".to_owned()))?;
    let context = device(fabric)?;
    let mut channel = Tcp::connect(address, PATIENCE)?;
    pingpong::respond(&pingpong_options(options), context, &mut channel).map(|_| ())
}

fn bandwidth(row: &Row) -> Rate {
    Rate { per_second: row.rate.per_second * row.size as f64 }
}

pub(crate) fn table(rows: &[(&str, Row)]) -> Table<8> {
    let mut table = Table::new(["operation", "", "size", "p50", "p99", "p99.9", "operations", "bandwidth"]);
    for (how, row) in rows {
        table.row([
            row.operation.to_string(),
            (*how).to_owned(),
            Bytes(row.size as u64).to_string(),
            Time(row.latency.p50).to_string(),
            Time(row.latency.p99).to_string(),
            Time(row.latency.p99_9).to_string(),
            row.rate.operations().to_string(),
            bandwidth(row).bytes().to_string(),
        ]);
    }
    table
}

pub(crate) fn csv(rows: &[(&str, Row)]) -> String {
    let mut csv = "how,operation,bytes,samples,p50_ns,p99_ns,p99.9_ns,operations_per_s,bytes_per_s\n".to_owned();
    for (how, row) in rows {
        let latency = row.latency;
        let [p50, p99, p99_9] = [latency.p50, latency.p99, latency.p99_9].map(|time| time.as_nanos());
        let (operations, bytes) = (row.rate.per_second, bandwidth(row).per_second);
        let _ = writeln!(
            csv,
            "{how},{},{},{},{p50},{p99},{p99_9},{operations:.0},{bytes:.0}",
            row.operation, row.size, latency.count
        );
    }
    csv
}
