//! The driver's functions that efa-cuda has no use for, by their names; and some that it has, to be called as it never
//! does.

#![allow(unsafe_code, non_snake_case)]

use std::ffi::{CStr, OsString, c_char, c_void};

use efa_os::dl::Handle;

/// What a function that is not there answers.
pub(crate) const MISSING: i32 = -1;

/// The library that efa-cuda has opened.
#[derive(Debug)]
pub(crate) struct Cuda {
    library: Handle,
}

macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*);)*) => {
        impl Cuda {
            $(
                /// # Safety
                /// As the driver's function of this name demands.
                pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> i32 {
                    let name = concat!(stringify!($name), "\0");
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default();
                    let Some(address) = self.library.symbol(name) else { return MISSING };
                    // SAFETY: the driver's function of that name, whose type in NVIDIA's header is this one.
                    let function = unsafe {
                        std::mem::transmute::<std::ptr::NonNull<c_void>, unsafe extern "C" fn($($ty),*) -> i32>(address)
                    };
                    // SAFETY: by the caller's word.
                    unsafe { function($($arg),*) }
                }
            )*
        }
    };
}

functions! {
    fn cuGetErrorName(code: i32, name: *mut *const c_char);
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64);
    fn cuPointerGetAttributes(count: u32, attributes: *mut i32, data: *mut *mut c_void, address: u64);
    fn cuPointerSetAttribute(value: *const c_void, attribute: i32, address: u64);
    fn cuMemGetAddressRange_v2(base: *mut u64, len: *mut usize, address: u64);
    fn cuMemGetHandleForAddressRange(handle: *mut c_void, address: u64, len: usize, sort: i32, flags: u64);
    fn cuFlushGPUDirectRDMAWrites(target: i32, scope: i32);
    fn cuEventCreate(event: *mut usize, flags: u32);
    fn cuEventQuery(event: usize);
    fn cuEventDestroy_v2(event: usize);
    fn cuMemAlloc_v2(address: *mut u64, len: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemAllocManaged(address: *mut u64, len: usize, flags: u32);
    fn cuMemAllocAsync(address: *mut u64, len: usize, stream: usize);
    fn cuMemFreeAsync(address: u64, stream: usize);
    fn cuStreamSynchronize(stream: usize);
    fn cuMemGetAllocationGranularity(len: *mut usize, prop: *const Properties, option: i32);
    fn cuMemAddressReserve(address: *mut u64, len: usize, align: usize, at: u64, flags: u64);
    fn cuMemAddressFree(address: u64, len: usize);
    fn cuMemCreate(handle: *mut u64, len: usize, prop: *const Properties, flags: u64);
    fn cuMemRelease(handle: u64);
    fn cuMemMap(address: u64, len: usize, offset: usize, handle: u64, flags: u64);
    fn cuMemUnmap(address: u64, len: usize);
    fn cuMemSetAccess(address: u64, len: usize, access: *const Access, count: usize);
}

/// `CUmemAllocationProp`, of pinned memory of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    sort: i32,
    handles: i32,
    location: [i32; 2],
    meta: usize,
    compression: u8,
    gpu_direct: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl Properties {
    pub(crate) fn of(device: i32) -> Self {
        let (location, reserved) = ([1, device], [0; 4]);
        Self { sort: 1, handles: 0, location, meta: 0, compression: 0, gpu_direct: 1, usage: 0, reserved }
    }
}

/// `CUmemAccessDesc`, to read and write by a device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    location: [i32; 2],
    flags: i32,
}

impl Access {
    pub(crate) fn of(device: i32) -> Self {
        Self { location: [1, device], flags: 3 }
    }
}

impl Cuda {
    pub(crate) fn open() -> Result<Self, String> {
        let name = std::env::var_os("EFA_CUDA_LIBCUDA").unwrap_or_else(|| OsString::from("libcuda.so.1"));
        // SAFETY: open already: efa-cuda's driver was loaded.
        Ok(Self { library: unsafe { Handle::of(&name) }? })
    }

    /// A code in CUDA's words.
    pub(crate) fn name(&self, code: i32) -> String {
        let mut text = std::ptr::null();
        if code == MISSING {
            return "not in this driver".to_owned();
        }
        // SAFETY: any code may be asked for, and the answer goes onto the stack.
        if unsafe { self.cuGetErrorName(code, &mut text) } != 0 || text.is_null() {
            return format!("{code}, which has no name");
        }
        // SAFETY: a C string of the driver's, which stays loaded.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({code})", text.to_string_lossy())
    }
}
