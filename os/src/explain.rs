//! What an errno alone does not say: how much of the device and of the system's limits is in use (H08, H09, H15).

#![allow(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use efa_core::{Error, Gid, Limits, Verb};

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

/// An error of a device with what is known beside it; [`Device::explain`](crate::Device::explain) makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Explained {
    /// The error.
    pub error: Error,
    /// The device's limits.
    pub limits: Limits,
    /// The device's address.
    pub gid: Gid,
    /// Regions of this opening of the device.
    pub regions: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Queue pairs of this opening of the device.
    pub queue_pairs: u64,
    /// The bytes that this process may lock, soft and hard limit; `None` without one.
    pub memlock: [Option<u64>; 2],
}

impl Explained {
    pub(crate) fn new(error: Error, limits: Limits, gid: Gid, usage: &Usage) -> Self {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (regions, bytes, queue_pairs) = (count(&usage.regions), count(&usage.bytes), count(&usage.queue_pairs));
        Self { error, limits, gid, regions, bytes, queue_pairs, memlock: memlock() }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        let Error::Device { verb, errno } = self.error else { return Ok(()) };
        match (verb, errno) {
            (Verb::RegMr, libc::ENOMEM) => {
                let (regions, bytes, max) = (self.regions, self.bytes, self.limits.max_mr);
                write!(f, "; in use here: {regions} of {max} regions, {bytes} bytes; ")?;
                self.fmt_memlock(f)
            }
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

impl Explained {
    fn fmt_memlock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [soft, hard] = self.memlock;
        match (soft, hard) {
            (None, _) => f.write_str("RLIMIT_MEMLOCK has no limit"),
            (Some(soft), hard) => {
                write!(f, "RLIMIT_MEMLOCK is {soft} bytes, at most ")?;
                match hard {
                    Some(hard) => write!(f, "{hard}")?,
                    None => f.write_str("unlimited")?,
                }
                f.write_str(": raise it with `ulimit -l unlimited`, in a container with `--ulimit memlock=-1`")
            }
        }
    }
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
        Explained { memlock, ..Explained::new(Error::Device { verb, errno }, limits, gid, &usage) }
    }

    #[track_caller]
    fn says(text: &str, parts: &[&str]) {
        assert!(parts.iter().all(|part| text.contains(part)), "not all of {parts:?} in {text}");
    }

    #[test]
    fn h08_h09_memory_that_cannot_be_registered_names_both_budgets_and_the_way_to_more() {
        let text = explained(Verb::RegMr, libc::ENOMEM).to_string();
        says(&text, &["1 of 1000 regions", "4096 bytes", "RLIMIT_MEMLOCK is 65536 bytes, at most 131072"]);
        says(&text, &["ulimit -l unlimited", "--ulimit memlock=-1", "huge pages"]);
        let unlimited = Explained { memlock: [None, None], ..explained(Verb::RegMr, libc::ENOMEM) };
        says(&unlimited.to_string(), &["RLIMIT_MEMLOCK has no limit"]);
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
