//! A program for bare metal, with static memory and no allocator. It exits nowhere: on such a target its result is
//! for a debugger. On a host it prints what it moved.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod target {
    use core::panic::PanicInfo;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// Bytes that were moved; all bits set if it failed.
    #[unsafe(no_mangle)]
    static MOVED: AtomicUsize = AtomicUsize::new(0);

    #[unsafe(no_mangle)]
    extern "C" fn _start() -> ! {
        let moved = efa_examples::bare::run().map_or(usize::MAX, |report| report.sent + report.written + report.read);
        MOVED.store(moved, Ordering::Release);
        halt()
    }

    #[panic_handler]
    fn panic(_: &PanicInfo<'_>) -> ! {
        halt()
    }

    fn halt() -> ! {
        loop {
            core::hint::spin_loop();
        }
    }
}

#[cfg(not(target_os = "none"))]
fn main() -> Result<(), efa_examples::bare::Fault> {
    let report = efa_examples::bare::run()?;
    println!("{report:?}");
    Ok(())
}
