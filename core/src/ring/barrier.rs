//! Which fence stands where, decided once.
//!
//! | where | x86-64 | aarch64 | elsewhere |
//! |---|---|---|---|
//! | send entries before their doorbell | `sfence` | `dsb st` | `fence(SeqCst)` |
//! | receive descriptors before their doorbell | compiler only | `dmb oshst` | `fence(SeqCst)` |
//! | the phase of a completion before the rest of it, and what it tells of | compiler only | `dmb oshld` | `fence(Acquire)` |
//!
//! The send queue is write-combined device memory: only a store fence orders it before the doorbell.
//! libefa also fences before the first entry after a doorbell. Here one fence a batch remains: entries are taken in the
//! order of the ring, so that one is overwritten only after a completion was read which the device cannot have sent
//! before it saw the doorbell of that entry.
//! Each fence is also Rust's own, since the other side may be the software device in a thread.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering, fence};

/// Announces send entries: everything written before reaches the device before the doorbell does.
#[inline(always)]
pub(crate) fn ring_send_doorbell(doorbell: &AtomicU32, producer: u32) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a store fence has no precondition.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no register or memory.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    fence(Ordering::Release);
    doorbell.store(producer, Ordering::Relaxed);
}

/// Announces receive descriptors, which lie in ordinary memory.
#[inline(always)]
pub(crate) fn ring_recv_doorbell(doorbell: &AtomicU32, producer: u32) {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no register or memory.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    fence(Ordering::Release);
    doorbell.store(producer, Ordering::Relaxed);
}

/// What the device wrote before the phase that was just loaded is seen by the loads after this.
///
/// A fence rather than acquire loads: a completion queue may be mapped for reading only, where Rust promises relaxed
/// loads and no others; and the device is no observer in the inner domain, of which an acquire load speaks.
#[inline(always)]
pub(crate) fn phase_was_seen() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a barrier touches no register or memory.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    fence(Ordering::Acquire);
}
