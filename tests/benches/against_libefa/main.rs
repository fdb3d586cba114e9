//! What an operation costs, by efa-core and by libefa, side by side on one device: instructions, counted by callgrind, and
//! nanoseconds.
//!
//! ```text
//! cargo bench -p efa-tests --bench against_libefa -- [--core] [--quick]
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
mod forge;
mod ours;
mod rows;
mod subject;
mod theirs;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use clap::{Parser, ValueEnum};
use efa_core::DataPath;
use efa_core::soft::{Profile, SoftDevice};
use efa_examples::table::Table;
use efa_tests::still::Still;

use callgrind::{Counted, phase_ends};
use ours::Device;
use rows::{Part, ROWS};
use subject::{DEPTH, Phase, Queue, Subject};
use theirs::Theirs;

/// Who does it: a column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Debug)]
enum Column {
    /// `fi_send`, `fi_cq_read` of `efa-direct`, for one thread.
    Libfabric,
    /// `ibv_post_send`, `ibv_poll_cq`.
    Classic,
    /// `ibv_wr_*`, `ibv_start_poll`, in a thread domain: without locks.
    Extended,
    Verbs,
    Direct,
    Core,
}

impl Column {
    const ALL: [Self; 6] = [Self::Libfabric, Self::Classic, Self::Extended, Self::Verbs, Self::Direct, Self::Core];

    fn name(self) -> &'static str {
        match self {
            Self::Libfabric => "libfabric",
            Self::Classic => "libefa classic",
            Self::Extended => "libefa extended",
            Self::Verbs => "efa-os verbs",
            Self::Direct => "efa-os direct",
            Self::Core => "core on a stub",
        }
    }

    fn is_theirs(self) -> bool {
        matches!(self, Self::Libfabric | Self::Classic | Self::Extended)
    }

    /// Where its completions may arrive.
    fn queues(self) -> &'static [Queue] {
        if self.is_theirs() { &[Queue::Own, Queue::One] } else { &[Queue::Own, Queue::One, Queue::Group] }
    }

    /// The subject, which is to be timed if that is said; `theirs` is there for all but core.
    fn subject(self, queue: Queue, theirs: Option<Theirs>, timed: bool) -> Box<dyn Subject> {
        let theirs = || theirs.expect("--library");
        let drive = || {
            let drive = theirs().drive();
            // SAFETY: as it is declared in `libefa.c`.
            let drive = move || assert_eq!(unsafe { drive() }, 0, "the device is not softefa's");
            // From now on it does nothing by itself.
            drive();
            drive
        };
        let open = |path| efa_os::list().unwrap().into_iter().next().expect("a device").open_with(path).unwrap();
        let driven = || Device::Driven(Box::new(drive()));
        match self {
            Self::Libfabric => theirs().subject(false, true, queue, false),
            Self::Classic => theirs().subject(false, false, queue, timed),
            Self::Extended => theirs().subject(true, true, queue, timed),
            Self::Verbs => ours::subject(open(DataPath::Verbs), queue, driven(), timed),
            Self::Direct if timed => {
                drive()();
                let theirs = theirs();
                let forged = Device::Forged(Box::new(move |ring, bytes| theirs.unlock(ring, bytes)));
                ours::subject(Still(open(DataPath::Direct)), queue, forged, timed)
            }
            Self::Direct => ours::subject(open(DataPath::Direct), queue, driven(), timed),
            Self::Core => {
                ours::subject(Still(SoftDevice::new(Profile::RDMA)), queue, Device::Forged(Box::new(|_, _| ())), timed)
            }
        }
    }
}

/// A queue by its number, which is what a child of this program is told.
const QUEUES: [Queue; 3] = [Queue::Own, Queue::One, Queue::Group];

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

/// Rounds that are counted, each of a queue's depth.
const ROUNDS: usize = 4;

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

fn round(subject: &mut dyn Subject, phase: Phase) {
    subject.prepare(phase);
    subject.post(phase);
    subject.device(phase);
    subject.complete(phase);
    subject.clean_up(phase);
}

fn be_counted(subject: &mut dyn Subject) {
    let phases = Phase::ALL.into_iter();
    phases
        .clone()
        .filter(|phase| subject.does(*phase))
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|phase| round(subject, phase));
    phase_ends();
    for phase in phases {
        if subject.does(phase) {
            (0..ROUNDS).for_each(|_| round(subject, phase));
        }
        phase_ends();
    }
}

/// Prints column, queue, phase, and the medians of an operation's post and completion in nanoseconds.
fn be_timed(rounds: usize, columns: &[Column], theirs: Option<Theirs>) {
    let columns = columns.iter().flat_map(|column| column.queues().iter().map(move |queue| (*column, *queue)));
    let mut subjects: Vec<_> =
        columns.map(|(column, queue)| (column, queue, column.subject(queue, theirs, true))).collect();
    let mut samples = vec![[const { [const { Vec::new() }; 2] }; Phase::ALL.len()]; subjects.len()];
    for _ in 0..rounds {
        for (at, phase) in Phase::ALL.into_iter().enumerate() {
            for ((_, _, subject), samples) in subjects.iter_mut().zip(&mut samples) {
                if !subject.does(phase) {
                    continue;
                }
                subject.prepare(phase);
                let start = Instant::now();
                subject.post(phase);
                samples[at][0].push(start.elapsed());
                subject.device(phase);
                let start = Instant::now();
                subject.complete(phase);
                samples[at][1].push(start.elapsed());
                subject.clean_up(phase);
            }
        }
    }
    for ((column, queue, _), samples) in subjects.iter().zip(&mut samples) {
        let queue = QUEUES.iter().position(|of| of == queue).unwrap();
        for (phase, [posts, completions]) in samples.iter_mut().enumerate() {
            let median = |of: &mut Vec<std::time::Duration>| {
                of.sort_unstable();
                of.get(of.len() / 2).map_or(0.0, |time| time.as_nanos() as f64 / DEPTH as f64)
            };
            let (post, completion) = (median(posts), median(completions));
            println!("{} {queue} {phase} {post:.2} {completion:.2}", column.to_possible_value().unwrap().get_name());
        }
    }
}

