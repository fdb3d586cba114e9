//! Memory that is to be posted: waited for first.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use efa_core::PdId;
use efa_core::memory::{ExposedPart, Opaque, Ordered, Slice};

use super::Stream;
use super::stream::Event;
use crate::error::Refused;
use crate::memory::Place;

/// What holds a range of registered memory: a slice, or a part of exposed memory.
pub trait Holder: sealed::Sealed + fmt::Debug {
    /// The same, to be posted.
    type Posted;
    #[doc(hidden)]
    fn span(&self) -> (usize, usize);
    #[doc(hidden)]
    fn domain(&self) -> PdId;
    /// # Safety
    /// As [`Slice::assume_ordered`].
    #[doc(hidden)]
    unsafe fn ordered(self) -> Self::Posted;
}

mod sealed {
    #[expect(unnameable_types, reason = "sealed")]
    pub trait Sealed {}
}

impl sealed::Sealed for Slice<Opaque> {}
impl sealed::Sealed for ExposedPart<Opaque> {}

macro_rules! holder {
    ($name:ident) => {
        impl Holder for $name<Opaque> {
            type Posted = $name<Ordered>;

            fn span(&self) -> (usize, usize) {
                (self.offset(), self.len())
            }

            fn domain(&self) -> PdId {
                self.pd()
            }

            unsafe fn ordered(self) -> $name<Ordered> {
                // SAFETY: by the caller's word.
                unsafe { self.assume_ordered() }
            }
        }
    };
}

holder!(Slice);
holder!(ExposedPart);

/// Memory that kernels may still write or read: nobody waited for their stream.
#[derive(Debug)]
pub enum Unsynced {}

/// Memory whose stream was waited for. It borrows the stream, on which nothing is launched meanwhile.
#[derive(Debug)]
pub struct Ready<'s>(PhantomData<&'s mut Stream>);

/// Memory that can be posted: that whose stream was waited for.
#[diagnostic::on_unimplemented(
    message = "memory that is `{Self}` cannot be posted: a kernel may not have written it yet (GPUDirect, H26)",
    label = "its stream was not waited for",
    note = "wait for the stream that writes it: `memory.synchronize(&mut stream)?`, or `memory.record(&mut stream)?` and its `poll`",
    note = "where something else guarantees it: `unsafe memory.assume_synchronized()`, which says what must hold"
)]
pub trait Waited: sealed::Sealed {}

impl sealed::Sealed for Ready<'_> {}
impl Waited for Ready<'_> {}

/// A GPU's memory that is to be posted.
#[must_use = "memory that is dropped cannot be rejoined: its region can then only be dropped, not closed"]
pub struct Outbound<S, B = Slice<Opaque>> {
    bytes: B,
    place: Place,
    state: PhantomData<fn() -> S>,
}

impl<S, B: Holder> Outbound<S, B> {
    /// Where the GPU knows the first byte: for kernels.
    pub fn address(&self) -> u64 {
        self.place.address + self.bytes.span().0 as u64
    }

    range!();

    /// What the device takes, `Slice<Ordered>`. A SEND, an RDMA write, an RDMA read and a receive all do, and give it
    /// back by their completion, as `Slice<Opaque>`, which cannot be posted. The stream is let go: until that
    /// completion nothing is to be launched that writes what is sent, or touches what is received into, which nobody
    /// here sees.
    #[doc(alias = "post")]
    pub fn into_slice(self) -> B::Posted
    where
        S: Waited,
    {
        // SAFETY: its stream was waited for, or somebody took it upon himself to say so; that nothing is launched until
        // the completion is what this function says.
        unsafe { self.bytes.ordered() }
    }

    pub(crate) fn bytes(&self) -> &B {
        &self.bytes
    }

    pub(crate) fn into_parts(self) -> (B, Place) {
        (self.bytes, self.place)
    }

    fn with<T>(self) -> Outbound<T, B> {
        Outbound { bytes: self.bytes, place: self.place, state: PhantomData }
    }
}

impl<B: Holder> Outbound<Unsynced, B> {
    pub(crate) fn new(bytes: B, place: Place) -> Self {
        Self { bytes, place, state: PhantomData }
    }

