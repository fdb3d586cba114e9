//! What an errno alone does not say: what was refused, and how much of the device and of the system's limits is in use
//! (H08, H09, H12, H15).

#![allow(unsafe_code)]

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use efa_core::flags::Access;
use efa_core::memory::{MemoryKind, RawMemory};
use efa_core::{Error, Gid, Limits, Verb};

use crate::handle::WRITABLE_PAGES;
use crate::memory::page_size;

/// What is in use of a device, by this process and this opening of it.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    regions: AtomicU64,
    bytes: AtomicU64,
    queue_pairs: AtomicU64,
}

impl Usage {
    pub(crate) fn registered(&self, bytes: usize) {
        self.regions.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn deregistered(&self, bytes: usize) {
        self.regions.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn queue_pair_made(&self) {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn queue_pair_gone(&self) {
        self.queue_pairs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Memory that was refused: what its registration was asked for with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedRegion {
    /// Where it begins, in this program or, of a file's memory, in the file.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The rights that were asked for.
    pub access: Access,
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// Whether the CPU sees it.
    pub visible: bool,
    /// Bytes of its file, if it has one that tells.
    pub file_bytes: Option<u64>,
}

thread_local! {
    /// What this thread was refused last, by which opening of a device, and why.
    static REFUSED: Cell<Option<(usize, Error, RefusedRegion)>> = const { Cell::new(None) };
}

/// Which opening of a device it is.
fn identity(usage: &Usage) -> usize {
    core::ptr::from_ref(usage).addr()
}

impl RefusedRegion {
    /// Keeps it for whoever asks next why: an errno alone does not say.
    pub(crate) fn note(usage: &Usage, memory: &RawMemory, access: Access, error: Error) {
        let (parts, kind) = (memory.parts(), memory.kind());
        let (address, file_bytes) = match kind {
            MemoryKind::File(file) => (file.offset, file_len(file.fd)),
            _ => (parts.base.addr().get() as u64, None),
        };
        let visible = memory.is_visible();
        let region = Self { address, len: parts.len as u64, access, kind, visible, file_bytes };
        REFUSED.set(Some((identity(usage), error, region)));
    }

    fn why(error: Error, usage: &Usage) -> Option<Self> {
        REFUSED.get().filter(|(of, why, _)| *of == identity(usage) && *why == error).map(|(_, _, region)| region)
    }

    /// Pages of the system's that it touches: what the device needs at most.
    fn pages(&self) -> u64 {
        let page = match self.kind {
            MemoryKind::HugePages { bytes, .. } => bytes as u64,
            _ => page_size(),
        };
        (self.address % page).saturating_add(self.len).div_ceil(page)
    }
}

impl fmt::Display for RefusedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = if self.visible { "" } else { ", which the CPU does not see" };
        write!(f, "{} bytes at {:#x}, {}{seen}, for {:?}", self.len, self.address, self.kind, self.access)
    }
}

/// Bytes of a file, if it has an end.
fn file_len(fd: i32) -> Option<u64> {
    let seek = |offset, whence| {
        // SAFETY: the file is of memory that is still owned.
        unsafe { libc::lseek(fd, offset, whence) }
    };
    let (now, end) = (seek(0, libc::SEEK_CUR), seek(0, libc::SEEK_END));
    if now >= 0 {
        // Where the next read begins, in a file that has such a place.
        seek(now, libc::SEEK_SET);
    }
    u64::try_from(end).ok()
}

/// An error of a device with what is known beside it; [`Device::explain`](crate::Device::explain) makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The error.
    pub error: Error,
    /// The device's name.
    pub device: String,
    /// The device's limits.
    pub limits: Limits,
    /// The device's address.
    pub gid: Gid,
    /// The memory that this thread was just refused for this error.
    pub refused: Option<RefusedRegion>,
    /// Regions of this opening of the device.
    pub regions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Queue pairs of this opening of the device.
    pub queue_pairs: u64,
    /// The bytes that this process may lock, soft and hard limit; `None` without one.
    pub memlock: [Option<u64>; 2],
    /// Bytes that this process has locked and pinned, where the system tells.
    pub locked: [Option<u64>; 2],
}

impl Explained {
    pub(crate) fn new(error: Error, device: &str, limits: Limits, gid: Gid, usage: &Usage) -> Self {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            error,
            device: device.to_owned(),
            limits,
            gid,
            refused: RefusedRegion::why(error, usage),
            regions: count(&usage.regions),
            bytes: count(&usage.bytes),
            queue_pairs: count(&usage.queue_pairs),
            memlock: memlock(),
            locked: ["VmLck", "VmPin"].map(|name| kilobytes(&status, name)),
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.error)?;
        if let Some(region) = &self.refused {
            write!(f, "; it was to register {region}")?;
        }
        if self.error == Error::HugePagesAndFork {
            return crate::fork_safety().map_or(Ok(()), |fork| write!(f, "; a fork is {fork}"));
        }
        let Error::Device { verb, errno } = self.error else { return Ok(()) };
        match (verb, errno) {
            (Verb::RegMr, libc::ENOMEM) => {
                self.fmt_regions(f)?;
                self.fmt_memlock(f)
            }
            (Verb::RegMr, _) => self.refused.map_or(Ok(()), |region| region.fmt_reason(errno, f)),
            (Verb::CreateCq | Verb::CreateQp, libc::ENOMEM) => {
                let (used, max) = (self.queue_pairs, self.limits.max_qp);
                write!(f, "; in use here: {used} of {max} queue pairs, one of which serves any number of peers; ")?;
                self.fmt_memlock(f)
            }
            (Verb::CreateAh, libc::EINVAL) => write!(f, "; the address of this device is {}", self.gid),
            _ => Ok(()),
        }
    }
}

impl RefusedRegion {
    /// What such an errno means for such memory.
    fn fmt_reason(&self, errno: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The kernel's own, which it should keep to itself: the exporter refused the device.
        const ENOTSUPP: i32 = 524;
        match (self.kind, errno) {
            (MemoryKind::File(file), libc::EINVAL) => match self.file_bytes {
                Some(bytes) if file.offset.checked_add(self.len).is_none_or(|end| end > bytes) => {
                    write!(f, "; its file has {bytes} bytes, and it would end beyond them")
                }
                _ => f.write_str("; is its file a dma-buf?"),
            },
            (MemoryKind::File(_), libc::ENOSYS) => {
                f.write_str("; this libibverbs has no ibv_reg_dmabuf_mr, which comes with IBVERBS_1.12 (rdma-core 34)")
            }
            (MemoryKind::File(_), libc::EOPNOTSUPP) => f.write_str(
                "; a dma-buf takes Linux 5.12 and an efa driver that imports them: the kernel's own from 5.16 on, AWS's from \
                 1.16 on; rights that the device lacks are refused likewise",
            ),
            (MemoryKind::File(_), ENOTSUPP) => {
                f.write_str("; the driver that exported it does not let this device reach it, where they stand on the bus")
            }
            (_, libc::EFAULT) if !self.visible => f.write_str(
                "; memory of a GPU's is registered by its address only where the efa driver was built for that: export it as a \
                 dma-buf, and register that",
            ),
            (_, libc::EFAULT) => f.write_str("; it is not mapped, or is read-only"),
            (_, libc::EOPNOTSUPP) => f.write_str("; the device lacks one of these rights, or has no page of a size that fits"),
            _ => Ok(()),
        }
    }
}

impl Explained {
    /// The device's own budgets: how many regions, and pages.
    fn fmt_regions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (regions, bytes, max, page) = (self.regions, self.bytes, self.limits.max_mr, page_size());
        write!(f, "; in use here: {regions} of {max} regions, {bytes} bytes")?;
        write!(f, ", which are {} pages of {page} bytes at most, of which a device has so many for all its users", {
            bytes.div_ceil(page)
        })?;
        match &self.refused {
            Some(region) if region.access.contains(Access::REMOTE_WRITE) => {
                write!(f, "; this region takes up to {} more, of {WRITABLE_PAGES} that one has if peers may write", {
                    region.pages()
                })?;
            }
            Some(region) => write!(f, "; this region takes up to {} more", region.pages())?,
            None => {}
        }
        f.write_str("; ")
    }

