//! The driver's functions as calls that are safe: what they write is on this stack, and what they take is a number that the driver
//! checks. Those with handles that it does not check are `unsafe`.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use crate::driver::Driver;
use crate::error::{Error, Failed};
use crate::loader::{LoadError, NeedsDriver, Table, table};
use crate::raw::{self, Address, Code, Handle};

impl Driver {
    /// Opens the driver, once for the process, and initialises it. No context is made.
    ///
    /// # Errors
    /// [`LoadError`], with what to do; the next call tries again.
    pub fn load() -> Result<Self, LoadError> {
        let driver = Self { table: table()? };
        // SAFETY: any flags may be passed; it may be called again and again, from any thread.
        let code = unsafe { driver.table.cuInit(0) };
        driver.answered("cuInit", code).map_err(LoadError::Init)?;
        Ok(driver)
    }

    fn answered(self, call: &'static str, code: Code) -> Result<(), Failed> {
        if code == raw::SUCCESS { Ok(()) } else { Err(self.failed(call, code)) }
    }

    /// A failure in CUDA's words.
    pub(crate) fn failed(self, call: &'static str, code: Code) -> Failed {
        let word = |function: unsafe fn(&Table, Code, *mut *const c_char) -> Code| {
            let mut text = core::ptr::null();
            // SAFETY: any code may be asked for, and the answer goes onto the stack.
            let answer = unsafe { function(self.table, code, &mut text) };
            if answer != raw::SUCCESS || text.is_null() {
                return "";
            }
            // SAFETY: a C string of the driver's, which stays loaded.
            unsafe { CStr::from_ptr::<'static>(text) }.to_str().unwrap_or("")
        };
        Failed { call, code, name: word(Table::cuGetErrorName), text: word(Table::cuGetErrorString) }
    }

    fn newer<T>(self, answer: Result<T, (&'static str, i32)>) -> Result<T, NeedsDriver> {
        answer.map_err(|(symbol, need)| NeedsDriver { symbol, have: self.version().unwrap_or(0), need })
    }

    /// The driver's version: 1000 times the major and 10 times the minor number.
    ///
    /// # Errors
    /// What the driver answered.
    pub fn version(self) -> Result<i32, Failed> {
        let mut version = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuDriverGetVersion(&mut version) };
        self.answered("cuDriverGetVersion", code).map(|()| version)
    }

    pub(crate) fn device_count(self) -> Result<i32, Failed> {
        let mut count = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuDeviceGetCount(&mut count) };
        self.answered("cuDeviceGetCount", code).map(|()| count)
    }

