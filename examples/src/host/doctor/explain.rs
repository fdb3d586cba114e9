//! What checks look at, in words.

use serde::Serialize;

use super::{Severity, check, checks};

/// A check in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explained {
    /// Its name.
    pub id: &'static str,
    /// Its group.
    pub group: &'static str,
    /// How bad it is at worst.
    pub severity: Severity,
    /// What should be true.
    pub title: &'static str,
    /// What it looks at, what follows, and where that is known from.
    pub explain: &'static str,
}

/// The check of this name, or all of them for none; nothing if there is no such check.
pub fn explained(id: &str) -> Option<Vec<Explained>> {
    let of = |(group, check): (&'static str, &'static super::Check)| {
        let super::Check { id, title, severity, explain, .. } = *check;
        Explained { id, group, severity, title, explain }
    };
    match id {
        "" => Some(checks().map(of).collect()),
        id => check(id).map(|found| vec![of(found)]),
    }
}

/// As text: of one check all of it, of many a line each.
pub fn explained_text(explained: &[Explained]) -> String {
    match explained {
        [one] => {
            let severity = format!("{:?}", one.severity).to_lowercase();
            format!("{} ({}, {severity}): {}\n\n{}\n", one.id, one.group, one.title, wrapped(one.explain))
        }
        many => many.iter().map(|one| format!("{:<12} {:<22} {}\n", one.group, one.id, one.title)).collect(),
    }
}

/// Lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if line.chars().count() + word.chars().count() >= 100 {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}
