//! Packets of one peer that wait for the application, or for their turn, in their slots.

use super::CREDITS;
use crate::memory::Slice;

/// As many places of either sort as a peer has credits: what has none is not taken at all.
const PLACES: usize = CREDITS as usize;

// A bit for each, and sequence numbers that wrap stay in their places.
const _: () = assert!(CREDITS == u64::BITS);

/// A slot, and bytes of the packet in it.
type Packet = (Slice, usize);

#[derive(Debug)]
pub(super) struct Held {
    /// Messages in one packet, each at the place that its number says: what is next is found at once.
    messages: Places,
    /// Whatever else, in any.
    others: Places,
    /// Those of the others that are in no order.
    unordered: u64,
}

#[derive(Debug)]
struct Places {
    packets: [Option<Packet>; PLACES],
    sequences: [u32; PLACES],
    used: u64,
}

impl Places {
    const fn new() -> Self {
        Self { packets: [const { None }; PLACES], sequences: [0; PLACES], used: 0 }
    }

    #[inline(always)]
    fn put(&mut self, place: u32, packet: Packet, sequence: u32) -> Result<(), Slice> {
        match (self.packets.get_mut(place as usize), self.sequences.get_mut(place as usize)) {
            (Some(here @ None), Some(number)) => {
                (*here, *number) = (Some(packet), sequence);
                self.used |= 1 << place;
                Ok(())
            }
            _ => Err(packet.0),
        }
    }

    #[inline(always)]
    fn take(&mut self, place: u32) -> Option<Packet> {
        let packet = self.packets.get_mut(place as usize)?;
        if packet.is_some() {
            self.used &= !(1 << place);
        }
        packet.take()
    }

    fn sequence(&self, place: u32) -> u32 {
        self.sequences.get(place as usize).copied().unwrap_or_default()
    }
}

impl Held {
    pub(super) const fn new() -> Self {
        Self { messages: Places::new(), others: Places::new(), unordered: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.messages.used == 0 && self.others.used == 0
    }

    pub(super) const fn has_others(&self) -> bool {
        self.others.used != 0
    }

    /// Keeps the packet that is all of the message with that number; gives its slot back if there is one at its place.
    #[inline(always)]
    pub(super) fn put_message(&mut self, sequence: u32, packet: Packet) -> Result<(), Slice> {
        self.messages.put(sequence % CREDITS, packet, sequence)
    }

    /// Whether the message with that number is here, in one packet.
    #[inline(always)]
    pub(super) fn has_message(&self, sequence: u32) -> bool {
        let place = sequence % CREDITS;
        self.messages.used >> place & 1 != 0 && self.messages.sequence(place) == sequence
    }

    #[inline(always)]
    pub(super) fn take_message(&mut self, sequence: u32) -> Option<Packet> {
        if self.has_message(sequence) { self.messages.take(sequence % CREDITS) } else { None }
    }

    /// Keeps another packet, which is of the message with that number if it is of one.
    pub(super) fn put_other(&mut self, sequence: Option<u32>, packet: Packet) -> Result<(), Slice> {
        let place = self.others.used.trailing_ones();
        self.others.put(place, packet, sequence.unwrap_or_default())?;
        self.unordered = self.unordered & !(1 << place) | u64::from(sequence.is_none()) << place;
        Ok(())
    }

    /// The place of another whose turn may be now: in no order, or of a message up to `expected`; not of those in `but`.
    pub(super) fn ripe(&self, expected: u32, but: u64) -> Option<u32> {
        let mut left = self.others.used & !but;
        while left != 0 {
            let place = left.trailing_zeros();
            if self.unordered >> place & 1 != 0 || expected.wrapping_sub(self.others.sequence(place)) < 1 << 31 {
                return Some(place);
            }
            left &= left - 1;
        }
        None
    }

    /// Takes the packet at a place; [`Held::put_back`] is its inverse.
    pub(super) fn take_other(&mut self, place: u32) -> Option<Packet> {
        self.others.take(place)
    }

    pub(super) fn put_back(&mut self, place: u32, packet: Packet) -> Result<(), Slice> {
        let sequence = self.others.sequence(place);
        self.others.put(place, packet, sequence)
    }

    /// Takes any of them.
    pub(super) fn pop(&mut self) -> Option<Slice> {
        let taken = self.messages.take(self.messages.used.trailing_zeros());
        taken.or_else(|| self.others.take(self.others.used.trailing_zeros())).map(|(slot, _)| slot)
    }
}
