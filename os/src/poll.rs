//! Waiting for a file.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use efa_core::{Error, Verb};

/// Whether a file becomes readable within that time.
///
/// # Errors
/// What the system answered; EIO of a file that will not be readable any more.
pub(crate) fn readable(fd: BorrowedFd<'_>, most: Option<Duration>) -> Result<bool, Error> {
    let mut waiting = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up, so that the rest is not waited for by asking again and again.
    let timeout = most.map_or(-1, |most| i32::try_from(most.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: one struct of ours, of an open file.
    match unsafe { libc::poll(&mut waiting, 1, timeout) } {
        0 => Ok(false),
        // Else whoever waits would look again at once, for ever.
        1.. if waiting.revents & libc::POLLIN == 0 => Err(Error::Device { verb: Verb::TakeEvent, errno: libc::EIO }),
        1.. => Ok(true),
        _ => match crate::error::errno() {
            libc::EINTR => Ok(false),
            errno => Err(Error::Device { verb: Verb::TakeEvent, errno }),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_readable_or_not_yet_or_never_again() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let most = Some(Duration::from_millis(1));
        assert_eq!(readable(reader.as_fd(), most), Ok(false));
        writer.write_all(&[1]).unwrap();
        drop(writer);
        assert_eq!(readable(reader.as_fd(), most), Ok(true), "what was written before the end");
        std::io::Read::read_exact(&mut &reader, &mut [0]).unwrap();
        let error = Error::Device { verb: Verb::TakeEvent, errno: libc::EIO };
        assert_eq!(readable(reader.as_fd(), None), Err(error));
    }
}
