//! A GPU's memory that is registered.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::Range;

use efa_core::Provider;
use efa_core::memory::{Exposed, ExposedPart, MrAttr, Opaque, Region, RemoteAccess, Slice};
use efa_core::qp::{QpKind, QueuePair, Reachable};
use efa_core::wire::GrantFrame;

use super::raw_owner::GpuMemory;
use super::{MayBeWritten, MemoryInfo, Owner, SyncMemops};
use crate::context::Current;
use crate::driver::Device;
use crate::error::{Error, Refused};
use crate::order::{Arrival, Completed, Inbound, Outbound, Unsynced};
use crate::raw::Handle;

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) device: Device,
    context: Option<Handle>,
    /// Where the GPU knows the first byte of what was registered.
    pub(crate) address: u64,
    /// By which way the EFA reaches it: none before it is registered.
    pub(crate) way: Option<Way>,
}

/// By which way an EFA reaches memory. Two to the same memory are not ordered among each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A dma-buf, exported with these flags.
    File(u64),
    /// Its address.
    Address,
}

impl Place {
    pub(crate) fn of(info: &MemoryInfo, address: u64) -> Self {
        Self { device: info.device, context: info.context, address, way: None }
    }

    pub(super) fn reached(self, way: Way) -> Self {
        Self { way: Some(way), ..self }
    }

    /// That a context is of the memory's device, and is the thread's still.
    pub(crate) fn check(&self, current: &Current) -> Result<(), Error> {
        let (device, now) = (self.device.ordinal, self.device.driver.current_device()?);
        if (current.device().ordinal, now) == (device, device) {
            return Ok(());
        }
        // The closure may have changed it meanwhile.
        let current = if now == device { current.device().ordinal } else { now };
        Err(Error::OtherDevice { device, current })
    }

    /// Runs with the context that the memory was allocated in, or, where it has none, one of its device.
    ///
    /// The owner is lent, as its context is alive while it is.
    pub(crate) fn within<O: Owner, R>(&self, _owner: &O, run: impl FnOnce(&Current) -> R) -> Result<R, Error> {
        match self.context {
            // SAFETY: the context of memory that is allocated, which it is while its owner is there, is alive.
            Some(context) => unsafe { self.device.within_context(context, run) },
            None => self.device.within(run),
        }
    }
}

macro_rules! registered {
    () => {
        /// The GPU whose memory it is.
        pub fn device(&self) -> Device {
            self.place.device
        }

        /// Whether synchronous copies on it are synchronous indeed.
        pub fn sync_memops(&self) -> SyncMemops {
            self.memops
        }

        /// Runs with the memory's own context, or, where it has none, one of its device: none is made.
        ///
        /// # Errors
        /// [`Error::NoContext`], or what the driver answered.
        pub fn within<R>(&self, run: impl FnOnce(&Current) -> R) -> Result<R, Error> {
            match self.place.context {
                // SAFETY: the region owns the memory until it was deregistered, and memory's context is alive.
                Some(context) => unsafe { self.place.device.within_context(context, run) },
                None => self.place.device.within(run),
            }
        }
    };
}

/// A GPU's memory, registered for local use: it gives the owner back when all of it is together again.
///
/// Dropping it, in whatever order with its slices, is sound: the last handle deregisters, and then drops the owner.
pub struct GpuRegion<O: Owner> {
    region: Region<GpuMemory<O>>,
    place: Place,
    memops: SyncMemops,
}

impl<O: Owner> GpuRegion<O> {
    pub(super) fn new(region: Region<GpuMemory<O>>, place: Place, memops: SyncMemops) -> Self {
        Self { region, place, memops }
    }

    registered!();

    pub(super) fn has(&self, memory: &Outbound<Unsynced>) -> bool {
        self.region.has(memory.bytes())
    }

    /// What is known of it: where it is, and its keys.
    pub fn attr(&self) -> &MrAttr {
        self.region.attr()
    }

    /// Takes a slice back that an operation only read: what was sent, or a receive into which nothing came. One that a
    /// post refused is `slice.unposted()`, if it is not posted again.
    ///
    /// # Errors
    /// [`Error::ForeignSlice`], with the slice.
    pub fn outbound(&self, slice: Slice<Opaque>) -> Result<Outbound<Unsynced>, Refused<Slice<Opaque>>> {
        if self.region.has(&slice) {
            Ok(Outbound::new(slice, self.place))
        } else {
            Err(Refused::new(slice, Error::ForeignSlice))
        }
    }

    /// Takes a slice back that a completion gave: what a message or a read wrote there. That it is in hand proves that the device
    /// is done with it, not that the GPU sees it.
    ///
    /// # Errors
    /// [`Error::ForeignSlice`], with the slice.
    pub fn completed(&self, slice: Slice<Opaque>) -> Result<Inbound<Completed>, Refused<Slice<Opaque>>>
    where
        O::Access: MayBeWritten,
    {
        if self.region.has(&slice) {
            Ok(Inbound::new(slice, self.place))
        } else {
            Err(Refused::new(slice, Error::ForeignSlice))
        }
    }

