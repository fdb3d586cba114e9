//! Memory that peers may read or write by RDMA.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::Ordering;

use super::region::{check_range, range_len};
use super::words::{load, shared_word, store};
use super::{DmaBuf, Mr, MrAttr, Opaque, Ordered, RawBuffer, View, Visible};
use crate::caps::sealed::Sealed;
use crate::entry::length_and_key;
use crate::flags::Access;
use crate::provider::Provider;
use crate::qp::{QpKind, QueuePair, Reachable};
use crate::ring::Word;
use crate::wire::{Grant, GrantFrame};
use crate::{Caps, Error, LKey, PdId, Refused, Requirement};

/// Memory that peers may reach. There are no references to it, only copies: a peer's write may happen at
/// any time, in any order, and more than once until its completion (R16).
///
/// A notification, a write with immediate or a message, says that the bytes of that operation are there,
/// and nothing of others. Only [`Exposed::revoke`] ends what peers may do.
///
/// Of memory that is not [`Visible`] there are no copies either: whoever sees it is to be told what arrived.
pub struct Exposed<M, A> {
    mr: Mr,
    typed: PhantomData<fn() -> (M, A)>,
}

impl<M: DmaBuf, A: RemoteAccess> Exposed<M, A> {
    pub(crate) fn new(mr: Mr) -> Self {
        Self { mr, typed: PhantomData }
    }

    /// What is known of it: where it is, and its keys. Peers take them from a grant.
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

/// What the CPU does with memory that it sees.
impl<M: DmaBuf<View = Visible>, A: RemoteAccess> Exposed<M, A> {
    /// Copies into it, at byte `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_in(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        copy_in(&self.mr, offset, source)
    }

    /// Copies out of it, from byte `offset`. Copy first, then parse: the bytes may change under any other use.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        copy_out(&self.mr, offset, target)
    }

    /// Loads one word, a flag or a counter, with acquire order against [`Exposed::store`].
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Misaligned`] if `offset` is not a multiple of a word.
    pub fn load(&self, offset: usize) -> Result<Word, Error> {
        self.check_word(offset)?;
        // SAFETY: as in `copy_in`, checked above.
        Ok(unsafe { shared_word(self.at(offset)) }.load(Ordering::Acquire))
    }

    /// Stores one word, with release order against [`Exposed::load`].
    ///
    /// # Errors
    /// As [`Exposed::load`].
    pub fn store(&self, offset: usize, value: Word) -> Result<(), Error> {
        self.check_word(offset)?;
        // SAFETY: as in `copy_in`, checked above.
        unsafe { shared_word(self.at(offset)) }.store(value, Ordering::Release);
        Ok(())
    }

    /// Where the CPU sees a byte.
    fn at(&self, offset: usize) -> *mut u8 {
        self.mr.attr().base.as_ptr().wrapping_add(offset)
    }

    fn check_word(&self, offset: usize) -> Result<(), Error> {
        check_range(offset, size_of::<Word>(), self.len())?;
        if offset.is_multiple_of(size_of::<Word>()) {
            return Ok(());
        }
        Err(Error::Misaligned { address: offset as u64, len: size_of::<Word>() as u64, to: size_of::<Word>() as u64 })
    }
}

impl<M: DmaBuf, A: RemoteAccess> Exposed<M, A> {
    /// A part of it as the source or target of this side's own operations.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<usize>) -> Result<ExposedPart<M::View>, Error> {
        let len = range_len(&range, self.len())?;
        Ok(ExposedPart::of(self.mr.clone(), self.mr.attr().iova + range.start as u64, len))
    }

    /// Whether a part is of this memory.
    pub fn has<V>(&self, part: &ExposedPart<V>) -> bool {
        self.mr.is(&part.mr)
    }

    /// What a peer of `qp` needs to reach all of it: to be sent to that peer.
    ///
    /// # Errors
    /// [`Error::ForeignDomain`] if `qp` belongs to another protection domain.
    pub fn grant<P: Provider, S: Reachable, K: QpKind>(&self, qp: &QueuePair<P, S, K>) -> Result<GrantFrame, Error> {
        self.grant_range(qp, 0..self.len())
    }

    /// What a peer of `qp` needs to reach a part of it. The device enforces the region's bounds only: what a
    /// peer makes of a smaller range is its own honesty.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ForeignDomain`].
    pub fn grant_range<P: Provider, S: Reachable, K: QpKind>(
        &self,
        qp: &QueuePair<P, S, K>,
        range: Range<usize>,
    ) -> Result<GrantFrame, Error> {
        self.part(range)?.grant(qp)
    }

    /// Ends what peers may do and gives the memory back: their operations on it fail from now on.
    ///
    /// # Errors
    /// [`Error::RegionInUse`] if parts of it are held or in flight here, or what the device answered; with it.
    pub fn revoke(self) -> Result<M, Refused<Self>> {
        match self.mr.deregister(1) {
            // SAFETY: registered from an `M`, which the type has carried since.
            Ok(memory) => Ok(unsafe { memory.into_owner::<M>() }),
            Err((mr, error)) => Err(Refused::new(Self { mr, typed: PhantomData }, error)),
        }
    }
}

