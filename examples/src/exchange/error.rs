//! Why two programs were not introduced.

use std::fmt;
use std::io;
use std::time::Duration;

use efa_core::{Error, Refused};

/// Why two programs were not introduced. `Display` says what to look at.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The address names no host and port.
    Address {
        /// As it was given.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// Nobody can be waited for there.
    Listen {
        /// Where.
        address: String,
        /// What the system says.
        error: io::Error,
    },
    /// Nobody came in time.
    NobodyCame {
        /// Where they were waited for.
        address: String,
        /// How long.
        waited: Duration,
    },
    /// Nobody answered in time.
    NobodyThere {
        /// Where.
        address: String,
        /// For how long it was tried.
        tried: Duration,
        /// What the system said last.
        error: io::Error,
    },
    /// The other side went away, or was never one of ours.
    Closed {
        /// Bytes that came.
        got: usize,
        /// Bytes that were waited for.
        wanted: usize,
    },
    /// The other side says nothing, or takes nothing.
    Silent {
        /// Bytes that came or went.
        got: usize,
        /// Bytes that were to.
        wanted: usize,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The connection failed.
    Io(io::Error),
    /// A text is longer than any that is sent.
    TooLong {
        /// What it says.
        bytes: u32,
        /// What it may have.
        most: u32,
    },
    /// What came cannot be used.
    Refused(Error),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, error } => {
                write!(f, "{address:?} is no address to be found: {error}; name a host and a port, as in `node1:18515`")
            }
            Self::Listen { address, error } => write!(f, "{address} cannot be listened at: {error}"),
            Self::NobodyCame { address, waited } => {
                write!(f, "nobody connected to {address} in {waited:?}: start the other side, or look at its firewall")
            }
            Self::NobodyThere { address, tried, error } => {
                write!(f, "{address} was tried for {tried:?}: {error}; is the other side listening there?")
            }
            Self::Closed { got, wanted } => write!(
                f,
                "the other side closed the connection after {got} of {wanted} bytes: it says why, if it is this program"
            ),
            Self::Silent { got, wanted, waited } => {
                write!(f, "after {got} of {wanted} bytes the other side was silent for {waited:?}: is it this program?")
            }
            Self::Io(error) => write!(f, "the connection failed: {error}"),
            Self::TooLong { bytes, most } => write!(f, "a text of {bytes} bytes was announced, it may have {most}"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExchangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address { error, .. } | Self::Listen { error, .. } | Self::NobodyThere { error, .. } => Some(error),
            Self::Io(error) => Some(error),
            Self::Refused(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for ExchangeError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<T> From<Refused<T>> for ExchangeError {
    fn from(refused: Refused<T>) -> Self {
        Self::Refused(refused.error())
    }
}
