//! EFA on Linux: libibverbs and libefa, found when the program runs, as a provider for efa-core.
//!
//! The libraries are opened when they are first asked for, by their versioned names. Nothing is needed to build. A program
//! differs from one on the software device by where its device comes from:
//!
//! ```no_run
//! use efa_core::qp::{Depth, Srd};
//! use efa_core::work::Event;
//! use efa_core::{Context, Token};
//!
//! # fn main() -> Result<(), efa_os::Error> {
//! let device = efa_os::devices()?.swap_remove(0);
//! let ctx = Context::open(device);
//! let pd = ctx.alloc_pd()?;
//! let mut a = pd.endpoint(ctx.require::<Srd>()?, Depth::new(8, 8))?;
//! let mut b = pd.endpoint(ctx.require::<Srd>()?, Depth::new(8, 8))?;
//!
//! // Between two hosts these frames travel over a channel of the program's.
//! let (to_b, _to_a) = efa_core::connect::introduce(&a, &b)?;
//! b.post_recv(pd.register(vec![0; 64])?.1, Token(1))?;
//! a.post(to_b.send_inline(b"hello"), Token(2))?;
//! while let Some(event) = b.poll().or_else(|| a.poll()) {
//!     println!("{event:?}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `fabric` | which fabric the environment asks for |
//! | `list` | the devices, and which of them are EFA's |
//! | `device` | the provider |
//! | `channel`, `events` | files to sleep on: for completions, and for what a device tells unasked |
//! | `attributes` | what a device, its port, a queue pair and a region say of themselves |
//! | `memory` | huge pages, and memory behind a dma-buf's file |
//! | `handle` | the device's objects, which release what they own |
//! | `verbs` | the data path through the library's calls |
//! | `fork` | what a fork does to registered memory |
//! | `loader` | the libraries and the table of their functions |
//! | `ffi`, `same` | what C's headers declare, compared with them by a test, and with core's numbers |
//! | `any`, `soft`, `carrier` | a software device instead, which other processes reach, and what carries its frames (feature `soft`) |
//! | `error`, `absent`, `explain` | what can go wrong, and what to do about it |
//!
//! From EFA_1.4 (rdma-core 59) on libefa tells where the device's queues are, and core writes and reads them itself: the
//! direct data path. Before, down to EFA_1.2 (43), operations go through the library's calls: the verbs path, which has
//! neither wide entries nor unsolicited receive, nor, before EFA_1.5 (63), a second queue pair on a completion queue.
//! [`efa_core::Context::data_path`] tells which it is.
//!
//! | variable of the environment | says |
//! |---|---|
//! | `EFA_OS_LIBIBVERBS`, `EFA_OS_LIBEFA` | other names of the libraries (not to a program with rights that its user has not) |
//! | `EFA_OS_DATA_PATH` | `direct` or `verbs`: that path, or an error |
//! | `EFA_FABRIC` | `efa` or `efa-direct`, to who asks by [`fabric`] |
//! | `NVSHMEM_DISABLE_LIBFABRIC_EFA_DIRECT` | true for `efa`, false for `efa-direct`, likewise, if `EFA_FABRIC` says nothing |
//! | `EFA_OS_DEVICES` | `efa` or `soft`, to who asks by `Choice::from_environment` (feature `soft`) |
//! | `EFA_OS_FABRIC` | which software devices reach each other, to who asks by `soft::Options::from_environment` |

#![deny(unsafe_code)]

mod absent;
#[cfg(feature = "soft")]
mod any;
mod attributes;
#[cfg(all(test, feature = "system"))]
mod calls;
#[cfg(feature = "soft")]
pub mod carrier;
mod channel;
mod device;
mod error;
mod events;
mod explain;
mod fabric;
mod ffi;
mod fork;
mod handle;
mod list;
mod loader;
mod memory;
mod poll;
mod random;
mod same;
#[cfg(feature = "soft")]
pub mod soft;
mod verbs;

pub use absent::Absent;
#[cfg(feature = "soft")]
pub use any::{AnyChannel, AnyCq, AnyDevice, AnyPd, AnyQp, Choice, Chosen};
pub use attributes::{Attributes, Interconnects, LinkLayer, PortAttributes, PortState, QueuePairInfo};
pub use channel::Channel;
pub use device::{Cq, Device, Pd, Qp};
pub use error::Error;
pub use events::{AsyncEvent, AsyncEvents, PortEvent, QueuePairEvent};
pub use explain::{Explained, RefusedRegion};
pub use fabric::fabric;
pub use fork::{Fork, fork_safety};
pub use list::{Listed, devices, list};
#[doc(hidden)] // for efa-cuda
pub use loader::dl;
pub use loader::{Library, LoadError, NeedsNewer, Node};
pub use memory::{DmaBufFile, HugePageSize, HugePages, NoHugePages};
