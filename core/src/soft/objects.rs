//! Regions and address handles as core counts them: at addresses that stay, outside the lock.
//!
//! Their cells are only ever shared, so that no exclusive borrow meets the references that handles take.
//! An object is written before its first handle exists and forgotten after the last is gone.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::memory::{Reach, Registered};
use super::tables::{Ah as AhRecord, MAX_MR, Mr as MrRecord, NICS, State};
use super::verbs;
use super::wire::{Guard, Owner};
use crate::flags::Access;
use crate::memory::{Mr, MrAttr, MrObject, RawMemory, Release};
use crate::peer::{Ah, AhAttr, AhObject};
use crate::{Error, Gid, LKey, Limit, MrInit, RKey, Verb};

/// An object, and behind it how to find the way back from its address.
#[repr(C)]
pub(super) struct Cell<T> {
    object: UnsafeCell<MaybeUninit<T>>,
    back: UnsafeCell<Option<Back>>,
}

pub(super) type MrCell = Cell<MrObject>;
pub(super) type AhCell = Cell<AhObject>;

struct Back {
    owner: Owner,
    index: usize,
    nic: u8,
}

// SAFETY: objects are `Sync` by their types' own word; the way back is written and taken under the lock,
// and read by the one call that follows the last handle.
unsafe impl<T> Sync for Cell<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Cell<T> {}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

impl<T> Cell<T> {
    pub(super) const fn new() -> Self {
        Self { object: UnsafeCell::new(MaybeUninit::uninit()), back: UnsafeCell::new(None) }
    }

    /// Makes the object; its address has the right to the whole cell.
    ///
    /// # Safety
    /// The lock is held and the entry of this cell was vacant.
    unsafe fn fill(&self, object: T, back: Back) -> NonNull<T> {
        // SAFETY: nobody knows of the object, and the lock is held.
        unsafe { *self.object.get() = MaybeUninit::new(object) };
        // SAFETY: as above.
        unsafe { *self.back.get() = Some(back) };
        NonNull::from(self).cast()
    }
}

/// The way back from an object.
///
/// # Safety
/// `object` came from [`Cell::fill`], and the cell is not empty for `'a`.
unsafe fn back<'a, T>(object: NonNull<T>) -> Option<&'a Back> {
    let cell = object.cast::<Cell<T>>();
    // SAFETY: `fill` gave the address of the cell.
    let cell = unsafe { cell.as_ref() };
    // SAFETY: nobody writes it while the object is alive.
    unsafe { (*cell.back.get()).as_ref() }
}

/// Empties the cell: what kept the wire alive is the caller's now.
///
/// # Safety
/// `object` came from [`Cell::fill`], the lock is held, and nobody uses the object or its way back.
unsafe fn take<T>(object: NonNull<T>) -> Option<Back> {
    let cell = object.cast::<Cell<T>>();
    // SAFETY: `fill` gave the address of the cell.
    let cell = unsafe { cell.as_ref() };
    // SAFETY: by the caller's word nobody else reaches it.
    unsafe { (*cell.back.get()).take() }
}

/// Registers memory in a domain of the device `nic`.
///
/// # Safety
/// As for [`Provider::reg_mr`](crate::Provider::reg_mr).
pub(super) unsafe fn register(
    owner: &Owner,
    nic: u8,
    pd: u16,
    memory: RawMemory,
    iova: u64,
    init: &MrInit,
) -> Result<Mr, (RawMemory, Error)> {
    let access = init.access;
    let mut state = owner.lock();
    let reach = Reach::of(init, state.config.mover);
    if !memory.is_visible() && !matches!(reach, Reach::Moved(_)) {
        return Err((memory, Error::OpaqueMemory));
    }
    if let Err(error) = state.call(nic, Verb::RegMr) {
        return Err((memory, error));
    }
    let index = match verbs::check_region(&state, nic, pd, memory.parts(), access, reach) {
        Ok(index) => index,
        Err(error) => return Err((memory, error)),
    };
    let parts = memory.parts();
    let (Some(cell), Some(domain)) = (owner.shared.mrs.get(index), state.pd_mut(pd)) else {
        return Err((memory, verbs::refused(Verb::RegMr, verbs::EINVAL)));
    };
    domain.handles += 1;
    domain.registrations.regions += 1;
    domain.registrations.bytes += parts.len as u64;
    let id = domain.id;
    let (lkey, rkey) = state.keys(index);
    let access = if access.contains(Access::REMOTE_WRITE) { access | Access::LOCAL_WRITE } else { access };
    let attr = MrAttr { base: parts.base, len: parts.len, iova, lkey: LKey(lkey), rkey: RKey(rkey), pd: id, access };
    // SAFETY: by the caller's word; what is reached by words was found to be whole words.
    let memory = unsafe { Registered::new(memory, iova, reach) };
    if let Some(entry) = state.tables.mrs.get_mut(index % MAX_MR) {
        entry.mr = Some(MrRecord { nic, pd, lkey, rkey, access, memory });
        entry.busy = true;
    }
    let back = Back { owner: owner.clone(), index, nic };
    // SAFETY: the lock is held and `check_region` gave a vacant entry.
    let object = unsafe { cell.fill(MrObject::new(attr, deregister), back) };
    // SAFETY: just made, and stays until `deregister` emptied the cell: the way back keeps the wire.
    Ok(unsafe { Mr::from_object(object) })
}

