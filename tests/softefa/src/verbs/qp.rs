//! Queue pairs.

#![allow(unsafe_code)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use efa_core::flags::{QpAttrMask as Mask, SendOps};
use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::soft::{QpRings, SoftDevice, SoftQp};
use efa_core::{Caps, Provider, Qkey, QpInit};

use super::cq::CqRegions;
use super::{Context, Files, Made, Object};
use crate::errno::Errno;
use crate::events::{ALARMS, AlarmOf, EventFile};
use crate::ioctl::{Call, UserMemory};
use crate::mmap::{Keys, Region};
use crate::uapi::{Answer, Fields, QP_SQ_SIG_ALL, QPT_DRIVER, QPT_UD, attr};

/// Bytes of a send entry, of a wide one, and of a receive descriptor.
const SEND_ENTRY: u32 = 64;
const WIDE_ENTRY: u32 = 128;
const DESCRIPTOR: u32 = 16;

/// What `efa_ibv_create_qp.flags` may say.
/// The service levels that there are: that of who asks for none, and that for low latency.
const LEVELS: [u8; 2] = [0, 8];
const UNSOLICITED: u16 = 1 << 0;
const REQ_ID_64: u16 = 1 << 1;

/// What a query may ask for; `IBV_QP_CAP` is not among core's.
const CAP: u32 = 1 << 19;
const QUERIED: u32 = Mask::STATE
    .union(Mask::PKEY_INDEX)
    .union(Mask::PORT)
    .union(Mask::QKEY)
    .union(Mask::SQ_PSN)
    .union(Mask::RNR_RETRY)
    .bits()
    | CAP;

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    /// At the device.
    pub qp: SoftQp,
    /// Events of it that were raised.
    pub async_raised: u32,
    device: SoftDevice,
    /// The domain's handle and those of the completion queues.
    uses: [u32; 3],
    /// Handles of the counters attached to it.
    pub(super) counters: Vec<u32>,
    cap: [u8; 20],
    attr: QpAttr,
    draining: bool,
    element: u64,
    events: Option<Arc<EventFile>>,
    ended: bool,
    /// Dropped after the handle.
    memory: Option<QpRegions>,
}

/// The memory of a queue pair, and of what it writes to.
#[derive(Debug)]
struct QpRegions {
    send: Region,
    recv: Region,
    doorbells: Region,
    _cqs: [Arc<CqRegions>; 2],
}

