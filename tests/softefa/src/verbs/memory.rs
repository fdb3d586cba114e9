//! Protection domains, memory regions, address handles.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use efa_core::flags::Access;
use efa_core::memory::{BorrowedMemory, RawMemory};
use efa_core::soft::SoftPd;
use efa_core::{Caps, Gid, Provider};

use super::{Context, Made, Object};
use crate::errno::Errno;
use crate::ioctl::{Call, UserMemory};
use crate::mmap::PAGE;
use crate::sys;
use crate::uapi::{Answer, Fields, attr, object};

/// Access bits that a driver may ignore.
const OPTIONAL: u32 = 0x3FF0_0000;

impl Context {
    /// A domain by its handle; another object's is `EINVAL`.
    pub(super) fn pd(&self, handle: u32) -> Result<&SoftPd, Errno> {
        match self.objects.get(handle)? {
            Object::Pd(pd) => Ok(pd),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn alloc_pd<M: UserMemory>(&mut self, call: &Call<'_, M>, made: &mut Made) -> Result<(), Errno> {
        let pd = self.device.alloc_pd()?;
        let handle = self.enter(Object::Pd(pd), &[], made);
        call.put(attr::CORE_OUT, &handle.to_ne_bytes())?;
        call.put(attr::UHW_OUT, &Answer::<8>::new().u16(4, handle as u16).0)
    }

    pub(super) fn reg_mr<M: UserMemory>(
        &mut self,
        call: &Call<'_, M>,
        input: Fields<'_>,
        made: &mut Made,
    ) -> Result<(), Errno> {
        let (start, length, iova) = (input.u64(8), input.u64(16), input.u64(24));
        let (pd, access) = (input.u32(32), input.u32(36) & !OPTIONAL);
        let offset = |addr: u64| addr % PAGE as u64;
        if length == 0 || offset(start) != offset(iova) || start.checked_add(length).is_none() {
            return Err(Errno::EINVAL);
        }
        let caps = self.device.caps();
        let mut rights = Access::LOCAL_WRITE;
        for (right, cap) in [(Access::REMOTE_READ, Caps::RDMA_READ), (Access::REMOTE_WRITE, Caps::RDMA_WRITE)] {
            rights.set(right, caps.contains(cap));
        }
        let access = Access::from_bits(access).ok_or(Errno::EOPNOTSUPP)?;
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Errno::EINVAL);
        }
        if !rights.contains(access) {
            return Err(Errno::EOPNOTSUPP);
        }
        let domain = self.pd(pd)?;
        if length > self.device.limits().max_mr_size {
            return Err(Errno::EINVAL);
        }
        sys::populate(start, length, access.contains(Access::LOCAL_WRITE))?;
        let base = NonNull::new(start as *mut u8).ok_or(Errno::EFAULT)?;
        let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        // SAFETY: these devices have a mover, which alone touches the bytes, and minds nothing that their owner does.
        let memory = RawMemory::new(unsafe { BorrowedMemory::new(base, length) });
        // SAFETY: as above.
        let mr = unsafe { self.device.reg_mr_at(domain, memory, iova, access) };
        let mr = mr.map_err(|(_, error)| error)?;
        let (lkey, rkey) = (mr.attr().lkey, mr.attr().rkey);
        let handle = self.enter(Object::Mr { _mr: mr, pd }, &[pd], made);
        call.put(attr::CORE_OUT, &Answer::<12>::new().u32(0, handle).u32(4, lkey.0).u32(8, rkey.0).0)
    }

    pub(super) fn create_ah<M: UserMemory>(
        &mut self,
        call: &Call<'_, M>,
        input: Fields<'_>,
        made: &mut Made,
    ) -> Result<(), Errno> {
        const EFA_PORT: u8 = 1;
        let (pd, gid, port) = (input.u32(16), Gid(input.gid(24)), input.u8(54));
        if port != EFA_PORT {
            return Err(Errno::EINVAL);
        }
        let ah = self.device.create_ah(self.pd(pd)?, gid)?;
        let number = ah.attr().ahn.0;
        let handle = self.enter(Object::Ah { _ah: ah, pd }, &[pd], made);
        call.put(attr::CORE_OUT, &handle.to_ne_bytes())?;
        call.put(attr::UHW_OUT, &Answer::<8>::new().u16(4, number).0)
    }

    /// Of a domain, a region or an address handle.
    pub(super) fn destroy<M: UserMemory>(&mut self, call: &Call<'_, M>) -> Result<(), Errno> {
        let handle = call.handle(attr::HANDLE)?;
        let is_it = match self.objects.get(handle)? {
            Object::Pd(_) => call.request.object == object::PD,
            Object::Mr { .. } => call.request.object == object::MR,
            Object::Ah { .. } => call.request.object == object::AH,
            _ => false,
        };
        if !is_it {
            return Err(Errno::EINVAL);
        }
        self.objects.removable(handle)?;
        self.end(handle);
        Ok(())
    }
}
