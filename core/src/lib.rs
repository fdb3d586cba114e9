//! AWS's Elastic Fabric Adapter for Rust: queue pair states, peers, memory in flight and wire formats as
//! types, a data path straight to the device's queues, and a software device to develop and test on.
//!
//! No standard library, no allocation. What the device's rules forbid does not compile where that can be
//! known, is refused when a thing is made or posted where that can be known, and is explained by the status of
//! a completion where nothing else can tell. Rules are cited as R01 to R40.
//!
//! # The picture
//!
//! | module | holds |
//! |---|---|
//! | [`Context`], [`ProtectionDomain`] | a device and what is made of it; [`Granted`] proves what it can do |
//! | [`qp`] | queue pairs, their states and kinds |
//! | [`peer`] | who can be reached, and who can reach us |
//! | [`memory`] | registered memory: local slices, or exposed to peers |
//! | [`work`] | operations, batches, and the events that they come back as |
//! | [`connect`] | two sides in one program, for tests and first programs |
//! | [`fabric`] | messages of any size, in order, over it; and the choice between that and the device as it is |
//! | [`flow`] | counting arrivals, restoring an order, receive credits |
//! | [`wire`] | the bytes that travel between hosts |
//! | [`entry`], [`ring`] | the device's queue entries, and the data path over them |
//! | [`Provider`], [`Notifies`] | the hardware abstraction: implemented by whoever drives a device, without events and with |
//! | [`soft`] | the software device (feature `soft`) |
//!
//! A queue pair is of one of EFA's two types: [`Srd`](qp::Srd), reliable and with RDMA, or [`Ud`](qp::Ud), whose SENDs
//! may be lost. What is said of neither is SRD.
//!
//! # Example
//!
//! ```
//! use efa_core::memory::{Arena, RemoteWrite};
//! use efa_core::qp::{Depth, Srd};
//! use efa_core::soft::{Profile, Storage};
//! use efa_core::work::Event;
//! use efa_core::{Context, Error, Token};
//!
//! static DEVICE: Storage<2, 16, 8> = Storage::new();
//! static MEMORY: [Arena<512>; 3] = [const { Arena::new() }; 3];
//!
//! # fn main() -> Result<(), Error> {
//! let ctx = Context::open(DEVICE.start(Profile::RDMA)?);
//! let pd = ctx.alloc_pd()?;
//! let srd = ctx.require::<Srd>()?;
//! let mut a = pd.endpoint(srd, Depth::new(8, 8))?;
//! let mut b = pd.endpoint(srd, Depth::new(8, 8))?;
//!
//! // Each side resolves the other; the ready that comes back proves it.
//! let (to_b, a_ready) = a.resolve(b.hello().as_bytes())?;
//! let (to_a, b_ready) = b.resolve(a.hello().as_bytes())?;
//! let to_b = to_b.confirm(b_ready.as_bytes())?;
//! let _to_a = to_a.confirm(a_ready.as_bytes())?;
//!
//! // A SEND: slices go in, and come back with the completions.
//! let (_, mut source) = pd.register(MEMORY[0].take()?)?;
//! let (_, target) = pd.register(MEMORY[1].take()?)?;
//! source[..5].copy_from_slice(b"hello");
//! let (head, rest) = source.split_at(5)?;
//! b.post_recv(target, Token(1))?;
//! a.post(to_b.send(head), Token(2))?;
//! while let Some(event) = b.poll().or_else(|| a.poll()) {
//!     match event {
//!         Event::Received(mut message) => {
//!             let bytes = message.buffers.take_slice().unwrap();
//!             assert_eq!(&bytes[..message.len], b"hello");
//!         }
//!         event => assert!(matches!(event, Event::Sent(_))),
//!     }
//! }
//!
//! // An RDMA write into memory that B exposes and grants to A.
//! let window = pd.expose(MEMORY[2].take()?, ctx.require::<RemoteWrite>()?)?;
//! let granted = to_b.window::<RemoteWrite>(window.grant(&b)?.as_bytes())?;
//! a.post(to_b.write(rest, granted.range(0..507)?), Token(3))?;
//! # while a.in_flight() > 0 { a.poll(); }
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

mod caps;
pub mod connect;
mod context;
pub mod entry;
mod error;
pub mod fabric;
pub mod flags;
pub mod flow;
mod gid;
mod id;
mod leaks;
pub mod memory;
mod notify;
mod numbered;
pub mod opcode;
pub mod peer;
pub mod port;
mod provider;
pub mod qp;
pub mod ring;
#[cfg(feature = "soft")]
pub mod soft;
pub mod status;
pub mod wire;
pub mod work;

pub use caps::{Caps, Granted, Limits, Requirement, SetRnrRetry};
pub use context::{Context, DataPath, ProtectionDomain};
pub use error::{Error, Limit, Refused, Verb};
pub use gid::{Gid, ParseGidError};
pub use id::{Ahn, DeviceId, Incarnation, LKey, PdId, Qkey, Qpn, RKey, Token};
pub use leaks::Leaks;
pub use notify::{Arms, Notified, Notifies};
pub use provider::{CqInit, CqRing, MrInit, Provider, QpInit, Queues, RecvRing, Registrations, SendRing};
