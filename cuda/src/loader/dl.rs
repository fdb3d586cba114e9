//! The dynamic loader: a library by name, symbols by name.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

/// A library that stays open for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle(NonNull<c_void>);

impl Handle {
    /// Opens a library by its name, which is searched for as the loader does, or by a path.
    ///
    /// # Errors
    /// What the loader said.
    pub(super) fn open(name: &OsStr) -> Result<Self, String> {
        let c = CString::new(name.as_bytes()).map_err(|_| "the name has a zero byte".to_owned())?;
        // SAFETY: a C string. What a library's constructors do is that library's promise, the driver's, or of whoever
        // named another file.
        let handle = unsafe { libc::dlopen(c.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(last_error)
    }

    /// The address of a function of the library's.
    pub(super) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// Whether this program has rights that its user has not: what the user's environment names is not opened then.
pub(super) fn is_privileged() -> bool {
    // SAFETY: it may be asked for at any time.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// What the loader said of this thread's last failure.
fn last_error() -> String {
    // SAFETY: it may be called at any time.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gave no reason".to_owned();
    }
    // SAFETY: the loader gives C strings, which nobody changes while this copies.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}
