//! What a completion says.

#![forbid(unsafe_code)]

use core::fmt;
use core::ops::Range;

use crate::memory::Buffers;
use crate::peer::Sender;
use crate::status::CompletionStatus;
use crate::{Qpn, Token};

/// What became of an operation or a receive: each is resolved by exactly one event.
#[must_use = "it holds the operation's buffers"]
#[derive(Debug)]
pub enum Event {
    /// A SEND was received by the peer, or, of a UD queue pair, has left.
    Sent(Done),
    /// An RDMA read is in local memory.
    Read(Done),
    /// An RDMA write is in the peer's memory.
    Written(Done),
    /// A SEND arrived.
    Received(Received),
    /// A write with immediate arrived, and consumed a receive.
    WriteArrived(WriteArrived),
    /// A write with immediate arrived, and consumed no receive (R22).
    UnsolicitedWrite(UnsolicitedWrite),
    /// An operation, a receive or an arrival failed.
    Failed {
        /// What failed and why.
        failure: Failure,
        /// Its buffers. Those of a failed receive or read may have been written in part.
        buffers: Buffers,
    },
    /// The queue pair was destroyed before this completed: see [`QueuePair::shut_down`](crate::qp::QueuePair::shut_down).
    Reclaimed {
        /// Which operation or receive.
        token: Token,
        /// Its buffers.
        buffers: Buffers,
    },
}

/// An operation that is done.
// In this order: with padding before the buffers the compiler makes an event by way of the stack.
#[derive(Debug)]
#[repr(C)]
pub struct Done {
    /// Which operation.
    pub token: Token,
    /// Its buffers.
    pub buffers: Buffers,
}

/// A message.
#[derive(Debug)]
pub struct Received {
    /// Which receive it came into.
    pub token: Token,
    /// Bytes, from the start of the first buffer on, those of the header included.
    pub len: usize,
    /// Bytes of the routing header that precedes the payload: 40 on UD, none on SRD.
    pub header: u8,
    /// The sender's immediate.
    pub imm: Option<u32>,
    /// Who sent it.
    pub from: Sender,
    /// The receive's buffers.
    pub buffers: Buffers,
}

/// A write with immediate: the bytes of this write are in the exposed memory. It names no address and says
/// nothing of other writes (R16).
#[derive(Debug)]
pub struct WriteArrived {
    /// Which receive it consumed.
    pub token: Token,
    /// The writer's immediate.
    pub imm: u32,
    /// Bytes written, where completions have room for it; else `None`.
    pub len: Option<u32>,
    /// Who wrote.
    pub from: Sender,
    /// The receive's buffers, untouched.
    pub buffers: Buffers,
}

/// A write with immediate that consumed no receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnsolicitedWrite {
    /// The writer's immediate.
    pub imm: u32,
    /// Bytes written, where completions have room for it; else `None`.
    pub len: Option<u32>,
    /// Who wrote.
    pub from: Sender,
}

/// What failed and why. `Display` says what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Why.
    pub cause: Cause,
    /// What was asked of the device.
    pub kind: Kind,
    /// Which operation or receive; none for an unsolicited arrival.
    pub token: Option<Token>,
    /// The local queue pair.
    pub qpn: Qpn,
}

/// Why something failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The device's status.
    Status(CompletionStatus),
    /// The device reported more bytes than the receive's buffers have.
    LengthBeyondBuffers {
        /// Bytes reported.
        reported: usize,
        /// Bytes of the buffers.
        room: usize,
    },
    /// The device reported fewer bytes than the header that precedes each datagram has.
    LengthBelowHeader {
        /// Bytes reported.
        reported: usize,
        /// Bytes of the header.
        header: usize,
    },
    /// The device reported a write with immediate without one or on UD, or an operation that does not exist.
    Malformed {
        /// The completion's operation.
        op: u8,
    },
}

/// What was asked of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// SEND.
    Send,
    /// RDMA read.
    Read,
    /// RDMA write.
    Write,
    /// A receive.
    Recv,
}

/// What a queue pair counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Completions of no request in flight here: of a queue pair that had this number before, or repeated (R20);
    /// and unsolicited arrivals that were not polled before a [reset](crate::qp::QueuePair::reset).
    pub stale: u32,
    /// Flushed operations.
    pub flushed: u32,
}

impl Event {
    /// Which operation or receive it resolves; none for an unsolicited arrival.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Sent(done) | Self::Written(done) | Self::Read(done) => Some(done.token),
            Self::Received(received) => Some(received.token),
            Self::WriteArrived(arrived) => Some(arrived.token),
            Self::Reclaimed { token, .. } => Some(*token),
            Self::UnsolicitedWrite(_) => None,
            Self::Failed { failure, .. } => failure.token,
        }
    }

    /// Its buffers; none for an unsolicited arrival.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        match self {
            Self::Sent(done) | Self::Written(done) | Self::Read(done) => done.buffers,
            Self::Received(received) => received.buffers,
            Self::WriteArrived(arrived) => arrived.buffers,
            Self::Reclaimed { buffers, .. } | Self::Failed { buffers, .. } => buffers,
            Self::UnsolicitedWrite(_) => Buffers::default(),
        }
    }
}

impl Received {
    /// Where the payload lies in the bytes of the buffers, one after the other: all that arrived on SRD, what is behind
    /// the header on UD.
    pub fn payload(&self) -> Range<usize> {
        self.len.min(self.header.into())..self.len
    }
}

impl Failure {
    /// Whether it is a consequence of the queue pair's end rather than a cause (R40).
    pub fn is_flush(&self) -> bool {
        self.cause == Cause::Status(CompletionStatus::Flushed)
    }

    /// The device's status, if the device reported one.
    pub fn status(&self) -> Option<CompletionStatus> {
        match self.cause {
            Cause::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, kind, qpn, .. } = self;
        match self.token {
            Some(token) => write!(f, "{kind} {token} on queue pair {qpn} failed: {cause}"),
            None => write!(f, "an unsolicited arrival on queue pair {qpn} failed: {cause}"),
        }
    }
}

impl core::error::Error for Failure {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::LengthBeyondBuffers { reported, room } => write!(
                f,
                "the device reported {reported} bytes in buffers of {room}: do not use them; this is a defect of \
                 the device or its provider"
            ),
            Self::LengthBelowHeader { reported, header } => write!(
                f,
                "the device reported {reported} bytes, the header alone has {header}: do not use them; this is a defect \
                 of the device or its provider"
            ),
            Self::Malformed { op } => write!(
                f,
                "the completion's operation {op} makes no sense here: this is a defect of the device or its provider"
            ),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send => f.write_str("SEND"),
            Self::Read => f.write_str("RDMA read"),
            Self::Write => f.write_str("RDMA write"),
            Self::Recv => f.write_str("receive"),
        }
    }
}
