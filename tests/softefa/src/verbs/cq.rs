//! Completion queues.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use efa_core::soft::{CqMemory, SoftCq};
use efa_core::{CqInit, Provider};

use super::device::VECTORS;
use super::{Context, Files, Made, Object};
use crate::errno::Errno;
use crate::events::EventQueue;
use crate::foreign::Foreign;
use crate::ioctl::{Call, UserMemory};
use crate::mmap::{Keys, Region};
use crate::progress::Progress;
use crate::sys;
use crate::uapi::{Answer, Fields, attr};

/// A completion queue: its memory is there for as long as anything has a handle of it.
#[derive(Debug)]
pub struct CompletionQueue {
    cq: SoftCq,
    events: Option<Arc<EventQueue>>,
    /// What its program calls it.
    pub(super) element: u64,
    /// Asynchronous events of it that were raised.
    pub(super) async_raised: AtomicU32,
    /// It tells request ids of 64 bits.
    wide_ids: bool,
    memory: Arc<CqRegions>,
}

/// The memory of a completion queue.
#[derive(Debug)]
pub struct CqRegions {
    rings: Rings,
    doorbell: Option<Region>,
}

/// Where a completion queue's rings are.
#[derive(Debug)]
enum Rings {
    /// In memory that the program maps.
    Mapped(Region),
    /// In a file of the program's.
    Of(Foreign),
    /// At an address of the program's.
    At(NonNull<u8>),
}

// SAFETY: it names memory that both sides reach by atomics, or that system calls alone touch.
unsafe impl Send for Rings {}
// SAFETY: as above.
unsafe impl Sync for Rings {}

impl Rings {
    fn first(&self) -> NonNull<u8> {
        match self {
            Self::Mapped(region) => region.base(),
            Self::Of(file) => file.first(),
            Self::At(base) => *base,
        }
    }
}

/// Bits of `efa_ibv_create_cq.flags`.
const WITH_CHANNEL: u8 = 1 << 0;
const WITH_SGID: u8 = 1 << 1;
const WITH_64_BIT_IDS: u8 = 1 << 2;

impl CompletionQueue {
    /// Handles for a queue pair.
    pub(super) fn handles(&self) -> (SoftCq, Arc<CqRegions>) {
        (self.cq.clone(), self.memory.clone())
    }

    /// Whether it tells request ids of 64 bits.
    pub(super) fn tells_64_bits(&self) -> bool {
        self.wide_ids
    }

    /// It can be mapped no more, and raises nothing.
    pub(super) fn leave(&self, keys: &mut Keys, progress: &Progress) {
        if let Rings::Mapped(region) = &self.memory.rings {
            keys.remove(region);
        }
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
        let layout = self.driver.layout;
        let may = WITH_CHANNEL | WITH_SGID | if self.driver.req_id_64 { WITH_64_BIT_IDS } else { 0 };
        if mask != 0 || !input.is_zero_from(11) || sub_cqs != layout.sub_cqs || flags & !may != 0 {
            return Err(Errno::EINVAL);
        }
        let with_sgid = flags & WITH_SGID != 0;
        if !matches!((entry_size, with_sgid), (16, false) | (32, _)) {
            return Err(Errno::EINVAL);
        }
        let channel = if flags & WITH_CHANNEL != 0 { Some(channel.ok_or(Errno::EINVAL)?) } else { None };
        let entries = entries.next_power_of_two();
        let bytes = entries as usize * entry_size as usize * usize::from(sub_cqs);
        let rings = match self.cq_memory(call, bytes, entry_size)? {
            Some(given) => given,
            None => Rings::Mapped(self.arena.region(bytes)?),
        };
        let doorbell = if channel.is_some() { Some(self.arena.region(1)?) } else { None };
        let at = layout.doorbells[2];
        let memory = CqMemory {
            ring: rings.first().cast(),
            sub_cqs,
            moved: !matches!(rings, Rings::Mapped(_)),
            doorbell: doorbell.as_ref().map(|doorbell| doorbell.at(at.into()).cast()),
        };
        // Unsolicited arrivals go to queues of either kind.
        let unsolicited = self.device.caps().contains(efa_core::Caps::UNSOLICITED_WRITE_RECV);
        let init = CqInit { entries, sgid: entry_size == 32, unsolicited };
        // SAFETY: the regions have the bytes, and every handle of the queue goes along with them; the program reaches
        // them as another one would. What is the program's own is moved to by system calls, which bear whatever it does.
        let cq = unsafe { self.device.create_cq_in(&init, memory) }?;
        let mut answer = Answer::<40>::new();
        if let Rings::Mapped(region) = &rings {
            self.keys.add(region);
            answer = answer.u64(8, region.key()).u64(16, region.size() as u64);
        }
        if let Some(doorbell) = &doorbell {
            self.keys.add(doorbell);
            answer = answer.u32(0, RESP_DOORBELL).u32(28, at.into()).u64(32, doorbell.key());
        }
        let memory = Arc::new(CqRegions { rings, doorbell });
        let events = channel.map(|channel| EventQueue::new(cq.clone(), memory.clone(), channel, element));
        if let Some(events) = &events {
            self.progress.watch(events);
        }
        let wide_ids = flags & WITH_64_BIT_IDS != 0;
        let handle = self.enter(
            Object::Cq(CompletionQueue { cq, events, element, async_raised: AtomicU32::new(0), wide_ids, memory }),
            &[],
            made,
        );
        call.put(attr::CQ_RESP_CQE, &entries.to_ne_bytes())?;
        call.put(attr::UHW_OUT, &answer.u16(24, handle as u16).0)?;
        call.put_number(attr::HANDLE, handle)
    }

