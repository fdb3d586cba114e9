//! What all checks found of a host: as text for people and issues, as JSON for programs.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use super::super::Host;
use super::super::compare::Facts;
use super::super::lists;
use super::{Check, Severity, Verdict};

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The check's name.
    pub id: String,
    /// Its group.
    pub group: String,
    /// What should be true.
    pub title: String,
    /// How it is.
    pub state: State,
    /// How bad that is, of what is not as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// What was found, or why nothing was.
    pub found: String,
    /// What should have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What to do, or what to ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Fine,
    /// Not as it should be.
    Found,
    /// It cannot be known from here.
    Unknown,
    /// The question does not arise.
    Moot,
}

/// What all checks found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The tool's version.
    pub version: String,
    /// What the host is.
    pub host: Facts,
    /// The days of the lists.
    pub lists: Vec<(String, String)>,
    /// Each check's.
    pub outcomes: Vec<Outcome>,
}

/// How a report is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Style {
    /// With colours.
    pub colour: bool,
    /// With what is fine, and what does not arise.
    pub verbose: bool,
}

impl Outcome {
    /// Of a verdict.
    pub fn of(group: &str, check: &Check, verdict: Verdict) -> Self {
        Self::new(group, check.id, check.title, check.severity, verdict)
    }

    pub(in super::super) fn new(group: &str, id: &str, title: &str, severity: Severity, verdict: Verdict) -> Self {
        let (state, severity, found, expected, remedy) = match verdict {
            Verdict::Fine(found) => (State::Fine, None, found, None, None),
            Verdict::Found { found, expected, remedy, severity: less } => {
                (State::Found, Some(less.unwrap_or(severity)), found, Some(expected), Some(remedy))
            }
            Verdict::Unknown { why, ask } => (State::Unknown, None, why, None, ask),
            Verdict::Moot(why) => (State::Moot, None, why, None, None),
        };
        let [id, group, title] = [id, group, title].map(str::to_owned);
        Self { id, group, title, state, severity, found, expected, remedy }
    }

    /// Problems first, then warnings, notes, what is unknown, what is fine, what does not arise.
    fn rank(&self) -> u8 {
        match (self.state, self.severity) {
            (State::Found, Some(Severity::Problem)) => 0,
            (State::Found, Some(Severity::Warning)) => 1,
            (State::Found, _) => 2,
            (State::Unknown, _) => 3,
            (State::Fine, _) => 4,
            (State::Moot, _) => 5,
        }
    }

    /// A word for it, and its colour.
    fn word(&self) -> (&'static str, &'static str) {
        match self.rank() {
            0 => ("problem", "\x1b[1;31m"),
            1 => ("warning", "\x1b[1;33m"),
            2 => ("note", "\x1b[1;36m"),
            3 => ("unknown", "\x1b[1m"),
            4 => ("fine", "\x1b[32m"),
            _ => ("-", "\x1b[2m"),
        }
    }

    fn write(&self, f: &mut impl Write, style: Style) -> fmt::Result {
        let (word, colour) = self.word();
        let (on, off) = if style.colour { (colour, "\x1b[0m") } else { ("", "") };
        let Self { id, title, found, .. } = self;
        if matches!(self.state, State::Fine | State::Moot) {
            return writeln!(f, "{on}{word:<8}{off} {id}: {title}: {found}");
        }
        writeln!(f, "{on}{word:<8}{off} {id}")?;
        writeln!(f, "         checked   {title}")?;
        writeln!(f, "         found     {found}")?;
        if let Some(expected) = &self.expected {
            writeln!(f, "         expected  {expected}")?;
        }
        match (&self.remedy, self.state) {
            (Some(remedy), State::Unknown) => writeln!(f, "         ask       {remedy}"),
            (Some(remedy), _) => writeln!(f, "         remedy    {remedy}"),
            (None, _) => Ok(()),
        }
    }
}

impl Report {
    pub(super) fn new(host: &Host, outcomes: Vec<Outcome>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: Facts::of(host),
            lists: lists::dates().map(|(name, date)| (name.to_owned(), date.to_owned())).to_vec(),
            outcomes,
        }
    }

    /// The worst that was found.
    pub fn worst(&self) -> Option<Severity> {
        self.outcomes.iter().filter_map(|outcome| outcome.severity).max()
    }

    /// An outcome by its check's name.
    pub fn outcome(&self, id: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.id == id)
    }

    /// As text.
    pub fn text(&self, style: Style) -> String {
        let mut text = format!("efa doctor {}: {}\n\n", self.version, self.host.line());
        text += &outcomes_text(&self.outcomes, style);
        let lists: Vec<_> = self.lists.iter().map(|(name, date)| format!("{name} {date}")).collect();
        text + &format!("lists: {}; `efa doctor --explain ID` says more of a check\n", lists.join(", "))
    }
}

/// Outcomes as text, the worst first, and how many there are of each.
pub(in super::super) fn outcomes_text(outcomes: &[Outcome], style: Style) -> String {
    let mut sorted: Vec<_> = outcomes.iter().collect();
    sorted.sort_by_key(|outcome| outcome.rank());
    let mut text = String::new();
    let mut shown = 0;
    for outcome in sorted.iter().filter(|outcome| style.verbose || outcome.rank() < 4) {
        outcome.write(&mut text, style).expect("a string takes all");
        shown += 1;
    }
    if shown > 0 {
        text.push('\n');
    }
    let count = |rank: u8| outcomes.iter().filter(|outcome| outcome.rank() == rank).count();
    let [problems, warnings, notes, unknown, fine, moot] = [0, 1, 2, 3, 4, 5].map(count);
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let [all, problems, warnings, notes] =
        [(outcomes.len(), "check"), (problems, "problem"), (warnings, "warning"), (notes, "note")]
            .map(|(n, what)| many(n, what));
    text + &format!("{all}: {problems}, {warnings}, {notes}, {unknown} unknown, {fine} fine, {moot} moot\n")
}
