//! Why a frame was refused.

use core::fmt;

use crate::Gid;

/// A part of a frame.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Field {
    /// What sort of frame.
    Kind,
    /// The addressee's GID.
    Addressee,
    /// The sender's GID.
    From,
    /// The addressee's session.
    ToSession,
    /// The sender's session.
    FromSession,
    /// The sequence number, which is in the window behind the floor.
    Sequence,
    /// The operation.
    Op,
    /// The flags.
    Flags,
    /// What is reserved.
    Reserved,
    /// The immediate.
    Immediate,
    /// The remote key.
    RKey,
    /// The remote address.
    Address,
    /// Where a part begins.
    At,
    /// The bytes of a part.
    Part,
    /// Records of answers.
    Answers,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "kind",
            Self::Addressee => "to",
            Self::From => "from",
            Self::ToSession => "to_session",
            Self::FromSession => "from_session",
            Self::Sequence => "sequence",
            Self::Op => "op",
            Self::Flags => "flags",
            Self::Reserved => "reserved",
            Self::Immediate => "immediate",
            Self::RKey => "rkey",
            Self::Address => "address",
            Self::At => "at",
            Self::Part => "part",
            Self::Answers => "answers",
        })
    }
}

/// Why a frame was refused. `Display` names the values and the remedy.
///
/// That it came twice, late, or for an earlier life is no error: carriers may do that.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameError {
    /// Fewer bytes than it must have, or other than it says.
    Missing {
        /// Bytes that it must have.
        expected: usize,
        /// The bytes that came.
        found: usize,
    },
    /// More bytes than it can have.
    TooLong {
        /// Bytes that it can have.
        limit: usize,
        /// The bytes that came.
        found: usize,
    },
    /// It does not start as frames do.
    Magic {
        /// What came.
        found: [u8; 4],
    },
    /// A version this crate does not know.
    Version {
        /// The known one.
        expected: u8,
        /// What came.
        found: u8,
    },
    /// Its header says another length.
    Length {
        /// What it says.
        says: u16,
        /// The bytes that came.
        found: usize,
    },
    /// A value that a field cannot have.
    Field {
        /// The field.
        field: Field,
        /// What came.
        found: u64,
    },
    /// No device of this wire has that address.
    NotForUs {
        /// The address.
        to: Gid,
    },
    /// A device of this wire is said to have sent it, but they do not use frames among themselves.
    FromUs {
        /// The address.
        from: Gid,
    },
    /// This wire was made without a link.
    NotLinked,
}

impl core::error::Error for FrameError {}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing { expected, found } => {
                write!(f, "{found} bytes came where the frame has {expected}; let the carrier keep frames whole")
            }
            Self::TooLong { limit, found } => {
                write!(f, "{found} bytes came where the frame has at most {limit}; let the carrier keep frames apart")
            }
            Self::Magic { found } => write!(
                f,
                "starts with {} where EFAL is expected; something else sends to this address, give the wire its own",
                found.escape_ascii()
            ),
            Self::Version { expected, found } => {
                write!(f, "version {found} where {expected} is known; use one version of efa-core on all sides")
            }
            Self::Length { says, found } => {
                write!(f, "its header says {says} bytes and {found} came; let the carrier keep frames whole")
            }
            Self::Field { field, found } => {
                write!(f, "{field} cannot be {found:#x}; it was damaged, or the sender has another version of efa-core")
            }
            Self::NotForUs { to } => {
                write!(
                    f,
                    "no device here has the address {to}; let the carrier deliver by the address that it was told"
                )
            }
            Self::FromUs { from } => {
                write!(f, "{from} is a device of this wire; give the devices of other processes other addresses")
            }
            Self::NotLinked => f.write_str("this wire has no link; make it with Config::linked"),
        }
    }
}
