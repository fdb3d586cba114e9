//! What can go wrong before the device is asked, or when it answers no.

#![forbid(unsafe_code)]

mod limit;
mod verb;

use core::fmt;

pub use limit::Limit;
use verb::Errno;
pub use verb::Verb;

use crate::flags::Access;
use crate::qp::{QpState, QpType};
use crate::wire::Features;
use crate::{Ahn, Caps, DeviceId, Gid, Incarnation, PdId, Qpn};

/// Why a call was refused. `Display` names the cause, the values and the remedy.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The device lacks a capability (R07).
    Unsupported {
        /// What is needed.
        needs: Caps,
        /// What the device has.
        has: Caps,
    },
    /// A token of another device.
    ForeignToken {
        /// The device that issued it.
        token: DeviceId,
        /// The device that was asked.
        device: DeviceId,
    },
    /// Memory, or an address handle, of another protection domain.
    ForeignDomain {
        /// Its domain.
        of: PdId,
        /// The domain of the queue pair or call.
        domain: PdId,
    },
    /// More than the device takes.
    AboveLimit {
        /// Of what.
        what: Limit,
        /// What was asked for.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// Less than the device takes.
    BelowLimit {
        /// Of what.
        what: Limit,
        /// What was asked for.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// All objects of a kind are in use.
    Exhausted {
        /// Of what.
        what: Limit,
        /// How many there are.
        limit: u64,
    },
    /// Handles, slices or operations still name the region.
    RegionInUse {
        /// How many more than the caller gave.
        handles: usize,
    },
    /// The storage of a software device is in use: it starts once.
    AlreadyStarted,
    /// The device refused.
    Device {
        /// What it was asked.
        verb: Verb,
        /// Its errno.
        errno: i32,
    },
    /// Bytes that arrived are not what they should be.
    Parse(crate::wire::ParseError),
    /// A range beyond its end.
    OutOfBounds {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The bytes that there are.
        within: u64,
    },
    /// Memory that two sides share, or a word of it, not aligned to or not a whole number of words.
    Misaligned {
        /// Where it starts.
        address: u64,
        /// Its bytes.
        len: u64,
        /// What both must be multiples of.
        to: u64,
    },
    /// An address for the device that is elsewhere in a page than the memory: a device's pages are the memory's.
    PageOffset {
        /// Where the memory begins, in this program or in its file.
        memory: u64,
        /// Where the device was to see it.
        iova: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// Memory that the CPU does not see, for a device that is made of software and reaches all by the CPU.
    OpaqueMemory,
    /// Huge pages, which would not stay where they are if this process forked (R38).
    HugePagesAndFork,
    /// No bytes, where the device refuses that (R37).
    ZeroLength,
    /// The allocator had no memory.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Static memory that was taken before.
    AlreadyTaken,
    /// Slices that do not follow each other in one region.
    NotAdjacent,
    /// A slice that is not all of what it should be.
    NotWhole {
        /// Bytes of the slice.
        has: u64,
        /// Bytes that it should have.
        needs: u64,
    },
    /// An address of all zeros (R27).
    ZeroGid,
    /// The peer's queue pair has other features than ours, or is UD where ours is SRD (R05).
    FeatureMismatch {
        /// Our queue pair's.
        ours: Features,
        /// The peer's.
        theirs: Features,
    },
    /// A peer that another queue pair resolved, or this one in an earlier life.
    ForeignPeer,
    /// Peers of two devices in one table: their handle numbers would be mistaken for one another.
    PeersOfTwoDevices {
        /// The address handle's number that two addresses have.
        ahn: Ahn,
        /// The queue pair number that both have.
        qpn: Qpn,
    },
    /// A ready from somebody else.
    NotThisPeer {
        /// The peer.
        expected: (Gid, Qpn),
        /// Who the ready is from.
        found: (Gid, Qpn),
    },
    /// A ready of another life of either side.
    StaleReady {
        /// The life that was expected.
        expected: Incarnation,
        /// The life in the frame.
        found: Incarnation,
    },
    /// A grant of another peer, or of another life of this one.
    StaleGrant {
        /// Who granted.
        granted_by: Incarnation,
        /// The peer.
        peer: Incarnation,
    },
    /// A grant of less than is needed.
    AccessNotGranted {
        /// What is needed.
        needs: Access,
        /// What was granted.
        granted: Access,
    },
    /// A window that another peer granted.
    WindowOfAnotherPeer,
    /// As many operations are in flight as were granted (R33).
    QueueFull {
        /// Operations in flight.
        in_flight: u32,
    },
    /// As many receives are in flight as were granted.
    RecvQueueFull {
        /// Receives in flight.
        in_flight: u32,
    },
    /// As many operations are in the batch as one doorbell may announce (R18).
    BatchFull {
        /// How many that is.
        limit: u32,
    },
    /// The provider made a send queue of entries of another size than was asked for.
    EntrySize {
        /// Bytes asked for.
        asked: u16,
        /// Bytes that it has.
        given: u16,
    },
    /// The device failed the queue pair.
    QueueFailed,
    /// The queue pair is in a state that has no such move or use.
    WrongState {
        /// The state that it is in.
        state: QpState,
    },
    /// A queue pair that left the group, or was never in it.
    NotAMember,
    /// Completions of a queue pair that left the group may still be unread in the queue (R21).
    UnreadCompletions {
        /// How many at most.
        at_most: u32,
    },
    /// Operations are in flight.
    InFlight {
        /// How many, receives included.
        operations: u32,
    },
    /// More arrived than was expected.
    Unexpected {
        /// What arrived.
        found: u64,
        /// What was expected at most, or next.
        expected: u64,
    },
}

impl From<crate::wire::ParseError> for Error {
    fn from(error: crate::wire::ParseError) -> Self {
        Self::Parse(error)
    }
}

/// A refusal that gives back what the call took.
#[must_use = "it holds what the call took"]
pub struct Refused<T, E = Error> {
    value: T,
    error: E,
}

impl<T, E> Refused<T, E> {
    /// A refusal of `value`.
    pub fn new(value: T, error: E) -> Self {
        Self { value, error }
    }

    /// Why.
    pub fn error(&self) -> E
    where
        E: Copy,
    {
        self.error
    }

    /// What the call took.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Both.
    pub fn into_parts(self) -> (T, E) {
        (self.value, self.error)
    }

    /// The same refusal, of something made of the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Refused<U, E> {
        Refused { value: f(self.value), error: self.error }
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T, E: fmt::Debug> fmt::Debug for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refused").field(&self.error).finish()
    }
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T, E: core::error::Error> core::error::Error for Refused<T, E> {}
impl core::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { needs, has } => write!(
                f,
                "the device has no {}: it reports {}; take a kind or access type that it has, or another device",
                Names(needs.difference(*has)),
                Names(*has)
            ),
            Self::ForeignToken { token, device } => write!(
                f,
                "the token is of device {token}, this is device {device}: call `require` on this device's context"
            ),
            Self::ForeignDomain { of, domain } => write!(
                f,
                "memory of protection domain {of} used in domain {domain}: register it in the queue pair's own domain"
            ),
            Self::AboveLimit { what, asked, limit } => {
                write!(f, "{asked} is above the limit of {limit} for {what}: {}", what.remedy())
            }
            Self::BelowLimit { what, asked, limit } => {
                write!(f, "{asked} is below the least of {limit} for {what}: ask for more")
            }
            Self::Exhausted { what, limit } => {
                write!(f, "all {limit} are in use of: {what}; drop some, or share them")
            }
            Self::RegionInUse { handles } => write!(
                f,
                "{handles} other handles (slices, parts, or operations in flight) still name the memory: \
                 poll until their operations are done, rejoin or drop them, then try again"
            ),
            Self::Device { verb, errno } => write!(f, "the device refused to {verb}: {}", Errno(*errno, *verb)),
            Self::Parse(error) => error.fmt(f),
            Self::OutOfBounds { offset, len, within } => {
                write!(f, "{len} bytes at {offset} are beyond the end: there are {within} bytes")
            }
            Self::Misaligned { address, len, to } => write!(
                f,
                "{len} bytes at {address:#x} are not whole words: shared memory starts at and has a multiple of \
                 {to} bytes, since both sides use atomics on it; `Arena` and `Pages` do"
            ),
            Self::PageOffset { memory, iova, page } => write!(
                f,
                "memory that begins at {memory:#x} cannot be the device's at {iova:#x}: that is {:#x} into a page of {page} \
                 bytes, and must be {:#x}; add what is missing, or leave the address out",
                iova & page.wrapping_sub(1),
                memory & page.wrapping_sub(1)
            ),
            Self::OpaqueMemory => f.write_str(
                "the CPU does not see this memory, and this device is software, which reaches it in no other way: register it \
                 with a device of hardware",
            ),
            Self::HugePagesAndFork => f.write_str(
                "huge pages cannot be registered here, since after a fork the device and this process would not see the same \
                 ones (R38): say that there is no fork, `HugePages::never_forks`, or take ordinary pages, or a kernel from \
                 5.13 on; `fork_safety()` tells",
            ),
            Self::ZeroLength => {
                f.write_str("no bytes: the device registers at least one (R37); a SEND of none is `send_empty()`")
            }
            Self::OutOfMemory { bytes } => write!(f, "the allocator has no {bytes} bytes: ask for less"),
            Self::AlreadyTaken => {
                f.write_str("this static was taken before, and is given once: declare another for another use")
            }
            Self::AlreadyStarted => f.write_str(
                "this storage has started its device already: take `neighbour()` of that, or declare another storage",
            ),
            Self::NotAdjacent => f.write_str(
                "the slices do not follow each other in one region: rejoin them in the order in which they were split",
            ),
            Self::NotWhole { has, needs } => write!(
                f,
                "a slice of {has} bytes is not the one of {needs} bytes that belongs here: rejoin the pieces first"
            ),
            Self::ZeroGid => f.write_str(
                "the GID is all zeros, which is nobody (R27): the peer published its address before it was ready",
            ),
            Self::FeatureMismatch { ours, theirs } if (*ours ^ *theirs).contains(Features::DATAGRAM) => write!(
                f,
                "the peer's queue pair is {}, ours is {}: one cannot reach the other (R05); make both of the same kind",
                type_of(*theirs),
                type_of(*ours)
            ),
            Self::FeatureMismatch { ours, theirs } => write!(
                f,
                "the peer's queue pair has features {}, ours has {}: the device would answer status 18 (R05); make \
                 both of the same kind",
                Names(*theirs),
                Names(*ours)
            ),
            Self::ForeignPeer => f.write_str(
                "the peer was resolved by another queue pair, or before this one was reset: resolve it with this one",
            ),
            Self::PeersOfTwoDevices { ahn, qpn } => write!(
                f,
                "another address in the table has address handle {ahn} and queue pair {qpn} too: keep a table for \
                 each device"
            ),
            Self::NotThisPeer { expected, found } => write!(
                f,
                "a ready of queue pair {} at {}, not of queue pair {} at {}: confirm each peer with its own",
                found.1, found.0, expected.1, expected.0
            ),
            Self::StaleReady { expected, found } => write!(
                f,
                "a ready of another life, {found} instead of {expected}: one side has restarted; exchange hellos again"
            ),
            Self::StaleGrant { granted_by, peer } => write!(
                f,
                "a grant of incarnation {granted_by}, the peer is {peer}: it is another peer's, or one side has \
                 restarted; resolve the peer again and have it grant again"
            ),
            Self::AccessNotGranted { needs, granted } => write!(
                f,
                "the grant allows {}, {} is needed: the peer must expose the memory with that access",
                Names(*granted),
                Names(*needs)
            ),
            Self::WindowOfAnotherPeer => {
                f.write_str("the window was granted by another peer: use it with the peer it came from")
            }
            Self::QueueFull { in_flight } => write!(
                f,
                "all {in_flight} places of the send queue are taken: poll for completions, then post it again (R33)"
            ),
            Self::RecvQueueFull { in_flight } => write!(
                f,
                "all {in_flight} places of the receive queue are taken: poll for arrivals, then post it again"
            ),
            Self::BatchFull { limit } => write!(
                f,
                "the batch has the {limit} operations that one doorbell may announce (R18): submit it, begin another"
            ),
            Self::EntrySize { asked, given } => write!(
                f,
                "the provider made send entries of {given} bytes, {asked} were asked for: its driver knows no others; \
                 take a kind with entries of that size (R10)"
            ),
            Self::QueueFailed => f.write_str(
                "the device failed this queue pair: `cause()` says why; where `query()` finds it in SQE, `resume()` leads \
                 back, else shut it down and make another",
            ),
            Self::WrongState { state } => write!(
                f,
                "the queue pair is in {state}, where that cannot be done: `query` tells the state, `resume` leads back \
                 from SQD and SQE, from ERR a group has only the end; if it is `query` that tells this, the device moved \
                 it as none may, so shut it down and make another"
            ),
            Self::NotAMember => {
                f.write_str("no queue pair of this group has that name: it was shut down, or is another group's")
            }
            Self::UnreadCompletions { at_most } => write!(
                f,
                "up to {at_most} completions of a queue pair that left may still be in the group's completion queue, \
                 and could be taken for the new one's (R21): poll the group until it gives none, then make it again"
            ),
            Self::InFlight { operations } => write!(
                f,
                "{operations} operations are in flight, and RESET gives no buffer back: go to ERR, poll until none is"
            ),
            Self::Unexpected { found, expected } => {
                write!(f, "{found} arrived where at most {expected} was expected: the peer counts differently")
            }
        }
    }
}

/// The type of a queue pair with these features.
fn type_of(features: Features) -> QpType {
    if features.contains(Features::DATAGRAM) { QpType::Ud } else { QpType::Srd }
}

/// The names of a set's flags, or "none".
struct Names<T>(T);

impl<T: bitflags::Flags<Bits: fmt::LowerHex + PartialEq> + Copy> fmt::Display for Names<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let mut names = self.0.iter_names();
        for (index, (name, _)) in names.by_ref().enumerate() {
            if index > 0 {
                f.write_str(" and ")?;
            }
            f.write_str(name)?;
        }
        let rest = names.remaining();
        if rest.is_empty() { Ok(()) } else { write!(f, " (and unknown bits {:#x})", rest.bits()) }
    }
}
