//! Mappings of huge pages, of which a device needs fewer (R36).

#![allow(unsafe_code)]

use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use efa_core::memory::{DmaBuf, MemoryKind, RawParts, Visible};

use crate::error::errno;

/// How large a huge page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePageSize {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugePageSize {
    /// Bytes.
    pub const fn bytes(self) -> usize {
        1 << self.log()
    }

    const fn log(self) -> u32 {
        match self {
            Self::Mib2 => 21,
            Self::Gib1 => 30,
        }
    }

    /// The kernel's folder of this size.
    fn folder(self) -> String {
        format!("/sys/kernel/mm/hugepages/hugepages-{}kB", self.bytes() >> 10)
    }
}

impl fmt::Display for HugePageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mib2 => "2 MiB",
            Self::Gib1 => "1 GiB",
        })
    }
}

/// Zeroed memory of huge pages, which the system keeps apart and an administrator sets aside.
///
/// Registering it is refused where a fork would tear it from the device (R38), unless it is said that there is none.
#[derive(Debug)]
pub struct HugePages {
    base: NonNull<u8>,
    len: usize,
    size: HugePageSize,
    never_forks: bool,
}

// SAFETY: it owns its mapping.
unsafe impl Send for HugePages {}
// SAFETY: shared, it only reads it.
unsafe impl Sync for HugePages {}

