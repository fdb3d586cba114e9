//! Queue pairs, with their rings and the slots of what is in flight.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use std::sync::Arc;

use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::ring::{AtomicWord, Slot};
use efa_core::{Error, Limit, QpInit, Qpn, Queues, RecvRing, SendRing, Verb};

use super::cq::{MAX_ENTRIES, too_old};
use super::{Cq, Pd, answered, made};
use crate::ffi::*;

/// A queue pair. One that is dropped alive is destroyed, or leaked and counted.
pub(crate) struct Qp {
    raw: NonNull<IbvQp>,
    alive: bool,
    queues: Queues,
    send_slots: NonNull<[Slot]>,
    recv_slots: NonNull<[Slot]>,
    pd: Arc<Pd>,
    /// Its completion queues, which it keeps; taken where it is leaked.
    cqs: Option<[Arc<Cq>; 2]>,
}

// SAFETY: the verbs may be called from any thread; rings and slots are this handle's alone, and slots are `Send`.
unsafe impl Send for Qp {}

impl Qp {
    /// Makes a queue pair whose rings this process writes itself.
    ///
    /// # Errors
    /// What the device answered; [`Error::EntrySize`]; [`Error::BelowLimit`] with the depth that the device has at least;
    /// EPROTO if it says something impossible of the rings.
    pub(crate) fn create(pd: &Arc<Pd>, send: &Arc<Cq>, recv: &Arc<Cq>, init: &QpInit) -> Result<Self, Error> {
        let ours = Arc::ptr_eq(&pd.context, &send.context) && Arc::ptr_eq(&pd.context, &recv.context);
        if !ours || (init.unsolicited && !recv.unsolicited) {
            return Err(refused(Verb::CreateQp, libc::EINVAL));
        }
        let cap = IbvQpCap {
            max_send_wr: init.send_depth,
            max_recv_wr: init.recv_depth,
            max_send_sge: init.send_sge.into(),
            max_recv_sge: init.recv_sge.into(),
            max_inline_data: asked_inline(init),
        };
        let (raw, cap) = match init.qp_type {
            QpType::Srd => Self::create_srd(pd, send, recv, init, cap)?,
            QpType::Ud => Self::create_ud(pd, send, recv, cap)?,
        };
        // SAFETY: just made, and nobody changes its number.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        // From here on it is destroyed when it is dropped, whatever is found out about it.
        let mut qp = Self {
            raw,
            alive: true,
            queues: nothing(),
            send_slots: slots(0),
            recv_slots: slots(0),
            pd: pd.clone(),
            cqs: Some([send.clone(), recv.clone()]),
        };
        let qpn = u16::try_from(number).map_err(|_| refused(Verb::CreateQp, libc::EPROTO))?;
        qp.queues = qp.query_rings(init, cap)?;
        qp.queues.qpn = Qpn(qpn);
        qp.send_slots = slots(qp.queues.send.depth);
        qp.recv_slots = slots(qp.queues.recv.depth);
        qp.queues.send.slots = qp.send_slots.cast();
        qp.queues.recv.slots = qp.recv_slots.cast();
        Ok(qp)
    }

