//! GPU memory for EFA, with the order between the GPU's work and the device's as types.
//!
//! CUDA's driver, `libcuda.so.1`, is opened when it is first asked for, or the file that `EFA_CUDA_LIBCUDA` names (not
//! in a program with rights that its user has not); nothing of CUDA is needed to build. **Not measured on a GPU yet**:
//! what is here was tested on `tests/fakecuda` and on `tests/softefa`, through the real libibverbs and libefa.
//! `tests/run gpu` tells in some seconds, where there is a GPU, what its driver does otherwise.
//!
//! Two failures are silent with GPU memory, and are types here: sending what a kernel has not written yet, and reading what the
//! device wrote before the GPU sees it.
//!
//! ```no_run
//! use efa_core::work::Event;
//! use efa_core::{ProtectionDomain, Token};
//! use efa_cuda::{BorrowedDevice, Driver, Scope, Stream};
//!
//! # type Srd = efa_core::qp::Srd<{ efa_core::qp::ops::SEND }>;
//! # fn run(pd: &ProtectionDomain<efa_os::Device>, a: &mut efa_core::qp::Endpoint<efa_os::Device, Srd>,
//! #     to_b: &efa_core::peer::Peer<efa_core::peer::Mutual>, tensor: BorrowedDevice, raw: usize) -> Result<(), Box<dyn std::error::Error>> {
//! let driver = Driver::load()?;
//! let (region, memory) = driver.register(pd, tensor)?;
//! // SAFETY: a stream of the program's, which outlives this handle.
//! let mut stream = unsafe { Stream::from_raw(driver, raw) };
//! // Kernels are launched on `stream`; then the memory is waited for, and only then can it be posted.
//! let ready = memory.synchronize(&mut stream)?;
//! a.post_recv(ready.into_slice(), Token(1))?;
//! if let Some(Event::Received(mut message)) = a.poll() {
//!     let arrived = region.completed(message.buffers.take_opaque().expect("what was posted"))?;
//!     let seen = region.within(|current| arrived.flush(current, Scope::Owner))??;
//!     println!("the GPU sees {} bytes at {:#x}", seen.len(), seen.address());
//! }
//! # Ok(()) }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `loader` | the driver's library and the table of its functions |
//! | `raw` | its types and numbers |
//! | `calls` | its functions as safe calls, each error with the call's name |
//! | `driver`, `context` | devices and what they can do; contexts, for as long as a closure runs |
//! | `memory` | what kind of memory an address is, its export, its registration |
//! | `order` | streams; memory to be sent or received into, and memory that arrived |
//! | `dlpack` | tensors of frameworks |
//! | `checks` | what a user's environment says of the allocator |
//! | `error` | what can go wrong, and what to do about it |

#![deny(unsafe_code)]

mod calls;
mod checks;
mod context;
pub mod dlpack;
mod driver;
mod error;
mod loader;
mod memory;
mod order;
mod raw;

pub use checks::{AllocatorSetting, allocator_settings};
pub use context::Current;
pub use driver::{Device, Driver, Report, Scope, WritesOrdered};
pub use error::{Attempt, Error, Failed, Refused};
pub use loader::{LoadError, NeedsDriver};
pub use memory::{
    Access, Allocation, BorrowedDevice, Exported, GpuExposed, GpuRegion, MayBeWritten, MemoryInfo, MemorySort, Owner,
    Primary, ReadOnly, SyncMemops, Writable,
};
pub use order::{
    Arrival, Completed, Holder, Inbound, Loopback, Outbound, Progress, Ready, Recorded, Seen, Stream, Unsynced,
    Visible, Waited,
};
