//! Buffers in flight: raw parts in a slot, in the form the device's entries want.
//!
//! Never a reference or a box: moving the slots would retag it.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use super::{Coherent, ExposedPart, Frozen, Mr, MrObject, Opaque, Slice, View};
use crate::entry::Quad;

/// What an operation was given and its completion gives back.
#[derive(Debug)]
pub enum Buffer {
    /// A unique slice.
    Slice(Slice),
    /// A handle of a frozen slice.
    Frozen(Frozen),
    /// A part of exposed memory.
    Exposed(ExposedPart),
    /// A unique slice of memory that the CPU does not see.
    Opaque(Slice<Opaque>),
    /// A part of exposed memory that the CPU does not see.
    OpaqueExposed(ExposedPart<Opaque>),
    /// A unique slice of memory that the CPU does not see, and for which nobody is waited.
    Coherent(Slice<Coherent>),
    /// A part of such memory, exposed.
    CoherentExposed(ExposedPart<Coherent>),
}

/// The buffers of one operation: none, one or two.
///
/// They stay in their raw form until they are taken, so that an event is small.
#[must_use = "these are the operation's buffers: dropped slices cannot be rejoined"]
pub struct Buffers {
    /// Only those that the tag says there are.
    raw: [RawBuffer; 2],
    tag: Tag,
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
    pub(crate) unsafe fn from_raw(raw: [RawBuffer; 2], tag: Tag) -> Self {
        Self { raw, tag }
    }

    /// Takes the next unique slice out, first to last.
    #[inline]
    pub fn take_slice(&mut self) -> Option<Slice> {
        self.take()
    }

    /// The slice of an operation that had one buffer; of two, the first, and the second is dropped.
    #[inline]
    pub fn into_slice(self) -> Option<Slice> {
        let this = ManuallyDrop::new(self);
        // Raw until the end: two ways to a slice would meet in memory.
        let raw = if this.tag == Tag::one(BufferKind::SLICE) {
            this.raw[0]
        } else {
            ManuallyDrop::into_inner(this).into_first_slice()?.into_raw()
        };
        // SAFETY: as in `take`, and nothing else is dropped; or just made of a slice.
        Some(unsafe { raw.into_slice() })
    }

    /// Apart, or its registers are saved where nothing of it is needed.
    #[cold]
    #[inline(never)]
    fn into_first_slice(mut self) -> Option<Slice> {
        self.take_slice()
    }

    /// Takes the next unique slice of memory that the CPU does not see out, first to last.
    pub fn take_opaque(&mut self) -> Option<Slice<Opaque>> {
        self.take()
    }

    /// Takes the next unique slice of [`Coherent`] memory out, first to last.
    pub fn take_coherent(&mut self) -> Option<Slice<Coherent>> {
        self.take()
    }

    #[inline(always)]
    fn take<V: View>(&mut self) -> Option<Slice<V>> {
        let (raw, rest) = match (self.tag.first(), self.tag.second()) {
            (first, _) if first == V::SLICE => (self.raw[0], self.tag.without_first()),
            (_, second) if second == V::SLICE => (self.raw[1], self.tag.without_second()),
            _ => return None,
        };
        self.tag = rest;
        // SAFETY: of an operation that is in flight no more, by `from_raw`, and there once: the tag said that it is of
        // that view, and says so no more.
        Some(unsafe { raw.into_slice() })
    }

