//! Memory regions: of the program's addresses, and of files that it names (dma-bufs).

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use efa_core::flags::Access;
use efa_core::memory::{BorrowedMemory, RawMemory};
use efa_core::{Caps, Provider};

use super::{Context, Made, Object};
use crate::errno::Errno;
use crate::foreign::Foreign;
use crate::ioctl::{Call, UserMemory};
use crate::mmap::PAGE;
use crate::peer::{self, Watching};
use crate::sys;
use crate::uapi::{Answer, Fields, attr};

/// Access bits that a driver may ignore.
const OPTIONAL: u32 = 0x3FF0_0000;
/// Access bits that the interface knows of a file's memory: local and remote write, remote read, atomics, any order.
const OF_FILES: u32 = 0x10_000F;
/// Access bits that the interface knows of any.
const KNOWN: u32 = OPTIONAL | 0x3FF;

/// What is registered.
enum Memory {
    /// From this address of the program's on.
    At(u64),
    /// From this offset of a file on.
    Of { fd: i32, offset: u64 },
}

/// A registration as a program asks for it.
struct Asked {
    memory: Memory,
    length: u64,
    iova: u64,
    access: u32,
    pd: u32,
}

/// What a region is known by: handle, local and remote key.
type Known = (u32, u32, u32);

impl Context {
    pub(super) fn reg_mr<M: UserMemory>(
        &mut self,
        call: &Call<'_, M>,
        input: Fields<'_>,
        made: &mut Made,
    ) -> Result<(), Errno> {
        let (start, length, iova) = (input.u64(8), input.u64(16), input.u64(24));
        let (pd, access) = (input.u32(32), input.u32(36));
        let asked = Asked { memory: Memory::At(start), length, iova, access, pd };
        let (handle, lkey, rkey) = self.register(&asked, made)?;
        call.put(attr::CORE_OUT, &Answer::<12>::new().u32(0, handle).u32(4, lkey).u32(8, rkey).0)
    }

    pub(super) fn reg_dmabuf_mr<M: UserMemory>(&mut self, call: &Call<'_, M>, made: &mut Made) -> Result<(), Errno> {
        let access = call.number(attr::DMABUF_ACCESS)?;
        if access & !u64::from(OF_FILES) != 0 {
            return Err(Errno::EINVAL);
        }
        let fd = call.number(attr::DMABUF_FD)? as u32 as i32;
        let asked = Asked {
            memory: Memory::Of { fd, offset: call.number(attr::DMABUF_OFFSET)? },
            length: call.number(attr::DMABUF_LENGTH)?,
            iova: call.number(attr::DMABUF_IOVA)?,
            access: access as u32,
            pd: call.handle(attr::MR_PD)?,
        };
        let (handle, lkey, rkey) = self.register(&asked, made)?;
        call.put(attr::DMABUF_RESP_LKEY, &lkey.to_ne_bytes())?;
        call.put(attr::DMABUF_RESP_RKEY, &rkey.to_ne_bytes())?;
        call.put_number(attr::HANDLE, handle)
    }

    pub(super) fn reg_mr_ex<M: UserMemory>(&mut self, call: &Call<'_, M>, made: &mut Made) -> Result<(), Errno> {
        if call.has(attr::MR_DMA_HANDLE) {
            // There are none, so it is another object's.
            return self.objects.get(call.handle(attr::MR_DMA_HANDLE)?).and(Err(Errno::EINVAL));
        }
        let memory = match (call.file(attr::MR_FD)?, call.has(attr::MR_FD_OFFSET), call.has(attr::MR_ADDR)) {
            (Some(fd), true, false) => Memory::Of { fd, offset: call.number(attr::MR_FD_OFFSET)? },
            (None, false, true) => Memory::At(call.number(attr::MR_ADDR)?),
            _ => return Err(Errno::EINVAL),
        };
        let asked = Asked {
            memory,
            length: call.number(attr::MR_LENGTH)?,
            iova: call.number(attr::MR_IOVA)?,
            access: u32::try_from(call.number(attr::MR_ACCESS)?)
                .ok()
                .filter(|bits| bits & !KNOWN == 0)
                .ok_or(Errno::EINVAL)?,
            pd: call.handle(attr::MR_PD)?,
        };
        let (handle, lkey, rkey) = self.register(&asked, made)?;
        call.put(attr::MR_RESP_LKEY, &lkey.to_ne_bytes())?;
        call.put(attr::MR_RESP_RKEY, &rkey.to_ne_bytes())?;
        call.put_number(attr::HANDLE, handle)
    }

