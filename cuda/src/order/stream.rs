//! Streams, which a program makes and launches on, and this crate waits for.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use std::thread::{self, ThreadId};

use crate::driver::{Device, Driver};
use crate::error::{Error, Failed};
use crate::memory::Primary;
use crate::raw::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_UNSUPPORTED, Handle, STREAM_LEGACY, STREAM_PER_THREAD,
};

/// A stream of the program's.
///
/// Memory that is [`Ready`](crate::Ready) borrows the stream that was waited for, so that nothing is launched by this handle
/// meanwhile. What is launched otherwise, by a framework on its own handle, nobody here sees.
#[derive(Debug)]
pub struct Stream {
    driver: Driver,
    raw: Handle,
    /// The context of a default stream, and of one that was made here; another one knows its own.
    primary: Option<Primary>,
    /// Whether it was made here.
    made: bool,
    /// The thread whose default stream it is, if it is one's.
    thread: Option<ThreadId>,
}

impl Stream {
    /// A stream by its handle, `CUstream` or `cudaStream_t`, as a number: not one of the default ones, 0, 1 and 2, which
    /// [`Stream::legacy`] and [`Stream::per_thread`] are.
    ///
    /// # Safety
    /// It is a stream, which is not destroyed while this is there.
    pub unsafe fn from_raw(driver: Driver, raw: usize) -> Self {
        Self { driver, raw, primary: None, made: false, thread: None }
    }

    /// A stream of one's own, in a device's primary context.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn new(primary: &Primary) -> Result<Self, Error> {
        let driver = primary.device().driver;
        let raw = primary.within(|_| driver.create_stream())??;
        Ok(Self { driver, raw, primary: Some(primary.clone()), made: true, thread: None })
    }

    /// The legacy default stream of a device's primary context, which waits for all others but those that say otherwise.
    pub fn legacy(primary: &Primary) -> Self {
        Self::default_of(primary, STREAM_LEGACY, None)
    }

    /// The default stream, in a device's primary context, of the thread that calls this. Its handle means another
    /// stream in another thread, where waiting for this one is refused with [`Error::OtherThread`].
    pub fn per_thread(primary: &Primary) -> Self {
        Self::default_of(primary, STREAM_PER_THREAD, Some(thread::current().id()))
    }

    fn default_of(primary: &Primary, raw: Handle, thread: Option<ThreadId>) -> Self {
        Self { driver: primary.device().driver, raw, primary: Some(primary.clone()), made: false, thread }
    }

    /// Queues a kernel that writes one byte everywhere, on the device whose memory it is.
    ///
    /// # Safety
    /// The range stays allocated until that is done, or is freed by a call that waits for it.
    pub(crate) unsafe fn fill(&mut self, device: i32, address: u64, len: usize, byte: u8) -> Result<(), Error> {
        self.within(|| {
            let current = self.driver.current_device()?;
            if current != device {
                return Err(Error::OtherDevice { device, current });
            }
            // SAFETY: by the caller's word; the stream is alive, as below.
            Self::answered(unsafe { self.driver.fill(address, byte, len, self.raw) })
        })?
    }

    /// The handle, to launch with.
    pub fn raw(&mut self) -> usize {
        self.raw
    }

    /// Runs in the stream's context.
    fn within<R>(&self, run: impl FnOnce() -> R) -> Result<R, Error> {
        if self.thread.is_some_and(|thread| thread != thread::current().id()) {
            return Err(Error::OtherThread);
        }
        match &self.primary {
            Some(primary) => primary.within(|_| run()),
            None => {
                // SAFETY: alive by `from_raw`'s contract.
                let context = unsafe { self.driver.stream_context(self.raw) }?;
                let device = Device { driver: self.driver, ordinal: 0 };
                // SAFETY: the context of a stream that is alive.
                unsafe { device.within_context(context, |_| run()) }
            }
        }
    }

    /// What a call on the stream means, if it was one that a capture refuses.
    fn answered<T>(answer: Result<T, Failed>) -> Result<T, Error> {
        answer.map_err(|failed| match failed.code {
            CAPTURE_UNSUPPORTED | CAPTURE_INVALIDATED | CAPTURE_IMPLICIT => Error::Capturing,
            _ => Error::Call(failed),
        })
    }

    fn refuse_capture(&self) -> Result<(), Error> {
        // SAFETY: alive by `from_raw`'s contract, or a default stream, which each context has.
        let captured = unsafe { self.driver.stream_is_captured(self.raw) };
        if Self::answered(captured)? { Err(Error::Capturing) } else { Ok(()) }
    }

    /// Waits for all that is queued on it.
    ///
    /// # Errors
    /// [`Error::Capturing`], before the capture is harmed; [`Error::OtherThread`]; what the driver answered, which may be
    /// of an earlier launch.
    pub fn synchronize(&mut self) -> Result<(), Error> {
        self.within(|| {
            self.refuse_capture()?;
            // SAFETY: as above.
            Self::answered(unsafe { self.driver.synchronize_stream(self.raw) })
        })?
    }

    /// An event behind all that is queued on it so far.
    pub(super) fn record(&mut self) -> Result<Event<'_>, Error> {
        self.within(|| {
            self.refuse_capture()?;
            let event = Event { driver: self.driver, raw: self.driver.create_event()?, stream: PhantomData };
            // SAFETY: the event was just made; the stream is alive, as above.
            Self::answered(unsafe { self.driver.record_event(event.raw, self.raw) })?;
            Ok(event)
        })?
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.made {
            // What this answers could only be told by panicking.
            // SAFETY: made in `new`, and destroyed once; its context is retained until the field is dropped.
            let _ = self.within(|| unsafe { self.driver.destroy_stream(self.raw) });
        }
    }
}

/// An event that was recorded. It borrows its stream until it was dropped, so that their context is alive.
#[derive(Debug)]
pub(super) struct Event<'s> {
    driver: Driver,
    raw: Handle,
    stream: PhantomData<&'s mut Stream>,
}

impl Event<'_> {
    pub(super) fn has_come(&self) -> Result<bool, Failed> {
        // SAFETY: made in `record`, and destroyed when this is dropped.
        unsafe { self.driver.query_event(self.raw) }
    }

    pub(super) fn wait(&self) -> Result<(), Failed> {
        // SAFETY: as above.
        unsafe { self.driver.synchronize_event(self.raw) }
    }
}

// The lifetime has to be this type's, not that of what has it: only then the stream outlives this call.
impl Drop for Event<'_> {
    fn drop(&mut self) {
        // What this answers could only be told by panicking.
        // SAFETY: as above; it is used no more.
        let _ = unsafe { self.driver.destroy_event(self.raw) };
    }
}
