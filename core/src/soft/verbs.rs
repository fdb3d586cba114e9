//! The control path: making, moving and ending objects, as the device answers it.

#![forbid(unsafe_code)]

use super::memory::{Reach, Registered};
use super::queue::Cq;
use super::tables::{Live, NICS, Number, Pd, Qp, QpEntry, State};
use crate::entry::Quad;
use crate::flags::{Access, QpAttrMask as Mask, SendOps};
use crate::memory::RawParts;
use crate::qp::{QpAttr, QpState, QpType, transition};
use crate::ring::Word;
use crate::{Ahn, Caps, CqInit, Error, Gid, Limit, Limits, PdId, QpInit, Registrations, Verb};

pub(super) const EIO: i32 = 5;
pub(super) const ENOMEM: i32 = 12;
pub(super) const EINVAL: i32 = 22;
pub(super) const EOPNOTSUPP: i32 = 95;

/// What a UD queue pair can be made to post.
const UD_OPS: SendOps = SendOps::SEND.union(SendOps::SEND_WITH_IMM);

pub(super) const fn refused(verb: Verb, errno: i32) -> Error {
    Error::Device { verb, errno }
}

fn exhausted(what: Limit, limit: u32) -> Error {
    Error::Exhausted { what, limit: limit.into() }
}

fn within(what: Limit, asked: u32, limit: u32) -> Result<(), Error> {
    if asked <= limit { Ok(()) } else { Err(Error::AboveLimit { what, asked: asked.into(), limit: limit.into() }) }
}

/// The lowest vacant place of a table, below a limit.
pub(super) fn vacant<T>(table: &[Option<T>], what: Limit, limit: u32) -> Result<u16, Error> {
    let found = table.iter().take(limit as usize).position(Option::is_none);
    found.and_then(|index| u16::try_from(index).ok()).ok_or(exhausted(what, limit))
}

/// Depths of a queue pair, as the device rounds them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub(super) send: u32,
    /// Places of 64 bytes that a send entry takes.
    pub(super) width: u16,
    pub(super) recv: u32,
    pub(super) descriptors: u32,
}

pub(super) fn check_qp(caps: Caps, limits: &Limits, init: &QpInit) -> Result<Depths, Error> {
    let mut needs = Caps::empty();
    if init.ops.contains(SendOps::RDMA_READ) {
        needs |= Caps::RDMA_READ;
    }
    if init.ops.intersects(SendOps::RDMA_WRITE | SendOps::RDMA_WRITE_WITH_IMM) {
        needs |= Caps::RDMA_WRITE;
    }
    if init.unsolicited {
        needs |= Caps::UNSOLICITED_WRITE_RECV;
    }
    if init.qp_type == QpType::Ud && (init.unsolicited || !UD_OPS.contains(init.ops)) {
        return Err(refused(Verb::CreateQp, EOPNOTSUPP));
    }
    let (width, max_inline) = match init.entry_size {
        64 if !init.inline_write => (1, limits.max_inline),
        128 => (2, limits.max_inline_wide),
        _ => return Err(refused(Verb::CreateQp, EINVAL)),
    };
    if width == 2 {
        needs |= Caps::WIDE_ENTRIES;
    }
    if init.inline_write {
        needs |= Caps::INLINE_WRITE;
    }
    if !caps.contains(needs) {
        return Err(Error::Unsupported { needs, has: caps });
    }
    let max_send_depth = limits.max_send_depth / u32::from(width);
    let asked = init.send_depth.max(1);
    if asked < limits.min_send_depth {
        return Err(Error::BelowLimit {
            what: Limit::SendDepth,
            asked: asked.into(),
            limit: limits.min_send_depth.into(),
        });
    }
    within(Limit::SendDepth, asked, max_send_depth)?;
    within(Limit::SendBuffers, init.send_sge.into(), limits.max_send_sge.into())?;
    within(Limit::RecvBuffers, init.recv_sge.into(), limits.max_recv_sge.into())?;
    within(Limit::InlineBytes, init.inline.into(), max_inline.into())?;
    let sge = u32::from(init.recv_sge.max(1));
    within(Limit::RecvDepth, init.recv_depth, limits.max_recv_depth / sge)?;
    let (send, recv) = (asked.next_power_of_two(), init.recv_depth.max(1).next_power_of_two());
    within(Limit::SendDepth, send, max_send_depth)?;
    within(Limit::RecvDepth, recv, limits.max_recv_depth / sge)?;
    Ok(Depths { send, width, recv, descriptors: recv * sge })
}

