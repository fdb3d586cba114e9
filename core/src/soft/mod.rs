//! A software EFA device: a model of the real one at its queues.
//!
//! It reads send entries and receive descriptors after doorbells, checks everything that the device checks,
//! moves bytes, and writes completions with phases, in the layouts of [`crate::entry`]. It knows nothing of
//! the driver: slots are memory that it hands out. It advances in [`Provider::progress`](crate::Provider::progress)
//! alone, which every poll calls and which gives up at once if somebody else is there.
//!
//! All devices of one wire share a lock. Verbs take it by spinning, so none may be called from an interrupt
//! that may have interrupted one, or a poll.
//!
//! | file | holds |
//! |---|---|
//! | `profile`, `faults`, `counters` | what goes in, what comes out |
//! | `device` | the provider and its handles |
//! | `given` | queues in the driver's own memory |
//! | `notify`, `channel` | when a completion queue raises an event, and who is woken by it |
//! | `tally` | completion counters |
//! | `pair` | two connected endpoints, for tests |
//! | `storage` | tables in static memory or on the heap |
//! | `wire`, `slab`, `ring`, `objects` | the lock, tables, queue memory, counted objects |
//! | `tables`, `verbs` | what is known, and the control path |
//! | `engine`, `responder`, `completion`, `queue`, `memory` | the requester's side, the peer's, the answer and where it goes, moving bytes |
//! | `datagram` | the same for UD |
//! | `hostile` | the same with loss, delay, pieces and death |
//! | `link` | devices of other wires, reached by frames (feature `alloc`; else `unlinked`) |

mod channel;
mod completion;
mod counters;
mod datagram;
mod device;
mod engine;
mod faults;
mod given;
mod hostile;
#[cfg(feature = "alloc")]
pub mod link;
mod memory;
mod notify;
mod objects;
#[cfg(feature = "alloc")]
mod pair;
mod profile;
mod queue;
mod responder;
mod ring;
mod slab;
mod storage;
mod tables;
mod tally;
#[cfg(not(feature = "alloc"))]
mod unlinked;
mod verbs;
mod wire;

pub use channel::SoftChannel;
pub use counters::Counters;
pub use device::{SoftCq, SoftDevice, SoftPd, SoftQp};
pub use given::{CqMemory, QpRings};
pub use memory::Mover;
#[cfg(feature = "alloc")]
pub use pair::{Side, pair, pair_of};
pub use profile::{Config, Profile};
pub use storage::Storage;
pub use tally::{Count, CountedOps, Counts, SoftCounter};
