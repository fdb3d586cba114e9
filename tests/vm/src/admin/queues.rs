//! Event queues, completion queues, queue pairs.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use efa_core::flags::{QpAttrMask as Mask, SendOps};
use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::soft::{CqMemory, QpRings};
use efa_core::{Caps, CqInit, Provider, Qkey, QpInit};
use zerocopy::little_endian::{U16, U32};

use super::layout::{CqMade, CreateCq, CreateEq, CreateQp, ModifyQp, QpMade, QpQueried, address};
use super::{Admin, Answer, Reply, Status};
use crate::events::{EQS, EventQueue};
use crate::fault::Fault;
use crate::guest::Place;
use crate::objects::{CompletionQueue, Doorbells, QueuePair};
use crate::window::Window;

/// Bytes of a send entry, of a wide one, and of a receive descriptor.
const SEND_ENTRY: u32 = 64;
const WIDE_ENTRY: u32 = 128;
const DESCRIPTOR: u32 = 16;
/// Words of an event.
const EQ_WORDS: u8 = 4;

/// Bits of a completion queue's capabilities, and of the size of its entries.
const INTERRUPTS: u8 = 1 << 5;
const VIRTUAL_CQ: u8 = 1 << 6;
const WORDS: u8 = 0b1_1111;
const WITH_ADDRESS: u8 = 1 << 5;
/// Its doorbell is there.
const DOORBELL_VALID: u32 = 1;

/// Flags of a queue pair.
const VIRTUAL_QP: u8 = 0b11;
const UNSOLICITED: u8 = 1 << 2;
const UD: u8 = 1;
const SRD: u8 = 2;

/// What a change of a queue pair may be of.
const CHANGES: [(u32, Mask); 6] = [
    (1 << 0, Mask::STATE),
    (1 << 1, Mask::CUR_STATE),
    (1 << 2, Mask::QKEY),
    (1 << 3, Mask::SQ_PSN),
    (1 << 4, Mask::EN_SQD_ASYNC_NOTIFY),
    (1 << 5, Mask::RNR_RETRY),
];

/// A doorbell as the model takes it.
fn doorbell(doorbells: Doorbells, offset: u64) -> Result<NonNull<std::sync::atomic::AtomicU32>, Status> {
    doorbells.at(offset).map(NonNull::from).ok_or(Status::NoResource)
}

impl Admin {
    pub(super) fn create_eq(&mut self, asked: &CreateEq) -> Answer {
        if self.fault == Some(Fault::CreateEq) {
            return Err(Status::NoResource);
        }
        let number = self.objects.eqs.vacant(EQS).ok_or(Status::NoResource)?;
        let base = address(asked.low, asked.high);
        let eq = EventQueue::new(base, asked.depth.get(), asked.vector);
        let eq = eq.filter(|_| asked.entry & WORDS == EQ_WORDS).ok_or(Status::IllegalParameter)?;
        self.objects.eqs.enter(number, eq);
        Ok(Reply::of(&U16::from(number)))
    }

    pub(super) fn destroy_eq(&mut self, number: U16) -> Answer {
        self.objects.eqs.take(number.get().into()).map(|_| Reply::empty()).ok_or(Status::IllegalParameter)
    }

    pub(super) fn create_cq(&mut self, asked: &CreateCq) -> Answer {
        let (entries, words) = (u32::from(asked.depth.get()), asked.entry & WORDS);
        let is_sound = entries.is_power_of_two() && matches!(words, 4 | 8) && asked.sub_cqs.get() == 1;
        if !is_sound || asked.entry & WITH_ADDRESS != 0 && words != 8 {
            return Err(Status::IllegalParameter);
        }
        if asked.caps & VIRTUAL_CQ != 0 {
            return Err(Status::Unsupported);
        }
        let eqn = (asked.caps & INTERRUPTS != 0).then_some(asked.eqn.get());
        if eqn.is_some_and(|eqn| self.objects.eqs.get(eqn.into()).is_none()) {
            return Err(Status::IllegalParameter);
        }
        let number = self.objects.cqs.vacant(self.device.limits().max_cq as usize).ok_or(Status::NoResource)?;
        let bytes = entries as usize * usize::from(words) * 4;
        let ring = Arc::new(Window::contiguous(&self.guest, address(asked.low, asked.high), bytes)?);
        let offset = Doorbells::of_cq(number);
        let rung = doorbell(self.objects.doorbells, offset)?;
        self.objects.doorbells.ring(offset, 0);
        let memory =
            CqMemory { ring: ring.first().cast(), sub_cqs: 1, moved: true, doorbell: eqn.is_some().then_some(rung) };
        let unsolicited = self.device.caps().contains(Caps::UNSOLICITED_WRITE_RECV);
        let init = CqInit { entries, sgid: words == 8, unsolicited };
        // SAFETY: the ring is reached by the mover alone, which finds it for as long as its window is there: queue pairs,
        // which have the other handles, have the window, too. The doorbell is there for ever.
        let cq = unsafe { self.device.create_cq_in(&init, memory) }?;
        self.objects.cqs.enter(number, CompletionQueue { cq, eqn, ring });
        Ok(Reply::of(&CqMade {
            index: number.into(),
            depth: asked.depth,
            doorbell: (offset as u32).into(),
            flags: if eqn.is_some() { DOORBELL_VALID } else { 0 }.into(),
        }))
    }

