//! Registered memory as the device sees it, and moving bytes between two pieces of it.
//!
//! Memory that peers may reach is touched by atomic whole words alone, part-words by compare-exchange:
//! its owner looks at it at the same time. All else belongs to the request in flight and is copied plainly.
//! Not known here: keys, rights and who may ask; see `tables`.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use crate::memory::{RawMemory, RawParts};
use crate::ring::{AtomicWord, Word};

const WORD: usize = size_of::<Word>();

/// Memory that `reg_mr` took.
#[derive(Debug)]
pub(super) struct Registered {
    memory: RawMemory,
    exposed: bool,
}

/// Some bytes of registered memory, while it is registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    base: NonNull<u8>,
    len: usize,
    exposed: bool,
    of: PhantomData<&'a Registered>,
}

impl Registered {
    /// Whether memory of these parts can be touched in whole words.
    pub(super) fn is_whole_words(parts: RawParts) -> bool {
        parts.base.addr().get().is_multiple_of(align_of::<AtomicWord>()) && parts.len.is_multiple_of(WORD)
    }

    /// # Safety
    /// As for [`Provider::reg_mr`](crate::Provider::reg_mr); if `exposed`, the memory is whole words.
    pub(super) unsafe fn new(memory: RawMemory, exposed: bool) -> Self {
        Self { memory, exposed }
    }

    pub(super) fn into_memory(self) -> RawMemory {
        self.memory
    }

    /// The bytes at a device address, if all are inside.
    #[inline(always)]
    pub(super) fn span(&self, addr: u64, len: u32) -> Option<Span<'_>> {
        let parts = self.memory.parts();
        let offset = usize::try_from(addr.checked_sub(parts.base.addr().get() as u64)?).ok()?;
        let len = usize::try_from(len).ok()?;
        if parts.len.checked_sub(offset)? < len {
            return None;
        }
        // SAFETY: offset <= len of the memory.
        let base = unsafe { parts.base.add(offset) };
        Some(Span { base, len, exposed: self.exposed, of: PhantomData })
    }
}

impl<'a> Span<'a> {
    /// Bytes that the device itself holds.
    pub(super) fn of_bytes(bytes: &'a mut [u8]) -> Self {
        Self { len: bytes.len(), base: NonNull::from(bytes).cast(), exposed: false, of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The part from `offset`, at most `len` bytes.
    #[inline(always)]
    pub(super) fn part(self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.len);
        // SAFETY: offset <= len.
        let base = unsafe { self.base.add(offset) };
        Self { base, len: len.min(self.len - offset), ..self }
    }
}

/// Copies as many bytes as both have; they may overlap.
///
/// The plain ones belong to a request in flight, by the word of who wrote its entry, or to the device.
#[inline]
pub(super) fn copy(to: Span<'_>, from: Span<'_>) {
    let len = to.len.min(from.len);
    let (target, source) = (to.base.as_ptr(), from.base.as_ptr());
    match (to.exposed, from.exposed) {
        // SAFETY: both valid for `len` bytes and nobody else's for now.
        (false, false) => unsafe { core::ptr::copy(source, target, len) },
        // SAFETY: valid for `len` bytes; the target is whole words.
        (true, false) => unsafe { store(target, source, len) },
        // SAFETY: valid for `len` bytes; the source is whole words.
        (false, true) => unsafe { load(target, source, len) },
        // SAFETY: valid for `len` bytes; both are whole words.
        (true, true) => unsafe { exchange(target, source, len) },
    }
}

/// Exposed to exposed, over a plain buffer; backwards where the target lies behind an overlapping source.
///
/// # Safety
/// Both are valid for `len` bytes and of whole words of exposed memory.
unsafe fn exchange(target: *mut u8, source: *const u8, len: usize) {
    const CHUNK: usize = 512;
    let mut chunk = [0u8; CHUNK];
    let backwards = target.addr() > source.addr();
    let chunks = len.div_ceil(CHUNK);
    for step in 0..chunks {
        let offset = if backwards { chunks - 1 - step } else { step } * CHUNK;
        let bytes = CHUNK.min(len - offset);
        let (to, from) = (target.wrapping_add(offset), source.wrapping_add(offset));
        // SAFETY: inside the source; the chunk is long enough.
        unsafe { load(chunk.as_mut_ptr(), from, bytes) };
        // SAFETY: inside the target; the chunk holds `bytes`.
        unsafe { store(to, chunk.as_ptr(), bytes) };
    }
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

/// Plain to exposed.
///
/// # Safety
/// Both are valid for `len` bytes; the target is in exposed memory.
unsafe fn store(target: *mut u8, source: *const u8, len: usize) {
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

/// Exposed to plain.
///
/// # Safety
/// Both are valid for `len` bytes; the source is in exposed memory.
unsafe fn load(target: *mut u8, source: *const u8, len: usize) {
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{vec, vec::Vec};

    /// Whatever the alignment and kind of either side, the same bytes arrive and no others change.
    #[test]
    fn bytes_arrive_at_every_alignment_between_every_two_kinds_of_memory() {
        let lens = if cfg!(miri) { vec![0, 1, 7, 9, 40] } else { (0..80).chain([511, 512, 513, 1040]).collect() };
        for len in lens {
            for (from_at, to_at) in (0..64).map(|n| (n % 8, n / 8)) {
                if cfg!(miri) && (from_at * 8 + to_at) % 5 != 0 {
                    continue;
                }
                for kinds in 0..4 {
                    let mut source: Vec<u64> = (0..160).map(|n| n * 0x0101_0301_0701_0d01).collect();
                    let mut target = vec![0xAAAA_AAAA_AAAA_AAAAu64; 160];
                    let from = NonNull::from(source.as_mut_slice()).cast::<u8>();
                    let to = NonNull::from(target.as_mut_slice()).cast::<u8>();
                    let whole = |base, exposed| Span { base, len: 1280, exposed, of: PhantomData };
                    copy(whole(to, kinds & 1 != 0).part(to_at, len), whole(from, kinds & 2 != 0).part(from_at, len));
                    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
                    let mut expected = vec![0xAA; 1280];
                    expected[to_at..to_at + len].copy_from_slice(&bytes(&source)[from_at..from_at + len]);
                    assert!(bytes(&target) == expected, "{len} bytes from {from_at} to {to_at}, kinds {kinds}");
                }
            }
        }
    }

    #[test]
    fn overlapping_exposed_memory_moves_as_if_copied_first() {
        for (from_at, to_at) in [(0, 3), (3, 0), (0, 600), (600, 0), (8, 16), (5, 5)] {
            let mut memory: Vec<u64> = (0..320).map(|n| n * 0x0101_0301_0701_0d01).collect();
            let mut expected: Vec<u8> = memory.iter().flat_map(|w| w.to_ne_bytes()).collect();
            expected.copy_within(from_at..from_at + 1900, to_at);
            let base = NonNull::from(memory.as_mut_slice()).cast::<u8>();
            let whole = Span { base, len: 2560, exposed: true, of: PhantomData };
            copy(whole.part(to_at, 1900), whole.part(from_at, 1900));
            assert!(memory.iter().flat_map(|w| w.to_ne_bytes()).eq(expected), "from {from_at} to {to_at}");
        }
    }
}
