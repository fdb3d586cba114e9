//! A GPU's memory: whose, of what kind, exported, registered.
//!
//! | file | holds |
//! |---|---|
//! | `owner` | what owns memory, and whether it may be written |
//! | `allocation` | memory of one's own, and the context for it |
//! | `classify` | what kind of memory an address is |
//! | `export` | a dma-buf of exactly the pages of a range |
//! | `raw_owner` | an owner as raw parts and back, as core wants it |
//! | `register` | registration: as a dma-buf, else by the address |
//! | `region` | registered memory, for local use or exposed |

mod allocation;
mod classify;
mod export;
mod owner;
mod raw_owner;
mod region;
mod register;

pub use allocation::{Allocation, Primary};
pub use classify::{MemoryInfo, MemorySort};
pub use export::Exported;
pub use owner::{Access, BorrowedDevice, MayBeWritten, Owner, ReadOnly, Writable};
pub use region::{GpuExposed, GpuRegion};
pub(crate) use region::{Place, Way};
pub use register::SyncMemops;