impl<M, A> fmt::Debug for Exposed<M, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exposed").field(self.mr.attr()).finish()
    }
}

/// A part of exposed memory for this side's own operations: counted, without references.
#[derive(Clone)]
pub struct ExposedPart<V = Visible> {
    addr: u64,
    len: usize,
    mr: Mr,
    lkey: LKey,
    pd: PdId,
    view: PhantomData<fn() -> V>,
}

impl<V> ExposedPart<V> {
    pub(super) fn of(mr: Mr, addr: u64, len: usize) -> Self {
        let attr = *mr.attr();
        Self { addr, len, mr, lkey: attr.lkey, pd: attr.pd, view: PhantomData }
    }

    /// Bytes of its region before the first of these.
    pub fn offset(&self) -> usize {
        (self.addr - self.mr.attr().iova) as usize
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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

    /// What its region was registered for.
    pub fn access(&self) -> Access {
        self.mr.attr().access
    }

    /// What a peer of `qp` needs to reach it, as its region was registered for: as [`Exposed::grant_range`].
    ///
    /// # Errors
    /// [`Error::ForeignDomain`] if `qp` belongs to another protection domain.
    pub fn grant<P: Provider, S: Reachable, K: QpKind>(&self, qp: &QueuePair<P, S, K>) -> Result<GrantFrame, Error> {
        if qp.pd_id() != self.pd {
            return Err(Error::ForeignDomain { of: self.pd, domain: qp.pd_id() });
        }
        let attr = self.mr.attr();
        let grant = Grant {
            address: self.addr,
            length: self.len as u64,
            rkey: attr.rkey,
            access: attr.access & (Access::REMOTE_READ | Access::REMOTE_WRITE),
            incarnation: qp.incarnation(),
        };
        Ok(grant.to_frame())
    }

    /// The form in flight; the length was checked to fit.
    pub(crate) fn into_raw(self) -> RawBuffer {
        RawBuffer::new(self.addr, length_and_key(self.len as u32, self.lkey.0), self.mr)
    }
}

/// Not of what is [`Ordered`], of which there are no copies.
impl<V: View> ExposedPart<V> {
    /// A part of it.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn part(&self, range: Range<usize>) -> Result<Self, Error> {
        let len = range_len(&range, self.len)?;
        Ok(Self { addr: self.addr + range.start as u64, len, mr: self.mr.clone(), ..*self })
    }
}

impl ExposedPart<Opaque> {
    /// Takes it for memory that can be posted.
    ///
    /// # Safety
    /// As [`Slice::assume_ordered`](super::Slice::assume_ordered).
    pub unsafe fn assume_ordered(self) -> ExposedPart<Ordered> {
        let Self { addr, len, mr, lkey, pd, view: _ } = self;
        ExposedPart { addr, len, mr, lkey, pd, view: PhantomData }
    }
}

