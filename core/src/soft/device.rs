//! The provider: a device of a wire, and the handles of what it makes.

#![allow(unsafe_code)]

use core::mem;
use core::ptr::NonNull;

use super::channel::SoftChannel;
use super::given::{CqMemory, QpRings};
use super::notify::Notify;
use super::queue::{Besides, Cq, SUB_CQS};
use super::ring::{Block, Doorbell, Line, Ring};
use super::tables::{NICS, Qp};
use super::wire::{Owner, QpMemory};
#[cfg(feature = "alloc")]
use super::{Config, storage};
use super::{Counters, objects, verbs};
use crate::memory::{Mr, RawMemory};
use crate::peer::Ah;
use crate::qp::{QpAttr, QpState};
use crate::{
    Caps, CqInit, CqRing, DeviceId, Error, Gid, Leaks, Limit, Limits, MrInit, PdId, Provider, QpInit, Qpn, Queues,
    RecvRing, Registrations, SendRing, Verb,
};

/// The pages in which memory keeps its place at an address of choice, as with a driver of hardware.
const PAGE: u64 = 4096;

/// A software EFA device; clones name the same one.
///
/// ```
/// # #[cfg(feature = "alloc")] {
/// use efa_core::{Provider, soft::{Profile, SoftDevice}};
///
/// let device = SoftDevice::new(Profile::RDMA);
/// let other = device.neighbour()?;
/// assert_ne!(device.gid(), other.gid());
/// # }
/// # Ok::<(), efa_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SoftDevice {
    owner: Owner,
    nic: u8,
    id: DeviceId,
    gid: Gid,
}

impl SoftDevice {
    /// A wire on the heap with one device.
    #[cfg(feature = "alloc")]
    pub fn new(config: impl Into<Config>) -> Self {
        let id = DeviceId::unique().unwrap_or_default();
        let owner = storage::on_heap(config.into());
        let gid = owner.lock().add_nic(gid(id)).map_or(Gid([0; 16]), |(_, gid)| gid);
        Self { owner, nic: 0, id, gid }
    }

    /// The next device on a wire.
    pub(super) fn on(owner: Owner) -> Result<Self, Error> {
        let id = DeviceId::unique()?;
        let added = owner.lock().add_nic(gid(id));
        let (nic, gid) = added.ok_or(Error::Exhausted { what: Limit::Devices, limit: NICS as u64 })?;
        Ok(Self { owner, nic, id, gid })
    }

    /// One more device on the same wire, of the same kind, with an address and queue pair numbers of its own.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there are eight.
    pub fn neighbour(&self) -> Result<Self, Error> {
        Self::on(self.owner.clone())
    }

    /// Plugs the device in or out: while it is out, whatever is sent to it or by it ends with status
    /// 13 if one had answered the other before, else 15 (H19). Datagrams are lost.
    pub fn link(&self, up: bool) {
        if let Some(nic) = self.owner.lock().nics.get_mut(usize::from(self.nic)) {
            nic.up = up;
        }
    }

    /// Kills the program that uses the device, as far as the device has to do with it: all its queue pairs are gone
    /// from the wire, and peers that send to them get status 9 (H20), or 13 or 15 where answers are lost; datagrams are
    /// dropped. What was
    /// in flight here is flushed, or, by [`Config::silent_death`], never completes. The handles that are left
    /// can be moved to ERR, where they are, and destroyed. Queue pairs made next, by the restarted program, may have
    /// the same numbers at the same address (R20, R25).
    pub fn die(&self) {
        self.owner.lock().die(self.nic);
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        *self.owner.lock().counters(self.nic)
    }

    pub(super) fn wire(&self) -> &Owner {
        &self.owner
    }

    pub(super) fn nic(&self) -> u8 {
        self.nic
    }

