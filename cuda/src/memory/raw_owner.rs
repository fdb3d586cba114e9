//! An owner as raw parts and back, as core wants it of memory that is registered.

#![allow(unsafe_code)]

use core::num::NonZeroUsize;
use core::ptr::{NonNull, with_exposed_provenance_mut};
use std::os::fd::{AsRawFd, BorrowedFd};

use efa_core::memory::{DmaBuf, MemoryFile, MemoryKind, Opaque, RawParts};

use super::Owner;

/// A GPU's memory on its way to the device and back.
pub(crate) struct GpuMemory<O> {
    owner: O,
    /// The first byte: an address that is not null.
    address: NonZeroUsize,
    /// The dma-buf, for as long as it takes to register it.
    file: Option<MemoryFile>,
}

impl<O: Owner> GpuMemory<O> {
    /// To be registered by its address. `None` if that is null.
    pub(super) fn plain(owner: O) -> Result<Self, O> {
        match usize::try_from(owner.address()).ok().and_then(NonZeroUsize::new) {
            Some(address) => Ok(Self { owner, address, file: None }),
            None => Err(owner),
        }
    }

    /// To be registered by a file, which has the range from `offset` on.
    ///
    /// # Safety
    /// The file stays open until it was registered, or this is dropped.
    pub(super) unsafe fn exported(self, file: BorrowedFd<'_>, offset: u64) -> Self {
        let iova = self.address.get() as u64;
        Self { file: Some(MemoryFile { fd: file.as_raw_fd(), offset, iova }), ..self }
    }

    pub(super) fn into_owner(self) -> O {
        self.owner
    }
}

// SAFETY: the bytes stay where they are, by `Owner`'s contract, until the owner is dropped. No reference to them is made: the CPU
// does not reach them. The file is open until they were registered, by `exported`'s contract, and has them; what comes back
// from raw parts has none.
unsafe impl<O: Owner> DmaBuf for GpuMemory<O> {
    type View = Opaque;

    fn kind(&self) -> MemoryKind {
        self.file.map_or(MemoryKind::Ordinary, MemoryKind::File)
    }

    fn into_raw(self) -> RawParts {
        let (base, len) = (NonNull::without_provenance(self.address), self.owner.len());
        // The address is the GPU's; the owner is behind the third part.
        RawParts { base, len, extra: Box::into_raw(Box::new(self.owner)).expose_provenance() }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: boxed by `into_raw`, and taken back once, by the caller's word.
        let owner = *unsafe { Box::from_raw(with_exposed_provenance_mut::<O>(parts.extra)) };
        Self { owner, address: parts.base.addr(), file: None }
    }
}

#[cfg(test)]
mod tests {
    use efa_core::memory::RawMemory;

    use super::*;
    use crate::memory::Writable;

    struct Counted {
        _count: std::sync::Arc<()>,
    }

    // SAFETY: nobody reaches the address.
    unsafe impl Owner for Counted {
        type Access = Writable;

        fn address(&self) -> u64 {
            0x7000
        }

        fn len(&self) -> usize {
            512
        }
    }

    #[test]
    fn the_owner_comes_back_from_raw_parts_once_or_is_dropped_once() {
        let count = std::sync::Arc::new(());
        let Ok(memory) = GpuMemory::plain(Counted { _count: count.clone() }) else { panic!("refused") };
        let parts = memory.into_raw();
        assert_eq!((parts.base.addr().get(), parts.len, std::sync::Arc::strong_count(&count)), (0x7000, 512, 2));
        // SAFETY: the parts of just now, once.
        let memory = unsafe { GpuMemory::<Counted>::from_raw(parts) };
        assert_eq!(memory.kind(), MemoryKind::Ordinary);
        let raw = RawMemory::new(memory);
        assert!(!raw.is_visible());
        drop(raw);
        assert_eq!(std::sync::Arc::strong_count(&count), 1);
    }
}
