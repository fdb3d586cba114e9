//! From a post to what it does elsewhere, on the software device, whose own work is included: latency and bandwidth by size,
//! in one process and between two; small messages by queue depth; many peers; and the bytes that all of it takes.
//!
//! ```text
//! cargo bench -p efa-benches --bench end_to_end -- [--quick] [--all] [--check]
//! ```
//!
//! No EFA is there: this is what the code costs, and what a software device does, not what a network does. Tables are printed;
//! the figures are in `target/benches/end_to_end*.csv`, and `end_to_end-latency.svg` and `end_to_end-bandwidth.svg` show them.
//! It fails if anything is allocated after set-up, or if an operation with 4096 peers costs more than [`peers::BOUND`] times
//! one with a single one; with `--check` also if a target of speed is missed.
#![allow(missing_docs)]

mod memory;
mod peers;
mod plot;
mod rates;
mod sizes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use efa_core::Context;
use efa_core::soft::{Profile, SoftDevice};
use efa_examples::describe::Description;
use efa_examples::fault::Fault;
use efa_examples::table::Table;
use efa_tests::alloc_count::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Parser)]
struct Options {
    /// For a shorter time, up to 64 KiB.
    #[arg(long)]
    quick: bool,
    /// Up to 1 GiB, instead of 16 MiB.
    #[arg(long, conflicts_with = "quick")]
    all: bool,
    /// Fail if a target of speed is missed.
    #[arg(long)]
    check: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
    /// In a child: the other process, which connects there.
    #[arg(long, hide = true)]
    respond: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let ran = match &options.respond {
        Some(address) => sizes::respond(&options, address).map(|()| true),
        None => run(&options),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all went as it must.
fn run(options: &Options) -> Result<bool, Fault> {
    let results = results()?;
    println!("{}\n", Description(&Context::open(SoftDevice::new(Profile::RDMA))));

    let mut report = Report::new();
    let mut allocations = rates::run(options, &mut report);
    allocations += peers::run(options, &mut report)?;
    report.must("allocations after set-up in all of these", allocations as f64, "", "0", allocations == 0);
    memory::run(&mut report)?;
    println!("{}", report.table);
    write(&results.join("end_to_end-more.csv"), &report.csv)?;

    let mut rows = sizes::in_one_process(options)?;
    println!("{}", sizes::table(&rows));
    // Last, as it takes long where others use the processors too.
    let between = sizes::between_two(options)?;
    println!("{}", sizes::table(&between));
    rows.extend(between);
    plot::draw(&rows, &results)?;
    write(&results.join("end_to_end.csv"), &sizes::csv(&rows))?;
    for file in ["end_to_end.csv", "end_to_end-more.csv", plot::LATENCY, plot::BANDWIDTH] {
        println!("{}", results.join(file).display());
    }
    if report.missed > 0 {
        println!("{} targets missed", report.missed);
    }
    Ok(report.failed == 0 && !(options.check && report.missed > 0))
}

/// Where results go.
fn results() -> Result<PathBuf, Fault> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap_or(Path::new("target"));
    let results = target.join("benches");
    std::fs::create_dir_all(&results).map_err(Fault::Store)?;
    Ok(results)
}

fn write(file: &Path, text: &str) -> Result<(), Fault> {
    std::fs::write(file, text).map_err(Fault::Store)
}

/// Figures with what they are held to.
struct Report {
    table: Table<4>,
    csv: String,
    /// Targets of speed.
    missed: u32,
    /// What must be so.
    failed: u32,
}

impl Report {
    fn new() -> Self {
        let table = Table::new(["measured", "", "target", ""]);
        Self { table, csv: "measured,value,unit\n".to_owned(), missed: 0, failed: 0 }
    }

    fn row(&mut self, what: &str, value: f64, unit: &str, target: &str, verdict: &str) {
        let shown =
            if value >= 100.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.2}") };
        let shown = if unit.is_empty() { shown } else { format!("{shown} {unit}") };
        self.csv.push_str(&format!("\"{what}\",{value},{unit}\n"));
        self.table.row([what.to_owned(), shown, target.to_owned(), verdict.to_owned()]);
    }

    /// What nothing is held to.
    fn told(&mut self, what: &str, value: f64, unit: &str) {
        self.row(what, value, unit, "", "");
    }

    /// A target of speed.
    fn held(&mut self, what: &str, value: f64, unit: &str, target: &str, met: bool) {
        self.missed += u32::from(!met);
        self.row(what, value, unit, target, if met { "met" } else { "MISSED" });
    }

    /// What fails the run if it is not so.
    fn must(&mut self, what: &str, value: f64, unit: &str, target: &str, met: bool) {
        self.failed += u32::from(!met);
        self.row(what, value, unit, target, if met { "met" } else { "FAILED" });
    }
}
