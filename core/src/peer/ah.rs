//! An address handle: one object of the provider's, counted by the handles that name it.

#![allow(unsafe_code)]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::{Ahn, Gid, PdId};

/// A counted handle to an address handle; the last one dropped destroys it.
pub struct Ah(NonNull<AhObject>);

/// An address handle as a provider keeps it: at a fixed address until `release` was called.
#[derive(Debug)]
pub struct AhObject {
    handles: AtomicUsize,
    attr: AhAttr,
    release: unsafe fn(NonNull<AhObject>),
}

/// What is known of an address handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhAttr {
    /// Its number, for entries.
    pub ahn: Ahn,
    /// Whom it reaches.
    pub gid: Gid,
    /// Its protection domain.
    pub pd: PdId,
}

impl AhObject {
    /// An object with one handle, to be claimed by [`Ah::from_object`].
    ///
    /// `release` is called when the last handle is dropped; nobody reads the object then.
    pub const fn new(attr: AhAttr, release: unsafe fn(NonNull<AhObject>)) -> Self {
        Self { handles: AtomicUsize::new(1), attr, release }
    }

    /// Counts one more handle unless the last is just being dropped; claim it by [`Ah::from_object`].
    pub fn try_count(&self) -> bool {
        self.handles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n != 0 && n < usize::MAX / 2).then(|| n + 1))
            .is_ok()
    }
}

// SAFETY: the attributes never change and the counter is atomic.
unsafe impl Send for Ah {}
// SAFETY: as above.
unsafe impl Sync for Ah {}

impl Ah {
    /// Claims a handle.
    ///
    /// # Safety
    /// One handle of `object` was counted for this, by [`AhObject::new`] or [`AhObject::try_count`], and the
    /// object stays valid at that address until `release` was called.
    pub const unsafe fn from_object(object: NonNull<AhObject>) -> Self {
        Self(object)
    }

    fn object(&self) -> &AhObject {
        // SAFETY: valid while a handle lives, and never borrowed mutably.
        unsafe { self.0.as_ref() }
    }

    /// What is known of it.
    pub fn attr(&self) -> &AhAttr {
        &self.object().attr
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if self.object().handles.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: this was the last handle.
            unsafe { (self.object().release)(self.0) }
        }
    }
}

impl fmt::Debug for Ah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ah").field(self.attr()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_handle_is_counted_of_an_address_handle_that_is_going_or_has_too_many() {
        fn keep(_: NonNull<AhObject>) {}
        let object = AhObject::new(AhAttr { ahn: Ahn(3), gid: Gid([1; 16]), pd: PdId::unique().unwrap() }, keep);
        for (handles, more) in [(0, false), (1, true), (usize::MAX / 2 - 1, true), (usize::MAX / 2, false)] {
            object.handles.store(handles, Ordering::Relaxed);
            assert_eq!(object.try_count(), more, "{handles}");
            assert_eq!(object.handles.load(Ordering::Relaxed), handles + usize::from(more));
        }
    }
}
