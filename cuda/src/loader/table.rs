//! The one table of functions. The symbols are those with suffixes: a plain name can be of an obsolete interface.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

use crate::raw::{
    Address, CaptureStatus, Code, Context, DeviceAttribute, Event, FlushScope, FlushTarget, PointerAttribute,
    RangeHandle, Stream,
};

macro_rules! table {
    (
        required { $(fn $required:ident($($r_arg:ident: $r_ty:ty),*);)* }
        optional { $($since:literal fn $optional:ident($($o_arg:ident: $o_ty:ty),*);)* }
    ) => {
        /// The driver's functions, found once. All answer with a code.
        #[derive(Debug)]
        #[allow(non_snake_case)]
        pub(crate) struct Table {
            $($required: unsafe extern "C" fn($($r_ty),*) -> Code,)*
            $($optional: Option<unsafe extern "C" fn($($o_ty),*) -> Code>,)*
        }

        /// Each function, and the types of what it takes.
        #[cfg(test)]
        pub(super) const SIGNATURES: &[(&str, &[&str])] = &[
            $((stringify!($required), &[$(stringify!($r_ty)),*]),)*
            $((stringify!($optional), &[$(stringify!($o_ty)),*]),)*
        ];

        impl Table {
            /// Finds the functions.
            ///
            /// # Errors
            /// The first that is required and not there.
            pub(super) fn find(look: impl Fn(&CStr) -> Option<NonNull<c_void>>) -> Result<Self, &'static str> {
                let look = |name: &CStr| look(name);
                Ok(Self {
                    $($required: {
                        let address = look(c_name(concat!(stringify!($required), "\0"))).ok_or(stringify!($required))?;
                        // SAFETY: the driver's function of that name, whose type in NVIDIA's header is this one.
                        unsafe {
                            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($r_ty),*) -> Code>(address)
                        }
                    },)*
                    $($optional: look(c_name(concat!(stringify!($optional), "\0"))).map(|address| {
                        // SAFETY: likewise.
                        unsafe {
                            core::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn($($o_ty),*) -> Code>(address)
                        }
                    }),)*
                })
            }

            $(
                /// # Safety
                /// As the driver's function of this name demands.
                #[allow(non_snake_case)]
                pub(crate) unsafe fn $required(&self, $($r_arg: $r_ty),*) -> Code {
                    // SAFETY: by the caller's word.
                    unsafe { (self.$required)($($r_arg),*) }
                }
            )*

            $(
                /// # Errors
                /// The function's name and the version that brings it, if this driver has none.
                ///
                /// # Safety
                /// As the driver's function of this name demands.
                #[allow(non_snake_case)]
                pub(crate) unsafe fn $optional(&self, $($o_arg: $o_ty),*) -> Result<Code, (&'static str, i32)> {
                    let function = self.$optional.ok_or((stringify!($optional), $since))?;
                    // SAFETY: by the caller's word.
                    Ok(unsafe { function($($o_arg),*) })
                }
            )*
        }
    };
}

fn c_name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
}

table! {
    required {
        fn cuInit(flags: u32);
        fn cuDriverGetVersion(version: *mut i32);
        fn cuGetErrorName(code: Code, name: *mut *const c_char);
        fn cuGetErrorString(code: Code, text: *mut *const c_char);
        fn cuDeviceGetCount(count: *mut i32);
        fn cuDeviceGet(device: *mut i32, ordinal: i32);
        fn cuDeviceGetName(name: *mut c_char, len: i32, device: i32);
        fn cuDeviceGetPCIBusId(name: *mut c_char, len: i32, device: i32);
        fn cuDeviceGetAttribute(value: *mut i32, attribute: DeviceAttribute, device: i32);
        fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32);
        fn cuDevicePrimaryCtxRetain(context: *mut Context, device: i32);
        fn cuDevicePrimaryCtxRelease_v2(device: i32);
        fn cuCtxGetCurrent(context: *mut Context);
        fn cuCtxPushCurrent_v2(context: Context);
        fn cuCtxPopCurrent_v2(context: *mut Context);
        fn cuCtxGetDevice(device: *mut i32);
        fn cuPointerGetAttributes(
            count: u32, attributes: *mut PointerAttribute, data: *mut *mut c_void, address: Address
        );
        fn cuPointerSetAttribute(value: *const c_void, attribute: PointerAttribute, address: Address);
        fn cuMemGetAddressRange_v2(base: *mut Address, len: *mut usize, address: Address);
        fn cuMemAlloc_v2(address: *mut Address, len: usize);
        fn cuMemFree_v2(address: Address);
        fn cuMemsetD8Async(address: Address, byte: u8, len: usize, stream: Stream);
        fn cuMemcpyDtoH_v2(to: *mut c_void, address: Address, len: usize);
        fn cuStreamCreate(stream: *mut Stream, flags: u32);
        fn cuStreamDestroy_v2(stream: Stream);
        fn cuStreamSynchronize(stream: Stream);
        fn cuStreamGetCtx(stream: Stream, context: *mut Context);
        fn cuEventCreate(event: *mut Event, flags: u32);
        fn cuEventRecord(event: Event, stream: Stream);
        fn cuEventQuery(event: Event);
        fn cuEventSynchronize(event: Event);
        fn cuEventDestroy_v2(event: Event);
    }
    optional {
        10000 fn cuStreamIsCapturing(stream: Stream, status: *mut CaptureStatus);
        11030 fn cuFlushGPUDirectRDMAWrites(target: FlushTarget, scope: FlushScope);
        11070 fn cuMemGetHandleForAddressRange(
            handle: *mut c_void, address: Address, len: usize, sort: RangeHandle, flags: u64
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function for every name; none is called.
    fn any(_: &CStr) -> Option<NonNull<c_void>> {
        extern "C" fn nothing() -> Code {
            0
        }
        NonNull::new(nothing as extern "C" fn() -> Code as *mut c_void)
    }

    #[test]
    fn a_driver_without_the_newer_functions_loads_and_says_which_version_brings_them() {
        let newer = [c"cuMemGetHandleForAddressRange", c"cuFlushGPUDirectRDMAWrites", c"cuStreamIsCapturing"];
        let table = Table::find(|name| if newer.contains(&name) { None } else { any(name) }).unwrap();
        // SAFETY: nothing is called: there is no such function.
        let answer = unsafe { table.cuFlushGPUDirectRDMAWrites(0, 100) };
        assert_eq!(answer, Err(("cuFlushGPUDirectRDMAWrites", 11030)));
        let mut handle = 0;
        // SAFETY: as above.
        let answer = unsafe { table.cuMemGetHandleForAddressRange((&raw mut handle).cast::<c_void>(), 0, 0, 1, 0) };
        assert_eq!(answer, Err(("cuMemGetHandleForAddressRange", 11070)));
    }

    #[test]
    fn the_suffixed_symbol_is_asked_for_and_no_plain_one_takes_its_place() {
        let plain = |name: &CStr| if name.to_bytes().ends_with(b"_v2") { None } else { any(name) };
        assert_eq!(Table::find(plain).map(drop), Err("cuDevicePrimaryCtxRelease_v2"));
    }
}
