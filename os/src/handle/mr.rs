//! Registered memory, as core counts it: an object at an address that stays.

#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Instant;

use efa_core::flags::Access;
use efa_core::memory::{MemoryKind, Mr, MrAttr, MrObject, RawMemory, Release};
use efa_core::{Error, LKey, Limit, MrInit, RKey, Verb};

use super::cq::too_old;
use super::{Pd, answered, made};
use crate::explain::RefusedRegion;
use crate::ffi::*;
use crate::memory::page_size;

/// A region. The object comes first: its address is the region's.
#[repr(C)]
struct Region {
    object: MrObject,
    raw: NonNull<IbvMr>,
    lkey: LKey,
    memory: RawMemory,
    pd: Arc<Pd>,
}

/// Local keys have 24 bits: a descriptor has no room for more (R13), and libefa leaves out the rest as well.
const LKEY_BITS: u32 = 0xFF_FFFF;

/// Pages, of whatever size the kernel finds, of one region that peers may write (R36).
pub(crate) const WRITABLE_PAGES: u64 = 1 << 20;

impl Pd {
    /// Registers memory.
    ///
    /// # Errors
    /// What speaks against it, or what the device answered, with the memory.
    ///
    /// # Safety
    /// As for [`efa_core::Provider::reg_mr`].
    pub(crate) unsafe fn register(
        self: &Arc<Self>,
        memory: RawMemory,
        init: &MrInit,
    ) -> Result<Mr, (RawMemory, Error)> {
        let writes = init.access.contains(Access::REMOTE_WRITE);
        let access = if writes { init.access | Access::LOCAL_WRITE } else { init.access };
        let start = Instant::now();
        // SAFETY: by the caller's word.
        let registered =
            self.check(&memory, init).and_then(|iova| Ok((iova, unsafe { self.ask(&memory, iova, access) }?)));
        let (iova, raw) = match registered {
            Ok(registered) => registered,
            Err(error) => {
                RefusedRegion::note(&self.context.usage, &memory, access, error);
                return Err((memory, error));
            }
        };
        let parts = memory.parts();
        // SAFETY: just made, and nobody changes it.
        let IbvMr { lkey, rkey, .. } = *unsafe { raw.as_ref() };
        let (lkey, rkey) = (LKey(lkey & LKEY_BITS), RKey(rkey));
        let attr = MrAttr { base: parts.base, len: parts.len, iova, lkey, rkey, pd: self.id, access };
        self.context.usage.registered(parts.len);
        let time = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for (count, more) in self.cost.iter().zip([1, parts.len as u64, time]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
        self.context.objects.region_made(lkey, self.id, raw);
        let region = Box::new(Region { object: MrObject::new(attr, deregister), raw, lkey, memory, pd: self.clone() });
        let object = NonNull::from(Box::leak(region)).cast::<MrObject>();
        // SAFETY: just made, claimed once, and there until `deregister` was answered with yes.
        Ok(unsafe { Mr::from_object(object) })
    }

    /// Where the device will see memory, if nothing is known that speaks against it.
    fn check(&self, memory: &RawMemory, init: &MrInit) -> Result<u64, Error> {
        let iova = init.place(memory, page_size())?;
        let page = match memory.kind() {
            MemoryKind::HugePages { never_forks: false, .. } if !self.context.huge_pages_stay() => {
                return Err(Error::HugePagesAndFork);
            }
            MemoryKind::HugePages { bytes, .. } => bytes as u64,
            // What lies together in memory may make pages of any size that the device has.
            _ => self.context.largest_page,
        };
        check_pages(memory.parts().len as u64, page, init.access)?;
        Ok(iova)
    }

    /// # Safety
    /// As for [`efa_core::Provider::reg_mr`].
    unsafe fn ask(&self, memory: &RawMemory, iova: u64, access: Access) -> Result<NonNull<IbvMr>, Error> {
        let (table, parts) = (self.context.table, memory.parts());
        let raw = if let MemoryKind::File(file) = memory.kind() {
            let (access, fd) = (access.bits() as c_int, file.fd);
            // SAFETY: a live domain, and a file that is open and names that memory, by the caller's word.
            let raw = unsafe { table.ibv_reg_dmabuf_mr(self.raw(), file.offset, parts.len, iova, fd, access) };
            raw.map_err(|_| too_old(Verb::RegMr))?
        } else {
            let base = parts.base.as_ptr().cast::<c_void>();
            // SAFETY: a live domain, and memory that stays valid and is reached by the device alone while it is registered,
            // by the caller's word.
            unsafe { table.ibv_reg_mr_iova2(self.raw(), base, parts.len, iova, access.bits()) }
        };
        made(Verb::RegMr, raw)
    }
}

/// Whether a region is too large whatever pages the kernel finds for it: none is larger than `page`.
fn check_pages(len: u64, page: u64, access: Access) -> Result<(), Error> {
    let (asked, limit) = (len.div_ceil(page), WRITABLE_PAGES);
    if access.contains(Access::REMOTE_WRITE) && asked > limit {
        return Err(Error::AboveLimit { what: Limit::WritablePages, asked, limit });
    }
    Ok(())
}

/// # Safety
/// `object` is of [`Pd::register`], and nobody else uses it.
unsafe fn deregister(object: NonNull<MrObject>, release: Release) -> Result<RawMemory, Error> {
    let region = object.cast::<Region>();
    // SAFETY: `register` gave the address of the region, which is there until this succeeds.
    let Region { raw, lkey, pd, .. } = unsafe { region.as_ref() };
    pd.context.objects.region_gone(*lkey);
    // SAFETY: registered, and, as this succeeds once, deregistered once.
    let returned = unsafe { pd.context.table.ibv_dereg_mr(raw.as_ptr()) };
    if let Err(error) = answered(Verb::DeregMr, returned) {
        pd.context.objects.region_made(*lkey, pd.id, *raw);
        if release == Release::Dropped {
            pd.context.leaks.count_region();
        }
        return Err(error);
    }
    // SAFETY: leaked by `register`, and taken back once; nobody uses it any more.
    let region = unsafe { Box::from_raw(region.as_ptr()) };
    let Region { memory, pd, .. } = *region;
    pd.context.usage.deregistered(memory.parts().len);
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r36_a_region_that_peers_write_is_refused_when_no_page_is_large_enough_for_it_and_a_local_one_is_not() {
        let most = 4096 * WRITABLE_PAGES;
        assert_eq!(check_pages(most, 4096, Access::REMOTE_WRITE), Ok(()));
        assert_eq!(check_pages(most + 1, 4096, Access::REMOTE_READ | Access::LOCAL_WRITE), Ok(()));
        assert_eq!(check_pages(u64::MAX, u64::MAX, Access::REMOTE_WRITE), Ok(()));
        let error = check_pages(most + 1, 4096, Access::REMOTE_WRITE).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("1048577") && text.contains("1048576") && text.contains("larger pages"), "{text}");
        assert_eq!(check_pages(most + 1, 2 << 20, Access::REMOTE_WRITE), Ok(()));
    }
}
