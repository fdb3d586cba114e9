//! A GPU's memory by its address, as EFA's own driver gets it from NVIDIA's where both can (peer-to-peer): here from
//! tests/fakecuda, where a program has it open.
//!
//! When the memory is freed, its driver says so, and the region is no more the device's: what is posted with it fails.
//! The program's handle of it stays until it is deregistered.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

use efa_core::memory::Mr;

/// A region that its memory's driver may end.
pub(crate) type Held = Arc<Mutex<Option<Mr>>>;

type Get = unsafe extern "C" fn(u64, u64) -> RawFd;
type Put = unsafe extern "C" fn(u64) -> *mut c_void;
type Watch = unsafe extern "C" fn(u64, u64, extern "C" fn(*mut c_void), *mut c_void) -> u64;

/// What is asked of that driver.
#[derive(Clone, Copy, Debug)]
struct Functions {
    get: Get,
    watch: Watch,
    put: Put,
}

impl Functions {
    fn find() -> Option<Self> {
        // SAFETY: a C string; nothing is loaded that is not there.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let symbol = |name: &std::ffi::CStr| {
            // SAFETY: an open library and a C string.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let (get, watch) = (symbol(c"fakecuda_peer_get")?, symbol(c"fakecuda_peer_watch")?);
        let put = symbol(c"fakecuda_peer_put")?;
        // SAFETY: tests/fakecuda's functions of those names, which have these types.
        let get = unsafe { std::mem::transmute::<*mut c_void, Get>(get) };
        // SAFETY: as above.
        let watch = unsafe { std::mem::transmute::<*mut c_void, Watch>(watch) };
        // SAFETY: as above.
        let put = unsafe { std::mem::transmute::<*mut c_void, Put>(put) };
        Some(Self { get, watch, put })
    }
}

/// What stands for a range of a GPU's memory, if its driver gives it.
pub(crate) fn file_of(start: u64, len: u64) -> Option<OwnedFd> {
    let functions = Functions::find()?;
    // SAFETY: plain numbers.
    let file = unsafe { (functions.get)(start, len) };
    // SAFETY: made for us, who are to close it.
    (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })
}

/// Listens for the end of a range, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watching {
    put: Put,
    token: u64,
}

impl Watching {
    /// Ends a region when its memory is freed.
    pub(crate) fn new(start: u64, len: u64, region: &Held) -> Option<Self> {
        let Functions { watch, put, .. } = Functions::find()?;
        let region = Arc::into_raw(region.clone()).cast_mut().cast::<c_void>();
        // SAFETY: it is called back once with what it is given here, or gives that back.
        let token = unsafe { watch(start, len, freed, region) };
        Some(Self { put, token })
    }
}

extern "C" fn freed(region: *mut c_void) {
    // SAFETY: of `Watching::new`, and given back once.
    let region = unsafe { Arc::from_raw(region.cast_const().cast::<Mutex<Option<Mr>>>()) };
    drop(region.lock().unwrap_or_else(PoisonError::into_inner).take());
}

impl Drop for Watching {
    fn drop(&mut self) {
        // SAFETY: a token of its own.
        let region = unsafe { (self.put)(self.token) };
        if !region.is_null() {
            // SAFETY: of `new`, and given back once: it was not called.
            drop(unsafe { Arc::from_raw(region.cast_const().cast::<Mutex<Option<Mr>>>()) });
        }
    }
}
