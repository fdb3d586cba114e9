//! An open device, and a protection domain of it.

#![allow(unsafe_code)]

use core::ffi::c_int;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use efa_core::{DataPath, Error, Gid, Leaks, PdId, Registrations, Verb};

use super::ah::Handles;
use super::events::Served;
use super::objects::Objects;
use super::{answered, made};
use crate::error::{answer, errno};
use crate::explain::Usage;
use crate::ffi::*;
use crate::loader::Table;

/// An open device; closed when whatever was made of it is gone.
pub(crate) struct Context {
    raw: NonNull<IbvContext>,
    pub(crate) table: &'static Table,
    pub(crate) leaks: Leaks,
    /// What is in use of it.
    pub(crate) usage: Usage,
    /// Which completion queues its queue pairs have.
    pub(super) served: Served,
    /// What is alive of it, by its numbers.
    pub(crate) objects: Objects,
    /// How its queue pairs are posted on.
    pub(crate) path: DataPath,
    /// Bytes of the largest page that it has (R36).
    pub(crate) largest_page: u64,
}

// SAFETY: the verbs may be called from any thread, with any open device.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens a device.
    ///
    /// # Errors
    /// The errno.
    ///
    /// # Safety
    /// `device` is of a list of the table's that was not freed yet.
    pub(crate) unsafe fn open(table: &'static Table, device: NonNull<IbvDevice>) -> Result<Self, c_int> {
        // SAFETY: by the caller's word.
        let raw = unsafe { table.ibv_open_device(device.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(errno)?;
        let (usage, served, objects) = (Usage::default(), Served::default(), Objects::default());
        let (path, largest_page) = (DataPath::Direct, u64::MAX);
        Ok(Self { raw, table, leaks: Leaks::new(), usage, served, objects, path, largest_page })
    }

    /// The open device, for calls to it.
    pub(super) fn raw(&self) -> *mut IbvContext {
        self.raw.as_ptr()
    }

    /// What EFA's provider says of the device; it refuses a device that is no EFA.
    ///
    /// # Errors
    /// The errno: EOPNOTSUPP for another device.
    pub(crate) fn query_efa(&self) -> Result<EfadvDeviceAttr, c_int> {
        let mut attr = EfadvDeviceAttr::zeroed();
        let len = size_of::<EfadvDeviceAttr>() as u32;
        // SAFETY: an open device, and a struct of that length.
        answer(unsafe { self.table.efadv_query_device(self.raw(), &mut attr, len) })?;
        Ok(attr)
    }

    /// # Errors
    /// The errno.
    pub(crate) fn query_device(&self) -> Result<IbvDeviceAttr, c_int> {
        let mut attr = IbvDeviceAttr::zeroed();
        // SAFETY: an open device, and a struct of ours.
        answer(unsafe { self.table.ibv_query_device(self.raw(), &mut attr) })?;
        Ok(attr)
    }

    /// Port 1, which is EFA's only one.
    ///
    /// # Errors
    /// The errno.
    pub(crate) fn query_port(&self) -> Result<IbvPortAttr, c_int> {
        let mut attr = CompatIbvPortAttr::zeroed();
        // SAFETY: an open device, and a struct of ours, which is longer than what is written.
        answer(unsafe { self.table.ibv_query_port(self.raw(), 1, &mut attr) })?;
        Ok(attr.0)
    }

    /// The speed of port 1 in units of 100 Mb/s, where this library asks for it.
    pub(crate) fn query_port_speed(&self) -> Option<u64> {
        let mut speed = 0;
        // SAFETY: an open device, and a number of ours.
        let returned = unsafe { self.table.ibv_query_port_speed(self.raw(), 1, &mut speed) };
        returned.is_ok_and(|returned| answer(returned).is_ok()).then_some(speed).filter(|speed| *speed > 0)
    }

    /// Whether huge pages stay where they are if this process forks.
    pub(crate) fn huge_pages_stay(&self) -> bool {
        crate::fork::asked(self.table).is_ok_and(crate::Fork::keeps_huge_pages)
    }

    /// The device's address: the first of port 1, which is EFA's only one.
    ///
    /// # Errors
    /// The errno.
    pub(crate) fn query_gid(&self) -> Result<Gid, c_int> {
        let mut gid = IbvGid::zeroed();
        // SAFETY: an open device, and a struct of ours.
        answer(unsafe { self.table.ibv_query_gid(self.raw(), 1, 0, &mut gid) })?;
        Ok(Gid(gid.raw.0))
    }

    /// The most 64-byte entries of a send queue, where this libefa can tell.
    pub(crate) fn max_send_depth(&self) -> Option<u32> {
        let mut attr = EfadvSqDepthAttr::zeroed();
        (attr.max_send_sge, attr.max_rdma_sge) = (1, 1);
        let len = size_of::<EfadvSqDepthAttr>() as u32;
        // SAFETY: an open device, and a struct of that length.
        let depth = unsafe { self.table.efadv_get_max_sq_depth(self.raw(), &mut attr, len) };
        depth.ok().and_then(|depth| u32::try_from(depth).ok()).filter(|depth| *depth > 0)
    }
}

impl Context {
    /// Makes a queue pair with operations, of a type that is not libefa's own: what the header calls inline.
    ///
    /// # Errors
    /// The errno.
    ///
    /// # Safety
    /// What `attr` names is of this device, and alive.
    pub(super) unsafe fn create_qp_ex(&self, attr: &mut IbvQpInitAttrEx) -> Result<NonNull<IbvQp>, c_int> {
        // SAFETY: an open device's own field, which never changes.
        let abi = unsafe { (*self.raw()).abi_compat };
        if abi.addr() != usize::MAX {
            return Err(libc::EOPNOTSUPP);
        }
        let tail = self.raw().map_addr(|addr| addr - core::mem::offset_of!(VerbsContextTail, context));
        let tail = tail.cast::<VerbsContextTail>();
        // SAFETY: by that mark the context is the last member of a larger struct, before which its size stands.
        if unsafe { (*tail).sz } < size_of::<VerbsContextTail>() {
            return Err(libc::EOPNOTSUPP);
        }
        // SAFETY: by its size the struct has this member, which never changes.
        let create = unsafe { (*tail).create_qp_ex }.ok_or(libc::EOPNOTSUPP)?;
        // SAFETY: the library's own call, with an open device; by the caller's word.
        NonNull::new(unsafe { create(self.raw(), attr) }).ok_or_else(errno)
    }

    /// How many completion vectors the device has.
    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: an open device's own field, which never changes.
        u32::try_from(unsafe { (*self.raw()).num_comp_vectors }).unwrap_or(0)
    }

    /// Arms a completion queue that the library polls: what the header calls inline.
    ///
    /// # Errors
    /// What the library answered.
    ///
    /// # Safety
    /// A live completion queue of this device, made on a channel.
    pub(super) unsafe fn request_notification(&self, cq: *mut IbvCq) -> Result<(), Error> {
        /// Of all completions: EFA has no notification of solicited ones alone (R30).
        const OF_ALL: c_int = 0;
        // SAFETY: an open device's own field, which never changes.
        let call = unsafe { (*self.raw()).ops.req_notify_cq };
        let call = call.ok_or(Error::Device { verb: Verb::Arm, errno: libc::EOPNOTSUPP })?;
        // SAFETY: by the caller's word.
        answered(Verb::Arm, unsafe { call(cq, OF_ALL) })
    }

    /// The call that posts receives.
    pub(super) fn post_recv(&self) -> Option<PostRecv> {
        // SAFETY: an open device's own field, which never changes.
        unsafe { (*self.raw()).ops.post_recv }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // What is left of it, objects that could not be destroyed, the kernel ends with it.
        // SAFETY: open, and closed once; all that was made of it keeps this.
        unsafe { self.table.ibv_close_device(self.raw()) };
    }
}