    /// The slice of an operation that had one buffer, if it is one of that view.
    #[inline]
    pub(crate) fn into_slice_of<V: View>(self) -> Option<Slice<V>> {
        if self.tag != Tag::one(V::SLICE) {
            return None;
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: as in `take`; nothing is dropped here.
        Some(unsafe { this.raw[0].into_slice() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.tag.has_first()) + usize::from(self.tag.has_second())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tag == Tag::NONE
    }

    /// Their bytes, all together.
    #[inline]
    pub fn bytes(&self) -> usize {
        let [first, second] = &self.raw;
        let first = if self.tag.has_first() { first.len() as usize } else { 0 };
        if self.tag.has_second() { first + second.len() as usize } else { first }
    }

    #[inline(always)]
    fn take_first(&mut self) -> Option<Buffer> {
        let kind = self.tag.first();
        self.tag = self.tag.without_first();
        // SAFETY: of an operation that is in flight no more, by `from_raw`, and there once: the tag says so no more.
        unsafe { self.raw[0].into_buffer(kind) }
    }

    #[inline(always)]
    fn take_second(&mut self) -> Option<Buffer> {
        let kind = self.tag.second();
        self.tag = self.tag.without_second();
        // SAFETY: as above.
        unsafe { self.raw[1].into_buffer(kind) }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self { raw: [RawBuffer::NONE; 2], tag: Tag::NONE }
    }
}

impl Iterator for Buffers {
    type Item = Buffer;

    fn next(&mut self) -> Option<Buffer> {
        self.take_first().or_else(|| self.take_second())
    }
}

impl Drop for Buffers {
    #[inline]
    fn drop(&mut self) {
        if self.tag != Tag::NONE {
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
            Self::Opaque(slice) => slice.len(),
            Self::OpaqueExposed(part) => part.len(),
            Self::Coherent(slice) => slice.len(),
            Self::CoherentExposed(part) => part.len(),
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
    /// Bytes and local key, as a descriptor of the send queue has them.
    pub(crate) length_and_key: Quad,
    /// Dangling where there is no buffer.
    mr: NonNull<MrObject>,
}

/// What a buffer was before it was posted, and is again afterwards: four bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BufferKind(u8);

impl BufferKind {
    /// There is none.
    const NONE: Self = Self(0);
    pub(crate) const SLICE: Self = Self(1);
    pub(crate) const EXPOSED: Self = Self(2);
    pub(crate) const OPAQUE: Self = Self(3);
    pub(crate) const OPAQUE_EXPOSED: Self = Self(4);
    pub(crate) const COHERENT: Self = Self(5);
    pub(crate) const COHERENT_EXPOSED: Self = Self(6);
    const FROZEN: u8 = 8;

    pub(crate) const fn frozen(range: u8) -> Self {
        Self(Self::FROZEN | range)
    }
}

/// What an operation's buffers are, and so how many: what stands in the place of one that is not there means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag(u8);

impl Tag {
    pub(crate) const NONE: Self = Self::two(BufferKind::NONE, BufferKind::NONE);

    #[inline(always)]
    pub(crate) const fn one(kind: BufferKind) -> Self {
        Self::two(kind, BufferKind::NONE)
    }

    #[inline(always)]
    pub(crate) const fn two(first: BufferKind, second: BufferKind) -> Self {
        Self(first.0 | second.0 << 4)
    }

    #[inline(always)]
    const fn first(self) -> BufferKind {
        BufferKind(self.0 & 0xF)
    }

    #[inline(always)]
    const fn second(self) -> BufferKind {
        BufferKind(self.0 >> 4)
    }

    #[inline(always)]
    pub(crate) const fn has_first(self) -> bool {
        self.0 & 0xF != 0
    }

    #[inline(always)]
    pub(crate) const fn has_second(self) -> bool {
        self.0 >> 4 != 0
    }

    #[inline(always)]
    const fn without_first(self) -> Self {
        Self(self.0 & 0xF0)
    }

    #[inline(always)]
    const fn without_second(self) -> Self {
        Self(self.0 & 0xF)
    }
}

impl RawBuffer {
    pub(crate) const NONE: Self = Self { addr: 0, length_and_key: 0, mr: NonNull::dangling() };

    #[inline(always)]
    pub(super) fn new(addr: u64, length_and_key: Quad, mr: Mr) -> Self {
        Self { addr, length_and_key, mr: mr.into_raw() }
    }

    /// The slice that was posted.
    ///
    /// # Safety
    /// It was one of that view, and is in flight no more, and this is used once, copies included.
    #[inline(always)]
    unsafe fn into_slice<V: View>(self) -> Slice<V> {
        // SAFETY: from `Mr::into_raw` in `new`, and used once by the caller's word.
        let mr = unsafe { Mr::from_raw(self.mr) };
        // SAFETY: these are the bytes of the slice that was posted, used once.
        unsafe { Slice::posted(mr, self.addr, self.length_and_key) }
    }

    /// Bytes.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.length_and_key as u32
    }

    /// What was posted.
    ///
    /// # Safety
    /// `kind` is that of this buffer, which is in flight no more, and each is used once, copies included; or it says
    /// that there is none.
    #[inline(always)]
    unsafe fn into_buffer(self, kind: BufferKind) -> Option<Buffer> {
        if kind == BufferKind::NONE {
            return None;
        }
        if kind == BufferKind::SLICE {
            // SAFETY: by the caller's word.
            return Some(Buffer::Slice(unsafe { self.into_slice() }));
        }
        if kind == BufferKind::OPAQUE {
            // SAFETY: likewise.
            return Some(Buffer::Opaque(unsafe { self.into_slice() }));
        }
        if kind == BufferKind::COHERENT {
            // SAFETY: likewise.
            return Some(Buffer::Coherent(unsafe { self.into_slice() }));
        }
        // SAFETY: from `Mr::into_raw` in `new`, and used once by the caller's word.
        let mr = unsafe { Mr::from_raw(self.mr) };
        let len = self.len() as usize;
        Some(match kind {
            BufferKind::EXPOSED => Buffer::Exposed(ExposedPart::of(mr, self.addr, len)),
            BufferKind::OPAQUE_EXPOSED => Buffer::OpaqueExposed(ExposedPart::of(mr, self.addr, len)),
            BufferKind::COHERENT_EXPOSED => Buffer::CoherentExposed(ExposedPart::of(mr, self.addr, len)),
            // SAFETY: the parts of the frozen handle that was posted, used once.
            BufferKind(frozen) => Buffer::Frozen(unsafe { Frozen::from_raw(mr, self.addr, len, frozen & 7) }),
        })
    }
}