    /// Waits for all that is queued on the stream whose kernels write or read this memory.
    ///
    /// # Errors
    /// [`Error::Capturing`](crate::Error::Capturing), [`Error::OtherThread`](crate::Error::OtherThread), what the
    /// driver answered; with the memory.
    pub fn synchronize(self, stream: &mut Stream) -> Result<Outbound<Ready<'_>, B>, Refused<Self>> {
        match stream.synchronize() {
            Ok(()) => Ok(self.with()),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Records an event behind all that is queued on that stream, to be polled for.
    ///
    /// # Errors
    /// As [`Outbound::synchronize`].
    pub fn record(self, stream: &mut Stream) -> Result<Recorded<'_, B>, Refused<Self>> {
        match stream.record() {
            Ok(event) => Ok(Recorded { memory: self, event }),
            Err(error) => Err(Refused::new(self, error)),
        }
    }

    /// Takes it for waited for.
    ///
    /// # Safety
    /// No kernel or copy that is queued or runs will write what is to be sent, or read or write what is to be received into, until the
    /// operation has completed. Nothing undefined happens here if one does, but what arrives, or what the GPU computes, is garbage.
    pub unsafe fn assume_synchronized(self) -> Outbound<Ready<'static>, B> {
        self.with()
    }
}

impl<B: Holder> Outbound<Ready<'_>, B> {
    /// Lets the stream go, to launch on it: it is to be waited for again.
    pub fn unsynced(self) -> Outbound<Unsynced, B> {
        self.with()
    }
}

impl<S> Outbound<S> {
    /// Two pieces, the first of `mid` bytes: a tensor of an allocator's segment.
    ///
    /// # Errors
    /// [`efa_core::Error::OutOfBounds`], with the memory.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self), Refused<Self>> {
        let (bytes, place) = self.into_parts();
        let of = |bytes| Self { bytes, place, state: PhantomData };
        match bytes.split_at(mid) {
            Ok((head, tail)) => Ok((of(head), of(tail))),
            Err(refused) => {
                let (bytes, error) = refused.into_parts();
                Err(Refused::new(of(bytes), error.into()))
            }
        }
    }

    /// One piece again, of two that follow each other in this order.
    ///
    /// # Errors
    /// [`efa_core::Error::NotAdjacent`], with both.
    pub fn unsplit(self, next: Self) -> Result<Self, Refused<(Self, Self)>> {
        let ((bytes, place), (other, place_of_other)) = (self.into_parts(), next.into_parts());
        let of = |bytes, place| Self { bytes, place, state: PhantomData };
        match bytes.unsplit(other) {
            Ok(bytes) => Ok(of(bytes, place)),
            Err(refused) => {
                // They may be of two regions: each is where it was.
                let ((bytes, other), error) = refused.into_parts();
                Err(Refused::new((of(bytes, place), of(other, place_of_other)), error.into()))
            }
        }
    }
}

impl<S, B: Holder> fmt::Debug for Outbound<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Outbound {{ address: {:#x}, len: {}, GPU {} }}",
            self.address(),
            self.len(),
            self.place.device.ordinal
        )
    }
}

/// Memory that waits for an event of its stream.
#[must_use = "poll it until the event has come"]
#[derive(Debug)]
pub struct Recorded<'s, B: Holder = Slice<Opaque>> {
    memory: Outbound<Unsynced, B>,
    event: Event<'s>,
}

/// How far a stream is.
#[derive(Debug)]
pub enum Progress<'s, B: Holder = Slice<Opaque>> {
    /// The event has come.
    Ready(Outbound<Ready<'s>, B>),
    /// It has not yet.
    Pending(Recorded<'s, B>),
}

impl<'s, B: Holder> Recorded<'s, B> {
    /// Asks whether the event has come, and does not wait.
    ///
    /// # Errors
    /// What the driver answered, with the memory.
    pub fn poll(self) -> Result<Progress<'s, B>, Refused<Outbound<Unsynced, B>>> {
        match self.event.has_come() {
            Ok(true) => Ok(Progress::Ready(self.memory.with())),
            Ok(false) => Ok(Progress::Pending(self)),
            Err(failed) => Err(Refused::new(self.memory, failed.into())),
        }
    }

    /// Waits until it has.
    ///
    /// # Errors
    /// What the driver answered, with the memory.
    pub fn wait(self) -> Result<Outbound<Ready<'s>, B>, Refused<Outbound<Unsynced, B>>> {
        match self.event.wait() {
            Ok(()) => Ok(self.memory.with()),
            Err(failed) => Err(Refused::new(self.memory, failed.into())),
        }
    }
}
