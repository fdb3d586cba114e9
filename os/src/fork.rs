//! Whether a child process leaves registered memory where it was (R38).

#![allow(unsafe_code)]

use core::fmt;

use crate::Error;
use crate::ffi::*;
use crate::loader;

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

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unneeded => f.write_str("safe: the kernel copies registered pages for the child"),
            Self::Enabled => f.write_str("safe by libibverbs, but not with huge pages: use none, or a kernel from 5.13 on"),
            Self::Disabled => f.write_str(
                "unsafe while memory is registered: do not fork, or start others by `posix_spawn`; or set RDMAV_FORK_SAFE=1 \
                 before the first device is opened; or use a kernel from 5.13 on",
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
    // SAFETY: it takes nothing, and may be called at any time.
    let ForkStatus(status) = unsafe { loader::table()?.ibv_is_fork_initialized() }?;
    Ok(match status {
        IBV_FORK_UNNEEDED => Fork::Unneeded,
        IBV_FORK_ENABLED => Fork::Enabled,
        IBV_FORK_DISABLED => Fork::Disabled,
        number => Fork::Unknown(number),
    })
}

#[cfg(all(test, feature = "system"))]
mod tests {
    use super::*;

    #[test]
    fn r38_the_library_says_whether_a_fork_is_safe() {
        let fork = fork_safety().unwrap();
        assert!(!matches!(fork, Fork::Unknown(_)), "{fork}");
        println!("figure: a fork is {fork}");
    }
}
