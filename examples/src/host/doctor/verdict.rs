//! What a check says of a host.

use super::Severity;

/// What a check says.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As it should be: what was found.
    Fine(String),
    /// Not as it should be.
    Found {
        /// What was found.
        found: String,
        /// What should have been.
        expected: String,
        /// What to do.
        remedy: String,
        /// Less than the check's own severity, where it is not so bad.
        severity: Option<Severity>,
    },
    /// It cannot be known from here.
    Unknown {
        /// Why not.
        why: String,
        /// What would tell: a command, mostly.
        ask: Option<String>,
    },
    /// The question does not arise on this host.
    Moot(String),
}

impl Verdict {
    /// The same, as not so bad.
    pub(super) fn only(mut self, less: Severity) -> Self {
        if let Self::Found { severity, .. } = &mut self {
            *severity = Some(less);
        }
        self
    }
}

/// As it should be.
pub(super) fn fine(found: impl Into<String>) -> Verdict {
    Verdict::Fine(found.into())
}

/// Not as it should be.
pub(super) fn found(found: impl Into<String>, expected: impl Into<String>, remedy: impl Into<String>) -> Verdict {
    Verdict::Found { found: found.into(), expected: expected.into(), remedy: remedy.into(), severity: None }
}

/// Cannot be known from here.
pub(super) fn unknown(why: impl Into<String>) -> Verdict {
    Verdict::Unknown { why: why.into(), ask: None }
}

/// Cannot be known from here, and what would tell.
pub(super) fn ask(why: impl Into<String>, command: impl Into<String>) -> Verdict {
    Verdict::Unknown { why: why.into(), ask: Some(command.into()) }
}

/// Does not arise here.
pub(super) fn moot(why: impl Into<String>) -> Verdict {
    Verdict::Moot(why.into())
}

/// Names with commas, of many the first few and how many more.
pub(in super::super) fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    const SHOWN: usize = 4;
    let names: Vec<S> = names.into_iter().collect();
    let shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_a_few_are_shown() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
