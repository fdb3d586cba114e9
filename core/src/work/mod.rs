//! Operations, and what becomes of them.
//!
//! An operation is a value made from the peer it goes to, `peer.send(slice)`, `peer.write(slice, window)`,
//! and [posted](crate::qp::QueuePair::post) with a token. It comes back once, as an [`Event`].
//!
//! | file | holds |
//! |---|---|
//! | `source` | what can be sent, and what can be received into |
//! | `inline` | bytes that travel in the entry itself |
//! | `operation` | SEND, RDMA write, RDMA read |
//! | `assemble` | from an operation to the device's entry |
//! | `post` | one operation or receive, with its doorbell |
//! | `batch` | several, with one doorbell |
//! | `event` | what a completion says |
//! | `poll` | from completion entries to events |

mod assemble;
mod batch;
mod event;
mod inline;
mod operation;
mod poll;
mod post;
mod source;

pub use assemble::Operation;
pub use batch::Batch;
pub use event::{Cause, Done, Event, Failure, Kind, Received, Stats, UnsolicitedWrite, WriteArrived};
pub use inline::{FitsInline, InlineBytes};
pub use operation::{Imm, Immediate, NoImm, Read, Send, SendInline, SendWith, To, Write, WriteInline, WriteWith};
pub use post::Posts;
pub use source::{OneBuffer, RecvTarget, SendSource, WritableBuffer};
