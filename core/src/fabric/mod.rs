//! Two fabrics: the device as it is, `efa-direct`, and messages over it, `efa`.
//!
//! | | [`EfaDirect`] | [`Efa`] |
//! |---|---|---|
//! | buffers | registered | any; registered ones spare copies ([`Memory`]) |
//! | a message | up to the device's `max_msg_size` | of any size |
//! | order | none | as sent, from each peer |
//! | a message that finds no receive | waits in the device, or fails with status 10 | waits at the sender and in the receiver's slots |
//! | RDMA | the endpoint's own, where the device has it | [`Efa::write`] and [`Efa::read`], by the device or as messages |
//! | who is there | whoever was resolved | each peer says hello first |
//! | costs | nothing | a copy at each side, or a round trip; slots for each peer |
//!
//! Both are [`Messages`], so that a program is written once; [`Choice`] says which, by the application, the environment or
//! the default, and why. Take `efa-direct` where buffers can be registered once and used again, and the program counts and
//! orders what arrives by itself ([`flow`](crate::flow)); `efa` where it has buffers of others, or longer messages.
//!
//! `Efa` speaks a [protocol](efa::packet) of its own: not that of libfabric's `efa` fabric, with which it does not talk.
//!
//! | file | holds |
//! |---|---|
//! | `choice` | which fabric, and why |
//! | `messages` | the interface of both |
//! | `memory` | what `efa` sends from and receives into |
//! | `why` | what can go wrong |
//! | `direct` | `efa-direct` |
//! | `kind` | queue pairs that `efa` works on |
//! | `efa` | `efa` |

#![forbid(unsafe_code)]

mod choice;
mod direct;
pub mod efa;
mod kind;
mod memory;
mod messages;
mod why;

pub use choice::{BadChoice, Choice, DISABLE_DIRECT, FABRIC, Fabric, Reason};
pub use direct::{EfaDirect, Registered};
pub use efa::{BadPacket, Counters, Efa, Options, PeerFeatures, RemoteRange, WindowFrame, WindowId};
pub use kind::Carries;
pub use memory::Memory;
pub use messages::{Event, Messages, PeerId, Returned};
pub use why::{Denied, Violation, Why};
