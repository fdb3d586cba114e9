//! Completion queues.

#![allow(unsafe_code)]

use std::sync::Arc;

use efa_core::soft::{CqMemory, SoftCq};
use efa_core::{CqInit, Provider};

use super::device::{SUB_CQS, VECTORS};
use super::{Context, Files, Made, Object};
use crate::errno::Errno;
use crate::events::EventQueue;
use crate::ioctl::{Call, UserMemory};
use crate::mmap::{Keys, Region};
use crate::progress::Progress;
use crate::uapi::{Answer, Fields, attr};

/// A completion queue: its memory is there for as long as anything has a handle of it.
#[derive(Debug)]
pub struct CompletionQueue {
    cq: SoftCq,
    events: Option<Arc<EventQueue>>,
    memory: Arc<CqRegions>,
}

/// The memory of a completion queue.
#[derive(Debug)]
pub struct CqRegions {
    ring: Region,
    doorbell: Option<Region>,
}

/// Bits of `efa_ibv_create_cq.flags`.
const WITH_CHANNEL: u8 = 1 << 0;
const WITH_SGID: u8 = 1 << 1;

impl CompletionQueue {
    /// Handles for a queue pair.
    pub(super) fn handles(&self) -> (SoftCq, Arc<CqRegions>) {
        (self.cq.clone(), self.memory.clone())
    }

    /// It can be mapped no more, and raises nothing.
    pub(super) fn leave(&self, keys: &mut Keys, progress: &Progress) {
        keys.remove(&self.memory.ring);
        if let Some(doorbell) = &self.memory.doorbell {
            keys.remove(doorbell);
        }
        if let Some(events) = &self.events {
            progress.unwatch(events);
        }
    }
}

impl Context {
    pub(super) fn cq(&self, handle: u32) -> Result<&CompletionQueue, Errno> {
        match self.objects.get(handle)? {
            Object::Cq(cq) => Ok(cq),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn create_cq<M: UserMemory>(
        &mut self,
        call: &Call<'_, M>,
        files: &dyn Files,
        made: &mut Made,
    ) -> Result<(), Errno> {
        const RESP_DOORBELL: u32 = 1;
        let channel = Self::event_file(call, attr::CQ_COMP_CHANNEL, files, true)?;
        Self::event_file(call, attr::CQ_EVENT_FD, files, false)?;
        let (entries, vector) = (call.number(attr::CQ_CQE)? as u32, call.number(attr::CQ_COMP_VECTOR)?);
        let element = call.number(attr::CQ_USER_HANDLE)?;
        let input = call.input(attr::UHW_IN)?;
        let input = Fields(&input);
        let (mask, entry_size, sub_cqs, flags) = (input.u32(0), input.u32(4), input.u16(8), input.u8(10));
        let limits = self.device.limits();
        if vector >= VECTORS.into() || entries == 0 || entries > limits.max_cqe {
            return Err(Errno::EINVAL);
        }
        if call.number(attr::CQ_FLAGS)? != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if mask != 0 || !input.is_zero_from(11) || sub_cqs != SUB_CQS || flags & !(WITH_CHANNEL | WITH_SGID) != 0 {
            return Err(Errno::EINVAL);
        }
        let with_sgid = flags & WITH_SGID != 0;
        if !matches!((entry_size, with_sgid), (16, false) | (32, _)) {
            return Err(Errno::EINVAL);
        }
        let channel = if flags & WITH_CHANNEL != 0 { Some(channel.ok_or(Errno::EINVAL)?) } else { None };
        let entries = entries.next_power_of_two();
        let ring = self.arena.region(entries as usize * entry_size as usize)?;
        let doorbell = if channel.is_some() { Some(self.arena.region(1)?) } else { None };
        let memory =
            CqMemory { ring: ring.base().cast(), doorbell: doorbell.as_ref().map(|doorbell| doorbell.base().cast()) };
        // Unsolicited arrivals go to queues of either kind.
        let unsolicited = self.device.caps().contains(efa_core::Caps::UNSOLICITED_WRITE_RECV);
        let init = CqInit { entries, sgid: entry_size == 32, unsolicited };
        // SAFETY: the regions have the bytes, and every handle of the queue goes along with them; the program reaches
        // them as another one would.
        let cq = unsafe { self.device.create_cq_in(&init, memory) }?;
        self.keys.add(&ring);
        let mut answer = Answer::<40>::new().u64(8, ring.key()).u64(16, ring.size() as u64);
        if let Some(doorbell) = &doorbell {
            self.keys.add(doorbell);
            answer = answer.u32(0, RESP_DOORBELL).u64(32, doorbell.key());
        }
        let memory = Arc::new(CqRegions { ring, doorbell });
        let events = channel.map(|channel| EventQueue::new(cq.clone(), memory.clone(), channel, element));
        if let Some(events) = &events {
            self.progress.watch(events);
        }
        let handle = self.enter(Object::Cq(CompletionQueue { cq, events, memory }), &[], made);
        call.put(attr::CQ_RESP_CQE, &entries.to_ne_bytes())?;
        call.put(attr::UHW_OUT, &answer.u16(24, handle as u16).0)?;
        call.put_number(attr::HANDLE, handle)
    }

    pub(super) fn destroy_cq<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let handle = call.handle(attr::HANDLE)?;
        self.cq(handle)?;
        self.objects.removable(handle)?;
        let Some(Object::Cq(cq)) = self.end(handle) else { return Err(Errno::ENOENT) };
        let reported = cq.events.as_ref().map_or(0, |events| events.end());
        call.put(attr::DESTROY_RESP, &Answer::<8>::new().u32(0, reported).0)
    }
}
