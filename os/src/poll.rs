//! Waiting for a file.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use efa_core::{Error, Verb};

/// Whether a file becomes readable within that time.
pub(crate) fn readable(fd: BorrowedFd<'_>, most: Option<Duration>) -> Result<bool, Error> {
    let mut waiting = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up, so that the rest is not waited for by asking again and again.
    let timeout = most.map_or(-1, |most| i32::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: one struct of ours, of an open file.
    match unsafe { libc::poll(&mut waiting, 1, timeout) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match crate::error::errno() {
            libc::EINTR => Ok(false),
            errno => Err(Error::Device { verb: Verb::TakeEvent, errno }),
        },
    }
}
