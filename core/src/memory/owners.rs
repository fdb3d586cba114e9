//! Owners of memory that can be registered: static, boxed, page-aligned and borrowed.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use super::{DmaBuf, RawParts, Visible};
use crate::Error;

/// Static memory of `N` bytes, zeroed and aligned to a cache line, that can be taken once.
///
/// ```
/// use efa_core::memory::Arena;
/// static MEMORY: Arena<4096> = Arena::new();
/// let bytes: &'static mut [u8] = MEMORY.take().unwrap();
/// assert_eq!(bytes.len(), 4096);
/// assert!(MEMORY.take().is_err());
/// ```
#[repr(C, align(64))]
pub struct Arena<const N: usize> {
    bytes: UnsafeCell<[u8; N]>,
    taken: AtomicBool,
}

// SAFETY: the bytes are reached only through the one reference that `take` gives.
unsafe impl<const N: usize> Sync for Arena<N> {}

impl<const N: usize> Arena<N> {
    /// Zeroed memory.
    #[allow(clippy::new_without_default)] // it is for statics
    pub const fn new() -> Self {
        Self { bytes: UnsafeCell::new([0; N]), taken: AtomicBool::new(false) }
    }

    /// The memory, once.
    ///
    /// # Errors
    /// [`Error::AlreadyTaken`].
    #[allow(clippy::mut_from_ref)] // the flag makes it the only one
    pub fn take(&'static self) -> Result<&'static mut [u8], Error> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return Err(Error::AlreadyTaken);
        }
        // SAFETY: the flag lets one caller pass, so this is the only reference, for ever.
        Ok(unsafe { &mut *self.bytes.get() })
    }
}

impl<const N: usize> fmt::Debug for Arena<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("bytes", &N).field("taken", &self.taken).finish()
    }
}

// SAFETY: a reference that lives for ever and is unique; its bytes stay where they are.
unsafe impl DmaBuf for &'static mut [u8] {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        RawParts { len: self.len(), base: NonNull::from(self).cast(), extra: 0 }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: from a unique reference that lives for ever, by the caller's word.
        unsafe { core::slice::from_raw_parts_mut(parts.base.as_ptr(), parts.len) }
    }
}

/// Memory that somebody else owns: a foreign allocation, a mapping, a caller's buffer.
#[derive(Debug)]
pub struct BorrowedMemory(RawParts);

// SAFETY: `new` demands that the bytes may be used from any thread.
unsafe impl Send for BorrowedMemory {}

impl BorrowedMemory {
    /// Takes the bytes at `base` as if they were owned; dropping this frees nothing.
    ///
    /// # Safety
    /// From now until the region was closed, or the exposed memory revoked, with `Ok`, or every handle of it
    /// was dropped and the device's leak counter did not rise: the bytes are initialised, stay mapped at that
    /// address, may be used from any thread, and are reached through nothing else. Forgetting a handle
    /// extends that for ever.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self(RawParts { base, len, extra: 0 })
    }
}

// SAFETY: by the word of `new`'s caller.
unsafe impl DmaBuf for BorrowedMemory {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        self.0
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        Self(parts)
    }
}

#[cfg(feature = "alloc")]
pub use heap::{PageSize, Pages};

#[cfg(feature = "alloc")]
mod heap {
    use alloc::alloc::{Layout, alloc_zeroed, dealloc};
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::mem::ManuallyDrop;
    use core::ops::{Deref, DerefMut};
    use core::ptr::NonNull;

    use crate::Error;
    use crate::memory::{DmaBuf, RawParts, Visible};

    // SAFETY: a box owns its bytes on the heap; as raw parts nothing else reaches them.
    unsafe impl DmaBuf for Box<[u8]> {
        type View = Visible;

        fn into_raw(self) -> RawParts {
            let len = self.len();
            let base = NonNull::from(Box::leak(self)).cast();
            RawParts { base, len, extra: 0 }
        }

        unsafe fn from_raw(parts: RawParts) -> Self {
            let bytes = core::ptr::slice_from_raw_parts_mut(parts.base.as_ptr(), parts.len);
            // SAFETY: from a box of that length, by the caller's word.
            unsafe { Box::from_raw(bytes) }
        }
    }

    // SAFETY: as for the box; bytes beyond the length are not part of the memory.
    unsafe impl DmaBuf for Vec<u8> {
        type View = Visible;

        fn into_raw(self) -> RawParts {
            let mut this = ManuallyDrop::new(self);
            let (len, extra) = (this.len(), this.capacity());
            // A vector's pointer is never null; an empty one is refused at registration (R37).
            let base = NonNull::new(this.as_mut_ptr()).unwrap_or(NonNull::dangling());
            RawParts { base, len, extra }
        }

        unsafe fn from_raw(parts: RawParts) -> Self {
            // SAFETY: pointer, length and capacity are a vector's, by the caller's word.
            unsafe { Vec::from_raw_parts(parts.base.as_ptr(), parts.len, parts.extra) }
        }
    }

    /// What memory is aligned to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum PageSize {
        /// 4 KiB.
        Base,
        /// 2 MiB: where the system has transparent huge pages, fewer of the device's pages are used (R36).
        Huge,
    }

    impl PageSize {
        /// Bytes.
        pub const fn bytes(self) -> usize {
            match self {
                Self::Base => 4096,
                Self::Huge => 2 << 20,
            }
        }
    }

    /// Zeroed memory of whole pages.
    #[derive(Debug)]
    pub struct Pages {
        base: NonNull<u8>,
        len: usize,
        page: usize,
    }

    // SAFETY: it owns its bytes.
    unsafe impl Send for Pages {}
    // SAFETY: shared, it only reads them.
    unsafe impl Sync for Pages {}

    impl Pages {
        /// At least `len` bytes, rounded up to whole pages.
        ///
        /// # Errors
        /// [`Error::ZeroLength`], [`Error::OutOfMemory`].
        pub fn new(len: usize, page: PageSize) -> Result<Self, Error> {
            if len == 0 {
                return Err(Error::ZeroLength);
            }
            let page = page.bytes();
            let error = Error::OutOfMemory { bytes: len as u64 };
            let len = len.checked_next_multiple_of(page).ok_or(error)?;
            let layout = Layout::from_size_align(len, page).map_err(|_| error)?;
            // SAFETY: the size is not zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(error)?;
            Ok(Self { base, len, page })
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            if let Ok(layout) = Layout::from_size_align(self.len, self.page) {
                // SAFETY: allocated in `new` with this layout.
                unsafe { dealloc(self.base.as_ptr(), layout) }
            }
        }
    }

    impl Deref for Pages {
        type Target = [u8];

        fn deref(&self) -> &[u8] {
            // SAFETY: allocated and zeroed in `new`.
            unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
        }
    }

    impl DerefMut for Pages {
        fn deref_mut(&mut self) -> &mut [u8] {
            // SAFETY: as above, and borrowed mutably.
            unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
        }
    }

    // SAFETY: it owns its bytes on the heap; as raw parts nothing else reaches them.
    unsafe impl DmaBuf for Pages {
        type View = Visible;

        fn into_raw(self) -> RawParts {
            let this = ManuallyDrop::new(self);
            RawParts { base: this.base, len: this.len, extra: this.page }
        }

        unsafe fn from_raw(parts: RawParts) -> Self {
            Self { base: parts.base, len: parts.len, page: parts.extra }
        }
    }
}
