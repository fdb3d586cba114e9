//! Why something was refused or failed.

use core::fmt;

use super::efa::BadPacket;
use crate::work::Failure;
use crate::{Error, Incarnation, Refused};

/// Why something was refused or failed. `Display` says what to do.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nobody has that name: the peer was never added here, or removed.
    UnknownPeer,
    /// As many are under way as there is room for.
    Full {
        /// How many.
        limit: usize,
    },
    /// A message, a write or a read longer than there is.
    TooLong {
        /// Its bytes.
        len: u64,
        /// Bytes that there are.
        limit: u64,
    },
    /// A message longer than the receive whose turn it was. It is gone.
    Truncated {
        /// Bytes of the message.
        len: u64,
        /// Bytes of the receive.
        room: u64,
    },
    /// The queue pair would not take it.
    Refused(Error),
    /// The device said so.
    Device(Failure),
    /// The peer is in another life: whatever was under way with the former ends.
    Restarted {
        /// The life that was known.
        old: Option<Incarnation>,
        /// The present one.
        new: Incarnation,
    },
    /// The peer answered that it will not.
    Denied(Denied),
    /// The peer broke the protocol: nothing more is taken from it.
    Violation(Violation),
    /// The application removed the peer.
    Removed,
    /// The peer let go of this side.
    Left,
    /// The endpoint was closed.
    Closed,
    /// A plain buffer had fewer bytes when they were copied than it said before.
    Shrunk,
}

/// What a peer will not do, as it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// No window has that number, at present.
    NoWindow,
    /// Bytes that the window does not have.
    OutOfBounds,
    /// The window is not open for that.
    NotAllowed,
    /// It failed there.
    Failed,
    /// A number that this side does not know.
    Unknown(u32),
}

/// How a peer broke the protocol.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A packet that is none.
    Packet(BadPacket),
    /// More packets than it had credits for.
    Credits,
    /// A sequence number that was there before, or is further ahead than credits allow.
    Sequence {
        /// What came.
        found: u32,
        /// Whose turn it is.
        expected: u32,
    },
    /// An operation that is not under way with it, or not so far.
    UnknownOperation(u32),
    /// Bytes beyond what was agreed.
    Beyond {
        /// Where they would begin.
        offset: u64,
        /// How many.
        len: u64,
        /// Where they must end.
        within: u64,
    },
    /// A grant that cannot be used, or of fewer bytes than the message.
    Grant(Error),
}

impl Denied {
    pub(super) const fn to_number(self) -> u32 {
        match self {
            Self::NoWindow => 1,
            Self::OutOfBounds => 2,
            Self::NotAllowed => 3,
            Self::Failed => 4,
            Self::Unknown(number) => number,
        }
    }

    /// None for 0, which is success.
    pub(super) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::NoWindow),
            2 => Some(Self::OutOfBounds),
            3 => Some(Self::NotAllowed),
            4 => Some(Self::Failed),
            number => Some(Self::Unknown(number)),
        }
    }
}

impl From<Error> for Why {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Without what the call took.
impl<T, E: Into<Self>> From<Refused<T, E>> for Why {
    fn from(refused: Refused<T, E>) -> Self {
        refused.into_parts().1.into()
    }
}

impl From<Violation> for Why {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer => f.write_str("no peer has that name here: add it, or use the name that adding it gave"),
            Self::Full { limit } => {
                write!(f, "{limit} are under way, and there is room for no more: poll, then try again")
            }
            Self::TooLong { len, limit } => {
                write!(
                    f,
                    "{len} bytes where there are {limit}: send it in parts; the fabric `efa` takes messages of any size"
                )
            }
            Self::Truncated { len, room } => {
                write!(f, "a message of {len} bytes met a receive of {room}, and is gone: post longer receives")
            }
            Self::Refused(error) => error.fmt(f),
            Self::Device(failure) => failure.fmt(f),
            Self::Restarted { old: Some(old), new } => {
                write!(f, "the peer restarted: its life was {old} and is {new}; resolve it again and add it again")
            }
            Self::Restarted { old: None, new } => {
                write!(f, "the peer restarted, and is in life {new}; resolve it again and add it again")
            }
            Self::Denied(denied) => denied.fmt(f),
            Self::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Self::Removed => f.write_str("the application removed the peer"),
            Self::Left => f.write_str(
                "the peer let go of this side: it removed it, was closed, or could make nothing of what it was sent",
            ),
            Self::Closed => f.write_str("the endpoint was closed"),
            Self::Shrunk => f.write_str(
                "the buffer had fewer bytes when they were copied than it had said: `as_ref` must not change",
            ),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWindow => f.write_str("the peer has no such window now: it closed it; ask it for another"),
            Self::OutOfBounds => f.write_str("the peer's window has not so many bytes"),
            Self::NotAllowed => {
                f.write_str("the peer's window is not open for that: it must open it for reading, or writing")
            }
            Self::Failed => f.write_str("it failed at the peer"),
            Self::Unknown(number) => write!(f, "the peer refused it by {number}, which this version does not know"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(bad) => bad.fmt(f),
            Self::Credits => f.write_str("more packets than it was told that there is room for"),
            Self::Sequence { found, expected } => write!(f, "message {found} where it is the turn of {expected}"),
            Self::UnknownOperation(id) => {
                write!(f, "a packet of operation {id:#x}, which is not under way, or not so far")
            }
            Self::Beyond { offset, len, within } => {
                write!(f, "{len} bytes at {offset}, where {within} were agreed on")
            }
            Self::Grant(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Why {}