    pub(super) fn invalid(&self, verb: Verb, made_by: &[&Self]) -> Result<(), Error> {
        // By the wire itself: device numbers end, and the devices after the last have the same.
        let ours = made_by.iter().all(|device| core::ptr::eq(&*device.owner, &*self.owner) && device.nic == self.nic);
        if ours { Ok(()) } else { Err(verbs::refused(verb, verbs::EINVAL)) }
    }
}

/// A link-local address (R27) that no other device of the process has.
fn gid(id: DeviceId) -> Gid {
    let [a, b, c, d] = id.number().to_be_bytes();
    Gid([0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0x0E, 0xFA, 0, 0xFF, a, b, c, d])
}

/// A protection domain of a software device.
#[derive(Debug)]
pub struct SoftPd {
    device: SoftDevice,
    index: u16,
    id: PdId,
}

/// A completion queue of a software device.
#[derive(Debug)]
pub struct SoftCq {
    device: SoftDevice,
    index: u16,
    ring: CqRing,
    /// Whether it tells arrivals that consume no receive.
    unsolicited: bool,
    /// Where its events go: kept for as long as it may raise any.
    channel: Option<SoftChannel>,
}

/// A queue pair of a software device. One that is dropped alive is destroyed, or leaked and counted. Its rings
/// are its own until it is destroyed, its slots until it is dropped.
#[derive(Debug)]
pub struct SoftQp {
    device: SoftDevice,
    index: u16,
    alive: bool,
    queues: Queues,
    memory: Option<QpMemory>,
    pd: SoftPd,
    send: SoftCq,
    recv: SoftCq,
}

// SAFETY: the raw parts name atomics, which lie where they are while the handle lives.
unsafe impl Send for SoftCq {}
// SAFETY: as above; slots are the handle's alone.
unsafe impl Send for SoftQp {}

/// One handle more, of a count that sticks at its end.
fn count(handles: &mut usize) {
    *handles = handles.saturating_add(1);
}

impl Clone for SoftPd {
    fn clone(&self) -> Self {
        if let Some(pd) = self.device.owner.lock().pd_mut(self.index) {
            count(&mut pd.handles);
        }
        Self { device: self.device.clone(), ..*self }
    }
}

impl Drop for SoftPd {
    fn drop(&mut self) {
        self.device.owner.lock().release_pd(self.index);
    }
}

impl Clone for SoftCq {
    fn clone(&self) -> Self {
        if let Some(cq) = self.device.owner.lock().cq_mut(self.index) {
            count(&mut cq.handles);
        }
        Self { device: self.device.clone(), channel: self.channel.clone(), ..*self }
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        let last = self.device.owner.lock().release_cq(self.index);
        drop(last);
    }
}

impl SoftPd {
    pub(super) fn device(&self) -> &SoftDevice {
        &self.device
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }
}

impl SoftCq {
    pub(super) fn device(&self) -> &SoftDevice {
        &self.device
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }
}

impl SoftQp {
    pub(super) fn device(&self) -> &SoftDevice {
        &self.device
    }

    pub(super) fn index(&self) -> u16 {
        self.index
    }

    pub(super) fn is_alive(&self) -> bool {
        self.alive
    }

    fn destroy(&mut self) -> Result<(), Error> {
        if !self.alive {
            return Err(verbs::refused(Verb::DestroyQp, verbs::EINVAL));
        }
        self.device.owner.lock().destroy_qp(self.device.nic, self.index)?;
        self.alive = false;
        // Core promises to touch no ring from now on: let who checks memory see it.
        if let Some(memory) = &mut self.memory {
            memory.rings = None;
        }
        Ok(())
    }
}

impl SoftCq {
    /// Where its ring is: what [`Provider::completions`] says.
    pub fn ring(&self) -> CqRing {
        self.ring
    }
}

impl SoftQp {
    /// Where its rings are: what [`Provider::queues`] says.
    pub fn queues(&self) -> Queues {
        self.queues
    }
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        if !self.alive || self.destroy().is_ok() {
            // Not before: until now its rings and slots were this handle's.
            return self.device.owner.lock().vacate_qp(self.index);
        }
        self.device.leaks().count_queue_pair();
        mem::forget(self.memory.take());
        mem::forget((self.device.clone(), self.pd.clone(), self.send.clone(), self.recv.clone()));
    }
}