impl HugePages {
    /// At least `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// [`NoHugePages`] with how many there are, and how to have more.
    pub fn new(len: usize, size: HugePageSize) -> Result<Self, NoHugePages> {
        let refused = |errno| NoHugePages::of(len, size, errno);
        let len = len.max(1).checked_next_multiple_of(size.bytes()).ok_or_else(|| refused(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        let flags = flags | (size.log() << libc::MAP_HUGE_SHIFT).cast_signed();
        let (none, access) = (core::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a mapping of its own, wherever there is room.
        let base = unsafe { libc::mmap(none, len, access, flags, -1, 0) };
        match NonNull::new(base).filter(|base| base.as_ptr() != libc::MAP_FAILED) {
            Some(base) => Ok(Self { base: base.cast(), len, size, never_forks: false }),
            None => Err(refused(errno())),
        }
    }

    /// The word that this process does not fork while the memory is registered, or that its children at once execute
    /// another program. If it is broken the device and the parent may see different pages from then on.
    pub fn never_forks(mut self) -> Self {
        self.never_forks = true;
        self
    }

    /// How large its pages are.
    pub fn page_size(&self) -> HugePageSize {
        self.size
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Deref for HugePages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped in `new`, zeroed by the kernel.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for HugePages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

/// In [`RawParts::extra`]: that it never forks. The rest is the size.
const NEVER_FORKS: usize = 1;

// SAFETY: it owns its bytes, which are mapped until it is dropped; as raw parts nothing else reaches them.
unsafe impl DmaBuf for HugePages {
    type View = Visible;

    fn kind(&self) -> MemoryKind {
        MemoryKind::HugePages { bytes: self.size.bytes(), never_forks: self.never_forks }
    }

    fn into_raw(self) -> RawParts {
        let this = core::mem::ManuallyDrop::new(self);
        let extra = this.size.bytes() | if this.never_forks { NEVER_FORKS } else { 0 };
        RawParts { base: this.base, len: this.len, extra }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        let (size, never_forks) = (parts.extra & !NEVER_FORKS, parts.extra & NEVER_FORKS != 0);
        let size = if size == HugePageSize::Mib2.bytes() { HugePageSize::Mib2 } else { HugePageSize::Gib1 };
        Self { base: parts.base, len: parts.len, size, never_forks }
    }
}

/// Huge pages were asked for that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoHugePages {
    /// Bytes asked for.
    pub bytes: usize,
    /// In pages of this size.
    pub size: HugePageSize,
    /// The system's errno.
    pub errno: i32,
    /// Pages of this size that the system has, and those of them that nobody has; `None` if it knows no such size.
    pub pages: Option<[u64; 2]>,
}

impl NoHugePages {
    fn of(bytes: usize, size: HugePageSize, errno: i32) -> Self {
        Self { bytes, size, errno, pages: counts(size) }
    }

    /// Pages that so many bytes take.
    fn needed(&self) -> usize {
        self.bytes.div_ceil(self.size.bytes()).max(1)
    }
}

impl core::error::Error for NoHugePages {}

impl fmt::Display for NoHugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, size) = (self.needed(), self.size);
        write!(f, "no {needed} huge pages of {size}: {}; ", std::io::Error::from_raw_os_error(self.errno))?;
        match self.pages {
            Some([total, free]) => write!(
                f,
                "the system has {total}, of which {free} are free: set more aside with `echo {} > {}/nr_hugepages` as root, \
                 best when it starts, while memory is whole",
                total.saturating_add((needed as u64).saturating_sub(free)),
                size.folder()
            ),
            None => write!(
                f,
                "the system offers no pages of this size: it starts with them by the kernel's parameters \
                 `hugepagesz={} hugepages={needed}`",
                if size == HugePageSize::Mib2 { "2M" } else { "1G" }
            ),
        }
    }
}

/// How many pages of a size there are, and are free: of the size's own folder, or, of the system's usual one, of
/// /proc/meminfo, which a container has where it does not show the other.
fn counts(size: HugePageSize) -> Option<[u64; 2]> {
    let number = |file: &str| std::fs::read_to_string(format!("{}/{file}", size.folder())).ok()?.trim().parse().ok();
    match (number("nr_hugepages"), number("free_hugepages")) {
        (Some(total), Some(free)) => Some([total, free]),
        _ => counts_of(&std::fs::read_to_string("/proc/meminfo").ok()?, size),
    }
}

fn counts_of(meminfo: &str, size: HugePageSize) -> Option<[u64; 2]> {
    let number = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let usual = number("Hugepagesize")?.checked_mul(1024)? == size.bytes() as u64;
    if usual { Some([number("HugePages_Total")?, number("HugePages_Free")?]) } else { None }
}

/// Bytes of the system's ordinary pages.
pub(crate) fn page_size() -> u64 {
    // SAFETY: it takes nothing of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_are_not_there_are_told_with_how_many_there_are_and_how_to_have_more() {
        let error = NoHugePages { bytes: 5 << 20, size: HugePageSize::Mib2, errno: libc::ENOMEM, pages: Some([4, 1]) };
        let text = error.to_string();
        for part in
            ["no 3 huge pages of 2 MiB", "has 4, of which 1 are free", "echo 6 >", "hugepages-2048kB/nr_hugepages"]
        {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let unknown = NoHugePages { size: HugePageSize::Gib1, pages: None, ..error }.to_string();
        assert!(unknown.contains("hugepagesz=1G hugepages=1"), "{unknown}");
    }

    #[test]
    fn the_systems_own_count_is_of_its_usual_size_alone() {
        let meminfo =
            "MemTotal: 1 kB\nHugePages_Total:      12\nHugePages_Free:        7\nHugepagesize:       2048 kB\n";
        assert_eq!(counts_of(meminfo, HugePageSize::Mib2), Some([12, 7]));
        assert_eq!(counts_of(meminfo, HugePageSize::Gib1), None);
        assert_eq!(counts_of("MemTotal: 1 kB\n", HugePageSize::Mib2), None);
    }

    #[test]
    fn huge_pages_are_zeroed_whole_and_come_back_as_they_were_or_say_why_there_are_none() {
        for size in [HugePageSize::Mib2, HugePageSize::Gib1] {
            // More than any machine has.
            let error = HugePages::new(1 << 46, size).unwrap_err();
            assert_eq!((error.bytes, error.size), (1 << 46, size), "{error}");
            assert!(HugePages::new(usize::MAX, size).is_err());
            let Ok(mut pages) = HugePages::new(1, size).map(HugePages::never_forks) else {
                println!("skipped: no huge pages of {size} here");
                continue;
            };
            assert_eq!((pages.len(), pages[0], pages[pages.len() - 1]), (size.bytes(), 0, 0));
            pages[1] = 7;
            let raw = pages.into_raw();
            // SAFETY: the parts of just now, once.
            let again = unsafe { HugePages::from_raw(raw) };
            assert_eq!((again[1], again.page_size()), (7, size));
            let kind = MemoryKind::HugePages { bytes: size.bytes(), never_forks: true };
            assert_eq!(again.kind(), kind);
        }
    }
}
