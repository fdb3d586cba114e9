//! What the driver answers, where efa-cuda rests on it.

#![allow(unsafe_code)]

use std::error::Error;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use efa_cuda::{Device, Driver, MemorySort};

use crate::Values;
use crate::kinds::{Kind, LEN, Memory};
use crate::raw::Cuda;

/// Attributes of a device, by their names in CUDA's header.
const ATTRIBUTES: [(&str, i32); 8] = [
    ("GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED", 110),
    ("GPU_DIRECT_RDMA_SUPPORTED", 116),
    ("GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS", 117),
    ("GPU_DIRECT_RDMA_WRITES_ORDERING", 118),
    ("DMA_BUF_SUPPORTED", 124),
    ("HOST_ALLOC_DMA_BUF_SUPPORTED", 146),
    ("DMA_BUF_MMAP_SUPPORTED", 152),
    ("GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED", 161),
];
const SYNC_MEMOPS: i32 = 6;
const MEMORY_TYPE: i32 = 2;

/// A dma-buf of a range, or what the driver answered.
fn export(cuda: &Cuda, address: u64, len: usize, flags: u64) -> Result<OwnedFd, String> {
    let mut file = -1;
    let to = (&raw mut file).cast::<c_void>();
    // SAFETY: a handle of this sort is an `int`; the driver checks the rest.
    let code = unsafe { cuda.cuMemGetHandleForAddressRange(to, address, len, 1, flags) };
    if code != 0 {
        return Err(cuda.name(code));
    }
    // SAFETY: the driver made it for us, who are to close it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn size(file: &OwnedFd) -> i64 {
    // SAFETY: a file of ours.
    unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_END) }
}