    fn create_srd(
        pd: &Pd,
        send: &Cq,
        recv: &Cq,
        init: &QpInit,
        cap: IbvQpCap,
    ) -> Result<(NonNull<IbvQp>, IbvQpCap), Error> {
        let (mut attr, mut efa) = (IbvQpInitAttrEx::zeroed(), EfadvQpInitAttr::zeroed());
        (attr.send_cq, attr.recv_cq) = (send.raw(), recv.raw());
        (attr.cap, attr.qp_type, attr.sq_sig_all) = (cap, IBV_QPT_DRIVER, 1);
        (attr.comp_mask, attr.pd) = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, pd.raw());
        attr.send_ops_flags = init.ops.bits().into();
        efa.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
        efa.flags |= if init.unsolicited { EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV } else { 0 };
        efa.flags |= if init.inline_write { EFADV_QP_FLAGS_INLINE_WRITE } else { 0 };
        let len = size_of::<EfadvQpInitAttr>() as u32;
        let context = &pd.context;
        // SAFETY: an open device, live queues and a live domain of it, and structs of ours, the second of that length.
        let raw = unsafe { context.table.efadv_create_qp_ex(context.raw(), &mut attr, &mut efa, len) };
        Ok((made(Verb::CreateQp, raw)?, attr.cap))
    }

    fn create_ud(pd: &Pd, send: &Cq, recv: &Cq, cap: IbvQpCap) -> Result<(NonNull<IbvQp>, IbvQpCap), Error> {
        let mut attr = IbvQpInitAttr::zeroed();
        (attr.send_cq, attr.recv_cq) = (send.raw(), recv.raw());
        (attr.cap, attr.qp_type, attr.sq_sig_all) = (cap, IBV_QPT_UD, 1);
        // SAFETY: a live domain, live queues of the same device, and a struct of ours.
        let raw = unsafe { pd.context.table.ibv_create_qp(pd.raw(), &mut attr) };
        Ok((made(Verb::CreateQp, raw)?, attr.cap))
    }

    /// Where the rings are, as promised to core or not at all.
    fn query_rings(&self, init: &QpInit, cap: IbvQpCap) -> Result<Queues, Error> {
        let (mut send, mut recv) = (EfadvWqAttr::zeroed(), EfadvWqAttr::zeroed());
        let len = size_of::<EfadvWqAttr>() as u32;
        // SAFETY: a live queue pair, and structs of that length.
        let returned = unsafe { self.table().efadv_query_qp_wqs(self.raw(), &mut send, &mut recv, len) };
        answered(Verb::CreateQp, returned.map_err(|_| too_old())?)?;
        let entry_size = send.entry_size.try_into().unwrap_or(u16::MAX);
        if entry_size != init.entry_size {
            return Err(Error::EntrySize { asked: init.entry_size, given: entry_size });
        }
        let (depth, descriptors) = (send.num_entries, recv.num_entries);
        let asked = init.send_depth.max(1);
        // Completion queues were made for as much as was asked for (R17).
        if depth != asked.next_power_of_two() && depth > asked {
            let (what, asked, limit) = (Limit::SendDepth, asked.into(), depth.into());
            return Err(Error::BelowLimit { what, asked, limit });
        }
        let sge = u32::from(init.recv_sge.max(1));
        let rounded = init.recv_depth.saturating_mul(sge).checked_next_power_of_two();
        let possible = depth.is_power_of_two() && (asked..=MAX_ENTRIES).contains(&depth);
        let possible = possible && rounded == Some(descriptors) && descriptors <= MAX_ENTRIES && recv.entry_size == 16;
        if !possible || !sge.is_power_of_two() {
            return Err(refused(Verb::CreateQp, libc::EPROTO));
        }
        let verb = Verb::CreateQp;
        Ok(Queues {
            qpn: Qpn(0),
            generation: 0,
            send: SendRing {
                entries: ring_of::<AtomicWord>(send.buffer.cast(), verb)?,
                doorbell: ring_of::<AtomicU32>(send.doorbell.cast(), verb)?,
                depth,
                entry_size,
                max_batch: send.max_batch.clamp(1, depth) as u16,
                inline: cap.max_inline_data.min(init.inline.into()) as u16,
                req_id_64: send.caps & EFADV_WQ_CAPS_64_BIT_REQ_ID != 0,
                slots: NonNull::dangling(),
            },
            recv: RecvRing {
                entries: ring_of::<AtomicWord>(recv.buffer.cast(), verb)?,
                doorbell: ring_of::<AtomicU32>(recv.doorbell.cast(), verb)?,
                descriptors,
                depth: descriptors / sge,
                max_sge: sge as u8,
                slots: NonNull::dangling(),
            },
        })
    }

    /// Its rings, its slots and its number. Generations are for the provider to give.
    pub(crate) fn queues(&self) -> Queues {
        self.queues
    }

    pub(crate) fn set_generation(&mut self, generation: u16) {
        self.queues.generation = generation;
    }

    /// # Errors
    /// What the device answered.
    pub(crate) fn modify(&mut self, to: &QpAttr) -> Result<(), Error> {
        if !self.alive {
            return Err(refused(Verb::ModifyQp, libc::EINVAL));
        }
        let mut attr = IbvQpAttr::zeroed();
        (attr.qp_state, attr.cur_qp_state) = (to.state.number(), to.cur_state.number());
        (attr.qkey, attr.sq_psn, attr.pkey_index) = (to.qkey.0, to.sq_psn, to.pkey_index);
        (attr.port_num, attr.rnr_retry) = (to.port, to.rnr_retry);
        attr.en_sqd_async_notify = to.sqd_async_notify.into();
        // SAFETY: a live queue pair, and a struct of ours.
        let returned = unsafe { self.table().ibv_modify_qp(self.raw(), &mut attr, to.mask.bits() as c_int) };
        answered(Verb::ModifyQp, returned)
    }

    /// # Errors
    /// What the device answered.
    pub(crate) fn query(&self) -> Result<QpState, Error> {
        if !self.alive {
            return Err(refused(Verb::QueryQp, libc::EINVAL));
        }
        let (mut attr, mut init) = (IbvQpAttr::zeroed(), IbvQpInitAttr::zeroed());
        // SAFETY: a live queue pair, and structs of ours.
        let returned = unsafe { self.table().ibv_query_qp(self.raw(), &mut attr, IBV_QP_STATE, &mut init) };
        answered(Verb::QueryQp, returned)?;
        Ok(QpState::from_number(attr.qp_state))
    }

    /// # Errors
    /// What the device answered; it is then still alive.
    pub(crate) fn destroy(&mut self) -> Result<(), Error> {
        if !self.alive {
            return Err(refused(Verb::DestroyQp, libc::EINVAL));
        }
        // SAFETY: alive, so it was not destroyed yet. libefa asks the kernel first and unmaps the rings only if it agreed;
        // core touches them no more then.
        let returned = unsafe { self.table().ibv_destroy_qp(self.raw()) };
        answered(Verb::DestroyQp, returned)?;
        self.alive = false;
        Ok(())
    }

    fn table(&self) -> &'static crate::loader::Table {
        self.pd.context.table
    }

    fn raw(&self) -> *mut IbvQp {
        self.raw.as_ptr()
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if self.alive && self.destroy().is_err() {
            self.pd.context.leaks.count_queue_pair();
            // The device may still use all of it.
            mem::forget((self.pd.clone(), self.cqs.take()));
            return;
        }
        for slots in [self.send_slots, self.recv_slots] {
            // SAFETY: leaked by `slots`, and taken back once; the device let go, and core's queues over them are gone.
            drop(unsafe { Box::from_raw(slots.as_ptr()) });
        }
    }
}

