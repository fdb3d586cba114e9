//! A `libcuda.so.1` where there is no GPU: it answers as the driver does, as far as efa-cuda asks, and its memory shows the two
//! failures that hardware hides.
//!
//! Each allocation has two views. The *bus* view is what a device on the bus reads and writes, a memory file; the *kernel* view is
//! what kernels and copies see. What a stream is to do happens when somebody waits for it, to both views. What a device writes is
//! in the bus view alone until it is flushed. Device addresses are mapped nowhere, as a GPU's are.
//!
//! What it exports for a dma-buf is a *ticket*: a sealed file, as long as what it stands for, that names a part of the
//! bus view, which `tests/softefa` maps. Beside the driver's functions are some of its own, `fakecuda_*`, to set it up
//! and to read the log of calls.
//!
//! | file | holds |
//! |---|---|
//! | `calls` | the driver's functions of contexts, devices and memory |
//! | `kinds` | those that make memory of other kinds |
//! | `work` | those of streams and events, and copies |
//! | `control` | the functions that a test has besides |
//! | `peer` | those by which another device's driver gets memory by its address |
//! | `state`, `memory`, `stream` | what is behind them |
//! | `out` | what C's callers are answered through |
#![allow(missing_docs, non_snake_case, unsafe_code)]
#![allow(clippy::missing_safety_doc)]

mod calls;
mod control;
mod kinds;
mod memory;
mod out;
mod peer;
mod state;
mod stream;
mod work;

pub use calls::*;
pub use control::*;
pub use kinds::*;
pub use out::Out;
pub use peer::*;
pub use work::*;