/// Where the newest rdma-core is, and what else a child on softefa needs.
struct Newest {
    libraries: PathBuf,
    runner: PathBuf,
    /// `libefa.c` and `libfabric.c`, compiled.
    libefa: PathBuf,
    libfabric: Result<PathBuf, String>,
}

impl Newest {
    fn find(target: &Path) -> Result<Self, String> {
        let root = std::env::var_os("NEWEST_RDMA_CORE").map_or_else(|| target.join("newest-rdma-core"), PathBuf::from);
        let root = root.join("root");
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        if !libraries.join("libefa.so.1").exists() {
            return Err("no newer rdma-core: tests/softefa/newest target/newest-rdma-core gets it".to_owned());
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let compile = |name: &str, linked: &[&str]| {
            let library = target.join(format!("benches/against_{name}.so"));
            let compiled = Command::new("cc")
                .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
                .arg("-I")
                .arg(root.join("usr/include"))
                .arg("-L")
                .arg(&libraries)
                .args(["-Wl,--allow-shlib-undefined", "-o"])
                .arg(&library)
                .arg(here.join("benches/against_libefa").join(name).with_extension("c"))
                .args(linked)
                .output()
                .map_err(|error| format!("cc: {error}"))?;
            let said = String::from_utf8_lossy(&compiled.stderr);
            if compiled.status.success() { Ok(library) } else { Err(format!("{name}.c: {said}")) }
        };
        let libfabric = if root.join("usr/include/rdma/fabric.h").exists() {
            Ok(compile("libfabric", &["-lfabric"])?)
        } else {
            Err("no libfabric beside that rdma-core".to_owned())
        };
        let libefa = compile("libefa", &["-lefa", "-libverbs"])?;
        Ok(Self { libraries, runner: here.join("softefa/run"), libefa, libfabric })
    }

    /// What a column is loaded from, if it can be.
    fn library(&self, column: Column) -> Result<&Path, &str> {
        match column {
            Column::Libfabric => self.libfabric.as_deref().map_err(String::as_str),
            _ => Ok(&self.libefa),
        }
    }
}

/// This very program as a child, under valgrind if that is said, on softefa if there is anything to run it on.
fn child(newest: Option<&Newest>, column: Column, valgrind: &[String]) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut words: Vec<std::ffi::OsString> = Vec::new();
    words.extend(newest.map(|newest| newest.runner.clone().into()));
    words.extend(valgrind.iter().map(Into::into));
    if let Some(Newest { libraries, .. }) = newest {
        let loader = std::fs::read_dir(libraries).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_loader =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"));
        let loader = loader.into_iter().find(is_loader).ok_or("no loader beside the newest libraries")?;
        words.extend([loader.into(), "--library-path".into(), libraries.into()]);
    }
    words.push(program.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    // Nothing is resolved in what is counted.
    command.env("LD_BIND_NOW", "1");
    if let Some(newest) = newest {
        command.env("IBV_DRIVERS", newest.libraries.join("libibverbs/libefa"));
        // libfabric has RDMA only with a device of all kinds of it.
        command.env("SOFTEFA_PROFILE", "unsolicited");
        command.envs([("SOFTEFA_FABRIC", "none"), ("SOFTEFA_SHUFFLE", "0"), ("SOFTEFA_DEVICES", "1")]);
        command.arg("--library").arg(newest.library(column)?);
    }
    Ok(command)
}

type Cell = (Column, usize, usize);

/// Prints all, and says how many counts are above what is committed.
fn report(options: &Options) -> Result<usize, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let results = target.join("benches");
    std::fs::create_dir_all(&results).map_err(|error| error.to_string())?;
    let newest = if options.core { Err("--core".to_owned()) } else { Newest::find(&target) };
    if let Err(why) = &newest {
        println!("skipped: all but core on its stub: {why}");
    }
    let newest = newest.ok();
    let mut columns = Vec::new();
    for column in Column::ALL {
        match &newest {
            Some(newest) => match newest.library(column) {
                Ok(_) => columns.push(column),
                Err(why) => println!("skipped: {}: {why}", column.name()),
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

/// Those whose completions can be forged in one process; the others need the device, which would take what is forged for
/// work, and so each has one of its own.
fn times(newest: &Newest, columns: &[Column], rounds: usize) -> Result<HashMap<Cell, [f64; 2]>, String> {
    let (apart, together): (Vec<Column>, Vec<Column>) =
        columns.iter().partition(|column| matches!(column, Column::Verbs | Column::Libfabric));
    let mut cells = HashMap::new();
    for columns in std::iter::once(&together[..]).chain(apart.chunks(1)) {
        let mut command = child(Some(newest), columns[0], &[])?;
        command.args(["--timed", &rounds.to_string()]);
        for column in columns {
            command.args(["--column", column.to_possible_value().unwrap().get_name()]);
        }
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let [column, queue, phase, post, completion] = words[..] else { return None };
            let cell = (Column::from_str(column, true).ok()?, queue.parse().ok()?, phase.parse().ok()?);
            Some((cell, [post.parse().ok()?, completion.parse().ok()?]))
        };
        cells.extend(String::from_utf8_lossy(&output.stdout).lines().filter_map(line));
    }
    Ok(cells)
}
