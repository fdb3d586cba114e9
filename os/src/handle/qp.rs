//! Queue pairs, with their rings and the slots of what is in flight.

#![allow(unsafe_code)]

use core::cmp;
use core::ffi::c_int;
use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use efa_core::qp::{QpAttr, QpState, QpType};
use efa_core::ring::{AtomicWord, Slot};
use efa_core::{DataPath, Error, Limit, QpInit, Qpn, Queues, RecvRing, SendRing, Verb};

use super::cq::{MAX_ENTRIES, too_old};
use super::{Cq, Pd, answered, made};
use crate::ffi::*;
use crate::verbs::{Completions, QueuePair};

/// A queue pair. One that is dropped alive is destroyed, or leaked and counted.
pub(crate) struct Qp {
    raw: NonNull<IbvQp>,
    life: Life,
    queues: Queues,
    /// Where it is posted on by the library's calls.
    posts: Option<QueuePair>,
    send_slots: NonNull<[Slot]>,
    recv_slots: NonNull<[Slot]>,
    pd: Arc<Pd>,
    /// Its completion queues, which it keeps; taken where it is leaked.
    cqs: Option<[Arc<Cq>; 2]>,
}

/// How far it is with a queue pair's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Alive,
    /// It could not be destroyed, and an old libefa has taken it apart all the same: nothing may be done with it.
    Lost,
    Gone,
}

// SAFETY: the verbs may be called from any thread; rings and slots are this handle's alone, and slots are `Send`.
unsafe impl Send for Qp {}

impl Qp {
    /// Makes a queue pair: on its own rings, or on some that become the library's calls.
    ///
    /// # Errors
    /// What the device answered; [`Error::EntrySize`]; [`Error::BelowLimit`] with the depth that the device has at least;
    /// EPROTO if it says something impossible of the rings; EOPNOTSUPP for a second queue pair on a completion queue by
    /// the calls of a libefa that cannot tell one from the other.
    pub(crate) fn create(pd: &Arc<Pd>, send: &Arc<Cq>, recv: &Arc<Cq>, init: &QpInit) -> Result<Self, Error> {
        let ours = Arc::ptr_eq(&pd.context, &send.context) && Arc::ptr_eq(&pd.context, &recv.context);
        if !ours || (init.unsolicited && !recv.unsolicited) {
            return Err(refused(Verb::CreateQp, libc::EINVAL));
        }
        let claimed = Self::claim(pd, send, recv)?;
        let made = Self::create_on(pd, send, recv, init);
        if made.is_err() {
            claimed.iter().for_each(|cq| cq.served.store(false, Ordering::Release));
        }
        made
    }

    /// Where libefa does not tell the completions of a queue pair from those of one that had its number before, which it
    /// does from EFA_1.5 (rdma-core 63) on, its calls may take what is unread for the next one's, and give back what that
    /// has in flight (R21). There a completion queue serves one queue pair, with which it ends.
    fn claim<'c>(pd: &Pd, send: &'c Arc<Cq>, recv: &'c Arc<Cq>) -> Result<Vec<&'c Cq>, Error> {
        let context = &pd.context;
        if context.path == DataPath::Direct || context.table.has("efadv_get_max_sq_depth") {
            return Ok(Vec::new());
        }
        let mut claimed = vec![&**send];
        if !Arc::ptr_eq(send, recv) {
            claimed.push(recv);
        }
        for (nth, cq) in claimed.iter().enumerate() {
            if cq.served.swap(true, Ordering::AcqRel) {
                claimed[..nth].iter().for_each(|cq| cq.served.store(false, Ordering::Release));
                return Err(refused(Verb::CreateQp, libc::EOPNOTSUPP));
            }
        }
        Ok(claimed)
    }

    fn create_on(pd: &Arc<Pd>, send: &Arc<Cq>, recv: &Arc<Cq>, init: &QpInit) -> Result<Self, Error> {
        let cap = IbvQpCap {
            max_send_wr: init.send_depth,
            max_recv_wr: init.recv_depth,
            max_send_sge: init.send_sge.into(),
            max_recv_sge: init.recv_sge.into(),
            max_inline_data: asked_inline(init),
        };
        let (raw, cap) = match init.qp_type {
            QpType::Srd => Self::create_srd(pd, send, recv, init, cap)?,
            QpType::Ud => Self::create_ud(pd, send, recv, init, cap)?,
        };
        // SAFETY: just made, and nobody changes its number.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        pd.context.usage.queue_pair_made();
        // From here on it is destroyed when it is dropped, whatever is found out about it.
        let mut qp = Self {
            raw,
            life: Life::Alive,
            queues: nothing(),
            posts: None,
            send_slots: slots(0),
            recv_slots: slots(0),
            pd: pd.clone(),
            cqs: Some([send.clone(), recv.clone()]),
        };
        let qpn = u16::try_from(number).map_err(|_| refused(Verb::CreateQp, libc::EPROTO))?;
        qp.queues = match pd.context.path {
            DataPath::Direct => qp.query_rings(init, cap)?,
            _ => qp.make_rings(init, cap, qpn)?,
        };
        qp.queues.qpn = Qpn(qpn);
        pd.context.served.made(qp.served());
        pd.context.objects.queue_pair_made(Qpn(qpn), raw);
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
        efa.sl = init.service_level;
        let len = size_of::<EfadvQpInitAttr>() as u32;
        let context = &pd.context;
        // SAFETY: an open device, live queues and a live domain of it, and structs of ours, the second of that length.
        let raw = unsafe { context.table.efadv_create_qp_ex(context.raw(), &mut attr, &mut efa, len) };
        Ok((made(Verb::CreateQp, raw)?, attr.cap))
    }

