//! What can go wrong before the device is asked, or when it answers no.

#![forbid(unsafe_code)]

use core::fmt;

use crate::{Caps, DeviceId, PdId};

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
    /// A region of no bytes (R37).
    ZeroLength,
    /// Memory that peers may reach is not whole words.
    Misaligned {
        /// Where it begins.
        addr: usize,
        /// Bytes.
        len: usize,
        /// Bytes of a word: both are to be multiples of it.
        word: usize,
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
}

/// What is limited.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Queue pairs.
    QueuePairs,
    /// Completion queues.
    CompletionQueues,
    /// Memory regions.
    MemoryRegions,
    /// Protection domains.
    ProtectionDomains,
    /// Address handles.
    AddressHandles,
    /// Bytes of a memory region.
    RegionBytes,
    /// Send queue entries.
    SendDepth,
    /// Receives in a receive queue.
    RecvDepth,
    /// Buffers of a receive.
    RecvBuffers,
    /// Inline bytes.
    InlineBytes,
    /// Completion queue entries.
    CompletionEntries,
    /// Software devices on one wire.
    Devices,
}

/// What a device is asked by a provider.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Make a protection domain.
    AllocPd,
    /// Register memory.
    RegMr,
    /// Deregister memory.
    DeregMr,
    /// Make an address handle.
    CreateAh,
    /// Make a completion queue.
    CreateCq,
    /// Make a queue pair.
    CreateQp,
    /// Move a queue pair.
    ModifyQp,
    /// End a queue pair.
    DestroyQp,
}

/// A refusal that gives back what the call took.
#[must_use = "it holds what the call took"]
pub struct Refused<T> {
    value: T,
    error: Error,
}

impl<T> Refused<T> {
    /// A refusal of `value`.
    pub fn new(value: T, error: Error) -> Self {
        Self { value, error }
    }

    /// Why.
    pub fn error(&self) -> Error {
        self.error
    }

    /// What the call took.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Both.
    pub fn into_parts(self) -> (T, Error) {
        (self.value, self.error)
    }

    /// The same refusal, of something made of the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Refused<U> {
        Refused { value: f(self.value), error: self.error }
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Refused").field(&self.error).finish()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> core::error::Error for Refused<T> {}
impl core::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
