//! Copies in and out of memory that another party may be using at the same time.
//!
//! Whole words of the one word type, relaxed; a part of a word is written by compare-exchange, so that
//! the other bytes of that word, which may be somebody else's, are never written back stale.
//! Used by both sides: the owner of exposed memory and the software device.

#![allow(unsafe_code)]

use core::sync::atomic::Ordering;

use crate::ring::{AtomicWord, Word};

const WORD: usize = size_of::<Word>();

/// Copies `len` bytes from private memory into shared memory.
///
/// # Safety
/// Both are valid for `len` bytes; the target is in memory of whole words that everybody reaches atomically,
/// and nobody writes the source meanwhile.
pub(crate) unsafe fn store(target: *mut u8, source: *const u8, len: usize) {
    let (before, words, after) = split(target, len);
    if before != 0 {
        // SAFETY: `before` ends where the word ends.
        unsafe { store_part(target, source, before) };
    }
    let to = target.wrapping_add(before).cast::<AtomicWord>();
    let from = source.wrapping_add(before).cast::<Word>();
    for index in 0..words {
        let from = from.wrapping_add(index);
        // SAFETY: a whole word inside the source: index < words.
        let value = unsafe { from.read_unaligned() };
        let to = to.wrapping_add(index);
        // SAFETY: inside, since index < words, aligned, and touched by atomics alone.
        unsafe { &*to }.store(value, Ordering::Relaxed);
    }
    if after != 0 {
        let (to, from) = (to.wrapping_add(words).cast(), from.wrapping_add(words).cast());
        // SAFETY: `after` is less than a word, begins at one, and ends where `len` does.
        unsafe { store_part(to, from, after) };
    }
}

/// Copies `len` bytes from shared memory into private memory.
///
/// # Safety
/// Both are valid for `len` bytes; the source is in memory of whole words that everybody reaches atomically,
/// and nobody else reaches the target meanwhile.
pub(crate) unsafe fn load(target: *mut u8, source: *const u8, len: usize) {
    let (before, words, after) = split(source, len);
    if before != 0 {
        // SAFETY: `before` ends where the word ends.
        unsafe { load_part(target, source, before) };
    }
    let to = target.wrapping_add(before).cast::<Word>();
    let from = source.wrapping_add(before).cast::<AtomicWord>();
    for index in 0..words {
        let from = from.wrapping_add(index);
        // SAFETY: inside, since index < words, aligned, and touched by atomics alone.
        let value = unsafe { &*from }.load(Ordering::Relaxed);
        let to = to.wrapping_add(index);
        // SAFETY: a whole word inside the target: index < words.
        unsafe { to.write_unaligned(value) };
    }
    if after != 0 {
        let (to, from) = (to.wrapping_add(words).cast(), from.wrapping_add(words).cast());
        // SAFETY: `after` is less than a word, begins at one, and ends where `len` does.
        unsafe { load_part(to, from, after) };
    }
}

/// The word at `at`.
///
/// # Safety
/// `at` is aligned to words, and the word is valid and reached atomically by everybody for `'a`.
pub(super) unsafe fn shared_word<'a>(at: *const u8) -> &'a AtomicWord {
    // SAFETY: by the caller's word.
    unsafe { &*at.cast::<AtomicWord>() }
}

/// The word that holds the byte at `at`.
///
/// # Safety
/// `at` is in exposed memory, which is whole words and valid for `'a`.
#[inline(always)]
unsafe fn word_of<'a>(at: *const u8) -> (&'a AtomicWord, usize) {
    let within = at.addr() % WORD;
    let first = at.wrapping_sub(within).cast::<AtomicWord>();
    // SAFETY: memory begins at a word, so this is inside; aligned, whole, and touched by atomics alone.
    (unsafe { &*first }, within)
}

/// Stores `len` bytes at `target`, all in one word.
///
/// # Safety
/// As for [`word_of`]; `source` is valid for `len` bytes, which end in the word where they begin.
unsafe fn store_part(target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: by the caller's word.
    let (word, within) = unsafe { word_of(target) };
    let mut bytes = [0u8; WORD];
    let first = bytes.as_mut_ptr().wrapping_add(within);
    // SAFETY: `within + len` is at most a word; the source is valid for `len` by the caller's word.
    unsafe { core::ptr::copy_nonoverlapping(source, first, len) };
    let mut mask = [0u8; WORD];
    for byte in mask.iter_mut().skip(within).take(len) {
        *byte = 0xFF;
    }
    let (value, mask) = (Word::from_ne_bytes(bytes), Word::from_ne_bytes(mask));
    let mut old = word.load(Ordering::Relaxed);
    while let Err(now) = word.compare_exchange_weak(old, old & !mask | value, Ordering::Relaxed, Ordering::Relaxed) {
        old = now;
    }
}

/// Loads `len` bytes from `source`, all in one word.
///
/// # Safety
/// As for [`word_of`]; `target` is valid for `len` bytes, which end in the word where they begin.
unsafe fn load_part(target: *mut u8, source: *const u8, len: usize) {
    // SAFETY: by the caller's word.
    let (word, within) = unsafe { word_of(source) };
    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
    let first = bytes.as_ptr().wrapping_add(within);
    // SAFETY: `within + len` is at most a word; the target is valid for `len` by the caller's word.
    unsafe { core::ptr::copy_nonoverlapping(first, target, len) };
}

/// How `len` bytes at `at` fall into words: bytes before the first whole one, whole ones, bytes after.
#[inline(always)]
fn split(at: *const u8, len: usize) -> (usize, usize, usize) {
    let before = (at.addr().wrapping_neg() % WORD).min(len);
    (before, (len - before) / WORD, (len - before) % WORD)
}
