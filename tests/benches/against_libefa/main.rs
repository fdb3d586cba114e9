//! What an operation costs, by efa-core and by libefa, side by side on one device: instructions, counted by callgrind, and
//! nanoseconds.
//!
//! ```text
//! cargo bench -p efa-benches --bench against_libefa -- [--core] [--quick]
//! ```
//!
//! The device is tests/softefa's, behind the real libibverbs and libefa of Debian's newest rdma-core, which
//! `tests/softefa/newest target/newest-rdma-core` unpacks (another folder: `NEWEST_RDMA_CORE`). What it does, and what the
//! other side does, is neither counted nor timed: it works while the program waits for it, on the same core. Only the functions
//! that a caller calls are counted, with their return. Nanoseconds are medians over rounds in which all take their turns, each of a
//! whole queue of operations with buffers of their own, and include the caller's loop, and here that the buffer is taken out of its
//! completion.
//!
//! Core is counted on a stub of a device too: queues in memory, and completions that the benchmark writes. `--core` does that
//! alone, which needs valgrind and no more. It fails if the direct path's or core's instructions rise by more than a
//! twentieth above those that are committed in `rows.rs`.
#![allow(missing_docs)]

mod callgrind;
mod child;
mod column;
mod forge;
mod ours;
mod rows;
mod subject;
mod theirs;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use efa_examples::table::Table;

use callgrind::Counted;
use child::{Cell, Newest, ROUNDS, be_counted, be_timed, child, times};
use column::{Column, QUEUES};
use rows::{Part, ROWS};
use subject::{DEPTH, Phase};
use theirs::Theirs;

#[derive(Parser)]
struct Options {
    /// Core on its stub alone.
    #[arg(long)]
    core: bool,
    /// Fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
    /// In a child: does this column's work, for callgrind to count.
    #[arg(long, hide = true, num_args = 2, value_names = ["COLUMN", "QUEUE"])]
    counted: Option<Vec<String>>,
    /// In a child: times these in so many rounds.
    #[arg(long, hide = true)]
    timed: Option<usize>,
    #[arg(long, hide = true)]
    column: Vec<Column>,
    /// In a child: `libefa.c`, compiled.
    #[arg(long, hide = true)]
    library: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let theirs = options.library.as_deref().map(|library| Theirs::load(library).unwrap());
    if let Some(what) = &options.counted {
        let column = Column::from_str(&what[0], true).unwrap();
        be_counted(&mut *column.subject(QUEUES[what[1].parse::<usize>().unwrap()], theirs, false));
        return ExitCode::SUCCESS;
    }
    if let Some(rounds) = options.timed {
        be_timed(rounds, &options.column, theirs);
        return ExitCode::SUCCESS;
    }
    match report(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(above) => {
            eprintln!("error: {above} of them rose by more than 5 %");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints all, and says how many counts are above what is committed.
fn report(options: &Options) -> Result<usize, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let results = target.join("benches");
    std::fs::create_dir_all(&results).map_err(|error| error.to_string())?;
    let newest = if options.core { None } else { Newest::find(&target)? };
    if newest.is_none() && !options.core {
        println!(
            "figure: against_libefa: skipped, all but core: `tests/softefa/newest target/newest-rdma-core` gets the rest"
        );
    }
    let mut columns = Vec::new();
    for column in Column::ALL {
        match &newest {
            Some(newest) => match newest.library(column) {
                Ok(_) => columns.push(column),
                Err(why) => println!("figure: against_libefa: skipped, {}: {why}", column.name()),
            },
            None if column == Column::Core => columns.push(column),
            None => {}
        }
    }

    let mut counts: HashMap<Cell, Counted> = HashMap::new();
    for column in &columns {
        for queue in column.queues() {
            let queue = QUEUES.iter().position(|of| of == queue).unwrap();
            let name = column.to_possible_value().unwrap().get_name().to_owned();
            let folder = results.join(format!("callgrind-{name}-{queue}"));
            let on = newest.as_ref().filter(|_| *column != Column::Core);
            let mut command = child(on, *column, &callgrind::valgrind(&folder))?;
            command.args(["--counted", &name, &queue.to_string()]);
            let counted = callgrind::run(command, &folder)?;
            counts.extend(counted.into_iter().enumerate().map(|(phase, counted)| ((*column, queue, phase), counted)));
        }
    }
    let times = match &newest {
        Some(newest) => times(newest, &columns, if options.quick { 50 } else { 1000 })?,
        None => HashMap::new(),
    };

    let mut table = Table::new([
        "instructions, nanoseconds",
        "libfabric",
        "classic",
        "extended",
        "verbs",
        "direct",
        "core",
        "ratio",
    ]);
    let mut csv = "operation,column,instructions,nanoseconds\n".to_owned();
    let mut above = 0;
    for row in &ROWS {
        let queue = QUEUES.iter().position(|of| *of == row.queue).unwrap();
        let phase = Phase::ALL.iter().position(|of| *of == row.phase).unwrap();
        let each = |column| {
            let cell = (column, queue, phase);
            let counted = counts.get(&cell).map(|counted| match row.part {
                Part::Post => counted.posts,
                Part::Complete => counted.completions,
            });
            let counted = counted.filter(|counted| *counted > 0)? as f64 / (ROUNDS * DEPTH) as f64;
            Some((counted, times.get(&cell).map(|times| times[usize::from(row.part == Part::Complete)])))
        };
        let mut cells = vec![row.name.to_owned()];
        for column in Column::ALL {
            let Some((counted, time)) = each(column) else {
                cells.push("-".to_owned());
                continue;
            };
            let time_text = time.map_or_else(String::new, |time| format!("{time:.1}"));
            writeln!(csv, "\"{}\",{},{counted:.1},{time_text}", row.name, column.name()).unwrap();
            cells.push(format!("{counted:.1}{}", time.map_or_else(String::new, |time| format!(" {time:5.1}"))));
            let committed = match column {
                Column::Core => row.committed[0],
                Column::Direct => row.committed[1],
                _ => continue,
            };
            println!("figure: instructions of {}, {}: {counted:.1}", row.name, column.name());
            if counted > committed * 1.05 {
                above += 1;
                eprintln!(
                    "error: {}, {}: {counted:.1} instructions, {committed:.1} are committed",
                    row.name,
                    column.name()
                );
            }
        }
        // Of the direct path to the faster of libefa's.
        let best = |of: fn((f64, Option<f64>)) -> f64| {
            [Column::Classic, Column::Extended].into_iter().filter_map(each).map(of).min_by(f64::total_cmp)
        };
        let ratio = each(Column::Direct).zip(best(|each| each.0)).zip(best(|each| each.1.unwrap_or(f64::NAN)));
        cells.push(ratio.map_or_else(String::new, |((direct, count), time)| {
            format!("{:.2} {:.2}", direct.0 / count, direct.1.unwrap_or(f64::NAN) / time)
        }));
        table.row(cells.try_into().unwrap());
    }
    let file = results.join("against_libefa.csv");
    std::fs::write(&file, csv).map_err(|error| error.to_string())?;
    println!("\n{table}\n{}", file.display());
    Ok(above)
}