    /// Deregisters and gives the owner back. `whole` proves that nothing is out.
    ///
    /// # Errors
    /// As [`Region::close`], with both.
    pub fn close(self, whole: Outbound<Unsynced>) -> Result<O, Refused<(Self, Outbound<Unsynced>)>> {
        let Self { region, place, memops } = self;
        // What was taken for all of it may be of another region, and is that one's still.
        let (whole, place_of_whole) = whole.into_parts();
        region.close(whole).map(GpuMemory::into_owner).map_err(|refused| {
            let ((region, slice), error) = refused.into_parts();
            Refused::new((Self { region, place, memops }, Outbound::new(slice, place_of_whole)), error.into())
        })
    }
}

impl<O: Owner> fmt::Debug for GpuRegion<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuRegion").field("attr", self.attr()).field("device", &self.place.device.ordinal).finish()
    }
}

/// A GPU's memory that peers may reach.
pub struct GpuExposed<O: Owner, A> {
    exposed: Exposed<GpuMemory<O>, A>,
    place: Place,
    memops: SyncMemops,
}

impl<O: Owner, A: RemoteAccess> GpuExposed<O, A> {
    pub(super) fn new(exposed: Exposed<GpuMemory<O>, A>, place: Place, memops: SyncMemops) -> Self {
        Self { exposed, place, memops }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    registered!();

    /// What is known of it: where it is, and its keys. Peers take them from a grant.
    pub fn attr(&self) -> &MrAttr {
        self.exposed.attr()
    }

    /// What a peer of `qp` needs to reach all of it; it names the first byte by the GPU's own address. What the peer reads is
    /// what kernels wrote before: wait for them before it is sent.
    ///
    /// # Errors
    /// [`efa_core::Error::ForeignDomain`] if `qp` belongs to another protection domain.
    pub fn grant<P: Provider, S: Reachable, K: QpKind>(
        &self,
        qp: &QueuePair<P, S, K>,
    ) -> Result<GrantFrame, efa_core::Error> {
        self.exposed.grant(qp)
    }

    /// The same of a part of it.
    ///
    /// # Errors
    /// [`efa_core::Error::OutOfBounds`], [`efa_core::Error::ForeignDomain`].
    pub fn grant_range<P: Provider, S: Reachable, K: QpKind>(
        &self,
        qp: &QueuePair<P, S, K>,
        range: Range<usize>,
    ) -> Result<GrantFrame, efa_core::Error> {
        self.exposed.grant_range(qp, range)
    }

    /// A part of it as the source or target of this side's own operations.
    ///
    /// # Errors
    /// [`efa_core::Error::OutOfBounds`].
    pub fn part(&self, range: Range<usize>) -> Result<Outbound<Unsynced, ExposedPart<Opaque>>, efa_core::Error> {
        Ok(Outbound::new(self.exposed.part(range)?, self.place))
    }

    /// A part of it into which a peer wrote, as an arrival says: a write with immediate, or a message about writes. Which part, the
    /// peer and this side agreed on: an arrival names none.
    ///
    /// # Errors
    /// [`efa_core::Error::OutOfBounds`].
    pub fn arrived(
        &self,
        range: Range<usize>,
        _arrival: &impl Arrival,
    ) -> Result<Inbound<Completed, ExposedPart<Opaque>>, efa_core::Error> {
        Ok(Inbound::new(self.exposed.part(range)?, self.place))
    }

    /// A part of it into which this side read, as the completion gave it.
    ///
    /// # Errors
    /// [`Error::ForeignSlice`], with the part.
    pub fn completed(
        &self,
        part: ExposedPart<Opaque>,
    ) -> Result<Inbound<Completed, ExposedPart<Opaque>>, Refused<ExposedPart<Opaque>>> {
        if self.exposed.has(&part) {
            Ok(Inbound::new(part, self.place))
        } else {
            Err(Refused::new(part, Error::ForeignSlice))
        }
    }

    /// Ends what peers may do and gives the owner back.
    ///
    /// # Errors
    /// As [`Exposed::revoke`], with it.
    pub fn revoke(self) -> Result<O, Refused<Self>> {
        let Self { exposed, place, memops } = self;
        exposed.revoke().map(GpuMemory::into_owner).map_err(|refused| {
            let (exposed, error) = refused.into_parts();
            Refused::new(Self { exposed, place, memops }, error.into())
        })
    }
}

impl<O: Owner, A: RemoteAccess> fmt::Debug for GpuExposed<O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuExposed").field("attr", self.attr()).field("device", &self.place.device.ordinal).finish()
    }
}