    pub(crate) fn device_at(self, ordinal: i32) -> Result<i32, Failed> {
        let mut device = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuDeviceGet(&mut device, ordinal) };
        self.answered("cuDeviceGet", code).map(|()| device)
    }

    pub(crate) fn device_name(self, device: i32) -> Result<String, Failed> {
        let mut name = [0; 128];
        // SAFETY: room for as many bytes as it is told.
        let code = unsafe { self.table.cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device) };
        self.answered("cuDeviceGetName", code).map(|()| words(&name))
    }

    pub(crate) fn device_bus_id(self, device: i32) -> Result<String, Failed> {
        let mut name = [0; 32];
        // SAFETY: room for as many bytes as it is told.
        let code = unsafe { self.table.cuDeviceGetPCIBusId(name.as_mut_ptr(), name.len() as i32, device) };
        self.answered("cuDeviceGetPCIBusId", code).map(|()| words(&name))
    }

    /// One attribute; one that an older driver does not know is 0.
    pub(crate) fn device_attribute(self, attribute: i32, device: i32) -> Result<i32, Failed> {
        let mut value = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuDeviceGetAttribute(&mut value, attribute, device) };
        if code == raw::INVALID_VALUE {
            return Ok(0);
        }
        self.answered("cuDeviceGetAttribute", code).map(|()| value)
    }

    pub(crate) fn primary_is_active(self, device: i32) -> Result<bool, Failed> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the answers go onto the stack.
        let code = unsafe { self.table.cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
        self.answered("cuDevicePrimaryCtxGetState", code).map(|()| active != 0)
    }

    pub(crate) fn retain_primary(self, device: i32) -> Result<Handle, Failed> {
        let mut context = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuDevicePrimaryCtxRetain(&mut context, device) };
        self.answered("cuDevicePrimaryCtxRetain", code).map(|()| context)
    }

    /// # Safety
    /// It was retained here, and is released once.
    pub(crate) unsafe fn release_primary(self, device: i32) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuDevicePrimaryCtxRelease_v2(device) };
        self.answered("cuDevicePrimaryCtxRelease_v2", code)
    }

    /// The thread's context; 0 if it has none.
    pub(crate) fn current_context(self) -> Result<Handle, Failed> {
        let mut context = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuCtxGetCurrent(&mut context) };
        self.answered("cuCtxGetCurrent", code).map(|()| context)
    }

    /// The device of the thread's context.
    pub(crate) fn current_device(self) -> Result<i32, Failed> {
        let mut device = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuCtxGetDevice(&mut device) };
        self.answered("cuCtxGetDevice", code).map(|()| device)
    }

    /// # Safety
    /// The context is alive until it is popped.
    pub(crate) unsafe fn push_context(self, context: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuCtxPushCurrent_v2(context) };
        self.answered("cuCtxPushCurrent_v2", code)
    }

    pub(crate) fn pop_context(self) -> Result<(), Failed> {
        let mut context = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuCtxPopCurrent_v2(&mut context) };
        self.answered("cuCtxPopCurrent_v2", code)
    }

    /// Attributes of an address, each as wide as `u64`, in their order; an address that is not CUDA's has zeros.
    pub(crate) fn pointer_attributes<const N: usize>(
        self,
        which: [i32; N],
        address: Address,
    ) -> Result<[u64; N], Failed> {
        let (mut which, mut values) = (which, [0u64; N]);
        let mut data = values.each_mut().map(|value| core::ptr::from_mut(value).cast::<c_void>());
        // SAFETY: as many attributes and answers as it is told; no attribute asked for here has more than eight bytes,
        // and those with fewer leave the rest, zeros, which come behind on both machines.
        let code =
            unsafe { self.table.cuPointerGetAttributes(N as u32, which.as_mut_ptr(), data.as_mut_ptr(), address) };
        self.answered("cuPointerGetAttributes", code).map(|()| values)
    }

    /// Has synchronous copies of an allocation be so indeed.
    pub(crate) fn set_sync_memops(self, address: Address) -> Result<(), Failed> {
        let on = 1u32;
        let attribute = raw::pointer::SYNC_MEMOPS;
        // SAFETY: this attribute's value is an `unsigned int`.
        let code = unsafe { self.table.cuPointerSetAttribute((&raw const on).cast::<c_void>(), attribute, address) };
        self.answered("cuPointerSetAttribute", code)
    }

    /// The allocation that an address is in, or, of virtual memory, one mapping.
    pub(crate) fn address_range(self, address: Address) -> Result<(Address, usize), Failed> {
        let (mut base, mut len) = (0, 0);
        // SAFETY: the answers go onto the stack.
        let code = unsafe { self.table.cuMemGetAddressRange_v2(&mut base, &mut len, address) };
        self.answered("cuMemGetAddressRange_v2", code).map(|()| (base, len))
    }

    /// A dma-buf of whole pages of device memory.
    pub(crate) fn export_range(self, address: Address, len: usize, flags: u64) -> Result<OwnedFd, Error> {
        let mut file = -1;
        let (to, sort) = ((&raw mut file).cast::<c_void>(), raw::RANGE_HANDLE_DMA_BUF_FD);
        // SAFETY: a handle of this sort is an `int`; the driver checks the rest.
        let answer = unsafe { self.table.cuMemGetHandleForAddressRange(to, address, len, sort, flags) };
        self.answered("cuMemGetHandleForAddressRange", self.newer(answer)?)?;
        // SAFETY: the driver made it for us, who are to close it.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }

    /// Has the GPU of the current context see what devices wrote to it.
    pub(crate) fn flush_writes(self, scope: i32) -> Result<(), Error> {
        let target = raw::FLUSH_TARGET_CURRENT_CONTEXT;
        // SAFETY: plain numbers, which the driver checks.
        let answer = unsafe { self.table.cuFlushGPUDirectRDMAWrites(target, scope) };
        Ok(self.answered("cuFlushGPUDirectRDMAWrites", self.newer(answer)?)?)
    }

    /// Memory of the current context's.
    pub(crate) fn allocate(self, len: usize) -> Result<Address, Failed> {
        let mut address = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuMemAlloc_v2(&mut address, len) };
        self.answered("cuMemAlloc_v2", code).map(|()| address)
    }

    /// # Safety
    /// It was allocated here, and nobody uses it any more.
    pub(crate) unsafe fn free(self, address: Address) -> Result<(), Failed> {
        // SAFETY: by the caller's word. It waits for what is queued on it.
        let code = unsafe { self.table.cuMemFree_v2(address) };
        self.answered("cuMemFree_v2", code)
    }

    /// # Safety
    /// The range is allocated until what is queued here is done; the stream is alive.
    pub(crate) unsafe fn fill(self, address: Address, byte: u8, len: usize, stream: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuMemsetD8Async(address, byte, len, stream) };
        self.answered("cuMemsetD8Async", code)
    }

    /// Copies a GPU's memory to the host; it has been when this returns.
    pub(crate) fn copy_to_host(self, to: &mut [u8], address: Address) -> Result<(), Failed> {
        // SAFETY: as many bytes as there is room for; the driver checks the range.
        let code = unsafe { self.table.cuMemcpyDtoH_v2(to.as_mut_ptr().cast::<c_void>(), address, to.len()) };
        self.answered("cuMemcpyDtoH_v2", code)
    }

    /// A stream of the current context's, which waits for the legacy one as any.
    pub(crate) fn create_stream(self) -> Result<Handle, Failed> {
        let mut stream = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuStreamCreate(&mut stream, 0) };
        self.answered("cuStreamCreate", code).map(|()| stream)
    }

    /// # Safety
    /// The stream was made here, and is used no more.
    pub(crate) unsafe fn destroy_stream(self, stream: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuStreamDestroy_v2(stream) };
        self.answered("cuStreamDestroy_v2", code)
    }

    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn stream_context(self, stream: Handle) -> Result<Handle, Failed> {
        let mut context = 0;
        // SAFETY: by the caller's word; the answer goes onto the stack.
        let code = unsafe { self.table.cuStreamGetCtx(stream, &mut context) };
        self.answered("cuStreamGetCtx", code).map(|()| context)
    }

    /// Whether a stream is being captured; a driver that cannot be asked captures none.
    ///
    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn stream_is_captured(self, stream: Handle) -> Result<bool, Failed> {
        let mut status = 0;
        // SAFETY: by the caller's word; the answer goes onto the stack.
        let Ok(code) = (unsafe { self.table.cuStreamIsCapturing(stream, &mut status) }) else { return Ok(false) };
        self.answered("cuStreamIsCapturing", code).map(|()| status != 0)
    }

    /// # Safety
    /// The stream is alive.
    pub(crate) unsafe fn synchronize_stream(self, stream: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuStreamSynchronize(stream) };
        self.answered("cuStreamSynchronize", code)
    }

    /// An event of the current context's.
    pub(crate) fn create_event(self) -> Result<Handle, Failed> {
        let mut event = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { self.table.cuEventCreate(&mut event, raw::EVENT_DISABLE_TIMING) };
        self.answered("cuEventCreate", code).map(|()| event)
    }

    /// # Safety
    /// Event and stream are alive.
    pub(crate) unsafe fn record_event(self, event: Handle, stream: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuEventRecord(event, stream) };
        self.answered("cuEventRecord", code)
    }

    /// Whether a recorded event has come.
    ///
    /// # Safety
    /// The event is alive.
    pub(crate) unsafe fn query_event(self, event: Handle) -> Result<bool, Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuEventQuery(event) };
        if code == raw::NOT_READY {
            return Ok(false);
        }
        self.answered("cuEventQuery", code).map(|()| true)
    }

    /// # Safety
    /// The event is alive.
    pub(crate) unsafe fn synchronize_event(self, event: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuEventSynchronize(event) };
        self.answered("cuEventSynchronize", code)
    }

    /// # Safety
    /// The event is alive, and used no more.
    pub(crate) unsafe fn destroy_event(self, event: Handle) -> Result<(), Failed> {
        // SAFETY: by the caller's word.
        let code = unsafe { self.table.cuEventDestroy_v2(event) };
        self.answered("cuEventDestroy_v2", code)
    }
}

/// A C string in a buffer of ours.
fn words(bytes: &[c_char]) -> String {
    bytes.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect()
}
