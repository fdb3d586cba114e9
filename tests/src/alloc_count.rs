//! A global allocator that counts, for the claim that a loop does not allocate.
//!
//! It counts for each thread by itself, so that what a test harness does beside the loop is not blamed on it. A
//! program that wants the count names it:
//!
//! ```
//! use efa_tests::alloc_count::{CountingAllocator, allocations_in};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! assert_eq!(allocations_in(|| 1 + 1), (0, 2));
//! assert_eq!(allocations_in(|| Box::new(1)).0, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting what is asked of it.
#[derive(Debug, Clone, Copy)]
pub struct CountingAllocator;

/// Runs the closure and says how often it allocated or reallocated on this thread, beside what it returned.
///
/// # Panics
/// If the program's global allocator is not a [`CountingAllocator`]: a count of nothing would always be zero.
pub fn allocations_in<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(0_u8)));
    let start = ALLOCATIONS.get();
    assert_ne!(before, start, "nothing is counted: make CountingAllocator this program's #[global_allocator]");
    let returned = work();
    (ALLOCATIONS.get() - start, returned)
}

/// Runs the closure and says how many bytes it allocated on this thread and did not free, beside what it returned.
///
/// # Panics
/// As [`allocations_in`].
pub fn bytes_kept_by<R>(work: impl FnOnce() -> R) -> (i64, R) {
    let start = BYTES.get();
    let (_, returned) = allocations_in(work);
    (BYTES.get() - start, returned)
}

thread_local! {
    // Constant and without a destructor, so that the allocator can touch it at any time without allocating.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    BYTES.set(BYTES.get() + bytes as i64);
}

fn freed(bytes: usize) {
    BYTES.set(BYTES.get() - bytes as i64);
}

// SAFETY: every method hands its arguments to `System`, whose implementation keeps the contract, and returns what it
// returns. Counting neither allocates, as the thread's cell is constant and needs no registration, nor panics short
// of 2^64 allocations.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        count(size);
        // SAFETY: the caller promises that `block` came from this allocator with `layout`, so from `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        freed(layout.size());
        // SAFETY: as in `realloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::sync::Barrier;

    #[global_allocator]
    static ALLOCATOR: CountingAllocator = CountingAllocator;

    #[test]
    fn work_without_allocation_counts_none() {
        let sum = |to: u64| (0..to).fold(0, |sum, n| black_box(sum + n));
        assert_eq!(allocations_in(|| sum(100)), (0, 4950));
    }

    #[test]
    fn each_allocation_zeroed_allocation_and_reallocation_counts() {
        assert_eq!(allocations_in(|| black_box(Box::new([1_u8; 64]))).0, 1);
        assert_eq!(allocations_in(|| black_box(vec![0_u8; 64])).0, 1);
        let mut grows = Vec::with_capacity(8);
        grows.extend_from_slice(&[1_u8; 8]);
        assert_eq!(allocations_in(|| grows.reserve_exact(64)).0, 1);
    }

    #[test]
    fn bytes_that_are_kept_count_and_those_that_are_freed_do_not() {
        let (bytes, kept) = bytes_kept_by(|| {
            drop(black_box(vec![1_u8; 1000]));
            let mut grows = vec![0_u8; 64];
            grows.reserve_exact(192);
            grows
        });
        assert_eq!((bytes, kept.capacity()), (256, 256));
        assert_eq!(bytes_kept_by(|| drop(kept)).0, -256);
    }

    #[test]
    fn another_threads_allocations_are_not_counted_here() {
        let turn = Barrier::new(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                turn.wait();
                let allocated = black_box(vec![1_u8; 64]);
                turn.wait();
                allocated.len()
            });
            let between = || {
                turn.wait();
                turn.wait();
            };
            assert_eq!(allocations_in(between), (0, ()));
            assert_eq!(other.join().unwrap(), 64);
        });
    }
}
