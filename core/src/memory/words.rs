//! Copies in and out of memory that another party may be using at the same time.
//!
//! Whole words of the one word type, relaxed; a part of a word is written by compare-exchange, so that
//! the other bytes of that word, which may be somebody else's, are never written back stale.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use crate::ring::{AtomicWord, Word};

const BYTES: usize = size_of::<Word>();

/// # Safety
/// `base` is aligned to words and valid for the word at byte `offset`, for `'a`.
#[inline(always)]
unsafe fn word<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicWord {
    // SAFETY: in bounds by the caller's word.
    let at = unsafe { base.add(offset / BYTES * BYTES) };
    // SAFETY: valid and aligned by the caller's word, and reached atomically by everybody.
    unsafe { at.cast::<AtomicWord>().as_ref() }
}

/// Copies `len` bytes from private memory into shared memory.
///
/// # Safety
/// `base` is aligned to words and valid for whole words up to `offset + len`, reached atomically by
/// everybody else; `source` is valid for reads of `len` bytes and nobody writes it meanwhile.
pub(crate) unsafe fn store_bytes(base: NonNull<u8>, mut offset: usize, mut source: *const u8, mut len: usize) {
    while len > 0 {
        let skip = offset % BYTES;
        let take = (BYTES - skip).min(len);
        // SAFETY: the word holds one of the bytes.
        let target = unsafe { word(base, offset) };
        if take == BYTES {
            // SAFETY: a word's bytes are left.
            target.store(unsafe { source.cast::<Word>().read_unaligned() }, Ordering::Relaxed);
        } else {
            let mut bytes = [0; BYTES];
            // SAFETY: `take` bytes are left, and fit.
            unsafe { source.copy_to_nonoverlapping(bytes.as_mut_ptr().wrapping_add(skip), take) };
            let mut mask = [0; BYTES];
            mask.iter_mut().skip(skip).take(take).for_each(|byte| *byte = 0xFF);
            let (new, mask) = (Word::from_ne_bytes(bytes), Word::from_ne_bytes(mask));
            let _ = target.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(old & !mask | new));
        }
        // SAFETY: within or one past the `len` bytes.
        source = unsafe { source.add(take) };
        offset += take;
        len -= take;
    }
}

/// Copies `len` bytes from shared memory into private memory.
///
/// # Safety
/// As [`store_bytes`], but `target` is valid for writes and nobody else reaches it meanwhile.
pub(crate) unsafe fn load_bytes(base: NonNull<u8>, mut offset: usize, mut target: *mut u8, mut len: usize) {
    while len > 0 {
        let skip = offset % BYTES;
        let take = (BYTES - skip).min(len);
        // SAFETY: the word holds one of the bytes.
        let bytes = unsafe { word(base, offset) }.load(Ordering::Relaxed).to_ne_bytes();
        if take == BYTES {
            // SAFETY: a word's bytes are left.
            unsafe { target.cast::<[u8; BYTES]>().write_unaligned(bytes) };
        } else {
            // SAFETY: `take` bytes are left, and `skip + take` is within a word.
            unsafe { bytes.as_ptr().wrapping_add(skip).copy_to_nonoverlapping(target, take) };
        }
        // SAFETY: within or one past the `len` bytes.
        target = unsafe { target.add(take) };
        offset += take;
        len -= take;
    }
}

/// The word at byte `offset`, which is a multiple of a word's size.
///
/// # Safety
/// As [`store_bytes`] for that word.
pub(super) unsafe fn shared_word<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicWord {
    // SAFETY: by the caller's word.
    unsafe { word(base, offset) }
}