/// Entries of a completion queue, as the device rounds them.
pub(super) fn check_cq(caps: Caps, limits: &Limits, init: &CqInit) -> Result<u32, Error> {
    for (asked, needs) in [(init.sgid, Caps::CQ_WITH_SGID), (init.unsolicited, Caps::UNSOLICITED_WRITE_RECV)] {
        if asked && !caps.contains(needs) {
            return Err(Error::Unsupported { needs, has: caps });
        }
    }
    within(Limit::CompletionEntries, init.entries, limits.max_cqe)?;
    let entries = init.entries.max(1).next_power_of_two();
    within(Limit::CompletionEntries, entries, limits.max_cqe)?;
    Ok(entries)
}

/// A vacant entry for a region that the device takes.
pub(super) fn check_region(
    state: &State,
    nic: u8,
    pd: u16,
    parts: RawParts,
    access: Access,
    reach: Reach,
) -> Result<usize, Error> {
    let (caps, limits) = (state.config.caps, &state.config.limits);
    if parts.len == 0 {
        return Err(Error::ZeroLength);
    }
    let mut needs = Caps::empty();
    if access.contains(Access::REMOTE_READ) {
        needs |= Caps::RDMA_READ;
    }
    if access.contains(Access::REMOTE_WRITE) {
        needs |= Caps::RDMA_WRITE;
    }
    if !caps.contains(needs) {
        return Err(Error::Unsupported { needs, has: caps });
    }
    if parts.len as u64 > limits.max_mr_size {
        return Err(Error::AboveLimit { what: Limit::RegionBytes, asked: parts.len as u64, limit: limits.max_mr_size });
    }
    if reach == Reach::Words && !Registered::is_whole_words(parts) {
        return Err(Error::Misaligned {
            address: parts.base.addr().get() as u64,
            len: parts.len as u64,
            to: size_of::<Word>() as u64,
        });
    }
    if state.pd(pd).is_none_or(|pd| pd.nic != nic) {
        return Err(refused(Verb::RegMr, EINVAL));
    }
    let limit = limits.max_mr;
    let found = state.tables.mrs.all().iter().take(limit as usize).position(|entry| !entry.busy);
    found.ok_or(exhausted(Limit::MemoryRegions, limit))
}

/// Takes a region out of the table, which keeps its place.
pub(super) fn deregister(state: &mut State, nic: u8, index: usize) -> Result<(Registered, u16), Error> {
    state.call(nic, Verb::DeregMr)?;
    let failing = state.config.fail_deregister > 0;
    let entry = state.tables.mrs.get_mut(index).ok_or(refused(Verb::DeregMr, EINVAL))?;
    if failing {
        state.config.fail_deregister -= 1;
        return Err(refused(Verb::DeregMr, EIO));
    }
    let mr = entry.mr.take().ok_or(refused(Verb::DeregMr, EINVAL))?;
    Ok((mr.memory, mr.pd))
}

/// One handle less, of a count that sticks at its end.
fn uncount(handles: &mut usize) {
    if *handles != usize::MAX {
        *handles = handles.saturating_sub(1);
    }
}

impl State {
    pub(super) fn alloc_pd(&mut self, nic: u8, id: PdId) -> Result<u16, Error> {
        self.call(nic, Verb::AllocPd)?;
        let limit = self.config.limits.max_pd;
        let index = vacant(self.tables.pds.all(), Limit::ProtectionDomains, limit)?;
        if let Some(place) = self.tables.pds.get_mut(usize::from(index)) {
            *place = Some(Pd {
                nic,
                id,
                handles: 1,
                resolves: [Ahn::UNKNOWN; NICS],
                registrations: Registrations::default(),
            });
        }
        Ok(index)
    }

