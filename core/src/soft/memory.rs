//! Registered memory as the device sees it, and moving bytes between two pieces of it.
//!
//! Memory that peers may reach is touched by atomic whole words alone, part-words by compare-exchange:
//! its owner looks at it at the same time. All else belongs to the request in flight and is copied plainly.
//! Where the wire has a mover, that alone touches registered memory: see [`Config::mover`](super::Config::mover).
//! Not known here: keys, rights and who may ask; see `tables`.

#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::MrInit;
use crate::flags::Access;
use crate::memory::{RawMemory, RawParts, load, store};
use crate::ring::{AtomicWord, Word};

const WORD: usize = size_of::<Word>();

/// Memory that `reg_mr` took.
#[derive(Debug)]
pub(super) struct Registered {
    memory: RawMemory,
    /// Where the device sees the first byte.
    iova: u64,
    reach: Reach,
}

/// How memory may be touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// By nobody else for now.
    Plain,
    /// By whole words, atomically.
    Words,
    /// By a call of the driver's.
    Moved(Mover),
}

impl Reach {
    pub(super) fn of(init: &MrInit, mover: Option<Mover>) -> Self {
        match mover {
            Some(mover) => Self::Moved(mover),
            None if init.shared || init.access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE) => Self::Words,
            None => Self::Plain,
        }
    }
}

/// Moves bytes to and from registered memory in the device's stead.
#[derive(Clone, Copy)]
pub struct Mover(unsafe fn(*mut u8, *const u8, usize));

impl Mover {
    /// A mover that calls `copy` with a target, a source and a number of bytes.
    ///
    /// # Safety
    /// `copy` reads and writes no other bytes than those, does so whoever else writes or unmaps them meanwhile, and
    /// calls nothing of the device. One of the two is memory that was registered, or a completion queue's
    /// ([`CqMemory::moved`](super::CqMemory::moved)); the other is registered too, or is the device's own and then valid,
    /// and nobody else's for now.
    pub const unsafe fn new(copy: unsafe fn(*mut u8, *const u8, usize)) -> Self {
        Self(copy)
    }

    /// Writes bytes to memory of the driver's.
    ///
    /// # Safety
    /// The mover can bear whatever `to` is.
    pub(super) unsafe fn write(self, to: *mut u8, bytes: &[u8]) {
        // SAFETY: by the caller's word; the bytes are there, and nobody else's.
        unsafe { self.0(to, bytes.as_ptr(), bytes.len()) }
    }
}

impl PartialEq for Mover {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for Mover {}

impl core::fmt::Debug for Mover {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Mover").finish_non_exhaustive()
    }
}

/// Some bytes of registered memory, while it is registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    base: NonNull<u8>,
    len: usize,
    reach: Reach,
    of: PhantomData<&'a Registered>,
}

impl Registered {
    /// Whether memory of these parts can be touched in whole words.
    pub(super) fn is_whole_words(parts: RawParts) -> bool {
        parts.base.addr().get().is_multiple_of(align_of::<AtomicWord>()) && parts.len.is_multiple_of(WORD)
    }

    /// # Safety
    /// As for [`Provider::reg_mr`](crate::Provider::reg_mr); if reached by words, the memory is whole words.
    pub(super) unsafe fn new(memory: RawMemory, iova: u64, reach: Reach) -> Self {
        Self { memory, iova, reach }
    }

    pub(super) fn into_memory(self) -> RawMemory {
        self.memory
    }

    /// The bytes at a device address, if all are inside.
    #[inline(always)]
    pub(super) fn span(&self, addr: u64, len: u32) -> Option<Span<'_>> {
        let parts = self.memory.parts();
        let offset = usize::try_from(addr.checked_sub(self.iova)?).ok()?;
        let len = usize::try_from(len).ok()?;
        if parts.len.checked_sub(offset)? < len {
            return None;
        }
        // SAFETY: offset <= len of the memory.
        let base = unsafe { parts.base.add(offset) };
        Some(Span { base, len, reach: self.reach, of: PhantomData })
    }
}

/// Some bytes to copy from; nothing writes through it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a>(Span<'a>);

impl<'a> From<Span<'a>> for Source<'a> {
    #[inline(always)]
    fn from(span: Span<'a>) -> Self {
        Self(span)
    }
}

