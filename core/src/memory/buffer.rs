//! Buffers in flight: raw parts in a slot, in the form the device's entries want.
//!
//! Never a reference or a box: moving the slots would retag it.

#![allow(unsafe_code)]

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
#[must_use = "these are the operation's buffers: dropped slices cannot be rejoined"]
#[derive(Debug, Default)]
pub struct Buffers([Option<Buffer>; 2]);

impl Buffers {
    /// Takes the next unique slice out, first to last.
    pub fn take_slice(&mut self) -> Option<Slice> {
        for place in &mut self.0 {
            match place.take() {
                Some(Buffer::Slice(slice)) => return Some(slice),
                other => *place = other,
            }
        }
        None
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their bytes, all together.
    pub fn bytes(&self) -> usize {
        self.0.iter().flatten().map(Buffer::len).sum()
    }
}

impl IntoIterator for Buffers {
    type Item = Buffer;
    type IntoIter = core::iter::Flatten<core::array::IntoIter<Option<Buffer>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
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

impl Buffers {
    /// What was posted with `tag`.
    ///
    /// # Safety
    /// `raw` and `tag` are of one operation, in flight no more, and used once, copies included.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: [RawBuffer; 2], tag: u8) -> Self {
        // SAFETY: the first of that operation, by the caller's word.
        let first = unsafe { raw[0].into_buffer(BufferKind(tag & 0xF)) };
        // SAFETY: the second, likewise.
        let second = unsafe { raw[1].into_buffer(BufferKind(tag >> 4)) };
        Self([first, second])
    }
}