    /// One handle less; gives what is left of the domain after the last.
    pub(super) fn release_pd(&mut self, index: u16) -> Option<Pd> {
        let pd = self.pd_mut(index)?;
        uncount(&mut pd.handles);
        if pd.handles == 0 { self.tables.pds.get_mut(usize::from(index))?.take() } else { None }
    }

    /// One handle less; gives the completion queue after the last.
    pub(super) fn release_cq(&mut self, index: u16) -> Option<Cq> {
        let cq = self.cq_mut(index)?;
        uncount(&mut cq.handles);
        if cq.handles == 0 { self.tables.cqs.get_mut(usize::from(index))?.take() } else { None }
    }

    /// Plugs in one more device: at the configured address, or at this one.
    pub(super) fn add_nic(&mut self, gid: Gid) -> Option<(u8, Gid)> {
        let index = self.nic_count;
        let first = self.config.gid;
        let gid = match first.is_zero() {
            true => gid,
            false => Gid::from_parts(first.subnet_prefix(), first.interface_id().wrapping_add(index as u64)),
        };
        let nic = self.nics.get_mut(index)?;
        (nic.gid, nic.up) = (gid, true);
        self.nic_count += 1;
        for pd in 0..self.tables.pds.len() as u16 {
            self.resolve(pd, gid);
        }
        Some((index as u8, gid))
    }

    pub(super) fn vacant_cq(&self) -> Result<u16, Error> {
        vacant(self.tables.cqs.all(), Limit::CompletionQueues, self.config.limits.max_cq)
    }

    /// A vacant queue pair, and a free number of the device: the lowest, or the next.
    pub(super) fn vacant_qp(&self, nic: u8) -> Result<(u16, u16), Error> {
        let limit = self.config.limits.max_qp;
        let found = self.tables.qps.all().iter().take(limit as usize).position(|entry| !entry.busy);
        let index = found.and_then(|index| u16::try_from(index).ok()).ok_or(exhausted(Limit::QueuePairs, limit))?;
        let count = u16::try_from(self.tables.qps.len()).unwrap_or(u16::MAX);
        let free =
            |&qpn: &u16| self.tables.numbers.get(self.number_index(nic, qpn)).is_some_and(|number| number.qp == 0);
        let first = if self.config.faults.reuse_numbers { 0 } else { self.nics[usize::from(nic) % NICS].next_number };
        let numbers = (0..count).map(|nth| ((u32::from(first) + u32::from(nth)) % u32::from(count.max(1))) as u16);
        let qpn = numbers.into_iter().find(free).ok_or(exhausted(Limit::QueuePairs, limit))?;
        Ok((index, qpn))
    }

    /// Enters a queue pair; gives its generation.
    pub(super) fn enter_qp(&mut self, index: u16, qp: Qp) -> u16 {
        let live = Live { doorbell: qp.send_doorbell, qp: index, seen: 0, flushing: false };
        let place = self.number_index(qp.nic, qp.qpn);
        self.nics[usize::from(qp.nic) % NICS].next_number = qp.qpn.wrapping_add(1);
        if let Some(place) = self.tables.live.get_mut(self.live_count) {
            *place = Some(live);
            self.live_count += 1;
        }
        if let Some(place) = self.tables.qps.get_mut(usize::from(index)) {
            *place = QpEntry { qp: Some(qp), busy: true };
        }
        let Some(number) = self.tables.numbers.get_mut(place) else { return 0 };
        let generation = number.generation.wrapping_add(1);
        *number = Number { qp: index + 1, generation, ..*number };
        generation
    }

    /// Ends a queue pair: what is in flight on it is forgotten. Its place stays taken: see [`State::vacate_qp`].
    pub(super) fn destroy_qp(&mut self, nic: u8, index: u16) -> Result<(), Error> {
        self.call(nic, Verb::DestroyQp)?;
        if self.config.fail_destroy > 0 {
            self.config.fail_destroy -= 1;
            return Err(refused(Verb::DestroyQp, EIO));
        }
        let qp = self.tables.qps.get_mut(usize::from(index)).and_then(|entry| entry.qp.take());
        let qp = qp.ok_or(refused(Verb::DestroyQp, EINVAL))?;
        self.purge(index, false);
        self.free_number(qp.nic, qp.qpn, index, qp.last);
        let live = |live: &Option<Live>| live.is_some_and(|live| live.qp == index);
        if let Some(nth) = self.tables.live.all().iter().take(self.live_count).position(live) {
            self.live_count -= 1;
            self.tables.live.swap(nth, self.live_count);
            if let Some(place) = self.tables.live.get_mut(self.live_count) {
                *place = None;
            }
        }
        Ok(())
    }

