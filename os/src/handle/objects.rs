//! What is alive of a device, by its numbers: for those who ask about it and do not own it.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::ptr::NonNull;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use efa_core::qp::{QpAttr, QpState};
use efa_core::{Error, LKey, PdId, Qpn, Verb};

use super::answered;
use super::qp::attr_of;
use crate::Interconnects;
use crate::QueuePairInfo;
use crate::ffi::*;
use crate::loader::Table;

/// Each is entered when it was made, and taken out before it is destroyed: what is found under the lock is alive while that
/// is held.
#[derive(Default)]
pub(crate) struct Objects {
    regions: Mutex<HashMap<u32, (PdId, NonNull<IbvMr>)>>,
    queue_pairs: Mutex<HashMap<u16, NonNull<IbvQp>>>,
}

fn lock<K: Eq + Hash, V>(map: &Mutex<HashMap<K, V>>) -> MutexGuard<'_, HashMap<K, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is no such thing (any more).
fn gone(verb: Verb) -> Error {
    Error::Device { verb, errno: libc::EINVAL }
}

impl Objects {
    pub(super) fn region_made(&self, lkey: LKey, pd: PdId, raw: NonNull<IbvMr>) {
        lock(&self.regions).insert(lkey.0, (pd, raw));
    }

    pub(super) fn region_gone(&self, lkey: LKey) {
        lock(&self.regions).remove(&lkey.0);
    }

    pub(super) fn queue_pair_made(&self, qpn: Qpn, raw: NonNull<IbvQp>) {
        lock(&self.queue_pairs).insert(qpn.0, raw);
    }

    /// Unless another has its number already, as when it was never entered.
    pub(super) fn queue_pair_gone(&self, qpn: Qpn, raw: NonNull<IbvQp>) {
        let mut map = lock(&self.queue_pairs);
        if map.get(&qpn.0) == Some(&raw) {
            map.remove(&qpn.0);
        }
    }

    /// Keeps those away who ask by number, while the owner moves or asks: the library keeps the state that it was told of last,
    /// by which its calls post, and an answer that came late would be an old one.
    pub(super) fn hold_queue_pairs(&self) -> impl Sized + '_ {
        lock(&self.queue_pairs)
    }

    /// By which interconnects the device reaches a region.
    ///
    /// # Errors
    /// [`crate::Error::NeedsNewer`], EINVAL if there is no such region, or what the device answered.
    pub(crate) fn interconnects(&self, table: &Table, pd: PdId, lkey: LKey) -> Result<Interconnects, crate::Error> {
        let regions = lock(&self.regions);
        let known = regions.get(&lkey.0).filter(|(of, _)| *of == pd);
        let (_, raw) = known.ok_or(gone(Verb::QueryMr))?;
        let mut attr = EfadvMrAttr::zeroed();
        let len = size_of::<EfadvMrAttr>() as u32;
        // SAFETY: registered while it is locked, and a struct of that length.
        answered(Verb::QueryMr, unsafe { table.efadv_query_mr(raw.as_ptr(), &mut attr, len) }?)?;
        Ok(Interconnects::of(&attr))
    }

    /// What the device says of a queue pair.
    ///
    /// # Errors
    /// EINVAL if there is none of that number, or what the device answered.
    pub(crate) fn query_queue_pair(&self, table: &Table, qpn: Qpn) -> Result<QueuePairInfo, Error> {
        let map = lock(&self.queue_pairs);
        let raw = map.get(&qpn.0).ok_or(gone(Verb::QueryQp))?;
        let (mut attr, mut init) = (IbvQpAttr::zeroed(), IbvQpInitAttr::zeroed());
        let mask = IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_SQ_PSN | IBV_QP_CAP;
        // SAFETY: alive while it is locked, and structs of ours.
        answered(Verb::QueryQp, unsafe { table.ibv_query_qp(raw.as_ptr(), &mut attr, mask, &mut init) })?;
        Ok(QueuePairInfo {
            qpn,
            state: QpState::from_number(attr.qp_state),
            qkey: efa_core::Qkey(attr.qkey),
            sq_psn: attr.sq_psn,
            sends: attr.cap.max_send_wr,
            receives: attr.cap.max_recv_wr,
            send_buffers: attr.cap.max_send_sge,
            recv_buffers: attr.cap.max_recv_sge,
            inline: attr.cap.max_inline_data,
        })
    }

    /// Moves a queue pair, and tells nobody.
    ///
    /// # Errors
    /// EINVAL if there is none of that number, or what the device answered.
    pub(crate) fn modify_queue_pair(&self, table: &Table, qpn: Qpn, to: &QpAttr) -> Result<(), Error> {
        let map = lock(&self.queue_pairs);
        let raw = map.get(&qpn.0).ok_or(gone(Verb::ModifyQp))?;
        let mut attr = attr_of(to);
        // SAFETY: alive while it is locked, and a struct of ours.
        answered(Verb::ModifyQp, unsafe { table.ibv_modify_qp(raw.as_ptr(), &mut attr, to.mask.bits() as c_int) })
    }
}
