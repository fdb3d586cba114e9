//! The slots that packets are written into, and what is in each.

use heapless::Vec;

use super::Id;
use super::tables::join;
use crate::Token;
use crate::fabric::Memory;
use crate::memory::{Buffer, Slice};

/// The most slots that packets are sent from.
pub(super) const MAX_SLOTS: usize = 64;

/// Slots for packets that go out.
#[derive(Debug)]
pub(super) struct Slots<S> {
    slots: Vec<Slot<S>, MAX_SLOTS>,
    free: Vec<u16, MAX_SLOTS>,
    /// Packets that wait to be tried again.
    pub(super) waiting: u16,
    /// Packets that are all of a message.
    pub(super) messages: u16,
}

#[derive(Debug)]
struct Slot<S> {
    /// As long as its last packet, since the next one is often as long; none while the device has it.
    head: Option<Slice>,
    /// What is behind that.
    rest: Option<Slice>,
    sent: Option<Sent>,
    /// Of a packet that is all of a message. By itself, as it is large: it is moved once in and once out.
    source: Option<Memory<S>>,
    /// How often its receiver was not ready.
    attempts: u8,
    /// Of a packet that waits to be tried again: what else it carries, and when.
    waits: Option<(Option<Buffer>, u64)>,
}

/// A packet in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) peer: Id,
    pub(super) of: Of,
}

/// What a packet is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// Nothing that its completion matters to.
    Nothing,
    Outbound(Id),
    /// RDMA write from the slot.
    Write(Id),
    /// All of a message, whose source is in the slot.
    Message {
        token: Token,
        /// The source had less than it said.
        shrunk: bool,
    },
}

impl<S> Slots<S> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), waiting: 0, messages: 0 }
    }

    /// Adds a slot, if there is room for another.
    pub(super) fn add(&mut self, slice: Slice) -> Result<(), Slice> {
        let index = self.slots.len() as u16;
        match self.slots.push(Slot {
            head: Some(slice),
            rest: None,
            sent: None,
            source: None,
            attempts: 0,
            waits: None,
        }) {
            Ok(()) => {
                // As many as slots.
                let _ = self.free.push(index);
                Ok(())
            }
            Err(slot) => slot.head.map_or(Ok(()), Err),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes so many bytes of a free slot, if there is one that long.
    #[inline(always)]
    #[allow(clippy::question_mark)] // which would move what is large once more
    pub(super) fn take(&mut self, len: usize) -> Option<(u16, Slice)> {
        let index = *self.free.last()?;
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.head.as_ref().is_none_or(|head| head.len() != len) {
            slot.cut(len);
        }
        let Some(head) = slot.head.take() else { return None };
        self.free.pop();
        Some((index, head))
    }

    /// Notes a packet in a slot.
    #[inline(always)]
    pub(super) fn note(&mut self, index: u16, sent: Sent) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            (slot.sent, slot.attempts) = (Some(sent), 0);
        }
    }

    /// Keeps the source of a packet that is all of a message.
    #[inline(always)]
    pub(super) fn keep(&mut self, index: u16, source: Memory<S>) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            // There was none.
            slot.source.get_or_insert(source);
            self.messages += 1;
        }
    }

    /// Takes that back.
    #[inline(always)]
    pub(super) fn take_source(&mut self, index: u16) -> Option<Memory<S>> {
        let slot = self.slots.get_mut(usize::from(index))?;
        self.messages -= u16::from(slot.source.is_some());
        slot.source.take()
    }

    pub(super) fn sent(&self, index: u16) -> Option<Sent> {
        self.slots.get(usize::from(index))?.sent
    }

    /// A packet is out, or never will be: its slot is free again, once its source is taken if it has one.
    #[inline(always)]
    #[allow(clippy::question_mark)] // which would move what is large once more
    pub(super) fn finish(&mut self, index: u16, head: Option<Slice>) -> Option<Sent> {
        let slot = self.slots.get_mut(usize::from(index))?;
        let Some(sent) = slot.sent.take() else { return None };
        slot.head = head;
        // It was taken.
        let _ = self.free.push(index);
        Some(sent)
    }

    /// How often a packet's receiver was not ready before; it was not again.
    pub(super) fn not_ready(&mut self, index: u16) -> u8 {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return 0 };
        let before = slot.attempts;
        slot.attempts = before.saturating_add(1).min(32);
        before
    }

    /// Has a packet wait until then.
    pub(super) fn wait(&mut self, index: u16, head: Slice, payload: Option<Buffer>, until: u64) {
        if let Some(slot) = self.slots.get_mut(usize::from(index)) {
            (slot.head, slot.waits) = (Some(head), Some((payload, until)));
            self.waiting += 1;
        }
    }

    /// Takes a packet that waits.
    pub(super) fn take_waiting(&mut self, index: u16) -> Option<(Slice, Option<Buffer>)> {
        let slot = self.slots.get_mut(usize::from(index))?;
        let (payload, _) = slot.waits.take()?;
        self.waiting -= 1;
        Some((slot.head.take()?, payload))
    }

    /// A packet that waits and is due by `now`.
    pub(super) fn due(&self, now: u64) -> Option<u16> {
        self.slots.iter().zip(0..).find_map(|(slot, index)| {
            let (_, at) = slot.waits.as_ref()?;
            (*at <= now).then_some(index)
        })
    }

    /// The messages in them, in the end: to whom, and each with its token and source.
    pub(super) fn into_messages(self) -> impl Iterator<Item = (Id, Token, Memory<S>)> {
        self.slots.into_iter().filter_map(|slot| match (slot.sent, slot.source) {
            (Some(Sent { peer, of: Of::Message { token, .. } }), Some(source)) => Some((peer, token, source)),
            _ => None,
        })
    }
}

impl<S> Slot<S> {
    /// Makes its head so long; leaves it none if it is not that long as a whole.
    #[inline(never)]
    fn cut(&mut self, len: usize) {
        let whole = join(self.head.take(), self.rest.take());
        match whole.map(|whole| whole.split_at(len)) {
            Some(Ok((head, rest))) => (self.head, self.rest) = (Some(head), Some(rest)),
            Some(Err(refused)) => self.rest = Some(refused.into_inner()),
            None => {}
        }
    }
}
