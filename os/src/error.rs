//! What can go wrong before there is a device, and all that core says besides.

#![forbid(unsafe_code)]

use core::fmt;

use crate::absent::Absent;
use crate::loader::{LoadError, NeedsNewer};

/// Why there is no device, or what core says of one. `Display` names the cause, the values and the remedy.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The libraries cannot be loaded.
    Load(LoadError),
    /// The libraries are older than what was asked for.
    NeedsNewer(NeedsNewer),
    /// There is no EFA device here.
    NoDevice {
        /// What is missing.
        absent: Absent,
        /// RDMA devices that are no EFA.
        others: Vec<String>,
    },
    /// The device is no EFA: its provider says so, whatever its name.
    NotEfa {
        /// Its name.
        device: String,
    },
    /// A call that opens or asks a device failed.
    Call {
        /// The C function.
        call: &'static str,
        /// The device's name.
        device: String,
        /// Its errno.
        errno: i32,
    },
    /// A variable of the environment has a value that is not understood.
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// No fabric of software devices has such a name.
    #[cfg(feature = "soft")]
    Fabric(crate::carrier::FabricError),
    /// A software device's address cannot be claimed.
    #[cfg(feature = "soft")]
    Claim(crate::carrier::ClaimError),
    /// There cannot be so many software devices.
    #[cfg(feature = "soft")]
    Linked(crate::carrier::LinkedError),
    /// What core or the device says of a call to it.
    Core(efa_core::Error),
}

impl core::error::Error for Error {}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<NeedsNewer> for Error {
    fn from(error: NeedsNewer) -> Self {
        Self::NeedsNewer(error)
    }
}

#[cfg(feature = "soft")]
impl From<crate::carrier::FabricError> for Error {
    fn from(error: crate::carrier::FabricError) -> Self {
        Self::Fabric(error)
    }
}

#[cfg(feature = "soft")]
impl From<crate::carrier::ClaimError> for Error {
    fn from(error: crate::carrier::ClaimError) -> Self {
        Self::Claim(error)
    }
}

#[cfg(feature = "soft")]
impl From<crate::carrier::LinkedError> for Error {
    fn from(error: crate::carrier::LinkedError) -> Self {
        Self::Linked(error)
    }
}

impl From<efa_core::Error> for Error {
    fn from(error: efa_core::Error) -> Self {
        Self::Core(error)
    }
}

impl<T> From<efa_core::Refused<T>> for Error {
    fn from(refused: efa_core::Refused<T>) -> Self {
        Self::Core(refused.error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::NeedsNewer(error) => error.fmt(f),
            Self::NoDevice { absent, others } if others.is_empty() => write!(f, "no EFA device: {absent}"),
            Self::NoDevice { absent, others } => write!(
                f,
                "no EFA device: {absent}; other RDMA devices are here: {}, which are no EFA",
                others.join(", ")
            ),
            Self::NotEfa { device } => write!(f, "{device} is no EFA device: take another from `efa_os::list()`"),
            Self::Call { call, device, errno } => {
                write!(f, "{call} failed for {device}: {}", std::io::Error::from_raw_os_error(*errno))?;
                match *errno {
                    libc::EACCES | libc::EPERM => f.write_str(
                        "; its file in /dev/infiniband may not be opened by this user: in a container, pass it in with \
                         `--device /dev/infiniband`",
                    ),
                    libc::ENOMEM => f.write_str("; the device or RLIMIT_MEMLOCK has no room for another context"),
                    _ => Ok(()),
                }
            }
            Self::Variable { name, value, accepted } => write!(f, "{name} is {value:?}: it may be {accepted}"),
            #[cfg(feature = "soft")]
            Self::Fabric(error) => error.fmt(f),
            #[cfg(feature = "soft")]
            Self::Claim(error) => error.fmt(f),
            #[cfg(feature = "soft")]
            Self::Linked(error) => error.fmt(f),
            Self::Core(error) => error.fmt(f),
        }
    }
}

/// A C call's answer: zero, an errno, its negative, or -1 with errno set.
pub(crate) fn answer(returned: i32) -> Result<(), i32> {
    match returned {
        0 => Ok(()),
        -1 => Err(errno()),
        other => Err(other.unsigned_abs().cast_signed()),
    }
}

/// The errno that a call left that gave nothing; never zero, which would say "Success".
pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().filter(|errno| *errno > 0).unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_c_to_say_no_is_an_errno_and_none_says_success() {
        assert_eq!(answer(0), Ok(()));
        assert_eq!(answer(22), Err(22));
        assert_eq!(answer(-95), Err(95));
        assert!(answer(-1).is_err_and(|errno| errno > 0));
        assert!(errno() > 0);
        let call = Error::Call { call: "ibv_open_device", device: "efa_0".to_owned(), errno: libc::EACCES };
        assert!(call.to_string().contains("--device /dev/infiniband"), "{call}");
    }
}