    /// Frees the number of the queue pair at `index`, unless another has it by now; `last` is of its last entry.
    pub(super) fn free_number(&mut self, nic: u8, qpn: u16, index: u16, last: Quad) {
        let place = self.number_index(nic, qpn);
        if let Some(number) = self.tables.numbers.get_mut(place).filter(|number| number.qp == index + 1) {
            (number.qp, number.used, number.last) = (0, true, last);
        }
    }

    /// Gives the place of a queue pair that ended to the next one, with its doorbells, rings and slots.
    pub(super) fn vacate_qp(&mut self, index: u16) {
        if let Some(entry) = self.tables.qps.get_mut(usize::from(index)).filter(|entry| entry.qp.is_none()) {
            entry.busy = false;
        }
    }

    /// The state that a queue pair is in.
    pub(super) fn query_qp(&mut self, nic: u8, index: u16) -> Result<QpState, Error> {
        self.call(nic, Verb::QueryQp)?;
        self.qp(index).map(|qp| qp.state).ok_or(refused(Verb::QueryQp, EINVAL))
    }

    /// Moves a queue pair, as the kernel driver's table has it (R01).
    pub(super) fn modify_qp(&mut self, nic: u8, index: u16, attr: &QpAttr) -> Result<(), Error> {
        self.call(nic, Verb::ModifyQp)?;
        let invalid = refused(Verb::ModifyQp, EINVAL);
        let unsupported = refused(Verb::ModifyQp, EOPNOTSUPP);
        let caps = self.config.caps;
        let qp = self.qp_mut(index).ok_or(invalid)?;
        if qp.dead {
            // It is in ERR, and stays there.
            return if attr.state == QpState::Err { Ok(()) } else { Err(refused(Verb::ModifyQp, EIO)) };
        }
        let mask = attr.mask;
        if !Mask::all().contains(mask) {
            return Err(unsupported);
        }
        if mask.contains(Mask::CUR_STATE) && attr.cur_state != qp.state {
            return Err(invalid);
        }
        if !transition(qp.qp_type, qp.state, attr.state).is_some_and(|row| row.allows(mask)) {
            return Err(invalid);
        }
        if mask.contains(Mask::PORT) && attr.port != 1 || mask.contains(Mask::PKEY_INDEX) && attr.pkey_index != 0 {
            return Err(unsupported);
        }
        if mask.contains(Mask::RNR_RETRY) {
            if !caps.contains(Caps::RNR_RETRY) {
                return Err(unsupported);
            }
            if attr.rnr_retry > 7 {
                return Err(invalid);
            }
            qp.rnr_retry = attr.rnr_retry;
        }
        if mask.contains(Mask::QKEY) {
            qp.qkey = attr.qkey.0;
        }
        qp.state = attr.state;
        match attr.state {
            QpState::Reset => self.reset(index),
            QpState::Err => self.fail(index),
            _ => {}
        }
        Ok(())
    }

    /// Forgets what was in flight; the rings begin anew.
    fn reset(&mut self, index: u16) {
        self.purge(index, false);
        let Some(qp) = self.qp_mut(index) else { return };
        (qp.fetched, qp.completed, qp.taken, qp.restarted) = (0, 0, 0, true);
        (qp.qkey, qp.rnr_retry) = (0, 7);
        // What came unsolicited is drained by who resets (R21).
        qp.arrivals = 0;
        qp.send_doorbell.clear();
        qp.recv_doorbell.clear();
        for live in self.tables.live.all_mut().iter_mut().flatten().filter(|live| live.qp == index) {
            (live.seen, live.flushing) = (0, false);
        }
    }
}