    pub(super) fn destroy_cq(&mut self, number: U16) -> Answer {
        self.objects.cqs.take(number.get().into()).map(|_| Reply::empty()).ok_or(Status::IllegalParameter)
    }

    pub(super) fn create_qp(&mut self, asked: &CreateQp) -> Answer {
        let init = self.qp_init(asked)?;
        let limits = self.device.limits();
        let handle = self.objects.qps.vacant(limits.max_qp as usize).ok_or(Status::NoResource)?;
        let cq = |index: U32| self.objects.cqs.get(index.get()).ok_or(Status::IllegalParameter);
        let (send_cq, recv_cq) = (cq(asked.send_cq)?, cq(asked.recv_cq)?);
        let pd = self.objects.pds.get(asked.pd.get().into()).ok_or(Status::IllegalParameter)?;
        let (llq, llq_offset, sends) =
            self.objects.llq.allocate(asked.sq_bytes.get() as usize).ok_or(Status::NoResource)?;
        let receives = match asked.rq_bytes.get() as usize {
            0 => Place::own(usize::from(init.recv_sge) * DESCRIPTOR as usize)?,
            bytes => self.guest.place(asked.rq_base.get(), bytes)?,
        };
        let offsets = Doorbells::of_qp(handle);
        let rings = QpRings {
            send: sends.first().cast(),
            recv: receives.first().cast(),
            send_doorbell: doorbell(self.objects.doorbells, offsets[0])?,
            recv_doorbell: doorbell(self.objects.doorbells, offsets[1])?,
            sub_cqs: [0, 0],
            req_id_64: false,
        };
        // SAFETY: the places have the bytes and go along with the handle; the guest reaches them as another program would.
        // Doorbells are there for ever.
        let qp = unsafe { self.device.create_qp_in(pd, &send_cq.cq, &recv_cq.cq, &init, rings) }?;
        let qpn = self.device.queues(&qp).qpn.0;
        let memory = Some((llq, [sends, receives], [send_cq.ring.clone(), recv_cq.ring.clone()]));
        let told = (0, 0, 7);
        self.objects.qps.enter(handle, QueuePair { qp, told, device: self.device.clone(), memory });
        Ok(Reply::of(&QpMade {
            handle: u32::from(handle).into(),
            qpn: qpn.into(),
            reserved: 0.into(),
            send_sub_cq: 0.into(),
            recv_sub_cq: 0.into(),
            sq_doorbell: (offsets[0] as u32).into(),
            rq_doorbell: (offsets[1] as u32).into(),
            llq: llq_offset.into(),
            unused: 0.into(),
        }))
    }

