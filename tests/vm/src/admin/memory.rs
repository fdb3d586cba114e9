//! Domains, pages of doorbells, address handles, and regions.

#![allow(unsafe_code)]

use efa_core::flags::Access;
use efa_core::memory::RawMemory;
use efa_core::{Gid, Provider};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::layout::{Buffer, CreateAh, DestroyAh, INDIRECT, MrMade, RegMr, WITH_BUFFER};
use super::{Admin, Answer, Reply, Status};
use crate::guest::PAGE;
use crate::window::Window;

/// Bytes of an address in a list.
const ADDRESS: usize = 8;
/// Addresses in a page of a chain, before where the next one is.
const IN_CHAIN: usize = 510;
/// Bits of a region's permissions.
const LOCAL_WRITE: u8 = 1 << 0;
const REMOTE_WRITE: u8 = 1 << 1;
const REMOTE_READ: u8 = 1 << 2;
/// By bus addresses, without a list: for kernels alone.
const PHYSICAL: u8 = 1 << 7;
const SHIFT: u8 = 0b1_1111;
/// Pages of doorbells that there are: one for each process.
const UARS: usize = 256;

impl Admin {
    pub(super) fn alloc_pd(&mut self) -> Answer {
        let number = self.objects.pds.vacant(self.device.limits().max_pd as usize).ok_or(Status::NoResource)?;
        self.objects.pds.enter(number, self.device.alloc_pd()?);
        Ok(Reply::of(&U16::from(number)))
    }

    pub(super) fn dealloc_pd(&mut self, number: U16) -> Answer {
        self.objects.pds.take(number.get().into()).map(|_| Reply::empty()).ok_or(Status::IllegalParameter)
    }

    pub(super) fn alloc_uar(&mut self) -> Answer {
        let number = self.objects.uars.vacant(UARS).ok_or(Status::NoResource)?;
        self.objects.uars.enter(number, ());
        Ok(Reply::of(&U16::from(number)))
    }

    pub(super) fn dealloc_uar(&mut self, number: U16) -> Answer {
        self.objects.uars.take(number.get().into()).map(|()| Reply::empty()).ok_or(Status::IllegalParameter)
    }

    pub(super) fn create_ah(&mut self, asked: &CreateAh) -> Answer {
        let pd = self.objects.pds.get(asked.pd.get().into()).ok_or(Status::IllegalParameter)?;
        let ah = self.device.create_ah(pd, Gid(asked.gid))?;
        let number = ah.attr().ahn.0;
        self.objects.ahs.push((asked.pd.get(), ah));
        Ok(Reply::of(&U16::from(number)))
    }

    pub(super) fn destroy_ah(&mut self, asked: &DestroyAh) -> Answer {
        let is_it = |(pd, ah): &(u16, efa_core::peer::Ah)| (*pd, ah.attr().ahn.0) == (asked.pd.get(), asked.ah.get());
        let nth = self.objects.ahs.iter().position(is_it).ok_or(Status::IllegalParameter)?;
        self.objects.ahs.swap_remove(nth);
        Ok(Reply::empty())
    }

