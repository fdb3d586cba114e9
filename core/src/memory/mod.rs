//! Memory that the device may touch: who owns it, and when it comes back.
//!
//! Registration takes an owner of memory ([`DmaBuf`]) and gives either local memory, a [`Region`] with its
//! unique [`Slice`]s, or memory that peers may reach, [`Exposed`]. Never both: a region with slices has no
//! remote rights. A post consumes a slice, and its completion gives it back. What the owner says of its memory's
//! [`View`], slices have too: those of [`Opaque`] memory, a GPU's for one, have no bytes here, and are posted once
//! they are [`Ordered`]; those of [`Coherent`] memory have none either, and need no order.
//!
//! [`RawMemory`], [`RawParts`], [`Mr`] and what it is made of are for whoever implements [`DmaBuf`] or a
//! [`Provider`](crate::Provider); other users need none of them.
//!
//! | file | holds |
//! |---|---|
//! | `dma_buf` | memory that can be owned as raw parts |
//! | `view` | whether the CPU sees it, and whether it may be posted |
//! | `owners` | static, boxed, page-aligned and borrowed memory |
//! | `object` | a registered region, counted |
//! | `region`, `slice`, `frozen`, `pool` | local memory |
//! | `exposed`, `words` | memory that peers may reach |
//! | `buffer` | a buffer in flight, as raw parts in a slot |

mod buffer;
mod dma_buf;
mod exposed;
mod frozen;
mod object;
mod owners;
mod pool;
mod region;
mod slice;
mod view;
mod words;

pub use buffer::{Buffer, Buffers};
pub(crate) use buffer::{BufferKind, RawBuffer, Tag};
pub use dma_buf::{DmaBuf, MemoryFile, MemoryKind, RawMemory, RawParts};
pub use exposed::{
    AllowsRead, AllowsWrite, ByMessages, Exposed, ExposedPart, RemoteAccess, RemoteRead, RemoteReadWrite, RemoteWrite,
};
pub use frozen::{FROZEN_RANGES, Frozen};
pub use object::{Deregister, Mr, MrAttr, MrObject, Release};
pub use owners::{Arena, BorrowedMemory};
#[cfg(feature = "alloc")]
pub use owners::{PageSize, Pages};
pub use pool::Pool;
pub use region::{Region, RegisterOptions, Registered};
pub use slice::Slice;
pub use view::{Coherent, Opaque, Ordered, Postable, View, Visible};
#[cfg(feature = "soft")]
pub(crate) use words::{load, store};