/// # Safety
/// `object` is a region of this module's, and nobody uses it.
unsafe fn deregister(object: NonNull<MrObject>, release: Release) -> Result<RawMemory, Error> {
    let gone = verbs::refused(Verb::DeregMr, verbs::EINVAL);
    // SAFETY: from `register`, and alive.
    let Some(Back { owner, index, nic }) = (unsafe { back(object) }) else { return Err(gone) };
    let mut state = owner.lock();
    let (record, pd) = match verbs::deregister(&mut state, *nic, *index) {
        Ok(record) => record,
        Err(error) => {
            if release == Release::Dropped {
                owner.leaks[usize::from(*nic) % NICS].count_region();
            }
            return Err(error);
        }
    };
    let (guard, index) = (state, *index);
    // SAFETY: the lock is held; `deregister` is called once with success and nobody uses the object.
    let back = unsafe { take(object) };
    let rest = vacate(guard, |state| {
        if let Some(entry) = state.tables.mrs.get_mut(index) {
            entry.busy = false;
        }
        state.release_pd(pd)
    });
    let _ = (rest, back);
    Ok(record.into_memory())
}

/// Changes the state a last time and lets go of the lock.
fn vacate<T>(mut guard: Guard<'_>, change: impl FnOnce(&mut State) -> T) -> T {
    change(&mut guard)
}

/// Makes, or counts, the address handle of `gid` in a domain of the device `nic` (R28).
pub(super) fn create_ah(owner: &Owner, nic: u8, pd: u16, gid: Gid) -> Result<Ah, Error> {
    let refused = verbs::refused(Verb::CreateAh, verbs::EINVAL);
    let mut state = owner.lock();
    state.call(nic, Verb::CreateAh)?;
    if gid.is_zero() || state.pd(pd).is_none() {
        return Err(refused);
    }
    let same = |ah: &AhRecord| ah.pd == pd && ah.gid == gid;
    for (index, _) in state.tables.ahs.all().iter().enumerate().filter(|(_, entry)| entry.ah.as_ref().is_some_and(same))
    {
        let Some(cell) = owner.shared.ahs.get(index) else { continue };
        let object = NonNull::from(cell).cast::<AhObject>();
        // SAFETY: its entry is there and the lock is held, so `release` has not emptied the cell.
        if unsafe { object.as_ref() }.try_count() {
            // SAFETY: counted just now; the way back keeps the wire.
            return Ok(unsafe { Ah::from_object(object) });
        }
    }
    let limit = owner.limits.max_ah;
    let exhausted = Error::Exhausted { what: Limit::AddressHandles, limit: limit.into() };
    let vacant = state.tables.ahs.all().iter().position(|entry| entry.ah.is_none());
    let index = vacant.filter(|&index| index < limit as usize).ok_or(exhausted)?;
    let cell = owner.shared.ahs.get(index).ok_or(exhausted)?;
    let ahn = state.ahn(index);
    let domain = state.pd_mut(pd).ok_or(refused)?;
    domain.handles += 1;
    let id = domain.id;
    if let Some(entry) = state.tables.ahs.get_mut(index) {
        entry.ah = Some(AhRecord { nic, pd, gid });
    }
    state.resolve(pd, gid);
    let object = AhObject::new(AhAttr { ahn, gid, pd: id }, release_ah);
    // SAFETY: the lock is held and the entry was vacant.
    let object = unsafe { cell.fill(object, Back { owner: owner.clone(), index, nic }) };
    // SAFETY: made with one handle, and stays until `release_ah` emptied the cell.
    Ok(unsafe { Ah::from_object(object) })
}

/// # Safety
/// `object` is an address handle of this module's, and nobody uses it.
unsafe fn release_ah(object: NonNull<AhObject>) {
    // SAFETY: from `create_ah`, and alive.
    let Some(Back { owner, index, .. }) = (unsafe { back(object) }) else { return };
    let (mut state, index) = (owner.lock(), *index);
    let record = state.tables.ahs.get_mut(index).and_then(|entry| entry.ah.take());
    state.next_ahn(index);
    // SAFETY: the lock is held and the last handle is gone.
    let back = unsafe { take(object) };
    let rest = vacate(state, |state| {
        let record = record?;
        state.resolve(record.pd, record.gid);
        state.release_pd(record.pd)
    });
    let _ = (rest, back);
}
