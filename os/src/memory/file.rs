//! Memory that a file names: a dma-buf, which a driver exports for another device, a GPU's for an EFA.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use efa_core::memory::{DmaBuf, MemoryFile, MemoryKind, Opaque, RawParts};

/// A part of the memory behind a dma-buf, with what keeps that memory: both are kept until it was deregistered.
///
/// The CPU does not see it, so its region's slices have no bytes. They are posted by
/// [`assume_ordered`](efa_core::memory::Slice::assume_ordered), whose word is that those who reach the memory were
/// waited for, and come back from completions by [`take_opaque`](efa_core::memory::Buffers::take_opaque). What the
/// device wrote is seen by whoever maps the memory, when that one's own rules say so.
///
/// ```no_run
/// # use std::os::fd::OwnedFd;
/// # fn register(pd: efa_core::ProtectionDomain<efa_os::Device>, exported: OwnedFd, tensor: Vec<u8>) -> Result<(), efa_os::Error> {
/// let memory = efa_os::DmaBufFile::new(exported, 0, 1 << 20).keeping(tensor);
/// let (region, slice) = pd.register(memory)?;
/// # drop((region, slice)); Ok(()) }
/// ```
#[derive(Debug)]
pub struct DmaBufFile<T = ()> {
    file: OwnedFd,
    offset: u64,
    len: usize,
    iova: u64,
    backing: T,
}

impl DmaBufFile {
    /// `len` bytes from `offset` of the file on. The device and peers know the first byte by that offset, unless
    /// [`DmaBufFile::at`] or [`RegisterOptions::iova`](efa_core::memory::RegisterOptions::iova) says otherwise.
    ///
    /// Whether the file is a dma-buf and has so many bytes, the kernel says when it is registered.
    pub fn new(file: OwnedFd, offset: u64, len: usize) -> Self {
        Self { file, offset, len, iova: offset, backing: () }
    }

    /// Keeps what the memory belongs to, which is not to be freed before the device let go: a tensor, an allocation.
    pub fn keeping<T: Send + 'static>(self, backing: T) -> DmaBufFile<T> {
        let Self { file, offset, len, iova, backing: () } = self;
        DmaBufFile { file, offset, len, iova, backing }
    }
}

impl<T> DmaBufFile<T> {
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

impl<T> AsFd for DmaBufFile<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

// SAFETY: no reference to these bytes is made, here or by what an opaque slice can do. Others in this process have some only
// by mapping the file, which takes unsafe code, whose word is that nobody writes the file meanwhile: a device is as good as
// `write(2)`. The file is open, and the memory there, for as long as the box is.
unsafe impl<T: Send + 'static> DmaBuf for DmaBufFile<T> {
    type View = Opaque;

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
