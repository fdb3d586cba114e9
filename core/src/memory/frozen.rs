//! A slice that several operations send at once.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::{Deref, Range};
use core::slice;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::region::range_len;
use super::{Mr, RawBuffer, Slice};
use crate::entry::length_and_key;
use crate::error::Limit;
use crate::{Error, LKey, PdId, Refused};

/// How many ranges of one region can be frozen at the same time.
pub const FROZEN_RANGES: usize = 8;

/// A shared piece of a region: everybody may read it, operations included, and nobody may write it until
/// the last handle [thaws](Frozen::thaw).
pub struct Frozen {
    addr: u64,
    len: usize,
    mr: Mr,
    lkey: LKey,
    pd: PdId,
    range: u8,
}

/// One frozen range of a region, as the region keeps it.
#[derive(Debug)]
pub(super) struct FrozenRange {
    handles: AtomicUsize,
    offset: AtomicUsize,
    len: AtomicUsize,
}

impl FrozenRange {
    #[allow(clippy::declare_interior_mutable_const)] // each region starts with its own
    pub(super) const NONE: Self =
        Self { handles: AtomicUsize::new(0), offset: AtomicUsize::new(0), len: AtomicUsize::new(0) };
}

impl Frozen {
    pub(super) fn new(slice: Slice) -> Result<Self, Refused<Slice>> {
        let ranges = slice.mr().frozen();
        let vacant = ranges
            .iter()
            .position(|range| range.handles.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok());
        let Some(index) = vacant else {
            let error = Error::Exhausted { what: Limit::FrozenRanges, limit: FROZEN_RANGES as u64 };
            return Err(Refused::new(slice, error));
        };
        let attr = *slice.mr().attr();
        if let Some(range) = ranges.get(index) {
            range.offset.store((slice.addr() - attr.iova) as usize, Ordering::Relaxed);
            range.len.store(slice.len(), Ordering::Relaxed);
        }
        Ok(Self {
            addr: slice.addr(),
            len: slice.len(),
            mr: slice.mr().clone(),
            lkey: attr.lkey,
            pd: attr.pd,
            range: index as u8,
        })
    }

    fn range(&self) -> &FrozenRange {
        // The index came from `position` over the same array.
        &self.mr.frozen()[usize::from(self.range) % FROZEN_RANGES]
    }

    /// A part of it, which keeps all of it frozen.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<usize>) -> Result<Self, Error> {
        let len = range_len(&range, self.len)?;
        let mut part = self.clone();
        part.addr += range.start as u64;
        part.len = len;
        Ok(part)
    }

    /// The slice that was frozen, all of it, if this is the last handle.
    ///
    /// # Errors
    /// [`Error::RegionInUse`] with the number of other handles, those of operations in flight included.
    pub fn thaw(self) -> Result<Slice, Refused<Self>> {
        let range = self.range();
        // The only handle: nobody else can clone or drop one, so the count stays.
        let handles = range.handles.load(Ordering::Acquire);
        if handles != 1 {
            return Err(Refused::new(self, Error::RegionInUse { handles: handles.saturating_sub(1) }));
        }
        let addr = self.mr.attr().iova + range.offset.load(Ordering::Relaxed) as u64;
        let len = range.len.load(Ordering::Relaxed);
        // SAFETY: these are the bytes of the slice that was frozen, and `self`, dropped below, is the last
        // handle of it.
        Ok(unsafe { Slice::of(self.mr.clone(), addr, len) })
    }

    /// The protection domain it is registered in.
    pub fn pd(&self) -> PdId {
        self.pd
    }

    /// The lower half of its length.
    pub(crate) fn length(&self) -> u32 {
        self.len as u32
    }

    /// 0 if it is of that domain and its length has 32 bits.
    pub(crate) fn differs(&self, pd: PdId) -> u64 {
        self.pd.bits() ^ pd.bits() | self.len as u64 >> 32
    }

    /// The form in flight and the range's index; the length was checked to fit.
    pub(crate) fn into_raw(self) -> (RawBuffer, u8) {
        let range = self.range;
        // The handle of the range lives on in the raw form.
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never used or dropped again, so the region's handle moves out once.
        let mr = unsafe { core::ptr::read(&this.mr) };
        (RawBuffer::new(this.addr, length_and_key(this.len as u32, this.lkey.0), mr), range)
    }

    /// # Safety
    /// The parts are those of [`Frozen::into_raw`], used once.
    pub(super) unsafe fn from_raw(mr: Mr, addr: u64, len: usize, range: u8) -> Self {
        let attr = *mr.attr();
        Self { addr, len, mr, lkey: attr.lkey, pd: attr.pd, range }
    }
}

impl Clone for Frozen {
    fn clone(&self) -> Self {
        let before = self.range().handles.fetch_add(1, Ordering::Relaxed);
        // As for the region's own count: one that wrapped would thaw what others still read.
        if before > usize::MAX / 2 {
            self.range().handles.store(usize::MAX / 4 * 3, Ordering::Relaxed);
        }
        Self { addr: self.addr, len: self.len, mr: self.mr.clone(), lkey: self.lkey, pd: self.pd, range: self.range }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.range().handles.fetch_sub(1, Ordering::Release);
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let attr = self.mr.attr();
        // SAFETY: the range is within its region.
        let first = unsafe { attr.base.as_ptr().add((self.addr - attr.iova) as usize) };
        // SAFETY: initialised by `DmaBuf`'s contract; no slice of these bytes exists while a handle does, and
        // operations in flight only read them.
        unsafe { slice::from_raw_parts(first, self.len) }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen {{ addr: {:#x}, len: {}, {} }}", self.addr, self.len, self.pd)
    }
}

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    use super::*;
    use crate::soft::{Profile, pair};

    #[test]
    fn handles_of_which_half_of_all_numbers_were_forgotten_never_thaw_rather_than_wrap() {
        let (side, _other) = pair(Profile::RDMA).unwrap();
        let (_region, slice) = side.pd.register(std::vec![7u8; 64]).unwrap();
        let frozen = slice.freeze().unwrap();
        let (handles, half) = (&frozen.range().handles, usize::MAX / 2);
        for (had, has) in [(half - 1, half), (half, half + 1), (half + 1, usize::MAX / 4 * 3)] {
            handles.store(had, Ordering::Relaxed);
            let clone = frozen.clone();
            assert_eq!(handles.load(Ordering::Relaxed), has);
            drop(clone);
        }
        handles.store(1, Ordering::Relaxed);
        assert_eq!(frozen.thaw().unwrap()[..], [7; 64]);
    }
}
