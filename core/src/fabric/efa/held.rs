//! Packets of one peer that wait for the application, or for their turn, in their slots.

use super::CREDITS;
use crate::memory::Slice;

/// As many places as a peer has credits: what has none is not taken at all.
#[derive(Debug)]
pub(super) struct Held {
    slots: [Option<(Slice, usize)>; CREDITS as usize],
    sequences: [u32; CREDITS as usize],
    /// Places in use, and those of them whose packets are in no order.
    used: u32,
    unordered: u32,
}

// A bit for each.
const _: () = assert!(CREDITS == u32::BITS);

impl Held {
    pub(super) const fn new() -> Self {
        let slots = [const { None }; CREDITS as usize];
        Self { slots, sequences: [0; CREDITS as usize], used: 0, unordered: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.used.count_ones() as usize
    }

    /// Keeps a packet of so many bytes, of the message with that number if it is of one.
    pub(super) fn push(&mut self, slot: Slice, len: usize, sequence: Option<u32>) -> Result<(), Slice> {
        self.put(self.used.trailing_ones(), slot, len, sequence)
    }

    fn put(&mut self, place: u32, slot: Slice, len: usize, sequence: Option<u32>) -> Result<(), Slice> {
        let index = place as usize;
        let (Some(here), Some(number)) = (self.slots.get_mut(index), self.sequences.get_mut(index)) else {
            return Err(slot);
        };
        *here = Some((slot, len));
        *number = sequence.unwrap_or_default();
        self.used |= 1 << place;
        self.unordered = self.unordered & !(1 << place) | u32::from(sequence.is_none()) << place;
        Ok(())
    }

    /// The place of one whose turn may be now: in no order, or of a message up to `expected`; not of those in `but`.
    pub(super) fn ripe(&self, expected: u32, but: u32) -> Option<u32> {
        let mut left = self.used & !but;
        while left != 0 {
            let place = left.trailing_zeros();
            let number = self.sequences.get(place as usize).copied().unwrap_or_default();
            if self.unordered >> place & 1 != 0 || expected.wrapping_sub(number) < 1 << 31 {
                return Some(place);
            }
            left &= left - 1;
        }
        None
    }

    /// Takes the packet at a place; [`Held::put_back`] is its inverse.
    pub(super) fn take(&mut self, place: u32) -> Option<(Slice, usize)> {
        let taken = self.slots.get_mut(place as usize)?.take()?;
        self.used &= !(1 << place);
        Some(taken)
    }

    pub(super) fn put_back(&mut self, place: u32, slot: Slice, len: usize) {
        if let Some(here) = self.slots.get_mut(place as usize) {
            *here = Some((slot, len));
            self.used |= 1 << place;
        }
    }

    /// Takes any of them.
    pub(super) fn pop(&mut self) -> Option<Slice> {
        self.take(self.used.trailing_zeros()).map(|(slot, _)| slot)
    }
}
