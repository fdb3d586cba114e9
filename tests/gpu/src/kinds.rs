//! Memory of each kind, given back when it is dropped: in the context that is current.

#![allow(unsafe_code, clippy::multiple_unsafe_ops_per_block)] // each block is one sequence

use efa_cuda::BorrowedDevice;

use crate::raw::{Access, Cuda, Properties};

/// Bytes of each: two mappings of virtual memory.
pub(crate) const LEN: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Allocation,
    Virtual,
    Pool,
    Managed,
}

#[derive(Debug)]
pub(crate) struct Memory<'c> {
    cuda: &'c Cuda,
    kind: Kind,
    pub(crate) address: u64,
    /// Bytes of one mapping.
    step: usize,
    handles: Vec<u64>,
}

impl<'c> Memory<'c> {
    /// # Errors
    /// What the driver answered.
    pub(crate) fn new(cuda: &'c Cuda, kind: Kind, device: i32) -> Result<Self, i32> {
        let mut memory = Self { cuda, kind, address: 0, step: LEN / 2, handles: Vec::new() };
        let address = &raw mut memory.address;
        // SAFETY: the answers go onto the stack.
        let code = unsafe {
            match kind {
                Kind::Allocation => cuda.cuMemAlloc_v2(address, LEN),
                Kind::Managed => cuda.cuMemAllocManaged(address, LEN, 1),
                Kind::Pool => cuda.cuMemAllocAsync(address, LEN, 0),
                Kind::Virtual => return memory.mapped(device),
            }
        };
        if code != 0 {
            memory.address = 0;
            return Err(code);
        }
        Ok(memory)
    }

    fn mapped(mut self, device: i32) -> Result<Self, i32> {
        let ok = |code| if code == 0 { Ok(()) } else { Err(code) };
        let (cuda, prop, access) = (self.cuda, Properties::of(device), Access::of(device));
        // SAFETY: the answers go onto the stack; what is mapped was reserved and made.
        unsafe {
            let mut step = 0;
            ok(cuda.cuMemGetAllocationGranularity(&mut step, &prop, 0))?;
            self.step = (LEN / 2).next_multiple_of(step.max(1));
            ok(cuda.cuMemAddressReserve(&mut self.address, 2 * self.step, 0, 0, 0))?;
            for nth in 0..2 {
                let mut handle = 0;
                ok(cuda.cuMemCreate(&mut handle, self.step, &prop, 0))?;
                let at = self.address + (nth * self.step) as u64;
                let mapped = ok(cuda.cuMemMap(at, self.step, 0, handle, 0));
                if mapped.is_ok() {
                    self.handles.push(handle);
                } else {
                    cuda.cuMemRelease(handle);
                }
                mapped?;
            }
            ok(cuda.cuMemSetAccess(self.address, 2 * self.step, &access, 1))?;
        }
        Ok(self)
    }

    pub(crate) fn borrowed(&self) -> BorrowedDevice {
        // SAFETY: allocated until this is dropped, which is after whatever used it here.
        unsafe { BorrowedDevice::new(self.address, LEN) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let (cuda, address) = (self.cuda, self.address);
        if address == 0 {
            return;
        }
        // SAFETY: allocated in `new`, and freed once.
        unsafe {
            match self.kind {
                Kind::Allocation | Kind::Managed => _ = cuda.cuMemFree_v2(address),
                Kind::Pool => {
                    cuda.cuMemFreeAsync(address, 0);
                    cuda.cuStreamSynchronize(0);
                }
                Kind::Virtual => {
                    for (nth, handle) in self.handles.iter().enumerate() {
                        cuda.cuMemUnmap(address + (nth * self.step) as u64, self.step);
                        cuda.cuMemRelease(*handle);
                    }
                    cuda.cuMemAddressFree(address, 2 * self.step);
                }
            }
        }
    }
}
