//! This very program as a child: under callgrind, on softefa, with the newest libraries.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::callgrind::phase_ends;
use crate::column::{Column, QUEUES};
use crate::subject::{DEPTH, Phase, Subject};
use crate::theirs::Theirs;

/// Rounds that are counted, each of a queue's depth.
pub(crate) const ROUNDS: usize = 4;

fn round(subject: &mut dyn Subject, phase: Phase) {
    subject.prepare(phase);
    subject.post(phase);
    subject.device(phase);
    subject.complete(phase);
    subject.clean_up(phase);
}

pub(crate) fn be_counted(subject: &mut dyn Subject) {
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
pub(crate) fn be_timed(rounds: usize, columns: &[Column], theirs: Option<Theirs>) {
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
            let median = |of: &mut Vec<Duration>| {
                of.sort_unstable();
                of.get(of.len() / 2).map_or(0.0, |time| time.as_nanos() as f64 / DEPTH as f64)
            };
            let (post, completion) = (median(posts), median(completions));
            println!("{} {queue} {phase} {post:.2} {completion:.2}", column.to_possible_value().unwrap().get_name());
        }
    }
}

/// Where the newest rdma-core is, and what else a child on softefa needs.
pub(crate) struct Newest {
    libraries: PathBuf,
    runner: PathBuf,
    /// `libefa.c` and `libfabric.c`, compiled.
    libefa: PathBuf,
    libfabric: Result<PathBuf, String>,
}

impl Newest {
    /// Nothing where it was not unpacked.
    ///
    /// # Errors
    /// What the C compiler says.
    pub(crate) fn find(target: &Path) -> Result<Option<Self>, String> {
        let root = std::env::var_os("NEWEST_RDMA_CORE").map_or_else(|| target.join("newest-rdma-core"), PathBuf::from);
        let root = root.join("root");
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        if !libraries.join("libefa.so.1").exists() {
            return Ok(None);
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
                .arg(here.join("against_libefa").join(name).with_extension("c"))
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
        Ok(Some(Self { libraries, runner: here.join("../softefa/run"), libefa, libfabric }))
    }

    /// What a column is loaded from, if it can be.
    pub(crate) fn library(&self, column: Column) -> Result<&Path, &str> {
        match column {
            Column::Libfabric => self.libfabric.as_deref().map_err(String::as_str),
            _ => Ok(&self.libefa),
        }
    }
}

/// This very program as a child, under valgrind if that is said, on softefa if there is anything to run it on.
pub(crate) fn child(newest: Option<&Newest>, column: Column, valgrind: &[String]) -> Result<Command, String> {
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

/// A column, a queue and a phase by their numbers.
pub(crate) type Cell = (Column, usize, usize);

/// Those whose completions can be forged in one process; the others need the device, which would take what is forged for
/// work, and so each has one of its own.
pub(crate) fn times(newest: &Newest, columns: &[Column], rounds: usize) -> Result<HashMap<Cell, [f64; 2]>, String> {
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