    pub(super) fn reg_mr(&mut self, asked: &RegMr, flags: u8) -> Answer {
        let pd = self.objects.pds.get(asked.pd.get().into()).ok_or(Status::IllegalParameter)?;
        let rights = [
            (LOCAL_WRITE, Access::LOCAL_WRITE),
            (REMOTE_WRITE, Access::REMOTE_WRITE),
            (REMOTE_READ, Access::REMOTE_READ),
        ];
        let known = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ;
        if asked.permissions & !known != 0 || asked.flags & PHYSICAL != 0 {
            return Err(Status::Unsupported);
        }
        let access = rights.iter().filter(|(bit, _)| asked.permissions & bit != 0).map(|(_, right)| *right).collect();
        let (shift, length, iova) = (u32::from(asked.flags & SHIFT), asked.length.get(), asked.iova.get());
        let max = self.device.limits().max_mr_size;
        if length == 0 || length > max || shift < PAGE.trailing_zeros() || iova.checked_add(length).is_none() {
            return Err(Status::IllegalParameter);
        }
        let offset = iova % (1 << shift);
        // The number that the driver gives is what follows from the length, or nothing.
        let count = (offset + length).div_ceil(1 << shift);
        if asked.pages.get() != 0 && u64::from(asked.pages.get()) != count {
            return Err(Status::IllegalParameter);
        }
        let count = usize::try_from(count).map_err(|_| Status::IllegalParameter)?;
        let pages = self.pages(asked, flags, count)?;
        if pages.iter().any(|page| page % (1 << shift) != 0) {
            return Err(Status::IllegalParameter);
        }
        let length = usize::try_from(length).map_err(|_| Status::IllegalParameter)?;
        let window = Window::open(&self.guest, pages, shift, offset as usize, length)?;
        // SAFETY: the device has a mover, which alone touches the bytes, and finds them by the window that it now owns.
        let mr = unsafe { self.device.reg_mr_at(pd, RawMemory::new(window), iova, access) };
        let mr = mr.map_err(|(_, error)| Status::from(error))?;
        let (lkey, rkey) = (mr.attr().lkey.0, mr.attr().rkey.0);
        self.objects.mrs.insert(lkey, mr);
        Ok(Reply::of(&MrMade { lkey: lkey.into(), rkey: rkey.into(), validity: 0, interconnects: [0; 3] }))
    }

    pub(super) fn dereg_mr(&mut self, lkey: U32) -> Answer {
        self.objects.mrs.remove(&lkey.get()).map(|_| Reply::empty()).ok_or(Status::IllegalParameter)
    }

    /// The addresses of `count` pages: in the command, in a list, or in pages that a chain of lists names.
    fn pages(&self, asked: &RegMr, flags: u8, count: usize) -> Result<Vec<u64>, Status> {
        if flags & WITH_BUFFER == 0 {
            let all = asked.list.chunks_exact(ADDRESS).map(address);
            return if count <= asked.list.len() / ADDRESS {
                Ok(all.take(count).collect())
            } else {
                Err(Status::Malformed)
            };
        }
        let mut buffer = Buffer::read_from_prefix(&asked.list).map_err(|_| Status::Malformed)?.0;
        let mut found = Addresses { admin: self, pages: Vec::new(), count };
        if flags & INDIRECT == 0 {
            if (buffer.length.get() as usize) < count.saturating_mul(ADDRESS) {
                return Err(Status::Malformed);
            }
            found.read(buffer.at(), count)?;
            return Ok(found.pages);
        }
        let lists = count.div_ceil(PAGE / ADDRESS);
        let mut named = 0;
        while named < lists {
            let mut page = [0; PAGE];
            let length = (buffer.length.get() as usize).min(PAGE);
            let here = (lists - named).min(IN_CHAIN);
            if length < here * ADDRESS {
                return Err(Status::Malformed);
            }
            self.guest.read(buffer.at(), &mut page[..length])?;
            for list in page.chunks_exact(ADDRESS).take(here).map(address) {
                found.read(list, PAGE / ADDRESS)?;
            }
            named += here;
            buffer = Buffer::read_from_prefix(&page[IN_CHAIN * ADDRESS..]).map_err(|_| Status::Malformed)?.0;
        }
        Ok(found.pages)
    }
}

/// An address of a list.
fn address(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Addresses as they are read: as many as were asked for, and memory for no more than were there.
struct Addresses<'a> {
    admin: &'a Admin,
    pages: Vec<u64>,
    count: usize,
}

impl Addresses<'_> {
    /// Adds up to `most` from `at` on.
    fn read(&mut self, at: u64, most: usize) -> Result<(), Status> {
        let most = most.min(self.count - self.pages.len());
        let mut done = 0;
        while done < most {
            let mut list = [0; PAGE];
            let here = (most - done).min(PAGE / ADDRESS);
            let bytes = &mut list[..here * ADDRESS];
            self.admin.guest.read(at.wrapping_add((done * ADDRESS) as u64), bytes)?;
            self.pages.extend(bytes.chunks_exact(ADDRESS).map(address));
            done += here;
        }
        Ok(())
    }
}
