//! Memory that can be handed over as raw parts and rebuilt from them.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

/// An owner of bytes that stay where they are however the owner moves.
///
/// # Safety
/// The parts name initialised bytes, valid for reads and writes and reached through nothing else, from
/// `into_raw` until `from_raw`, whatever happens in between; `from_raw` of them gives back the owner.
/// An array is no such owner, although it is `'static`: it moves with its variable.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered: the device needs memory that it owns and that never moves (R15)",
    label = "not memory that can be registered",
    note = "static memory: `Arena::take(&'static self)`; with feature `alloc`: `Box<[u8]>`, `Vec<u8>`, `Pages`",
    note = "borrowed memory: `unsafe BorrowedMemory::new`, which says what must hold"
)]
pub unsafe trait DmaBuf: Sized + Send + 'static {
    /// Gives up the owner for its parts.
    fn into_raw(self) -> RawParts;

    /// Rebuilds the owner.
    ///
    /// # Safety
    /// `parts` came from `into_raw` of this type, and each is rebuilt once.
    unsafe fn from_raw(parts: RawParts) -> Self;
}

/// What a [`DmaBuf`] is made of.
#[derive(Clone, Copy, Debug)]
pub struct RawParts {
    /// The first byte.
    pub base: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Whatever else the owner needs to be rebuilt, a capacity for instance.
    pub extra: usize,
}

/// A [`DmaBuf`] whose type is forgotten: it drops the memory as its owner would have.
pub struct RawMemory {
    parts: RawParts,
    release: unsafe fn(RawParts),
}

// SAFETY: a `DmaBuf` is `Send`, and this is one.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// Forgets the owner's type.
    pub fn new<M: DmaBuf>(memory: M) -> Self {
        Self { parts: memory.into_raw(), release: release::<M> }
    }

    /// Where and how much.
    pub fn parts(&self) -> RawParts {
        self.parts
    }

    /// Rebuilds the owner.
    ///
    /// # Safety
    /// This was made from an `M`.
    pub(crate) unsafe fn into_owner<M: DmaBuf>(self) -> M {
        let parts = ManuallyDrop::new(self).parts;
        // SAFETY: from an `M` by the caller's word; `self` is not dropped, so it is rebuilt once.
        unsafe { M::from_raw(parts) }
    }
}

impl Drop for RawMemory {
    fn drop(&mut self) {
        // SAFETY: `release` was made for the type of the parts, and is called once.
        unsafe { (self.release)(self.parts) }
    }
}

impl fmt::Debug for RawMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RawMemory").field(&self.parts).finish()
    }
}

/// # Safety
/// As `M::from_raw`.
unsafe fn release<M: DmaBuf>(parts: RawParts) {
    // SAFETY: by the caller's word.
    drop(unsafe { M::from_raw(parts) });
}
