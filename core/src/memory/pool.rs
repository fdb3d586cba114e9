//! Equal slots over one registration.

#![forbid(unsafe_code)]

use heapless::Vec;

use super::Slice;
use crate::error::Limit;
use crate::{Error, Refused};

/// A pool of up to `N` slices of equal size, cut from one registered slice: take one, post it, and put back
/// what the completion gives.
#[derive(Debug)]
pub struct Pool<const N: usize> {
    free: Vec<Slice, N>,
    size: usize,
    slots: usize,
}

impl<const N: usize> Pool<N> {
    /// Cuts `memory` into slots of `size` bytes, `N` at most; what is left over comes back.
    ///
    /// # Errors
    /// [`Error::BelowLimit`] if `size` is 0 or not even one slot fits, with the memory.
    pub fn new(memory: Slice, size: usize) -> Result<(Self, Option<Slice>), Refused<Slice>> {
        if size == 0 || memory.len() < size || N == 0 {
            let error =
                Error::BelowLimit { what: Limit::PoolBytes, asked: memory.len() as u64, limit: size.max(1) as u64 };
            return Err(Refused::new(memory, error));
        }
        let mut pool = Self { free: Vec::new(), size, slots: 0 };
        let mut rest = memory;
        while rest.len() >= size && pool.slots < N {
            let (slot, after) = rest.split_at(size)?;
            pool.slots += 1;
            rest = after;
            // Room for N, and fewer were pushed.
            if pool.free.push(slot).is_err() {
                break;
            }
        }
        let rest = (!rest.is_empty()).then_some(rest);
        Ok((pool, rest))
    }

    /// A slot, if one is free.
    pub fn take(&mut self) -> Option<Slice> {
        self.free.pop()
    }

    /// Puts a slot back.
    ///
    /// # Errors
    /// [`Error::NotWhole`] if the slice is not of a slot's size, [`Error::Exhausted`] if the pool has all its
    /// slots; with the slice.
    pub fn put(&mut self, slot: Slice) -> Result<(), Refused<Slice>> {
        if slot.len() != self.size {
            let error = Error::NotWhole { has: slot.len() as u64, needs: self.size as u64 };
            return Err(Refused::new(slot, error));
        }
        if self.free.len() >= self.slots {
            let error = Error::Exhausted { what: Limit::PoolSlots, limit: self.slots as u64 };
            return Err(Refused::new(slot, error));
        }
        // Fewer than `slots`, which is at most N, so there is room.
        self.free.push(slot).map_err(|slot| {
            let error = Error::Exhausted { what: Limit::PoolSlots, limit: N as u64 };
            Refused::new(slot, error)
        })
    }

    /// Slots that can be taken now.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// All slots, taken ones included.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of a slot.
    pub fn slot_size(&self) -> usize {
        self.size
    }

    /// The memory again, in one piece.
    ///
    /// # Errors
    /// [`Error::RegionInUse`] with the number of slots that are out, or [`Error::NotAdjacent`] if slots were
    /// exchanged with others; with the pool.
    pub fn into_slice(mut self) -> Result<Slice, Refused<Self>> {
        let out = self.slots - self.free.len();
        if out > 0 {
            return Err(Refused::new(self, Error::RegionInUse { handles: out }));
        }
        self.free.sort_unstable_by_key(Slice::addr);
        let adjacent = self.free.windows(2).all(|pair| pair[0].is_followed_by(&pair[1]));
        if !adjacent {
            return Err(Refused::new(self, Error::NotAdjacent));
        }
        let mut slots = core::mem::take(&mut self.free).into_iter();
        let Some(first) = slots.next() else {
            return Err(Refused::new(self, Error::NotAdjacent));
        };
        let mut whole = first;
        for slot in slots {
            whole = match whole.unsplit(slot) {
                Ok(joined) => joined,
                // Checked above.
                Err(refused) => refused.into_inner().0,
            };
        }
        Ok(whole)
    }
}
