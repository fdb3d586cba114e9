//! What is under way: messages, writes and reads, as each side keeps them.

use super::{Id, PeerId, Told};
use crate::Token;
use crate::fabric::{Event, Memory, Returned, Why};
use crate::memory::{ExposedPart, Frozen, RemoteRead, RemoteWrite};
use crate::peer::RemoteWindow;

/// What this side sends.
#[derive(Debug)]
pub(super) struct Outbound<S> {
    pub(super) peer: Id,
    pub(super) token: Token,
    pub(super) what: Sends,
    pub(super) source: Source<S>,
    pub(super) total: u64,
    pub(super) stage: Stage,
    /// Bytes that went out, or that RDMA was posted for.
    pub(super) offset: u64,
    /// Bytes that the peer cleared.
    pub(super) upto: u64,
    /// The peer's name of it, once it told.
    pub(super) to: u32,
    /// Where it may be written by RDMA.
    pub(super) window: Option<RemoteWindow<RemoteWrite>>,
    /// Packets and RDMA that the device has, or that wait to be tried again.
    pub(super) in_flight: u32,
    pub(super) failed: Option<Why>,
    pub(super) ended: bool,
    /// The next in the peer's queue.
    pub(super) next: Option<Id>,
}

/// What an [`Outbound`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sends {
    /// A message, by its sequence number.
    Message(u32),
    /// A write that is carried as messages.
    Put { window: u32, offset: u64 },
    /// A write by RDMA.
    Write,
    /// The answer to a get; with a status other than 0, that there is none.
    Answer(u32),
}

/// How far an [`Outbound`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// In its peer's queue.
    Queued,
    /// The peer is to clear it, or to say that it is done.
    Asked,
    /// Data goes out as far as it is cleared.
    Streaming,
    /// RDMA writes go out.
    Writing,
    /// The peer is to be told that nothing more comes.
    Finishing,
    /// All is out.
    Out,
    /// Nothing more comes of it but completions.
    Done,
}

/// What is sent from.
#[derive(Debug)]
pub(super) enum Source<S> {
    /// There is nothing to send, only to be said.
    Nothing,
    Memory(Memory<S>),
    /// A slice of which parts are in flight.
    Frozen(Frozen),
}

/// A registered part of a source.
pub(super) enum Part {
    Frozen(Frozen),
    Exposed(ExposedPart),
}

impl<S: AsRef<[u8]>> Source<S> {
    /// Shares a slice, so that parts of it can be sent.
    pub(super) fn share(self) -> Self {
        match self {
            Self::Memory(Memory::Slice(slice)) => match slice.freeze() {
                Ok(frozen) => Self::Frozen(frozen),
                // Its region has as many shared ranges as it can: then it is copied.
                Err(refused) => Self::Memory(Memory::Slice(refused.into_inner())),
            },
            other => other,
        }
    }

    /// A part that the device can send; none if it must be copied.
    pub(super) fn part(&self, offset: usize, len: usize) -> Option<Part> {
        let range = offset..offset.checked_add(len)?;
        match self {
            Self::Frozen(frozen) => frozen.part(range).ok().map(Part::Frozen),
            Self::Memory(Memory::Exposed(bytes)) => bytes.part(range).ok().map(Part::Exposed),
            Self::Memory(_) | Self::Nothing => None,
        }
    }

    /// Whether the device can send from it, or, of a slice, could if it were shared.
    pub(super) fn is_registered(&self) -> bool {
        matches!(self, Self::Frozen(_) | Self::Memory(Memory::Exposed(_)))
    }

    pub(super) fn copy_out(&self, offset: usize, target: &mut [u8]) -> bool {
        match self {
            Self::Nothing => target.is_empty(),
            Self::Memory(memory) => memory.copy_out(offset, target),
            Self::Frozen(frozen) => match frozen.get(offset..).and_then(|rest| rest.get(..target.len())) {
                Some(source) => {
                    target.copy_from_slice(source);
                    true
                }
                None => false,
            },
        }
    }
}

impl<S> Source<S> {
    /// As it came; not yet if parts of it are in flight.
    pub(super) fn into_memory(self) -> Result<Memory<S>, Self> {
        match self {
            Self::Nothing => Err(self),
            Self::Memory(memory) => Ok(memory),
            Self::Frozen(frozen) => match frozen.thaw() {
                Ok(slice) => Ok(Memory::Slice(slice)),
                Err(refused) => Err(Self::Frozen(refused.into_inner())),
            },
        }
    }
}