impl<V> fmt::Debug for ExposedPart<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExposedPart {{ addr: {:#x}, len: {}, {} }}", self.addr, self.len, self.pd)
    }
}

/// What the CPU does with a part that it sees.
impl ExposedPart {
    /// As [`Exposed::copy_in`].
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_in(&self, offset: usize, source: &[u8]) -> Result<(), Error> {
        check_range(offset, source.len(), self.len)?;
        copy_in(&self.mr, self.offset() + offset, source)
    }

    /// As [`Exposed::copy_out`].
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> Result<(), Error> {
        check_range(offset, target.len(), self.len)?;
        copy_out(&self.mr, self.offset() + offset, target)
    }
}

/// Copies into an exposed region that the CPU sees, as this module's types know.
fn copy_in(mr: &Mr, offset: usize, source: &[u8]) -> Result<(), Error> {
    check_range(offset, source.len(), mr.attr().len)?;
    let target = mr.attr().base.as_ptr().wrapping_add(offset);
    // SAFETY: whole words and aligned, checked at registration; in bounds, checked above; everybody uses
    // atomics, by the provider's contract and these types'; `source` is borrowed.
    unsafe { store(target, source.as_ptr(), source.len()) };
    Ok(())
}

/// Copies out of an exposed region that the CPU sees, as this module's types know.
fn copy_out(mr: &Mr, offset: usize, target: &mut [u8]) -> Result<(), Error> {
    check_range(offset, target.len(), mr.attr().len)?;
    let source = mr.attr().base.as_ptr().wrapping_add(offset);
    // SAFETY: as in `copy_in`; `target` is borrowed mutably.
    unsafe { load(target.as_mut_ptr(), source, target.len()) };
    Ok(())
}

/// What peers may do with exposed memory.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no access that peers can be given (R07, R15)",
    label = "not a remote access",
    note = "`ctx.require::<RemoteWrite>()?`, or the same of `RemoteRead` or `RemoteReadWrite`"
)]
pub trait RemoteAccess: Requirement {
    /// The rights at registration.
    const ACCESS: Access;
}

/// Access types that let a peer write.
#[diagnostic::on_unimplemented(
    message = "an RDMA write needs a window that grants remote write (R15)",
    label = "this window does not",
    note = "expose the memory with `RemoteWrite` or `RemoteReadWrite`, and take the grant with `peer.window::<RemoteWrite>(..)`"
)]
pub trait AllowsWrite: RemoteAccess {}

/// Access types that let a peer read.
#[diagnostic::on_unimplemented(
    message = "an RDMA read needs a window that grants remote read (R15)",
    label = "this window does not",
    note = "expose the memory with `RemoteRead` or `RemoteReadWrite`, and take the grant with `peer.window::<RemoteRead>(..)`"
)]
pub trait AllowsRead: RemoteAccess {}

macro_rules! access {
    ($(#[$doc:meta])* $name:ident: $access:expr, needs $caps:expr, allows $($allows:ident)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(());

        impl Sealed for $name {}

        impl Requirement for $name {
            const NEEDS: Caps = $caps;
        }

        impl RemoteAccess for $name {
            const ACCESS: Access = $access;
        }

        $(impl $allows for $name {})*
    };
}

access!(
    /// Peers may not reach it by RDMA: only by messages that this side copies in and out of it, as
    /// [`Efa`](crate::fabric::Efa) does where a device has no RDMA.
    ByMessages: Access::LOCAL_WRITE, needs Caps::empty(), allows
);
access!(
    /// Peers may read.
    RemoteRead: Access::REMOTE_READ.union(Access::LOCAL_WRITE), needs Caps::RDMA_READ, allows AllowsRead
);
access!(
    /// Peers may write.
    RemoteWrite: Access::REMOTE_WRITE.union(Access::LOCAL_WRITE), needs Caps::RDMA_WRITE, allows AllowsWrite
);
access!(
    /// Peers may read and write.
    RemoteReadWrite: Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::LOCAL_WRITE),
    needs Caps::RDMA_READ.union(Caps::RDMA_WRITE), allows AllowsRead AllowsWrite
);
