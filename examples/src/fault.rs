//! Why an example failed: each layer's own error, kept whole.

use core::fmt;

use efa_core::work::Failure;
use efa_core::{Error, Refused};

use crate::chunks::{NotExpected, TooMany};
use crate::exchange::ExchangeError;
use crate::pattern::Mismatch;

/// Why an example failed. `Display` says what happened; [`std::error::Error::source`] has the layer's own error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// There is no such device, or it does not open.
    Device(efa_os::Error),
    /// The other side was not reached, or is not what was expected.
    Exchange(ExchangeError),
    /// The other side says why it failed.
    Told(String),
    /// A call was refused.
    Refused(Error),
    /// An operation failed.
    Failed(Failure),
    /// A message is not what its sender wrote.
    Mismatch {
        /// Which operation carried it, and how many bytes.
        what: String,
        /// Where it differs.
        mismatch: Mismatch,
    },
    /// A chunk that nobody expects, or twice.
    Chunk(NotExpected),
    /// A file that cannot be numbered in chunks of this size.
    Chunks(TooMany),
    /// The other side does not keep to the program's protocol.
    Protocol(String),
    /// Nothing happened for too long.
    Stalled {
        /// What was waited for.
        waiting: &'static str,
    },
    /// The other side failed first: its own fault says why.
    OtherSide,
    /// What is to be sent could not be read.
    Read(std::io::Error),
    /// What arrived could not be stored.
    Store(std::io::Error),
    /// The result could not be printed.
    Print(std::io::Error),
    /// What arrived is not what was sent.
    Hashes {
        /// The sender's.
        sent: blake3::Hash,
        /// The receiver's.
        received: blake3::Hash,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => error.fmt(f),
            Self::Exchange(error) => error.fmt(f),
            Self::Told(text) => write!(f, "the other side failed: {text}"),
            Self::Refused(error) => error.fmt(f),
            Self::Failed(failure) => failure.fmt(f),
            Self::Mismatch { what, mismatch } => write!(f, "{what}: {mismatch}"),
            Self::Chunk(chunk) => chunk.fmt(f),
            Self::Chunks(chunks) => chunks.fmt(f),
            Self::Protocol(what) => write!(f, "the other side does not keep to the protocol: {what}"),
            Self::Stalled { waiting } => write!(f, "nothing happened for ten seconds while waiting for {waiting}"),
            Self::OtherSide => f.write_str("the other side failed"),
            Self::Read(error) => write!(f, "what is to be sent cannot be read: {error}"),
            Self::Store(error) => write!(f, "what arrived cannot be stored: {error}"),
            Self::Print(error) => write!(f, "the result cannot be printed: {error}"),
            Self::Hashes { sent, received } => write!(f, "hashes differ: {sent} was sent, {received} received"),
        }
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Device(error) => error,
            Self::Exchange(error) => error,
            Self::Refused(error) => error,
            Self::Failed(failure) => failure,
            Self::Mismatch { mismatch, .. } => mismatch,
            Self::Chunk(chunk) => chunk,
            Self::Chunks(chunks) => chunks,
            Self::Read(error) | Self::Store(error) | Self::Print(error) => error,
            Self::Told(_) | Self::Protocol(_) | Self::Stalled { .. } | Self::OtherSide | Self::Hashes { .. } => {
                return None;
            }
        })
    }
}

impl From<efa_os::Error> for Fault {
    fn from(error: efa_os::Error) -> Self {
        Self::Device(error)
    }
}

impl From<ExchangeError> for Fault {
    fn from(error: ExchangeError) -> Self {
        Self::Exchange(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<T> From<Refused<T>> for Fault {
    fn from(refused: Refused<T>) -> Self {
        Self::Refused(refused.error())
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<NotExpected> for Fault {
    fn from(chunk: NotExpected) -> Self {
        Self::Chunk(chunk)
    }
}

impl From<TooMany> for Fault {
    fn from(chunks: TooMany) -> Self {
        Self::Chunks(chunks)
    }
}
