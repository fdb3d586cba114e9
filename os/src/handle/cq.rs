//! Completion queues, with their rings.

#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::Arc;

use efa_core::ring::AtomicWord;
use efa_core::{CqInit, CqRing, DataPath, Error, Verb};

use super::channel::{Bell, Channel};
use super::{Context, answered, made};
use crate::ffi::*;
use crate::handle::qp::ring_of;
use crate::verbs::{self, Completions};

/// A completion queue; destroyed when its last handle is dropped, which queue pairs have too.
pub(crate) struct Cq {
    raw: NonNull<IbvCq>,
    pub(crate) ring: CqRing,
    pub(crate) unsolicited: bool,
    /// Where one queue pair may be made on it and no other: the one was.
    pub(super) served: AtomicBool,
    /// Where the ring is filled by the library's calls.
    pub(crate) completions: Option<Completions>,
    /// What raises its events, if it is on a channel.
    bell: Option<Bell>,
    pub(super) context: Arc<Context>,
}

// SAFETY: the verbs may be called from any thread; the ring is named here, and read by its one consumer.
unsafe impl Send for Cq {}
// SAFETY: as above; shared, it gives away numbers and pointers.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a completion queue: over its own ring, or over one that the library's calls fill; on a channel, whose events
    /// come by a vector.
    ///
    /// # Errors
    /// What the device answered; EPROTO if it says something impossible of the ring; EOPNOTSUPP for a channel where
    /// libefa does not tell the doorbell that core's ring would need.
    pub(crate) fn create(
        context: &Arc<Context>,
        init: &CqInit,
        channel: Option<(&Arc<Channel>, u32)>,
    ) -> Result<Arc<Self>, Error> {
        // Polled by calls, it is so under a lock of ours, and a second one of the library's does nothing but cost (R39): but
        // arming is not. It can be left out from rdma-core 60 on; 59 refuses to. A thread domain, which libefa looks at from 59
        // on, would spare it those of the queue pairs too: but whoever announces and whoever polls have two handles here, and may
        // be two threads, so that locks of ours would take their place.
        if channel.is_none() && context.path == DataPath::Verbs && context.table.has("efadv_query_cq") {
            match Self::create_as(context, init, channel, IBV_CREATE_CQ_ATTR_SINGLE_THREADED) {
                Err(Error::Device { errno: libc::EOPNOTSUPP, .. }) => {}
                made => return made,
            }
        }
        Self::create_as(context, init, channel, 0)
    }

    fn create_as(
        context: &Arc<Context>,
        init: &CqInit,
        channel: Option<(&Arc<Channel>, u32)>,
        flags: u32,
    ) -> Result<Arc<Self>, Error> {
        let table = context.table;
        let (mut attr, mut efa) = (IbvCqInitAttrEx::zeroed(), EfadvCqInitAttr::zeroed());
        attr.cqe = init.entries;
        (attr.comp_mask, attr.flags) = (if flags == 0 { 0 } else { IBV_CQ_INIT_ATTR_MASK_FLAGS }, flags);
        efa.wc_flags |= if init.sgid { EFADV_WC_EX_WITH_SGID } else { 0 };
        attr.wc_flags = if context.path == DataPath::Verbs { verbs::FIELDS } else { 0 };
        efa.wc_flags |= if init.unsolicited { EFADV_WC_EX_WITH_IS_UNSOLICITED } else { 0 };
        if let Some((channel, vector)) = channel {
            (attr.channel, attr.comp_vector) = (channel.raw(), vector);
        }
        let len = size_of::<EfadvCqInitAttr>() as u32;
        // SAFETY: an open device, and structs of ours, of which the second has that length at least.
        let made_ex = unsafe { table.efadv_create_cq(context.raw(), &mut attr, &mut efa, len) };
        let extended = made(Verb::CreateCq, made_ex.map_err(|_| too_old(Verb::CreateCq))?)?;
        // From here on it is destroyed when it is dropped.
        let mut cq = Self {
            raw: extended.cast(),
            ring: CqRing { base: NonNull::dangling(), entries: 0, entry_size: 0 },
            unsolicited: init.unsolicited,
            served: AtomicBool::new(false),
            completions: None,
            bell: None,
            context: context.clone(),
        };
        if let Some((channel, _)) = channel {
            // SAFETY: just made, and not armed; kept for as long as it is, by its drop.
            cq.bell = Some(unsafe { Bell::attach(cq.raw, channel) });
        }
        if context.path == DataPath::Direct {
            cq.ring = cq.query(init)?;
        } else {
            let completions = Self::over(context, extended, init)?;
            cq.ring = completions.layout();
            cq.completions = Some(completions);
        }
        Ok(Arc::new(cq))
    }

    /// A ring that is filled by calls.
    fn over(context: &Context, extended: NonNull<IbvCqEx>, init: &CqInit) -> Result<Completions, Error> {
        let impossible = Error::Device { verb: Verb::CreateCq, errno: libc::EPROTO };
        if !(1..=MAX_ENTRIES).contains(&init.entries) {
            return Err(Error::Device { verb: Verb::CreateCq, errno: libc::EINVAL });
        }
        let efa = if init.sgid {
            // SAFETY: a live queue of libefa's.
            let efa = unsafe { context.table.efadv_cq_from_ibv_cq_ex(extended.as_ptr()) };
            Some(NonNull::new(efa.map_err(|_| too_old(Verb::CreateCq))?).ok_or(impossible)?)
        } else {
            None
        };
        // SAFETY: made with these fields, and with the GID's if it was asked for; alive while its handle, which has the ring.
        unsafe { Completions::new(extended, efa, init.entries) }.ok_or(impossible)
    }

    /// Where the ring is, as promised to core or not at all.
    fn query(&mut self, init: &CqInit) -> Result<CqRing, Error> {
        let mut attr = EfadvCqAttr::zeroed();
        let len = size_of::<EfadvCqAttr>() as u32;
        // SAFETY: a live queue, and a struct of that length.
        let returned = unsafe { self.context.table.efadv_query_cq(self.raw(), &mut attr, len) };
        answered(Verb::CreateCq, returned.map_err(|_| too_old(Verb::CreateCq))?)?;
        if let Some(bell) = &mut self.bell {
            let untold = Error::Device { verb: Verb::CreateCq, errno: libc::EOPNOTSUPP };
            let doorbell = NonNull::new(attr.doorbell).filter(|doorbell| doorbell.is_aligned()).ok_or(untold)?;
            // SAFETY: the queue's own, mapped until it is destroyed.
            unsafe { bell.ring_at(doorbell.cast::<AtomicU32>()) };
        }
        let base = ring_of::<AtomicWord>(attr.buffer.cast(), Verb::CreateCq)?;
        let entries = attr.num_entries;
        let possible = entries.is_power_of_two() && (init.entries..=MAX_ENTRIES).contains(&entries);
        match u8::try_from(attr.entry_size) {
            // Without room for the GID where it was asked for, its bytes would be the next entry's.
            Ok(entry_size @ (16 | 32)) if possible && (entry_size == 32 || !init.sgid) => {
                Ok(CqRing { base, entries, entry_size })
            }
            _ => Err(Error::Device { verb: Verb::CreateCq, errno: libc::EPROTO }),
        }
    }

    /// So many entries of its ring were consumed.
    #[inline]
    pub(crate) fn consumed(&self, consumed: u32) {
        if let Some(bell) = &self.bell {
            bell.consumed(consumed);
        }
    }

    /// Asks for an event on its channel, `consumed` entries of its ring having been read so far.
    ///
    /// # Errors
    /// EINVAL without a channel, or what the library answered.
    pub(crate) fn arm(&self, consumed: u32) -> Result<(), Error> {
        let bell = self.bell.as_ref().ok_or(Error::Device { verb: Verb::Arm, errno: libc::EINVAL })?;
        bell.arm(self, consumed)
    }

    pub(super) fn raw(&self) -> *mut IbvCq {
        self.raw.as_ptr()
    }
}

