//! Memory that can be handed over as raw parts and rebuilt from them.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::View;

/// An owner of bytes that stay where they are however the owner moves.
///
/// # Safety
/// The parts name initialised bytes, valid for reads and writes and reached through nothing else, from
/// `into_raw` until `from_raw`, whatever happens in between; `from_raw` of them gives back the owner.
/// An array is no such owner, although it is `'static`: it moves with its variable.
///
/// If [`DmaBuf::View`] is not [`Visible`](super::Visible) the bytes are not the CPU's to reach, `base` names them to
/// the device alone, and no reference to them may exist meanwhile. If it is [`Coherent`](super::Coherent), nobody else
/// who reaches them is ever to be waited for. What [`DmaBuf::kind`] says is true; the file that it names is open
/// until they were registered, or until `from_raw` if they are not, and has these bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be registered: the device needs memory that it owns and that never moves (R15)",
    label = "not memory that can be registered",
    note = "static memory: `Arena::take(&'static self)`; with feature `alloc`: `Box<[u8]>`, `Vec<u8>`, `Pages`",
    note = "borrowed memory: `unsafe BorrowedMemory::new`, which says what must hold"
)]
pub unsafe trait DmaBuf: Sized + Send + 'static {
    /// Whether the CPU sees the bytes: [`Visible`](super::Visible) but for a GPU's and the like.
    type View: View;

    /// What kind of memory it is, which decides how a provider registers it.
    fn kind(&self) -> MemoryKind {
        MemoryKind::Ordinary
    }

    /// Gives up the owner for its parts.
    fn into_raw(self) -> RawParts;

    /// Rebuilds the owner.
    ///
    /// # Safety
    /// `parts` came from `into_raw` of this type, and each is rebuilt once.
    unsafe fn from_raw(parts: RawParts) -> Self;
}

/// What kind of memory an owner has.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryKind {
    /// Registered by its address.
    Ordinary,
    /// Likewise, in huge pages, of which a device needs fewer, and which a fork may tear from it (R36, R38).
    HugePages {
        /// Bytes of one.
        bytes: usize,
        /// Whether the owner said that no fork will.
        never_forks: bool,
    },
    /// Registered by a file that names it, a dma-buf of Linux, wherever the bytes are.
    File(MemoryFile),
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinary => f.write_str("ordinary memory"),
            Self::HugePages { bytes, .. } => write!(f, "huge pages of {bytes} bytes"),
            Self::File(file) => write!(f, "a dma-buf, file {} from {:#x}", file.fd, file.offset),
        }
    }
}

/// Memory as a file names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryFile {
    /// The open file's number.
    pub fd: i32,
    /// Where in the file the first byte is.
    pub offset: u64,
    /// Where the device is to see the first byte unless [`RegisterOptions`](super::RegisterOptions) says otherwise: as far
    /// into a page as `offset` is.
    pub iova: u64,
}

/// What a [`DmaBuf`] is made of.
#[derive(Clone, Copy, Debug)]
pub struct RawParts {
    /// The first byte, for the device alone where the CPU does not see it.
    pub base: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Whatever else the owner needs to be rebuilt, a capacity for instance.
    pub extra: usize,
}

/// A [`DmaBuf`] whose type is forgotten: it drops the memory as its owner would have.
pub struct RawMemory {
    parts: RawParts,
    kind: MemoryKind,
    visible: bool,
    release: unsafe fn(RawParts),
}

// SAFETY: a `DmaBuf` is `Send`, and this is one.
unsafe impl Send for RawMemory {}

impl RawMemory {
    /// Forgets the owner's type.
    pub fn new<M: DmaBuf>(memory: M) -> Self {
        let kind = memory.kind();
        Self { parts: memory.into_raw(), kind, visible: M::View::VISIBLE, release: release::<M> }
    }

    /// What kind of memory it is.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Whether the CPU may reach the bytes: a provider that does so itself refuses what it may not with
    /// [`Error::OpaqueMemory`](crate::Error::OpaqueMemory).
    pub fn is_visible(&self) -> bool {
        self.visible
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
