//! A registered region: one object of the provider's, counted by the handles that name it.
//!
//! The count is intrusive, so that core needs no allocator and handles do not name the provider: whoever
//! drops the last handle deregisters and releases the memory.

#![allow(unsafe_code)]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use super::RawMemory;
use super::frozen::{FROZEN_RANGES, FrozenRange};
use crate::flags::Access;
use crate::{Error, LKey, PdId, RKey};

/// A counted handle to a registered region; the last one dropped deregisters it.
pub struct Mr(NonNull<MrObject>);

/// A registered region as a provider keeps it: at a fixed address until `deregister` returned `Ok`.
#[derive(Debug)]
pub struct MrObject {
    handles: AtomicUsize,
    frozen: [FrozenRange; FROZEN_RANGES],
    attr: MrAttr,
    deregister: Deregister,
}

/// How a provider deregisters a region.
pub type Deregister = unsafe fn(NonNull<MrObject>, Release) -> Result<RawMemory, Error>;

/// Why a region is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Somebody asked, and keeps the region if it fails.
    Asked,
    /// The last handle was dropped: nobody will try again, so a failure is a leak, to be counted.
    Dropped,
}

/// What is known of a registered region.
#[derive(Clone, Copy, Debug)]
pub struct MrAttr {
    /// Where the CPU sees the first byte.
    pub base: NonNull<u8>,
    /// Bytes, at least one (R37).
    pub len: usize,
    /// Where the device sees the first byte.
    pub iova: u64,
    /// For local use, 24 bits (R13).
    pub lkey: LKey,
    /// For peers.
    pub rkey: RKey,
    /// Its protection domain.
    pub pd: PdId,
    /// Its rights.
    pub access: Access,
}

impl MrObject {
    /// An object with one handle, to be claimed by [`Mr::from_object`].
    ///
    /// `deregister` succeeds at most once, when no other handle is left; after `Ok` nobody reads the object.
    /// If it fails the object stays as it is, and on [`Release::Dropped`] the provider counts a leak.
    pub const fn new(attr: MrAttr, deregister: Deregister) -> Self {
        Self { handles: AtomicUsize::new(1), frozen: [FrozenRange::NONE; FROZEN_RANGES], attr, deregister }
    }
}

// SAFETY: the attributes never change, the counters are atomic, and the memory is `Send`.
unsafe impl Send for Mr {}
// SAFETY: as above; a shared handle only reads attributes and counts.
unsafe impl Sync for Mr {}

impl Mr {
    /// Claims a new object's handle.
    ///
    /// # Safety
    /// `object` was just made by [`MrObject::new`], is claimed once, and stays valid at that address until
    /// its `deregister` returned `Ok`. The pointer may be used for whatever `deregister` makes of it.
    pub const unsafe fn from_object(object: NonNull<MrObject>) -> Self {
        Self(object)
    }

    pub(super) fn object(&self) -> &MrObject {
        // SAFETY: valid while a handle lives, and never borrowed mutably.
        unsafe { self.0.as_ref() }
    }

    /// What is known of the region.
    #[inline(always)]
    pub fn attr(&self) -> &MrAttr {
        &self.object().attr
    }

    pub(super) fn frozen(&self) -> &[FrozenRange; FROZEN_RANGES] {
        &self.object().frozen
    }

    /// Handles that name the region.
    pub(super) fn handles(&self) -> usize {
        self.object().handles.load(Ordering::Acquire)
    }

    /// The same region.
    #[inline(always)]
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Takes the handle apart; [`Mr::from_raw`] is its inverse.
    #[inline(always)]
    pub(super) fn into_raw(self) -> NonNull<MrObject> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` came from [`Mr::into_raw`], and each is used once.
    #[inline(always)]
    pub(super) unsafe fn from_raw(raw: NonNull<MrObject>) -> Self {
        Self(raw)
    }

    /// Deregisters now, when `self` is one of `expected` handles and the caller forgets the others.
    pub(super) fn deregister(self, expected: usize) -> Result<RawMemory, (Self, Error)> {
        let handles = self.handles();
        if handles != expected {
            return Err((self, Error::RegionInUse { handles: handles.saturating_sub(expected) }));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the caller holds all handles, so nobody else can use the object.
        match unsafe { (this.object().deregister)(this.0, Release::Asked) } {
            Ok(memory) => Ok(memory),
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }
}

impl Clone for Mr {
    fn clone(&self) -> Self {
        let before = self.object().handles.fetch_add(1, Ordering::Relaxed);
        // So many handles exist only if most were forgotten. A count that wrapped would free memory in use;
        // one that stays far above zero leaks it instead.
        if before > usize::MAX / 2 {
            self.object().handles.store(usize::MAX / 4 * 3, Ordering::Relaxed);
        }
        Self(self.0)
    }
}

/// # Safety
/// The last handle was just dropped.
#[cold]
#[inline(never)]
unsafe fn release(object: NonNull<MrObject>) {
    fence(Ordering::Acquire);
    // SAFETY: valid until it is released, which is done here.
    let deregister = unsafe { object.as_ref() }.deregister;
    // SAFETY: by the caller's word; a failure leaves the object alive and is counted by the provider.
    let _ = unsafe { deregister(object, Release::Dropped) };
}

impl Drop for Mr {
    #[inline]
    fn drop(&mut self) {
        if self.object().handles.fetch_sub(1, Ordering::Release) == 1 {
            // SAFETY: this was the last handle.
            unsafe { release(self.0) };
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mr").field(self.attr()).finish()
    }
}

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    use super::*;
    use crate::soft::{Profile, pair};

    #[test]
    fn handles_of_which_half_of_all_numbers_were_forgotten_leak_the_region_rather_than_wrap() {
        let (side, _other) = pair(Profile::RDMA).unwrap();
        let (region, slice) = side.pd.register(std::vec![7u8; 64]).unwrap();
        let handles = &slice.mr().object().handles;
        let (before, half) = (handles.load(Ordering::Relaxed), usize::MAX / 2);
        for (had, has) in [(half - 1, half), (half, half + 1), (half + 1, usize::MAX / 4 * 3)] {
            handles.store(had, Ordering::Relaxed);
            core::mem::forget(slice.mr().clone());
            assert_eq!(handles.load(Ordering::Relaxed), has);
        }
        handles.store(before, Ordering::Relaxed);
        assert_eq!(region.close(slice).unwrap(), [7; 64]);
    }
}