/// Entries that a ring may have for core.
pub(super) const MAX_ENTRIES: u32 = 32768;

/// The library has no such call: of those that opening a device demands, nobody sees this.
pub(super) fn too_old(verb: Verb) -> Error {
    Error::Device { verb, errno: libc::ENOSYS }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made, and destroyed once; queue pairs on it keep it.
        let returned = unsafe { self.context.table.ibv_destroy_cq(self.raw()) };
        if answered(Verb::CreateCq, returned).is_err() {
            self.context.leaks.count_object();
            // It goes on raising events, and names what counts them.
            core::mem::forget(self.bell.take());
        }
    }
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn r39_polled_under_our_lock_a_queue_needs_none_of_the_librarys_and_a_poll_costs_less() {
        let Ok(devices) = crate::devices() else { return println!("skipped: no device") };
        let context = devices[0].reopened(DataPath::Verbs);
        let init = CqInit { entries: 64, sgid: false, unsolicited: false };
        let queue = |flags| Cq::create_as(&context, &init, None, flags);
        let (Ok(locked), Ok(single)) = (queue(0), queue(IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) else {
            // 44 leaves the flags of a queue that it makes unread or refuses them: there is nothing to leave out.
            return println!("skipped: this libefa has no queues without a lock");
        };
        let best = |cq: &Cq| {
            let times = (0..50).map(|_| {
                let start = Instant::now();
                (0..10_000).for_each(|_| cq.completions.as_ref().unwrap().collect());
                start.elapsed()
            });
            times.min().unwrap().as_nanos() as f64 / 10_000.0
        };
        let (with, without) = (best(&locked), best(&single));
        println!(
            "figure: an empty poll of the library's, under our lock: {with:.1} ns with its lock, {without:.1} without"
        );
        println!("figure: without it a poll takes {:.2} times as long", without / with);
        if context.table.has("efadv_query_cq") {
            assert!(without < with * 1.2, "{without} {with}");
        }
    }
}
