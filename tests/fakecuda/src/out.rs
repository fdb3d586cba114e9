//! Pointers of C's callers.

use std::ffi::{CStr, c_char};
use std::fmt;

/// Where an answer goes: a pointer of the caller's, which is good for one, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    pub(crate) fn set(self, value: T) {
        self.set_nth(0, value);
    }

    /// The caller's array has that many.
    pub(crate) fn set_nth(self, nth: usize, value: T) {
        if !self.0.is_null() {
            // SAFETY: by the C contract of each function here the caller's pointer is good for what it is given for.
            unsafe { self.0.wrapping_add(nth).write_unaligned(value) };
        }
    }

    pub(crate) fn nth(self, nth: usize) -> T {
        // SAFETY: as above, for reading.
        unsafe { self.0.wrapping_add(nth).read_unaligned() }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    pub(crate) fn copy_from(self, bytes: &[T]) {
        // SAFETY: as above, for as many as the caller said.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
    }

    pub(crate) fn to_vec(self, len: usize) -> Vec<T> {
        (0..len).map(|nth| self.nth(nth)).collect()
    }
}

impl<T> fmt::Debug for Out<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out")
    }
}

/// A C string of the caller's.
pub(crate) fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: a C string by the contract of whoever calls.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}
