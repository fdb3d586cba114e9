//! Memory whose owners are counted: a region is freed when its owner is dropped, once.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use efa_core::memory::{DmaBuf, RawParts, Visible};

/// Owners that were made and not dropped, of all programs of the process.
static ALIVE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Bytes on the heap, aligned to words, that count their owner.
#[derive(Debug)]
pub(super) struct Counted {
    words: ManuallyDrop<Box<[u64]>>,
    len: usize,
    number: usize,
}

impl Counted {
    /// Zeros, and the owner's number.
    pub(super) fn new(len: usize) -> (Self, usize) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        alive().insert(number);
        let words = vec![0; len.div_ceil(8)].into_boxed_slice();
        (Self { words: ManuallyDrop::new(words), len, number }, number)
    }

    pub(super) fn is_alive(number: usize) -> bool {
        alive().contains(&number)
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.words.iter().flat_map(|word| word.to_ne_bytes()).take(self.len).collect()
    }
}

fn alive() -> MutexGuard<'static, BTreeSet<usize>> {
    ALIVE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.words) };
        assert!(alive().remove(&self.number), "dropped twice");
    }
}

// SAFETY: the words are on the heap and stay there; the parts have their length, and the owner's number.
unsafe impl DmaBuf for Counted {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is never used or dropped again, so the box moves out once.
        let words = unsafe { ManuallyDrop::take(&mut this.words) };
        let base = NonNull::from(Box::leak(words)).cast();
        RawParts { base, len: this.len, extra: this.number }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        let words = NonNull::slice_from_raw_parts(parts.base.cast::<u64>(), parts.len.div_ceil(8));
        // SAFETY: leaked by `into_raw`, and rebuilt once, by the caller's word.
        let words = unsafe { Box::from_raw(words.as_ptr()) };
        Self { words: ManuallyDrop::new(words), len: parts.len, number: parts.extra }
    }
}
