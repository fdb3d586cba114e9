//! Memory of one's own: where no framework has any.

#![allow(unsafe_code)]

use std::sync::Arc;

use super::{GpuRegion, Owner, Writable};
use crate::context::Current;
use crate::driver::Device;
use crate::error::{Error, Failed};
use crate::order::{Outbound, Stream, Unsynced};
use crate::raw::Handle;

/// A device's primary context, which this program uses: the one that frameworks use too. It is let go when the last copy is dropped.
#[derive(Clone, Debug)]
pub struct Primary {
    retained: Arc<Retained>,
}

#[derive(Debug)]
struct Retained {
    device: Device,
    context: Handle,
}

impl Drop for Retained {
    fn drop(&mut self) {
        // What this answers could only be told by panicking.
        // SAFETY: retained in `Device::primary`, and released once.
        let _ = unsafe { self.device.driver.release_primary(self.device.ordinal) };
    }
}

impl Device {
    /// Uses the device's primary context. This makes it, where nobody uses it yet, which takes hundreds of MiB of the GPU: it is the
    /// only call here that does.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn primary(self) -> Result<Primary, Failed> {
        let context = self.driver.retain_primary(self.ordinal)?;
        Ok(Primary { retained: Arc::new(Retained { device: self, context }) })
    }
}

impl Primary {
    /// Whose it is.
    pub fn device(&self) -> Device {
        self.retained.device
    }

    /// Runs with it.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn within<R>(&self, run: impl FnOnce(&Current) -> R) -> Result<R, Error> {
        // SAFETY: retained for as long as this is borrowed.
        unsafe { self.retained.device.within_context(self.retained.context, run) }
    }
}

/// Memory of a device, freed when it is dropped: once it was deregistered. The driver waits then for kernels that use it.
#[derive(Debug)]
pub struct Allocation {
    address: u64,
    len: usize,
    primary: Primary,
}

impl Allocation {
    /// So many bytes, of whatever was there before.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn new(primary: &Primary, len: usize) -> Result<Self, Error> {
        let address = primary.within(|current| current.device().driver.allocate(len))??;
        Ok(Self { address, len, primary: primary.clone() })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (driver, address) = (self.primary.device().driver, self.address);
        // What this answers could only be told by panicking.
        // SAFETY: allocated in `new`, and freed once; what registered it owned this.
        let _ = self.primary.within(|_| unsafe { driver.free(address) });
    }
}

impl GpuRegion<Allocation> {
    /// Queues a kernel that writes one byte everywhere: for tests and first programs. It is of memory of one's own, which is freed
    /// only once that is done: nobody else's may be written by what was queued and forgotten.
    ///
    /// # Errors
    /// [`Error::ForeignSlice`]; [`Error::OtherDevice`] if the stream is another one's, for which the end of the memory would not
    /// wait; what the driver answered.
    pub fn fill(&self, stream: &mut Stream, memory: &mut Outbound<Unsynced>, byte: u8) -> Result<(), Error> {
        if !self.has(memory) {
            return Err(Error::ForeignSlice);
        }
        // SAFETY: a part of this allocation, which the region has, and whose end, `cuMemFree`, waits for what is queued.
        unsafe { stream.fill(memory.device().ordinal(), memory.address(), memory.len(), byte) }
    }
}

// SAFETY: allocated until it is dropped, in a context that it retains; neither changes.
unsafe impl Owner for Allocation {
    type Access = Writable;

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}
