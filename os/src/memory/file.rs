//! Memory that a file names: a dma-buf, which a driver exports for another device, a GPU's for an EFA.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use efa_core::memory::{Coherent, DmaBuf, MemoryFile, MemoryKind, Opaque, RawParts, View};

/// A part of the memory behind a dma-buf, with what keeps that memory: both are kept until it was deregistered.
///
/// The CPU does not see it, so its region's slices have no bytes. Each is posted once those who reach the memory were
/// waited for, by [`assume_ordered`](efa_core::memory::Slice::assume_ordered), and comes back from its completion by
/// [`take_opaque`](efa_core::memory::Buffers::take_opaque). Where nobody is ever to be waited for,
/// [`DmaBufFile::assume_coherent`] says so once, and slices are posted as they are. What the device wrote is seen by
/// whoever maps the memory, when that one's own rules say so.
///
/// ```no_run
/// # use std::os::fd::OwnedFd;
/// # fn register(pd: efa_core::ProtectionDomain<efa_os::Device>, exported: OwnedFd, tensor: Vec<u8>) -> Result<(), efa_os::Error> {
/// let memory = efa_os::DmaBufFile::new(exported, 0, 1 << 20).keeping(tensor);
/// let (region, slice) = pd.register(memory)?;
/// # drop((region, slice)); Ok(()) }
/// ```
#[derive(Debug)]
pub struct DmaBufFile<T = (), V = Opaque> {
    file: OwnedFd,
    offset: u64,
    len: usize,
    iova: u64,
    backing: T,
    view: PhantomData<fn() -> V>,
}

impl DmaBufFile {
    /// `len` bytes from `offset` of the file on. The device and peers know the first byte by that offset, unless
    /// [`DmaBufFile::at`] or [`RegisterOptions::iova`](efa_core::memory::RegisterOptions::iova) says otherwise.
    ///
    /// Whether the file is a dma-buf and has so many bytes, the kernel says when it is registered.
    pub fn new(file: OwnedFd, offset: u64, len: usize) -> Self {
        Self { file, offset, len, iova: offset, backing: (), view: PhantomData }
    }
}

impl<V> DmaBufFile<(), V> {
    /// Keeps what the memory belongs to, which is not to be freed before the device let go: a tensor, an allocation.
    pub fn keeping<T: Send + 'static>(self, backing: T) -> DmaBufFile<T, V> {
        let Self { file, offset, len, iova, backing: (), view } = self;
        DmaBufFile { file, offset, len, iova, backing, view }
    }
}

impl<T> DmaBufFile<T> {
    /// Takes it for memory that others reach only when the program has them do so, and never while it is posted: of a
    /// device's buffers, or of a file in memory. Its slices come back from completions by
    /// [`take_coherent`](efa_core::memory::Buffers::take_coherent), to be posted again.
    ///
    /// # Safety
    /// While a slice or part of it is posted, nobody else writes what is sent, or reads or writes what is received
    /// into; and what they wrote before is there by then, without a wait. A GPU's memory is not such. Nothing undefined
    /// happens here if it is taken for it, but what arrives, or what the other computes, is garbage.
    pub unsafe fn assume_coherent(self) -> DmaBufFile<T, Coherent> {
        let Self { file, offset, len, iova, backing, view: _ } = self;
        DmaBufFile { file, offset, len, iova, backing, view: PhantomData }
    }
}

impl<T, V> DmaBufFile<T, V> {
    /// The address that the device and peers know the first byte by, the memory's own for one: as far into a page as the
    /// offset is.
    pub fn at(mut self, iova: u64) -> Self {
        self.iova = iova;
        self
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none, which no device registers (R37).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What was kept.
    pub fn backing(&self) -> &T {
        &self.backing
    }

    /// The file, and what was kept.
    pub fn into_parts(self) -> (OwnedFd, T) {
        (self.file, self.backing)
    }
}

impl<T, V> AsFd for DmaBufFile<T, V> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

// SAFETY: no reference to these bytes is made, here or by what a slice can do: neither view that such owners are made with
// is one that the CPU sees. Others in this process have some only by mapping the file, which takes unsafe code, whose word
// is that nobody writes the file meanwhile: a device is as good as `write(2)`. The file is open, and the memory there, for
// as long as the box is.
unsafe impl<T: Send + 'static, V: View> DmaBuf for DmaBufFile<T, V> {
    type View = V;

    fn kind(&self) -> MemoryKind {
        MemoryKind::File(MemoryFile { fd: self.file.as_raw_fd(), offset: self.offset, iova: self.iova })
    }

    fn into_raw(self) -> RawParts {
        let len = self.len;
        // Where the owner is: a file's memory has no other address here.
        RawParts { base: NonNull::from(Box::leak(Box::new(self))).cast(), len, extra: 0 }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: leaked by `into_raw`, and taken back once, by the caller's word.
        *unsafe { Box::from_raw(parts.base.cast::<Self>().as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use efa_core::Error;
    use efa_core::memory::RawMemory;
    use efa_core::soft::{Profile, SoftDevice};

    use super::*;

    #[test]
    fn the_file_and_what_it_belongs_to_come_back_from_a_device_that_reaches_memory_by_the_cpu() {
        let (reader, file) = std::io::pipe().unwrap();
        let (number, file) = (file.as_raw_fd(), OwnedFd::from(file));
        let pd = efa_core::Context::open(SoftDevice::new(Profile::RDMA)).alloc_pd().unwrap();
        let refused = pd.register(DmaBufFile::new(file, 4096, 100).keeping("a tensor".to_owned())).unwrap_err();
        assert_eq!(refused.error(), Error::OpaqueMemory);
        let (file, kept) = refused.into_inner().into_parts();
        assert_eq!((file.as_raw_fd(), kept.as_str()), (number, "a tensor"));
        // Forgotten by its type, it is closed all the same.
        let most = Some(core::time::Duration::ZERO);
        assert_eq!(crate::poll::readable(reader.as_fd(), most), Ok(false), "still open");
        drop(RawMemory::new(DmaBufFile::new(file, 0, 1)));
        assert!(crate::poll::readable(reader.as_fd(), most).is_err(), "nobody is left who could write");
    }
}