    fn create_ud(
        pd: &Pd,
        send: &Cq,
        recv: &Cq,
        init: &QpInit,
        cap: IbvQpCap,
    ) -> Result<(NonNull<IbvQp>, IbvQpCap), Error> {
        if init.service_level != 0 {
            return Err(refused(Verb::CreateQp, libc::EOPNOTSUPP));
        }
        let mut attr = IbvQpInitAttrEx::zeroed();
        (attr.send_cq, attr.recv_cq) = (send.raw(), recv.raw());
        (attr.cap, attr.qp_type, attr.sq_sig_all) = (cap, IBV_QPT_UD, 1);
        (attr.comp_mask, attr.pd) = (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, pd.raw());
        attr.send_ops_flags = init.ops.bits().into();
        // SAFETY: a live domain and live queues of that device.
        let raw = unsafe { pd.context.create_qp_ex(&mut attr) };
        Ok((raw.map_err(|errno| refused(Verb::CreateQp, errno))?, attr.cap))
    }

    /// Rings in memory, as deep as was asked for: the library's own may be deeper.
    fn make_rings(&mut self, init: &QpInit, cap: IbvQpCap, qpn: u16) -> Result<Queues, Error> {
        let impossible = refused(Verb::CreateQp, libc::EPROTO);
        if init.entry_size != 64 {
            return Err(Error::EntrySize { asked: init.entry_size, given: 64 });
        }
        let sge = u32::from(init.recv_sge.max(1));
        let depth = init.send_depth.max(1).checked_next_power_of_two();
        let descriptors = init.recv_depth.max(1).saturating_mul(sge).checked_next_power_of_two();
        let (Some(depth), Some(descriptors)) = (depth, descriptors) else { return Err(impossible) };
        let has_room = cap.max_send_wr >= depth && cap.max_recv_wr >= descriptors / sge;
        if !has_room || depth > MAX_ENTRIES || descriptors > MAX_ENTRIES || !sge.is_power_of_two() {
            return Err(impossible);
        }
        // SAFETY: a live queue pair, made with operations.
        let extended = unsafe { self.table().ibv_qp_to_qp_ex(self.raw()) }.map_err(|_| too_old(Verb::CreateQp))?;
        let extended = NonNull::new(extended).ok_or(impossible)?;
        let post_recv = self.pd.context.post_recv().ok_or(impossible)?;
        // SAFETY: the same queue pair, and its context's call; it is announced to only while it is alive.
        let posts = unsafe { QueuePair::new(self.raw, extended, post_recv, qpn, depth, descriptors) };
        let ((send, send_doorbell), (recv, recv_doorbell)) = (posts.send_ring(), posts.recv_ring());
        self.posts = Some(posts);
        Ok(Queues {
            qpn: Qpn(qpn),
            generation: 0,
            send: SendRing {
                entries: send,
                doorbell: send_doorbell,
                depth,
                entry_size: 64,
                max_batch: depth as u16,
                inline: cap.max_inline_data.min(init.inline.into()).min(32) as u16,
                req_id_64: false,
                slots: NonNull::dangling(),
            },
            recv: RecvRing {
                entries: recv,
                doorbell: recv_doorbell,
                descriptors,
                depth: descriptors / sge,
                max_sge: sge as u8,
                slots: NonNull::dangling(),
            },
        })
    }

    /// Posts what core announced, where that takes calls.
    pub(crate) fn announced(&self) {
        let (Some(posts), Some([send, recv])) = (&self.posts, &self.cqs) else { return };
        let (Some(send), Some(recv)) = (&send.completions, &recv.completions) else { return };
        if self.life != Life::Alive {
            return;
        }
        let handles = self.pd.numbered();
        // SAFETY: it is alive; address handles are while they are locked.
        unsafe { posts.announced(|ahn| handles.get(&ahn).copied(), send, recv) };
    }

