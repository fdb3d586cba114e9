//! The function as its bus sees it: configuration space, regions, interrupts.

#![forbid(unsafe_code)]

use std::os::fd::RawFd;

use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info, vfio_region_sparse_mmap_area,
};
use vfio_user::{IrqInfo, ServerRegion, SparseArea};

use crate::events::VECTORS;
use crate::guest::PAGE;

/// Registers, and behind their page the doorbells.
pub const DOORBELL_REGION: u16 = 0;
/// Send queues, which programs and the monitor map.
pub const LLQ_REGION: u32 = 2;
/// The table of interrupts, which the monitor keeps.
const MSIX_REGION: u32 = 4;
/// The configuration space.
pub const CONFIG_REGION: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
/// The interrupts.
pub const MSIX: u32 = VFIO_PCI_MSIX_IRQ_INDEX;

/// Bytes of the first region.
const REGISTER_BYTES: usize = 64 << 10;
/// Of these, doorbells.
pub const DOORBELLS: usize = REGISTER_BYTES - PAGE;
/// Bytes of the second region: a page at least for each queue pair.
pub const LLQ_BYTES: usize = 32 << 20;
const MSIX_BYTES: usize = 2 * PAGE;
/// Bytes of the configuration space.
pub const CONFIG_BYTES: usize = 256;

const AMAZON: u16 = 0x1d0f;
/// The second kind of EFA that there was.
const EFA: u16 = 0xefa1;
/// An Ethernet controller.
const CLASS: [u8; 4] = [0, 0, 0, 2];
const CAPABILITIES: u8 = 0x40;
const MSIX_CAPABILITY: u8 = 0x11;

/// What is read from the configuration space at first; the monitor keeps what changes of it.
pub fn config() -> [u8; CONFIG_BYTES] {
    let mut config = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &AMAZON.to_le_bytes());
    put(0x02, &EFA.to_le_bytes());
    // It has a list of capabilities.
    put(0x06, &[0x10, 0]);
    put(0x08, &CLASS);
    // Memory of 32 bits; of 64 bits, prefetchable; of 32 bits.
    put(0x10 + 4 * LLQ_REGION as usize, &[0b1100]);
    put(0x2c, &AMAZON.to_le_bytes());
    put(0x2e, &EFA.to_le_bytes());
    put(0x34, &[CAPABILITIES]);
    let table = (MSIX_REGION, PAGE as u32 | MSIX_REGION);
    put(CAPABILITIES.into(), &[MSIX_CAPABILITY, 0, (VECTORS - 1) as u8, 0]);
    put(usize::from(CAPABILITIES) + 4, &table.0.to_le_bytes());
    put(usize::from(CAPABILITIES) + 8, &table.1.to_le_bytes());
    config
}

/// All regions; `llq` is the file of the second.
pub fn regions(llq: RawFd) -> Vec<ServerRegion> {
    let region = |index: u32| {
        let (size, maps) = match index {
            0 => (REGISTER_BYTES, false),
            LLQ_REGION => (LLQ_BYTES, true),
            MSIX_REGION => (MSIX_BYTES, false),
            CONFIG_REGION => (CONFIG_BYTES, false),
            _ => (0, false),
        };
        let access = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        let flags = if size == 0 { 0 } else { access | if maps { VFIO_REGION_INFO_FLAG_MMAP } else { 0 } };
        let argsz = size_of::<vfio_region_info>() as u32;
        let region_info = vfio_region_info { argsz, index, flags, size: size as u64, ..Default::default() };
        // The file goes along with an area of it alone.
        let area = SparseArea { area: vfio_region_sparse_mmap_area { offset: 0, size: size as u64 } };
        ServerRegion { region_info, sparse_areas: Vec::from_iter(maps.then_some(area)), mmap_fd: maps.then_some(llq) }
    };
    (0..VFIO_PCI_NUM_REGIONS).map(region).collect()
}

/// All kinds of interrupts.
pub fn interrupts() -> Vec<IrqInfo> {
    let of = |index| match index {
        MSIX => (VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE, VECTORS as u32),
        _ => (0, 0),
    };
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| (index, of(index)))
        .map(|(index, (flags, count))| IrqInfo { index, flags, count })
        .collect()
}
