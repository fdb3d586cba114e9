//! Rings in memory that core writes and reads as if they were the device's.

#![forbid(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use efa_core::entry::completion_flags as flags;
use efa_core::ring::AtomicWord;

/// Words that stay where they are. Shared with core by their address, so only atomics reach them.
#[derive(Clone)]
pub(super) struct Words(Arc<[AtomicU64]>);

impl Words {
    pub(super) fn zeroed(quads: u32) -> Self {
        Self((0..quads).map(|_| AtomicU64::new(0)).collect())
    }

    /// The first word, with the right to all of them.
    pub(super) fn base(&self) -> NonNull<AtomicWord> {
        NonNull::new(self.0.as_ptr().cast_mut()).unwrap_or(NonNull::dangling())
    }

    pub(super) fn load(&self, quad: u32) -> u64 {
        self.0.get(quad as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn store(&self, quad: u32, value: u64, order: Ordering) {
        if let Some(word) = self.0.get(quad as usize) {
            word.store(value, order);
        }
    }
}

/// A queue that core produces: its entries, and the doorbell that it announces them by.
pub(super) struct WorkRing {
    pub(super) words: Words,
    doorbell: Arc<AtomicU32>,
    /// Entries: a power of two.
    pub(super) entries: u32,
    quads: u32,
}

impl WorkRing {
    pub(super) fn new(entries: u32, quads: u32) -> Self {
        Self { words: Words::zeroed(entries * quads), doorbell: Arc::default(), entries, quads }
    }

    pub(super) fn doorbell(&self) -> NonNull<AtomicU32> {
        NonNull::from(&*self.doorbell)
    }

    /// How many were announced beyond `taken`; none if that is impossible.
    pub(super) fn announced(&self, taken: u16) -> u16 {
        let count = (self.doorbell.load(Ordering::Acquire) as u16).wrapping_sub(taken);
        if u32::from(count) > self.entries { 0 } else { count }
    }

    /// The quads of the entry that was announced as number `nth`.
    pub(super) fn entry<const N: usize>(&self, nth: u16) -> [u64; N] {
        let at = (u32::from(nth) & (self.entries - 1)) * self.quads;
        core::array::from_fn(|quad| self.words.load(at + quad as u32))
    }

    /// Forgets what was announced, as the device does with a move to RESET.
    pub(super) fn reset(&self) {
        self.doorbell.store(0, Ordering::Relaxed);
    }
}

/// A queue that core consumes.
pub(super) struct CompletionRing {
    pub(super) words: Words,
    entries: u32,
    quads: u32,
    /// Where the next entry goes.
    at: u32,
    /// The phase of this round.
    phase: u8,
}

impl CompletionRing {
    pub(super) fn new(entries: u32, entry_size: u8) -> Self {
        let quads = u32::from(entry_size / 8);
        Self { words: Words::zeroed(entries * quads), entries, quads, at: 0, phase: flags::PHASE }
    }

    /// Writes an entry, its phase last. As on the device there is no word of what was consumed: whoever made the queue made it
    /// for all that can be in flight (R17).
    pub(super) fn push(&mut self, entry: [u64; 4]) {
        let at = self.at * self.quads;
        for (quad, value) in (0..self.quads).zip(entry).skip(1) {
            self.words.store(at + quad, value, Ordering::Relaxed);
        }
        let [head, ..] = entry;
        self.words.store(at, head | u64::from(self.phase) << 24, Ordering::Release);
        self.at += 1;
        if self.at == self.entries {
            (self.at, self.phase) = (0, self.phase ^ flags::PHASE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_number_across_the_wrap_of_ring_and_counter() {
        let ring = WorkRing::new(4, 2);
        for quad in 0..8 {
            ring.words.store(quad, 100 + u64::from(quad), Ordering::Relaxed);
        }
        assert_eq!(ring.entry::<2>(5), [102, 103]);
        assert_eq!(ring.entry::<2>(u16::MAX), [106, 107]);
        ring.doorbell.store(1, Ordering::Relaxed);
        assert_eq!((ring.announced(u16::MAX), ring.announced(1), ring.announced(2)), (2, 0, 0));
    }

    #[test]
    fn the_phase_of_completions_flips_at_each_wrap() {
        let mut ring = CompletionRing::new(2, 16);
        let phases: Vec<u64> = (0..6)
            .map(|n| {
                ring.push([n, n, n, n]);
                ring.words.load(n as u32 % 2 * 2) >> 24 & 1
            })
            .collect();
        assert_eq!(phases, [1, 1, 0, 0, 1, 1]);
    }
}