fn refused(verb: Verb, errno: c_int) -> Error {
    Error::Device { verb, errno }
}

/// Inline bytes to ask for: libefa makes 128-byte entries if they would not fit into 64-byte ones, or inline writes are
/// asked for, and only then (R10).
fn asked_inline(init: &QpInit) -> u32 {
    let inline = u32::from(init.inline);
    if init.entry_size > 64 && !init.inline_write { inline.max(33) } else { inline }
}

/// A pointer that a library gave, if it is one.
pub(super) fn ring_of<T>(pointer: *mut T, verb: Verb) -> Result<NonNull<T>, Error> {
    NonNull::new(pointer).filter(|pointer| pointer.is_aligned()).ok_or(refused(verb, libc::EPROTO))
}

/// So many vacant slots, which stay where they are.
fn slots(depth: u32) -> NonNull<[Slot]> {
    NonNull::from(Box::leak((0..depth).map(|_| Slot::VACANT).collect::<Box<[Slot]>>()))
}

/// No rings yet.
fn nothing() -> Queues {
    Queues {
        qpn: Qpn(0),
        generation: 0,
        send: SendRing {
            entries: NonNull::dangling(),
            doorbell: NonNull::dangling(),
            depth: 0,
            entry_size: 0,
            max_batch: 0,
            inline: 0,
            req_id_64: false,
            slots: NonNull::dangling(),
        },
        recv: RecvRing {
            entries: NonNull::dangling(),
            doorbell: NonNull::dangling(),
            descriptors: 0,
            depth: 0,
            max_sge: 0,
            slots: NonNull::dangling(),
        },
    }
}