    /// Of the interconnects by which a device may reach memory this one knows nothing.
    pub(super) fn query_mr<M: UserMemory>(&self, call: &Call<'_, M>) -> Result<(), Errno> {
        let Object::Mr { .. } = self.objects.get(call.handle(attr::MR_QUERIED)?)? else { return Err(Errno::EINVAL) };
        (1..=4).try_for_each(|nth| call.put(attr::MR_QUERIED + nth, &0u16.to_ne_bytes()))
    }

    /// What a program may do so, if the device can.
    fn rights(&self, access: u32) -> Result<Access, Errno> {
        let caps = self.device.caps();
        let mut rights = Access::LOCAL_WRITE;
        for (right, cap) in [(Access::REMOTE_READ, Caps::RDMA_READ), (Access::REMOTE_WRITE, Caps::RDMA_WRITE)] {
            rights.set(right, caps.contains(cap));
        }
        let access = Access::from_bits(access & !OPTIONAL).ok_or(Errno::EOPNOTSUPP)?;
        if access.contains(Access::REMOTE_WRITE) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Errno::EINVAL);
        }
        if rights.contains(access) { Ok(access) } else { Err(Errno::EOPNOTSUPP) }
    }

    fn register(&mut self, asked: &Asked, made: &mut Made) -> Result<Known, Errno> {
        let (start, length) = (if let Memory::At(start) = asked.memory { start } else { 0 }, asked.length);
        let first = if let Memory::Of { offset, .. } = asked.memory { offset } else { start };
        let in_page = |addr: u64| addr % PAGE as u64;
        if length == 0 || in_page(first) != in_page(asked.iova) || start.checked_add(length).is_none() {
            return Err(Errno::EINVAL);
        }
        let access = self.rights(asked.access)?;
        self.pd(asked.pd)?;
        if length > self.device.limits().max_mr_size {
            return Err(Errno::EINVAL);
        }
        let writable = access.contains(Access::LOCAL_WRITE);
        let mut of_a_peer = false;
        let (base, mapping) = match asked.memory {
            Memory::At(start) => match sys::populate(start, length, writable) {
                Ok(()) => (NonNull::new(start as *mut u8).ok_or(Errno::EFAULT)?, None),
                Err(error) => {
                    let file = peer::file_of(start, length).ok_or(error)?;
                    let mapping = Foreign::map(file.as_raw_fd(), 0, length, writable)?;
                    of_a_peer = true;
                    (mapping.first(), Some(mapping))
                }
            },
            Memory::Of { fd, offset } => {
                let mapping = Foreign::map(fd, offset, length, writable)?;
                (mapping.first(), Some(mapping))
            }
        };
        let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        // SAFETY: these devices have a mover, which alone touches the bytes, and minds nothing that their owner does.
        let memory = RawMemory::new(unsafe { BorrowedMemory::new(base, length) });
        // SAFETY: as above.
        let mr = unsafe { self.device.reg_mr_at(self.pd(asked.pd)?, memory, asked.iova, access) };
        let mr = mr.map_err(|(_, error)| error)?;
        let (lkey, rkey) = (mr.attr().lkey, mr.attr().rkey);
        let (pd, region) = (asked.pd, Arc::new(Mutex::new(Some(mr))));
        let watching = if of_a_peer { Watching::new(start, length as u64, &region) } else { None };
        let object = Object::Mr { _watching: watching, _mr: region, _mapping: mapping, pd };
        let handle = self.enter(object, &[pd], made);
        Ok((handle, lkey.0, rkey.0))
    }
}