    /// The memory that a program gives for a completion queue, if it does: by a file, or by an address.
    fn cq_memory<M: UserMemory>(
        &self,
        call: &Call<'_, M>,
        bytes: usize,
        entry_size: u32,
    ) -> Result<Option<Rings>, Errno> {
        let (by_address, has_offset) = (call.has(attr::CQ_BUFFER_VA), call.has(attr::CQ_BUFFER_OFFSET));
        let (file, has_length) = (call.file(attr::CQ_BUFFER_FD)?, call.has(attr::CQ_BUFFER_LENGTH));
        if !by_address && file.is_none() {
            // A length or an offset of nothing.
            return if has_offset || has_length { Err(Errno::EINVAL) } else { Ok(None) };
        }
        if !self.driver.cq_memory || by_address && (file.is_some() || has_offset) {
            return Err(Errno::EINVAL);
        }
        if !has_length || !by_address && !has_offset {
            return Err(Errno::ENOENT);
        }
        let (at, length) = match file {
            Some(_) => (call.number(attr::CQ_BUFFER_OFFSET)?, call.number(attr::CQ_BUFFER_LENGTH)?),
            None => (call.number(attr::CQ_BUFFER_VA)?, call.number(attr::CQ_BUFFER_LENGTH)?),
        };
        if length == 0 || at.checked_add(length).is_none() {
            return Err(Errno::EINVAL);
        }
        let rings = match file {
            Some(file) => Rings::Of(Foreign::map(file, at, length, true)?),
            None => {
                sys::populate(at, length, true)?;
                Rings::At(NonNull::new(at as *mut u8).ok_or(Errno::EFAULT)?)
            }
        };
        // The device reads and writes whole entries.
        if length < bytes as u64 || at % u64::from(entry_size) != 0 { Err(Errno::EINVAL) } else { Ok(Some(rings)) }
    }

    pub(super) fn destroy_cq<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let handle = call.handle(attr::HANDLE)?;
        self.cq(handle)?;
        self.objects.removable(handle)?;
        let Some(Object::Cq(cq)) = self.end(handle) else { return Err(Errno::ENOENT) };
        let reported = cq.events.as_ref().map_or(0, |events| events.end());
        let unread = self.events.as_ref().map_or(Ok(0), |events| events.purge(cq.element)).unwrap_or(0);
        let alarms = cq.async_raised.load(Ordering::Relaxed).saturating_sub(unread);
        call.put(attr::DESTROY_RESP, &Answer::<8>::new().u32(0, reported).u32(4, alarms).0)
    }
}