pub(super) fn lock(qp: &Mutex<QueuePair>) -> MutexGuard<'_, QueuePair> {
    qp.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueuePair {
    /// Of its counters each as often as it is attached.
    pub(super) fn uses(&self) -> Vec<u32> {
        [&self.uses[..], &self.counters].concat()
    }

    /// Whether somebody waits for it to drain.
    pub fn drains(&self) -> bool {
        self.draining
    }

    /// Nobody does any more.
    pub fn told_drained(&mut self) {
        self.draining = false;
    }

    /// It can be mapped no more, and raises nothing.
    pub(super) fn leave(&mut self, keys: &mut Keys) {
        self.draining = false;
        if let Some(memory) = &self.memory {
            for region in [&memory.send, &memory.recv, &memory.doorbells] {
                keys.remove(region);
            }
        }
        self.destroy();
    }

    /// Ends it at the device. What the device does not let go of keeps its memory for ever.
    fn destroy(&mut self) {
        if !std::mem::replace(&mut self.ended, true) && self.device.destroy_qp(&mut self.qp).is_err() {
            std::mem::forget(self.memory.take());
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl Context {
    pub(super) fn qp(&self, handle: u32) -> Result<&Arc<Mutex<QueuePair>>, Errno> {
        match self.objects.get(handle)? {
            Object::Qp(qp) => Ok(qp),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn create_qp<M: UserMemory>(
        &mut self,
        call: &Call<'_, M>,
        files: &dyn Files,
        made: &mut Made,
    ) -> Result<(), Errno> {
        let uses = [call.handle(attr::QP_PD)?, call.handle(attr::QP_SEND_CQ)?, call.handle(attr::QP_RECV_CQ)?];
        let events = Self::event_file(call, attr::QP_EVENT_FD, files, false)?.or_else(|| self.events.clone());
        let element = call.number(attr::QP_USER_HANDLE)?;
        let cap = Answer::<20>::new().with(0, &call.input(attr::QP_CAP)?);
        let input = call.input(attr::UHW_IN)?;
        let input = Fields(&input);
        let (mask, recv_bytes, send_bytes, driver_type, flags, level) =
            (input.u32(0), input.u32(4), input.u32(8), input.u32(12), input.u16(16), input.u8(18));
        let qp_type = call.number(attr::QP_TYPE)?;
        if !matches!((qp_type, driver_type), (QPT_UD | QPT_DRIVER, 0)) {
            return Err(Errno::EOPNOTSUPP);
        }
        if call.number(attr::QP_FLAGS)? & !QP_SQ_SIG_ALL != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let caps = self.device.caps();
        let unsolicited = flags & UNSOLICITED != 0;
        let mut may = if caps.contains(Caps::UNSOLICITED_WRITE_RECV) { UNSOLICITED } else { 0 };
        may |= if self.driver.req_id_64 { REQ_ID_64 } else { 0 };
        if mask != 0 || !input.is_zero_from(19) || flags & !may != 0 || !LEVELS.contains(&level) {
            return Err(Errno::EINVAL);
        }
        let mut init = self.qp_init(qp_type, Fields(&cap.0), unsolicited, send_bytes)?;
        init.service_level = level;
        let (sends, receives) = (init.send_depth.next_power_of_two(), init.recv_depth.max(1).next_power_of_two());
        let descriptors = receives * u32::from(init.recv_sge.max(1));
        let has_recv = init.recv_depth > 0;
        if send_bytes != sends * u32::from(init.entry_size) || has_recv && recv_bytes != descriptors * DESCRIPTOR {
            return Err(Errno::EINVAL);
        }
        let req_id_64 = flags & REQ_ID_64 != 0;
        if req_id_64 && !self.cq(uses[1])?.tells_64_bits() {
            return Err(Errno::EINVAL);
        }
        let (send_cq, send_memory) = self.cq(uses[1])?.handles();
        let (recv_cq, recv_memory) = self.cq(uses[2])?.handles();
        let layout = self.driver.layout;
        let [send_doorbell, recv_doorbell, _] = layout.doorbells;
        let sub_cqs = [0, 1].map(|nth| ((self.rings + nth) % usize::from(layout.sub_cqs.max(1))) as u8);
        let memory = QpRegions {
            send: self.arena.region(send_bytes as usize + usize::from(layout.llq))?,
            recv: self.arena.region((descriptors * DESCRIPTOR) as usize)?,
            doorbells: self.arena.region(1)?,
            _cqs: [send_memory, recv_memory],
        };
        let rings = QpRings {
            send: memory.send.at(layout.llq.into()).cast(),
            recv: memory.recv.base().cast(),
            send_doorbell: memory.doorbells.at(send_doorbell.into()).cast(),
            recv_doorbell: memory.doorbells.at(recv_doorbell.into()).cast(),
            sub_cqs,
            req_id_64,
        };
        let pd = self.pd(uses[0])?;
        // SAFETY: the regions have the bytes and go along with the handle; the program reaches them as another would.
        let qp = unsafe { self.device.create_qp_in(pd, &send_cq, &recv_cq, &init, rings) }?;
        let number = self.device.queues(&qp).qpn.0;
        for region in [&memory.send, &memory.recv, &memory.doorbells] {
            self.keys.add(region);
        }
        self.rings = self.rings.wrapping_add(1);
        let mut answer = Answer::<64>::new()
            .u32(8, send_doorbell.into())
            .u32(12, layout.llq.into())
            .u64(40, memory.doorbells.key())
            .u64(48, memory.send.key())
            .u16(56, sub_cqs[0].into())
            .u16(58, sub_cqs[1].into());
        if has_recv {
            answer = answer
                .u32(4, recv_doorbell.into())
                .u64(16, memory.recv.key())
                .u64(24, memory.recv.size() as u64)
                .u64(32, memory.doorbells.key());
        }
        let qp = QueuePair {
            qp,
            async_raised: 0,
            device: self.device.clone(),
            uses,
            counters: Vec::new(),
            cap: cap.0,
            attr: QpAttr::to(QpState::Reset, Mask::empty()),
            draining: false,
            element,
            events,
            ended: false,
            memory: Some(memory),
        };
        let handle = self.enter(Object::Qp(Arc::new(Mutex::new(qp))), &uses, made);
        self.progress.queue_pair_made();
        call.put(attr::QP_RESP_CAP, &cap.0)?;
        call.put(attr::QP_RESP_QP_NUM, &u32::from(number).to_ne_bytes())?;
        call.put(attr::UHW_OUT, &answer.0)?;
        call.put_number(attr::HANDLE, handle)
    }

    /// What the device is to make, of what the program asks for.
    fn qp_init(&self, qp_type: u64, cap: Fields<'_>, unsolicited: bool, send_bytes: u32) -> Result<QpInit, Errno> {
        let small = |at: usize| u8::try_from(cap.u32(at)).map_err(|_| Errno::EINVAL);
        let caps = self.device.caps();
        let qp_type = if qp_type == QPT_UD { QpType::Ud } else { QpType::Srd };
        let mut ops = SendOps::SEND | SendOps::SEND_WITH_IMM;
        if qp_type == QpType::Srd {
            ops.set(SendOps::RDMA_READ, caps.contains(Caps::RDMA_READ));
            ops.set(SendOps::RDMA_WRITE | SendOps::RDMA_WRITE_WITH_IMM, caps.contains(Caps::RDMA_WRITE));
        }
        let limits = self.device.limits();
        let (send_depth, recv_depth) = (cap.u32(0), cap.u32(4));
        // What is beyond a limit is refused below; this is what can be counted with.
        if send_depth == 0 || send_depth > limits.max_send_depth || recv_depth > limits.max_recv_depth {
            return Err(Errno::EINVAL);
        }
        // The request does not say what entries are: their bytes do.
        let wide = send_bytes == send_depth.next_power_of_two() * WIDE_ENTRY;
        let inline = u16::try_from(cap.u32(16)).map_err(|_| Errno::EINVAL)?;
        Ok(QpInit {
            qp_type,
            send_depth,
            recv_depth,
            send_sge: small(8)?,
            recv_sge: small(12)?,
            entry_size: if wide { WIDE_ENTRY as u16 } else { SEND_ENTRY as u16 },
            inline,
            inline_write: wide && ops.contains(SendOps::RDMA_WRITE) && caps.contains(Caps::INLINE_WRITE),
            ops,
            unsolicited,
            service_level: 0,
        })
    }

    pub(super) fn modify_qp(&mut self, input: Fields<'_>) -> Result<(), Errno> {
        let shared = self.qp(input.u32(64))?.clone();
        let mut qp = lock(&shared);
        let mask = Mask::from_bits(input.u32(68)).ok_or(Errno::EOPNOTSUPP)?;
        // The doorbell that was rung before this call is seen before it. The first query waits for a turn that another
        // thread is at, which may have passed it.
        self.device.query_qp(&qp.qp)?;
        self.device.turn();
        let current = self.device.query_qp(&qp.qp)?;
        let named = |at: usize| QpState::from_number(input.u8(at).into());
        let attr = QpAttr {
            mask: mask | Mask::STATE,
            state: if mask.contains(Mask::STATE) { named(96) } else { current },
            cur_state: named(97),
            pkey_index: input.u16(92),
            port: input.u8(104),
            qkey: Qkey(input.u32(72)),
            sq_psn: input.u32(80),
            rnr_retry: input.u8(107),
            sqd_async_notify: input.u8(100) != 0,
        };
        self.device.modify_qp(&mut qp.qp, &attr)?;
        if attr.state == QpState::Reset {
            qp.attr = QpAttr::to(QpState::Reset, Mask::empty());
        }
        if mask.contains(Mask::QKEY) {
            qp.attr.qkey = attr.qkey;
        }
        if mask.contains(Mask::SQ_PSN) {
            qp.attr.sq_psn = attr.sq_psn & 0xFF_FFFF;
        }
        if mask.contains(Mask::RNR_RETRY) {
            qp.attr.rnr_retry = attr.rnr_retry;
        }
        let notify = mask.contains(Mask::EN_SQD_ASYNC_NOTIFY) && attr.sqd_async_notify;
        qp.draining = attr.state == QpState::Sqd && notify && qp.events.is_some();
        if let Some(events) = qp.events.as_ref().filter(|_| qp.draining) {
            self.progress.tell_drained(&shared, events, qp.element);
        }
        if attr.state == QpState::Err && self.driver.alarms {
            self.alarm(&mut qp);
        }
        Ok(())
    }

    /// Raises all of [`ALARMS`].
    fn alarm(&self, qp: &mut QueuePair) {
        let Some(events) = &self.events else { return };
        for (of, event) in ALARMS {
            match of {
                AlarmOf::QueuePair => {
                    if let Some(events) = &qp.events {
                        qp.async_raised += u32::from(events.raise(qp.element, event));
                    }
                }
                AlarmOf::CompletionQueues => {
                    for cq in qp.uses[1..].iter().filter_map(|cq| self.cq(*cq).ok()) {
                        cq.async_raised.fetch_add(events.raise(cq.element, event).into(), Ordering::Relaxed);
                    }
                }
                AlarmOf::Port => {
                    events.raise(1, event);
                }
            }
        }
    }

    pub(super) fn query_qp<M: UserMemory>(&self, call: &Call<'_, M>, input: Fields<'_>) -> Result<(), Errno> {
        let qp = lock(self.qp(input.u32(8))?);
        if input.u32(12) & !QUERIED != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let state = self.device.query_qp(&qp.qp)?;
        let number = state.number() as u8;
        let draining = state == QpState::Sqd && !qp.qp.is_drained()?;
        let answer = Answer::<128>::new()
            .with(64, &qp.cap)
            .u32(84, qp.attr.qkey.0)
            .u32(92, qp.attr.sq_psn)
            .u8(108, number)
            .u8(109, number)
            .u8(112, draining.into())
            .u8(116, 1)
            .u8(119, qp.attr.rnr_retry);
        call.put(attr::CORE_OUT, &answer.0)
    }

    pub(super) fn destroy_qp<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let handle = call.handle(attr::HANDLE)?;
        self.qp(handle)?;
        self.objects.removable(handle)?;
        let Some(Object::Qp(qp)) = self.end(handle) else { return Err(Errno::ENOENT) };
        let qp = lock(&qp);
        let unread = qp.events.as_ref().map_or(Ok(0), |events| events.purge(qp.element)).unwrap_or(0);
        call.put(attr::DESTROY_RESP, &qp.async_raised.saturating_sub(unread).to_ne_bytes())
    }
}