// SAFETY: 1. regions are in the table from `register` to `deregister`, both under the lock, and the device
// touches memory of the table only, under the lock. 2. so are queue pairs. 3. rings, doorbells and slots lie
// in the wire or in blocks that the handles keep, each given out once at a time. 4. `deliver` moves bytes
// before it writes completions, and forgets the message with the requester's. 5. both are counters that end.
unsafe impl Provider for SoftDevice {
    type Pd = SoftPd;
    type Cq = SoftCq;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        const NAMES: [&str; NICS] =
            ["software0", "software1", "software2", "software3", "software4", "software5", "software6", "software7"];
        NAMES.get(usize::from(self.nic)).copied().unwrap_or("software")
    }

    fn device_id(&self) -> DeviceId {
        self.id
    }

    fn caps(&self) -> Caps {
        self.owner.caps
    }

    fn limits(&self) -> Limits {
        self.owner.limits
    }

    fn gid(&self) -> Gid {
        self.gid
    }

    fn entropy(&self) -> u64 {
        self.owner.lock().random()
    }

    fn leaks(&self) -> &Leaks {
        &self.owner.leaks[usize::from(self.nic) % NICS]
    }

    #[inline]
    fn progress(&self) {
        if let Some(mut state) = self.owner.try_lock() {
            state.turn();
        }
    }

    fn alloc_pd(&self) -> Result<SoftPd, Error> {
        let id = PdId::unique()?;
        let index = self.owner.lock().alloc_pd(self.nic, id)?;
        Ok(SoftPd { device: self.clone(), index, id })
    }

    fn pd_id(pd: &SoftPd) -> PdId {
        pd.id
    }

    unsafe fn reg_mr(&self, pd: &SoftPd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        if let Err(error) = self.invalid(Verb::RegMr, &[&pd.device]) {
            return Err((memory, error));
        }
        match init.place(&memory, PAGE) {
            // SAFETY: by the caller's word.
            Ok(iova) => unsafe { objects::register(&self.owner, self.nic, pd.index, memory, iova, init) },
            Err(error) => Err((memory, error)),
        }
    }

    fn registrations(&self, pd: &SoftPd) -> Option<Registrations> {
        pd.device.owner.lock().pd(pd.index).map(|domain| domain.registrations)
    }

    fn create_ah(&self, pd: &SoftPd, gid: Gid) -> Result<Ah, Error> {
        self.invalid(Verb::CreateAh, &[&pd.device])?;
        objects::create_ah(&self.owner, self.nic, pd.index, gid)
    }

    fn create_cq(&self, init: &CqInit) -> Result<SoftCq, Error> {
        self.make_cq(init, None, None)
    }

    fn create_qp(&self, pd: &SoftPd, send: &SoftCq, recv: &SoftCq, init: &QpInit) -> Result<SoftQp, Error> {
        self.make_qp(pd, send, recv, init, None)
    }

    fn modify_qp(&self, qp: &mut SoftQp, attr: &QpAttr) -> Result<(), Error> {
        if !qp.alive {
            return Err(verbs::refused(Verb::ModifyQp, verbs::EINVAL));
        }
        qp.device.owner.lock().modify_qp(qp.device.nic, qp.index, attr)
    }

    fn query_qp(&self, qp: &SoftQp) -> Result<QpState, Error> {
        qp.device.owner.lock().query_qp(qp.device.nic, qp.index)
    }

    fn destroy_qp(&self, qp: &mut SoftQp) -> Result<(), Error> {
        qp.destroy()
    }

    fn unsolicited_read(&self, qp: &SoftQp) {
        if self.owner.watching {
            self.owner.lock().unsolicited_read(qp.index);
        }
    }

    fn queues(&self, qp: &SoftQp) -> Queues {
        qp.queues()
    }

    fn completions(&self, cq: &SoftCq) -> CqRing {
        cq.ring()
    }
}

