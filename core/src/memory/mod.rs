//! Memory that the device may touch: who owns it, and when it comes back.
//!
//! | file | holds |
//! |---|---|
//! | `dma_buf` | memory that can be owned as raw parts |
//! | `object` | a registered region, counted |
//! | `buffer` | a buffer in flight, as raw parts in a slot |

mod buffer;
mod dma_buf;
mod object;

pub(crate) use buffer::{BufferKind, RawBuffer};
pub use dma_buf::{DmaBuf, RawMemory, RawParts};
pub use object::{Mr, MrAttr, MrObject};
