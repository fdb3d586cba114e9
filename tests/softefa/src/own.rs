//! The memory of this process, as a kernel sees a program's: whatever is asked of it, it is there or it is not.
//!
//! A kernel pins the pages of registered memory; this library cannot, so the device's bytes are moved by a system
//! call that reports what is not there, rather than by instructions that would end the process. Memory that the
//! program has unmapped while it was registered then takes and gives nothing: [`faults`] counts it.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use efa_core::soft::Mover;

use crate::errno::Errno;
use crate::ioctl::UserMemory;
use crate::sys;

/// The program's own memory.
#[derive(Clone, Copy, Debug)]
pub struct OwnMemory;

impl UserMemory for OwnMemory {
    const IS_OWN: bool = true;

    fn read(&self, addr: u64, out: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: what is written is `out`.
        unsafe { sys::copy(out.as_mut_ptr() as u64, addr, out.len()) }
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Errno> {
        // SAFETY: the program asked for the answer there, as it asks a kernel.
        unsafe { sys::copy(addr, bytes.as_ptr() as u64, bytes.len()) }
    }
}

static FAULTS: AtomicU64 = AtomicU64::new(0);

/// How often registered memory was not there.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// What moves the device's bytes.
pub const fn mover() -> Mover {
    // SAFETY: the system reads and writes those bytes and no others, whoever else does, and knows what is mapped.
    unsafe { Mover::new(copy) }
}

/// # Safety
/// As [`Mover::new`] says of its calls.
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the program registered the memory, for the device to write it.
    match unsafe { sys::copy(to as u64, from as u64, len) } {
        Ok(()) => crate::foreign::was_read(from),
        Err(_) => _ = FAULTS.fetch_add(1, Ordering::Relaxed),
    }
}
