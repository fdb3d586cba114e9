//! Buffers in flight: raw parts in a slot, in the form the device's entries want.
//!
//! Never a reference or a box: moving the slots would retag it.

#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;

use super::{ExposedPart, Frozen, Mr, MrObject, Slice};

/// What an operation was given and its completion gives back.
#[derive(Debug)]
pub enum Buffer {
    /// A unique slice.
    Slice(Slice),
    /// A handle of a frozen slice.
    Frozen(Frozen),
    /// A part of exposed memory.
    Exposed(ExposedPart),
}

/// The buffers of one operation: none, one or two.
///
/// They stay in their raw form until they are taken, so that an event is small.
#[must_use = "these are the operation's buffers: dropped slices cannot be rejoined"]
pub struct Buffers {
    raw: [RawBuffer; 2],
    tag: u8,
}

// SAFETY: it owns handles of regions and ranges, which are `Send`.
unsafe impl Send for Buffers {}
// SAFETY: shared, it only tells lengths.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// What was posted with `tag`.
    ///
    /// # Safety
    /// `raw` and `tag` are of one operation, in flight no more, and used once, copies included.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: [RawBuffer; 2], tag: u8) -> Self {
        Self { raw, tag }
    }

    /// Takes the next unique slice out, first to last.
    #[inline]
    pub fn take_slice(&mut self) -> Option<Slice> {
        let is_slice =
            |(index, raw): (usize, &RawBuffer)| (raw.mr.is_some() && self.kind(index).0 == 0).then_some(index);
        let index = self.raw.iter().enumerate().find_map(is_slice)?;
        match self.take(index)? {
            Buffer::Slice(slice) => Some(slice),
            _ => None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.raw.iter().filter(|raw| raw.mr.is_some()).count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their bytes, all together.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.raw.iter().map(|raw| raw.len as usize).sum()
    }

    #[inline(always)]
    fn kind(&self, index: usize) -> BufferKind {
        BufferKind(if index == 0 { self.tag & 0xF } else { self.tag >> 4 })
    }

    #[inline(always)]
    fn take(&mut self, index: usize) -> Option<Buffer> {
        let kind = self.kind(index);
        let raw = core::mem::replace(self.raw.get_mut(index)?, RawBuffer::NONE);
        // SAFETY: of an operation that is in flight no more, by `from_raw`, and taken out of its place.
        unsafe { raw.into_buffer(kind) }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self { raw: [RawBuffer::NONE; 2], tag: 0 }
    }
}

impl Iterator for Buffers {
    type Item = Buffer;

    fn next(&mut self) -> Option<Buffer> {
        self.take(0).or_else(|| self.take(1))
    }
}

impl Drop for Buffers {
    #[inline]
    fn drop(&mut self) {
        if self.raw.iter().any(|raw| raw.mr.is_some()) {
            self.for_each(drop);
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffers {{ buffers: {}, bytes: {} }}", self.len(), self.bytes())
    }
}

impl Buffer {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Frozen(frozen) => frozen.len(),
            Self::Exposed(part) => part.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A buffer in flight: it holds its handles, without Drop glue.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawBuffer {
    /// Device address.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// Local key.
    pub(crate) lkey: u32,
    mr: Option<NonNull<MrObject>>,
}

/// What a buffer was before it was posted, and is again afterwards: four bits of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferKind(u8);

impl BufferKind {
    pub(crate) const SLICE: Self = Self(0);
    pub(crate) const EXPOSED: Self = Self(1);
    const FROZEN: u8 = 8;

    pub(crate) const fn frozen(range: u8) -> Self {
        Self(Self::FROZEN | range)
    }

    /// The tag of an operation with these two buffers.
    pub(crate) const fn tag(first: Self, second: Self) -> u8 {
        first.0 | second.0 << 4
    }
}

impl RawBuffer {
    pub(crate) const NONE: Self = Self { addr: 0, len: 0, lkey: 0, mr: None };

    #[inline(always)]
    pub(super) fn new(addr: u64, len: u32, mr: Mr, lkey: u32) -> Self {
        Self { addr, len, lkey, mr: Some(mr.into_raw()) }
    }

    /// What was posted.
    ///
    /// # Safety
    /// `kind` is that of this buffer, which is in flight no more, and each is used once, copies included.
    #[inline(always)]
    unsafe fn into_buffer(self, kind: BufferKind) -> Option<Buffer> {
        let raw = self.mr?;
        // SAFETY: from `Mr::into_raw` in `new`, and used once by the caller's word.
        let mr = unsafe { Mr::from_raw(raw) };
        let len = self.len as usize;
        Some(match kind {
            // SAFETY: these are the bytes of the slice that was posted, used once.
            BufferKind::SLICE => Buffer::Slice(unsafe { Slice::of(mr, self.addr, len) }),
            BufferKind::EXPOSED => Buffer::Exposed(ExposedPart::of(mr, self.addr, len)),
            // SAFETY: the parts of the frozen handle that was posted, used once.
            BufferKind(frozen) => Buffer::Frozen(unsafe { Frozen::from_raw(mr, self.addr, len, frozen & 7) }),
        })
    }
}
