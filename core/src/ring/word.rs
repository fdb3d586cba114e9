//! The one word type of ring and exposed memory.
//!
//! Two sides share that memory and either may be Rust, so both use atomics, and both whole words of the
//! same type: racing atomics of different sizes are as undefined as plain races. A 64-bit word where the
//! target has one, else 32 bits; ring entries are handled in quads of eight bytes on either.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use crate::entry::Quad;

/// The largest atomic integer of the target, up to 64 bits.
#[cfg(target_has_atomic = "64")]
pub type Word = u64;
/// The largest atomic integer of the target, up to 64 bits.
#[cfg(not(target_has_atomic = "64"))]
pub type Word = u32;

/// A [`Word`] that two sides share.
#[cfg(target_has_atomic = "64")]
pub type AtomicWord = core::sync::atomic::AtomicU64;
/// A [`Word`] that two sides share.
#[cfg(not(target_has_atomic = "64"))]
pub type AtomicWord = core::sync::atomic::AtomicU32;

/// Words in eight bytes.
pub const WORDS_PER_QUAD: usize = 8 / size_of::<Word>();

/// The word at `index`.
///
/// # Safety
/// `base` is valid for `index + 1` words for `'a`.
#[inline(always)]
unsafe fn word<'a>(base: NonNull<AtomicWord>, index: usize) -> &'a AtomicWord {
    // SAFETY: in bounds by the caller's word.
    let pointer = unsafe { base.add(index) };
    // SAFETY: valid and aligned by the caller's word; atomics may be shared.
    unsafe { pointer.as_ref() }
}

/// Stores eight bytes without order.
///
/// # Safety
/// `base` is valid for `quad + 1` quads.
#[inline(always)]
pub(crate) unsafe fn store_quad(base: NonNull<AtomicWord>, quad: usize, value: Quad) {
    for half in 0..WORDS_PER_QUAD {
        // SAFETY: a word of that quad.
        let target = unsafe { word(base, quad * WORDS_PER_QUAD + half) };
        target.store(part(value, half), Ordering::Relaxed);
    }
}

/// Stores eight bytes such that whoever sees the lowest word, and fences then, sees all stores before.
///
/// # Safety
/// `base` is valid for `quad + 1` quads.
#[cfg(feature = "soft")]
#[inline(always)]
pub(crate) unsafe fn publish_quad(base: NonNull<AtomicWord>, quad: usize, value: Quad) {
    for half in (0..WORDS_PER_QUAD).rev() {
        // SAFETY: a word of that quad.
        let target = unsafe { word(base, quad * WORDS_PER_QUAD + half) };
        target.store(part(value, half), Ordering::Release);
    }
}

/// Loads eight bytes, the lowest word first, without order.
///
/// # Safety
/// `base` is valid for `quad + 1` quads.
#[inline(always)]
pub(crate) unsafe fn load_quad(base: NonNull<AtomicWord>, quad: usize) -> Quad {
    let mut value = 0;
    for half in 0..WORDS_PER_QUAD {
        // SAFETY: a word of that quad.
        let source = unsafe { word(base, quad * WORDS_PER_QUAD + half) };
        value |= (source.load(Ordering::Relaxed) as Quad) << (half as u32 * Word::BITS % 64);
    }
    value
}

#[inline(always)]
#[allow(clippy::unnecessary_cast)] // a 32-bit word on some targets
fn part(value: Quad, half: usize) -> Word {
    (value >> (half as u32 * Word::BITS % 64)) as Word
}
