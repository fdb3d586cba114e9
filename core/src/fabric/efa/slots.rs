//! The slots that packets are written into, and what is in each.

use heapless::Vec;

use super::Id;
use crate::memory::{Buffer, Slice};

/// The most slots that packets are sent from.
pub(super) const MAX_SLOTS: usize = 64;

/// Slots for packets that go out.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot, MAX_SLOTS>,
    free: Vec<u16, MAX_SLOTS>,
    /// Packets that wait to be tried again.
    pub(super) waiting: u16,
}

#[derive(Debug)]
struct Slot {
    /// All of it while it is free; while a packet is in flight, what is behind the packet.
    rest: Option<Slice>,
    sent: Option<Sent>,
}

/// A packet in a slot.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) peer: Id,
    /// The operation that it is of, if its completion matters to one.
    pub(super) of: Option<Of>,
    /// How often its receiver was not ready.
    pub(super) attempts: u8,
    /// What waits to be tried again, and when.
    pub(super) waits: Option<(Slice, Option<Buffer>, u64)>,
}

/// What a packet is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Outbound(Id),
    /// RDMA write from the slot.
    Write(Id),
}

impl Slots {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), waiting: 0 }
    }

    /// Adds a slot, if there is room for another.
    pub(super) fn add(&mut self, slice: Slice) -> Result<(), Slice> {
        let index = self.slots.len() as u16;
        match self.slots.push(Slot { rest: Some(slice), sent: None }) {
            Ok(()) => {
                // As many as slots.
                let _ = self.free.push(index);
                Ok(())
            }
            Err(slot) => slot.rest.map_or(Ok(()), Err),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a free slot, all of it.
    pub(super) fn take(&mut self) -> Option<(u16, Slice)> {
        let index = self.free.pop()?;
        let slice = self.slots.get_mut(usize::from(index))?.rest.take()?;
        Some((index, slice))
    }

    /// Puts a slot back that was not used.
    pub(super) fn untake(&mut self, index: u16, slice: Slice) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.rest = Some(slice);
            slot.sent = None;
            // It was taken.
            let _ = self.free.push(index);
        }
    }

    /// Notes a packet in a slot, and what is behind it.
    pub(super) fn note(&mut self, index: u16, rest: Slice, sent: Sent) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            slot.rest = Some(rest);
            slot.sent = Some(sent);
        }
    }

    pub(super) fn sent(&mut self, index: u16) -> Option<&mut Sent> {
        self.slots.get_mut(usize::from(index))?.sent.as_mut()
    }

    /// A packet is out: its slot is free again.
    pub(super) fn finish(&mut self, index: u16, packet: Slice) -> Option<Sent> {
        let slot = self.slots.get_mut(usize::from(index))?;
        let sent = slot.sent.take()?;
        slot.rest = super::tables::join(Some(packet), slot.rest.take());
        // It was taken.
        let _ = self.free.push(index);
        Some(sent)
    }

    /// The packets that wait and are due by `now`, or all, one after the other from `from` on.
    pub(super) fn due(&mut self, from: u16, now: u64) -> Option<u16> {
        if self.waiting == 0 {
            return None;
        }
        self.slots.iter().zip(0..).skip(from.into()).find_map(|(slot, index)| {
            let (_, _, at) = slot.sent.as_ref()?.waits.as_ref()?;
            (*at <= now).then_some(index)
        })
    }
}
