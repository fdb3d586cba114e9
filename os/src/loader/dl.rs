//! The dynamic loader: libraries by name, symbols by name.

#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A library that stays open for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub struct Handle(NonNull<c_void>);

// SAFETY: the loader's own functions may be called from any thread with any handle that is open, and this one stays so.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Opens a library that this crate does not know.
    ///
    /// # Errors
    /// What the loader said.
    ///
    /// # Safety
    /// What the library does when it is opened is sound.
    pub unsafe fn of(name: &OsStr) -> Result<Self, String> {
        Self::open(name)
    }

    /// Opens a library by its name, which is searched for as the loader does, or by a path.
    ///
    /// # Errors
    /// What the loader said.
    pub(super) fn open(name: &OsStr) -> Result<Self, String> {
        let c = CString::new(name.as_bytes()).map_err(|_| "the name has a zero byte".to_owned())?;
        // SAFETY: a C string. What a library's constructors do is that library's promise, here libibverbs' and libefa's,
        // or of whoever named another file, or called `of`.
        let handle = unsafe { libc::dlopen(c.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Self).ok_or_else(last_error)
    }

    /// The address of a function of the library's; the default version of it, where there are several.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// The address of a function in one version node.
    #[cfg(all(test, feature = "system"))]
    pub(super) fn versioned(self, name: &CStr, node: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open library and two C strings.
        NonNull::new(unsafe { libc::dlvsym(self.0.as_ptr(), name.as_ptr(), node.as_ptr()) })
    }
}

/// The file that a function lies in.
pub(super) fn file_of(symbol: NonNull<c_void>) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for, and the answer goes into a struct of ours.
    let found = unsafe { libc::dladdr(symbol.as_ptr(), &mut info) };
    if found == 0 {
        return None;
    }
    text(info.dli_fname).map(PathBuf::from)
}

/// The file that the user's environment names for a library, by a variable.
pub fn named(variable: &str) -> Option<OsString> {
    std::env::var_os(variable).filter(|name| !name.is_empty() && !is_privileged())
}

/// Whether this program has rights that its user has not: what the user's environment names is not opened then.
fn is_privileged() -> bool {
    // SAFETY: it may be asked for at any time.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// What the loader said of this thread's last failure.
fn last_error() -> String {
    // SAFETY: it may be called at any time.
    let message = unsafe { libc::dlerror() };
    text(message).unwrap_or_else(|| "the loader gave no reason".to_owned())
}

/// A copy of a C string of the loader's.
fn text(string: *const c_char) -> Option<String> {
    if string.is_null() {
        return None;
    }
    // SAFETY: the loader gives C strings, which nobody changes while this copies.
    let string = unsafe { CStr::from_ptr(string) };
    Some(string.to_string_lossy().into_owned())
}
