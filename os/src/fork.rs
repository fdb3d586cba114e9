//! Whether a child process leaves registered memory where it was (R38).

#![allow(unsafe_code)]

use core::fmt;

use crate::Error;
use crate::ffi::*;
use crate::loader::{self, NeedsNewer, Table};

/// What becomes of registered memory when the process forks.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fork {
    /// The kernel copies such pages for the child: nothing has to be done. From Linux 5.13 on.
    Unneeded,
    /// libibverbs keeps such pages from the child (`RDMAV_FORK_SAFE`, `ibv_fork_init`), which takes whole pages, and goes
    /// wrong with huge ones.
    Enabled,
    /// Nobody does: after a fork the parent's registered pages may become copies, which the device does not see.
    Disabled,
    /// A number that this crate does not know.
    Unknown(i32),
}

impl Fork {
    /// Whether huge pages stay where they are when the process forks. libibverbs keeps them from the child only if it was told
    /// so by `RDMAV_HUGEPAGES_SAFE`: else it divides what cannot be divided.
    pub fn keeps_huge_pages(self) -> bool {
        self.keeps_if(std::env::var_os("RDMAV_HUGEPAGES_SAFE").is_some())
    }

    fn keeps_if(self, told_of_huge_pages: bool) -> bool {
        match self {
            Self::Unneeded => true,
            Self::Enabled => told_of_huge_pages,
            Self::Disabled | Self::Unknown(_) => false,
        }
    }
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unneeded => f.write_str("safe: the kernel copies registered pages for the child"),
            Self::Enabled if self.keeps_huge_pages() => f.write_str("safe by libibverbs, with huge pages too"),
            Self::Enabled => f.write_str(
                "safe by libibverbs, but not with huge pages: set RDMAV_HUGEPAGES_SAFE=1 as well, or use none, or a \
                 kernel from 5.13 on",
            ),
            Self::Disabled => f.write_str(
                "unsafe while memory is registered: do not fork, or start others by `posix_spawn`; or set RDMAV_FORK_SAFE=1 or \
                 IBV_FORK_SAFE=1 before the libraries are loaded (0 means no from rdma-core 40 on, and yes before), with huge \
                 pages RDMAV_HUGEPAGES_SAFE=1 too; or use a kernel from 5.13 on, where neither is needed",
            ),
            Self::Unknown(number) => write!(f, "unknown: libibverbs says {number}"),
        }
    }
}

/// Asks libibverbs, which asks the kernel.
///
/// # Errors
/// [`Error::Load`] without the libraries, [`Error::NeedsNewer`] before IBVERBS_1.13.
pub fn fork_safety() -> Result<Fork, Error> {
    Ok(asked(loader::table()?)?)
}

pub(crate) fn asked(table: &Table) -> Result<Fork, NeedsNewer> {
    // SAFETY: it takes nothing, and may be called at any time.
    let ForkStatus(status) = unsafe { table.ibv_is_fork_initialized() }?;
    Ok(match status {
        IBV_FORK_UNNEEDED => Fork::Unneeded,
        IBV_FORK_ENABLED => Fork::Enabled,
        IBV_FORK_DISABLED => Fork::Disabled,
        number => Fork::Unknown(number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r38_huge_pages_stay_if_the_kernel_copies_or_the_library_was_told_of_them_and_not_else() {
        let forks = [Fork::Unneeded, Fork::Enabled, Fork::Disabled, Fork::Unknown(9)];
        let stays = forks.map(|fork| [false, true].map(|told| fork.keeps_if(told)));
        assert_eq!(stays, [[true, true], [false, true], [false, false], [false, false]]);
        let text = Fork::Disabled.to_string();
        let parts = [
            "RDMAV_FORK_SAFE=1",
            "IBV_FORK_SAFE=1",
            "0 means no from rdma-core 40 on",
            "RDMAV_HUGEPAGES_SAFE=1",
            "5.13",
        ];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }

    #[cfg(feature = "system")]
    #[test]
    fn r38_the_library_says_whether_a_fork_is_safe() {
        let fork = fork_safety().unwrap();
        assert!(!matches!(fork, Fork::Unknown(_)), "{fork}");
        println!("figure: a fork is {fork}");
    }
}
