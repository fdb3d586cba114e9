//! Instructions within functions, phase by phase, as callgrind counts them: they vary with the code alone.

use std::path::Path;
use std::process::Command;

use crate::subject::Phase;

/// Instructions of a phase's posts and of its completions.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    pub(crate) posts: u64,
    pub(crate) completions: u64,
}

/// Where the program is when a phase ends: callgrind then writes down what it has counted, and begins anew.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn phase_ends() {
    std::hint::black_box(());
}

/// The command that has callgrind count a program, which is to follow, into files in that folder.
pub(crate) fn valgrind(folder: &Path) -> Vec<String> {
    let valgrind = ["valgrind", "--tool=callgrind", "--dump-before=phase_ends", "--compress-strings=no"];
    let out = format!("--callgrind-out-file={}/out", folder.display());
    valgrind.into_iter().map(str::to_owned).chain([out, "--compress-pos=no".to_owned()]).collect()
}

/// What was counted in each phase of a run of that command. The first file is of what came before them.
///
/// # Errors
/// What could not be read.
pub(crate) fn run(mut command: Command, folder: &Path) -> Result<Vec<Counted>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let output = command.output().map_err(|error| format!("{command:?}: {error}: install the package valgrind"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let of_phase = |nth| std::fs::read_to_string(folder.join(format!("out.{nth}"))).map(|text| parse(&text));
    (2..2 + Phase::ALL.len()).map(|nth| of_phase(nth).map_err(failed)).collect()
}

/// The inclusive costs of calls to functions that are counted, less those of what they call uncounted.
fn parse(text: &str) -> Counted {
    let mut counted = Counted::default();
    let (mut callee, mut is_cost) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("cfn=") {
            callee = function(name);
        } else if line.starts_with("calls=") {
            is_cost = true;
        } else if std::mem::take(&mut is_cost) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
            match callee {
                name if name.starts_with("uncounted_") => counted.completions -= cost,
                name if name.starts_with("counted_") && name.contains("event") => counted.completions += cost,
                name if name.starts_with("counted_") => counted.posts += cost,
                _ => {}
            }
        }
    }
    counted
}

/// A function's own name, without the path to it and the types that it is for.
fn function(name: &str) -> &str {
    let own = |part: &&str| part.starts_with("counted_") || part.starts_with("uncounted_");
    let name = name.split("::").find(own).unwrap_or(name);
    name.split(['<', '\'']).next().unwrap_or(name)
}
