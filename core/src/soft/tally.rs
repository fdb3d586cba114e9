//! Completion counters: how many operations of the queue pairs that they are attached to ended, well or not.
//!
//! The device counts, and that is all that is here: a driver takes what changed, and puts it where its program looks.
//! An operation counts when its completion is written, or would be; at the responder when its last byte is there.

#![forbid(unsafe_code)]

use bitflags::bitflags;

use super::tables::State;
use super::{SoftDevice, SoftQp, verbs};
use crate::entry::control1;
use crate::qp::QpState;
use crate::status::CompletionStatus as Status;
use crate::{Caps, Error, Limit, Provider, Verb};

const EBUSY: i32 = 16;

bitflags! {
    /// What a [`SoftCounter`] counts of a queue pair (`ibv_qp_attach_comp_cntr_op`, same bits).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CountedOps: u32 {
        /// SENDs posted here.
        const SEND = 1 << 0;
        /// Receives posted here, whatever consumed them.
        const RECV = 1 << 1;
        /// RDMA reads posted here.
        const RDMA_READ = 1 << 2;
        /// RDMA reads of memory here, once answered. Those that fail are not counted.
        const REMOTE_RDMA_READ = 1 << 3;
        /// RDMA writes posted here.
        const RDMA_WRITE = 1 << 4;
        /// RDMA writes to memory here, once all bytes are there. Those that fail are not counted.
        const REMOTE_RDMA_WRITE = 1 << 5;
    }
}

/// Kinds of operations.
const KINDS: usize = 6;

/// The counter of each kind of operation of a queue pair: its index and one, 0 if there is none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attached([u16; KINDS]);

impl Attached {
    /// Which counter counts a kind of operation.
    #[inline(always)]
    pub(super) fn of(&self, op: CountedOps) -> Option<u16> {
        self.0.get(op.bits().trailing_zeros() as usize)?.checked_sub(1)
    }

    /// Takes a counter away.
    fn detach(&mut self, counter: u16) {
        for place in self.0.iter_mut().filter(|place| **place == counter + 1) {
            *place = 0;
        }
    }
}

/// What a completion counter holds. Both wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Operations that ended well.
    pub done: u64,
    /// Those that did not, flushed ones included.
    pub failed: u64,
}

/// One of the two counts of a completion counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    /// [`Counts::done`].
    Done,
    /// [`Counts::failed`].
    Failed,
}

/// A completion counter's place in the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    counts: Counts,
    changed: bool,
}

impl CountedOps {
    /// What a send entry is counted as.
    #[inline(always)]
    pub(super) fn posted(op: u8) -> Self {
        match op & control1::OP_MASK {
            control1::OP_RDMA_READ => Self::RDMA_READ,
            control1::OP_RDMA_WRITE => Self::RDMA_WRITE,
            _ => Self::SEND,
        }
    }

    /// What it is counted as where it ends, but for the receive that it consumes.
    #[inline(always)]
    fn remote(op: u8) -> Self {
        match op {
            control1::OP_RDMA_READ => Self::REMOTE_RDMA_READ,
            control1::OP_RDMA_WRITE => Self::REMOTE_RDMA_WRITE,
            _ => Self::empty(),
        }
    }
}

impl State {
    /// Counts a peer's operation that ended here.
    #[inline(always)]
    pub(super) fn tally_remote(&mut self, qp: u16, op: u8) {
        let counter = self.qp(qp).and_then(|qp| qp.counters.of(CountedOps::remote(op)));
        self.tally(counter, Status::Ok);
    }

    /// Counts one operation, if a counter does.
    #[inline(always)]
    pub(super) fn tally(&mut self, counter: Option<u16>, status: Status) {
        let Some(tally) = counter.and_then(|counter| self.counter_mut(counter)) else { return };
        let count = if status == Status::Ok { &mut tally.counts.done } else { &mut tally.counts.failed };
        *count = count.wrapping_add(1);
        tally.changed = true;
    }

    fn counter_mut(&mut self, index: u16) -> Option<&mut Tally> {
        self.tables.tallies.get_mut(usize::from(index))?.as_mut()
    }