/// What this side receives.
#[derive(Debug)]
pub(super) struct Inbound<T> {
    pub(super) peer: Id,
    pub(super) token: Token,
    pub(super) what: Receives,
    /// Of a message: its place in the peer's order, in which it is told.
    pub(super) sequence: Option<u32>,
    /// None while a read by RDMA has it, and of what there is only something to be said of.
    pub(super) target: Option<Memory<T>>,
    /// Of a slice that is read into in parts, what is full, and what is not begun.
    pub(super) parts: [Option<crate::memory::Slice>; 2],
    pub(super) total: u64,
    /// Bytes that arrived.
    pub(super) received: u64,
    /// Bytes that may arrive.
    pub(super) cleared: u64,
    /// The peer's name of it.
    pub(super) id: u32,
    pub(super) due: Due,
    /// Where it is read from by RDMA.
    pub(super) window: Option<RemoteWindow<RemoteRead>>,
    /// Whether the peer writes it by RDMA, if it likes.
    pub(super) writable: bool,
    /// A read by RDMA is in flight.
    pub(super) in_flight: bool,
    pub(super) failed: Option<Why>,
    pub(super) ended: bool,
}

/// What an [`Inbound`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receives {
    /// A message in segments, by its sequence number.
    Segments(u32),
    /// A long message.
    Long,
    /// A write of the peer's to a window.
    Put,
    /// A read, carried as messages: of a window from an offset on.
    Get { window: u32, offset: u64 },
    /// A read by RDMA.
    Read,
}

/// What an [`Inbound`] has to do next, once it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Nothing,
    /// Ask the peer for the bytes.
    Get,
    /// Clear more of it.
    Clear,
    /// Post a read.
    Read,
    /// Tell the peer that it is over.
    Done(u32),
}

/// What peers may write or read, and how.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) bytes: ExposedPart,
    pub(super) access: crate::flags::Access,
}

impl<S> Outbound<S> {
    #[inline(always)]
    pub(super) fn new(peer: Id, token: Token, what: Sends, source: Source<S>, total: u64, stage: Stage) -> Self {
        Self {
            peer,
            token,
            what,
            source,
            total,
            stage,
            offset: 0,
            upto: 0,
            to: 0,
            window: None,
            in_flight: 0,
            failed: None,
            ended: false,
            next: None,
        }
    }

    /// Whether nothing more is to come, so that it can end.
    pub(super) fn is_over(&self) -> bool {
        self.in_flight == 0 && self.stage == Stage::Done
    }

    /// Its event, if it has one; with itself if its source is not back.
    pub(super) fn into_event<T>(mut self) -> Result<Option<Told<S, T>>, Self> {
        if let Sends::Answer(_) = self.what {
            return Ok(None);
        }
        let source = match self.source.into_memory() {
            Ok(source) => source,
            Err(source) => {
                self.source = source;
                return Err(self);
            }
        };
        let (token, to) = (self.token, PeerId(self.peer));
        Ok(match (self.what, self.failed) {
            (Sends::Answer(_), _) => None,
            (_, Some(why)) => Some(Event::Failed { token, peer: Some(to), why, buffer: Returned::Source(source) }),
            (Sends::Message(_), None) => Some(Event::Sent { token, to: Some(to), source }),
            (Sends::Put { .. } | Sends::Write, None) => Some(Event::Written { token, to, source }),
        })
    }
}

impl<T> Inbound<T> {
    pub(super) fn new(peer: Id, token: Token, what: Receives, target: Option<Memory<T>>, total: u64, id: u32) -> Self {
        Self {
            peer,
            token,
            what,
            sequence: None,
            target,
            parts: [None, None],
            total,
            received: 0,
            cleared: 0,
            id,
            due: Due::Nothing,
            window: None,
            writable: false,
            in_flight: false,
            failed: None,
            ended: false,
        }
    }

    /// Whether all is here, or failed, and nothing is in flight or to be said.
    pub(super) fn is_over(&self) -> bool {
        let swallowed =
            matches!(self.what, Receives::Segments(_)) && matches!(self.failed, Some(Why::Truncated { .. }));
        let failed = self.failed.is_some() && !swallowed;
        !self.in_flight && self.due == Due::Nothing && (failed || self.received >= self.total)
    }

    /// Its event, if it has one.
    pub(super) fn into_event<S>(self) -> Option<Told<S, T>> {
        let token = self.token;
        let from = PeerId(self.peer);
        let target = match (self.target, self.parts) {
            (Some(target), _) => target,
            (None, [full, rest]) => Memory::Slice(join(full, rest)?),
        };
        let failed = |why, target| Event::Failed { token, peer: Some(from), why, buffer: Returned::Target(target) };
        match (self.what, self.failed) {
            (Receives::Put, _) => None,
            (_, Some(why)) => Some(failed(why, target)),
            (Receives::Get { .. } | Receives::Read, None) => Some(Event::Read { token, from, target }),
            (Receives::Segments(_) | Receives::Long, None) => {
                Some(Event::Received { token, from: Some(from), len: self.total as usize, target })
            }
        }
    }
}

/// Two neighbours, or the one that there is.
pub(super) fn join(
    first: Option<crate::memory::Slice>,
    second: Option<crate::memory::Slice>,
) -> Option<crate::memory::Slice> {
    match (first, second) {
        // Cut from one slice and kept in order, so they are neighbours.
        (Some(first), Some(second)) => Some(first.unsplit(second).unwrap_or_else(|refused| refused.into_inner().0)),
        (first, second) => first.or(second),
    }
}
