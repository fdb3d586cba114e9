//! All of them are here: in no order, but counted.

#![forbid(unsafe_code)]

use crate::Error;

/// Counts the immediates of a transfer: when all are here, all its bytes are (R16).
///
/// A write with immediate says that its own bytes are there and nothing of others, so a transfer of several
/// writes is complete only when each of them has been notified.
///
/// ```
/// use efa_core::flow::Arrivals;
/// let mut chunks = Arrivals::expect(2);
/// assert!(!chunks.arrived().unwrap());
/// assert!(chunks.arrived().unwrap());
/// assert!(chunks.arrived().is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrivals {
    expected: u64,
    seen: u64,
}

impl Arrivals {
    /// Expects so many.
    pub const fn expect(expected: u64) -> Self {
        Self { expected, seen: 0 }
    }

    /// Counts one; `true` if it was the last.
    ///
    /// # Errors
    /// [`Error::Unexpected`] if all were here already: the two sides disagree about what was sent.
    pub const fn arrived(&mut self) -> Result<bool, Error> {
        if self.seen >= self.expected {
            return Err(Error::Unexpected { found: self.seen.saturating_add(1), expected: self.expected });
        }
        self.seen += 1;
        Ok(self.all_here())
    }

    /// Whether all are here.
    pub const fn all_here(&self) -> bool {
        self.seen == self.expected
    }

    /// How many are missing.
    pub const fn missing(&self) -> u64 {
        self.expected - self.seen
    }
}
