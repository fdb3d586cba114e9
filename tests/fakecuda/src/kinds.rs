//! What makes memory of other kinds: managed, of a pool, and virtual, which is reserved, made and mapped.

use crate::memory::{BLOCK, Kind};
use crate::out::Out;
use crate::state::{INVALID_HANDLE, INVALID_VALUE, entries};

/// Whether a size is one that physical memory has.
fn whole(len: usize) -> bool {
    len > 0 && (len as u64).is_multiple_of(BLOCK)
}

entries! {
    fn cuMemAllocManaged(va: Out<u64>, len: usize, flags: u32) |fake| {
        let (_, device) = fake.current()?;
        va.set(fake.memory.make(Kind::Managed, device, len as u64, None)?);
        Ok(())
    }
    fn cuMemAllocAsync(va: Out<u64>, len: usize, stream: u64) |fake| {
        let (_, device) = fake.current()?;
        va.set(fake.memory.make(Kind::Pool, device, len as u64, None)?);
        Ok(())
    }
    fn cuMemFreeAsync(va: u64, stream: u64) |fake| {
        let stream = fake.stream(stream)?;
        fake.run(stream)?;
        fake.memory.free(va)
    }
    fn cuMemGetAllocationGranularity(len: Out<usize>, prop: Out<u32>, option: i32) |_fake| {
        len.set(BLOCK as usize);
        Ok(())
    }
    fn cuMemAddressReserve(va: Out<u64>, len: usize, align: usize, at: u64, flags: u64) |fake| {
        let (_, device) = fake.current()?;
        if !whole(len) {
            return Err(INVALID_VALUE);
        }
        va.set(fake.memory.reserve(device, len as u64)?);
        Ok(())
    }
    fn cuMemAddressFree(va: u64, len: usize) |fake| { fake.memory.unreserve(va) }
    fn cuMemCreate(handle: Out<u64>, len: usize, prop: Out<i32>, flags: u64) |fake| {
        // The type, those of handles, the location's type, and its device.
        let device = fake.device(prop.nth(3))?;
        if !whole(len) || prop.nth(0) != 1 || prop.nth(2) != 1 {
            return Err(INVALID_VALUE);
        }
        let made = fake.handle();
        fake.physical.insert(made, device);
        handle.set(made);
        Ok(())
    }
    fn cuMemRelease(handle: u64) |fake| { fake.physical.remove(&handle).map(drop).ok_or(INVALID_HANDLE) }
    fn cuMemMap(va: u64, len: usize, offset: usize, handle: u64, flags: u64) |fake| {
        let device = *fake.physical.get(&handle).ok_or(INVALID_HANDLE)?;
        if !whole(len) {
            return Err(INVALID_VALUE);
        }
        fake.memory.map(va, len as u64, device)
    }
    fn cuMemSetAccess(va: u64, len: usize, access: Out<i32>, count: usize) |fake| {
        fake.memory.find(va).map(drop)
    }
    fn cuMemUnmap(va: u64, len: usize) |fake| { fake.memory.unmap(va, len as u64) }
    fn cuPointerGetAttribute(answer: Out<u8>, which: i32, va: u64) |fake| {
        let found = fake.memory.find(va).map_err(|_| INVALID_VALUE)?;
        crate::calls::attribute(which, answer, Some(&found))
    }
}