    fn attach(&mut self, qp: u16, counter: u16, ops: CountedOps) -> Result<(), Error> {
        self.call(self.qp(qp).map_or(0, |qp| qp.nic), Verb::AttachCounter)?;
        let refused = |errno| verbs::refused(Verb::AttachCounter, errno);
        let qp = self.qp_mut(qp).ok_or(refused(verbs::EINVAL))?;
        let kinds = || (0..KINDS).filter(|kind| ops.bits() >> kind & 1 != 0);
        if ops.is_empty() || ops.bits() >> KINDS != 0 {
            return Err(refused(verbs::EINVAL));
        }
        if kinds().any(|kind| qp.counters.0.get(kind).is_some_and(|place| *place != 0)) {
            return Err(refused(EBUSY));
        }
        if !matches!(qp.state, QpState::Reset | QpState::Init) {
            return Err(refused(verbs::EINVAL));
        }
        for kind in kinds() {
            if let Some(place) = qp.counters.0.get_mut(kind) {
                *place = counter + 1;
            }
        }
        Ok(())
    }

    fn end_counter(&mut self, counter: u16) {
        for qp in self.tables.qps.all_mut().iter_mut().filter_map(|entry| entry.qp.as_mut()) {
            qp.counters.detach(counter);
        }
        if let Some(place) = self.tables.tallies.get_mut(usize::from(counter)) {
            *place = None;
        }
    }
}

/// A completion counter of a software device. When it is dropped it is detached from all queue pairs.
#[derive(Debug)]
pub struct SoftCounter {
    device: SoftDevice,
    index: u16,
}

impl SoftDevice {
    /// How many completion counters there can be on the wire: two for each queue pair.
    pub fn max_counters(&self) -> u32 {
        if self.caps().contains(Caps::COMP_CNTR) { 2 * self.limits().max_qp } else { 0 }
    }

    /// Makes a completion counter, attached to nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without [`Caps::COMP_CNTR`], [`Error::Exhausted`].
    pub fn create_counter(&self) -> Result<SoftCounter, Error> {
        let caps = self.caps();
        if !caps.contains(Caps::COMP_CNTR) {
            return Err(Error::Unsupported { needs: Caps::COMP_CNTR, has: caps });
        }
        let limit = self.max_counters();
        let mut state = self.wire().lock();
        state.call(self.nic(), Verb::CreateCounter)?;
        let index = verbs::vacant(state.tables.tallies.all(), Limit::Counters, limit)?;
        if let Some(place) = state.tables.tallies.get_mut(usize::from(index)) {
            *place = Some(Tally::default());
        }
        drop(state);
        Ok(SoftCounter { device: self.clone(), index })
    }
}

impl SoftCounter {
    /// Counts these operations of a queue pair from now on, until that is destroyed.
    ///
    /// # Errors
    /// EINVAL unless the queue pair is one of this device, in RESET or INIT, or if there is nothing to count; EBUSY for what another counter, or
    /// this one, counts already.
    pub fn attach(&self, qp: &SoftQp, ops: CountedOps) -> Result<(), Error> {
        self.device.invalid(Verb::AttachCounter, &[qp.device()])?;
        if !qp.is_alive() {
            return Err(verbs::refused(Verb::AttachCounter, verbs::EINVAL));
        }
        self.device.wire().lock().attach(qp.index(), self.index, ops)
    }

    fn with<T: Default>(&self, call: impl FnOnce(&mut Tally) -> T) -> T {
        self.device.wire().lock().counter_mut(self.index).map(call).unwrap_or_default()
    }

    /// What it holds.
    pub fn counts(&self) -> Counts {
        self.with(|tally| tally.counts)
    }

    /// What it holds, if that changed since this was asked last.
    pub fn take_change(&self) -> Option<Counts> {
        self.with(|tally| core::mem::take(&mut tally.changed).then_some(tally.counts))
    }

    /// Sets one of its two counts.
    pub fn set(&self, count: Count, value: u64) {
        self.change(count, |_| value);
    }

    /// Adds to one of its two counts.
    pub fn add(&self, count: Count, amount: u64) {
        self.change(count, |before| before.wrapping_add(amount));
    }

    fn change(&self, count: Count, change: impl FnOnce(u64) -> u64) {
        self.with(|tally| {
            let count = match count {
                Count::Done => &mut tally.counts.done,
                Count::Failed => &mut tally.counts.failed,
            };
            *count = change(*count);
            tally.changed = true;
        });
    }
}

impl Drop for SoftCounter {
    fn drop(&mut self) {
        self.device.wire().lock().end_counter(self.index);
    }
}
