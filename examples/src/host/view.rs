//! A host as data: its files below a root, its environment, its limits, and what it answered when it was asked.
//!
//! All that the checks know of a host is here, so that a host can be made up for a test. `live` fills it for this
//! machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::imds::Metadata;

/// What is known of a host.
#[derive(Clone, Debug)]
pub struct View {
    /// Where its `/` is.
    pub root: PathBuf,
    /// Where its sysfs is: `/sys`, or what `SYSFS_PATH` says, as libibverbs has it.
    pub sysfs: String,
    /// The environment of the process that runs on it.
    pub environment: BTreeMap<String, String>,
    /// What its kernel and processor are.
    pub machine: Machine,
    /// What the process may.
    pub limits: Limits,
    /// Files that refuse to be opened, with their errno; others are tried.
    pub refusals: BTreeMap<String, i32>,
    /// The devices as libibverbs lists them, or why it does not.
    pub verbs: Asked<Vec<VerbsDevice>>,
    /// What a fork does to registered memory.
    pub fork: Fork,
    /// The instance metadata service.
    pub metadata: Asked<Metadata>,
    /// What `aws ec2 describe-security-group-rules` printed, if it was given.
    pub rules: Option<serde_json::Value>,
}

/// What was asked: an answer, why there is none, or that nobody asked.
#[derive(Clone, Debug, Default)]
pub enum Asked<T> {
    /// It answered.
    Answered(T),
    /// It did not, and why.
    Failed(String),
    /// Nobody asked, and why.
    #[default]
    Not,
}

impl<T> Asked<T> {
    /// The answer, if there is one.
    pub fn answer(&self) -> Option<&T> {
        match self {
            Self::Answered(answer) => Some(answer),
            Self::Failed(_) | Self::Not => None,
        }
    }
}

/// Kernel and processor.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Machine {
    /// The kernel's release: `6.8.0-1015-aws`.
    pub kernel: String,
    /// The architecture: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Bytes of a page.
    pub page: u64,
    /// The host's name.
    pub name: String,
}

/// What a process may.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `RLIMIT_MEMLOCK`, the soft one, in bytes; `None`: unlimited.
    pub memlock: Option<u64>,
    /// Whether it may lock beyond that limit: CAP_IPC_LOCK, which root has outside of containers.
    pub ipc_lock: bool,
}

/// What a fork does to registered memory: see [`efa_os::Fork`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fork {
    /// The kernel copies registered pages for the child.
    Unneeded,
    /// libibverbs keeps them from the child.
    Enabled,
    /// Nobody does.
    Disabled,
    /// Nobody could be asked.
    #[default]
    Unknown,
}

/// A device as the library tells of it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct VerbsDevice {
    /// Its name.
    pub name: String,
    /// Why it could not be opened; the rest is empty then.
    pub error: Option<String>,
    /// Its address.
    pub gid: String,
    /// Its port's state, in words.
    pub port: String,
    /// Megabits that its link carries in a second.
    pub megabits: Option<u64>,
    /// What it can do: names of [`efa_core::Caps`].
    pub capabilities: Vec<String>,
    /// How much of it, by name.
    pub limits: BTreeMap<String, u64>,
    /// How core drives it: `direct` or `verbs`.
    pub path: String,
    /// libibverbs and libefa, with their newest version nodes.
    pub libraries: Vec<String>,
}

impl VerbsDevice {
    /// Whether it has this capability.
    pub fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }
}

impl View {
    /// The path of a file of the host's, below the root.
    pub fn path(&self, path: &str) -> PathBuf {
        let path = match path.strip_prefix("/sys/") {
            Some(rest) if self.sysfs != "/sys" => format!("{}/{rest}", self.sysfs),
            _ => path.to_owned(),
        };
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space around it; `None` if it cannot be read or is no text.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A number in a file, decimal or, after 0x, hexadecimal.
    pub fn number(&self, path: &str) -> Option<i64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// A file's bytes.
    pub fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder, in order; none if there is no such folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_by_key(|name| natural(name));
        names
    }

    /// Where a file really is, as the host names it.
    pub fn real(&self, path: &str) -> Option<String> {
        let real = self.path(path).canonicalize().ok()?;
        let root = self.root.canonicalize().ok()?;
        let within = real.strip_prefix(&root).map(Path::to_path_buf).unwrap_or(real);
        Some(format!("/{}", within.display()))
    }

    /// Opens a file to read and write, as libibverbs opens a device's.
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self, path: &str) -> io::Result<()> {
        if let Some(errno) = self.refusals.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        fs::OpenOptions::new().read(true).write(true).open(self.path(path)).map(drop)
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A variable as a truth: `None` if it is not set or neither.
    pub fn switch(&self, name: &str) -> Option<bool> {
        match self.variable(name)?.to_lowercase().as_str() {
            "1" | "y" | "yes" | "true" | "on" => Some(true),
            "0" | "n" | "no" | "false" | "off" => Some(false),
            _ => None,
        }
    }
}

/// Numbers in a name count as numbers: `rdmap9s0` is before `rdmap10s0`.
pub(super) fn natural(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0_u64, String::new())];
    for c in name.chars() {
        let (number, text) = parts.last_mut().expect("never empty");
        match c.to_digit(10) {
            Some(digit) if text.is_empty() => *number = number.saturating_mul(10).saturating_add(digit.into()),
            Some(digit) => parts.push((digit.into(), String::new())),
            None => text.push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["rdmap10s0", "rdmap9s0", "rdmap9s0f1", "efa_2", "efa_10"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["efa_2", "efa_10", "rdmap9s0", "rdmap9s0f1", "rdmap10s0"]);
    }
}
