//! `efa doctor`: checks of a host, and what they found.
//!
//! | file | holds checks of |
//! |---|---|
//! | `device` | the hardware, its driver, its port, GPU memory |
//! | `libraries` | libibverbs, libefa, AWS's installer, what is built on them |
//! | `nodes` | files in `/dev`, limits, huge pages, forks |
//! | `kernel` | the kernel, the operating system, where devices are |
//! | `instance` | what EC2 says, and what only its API can say |
//! | `environment` | variables that contradict each other, or that abort |
//! | `fabrics` | `efa-direct` and `efa`, NVSHMEM |
//! | `verdict`, `report`, `explain` | what a check says; all of them as text and JSON; what a check looks at |

mod device;
mod environment;
mod explain;
mod fabrics;
mod instance;
mod kernel;
mod libraries;
mod nodes;
mod report;
mod rules;
mod verdict;

use serde::{Deserialize, Serialize};

use super::Host;
pub use explain::{Explained, explained, explained_text};
pub(super) use report::outcomes_text;
pub use report::{Outcome, Report, State, Style};
pub use verdict::Verdict;
pub(super) use verdict::listed;

/// How bad it is what a check may find.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Note,
    /// It costs speed, or fails under conditions.
    Warning,
    /// Something does not work.
    Problem,
}

/// A check: one question to a host.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name, which stays.
    pub id: &'static str,
    /// What is checked, as a statement that should be true.
    pub title: &'static str,
    /// How bad it is if that is not so.
    pub severity: Severity,
    /// What it looks at, what follows, and where that is known from.
    pub explain: &'static str,
    /// The question.
    pub judge: fn(&Host) -> Verdict,
}

/// All checks, in their order, each with its group.
pub fn checks() -> impl Iterator<Item = (&'static str, &'static Check)> {
    let groups: [(&str, &[Check]); 7] = [
        ("device", device::CHECKS),
        ("libraries", libraries::CHECKS),
        ("nodes", nodes::CHECKS),
        ("kernel", kernel::CHECKS),
        ("instance", instance::CHECKS),
        ("environment", environment::CHECKS),
        ("fabrics", fabrics::CHECKS),
    ];
    groups.into_iter().flat_map(|(group, checks)| checks.iter().map(move |check| (group, check)))
}

/// A check by its name.
pub fn check(id: &str) -> Option<(&'static str, &'static Check)> {
    checks().find(|(_, check)| check.id == id)
}

/// The names of variables that matter to EFA.
pub(super) fn environment_names() -> &'static [&'static str] {
    &environment::NAMES
}

/// Asks all of them.
pub fn examine(host: &Host) -> Report {
    let outcomes = checks().map(|(group, check)| Outcome::of(group, check, (check.judge)(host))).collect();
    Report::new(host, outcomes)
}
