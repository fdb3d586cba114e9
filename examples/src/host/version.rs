//! Versions that are numbers with dots between them, as far as they are.

use std::cmp::Ordering;
use std::fmt;

/// A version: its numbers, and the text that it was read from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    numbers: Vec<u64>,
    text: String,
}

impl Version {
    /// The numbers at the beginning of a text; `None` if it begins with none.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let numbers: Vec<u64> = text[..end].split('.').map_while(|number| number.parse().ok()).collect();
        (!numbers.is_empty()).then(|| Self { numbers, text: text.to_owned() })
    }

    /// Whether it is older than the version that a list has.
    pub fn is_before(&self, other: &str) -> bool {
        Self::parse(other).is_some_and(|other| self.order(&other) == Ordering::Less)
    }

    /// Its first number.
    pub fn major(&self) -> u64 {
        self.numbers.first().copied().unwrap_or(0)
    }

    /// Missing numbers count as zero: 2.1 and 2.1.0 are one version.
    pub fn order(&self, other: &Self) -> Ordering {
        let most = self.numbers.len().max(other.numbers.len());
        let number = |of: &Self, at: usize| of.numbers.get(at).copied().unwrap_or(0);
        (0..most)
            .map(|at| number(self, at).cmp(&number(other, at)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers_and_not_as_text() {
        let before = |a: &str, b: &str| Version::parse(a).unwrap().is_before(b);
        assert!(before("2.9.1", "2.10") && before("5.4.0-aws", "5.12") && before("1.22.0amzn4.0", "2.1"));
        assert!(!before("3.1.0g", "3.1") && !before("v2.1.0amzn3.0", "2.1.0") && !before("2", "2.0"));
        assert!(Version::parse("unknown").is_none() && Version::parse("").is_none());
        assert_eq!(Version::parse("3.1.0g\n").unwrap().to_string(), "3.1.0g");
    }
}
