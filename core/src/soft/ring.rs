//! The memory of rings, doorbells and slots: static, or on the heap for as long as its queue lives.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use super::memory::Mover;
use crate::entry::{Quad, completion_flags as flags};
use crate::ring::{AtomicWord, Slot, WORDS_PER_QUAD, load_quad, publish_quad, store_quad};

/// 64 bytes of ring memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Line([AtomicWord; 8 * WORDS_PER_QUAD]);

impl Line {
    pub(super) const fn new() -> Self {
        Self([const { AtomicWord::new(0) }; 8 * WORDS_PER_QUAD])
    }
}

/// The two doorbells of a queue pair.
#[derive(Debug)]
pub(super) struct Doorbells {
    pub(super) send: AtomicU32,
    pub(super) recv: AtomicU32,
}

impl Doorbells {
    pub(super) const fn new() -> Self {
        Self { send: AtomicU32::new(0), recv: AtomicU32::new(0) }
    }
}

/// A slot that the model gives away and never looks at.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct SlotCell(UnsafeCell<Slot>);

// SAFETY: reached through raw pointers of the one queue pair that it was given to.
unsafe impl Sync for SlotCell {}

impl SlotCell {
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new(Slot::VACANT))
    }
}

/// Memory of one queue: `len` elements that stay where they are until this is dropped.
#[derive(Debug)]
pub(super) struct Block<T: 'static> {
    base: NonNull<T>,
    len: usize,
    #[cfg_attr(not(feature = "alloc"), allow(dead_code))]
    heap: bool,
}

// SAFETY: it owns its elements, or borrows them for ever.
unsafe impl<T: Send + Sync> Send for Block<T> {}

impl<T: Sync> Block<T> {
    pub(super) fn of_static(slice: &'static [T]) -> Self {
        Self { base: NonNull::from(slice).cast(), len: slice.len(), heap: false }
    }

    /// `None` if there is no memory.
    #[cfg(feature = "alloc")]
    pub(super) fn on_heap(len: usize, mut make: impl FnMut() -> T) -> Option<Self> {
        let all = alloc::boxed::Box::into_raw(super::slab::boxed(len, |_| make())?);
        Some(Self { base: NonNull::new(all)?.cast(), len, heap: true })
    }

    /// The elements, as raw parts.
    pub(super) fn base(&self) -> NonNull<T> {
        self.base
    }
}

impl<T> Drop for Block<T> {
    fn drop(&mut self) {
        #[cfg(feature = "alloc")]
        if self.heap {
            let all = NonNull::slice_from_raw_parts(self.base, self.len);
            // SAFETY: from `Box::into_raw` in `on_heap`, and freed once.
            drop(unsafe { alloc::boxed::Box::from_raw(all.as_ptr()) });
        }
    }
}

impl Block<SlotCell> {
    /// The slots, all vacant.
    pub(super) fn vacant(&self) -> NonNull<Slot> {
        let base = self.base.cast::<Slot>();
        for index in 0..self.len {
            let slot = base.as_ptr().wrapping_add(index);
            // SAFETY: index < len, and the queue pair that had the slots is gone.
            unsafe { slot.write(Slot::VACANT) };
        }
        base
    }
}

/// A ring as the device sees it: entries of so many quads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    base: NonNull<AtomicWord>,
    mask: u32,
    quads: u8,
}

// SAFETY: it names atomics.
unsafe impl Send for Ring {}

impl Ring {
    /// # Safety
    /// `base` is valid for `entries`, a power of two, of `quads` each, for as long as this or a copy is used; if it is
    /// written by a mover alone, it is what that can bear.
    pub(super) unsafe fn new(base: NonNull<AtomicWord>, entries: u32, quads: u8) -> Self {
        Self { base, mask: entries - 1, quads }
    }

    pub(super) fn entries(&self) -> u32 {
        self.mask + 1
    }

    pub(super) fn quads(&self) -> u8 {
        self.quads
    }

    /// How often the ring was gone through before the entry of a free-running index, as one bit.
    #[inline(always)]
    pub(super) fn phase(&self, index: u32) -> u8 {
        (index >> (self.mask + 1).trailing_zeros() & 1) as u8
    }

    #[inline(always)]
    fn quad(&self, index: u32, quad: u8) -> usize {
        (index & self.mask) as usize * usize::from(self.quads) + usize::from(quad.min(self.quads - 1))
    }

    #[inline(always)]
    pub(super) fn load(&self, index: u32, quad: u8) -> Quad {
        // SAFETY: masked, hence inside.
        unsafe { load_quad(self.base, self.quad(index, quad)) }
    }

    #[inline(always)]
    pub(super) fn store(&self, index: u32, quad: u8, value: Quad) {
        // SAFETY: masked, hence inside.
        unsafe { store_quad(self.base, self.quad(index, quad), value) }
    }

    /// The store that makes the others of this entry visible.
    #[inline(always)]
    pub(super) fn publish(&self, index: u32, quad: u8, value: Quad) {
        // SAFETY: masked, hence inside.
        unsafe { publish_quad(self.base, self.quad(index, quad), value) }
    }

    /// Writes an entry by a mover: all of it with the phase that was there before, then the byte with the phase, since a
    /// mover's calls may write bytes in any order.
    #[cold]
    pub(super) fn publish_by(&self, mover: Mover, index: u32, entry: [Quad; 4]) {
        const PHASE_AT: usize = 3;
        let mut bytes = [0; 32];
        for (chunk, quad) in bytes.chunks_exact_mut(8).zip(entry) {
            chunk.copy_from_slice(&quad.to_le_bytes());
        }
        let quads = usize::from(self.quads);
        let target = self.base.as_ptr().cast::<u8>().wrapping_add((index & self.mask) as usize * quads * 8);
        let with_phase = [bytes[PHASE_AT]];
        bytes[PHASE_AT] ^= flags::PHASE;
        // SAFETY: an entry of the ring, by `new`'s word what the mover can bear.
        unsafe { mover.write(target, bytes.get(..quads * 8).unwrap_or(&bytes)) };
        fence(Ordering::Release);
        // SAFETY: as above.
        unsafe { mover.write(target.wrapping_add(PHASE_AT), &with_phase) };
    }

    /// All zeros, as a new ring is.
    pub(super) fn clear(&self) {
        for index in 0..self.entries() {
            for quad in 0..self.quads {
                self.store(index, quad, 0);
            }
        }
    }
}

/// A doorbell as the device sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doorbell(NonNull<AtomicU32>);

// SAFETY: it names an atomic.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// # Safety
    /// Valid for as long as this or a copy is used.
    pub(super) unsafe fn new(register: NonNull<AtomicU32>) -> Self {
        Self(register)
    }

    fn register(&self) -> &AtomicU32 {
        // SAFETY: valid by `new`'s word.
        unsafe { self.0.as_ref() }
    }

    /// What was rung last; what was written before is seen.
    #[inline(always)]
    pub(super) fn rung(&self) -> u16 {
        self.register().load(Ordering::Acquire) as u16
    }

    /// All of it.
    pub(super) fn word(&self) -> u32 {
        self.register().load(Ordering::Acquire)
    }

    pub(super) fn clear(&self) {
        self.register().store(0, Ordering::Relaxed);
    }
}