    /// What the model is to make. The command does not say what entries are, nor how many buffers a receive has: the bytes do.
    fn qp_init(&self, asked: &CreateQp) -> Result<QpInit, Status> {
        let limits = self.device.limits();
        let (sends, receives) = (asked.sq_depth.get(), asked.rq_depth.get());
        if !matches!(asked.qp_type, UD | SRD) || asked.flags & !UNSOLICITED != 0 {
            let is_virtual = asked.flags & VIRTUAL_QP != 0;
            return Err(if is_virtual { Status::Unsupported } else { Status::IllegalParameter });
        }
        if sends == 0 || sends > limits.max_send_depth || receives > limits.max_recv_depth {
            return Err(Status::IllegalParameter);
        }
        let entry = asked.sq_bytes.get() / sends.next_power_of_two();
        let descriptors = asked.rq_bytes.get() / DESCRIPTOR;
        let buffers = if receives == 0 { 1 } else { descriptors / receives.next_power_of_two() };
        let is_exact = entry * sends.next_power_of_two() == asked.sq_bytes.get()
            && matches!(entry, SEND_ENTRY | WIDE_ENTRY)
            && (receives == 0 || buffers * receives.next_power_of_two() * DESCRIPTOR == asked.rq_bytes.get())
            && (1..=u32::from(limits.max_recv_sge)).contains(&buffers);
        if !is_exact {
            return Err(Status::IllegalParameter);
        }
        let caps = self.device.caps();
        let (is_srd, wide) = (asked.qp_type == SRD, entry == WIDE_ENTRY);
        let mut ops = SendOps::SEND | SendOps::SEND_WITH_IMM;
        ops.set(SendOps::RDMA_READ, is_srd && caps.contains(Caps::RDMA_READ));
        ops.set(SendOps::RDMA_WRITE | SendOps::RDMA_WRITE_WITH_IMM, is_srd && caps.contains(Caps::RDMA_WRITE));
        let mut init = QpInit::new(if is_srd { QpType::Srd } else { QpType::Ud }, ops, sends, receives);
        init.send_sge = limits.max_send_sge;
        init.recv_sge = buffers as u8;
        init.entry_size = entry as u16;
        init.inline = if wide { limits.max_inline_wide } else { limits.max_inline };
        init.inline_write = wide && ops.contains(SendOps::RDMA_WRITE) && caps.contains(Caps::INLINE_WRITE);
        init.unsolicited = asked.flags & UNSOLICITED != 0;
        init.service_level = asked.service_level;
        Ok(init)
    }

    pub(super) fn modify_qp(&mut self, asked: &ModifyQp) -> Answer {
        // What was announced before this command is taken before it.
        self.device.drive();
        let qp = self.objects.qps.get_mut(asked.handle.get()).ok_or(Status::IllegalParameter)?;
        let current = self.device.query_qp(&qp.qp)?;
        let all = CHANGES.iter().fold(0, |all, (bit, _)| all | bit);
        if asked.mask.get() & !all != 0 {
            return Err(Status::Unsupported);
        }
        let chosen = CHANGES.iter().filter(|(bit, _)| asked.mask.get() & bit != 0).map(|(_, mask)| *mask);
        let mut mask = chosen.fold(Mask::STATE, Mask::union);
        let state = |number: U32| QpState::from_number(number.get());
        let next = if asked.mask.get() & 1 != 0 { state(asked.state) } else { current };
        // The driver always says which state it believes in; the verbs' table has that as an attribute of few transitions.
        if mask.contains(Mask::CUR_STATE) && state(asked.cur_state) != current {
            return Err(Status::IllegalParameter);
        }
        mask.remove(Mask::CUR_STATE);
        // Of these the device hears nothing: the kernel has looked at them.
        if (current, next) == (QpState::Reset, QpState::Init) {
            mask.insert(Mask::PKEY_INDEX | Mask::PORT);
        }
        let attr = QpAttr {
            mask,
            state: next,
            cur_state: current,
            pkey_index: 0,
            port: 1,
            qkey: Qkey(asked.qkey.get()),
            sq_psn: asked.sq_psn.get(),
            rnr_retry: asked.rnr_retry,
            sqd_async_notify: asked.notify != 0,
        };
        self.device.modify_qp(&mut qp.qp, &attr)?;
        if next == QpState::Reset {
            qp.told = (0, 0, 7);
        }
        if mask.contains(Mask::QKEY) {
            qp.told.0 = asked.qkey.get();
        }
        if mask.contains(Mask::SQ_PSN) {
            qp.told.1 = asked.sq_psn.get() & 0xFF_FFFF;
        }
        if mask.contains(Mask::RNR_RETRY) {
            qp.told.2 = asked.rnr_retry;
        }
        Ok(Reply::empty())
    }

    pub(super) fn query_qp(&mut self, handle: U32) -> Answer {
        let qp = self.objects.qps.get(handle.get()).ok_or(Status::IllegalParameter)?;
        let state = self.device.query_qp(&qp.qp)?;
        let draining = state == QpState::Sqd && !qp.qp.is_drained()?;
        Ok(Reply::of(&QpQueried {
            state: state.number().into(),
            qkey: qp.told.0.into(),
            sq_psn: qp.told.1.into(),
            draining: draining.into(),
            rnr_retry: qp.told.2,
            reserved: 0.into(),
        }))
    }

    pub(super) fn destroy_qp(&mut self, handle: U32) -> Answer {
        self.objects.qps.take(handle.get()).map(|_| Reply::empty()).ok_or(Status::IllegalParameter)
    }
}
