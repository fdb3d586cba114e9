//! Protection domains, address handles, and the end of what is made in a domain.

#![forbid(unsafe_code)]

use efa_core::soft::SoftPd;
use efa_core::{Gid, Provider};

use super::{Context, Made, Object};
use crate::errno::Errno;
use crate::ioctl::{Call, UserMemory};
use crate::uapi::{Answer, Fields, attr, object};

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
