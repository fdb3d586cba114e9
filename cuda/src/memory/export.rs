//! A dma-buf of device memory: the whole host pages around a range, no more.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use super::{Owner, Place};
use crate::driver::Driver;
use crate::error::Error;
use crate::raw::{INVALID_VALUE, NOT_SUPPORTED, RANGE_FLAG_PCIE, RANGE_FLAG_PCIE_SINCE};

/// A file that names a GPU's memory. The memory stays while the file is open, or what registered it is.
#[derive(Debug)]
pub struct Exported {
    /// The file.
    pub file: OwnedFd,
    /// Where in it the range begins.
    pub offset: u64,
    /// Bytes of the range.
    pub len: usize,
}

impl Driver {
    /// Exports memory as a dma-buf, for whoever registers it himself.
    ///
    /// # Errors
    /// What kind of memory it is, if it cannot be; what the driver answered.
    pub fn export<O: Owner>(self, memory: &O) -> Result<Exported, Error> {
        let info = self.classify_device(memory.address(), memory.len())?;
        let place = Place::of(&info, memory.address());
        let (first, second) = flags(self.version()?, cfg!(target_arch = "aarch64"));
        let with = |flags| self.export_with(&place, memory, flags);
        with(first).or_else(|error| match second {
            Some(second) if is_refusal(&error) => with(second).map_err(|_| error),
            _ => Err(error),
        })
    }

    /// With given flags: the pages of the range; where the driver takes only whole allocations, those that have them.
    pub(super) fn export_with<O: Owner>(self, place: &Place, memory: &O, flags: u64) -> Result<Exported, Error> {
        let (address, len) = (memory.address(), memory.len());
        let page = page_size();
        let (base, size) = pages(address, len, page).ok_or(Error::Range { address, len: len as u64 })?;
        let export = |base: u64, size: u64| {
            let file = self.export_range(base, size as usize, flags)?;
            Ok(Exported { file, offset: address - base, len })
        };
        place.within(memory, |_| match export(base, size) {
            Err(error @ Error::Call(failed)) if failed.code == INVALID_VALUE => {
                let Ok((whole, bytes)) = self.address_range(address) else { return Err(error) };
                let end = whole.checked_add(bytes as u64);
                let covers = whole <= address && end.is_some_and(|end| address + len as u64 <= end);
                match pages(whole, bytes, page) {
                    Some(pages) if covers && pages != (base, size) => export(pages.0, pages.1).map_err(|_| error),
                    _ => Err(error),
                }
            }
            answer => answer,
        })?
    }
}

/// The flags to try, in their order: that of PCIe first where the GPU may hang on the CPU's own link, which aarch64 alone has, else
/// last; not at all on a driver that does not know it.
pub(super) fn flags(version: i32, linked: bool) -> (u64, Option<u64>) {
    match (version >= RANGE_FLAG_PCIE_SINCE, linked) {
        (false, _) => (0, None),
        (true, true) => (RANGE_FLAG_PCIE, Some(0)),
        (true, false) => (0, Some(RANGE_FLAG_PCIE)),
    }
}

/// Whether other flags may be answered otherwise.
pub(super) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Call(failed) if [INVALID_VALUE, NOT_SUPPORTED].contains(&failed.code))
}

/// The whole pages around a range.
fn pages(address: u64, len: usize, page: u64) -> Option<(u64, u64)> {
    let end = address.checked_add(len as u64)?.checked_next_multiple_of(page)?;
    let base = address - address % page;
    Some((base, end - base))
}

/// Bytes of a page of the host's: what the driver exports whole ones of.
fn page_size() -> u64 {
    // SAFETY: it takes nothing of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_exported_by_the_hosts_pages_around_it_and_no_more() {
        assert_eq!(pages(0x10_0200, 1, 4096), Some((0x10_0000, 4096)));
        assert_eq!(pages(0x10_0200, 0xE00, 4096), Some((0x10_0000, 4096)));
        assert_eq!(pages(0x10_0200, 0xE01, 4096), Some((0x10_0000, 8192)));
        assert_eq!(pages(0x10_0200, 1, 65536), Some((0x10_0000, 65536)));
        assert_eq!(pages(u64::MAX - 1, 8, 4096), None);
    }

    #[test]
    fn h25_the_pcie_flag_is_first_where_a_gpu_may_hang_on_the_cpus_link_and_never_on_an_older_driver() {
        assert_eq!(flags(12070, true), (0, None));
        assert_eq!(flags(12080, true), (RANGE_FLAG_PCIE, Some(0)));
        assert_eq!(flags(13000, false), (0, Some(RANGE_FLAG_PCIE)));
    }
}
