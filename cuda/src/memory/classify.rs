//! What kind of memory an address is: how it can be registered depends on it.

#![forbid(unsafe_code)]

use crate::driver::{Device, Driver};
use crate::error::Error;
use crate::raw::{Handle, INVALID_CONTEXT, MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST, pointer};

/// What kind of memory an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemorySort {
    /// Of `cudaMalloc`: what frameworks' own allocators cut up.
    Allocation,
    /// Mapped virtual memory: PyTorch's expandable segments.
    Virtual,
    /// Of a stream-ordered pool.
    Pool,
    /// Managed, which moves: it is not registered.
    Managed,
    /// The host's, pinned by CUDA: it is registered as host memory.
    Host,
}

/// What is known of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// What kind it is.
    pub sort: MemorySort,
    /// Its device.
    pub device: Device,
    /// The allocation's number, given once in a process: an address is given again, to another allocation.
    pub buffer_id: u64,
    /// The context that it was allocated in, where it has one.
    pub(crate) context: Option<Handle>,
}

impl MemoryInfo {
    /// Whether it was allocated in a context: virtual memory and pools' was not.
    pub fn has_context(&self) -> bool {
        self.context.is_some()
    }
}

impl Driver {
    /// What kind of memory a range is, from its first byte to its last.
    ///
    /// # Errors
    /// [`Error::NotCuda`], [`Error::Range`], or what the driver answered.
    pub fn classify(self, address: u64, len: usize) -> Result<MemoryInfo, Error> {
        let range = Error::Range { address, len: len as u64 };
        let last = (len as u64).checked_sub(1).and_then(|last| address.checked_add(last)).ok_or(range)?;
        let first = self.classify_byte(address)?;
        let end =
            self.classify_byte(last).map_err(|error| if let Error::NotCuda { .. } = error { range } else { error })?;
        if (first.sort, first.device, first.context) == (end.sort, end.device, end.context) {
            Ok(first)
        } else {
            Err(range)
        }
    }

    fn classify_byte(self, address: u64) -> Result<MemoryInfo, Error> {
        use pointer::{BUFFER_ID, CONTEXT, DEVICE_ORDINAL, IS_MANAGED, MEMORY_TYPE};
        let which = [MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, CONTEXT, BUFFER_ID];
        let [kind, managed, ordinal, context, buffer_id] = match self.pointer_attributes(which, address) {
            // Some drivers want a context for this: any will do.
            Err(failed) if failed.code == INVALID_CONTEXT => {
                let device =
                    self.devices()?.into_iter().find(|device| self.primary_is_active(device.ordinal) == Ok(true));
                let device = device.ok_or(failed)?;
                device.within(|_| self.pointer_attributes(which, address))??
            }
            answer => answer?,
        };
        // An older driver does not know pools.
        let pool = self.pointer_attributes([pointer::MEMPOOL_HANDLE], address).map_or(0, |[pool]| pool);
        let context = Some(context as Handle).filter(|context| *context != 0);
        let sort = match (kind as u32, managed != 0) {
            (0, _) => return Err(Error::NotCuda { address }),
            (_, true) => MemorySort::Managed,
            (MEMORY_TYPE_HOST, _) => MemorySort::Host,
            (MEMORY_TYPE_DEVICE, _) if pool != 0 => MemorySort::Pool,
            (MEMORY_TYPE_DEVICE, _) if context.is_some() => MemorySort::Allocation,
            (MEMORY_TYPE_DEVICE, _) => MemorySort::Virtual,
            _ => return Err(Error::NotCuda { address }),
        };
        let device = self.device(ordinal as u32 as i32)?;
        Ok(MemoryInfo { sort, device, buffer_id, context })
    }

    /// The same, of memory that can be registered as a device's.
    pub(crate) fn classify_device(self, address: u64, len: usize) -> Result<MemoryInfo, Error> {
        let info = self.classify(address, len)?;
        match info.sort {
            MemorySort::Managed => Err(Error::Managed { address }),
            MemorySort::Host => Err(Error::Host { address }),
            _ => Ok(info),
        }
    }
}
