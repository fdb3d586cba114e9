//! Address handles: one for each pair of domain and GID, counted by core (R28).

#![allow(unsafe_code)]

use core::ptr::NonNull;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use efa_core::peer::{Ah, AhAttr, AhObject};
use efa_core::{Ahn, Error, Gid, Verb};

use super::{Pd, answered, made};
use crate::ffi::*;

/// An address handle. The object comes first: its address is the handle's.
#[repr(C)]
struct Handle {
    object: AhObject,
    raw: NonNull<IbvAh>,
    attr: AhAttr,
    pd: Arc<Pd>,
}

/// An address handle of a domain's map, where it stays until it is destroyed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(NonNull<AhObject>);

/// The address handles of a domain.
#[derive(Default)]
pub(super) struct Handles {
    /// One for each GID (R28). Held while the device makes or destroys one.
    by_gid: Mutex<HashMap<Gid, Entry>>,
    /// For those who have an entry of core's, which names the number. Never held while a device is asked.
    by_number: Mutex<Numbered>,
}

/// Address handles by their numbers.
pub(super) type Numbered = HashMap<u16, NonNull<IbvAh>>;

impl Pd {
    fn by_gid(&self) -> MutexGuard<'_, HashMap<Gid, Entry>> {
        self.ahs.by_gid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address handles, which are alive while this is held.
    pub(super) fn numbered(&self) -> MutexGuard<'_, Numbered> {
        self.ahs.by_number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes, or counts, the address handle of `gid`.
    ///
    /// # Errors
    /// What the device answered.
    pub(crate) fn create_ah(self: &Arc<Self>, gid: Gid) -> Result<Ah, Error> {
        loop {
            let mut map = self.by_gid();
            let Some(entry) = map.get(&gid) else {
                let (object, raw, ahn) = self.make(gid)?;
                map.insert(gid, Entry(object));
                self.numbered().insert(ahn.0, raw);
                // SAFETY: made with one handle, and there until `release` was called.
                return Ok(unsafe { Ah::from_object(object) });
            };
            // SAFETY: of the map, from which it is taken, under the lock, before it is freed.
            if unsafe { entry.0.as_ref() }.try_count() {
                // SAFETY: counted just now, and there until `release` was called.
                return Ok(unsafe { Ah::from_object(entry.0) });
            }
            // Its last handle is just being dropped by another thread, which waits for the lock to destroy it: a second one
            // for the same address beside it is what EFA does not take.
            drop(map);
            std::thread::yield_now();
        }
    }

    /// Makes an address handle. Port and global routing are the only ones there are (R28); no other field has a meaning.
    fn make(self: &Arc<Self>, gid: Gid) -> Result<(NonNull<AhObject>, NonNull<IbvAh>, Ahn), Error> {
        let table = self.context.table;
        let mut attr = IbvAhAttr::zeroed();
        (attr.is_global, attr.port_num) = (1, 1);
        attr.grh.dgid = IbvGid { raw: IbvGidBytes(gid.0) };
        // SAFETY: a live domain, and a struct of ours.
        let raw = made(Verb::CreateAh, unsafe { table.ibv_create_ah(self.raw(), &mut attr) })?;
        let mut known = EfadvAhAttr::zeroed();
        let len = size_of::<EfadvAhAttr>() as u32;
        // SAFETY: just made, and a struct of that length.
        let returned = unsafe { table.efadv_query_ah(raw.as_ptr(), &mut known, len) };
        if let Err(error) = answered(Verb::CreateAh, returned) {
            // SAFETY: just made, and destroyed once.
            unsafe { self.destroy(raw) };
            return Err(error);
        }
        let attr = AhAttr { ahn: Ahn(known.ahn), gid, pd: self.id };
        let handle = Box::new(Handle { object: AhObject::new(attr, release), raw, attr, pd: self.clone() });
        Ok((NonNull::from(Box::leak(handle)).cast(), raw, attr.ahn))
    }

    /// Destroys an address handle, or leaks and counts it.
    ///
    /// # Safety
    /// It is of this domain, and is destroyed once.
    unsafe fn destroy(&self, raw: NonNull<IbvAh>) {
        // SAFETY: by the caller's word.
        let returned = unsafe { self.context.table.ibv_destroy_ah(raw.as_ptr()) };
        if answered(Verb::CreateAh, returned).is_err() {
            self.context.leaks.count_object();
        }
    }
}

/// # Safety
/// `object` is of [`Pd::make`], and its last handle was dropped.
unsafe fn release(object: NonNull<AhObject>) {
    // SAFETY: `make` gave the address of the handle; who counts it meanwhile finds no count left.
    let Handle { raw, attr, pd, .. } = unsafe { object.cast::<Handle>().as_ref() };
    let (raw, attr, pd) = (*raw, *attr, pd.clone());
    let mut map = pd.by_gid();
    map.remove(&attr.gid);
    // Whoever posts by it is done with that once this is out.
    pd.numbered().remove(&attr.ahn.0);
    // SAFETY: of that domain, and destroyed once, by the last handle's drop.
    unsafe { pd.destroy(raw) };
    // SAFETY: leaked by `make`, and taken back once: nobody finds it in the map any more.
    let handle = unsafe { Box::from_raw(object.cast::<Handle>().as_ptr()) };
    drop(map);
    drop(handle);
}