    /// Where the rings are, as promised to core or not at all.
    fn query_rings(&self, init: &QpInit, cap: IbvQpCap) -> Result<Queues, Error> {
        let (mut send, mut recv) = (EfadvWqAttr::zeroed(), EfadvWqAttr::zeroed());
        let len = size_of::<EfadvWqAttr>() as u32;
        // SAFETY: a live queue pair, and structs of that length.
        let returned = unsafe { self.table().efadv_query_qp_wqs(self.raw(), &mut send, &mut recv, len) };
        answered(Verb::CreateQp, returned.map_err(|_| too_old(Verb::CreateQp))?)?;
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
        if self.life != Life::Alive {
            return Err(refused(Verb::ModifyQp, libc::EINVAL));
        }
        let mut attr = attr_of(to);
        let held = self.pd.context.objects.hold_queue_pairs();
        // SAFETY: a live queue pair, and a struct of ours.
        let returned = unsafe { self.table().ibv_modify_qp(self.raw(), &mut attr, to.mask.bits() as c_int) };
        answered(Verb::ModifyQp, returned)?;
        drop(held);
        if let Some(posts) = self.posts.as_ref().filter(|_| to.state == QpState::Reset) {
            posts.reset();
        }
        Ok(())
    }

    /// # Errors
    /// What the device answered.
    pub(crate) fn query(&self) -> Result<QpState, Error> {
        if self.life != Life::Alive {
            return Err(refused(Verb::QueryQp, libc::EINVAL));
        }
        let (mut attr, mut init) = (IbvQpAttr::zeroed(), IbvQpInitAttr::zeroed());
        let _held = self.pd.context.objects.hold_queue_pairs();
        // SAFETY: a live queue pair, and structs of ours.
        let returned = unsafe { self.table().ibv_query_qp(self.raw(), &mut attr, IBV_QP_STATE, &mut init) };
        answered(Verb::QueryQp, returned)?;
        Ok(QpState::from_number(attr.qp_state))
    }

    /// # Errors
    /// What the device answered; it is then still alive.
    pub(crate) fn destroy(&mut self) -> Result<(), Error> {
        match self.life {
            Life::Alive => {}
            Life::Lost => return Err(refused(Verb::DestroyQp, libc::EIO)),
            Life::Gone => return Err(refused(Verb::DestroyQp, libc::EINVAL)),
        }
        let served = self.served();
        // Before the device gives its number to another.
        self.pd.context.served.gone(served);
        let objects = &self.pd.context.objects;
        objects.queue_pair_gone(self.queues.qpn, self.raw);
        // Polls find queue pairs by their numbers, until this is answered.
        let held = hold_polls(&self.cqs);
        // SAFETY: alive, so it was not destroyed yet. A libefa that tells where rings are asks the kernel first and unmaps them only
        // if it agreed; core touches them no more then.
        let returned = unsafe { self.table().ibv_destroy_qp(self.raw()) };
        let answer = answered(Verb::DestroyQp, returned);
        drop(held);
        match answer {
            Ok(()) => self.pd.context.usage.queue_pair_gone(),
            Err(_) => self.pd.context.served.made(served),
        }
        self.life = match answer {
            Ok(()) => Life::Gone,
            Err(_) if self.posts.is_some() => Life::Lost,
            Err(_) => {
                objects.queue_pair_made(self.queues.qpn, self.raw);
                Life::Alive
            }
        };
        answer
    }

    /// Its number, and where its completions arrive.
    fn served(&self) -> (Qpn, [usize; 2]) {
        let cqs = self.cqs.as_ref().map_or([0; 2], |cqs| cqs.each_ref().map(|cq| cq.raw().addr()));
        (self.queues.qpn, cqs)
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
        if self.life != Life::Gone && self.destroy().is_err() {
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

/// Keeps everybody from polling these completion queues by calls.
fn hold_polls(cqs: &Option<[Arc<Cq>; 2]>) -> [Option<impl Sized + '_>; 2] {
    let Some([send, recv]) = cqs else { return [None, None] };
    let (first, second) = match Arc::as_ptr(send).addr().cmp(&Arc::as_ptr(recv).addr()) {
        cmp::Ordering::Less => (send, Some(recv)),
        cmp::Ordering::Equal => (send, None),
        cmp::Ordering::Greater => (recv, Some(send)),
    };
    // In one order, whoever holds them.
    let first = first.completions.as_ref().map(Completions::hold);
    [first, second.and_then(|cq| cq.completions.as_ref()).map(Completions::hold)]
}

/// The same attributes, as C has them.
pub(super) fn attr_of(to: &QpAttr) -> IbvQpAttr {
    let mut attr = IbvQpAttr::zeroed();
    (attr.qp_state, attr.cur_qp_state) = (to.state.number(), to.cur_state.number());
    (attr.qkey, attr.sq_psn, attr.pkey_index) = (to.qkey.0, to.sq_psn, to.pkey_index);
    (attr.port_num, attr.rnr_retry) = (to.port, to.rnr_retry);
    attr.en_sqd_async_notify = to.sqd_async_notify.into();
    attr
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
