//! Owners of memory that Linux has and core does not know.
//!
//! | file | holds |
//! |---|---|
//! | `huge` | mappings of huge pages |
//! | `file` | memory behind a dma-buf's file |

mod file;
mod huge;

pub use file::DmaBufFile;
pub(crate) use huge::page_size;
pub use huge::{HugePageSize, HugePages, NoHugePages};