    /// The system's budget.
    fn fmt_memlock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [soft, hard] = self.memlock;
        match soft {
            None => f.write_str("RLIMIT_MEMLOCK has no limit")?,
            Some(soft) => {
                write!(f, "RLIMIT_MEMLOCK is {soft} bytes, at most ")?;
                match hard {
                    Some(hard) => write!(f, "{hard}")?,
                    None => f.write_str("unlimited")?,
                }
            }
        }
        if let [Some(locked), Some(pinned)] = self.locked {
            write!(f, ", of which {locked} are locked and {pinned} pinned now")?;
        }
        match soft {
            None => Ok(()),
            Some(_) => f.write_str(": raise it with `ulimit -l unlimited`, in a container with `--ulimit memlock=-1`"),
        }
    }
}

/// A number of bytes in /proc/self/status.
fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn memlock() -> [Option<u64>; 2] {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a struct of ours.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    [limit.rlim_cur, limit.rlim_max].map(|bytes| (bytes != libc::RLIM_INFINITY).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(verb: Verb, errno: i32) -> Explained {
        let limits = Limits {
            max_qp: 256,
            max_cq: 0,
            max_mr: 1000,
            max_pd: 0,
            max_ah: 0,
            max_mr_size: 0,
            max_msg_size: 0,
            max_rdma_size: 0,
            max_send_depth: 0,
            min_send_depth: 0,
            max_recv_depth: 0,
            max_send_sge: 0,
            max_recv_sge: 0,
            max_inline: 0,
            max_inline_wide: 0,
            max_cqe: 0,
            max_batch: 0,
        };
        let usage = Usage::default();
        usage.registered(4096);
        usage.registered(100);
        usage.deregistered(100);
        usage.queue_pair_made();
        let memlock = [Some(65_536), Some(131_072)];
        let gid = Gid::from_parts(0xFE80 << 48, 5);
        let locked = [Some(4096), Some(61_440)];
        let error = Error::Device { verb, errno };
        if verb == Verb::RegMr {
            let memory = RawMemory::new(vec![0u8; 10_000]);
            RefusedRegion::note(&usage, &memory, Access::REMOTE_WRITE | Access::LOCAL_WRITE, error);
        }
        Explained { memlock, locked, ..Explained::new(error, "rdmap0s6", limits, gid, &usage) }
    }

    #[track_caller]
    fn says(text: &str, parts: &[&str]) {
        assert!(parts.iter().all(|part| text.contains(part)), "not all of {parts:?} in {text}");
    }

    #[test]
    fn h08_h09_memory_that_cannot_be_registered_names_both_budgets_and_the_way_to_more() {
        let text = explained(Verb::RegMr, libc::ENOMEM).to_string();
        says(&text, &["1 of 1000 regions", "4096 bytes", "RLIMIT_MEMLOCK is 65536 bytes, at most 131072"]);
        says(&text, &["ulimit -l unlimited", "--ulimit memlock=-1", "huge pages", "4096 are locked and 61440 pinned"]);
        let unlimited = Explained { memlock: [None, None], ..explained(Verb::RegMr, libc::ENOMEM) };
        says(&unlimited.to_string(), &["RLIMIT_MEMLOCK has no limit"]);
    }

    #[test]
    fn r36_a_region_that_peers_write_and_was_refused_for_want_of_memory_is_told_with_its_pages_and_their_bound() {
        let pages = 10_000u64.div_ceil(page_size());
        let text = explained(Verb::RegMr, libc::ENOMEM).to_string();
        let ours =
            |text: &str| [pages, pages + 1].iter().any(|pages| text.contains(&format!("takes up to {pages} more")));
        assert!(ours(&text), "{text}");
        says(&text, &["of 1048576 that one has if peers may write", "1 pages of"]);
    }

    #[test]
    fn h12_a_refused_registration_is_told_with_all_that_it_was_asked_for_with() {
        let text = explained(Verb::RegMr, libc::EFAULT).to_string();
        says(
            &text,
            &["rdmap0s6: ", "10000 bytes at 0x", "ordinary memory", "LOCAL_WRITE | REMOTE_WRITE", "not mapped"],
        );
        // Another error, another thread's or another device's says nothing of it.
        let usage = Usage::default();
        let error = Error::Device { verb: Verb::RegMr, errno: libc::EFAULT };
        assert_eq!(RefusedRegion::why(error, &usage), None);
        RefusedRegion::note(&usage, &RawMemory::new(vec![0u8; 1]), Access::LOCAL_WRITE, error);
        assert!(RefusedRegion::why(error, &usage).is_some_and(|region| region.len == 1 && region.visible));
        assert_eq!(RefusedRegion::why(Error::ZeroLength, &usage), None);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(RefusedRegion::why(error, &usage), None)).join()).unwrap();
    }

    #[test]
    fn each_refusal_of_a_files_memory_is_told_with_its_cause() {
        let region = |offset, file_bytes| {
            let kind = MemoryKind::File(efa_core::memory::MemoryFile { fd: 7, offset, iova: offset });
            let access = Access::LOCAL_WRITE;
            RefusedRegion { address: offset, len: 100, access, kind, visible: false, file_bytes }
        };
        let text = |region: RefusedRegion, errno| {
            let explained = explained(Verb::RegMr, errno);
            Explained { refused: Some(region), ..explained }.to_string()
        };
        says(
            &text(region(4096, Some(4100)), libc::EINVAL),
            &["file 7", "does not see", "has 4100 bytes", "end beyond"],
        );
        says(&text(region(0, Some(4096)), libc::EINVAL), &["is its file a dma-buf?"]);
        says(&text(region(0, None), libc::ENOSYS), &["IBVERBS_1.12 (rdma-core 34)"]);
        says(&text(region(0, None), libc::EOPNOTSUPP), &["5.16", "1.16"]);
        says(&text(region(0, None), 524), &["on the bus"]);
        let by_address = RefusedRegion { kind: MemoryKind::Ordinary, ..region(0, None) };
        says(&text(by_address, libc::EFAULT), &["export it as a dma-buf"]);
    }

    #[test]
    fn h15_queue_pairs_that_ran_out_are_counted_against_what_there_is() {
        says(&explained(Verb::CreateQp, libc::ENOMEM).to_string(), &["1 of 256 queue pairs", "any number of peers"]);
    }

    #[test]
    fn r28_an_address_that_is_refused_says_all_causes_and_our_own_address() {
        let text = explained(Verb::CreateAh, libc::EINVAL).to_string();
        says(&text, &["availability zone", "GID is wrong", "protection domain", "fe80::5"]);
    }
}
