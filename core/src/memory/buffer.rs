//! A buffer in flight: raw parts in a slot, in the form the device's entries want.
//!
//! Never a reference or a box: moving the slots would retag it.

#![allow(unsafe_code)]

use core::ptr::NonNull;

use super::{Mr, MrObject};

/// A buffer in flight: it holds one handle of its region, without Drop glue.
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

/// What a buffer was before it was posted, and is again afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum BufferKind {
    Slice = 0,
    Frozen = 1,
    Exposed = 2,
}

impl RawBuffer {
    pub(crate) const NONE: Self = Self { addr: 0, len: 0, lkey: 0, mr: None };

    #[inline(always)]
    pub(super) fn new(addr: u64, len: u32, mr: Mr, lkey: u32) -> Self {
        Self { addr, len, lkey, mr: Some(mr.into_raw()) }
    }

    /// The region's handle, if this is a buffer.
    ///
    /// # Safety
    /// Called once for each buffer made by [`RawBuffer::new`], copies included.
    #[inline(always)]
    pub(super) unsafe fn into_mr(self) -> Option<Mr> {
        // SAFETY: from `Mr::into_raw` in `new`, and used once by the caller's word.
        self.mr.map(|raw| unsafe { Mr::from_raw(raw) })
    }
}