impl SoftDevice {
    pub(super) fn make_cq(
        &self,
        init: &CqInit,
        given: Option<CqMemory>,
        channel: Option<SoftChannel>,
    ) -> Result<SoftCq, Error> {
        let entries = verbs::check_cq(self.owner.caps, &self.owner.limits, init)?;
        let entry_size = if init.sgid { 32 } else { 16 };
        let mut state = self.owner.lock();
        state.call(self.nic, Verb::CreateCq)?;
        let index = state.vacant_cq()?;
        let rings = given.map_or(1, |given| u32::from(given.sub_cqs));
        let mover = state.config.mover.filter(|_| given.is_some_and(|given| given.moved));
        if !rings.is_power_of_two()
            || rings > SUB_CQS as u32
            || mover.is_none() && given.is_some_and(|given| given.moved)
        {
            return Err(verbs::refused(Verb::CreateCq, verbs::EINVAL));
        }
        let lines = (entries as usize * usize::from(entry_size)).div_ceil(size_of::<Line>());
        let (memory, base) = match given {
            Some(given) => (None, given.ring),
            None => {
                let memory = self.owner.shared.memory.completion_queue(index.into(), lines);
                let memory: Block<Line> = memory.ok_or(verbs::refused(Verb::CreateCq, verbs::ENOMEM))?;
                let base = memory.base().cast();
                (Some(memory), base)
            }
        };
        // The consumer begins at the first entry of an even round.
        let round = 2 * entries;
        let produced = state
            .config
            .faults
            .near_wrap
            .map_or(0, |steps| 0u32.wrapping_sub(u32::from(steps) / round * round + round));
        let notify = given.and_then(|given| given.doorbell).map(|doorbell| {
            // SAFETY: by the giver's word.
            let doorbell = unsafe { Doorbell::new(doorbell) };
            doorbell.clear();
            Notify::new(doorbell, produced)
        });
        let notify = notify.or_else(|| Some(Notify::on(channel.as_ref()?.index(), produced)));
        // SAFETY: the block has the entries and goes where the ring goes; memory that was given is by its giver's word.
        let all = unsafe { Ring::new(base, entries * rings, entry_size / 8) };
        if mover.is_none() {
            all.clear();
        }
        let cq = Cq::new(all, entries, produced, Besides { notify, mover, memory });
        if let Some(place) = state.tables.cqs.get_mut(usize::from(index)) {
            *place = Some(cq);
        }
        drop(state);
        let ring = CqRing { base, entries, entry_size };
        Ok(SoftCq { device: self.clone(), index, ring, unsolicited: init.unsolicited, channel })
    }

