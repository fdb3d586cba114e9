//! Links only if no panic is reachable from what a program does with efa-core after bring-up.
//!
//! The panic handler calls a symbol that nobody defines, so the linker finds any panic that the optimiser could
//! not rule out. Every input is opaque to it, core's own state included: what is proved holds whatever that
//! state is. The program is linked, never run.

#![no_std]
#![no_main]

mod calls;
mod stub;

use core::hint::black_box;
use core::mem::MaybeUninit;
use core::panic::PanicInfo;

unsafe extern "C" {
    fn a_panic_is_reachable() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: nobody defines it, so a program that calls it does not link.
    unsafe { a_panic_is_reachable() }
}

#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    // By pointers that the optimiser does not see through: each call is compiled for itself, and whole.
    for call in black_box(calls::CALLS) {
        call();
    }
    #[cfg(feature = "planted")]
    black_box(planted as fn())();
    loop {
        core::hint::spin_loop();
    }
}

#[cfg(feature = "planted")]
fn planted() {
    let bytes: &[u8] = any();
    black_box(bytes[any::<usize>()]);
}

/// A value of which the optimiser knows nothing.
#[inline(always)]
fn any<T>() -> T {
    // SAFETY: none that would do to run it; the optimiser must assume that `black_box` wrote a good one.
    unsafe { black_box(MaybeUninit::<T>::uninit()).assume_init() }
}

/// Uses a value in a way that the optimiser does not know, and drops it.
#[inline(always)]
fn used<T>(value: T) {
    drop(black_box(value));
}
