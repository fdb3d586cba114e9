//! The kernel's error numbers.

#![forbid(unsafe_code)]

/// What a system call answers instead of a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub const $name: Self = Self(libc::$name);
            )*
        }
    };
}

errnos!(EBADF EBUSY EFAULT EINTR EINVAL EIO ENODEV ENOENT ENOMEM ENOSPC ENOSYS ENOTTY EOPNOTSUPP EPERM EPROTONOSUPPORT);

impl From<efa_core::Error> for Errno {
    /// What the kernel's driver answers where the device says so.
    fn from(error: efa_core::Error) -> Self {
        use efa_core::Error;
        match error {
            Error::Device { errno, .. } => Self(errno),
            Error::Unsupported { .. } => Self::EOPNOTSUPP,
            Error::Exhausted { .. } | Error::OutOfMemory { .. } => Self::ENOMEM,
            _ => Self::EINVAL,
        }
    }
}
