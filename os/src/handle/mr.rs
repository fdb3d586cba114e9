//! Registered memory, as core counts it: an object at an address that stays.

#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::NonNull;
use std::sync::Arc;

use efa_core::flags::Access;
use efa_core::memory::{Mr, MrAttr, MrObject, RawMemory, Release};
use efa_core::{Error, LKey, RKey, Verb};

use super::{Pd, answered, made};
use crate::ffi::*;

/// A region. The object comes first: its address is the region's.
#[repr(C)]
struct Region {
    object: MrObject,
    raw: NonNull<IbvMr>,
    memory: RawMemory,
    pd: Arc<Pd>,
}

/// Local keys have 24 bits: a descriptor has no room for more (R13), and libefa leaves out the rest as well.
const LKEY_BITS: u32 = 0xFF_FFFF;

impl Pd {
    /// Registers memory, whose first byte the device sees at `iova`.
    ///
    /// # Errors
    /// What the device answered, with the memory.
    ///
    /// # Safety
    /// As for [`efa_core::Provider::reg_mr`].
    pub(crate) unsafe fn register(
        self: &Arc<Self>,
        memory: RawMemory,
        iova: u64,
        access: Access,
    ) -> Result<Mr, (RawMemory, Error)> {
        let parts = memory.parts();
        let access = if access.contains(Access::REMOTE_WRITE) { access | Access::LOCAL_WRITE } else { access };
        let base = parts.base.as_ptr().cast::<c_void>();
        // SAFETY: a live domain, and memory that stays valid and is reached by the device alone while it is registered,
        // by the caller's word.
        let raw = unsafe { self.context.table.ibv_reg_mr_iova2(self.raw(), base, parts.len, iova, access.bits()) };
        let raw = match made(Verb::RegMr, raw) {
            Ok(raw) => raw,
            Err(error) => return Err((memory, error)),
        };
        // SAFETY: just made, and nobody changes it.
        let IbvMr { lkey, rkey, .. } = *unsafe { raw.as_ref() };
        let attr = MrAttr {
            base: parts.base,
            len: parts.len,
            iova,
            lkey: LKey(lkey & LKEY_BITS),
            rkey: RKey(rkey),
            pd: self.id,
            access,
        };
        self.context.usage.registered(parts.len);
        let region = Box::new(Region { object: MrObject::new(attr, deregister), raw, memory, pd: self.clone() });
        let object = NonNull::from(Box::leak(region)).cast::<MrObject>();
        // SAFETY: just made, claimed once, and there until `deregister` was answered with yes.
        Ok(unsafe { Mr::from_object(object) })
    }
}

/// # Safety
/// `object` is of [`Pd::register`], and nobody else uses it.
unsafe fn deregister(object: NonNull<MrObject>, release: Release) -> Result<RawMemory, Error> {
    let region = object.cast::<Region>();
    // SAFETY: `register` gave the address of the region, which is there until this succeeds.
    let Region { raw, pd, .. } = unsafe { region.as_ref() };
    // SAFETY: registered, and, as this succeeds once, deregistered once.
    let returned = unsafe { pd.context.table.ibv_dereg_mr(raw.as_ptr()) };
    if let Err(error) = answered(Verb::DeregMr, returned) {
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