    pub(super) fn make_qp(
        &self,
        pd: &SoftPd,
        send: &SoftCq,
        recv: &SoftCq,
        init: &QpInit,
        given: Option<QpRings>,
    ) -> Result<SoftQp, Error> {
        self.invalid(Verb::CreateQp, &[&pd.device, &send.device, &recv.device])?;
        let (pd, send_cq, recv_cq) = (pd.clone(), send.clone(), recv.clone());
        let limits = &self.owner.limits;
        let depths = verbs::check_qp(self.owner.caps, limits, init)?;
        if init.unsolicited && !recv.unsolicited {
            return Err(verbs::refused(Verb::CreateQp, verbs::EINVAL));
        }
        let recv_sge = init.recv_sge.max(1);
        let mut state = self.owner.lock();
        let vacant = state.call(self.nic, Verb::CreateQp).and_then(|()| state.vacant_qp(self.nic));
        let asked = given.map(|rings| (rings.sub_cqs, rings.req_id_64));
        let (sub_cqs, req_id_64) = asked.unwrap_or(([0; 2], state.config.req_id_64));
        let queues = [(send_cq.index, sub_cqs[0]), (recv_cq.index, sub_cqs[1])];
        let has_rings = queues.iter().all(|(cq, sub)| state.cq_mut(*cq).is_some_and(|cq| cq.has(*sub)));
        if !has_rings || req_id_64 && !state.config.req_id_64 {
            drop(state);
            return Err(verbs::refused(Verb::CreateQp, verbs::EINVAL));
        }
        let (index, qpn) = match vacant {
            Ok(vacant) => vacant,
            Err(error) => {
                drop(state);
                return Err(error);
            }
        };
        let (memory, rings) = match given {
            Some(rings) => (None, rings),
            None => {
                let shared = &self.owner.shared;
                let memory = shared.memory.queue_pair(index.into(), depths);
                let bases =
                    memory.as_ref().and_then(|memory| memory.rings.as_ref()?.each_ref().map(Block::base).into());
                let (Some(memory), Some([send, recv]), Some(bells)) =
                    (memory, bases, shared.doorbells.get(index.into()))
                else {
                    drop(state);
                    return Err(verbs::refused(Verb::CreateQp, verbs::ENOMEM));
                };
                let rings = QpRings {
                    sub_cqs,
                    req_id_64,
                    send: send.cast(),
                    recv: recv.cast(),
                    send_doorbell: (&bells.send).into(),
                    recv_doorbell: (&bells.recv).into(),
                };
                (Some(memory), rings)
            }
        };
        // SAFETY: the block has the entries, and outlives the queue pair's place in the table; memory that was given
        // does by its giver's word.
        let send_ring = unsafe { Ring::new(rings.send, depths.send, (init.entry_size / 8) as u8) };
        // SAFETY: as above.
        let recv_ring = unsafe { Ring::new(rings.recv, depths.descriptors, 2) };
        // SAFETY: in a table that outlives the wire's state, where this goes, or by the giver's word.
        let send_doorbell = unsafe { Doorbell::new(rings.send_doorbell) };
        // SAFETY: as above.
        let recv_doorbell = unsafe { Doorbell::new(rings.recv_doorbell) };
        send_doorbell.clear();
        recv_doorbell.clear();
        let strangers = state.config.faults.unknown_senders;
        let generation = state.enter_qp(
            index,
            Qp {
                nic: self.nic,
                qp_type: init.qp_type,
                qpn,
                pd: pd.index,
                send_cq: send_cq.index,
                recv_cq: recv_cq.index,
                sub_cqs,
                state: QpState::Reset,
                qkey: 0,
                ops: init.ops,
                unsolicited: init.unsolicited,
                arrivals: 0,
                inline: init.inline,
                inline_write: init.inline_write,
                req_id_64,
                rnr_retry: 7,
                send: send_ring,
                send_doorbell,
                fetched: 0,
                restarted: false,
                completed: 0,
                last: 0,
                recv: recv_ring,
                recv_doorbell,
                send_sge: init.send_sge,
                recv_sge,
                taken: 0,
                strangers,
                dead: false,
                counters: Default::default(),
            },
        );
        state.haunt(index, generation);
        let queues = Queues {
            qpn: Qpn(qpn),
            generation,
            send: SendRing {
                entries: rings.send,
                doorbell: rings.send_doorbell,
                depth: depths.send,
                entry_size: init.entry_size,
                max_batch: (limits.max_batch / depths.width).clamp(1, depths.send as u16),
                inline: init.inline,
                req_id_64,
                slots: memory.as_ref().map_or(NonNull::dangling(), |memory| memory.send_slots.vacant()),
            },
            recv: RecvRing {
                entries: rings.recv,
                doorbell: rings.recv_doorbell,
                descriptors: depths.descriptors,
                depth: depths.recv,
                max_sge: recv_sge,
                slots: memory.as_ref().map_or(NonNull::dangling(), |memory| memory.recv_slots.vacant()),
            },
        };
        drop(state);
        let device = self.clone();
        Ok(SoftQp { device, index, alive: true, queues, memory, pd, send: send_cq, recv: recv_cq })
    }
}
