//! Memory that something arrived in: a completion says that the device is done, not that the GPU sees it.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use efa_core::PdId;
use efa_core::memory::{Opaque, Slice};
use efa_core::work::{Received, UnsolicitedWrite, WriteArrived};

use super::{Holder, Outbound, Unsynced};
use crate::context::Current;
use crate::driver::{Scope, WritesOrdered};
use crate::error::{Error, Refused};
use crate::memory::Place;

/// What says that a peer's writes are there.
pub trait Arrival: sealed::Sealed {}

mod sealed {
    #[expect(unnameable_types, reason = "sealed")]
    pub trait Sealed {}
}

impl sealed::Sealed for Received {}
impl sealed::Sealed for WriteArrived {}
impl sealed::Sealed for UnsolicitedWrite {}
impl Arrival for Received {}
impl Arrival for WriteArrived {}
impl Arrival for UnsolicitedWrite {}

/// Memory that a completion told of: the GPU may see what was there before.
#[derive(Debug)]
pub enum Completed {}

/// Memory whose bytes kernels that are launched from now on see. One that runs already is not made to see them by anything.
#[derive(Debug)]
pub enum Visible {}

/// Memory that the GPU sees.
#[diagnostic::on_unimplemented(
    message = "memory that is `{Self}` is not to be read yet: the GPU may see old bytes (GPUDirect, H26)",
    label = "not flushed",
    note = "flush it: `region.within(|current| arrived.flush(current, Scope::Owner))??`",
    note = "where the host cannot flush: `Loopback::new(..)` for that GPU, and its `flush(arrived, time)`",
    note = "where the GPU orders writes itself: `device.writes_ordered(scope)?` gives the proof for `arrived.elide(proof)`",
    note = "where something else guarantees it: `unsafe arrived.assume_visible()`, which says what must hold"
)]
pub trait Seen: sealed::Sealed {}

impl sealed::Sealed for Visible {}
impl Seen for Visible {}

/// A GPU's memory that something arrived in.
#[must_use = "memory that is dropped cannot be rejoined: its region can then only be dropped, not closed"]
pub struct Inbound<S, B = Slice<Opaque>> {
    bytes: B,
    place: Place,
    state: PhantomData<fn() -> S>,
}

impl<S, B: Holder> Inbound<S, B> {
    /// Where the GPU knows the first byte: for kernels that are launched to read it.
    pub fn address(&self) -> u64
    where
        S: Seen,
    {
        self.place.address + self.bytes.span().0 as u64
    }

    range!();

    /// Memory to be posted again: whoever was launched to read it is to be waited for. What arrived and was not seen is given up.
    pub fn into_outbound(self) -> Outbound<Unsynced, B> {
        Outbound::new(self.bytes, self.place)
    }
}

impl<B: Holder> Inbound<Visible, B> {
    /// Copies it to the host's memory, as a kernel that is launched now sees it: as much as there is room for.
    ///
    /// # Errors
    /// [`Error::OtherDevice`], what the driver answered.
    pub fn copy_to_host(&self, current: &Current, to: &mut [u8]) -> Result<(), Error> {
        self.place.check(current)?;
        let len = to.len().min(self.len());
        let to = to.get_mut(..len).unwrap_or_default();
        Ok(self.place.device.driver.copy_to_host(to, self.address())?)
    }
}

impl<B: Holder> Inbound<Completed, B> {
    pub(crate) fn new(bytes: B, place: Place) -> Self {
        Self { bytes, place, state: PhantomData }
    }

    /// Whether a read of memory at `other`, of protection domain `pd`, comes behind what was written here.
    pub(super) fn check_way(&self, other: &Place, pd: PdId) -> Result<(), Error> {
        let Place { device, way, .. } = self.place;
        let is_behind = (device, way, self.bytes.domain()) == (other.device, other.way, pd);
        if is_behind { Ok(()) } else { Err(Error::OtherWay) }
    }

    pub(super) fn visible(self) -> Inbound<Visible, B> {
        Inbound { bytes: self.bytes, place: self.place, state: PhantomData }
    }

    /// Has the GPU see all that devices wrote to it, this too; in a context of it, [`GpuRegion::within`](crate::GpuRegion::within)'s.
    ///
    /// # Errors
    /// [`Error::OtherDevice`]; [`Error::NoHostFlush`], where a [`Loopback`](crate::Loopback) is the way; what the
    /// driver answered. With the memory, which is as before.
    pub fn flush(self, current: &Current, scope: Scope) -> Result<Inbound<Visible, B>, Refused<Self>> {
        match self.flush_device(current, scope) {
            Ok(()) => Ok(self.visible()),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    fn flush_device(&self, current: &Current, scope: Scope) -> Result<(), Error> {
        let device = self.place.device;
        self.place.check(current)?;
        if !device.flushes_from_host()? {
            return Err(Error::NoHostFlush { device: device.ordinal });
        }
        device.driver.flush_writes(scope.number())
    }

    /// Takes the device's word that it orders writes itself, so that none is to be flushed.
    ///
    /// # Errors
    /// [`Error::NotOrdered`] if it is another device's, with the memory.
    pub fn elide(self, proof: WritesOrdered) -> Result<Inbound<Visible, B>, Refused<Self>> {
        let device = self.place.device.ordinal;
        if proof.device == device {
            return Ok(self.visible());
        }
        Err(Refused::new(self, Error::NotOrdered { device, proof: proof.device }))
    }

    /// Takes it for visible.
    ///
    /// # Safety
    /// Something else made the GPU see what arrived after its completion was read: an RDMA read of at least one byte of this memory by
    /// this device, by the way that it was written, that has completed. Nothing undefined happens here if nothing did, but the GPU
    /// computes with garbage.
    pub unsafe fn assume_visible(self) -> Inbound<Visible, B> {
        self.visible()
    }
}

impl<S, B: Holder> fmt::Debug for Inbound<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, len) = self.bytes.span();
        write!(f, "Inbound {{ offset: {offset}, len: {len}, GPU {} }}", self.place.device.ordinal)
    }
}
