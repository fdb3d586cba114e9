//! A unique piece of a registered region.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::slice;

use super::{Frozen, Mr, MrAttr, Opaque, Ordered, Postable, RawBuffer, Visible};
use crate::entry::{Quad, length_and_key};
use crate::{Error, PdId, Refused};

/// A unique piece of a registered region: bytes while it is held, an operation's buffer once it is posted.
///
/// It is moved, split and rejoined, never copied. While it is posted nobody can touch the bytes, and the
/// completion gives it back (R15).
///
/// It has bytes where the CPU sees them; of other memory it has only a length.
#[must_use = "a slice that is dropped cannot be rejoined: its region can then only be dropped, not closed"]
pub struct Slice<V = Visible> {
    addr: u64,
    /// The length's lower half and the local key, as a descriptor has them.
    length_and_key: Quad,
    mr: Mr,
    /// The protection domain, and above it the length's upper half, for which no operation has room: one comparison
    /// tells that both are right.
    domain: Quad,
    view: PhantomData<fn() -> V>,
}

/// What the lower half of a quad has.
const LOWER: Quad = u32::MAX as Quad;

impl<V> Slice<V> {
    /// All of a region.
    pub(super) fn whole(mr: Mr) -> Self {
        let (addr, len) = (mr.attr().iova, mr.attr().len);
        // SAFETY: the region was just made; it has the view of its owner.
        unsafe { Self::of(mr, addr, len) }
    }

    /// # Safety
    /// No other slice has any of those bytes, and their memory has that view.
    pub(super) unsafe fn of(mr: Mr, addr: u64, len: usize) -> Self {
        let MrAttr { lkey, pd, .. } = *mr.attr();
        let empty = Self { addr, length_and_key: length_and_key(0, lkey.0), mr, domain: pd.bits(), view: PhantomData };
        empty.of_length(len)
    }

    /// As [`Slice::of`], with the words of a descriptor.
    ///
    /// # Safety
    /// As there; the key is the region's.
    #[inline(always)]
    pub(super) unsafe fn posted(mr: Mr, addr: u64, length_and_key: Quad) -> Self {
        let domain = mr.attr().pd.bits();
        Self { addr, length_and_key, mr, domain, view: PhantomData }
    }

    fn of_length(self, len: usize) -> Self {
        let length_and_key = self.length_and_key & !LOWER | len as Quad & LOWER;
        let domain = self.domain & LOWER | len as Quad & !LOWER;
        Self { length_and_key, domain, ..self }
    }

    /// Two pieces, the first of `mid` bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is beyond the end, with the slice.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self), Refused<Self>> {
        let Some(rest) = self.len().checked_sub(mid) else {
            let error = Error::OutOfBounds { offset: mid as u64, len: 0, within: self.len() as u64 };
            return Err(Refused::new(self, error));
        };
        let tail = Self { addr: self.addr + mid as u64, mr: self.mr.clone(), ..self };
        Ok((self.of_length(mid), tail.of_length(rest)))
    }

    /// One piece again, of two that follow each other in this order.
    ///
    /// # Errors
    /// [`Error::NotAdjacent`] if they do not, with both.
    pub fn unsplit(self, next: Self) -> Result<Self, Refused<(Self, Self)>> {
        if self.is_followed_by(&next) {
            let len = self.len() + next.len();
            return Ok(self.of_length(len));
        }
        Err(Refused::new((self, next), Error::NotAdjacent))
    }

    /// Whether `next` starts where this ends, in the same region.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.mr.is(&next.mr) && self.addr + self.len() as u64 == next.addr
    }

    /// Bytes of its region before the first of these.
    pub fn offset(&self) -> usize {
        (self.addr - self.mr.attr().iova) as usize
    }

    /// Bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        (self.length_and_key & LOWER | self.domain & !LOWER) as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The protection domain it is registered in.
    pub fn pd(&self) -> PdId {
        PdId::in_bits(self.domain)
    }

    /// The lower half of its length.
    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        self.length_and_key as u32
    }

    /// 0 if it is of that domain and its length has 32 bits.
    #[inline(always)]
    pub(crate) fn differs(&self, pd: PdId) -> Quad {
        self.domain ^ pd.bits()
    }

    #[inline(always)]
    pub(super) fn mr(&self) -> &Mr {
        &self.mr
    }

    #[inline(always)]
    pub(super) fn addr(&self) -> u64 {
        self.addr
    }

    /// Its region's local key.
    #[cfg(test)]
    pub(crate) fn raw_key(&self) -> u32 {
        (self.length_and_key >> 32) as u32
    }

    /// The form in flight; the length was checked to fit.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> RawBuffer {
        RawBuffer::new(self.addr, self.length_and_key, self.mr)
    }

    fn seen_as<W>(self) -> Slice<W> {
        let Self { addr, length_and_key, mr, domain, view: _ } = self;
        Slice { addr, length_and_key, mr, domain, view: PhantomData }
    }
}

impl<V: Postable> Slice<V> {
    /// As a completion would give it back: one that is [`Ordered`] as [`Opaque`] memory.
    pub fn unposted(self) -> Slice<V::Done> {
        self.seen_as()
    }
}

impl Slice<Opaque> {
    /// Takes it for memory that can be posted.
    ///
    /// # Safety
    /// Until the completion nobody but the device writes what is sent, or reads or writes what is received into:
    /// kernels of a GPU that do so were waited for, and none is launched. Nothing undefined happens here if one does,
    /// but what arrives, or what the other computes, is garbage.
    pub unsafe fn assume_ordered(self) -> Slice<Ordered> {
        self.seen_as()
    }
}

impl Slice {
    /// A form that many operations can send at once and none can write.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if the region has [`FROZEN_RANGES`](super::FROZEN_RANGES) frozen ranges already,
    /// with the slice.
    pub fn freeze(self) -> Result<Frozen, Refused<Self>> {
        Frozen::new(self)
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let attr = self.mr.attr();
        // SAFETY: a slice is within its region, so the offset is too.
        let first = unsafe { attr.base.as_ptr().add((self.addr - attr.iova) as usize) };
        // SAFETY: initialised by `DmaBuf`'s contract; these bytes are this slice's alone and it is not in flight.
        unsafe { slice::from_raw_parts(first, self.len()) }
    }
}

impl DerefMut for Slice {
    fn deref_mut(&mut self) -> &mut [u8] {
        let attr = self.mr.attr();
        // SAFETY: a slice is within its region, so the offset is too.
        let first = unsafe { attr.base.as_ptr().add((self.addr - attr.iova) as usize) };
        // SAFETY: as above, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(first, self.len()) }
    }
}

impl<V> fmt::Debug for Slice<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice {{ addr: {:#x}, len: {}, {} }}", self.addr, self.len(), self.pd())
    }
}

static_assertions::assert_not_impl_any!(Slice: Clone, Copy);
static_assertions::assert_not_impl_any!(Slice<Opaque>: Clone, Copy, Deref);
static_assertions::assert_not_impl_any!(Slice<super::Coherent>: Clone, Copy, Deref);
static_assertions::assert_not_impl_any!(Slice<Ordered>: Clone, Copy, Deref);
static_assertions::assert_impl_all!(Slice: Send, Sync);