fn page() -> usize {
    // SAFETY: it takes nothing of ours.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// What a thread gets that never used CUDA.
pub(crate) fn without_a_context(cuda: &Cuda, values: &mut Values) {
    let none = Err("CUDA_ERROR_INVALID_CONTEXT (201)".to_owned());
    values.expected("export without a context", export(cuda, 1 << 40, LEN, 0).map(drop), &none);
    // SAFETY: plain numbers, which the driver checks.
    let code = unsafe { cuda.cuFlushGPUDirectRDMAWrites(0, 100) };
    values.expected("flush without a context", cuda.name(code), &"CUDA_ERROR_INVALID_CONTEXT (201)".to_owned());
}

pub(crate) fn answers(cuda: &Cuda, driver: Driver, gpu: Device, values: &mut Values) -> Result<(), Box<dyn Error>> {
    for (name, number) in ATTRIBUTES {
        let mut value = 0;
        // SAFETY: the answer goes onto the stack.
        let code = unsafe { cuda.cuDeviceGetAttribute(&mut value, number, gpu.ordinal()) };
        let text = if code == 0 { value.to_string() } else { cuda.name(code) };
        values.told(&format!("attribute {number}, {name}"), text);
    }
    let sorts = [
        (Kind::Allocation, MemorySort::Allocation),
        (Kind::Virtual, MemorySort::Virtual),
        (Kind::Pool, MemorySort::Pool),
        (Kind::Managed, MemorySort::Managed),
    ];
    for (kind, sort) in sorts {
        let memory = match Memory::new(cuda, kind, gpu.ordinal()) {
            Ok(memory) => memory,
            Err(code) => {
                values.told(&format!("{kind:?}: none is to be had"), cuda.name(code));
                continue;
            }
        };
        let found = driver.classify(memory.address, LEN);
        values.expected(&format!("{kind:?}: classified"), found.map(|info| info.sort), &Ok(sort));
        let exported = driver.export(&memory.borrowed()).map(|exported| size(&exported.file));
        let text = exported.as_ref().map_or_else(ToString::to_string, |size| format!("a file of {size} bytes"));
        match kind {
            Kind::Allocation | Kind::Virtual if gpu.exports_dma_bufs()? => {
                values.expected(&format!("{kind:?}: exported"), exported.ok(), &Some(LEN as i64));
            }
            Kind::Managed => values.expected(&format!("{kind:?}: refused"), exported.is_err(), &true),
            _ => {}
        }
        values.told(&format!("{kind:?}: efa-cuda's export"), text);
        let driver_says = export(cuda, memory.address, LEN, 0);
        values.told(&format!("{kind:?}: the driver's export"), driver_says.map_or_else(|no| no, |_| "a file".into()));
        sync_memops(cuda, &memory, kind, values);
        if kind == Kind::Virtual {
            let mut len = 0;
            // SAFETY: the answers go onto the stack.
            unsafe { cuda.cuMemGetAddressRange_v2(&mut 0, &mut len, memory.address) };
            values.expected("Virtual: cuMemGetAddressRange tells of one mapping", len < LEN, &true);
        }
        if kind == Kind::Allocation {
            edges(cuda, &memory, values);
        }
    }
    addresses(cuda, values);
    let mut event = 0;
    // SAFETY: the answer goes onto the stack.
    if unsafe { cuda.cuEventCreate(&mut event, 2) } == 0 {
        // SAFETY: made just now.
        let code = unsafe { cuda.cuEventQuery(event) };
        values.expected("an event that was never recorded", cuda.name(code), &"CUDA_SUCCESS (0)".to_owned());
        // SAFETY: as above; it is used no more.
        unsafe { cuda.cuEventDestroy_v2(event) };
    }
    Ok(())
}

fn sync_memops(cuda: &Cuda, memory: &Memory<'_>, kind: Kind, values: &mut Values) {
    let on = 1u32;
    // SAFETY: this attribute's value is an `unsigned int`.
    let code = unsafe { cuda.cuPointerSetAttribute((&raw const on).cast::<c_void>(), SYNC_MEMOPS, memory.address) };
    let expected = match kind {
        Kind::Allocation => "CUDA_SUCCESS (0)",
        Kind::Virtual => "CUDA_ERROR_NOT_SUPPORTED (801)",
        Kind::Pool | Kind::Managed => return values.told(&format!("{kind:?}: SYNC_MEMOPS"), cuda.name(code)),
    };
    values.expected(&format!("{kind:?}: SYNC_MEMOPS"), cuda.name(code), &expected.to_owned());
}

/// What is no range that can be exported, and what can be done with a file.
fn edges(cuda: &Cuda, memory: &Memory<'_>, values: &mut Values) {
    let invalid = Err("CUDA_ERROR_INVALID_VALUE (1)".to_owned());
    let page = page();
    let mut refused = |what: &str, address: u64, len: usize, flags: u64| {
        values.expected(&format!("export {what}"), export(cuda, address, len, flags).map(drop), &invalid);
    };
    refused("from the middle of a page", memory.address + 512, page, 0);
    refused("of half a page", memory.address, page / 2, 0);
    refused("beyond the allocation", memory.address, 1 << 40, 0);
    refused("with an unknown flag", memory.address, page, 1 << 40);
    let with = export(cuda, memory.address, page, 1).map_or_else(|no| no, |_| "a file".to_owned());
    values.told("export with the flag for PCIe", with);
    let Ok(file) = export(cuda, memory.address, page, 0) else { return };
    values.expected("the size of a dma-buf of one page", size(&file), &(page as i64));
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the system chooses where, so nothing is replaced.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), page, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return values.told("mmap of a dma-buf", std::io::Error::last_os_error());
    }
    values.told("mmap of a dma-buf", "it is mapped");
    // SAFETY: mapped just now.
    unsafe { libc::munmap(base, page) };
}

/// What is said of an address that is not CUDA's.
fn addresses(cuda: &Cuda, values: &mut Values) {
    let here = 0u64;
    let (mut sort, mut which) = (9u64, MEMORY_TYPE);
    let address = (&raw const here) as u64;
    // SAFETY: room for more than an answer has.
    let code = unsafe { cuda.cuPointerGetAttribute((&raw mut sort).cast::<c_void>(), which, address) };
    values.expected("the host's address, asked singly", cuda.name(code), &"CUDA_ERROR_INVALID_VALUE (1)".to_owned());
    sort = 0;
    let mut data = (&raw mut sort).cast::<c_void>();
    // SAFETY: as above, of one attribute.
    let code = unsafe { cuda.cuPointerGetAttributes(1, &mut which, &mut data, address) };
    values.expected(
        "the host's address, asked with others",
        (cuda.name(code), sort),
        &("CUDA_SUCCESS (0)".to_owned(), 0),
    );
}