impl<'a> Source<'a> {
    /// Bytes that are in no region.
    #[inline(always)]
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self(Span { len: bytes.len(), base: NonNull::from(bytes).cast(), reach: Reach::Plain, of: PhantomData })
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.0.len
    }

    /// The part from `offset`, at most `len` bytes.
    #[inline(always)]
    pub(super) fn part(self, offset: usize, len: usize) -> Self {
        Self(self.0.part(offset, len))
    }
}

impl<'a> Span<'a> {
    /// Bytes that are in no region.
    #[cfg(feature = "alloc")]
    pub(super) fn of_bytes(bytes: &'a mut [u8]) -> Self {
        Self { len: bytes.len(), base: NonNull::from(bytes).cast(), reach: Reach::Plain, of: PhantomData }
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
pub(super) fn copy(to: Span<'_>, Source(from): Source<'_>) {
    let len = to.len.min(from.len);
    let (target, source) = (to.base.as_ptr(), from.base.as_ptr());
    match (to.reach, from.reach) {
        // SAFETY: `len` bytes of registered memory, or of the device's own.
        (Reach::Moved(Mover(copy)), _) | (_, Reach::Moved(Mover(copy))) => unsafe { copy(target, source, len) },
        // SAFETY: both valid for `len` bytes and nobody else's for now.
        (Reach::Plain, Reach::Plain) => unsafe { core::ptr::copy(source, target, len) },
        // SAFETY: valid for `len` bytes; the target is whole words.
        (Reach::Words, Reach::Plain) => unsafe { store(target, source, len) },
        // SAFETY: valid for `len` bytes; the source is whole words.
        (Reach::Plain, Reach::Words) => unsafe { load(target, source, len) },
        // SAFETY: valid for `len` bytes; both are whole words.
        (Reach::Words, Reach::Words) => unsafe { exchange(target, source, len) },
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

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::{vec, vec::Vec};

    fn reach(exposed: bool) -> Reach {
        if exposed { Reach::Words } else { Reach::Plain }
    }

    /// Whatever the alignment and kind of either side, the same bytes arrive and no others change.
    #[test]
    fn bytes_arrive_at_every_alignment_between_every_two_kinds_of_memory() {
        let words = if cfg!(miri) { 6 } else { 160 };
        let lens = if cfg!(miri) { vec![0, 9, 27] } else { (0..80).chain([511, 512, 513, 1040]).collect() };
        for len in lens {
            for (from_at, to_at) in (0..64).map(|n| (n % 8, n / 8)) {
                if cfg!(miri) && (from_at * 8 + to_at) % 9 != 0 {
                    continue;
                }
                for kinds in 0..4 {
                    let mut source: Vec<u64> =
                        (0..words as u64).map(|n| n.wrapping_mul(0x0101_0301_0701_0d01)).collect();
                    let mut target = vec![0xAAAA_AAAA_AAAA_AAAAu64; words];
                    let from = NonNull::from(source.as_mut_slice()).cast::<u8>();
                    let to = NonNull::from(target.as_mut_slice()).cast::<u8>();
                    let whole = |base, exposed| Span { base, len: words * 8, reach: reach(exposed), of: PhantomData };
                    copy(
                        whole(to, kinds & 1 != 0).part(to_at, len),
                        whole(from, kinds & 2 != 0).part(from_at, len).into(),
                    );
                    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
                    let mut expected = vec![0xAA; words * 8];
                    expected[to_at..to_at + len].copy_from_slice(&bytes(&source)[from_at..from_at + len]);
                    assert!(bytes(&target) == expected, "{len} bytes from {from_at} to {to_at}, kinds {kinds}");
                }
            }
        }
    }

    #[test]
    fn overlapping_exposed_memory_moves_as_if_copied_first() {
        let cases = [(0, 3), (600, 0), (3, 0), (0, 600), (8, 16), (5, 5)];
        for (from_at, to_at) in cases.into_iter().take(if cfg!(miri) { 2 } else { 6 }) {
            let mut memory: Vec<u64> = (0..320u64).map(|n| n.wrapping_mul(0x0101_0301_0701_0d01)).collect();
            let mut expected: Vec<u8> = memory.iter().flat_map(|w| w.to_ne_bytes()).collect();
            expected.copy_within(from_at..from_at + 1900, to_at);
            let base = NonNull::from(memory.as_mut_slice()).cast::<u8>();
            let whole = Span { base, len: 2560, reach: Reach::Words, of: PhantomData };
            copy(whole.part(to_at, 1900), whole.part(from_at, 1900).into());
            assert!(memory.iter().flat_map(|w| w.to_ne_bytes()).eq(expected), "from {from_at} to {to_at}");
        }
    }
}
