//! Operations that left the wire's own queue and wait for another wire.

use alloc::vec::Vec;

use crate::soft::tables::Packet;

/// An operation; one that ended is not found by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpId {
    index: u32,
    generation: u32,
}

/// An operation for another wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// Its send entry; `attempts` as for a local one, `done` is where the next part begins.
    pub(super) packet: Packet,
    pub(super) node: u16,
    /// What it is, once a part was sent.
    pub(super) op: u8,
    pub(super) length: u32,
    pub(super) needs_receive: bool,
    /// Parts without an answer.
    pub(super) pending: u32,
    /// The last part went out.
    pub(super) all_sent: bool,
    /// The last part goes out when all others are answered.
    pub(super) gated: bool,
}

/// A table of operations, as large as it had to be so far.
#[derive(Debug, Default)]
pub(super) struct Operations {
    places: Vec<(u32, Option<Operation>)>,
    free: Vec<u32>,
}

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, operation: Operation) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            // No more than packets, of which there are at most 65536.
            (self.places.len() - 1) as u32
        });
        let mut id = OpId { index, generation: 0 };
        if let Some((generation, place)) = self.places.get_mut(index as usize) {
            *place = Some(operation);
            id.generation = *generation;
        }
        id
    }

    pub(super) fn get_mut(&mut self, id: OpId) -> Option<&mut Operation> {
        let (generation, place) = self.places.get_mut(id.index as usize)?;
        place.as_mut().filter(|_| *generation == id.generation)
    }

    pub(super) fn remove(&mut self, id: OpId) -> Option<Operation> {
        let (generation, place) = self.places.get_mut(id.index as usize)?;
        if *generation != id.generation {
            return None;
        }
        let operation = place.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        Some(operation)
    }

    /// The first operation from a place on that `which` picks.
    pub(super) fn find(&self, from: usize, which: impl Fn(&Operation) -> bool) -> Option<(usize, OpId)> {
        let places = self.places.iter().enumerate().skip(from);
        let mut ids = places.filter_map(|(index, (generation, place))| {
            let id = OpId { index: index as u32, generation: *generation };
            place.as_ref().filter(|operation| which(operation)).map(|_| (index, id))
        });
        ids.next()
    }
}
