//! A registered region for local use.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;

use super::{DmaBuf, Mr, MrAttr, Slice};
use crate::flags::Access;
use crate::provider::MrInit;
use crate::{Error, Refused};

/// A registered region: it gives the memory back when all of it is together again.
///
/// Dropping it, in whatever order with its slices, is sound: the last handle deregisters and frees.
pub struct Region<M> {
    mr: Mr,
    owner: PhantomData<fn() -> M>,
}

/// A region, and the slice of all of it.
pub type Registered<M> = (Region<M>, Slice<<M as DmaBuf>::View>);

impl<M: DmaBuf> Region<M> {
    /// A region and the slice of all of it.
    pub(crate) fn new(mr: Mr) -> Registered<M> {
        let whole = Slice::whole(mr.clone());
        (Self { mr, owner: PhantomData }, whole)
    }

    /// Deregisters and gives the memory back. `whole` proves that nothing is out.
    ///
    /// # Errors
    /// [`Error::NotWhole`] if the slice is not all of this region, [`Error::RegionInUse`] if an empty slice
    /// or an empty part is still held, or what the device answered; with both.
    pub fn close(self, whole: Slice<M::View>) -> Result<M, Refused<Registered<M>>> {
        let len = self.len();
        if !self.mr.is(whole.mr()) || whole.len() != len {
            let error = Error::NotWhole { has: whole.len() as u64, needs: len as u64 };
            return Err(Refused::new((self, whole), error));
        }
        // The region's handle and the slice's.
        match self.mr.deregister(2) {
            Ok(memory) => {
                core::mem::forget(whole);
                // SAFETY: registered from an `M`, which the type has carried since.
                Ok(unsafe { memory.into_owner::<M>() })
            }
            Err((mr, error)) => Err(Refused::new((Self { mr, owner: PhantomData }, whole), error)),
        }
    }

    /// Whether a slice is of this region.
    pub fn has(&self, slice: &Slice<M::View>) -> bool {
        self.mr.is(slice.mr())
    }

    /// What is known of it: where it is, and its keys.
    pub fn attr(&self) -> &MrAttr {
        self.mr.attr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.mr.attr().len
    }

    /// Never: the device refuses an empty region (R37).
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl<M> fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Region").field(self.mr.attr()).finish()
    }
}

/// How memory is registered, beyond the defaults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegisterOptions {
    relaxed_ordering: bool,
    read_only: bool,
    iova: Option<u64>,
}

impl RegisterOptions {
    /// The defaults: strict PCIe ordering, and the address that the owner of the memory knows it by.
    pub const fn new() -> Self {
        Self { relaxed_ordering: false, read_only: false, iova: None }
    }

    /// The address that the device and peers know the first byte by. It is as far into a page as the memory is
    /// ([`Error::PageOffset`]); nothing else is asked of it, not even that it differs from other regions'.
    pub const fn iova(mut self, iova: u64) -> Self {
        self.iova = Some(iova);
        self
    }

    /// Has the device only read the memory: what is received or read into it fails by its completion, and nothing is written (R15).
    /// Peers that may write it do so all the same.
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Lets the device's writes to this memory pass one another on PCIe.
    ///
    /// It voids what little order there was: until the completion of an operation was read, no byte of it
    /// says anything about another, not even within 128 bytes, and nothing may be learnt by watching memory.
    /// Code that reads after completions only, as this crate's types demand, is unaffected.
    pub const fn relaxed_ordering(mut self) -> Self {
        self.relaxed_ordering = true;
        self
    }

    pub(crate) fn init(self, rights: Access, shared: bool) -> MrInit {
        let rights = if self.read_only { rights.difference(Access::LOCAL_WRITE) } else { rights };
        let access = if self.relaxed_ordering { rights | Access::RELAXED_ORDERING } else { rights };
        MrInit { access, iova: self.iova, shared }
    }
}

/// The range of `len` bytes at `offset`, if it is within `within` bytes.
pub(super) fn check_range(offset: usize, len: usize, within: usize) -> Result<(), Error> {
    if offset.checked_add(len).is_some_and(|end| end <= within) {
        return Ok(());
    }
    Err(Error::OutOfBounds { offset: offset as u64, len: len as u64, within: within as u64 })
}

/// The bytes of `range`, if it runs forward and is within `within` bytes.
pub(super) fn range_len(range: &Range<usize>, within: usize) -> Result<usize, Error> {
    match range.end.checked_sub(range.start) {
        Some(len) if range.end <= within => Ok(len),
        _ => {
            let len = range.end.saturating_sub(range.start) as u64;
            Err(Error::OutOfBounds { offset: range.start as u64, len, within: within as u64 })
        }
    }
}