/// A protection domain; deallocated when whatever was made in it is gone.
pub(crate) struct Pd {
    raw: NonNull<IbvPd>,
    pub(crate) context: Arc<Context>,
    pub(crate) id: PdId,
    /// The address handles in it.
    pub(super) ahs: Handles,
    /// Regions that were registered, their bytes, and the nanoseconds that it took.
    pub(super) cost: [AtomicU64; 3],
}

// SAFETY: the verbs may be called from any thread, with any domain.
unsafe impl Send for Pd {}
// SAFETY: as above; the map is behind a lock.
unsafe impl Sync for Pd {}

impl Pd {
    /// # Errors
    /// What the device answered.
    pub(crate) fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        let id = PdId::unique()?;
        // SAFETY: an open device.
        let raw = made(Verb::AllocPd, unsafe { context.table.ibv_alloc_pd(context.raw()) })?;
        Ok(Arc::new(Self { raw, context: context.clone(), id, ahs: Handles::default(), cost: Default::default() }))
    }

    pub(super) fn raw(&self) -> *mut IbvPd {
        self.raw.as_ptr()
    }

    /// What registration cost so far.
    pub(crate) fn registrations(&self) -> Registrations {
        let [regions, bytes, time] = self.cost.each_ref().map(|count| count.load(Ordering::Relaxed));
        Registrations { regions, bytes, nanoseconds: Some(time) }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated, and deallocated once; all that was made in it keeps this.
        let returned = unsafe { self.context.table.ibv_dealloc_pd(self.raw()) };
        if answered(Verb::AllocPd, returned).is_err() {
            self.context.leaks.count_object();
        }
    }
}
