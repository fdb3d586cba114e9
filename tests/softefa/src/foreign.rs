//! Memory of the program's that it names by a file: a dma-buf, or a file in memory.
//!
//! It is mapped here, so that it lasts as long as what uses it. Its owner may cut the file off all the same: the bytes are
//! therefore moved by system calls alone ([`own::mover`](crate::own::mover)), to which that is a fault and not a signal.

#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use crate::errno::Errno;
use crate::mmap::{PAGE, pages};
use crate::sys;

/// A part of a program's file, mapped until this is dropped.
#[derive(Debug)]
pub struct Foreign {
    base: NonNull<u8>,
    len: usize,
    /// Where in the first page the part begins.
    at: usize,
}

// SAFETY: it names memory that system calls alone touch.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Maps a part of a file, to be written too or only read.
    ///
    /// # Errors
    /// As the kernel answers for a dma-buf: `EBADF` if there is no such file; `EINVAL` if it cannot be mapped so, or the
    /// part is empty or reaches beyond its end; `ENOMEM`.
    pub fn map(fd: RawFd, offset: u64, len: u64, writable: bool) -> Result<Self, Errno> {
        let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
        let ticket = Ticket::of(fd)?;
        let (fd, offset) = match &ticket {
            Some(ticket) if len == 0 || ticket.len < end => return Err(Errno::EINVAL),
            Some(ticket) => (ticket.fd, offset.checked_add(ticket.offset).ok_or(Errno::EINVAL)?),
            None => (fd, offset),
        };
        let end = offset.checked_add(len).ok_or(Errno::EINVAL)?;
        let size = sys::file_size(fd)?;
        if len == 0 || size.is_some_and(|size| size < end) {
            return Err(Errno::EINVAL);
        }
        let at = offset % PAGE as u64;
        let whole = usize::try_from(len + at).ok().and_then(pages).ok_or(Errno::EINVAL)?;
        let base = sys::map_file(fd, offset - at, whole, writable).map_err(|error| match error {
            Errno::EBADF | Errno::ENOMEM => error,
            _ => Errno::EINVAL,
        })?;
        let part = Self { base, len: whole, at: at as usize };
        // As pinning does; what is no ordinary memory is there anyway.
        sys::populate(base.as_ptr() as u64, whole as u64, writable).map_err(|_| Errno::ENOMEM)?;
        if let Some(Ticket { fd, told: Some(told), .. }) = ticket {
            Owner { mapped: base.as_ptr() as usize, len: whole, file: fd, told }.enter();
        }
        Ok(part)
    }

    /// The part's first byte.
    pub fn first(&self) -> NonNull<u8> {
        // SAFETY: inside the first page.
        unsafe { self.base.add(self.at) }
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        Owner::forget(self.base.as_ptr() as usize);
        // SAFETY: mapped in `map`; what used it by its address is gone.
        unsafe { sys::unmap(self.base, self.len) };
    }
}

/// Who is told that a device has read of a mapping.
#[derive(Clone, Copy)]
struct Owner {
    mapped: usize,
    len: usize,
    file: RawFd,
    told: extern "C" fn(RawFd),
}

static OWNERS: RwLock<Vec<Owner>> = RwLock::new(Vec::new());
/// As many as there are, so that who has none does not ask for the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Owner {
    fn enter(self) {
        let mut owners = OWNERS.write().unwrap_or_else(PoisonError::into_inner);
        owners.push(self);
        COUNT.store(owners.len(), Ordering::Relaxed);
    }

    fn forget(mapped: usize) {
        let mut owners = OWNERS.write().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|owner| owner.mapped != mapped);
        COUNT.store(owners.len(), Ordering::Relaxed);
    }
}

/// Tells the owner of a byte, if there is one, that a device has read it.
pub(crate) fn was_read(byte: *const u8) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let at = byte as usize;
    let owners = OWNERS.read().unwrap_or_else(PoisonError::into_inner);
    let owner = owners.iter().find(|owner| (owner.mapped..owner.mapped + owner.len).contains(&at)).copied();
    drop(owners);
    if let Some(Owner { file, told, .. }) = owner {
        told(file);
    }
}

/// A file of tests/fakecuda's, which stands for a dma-buf: it names a part of another file of this process, as no file
/// in memory could itself.
struct Ticket {
    fd: RawFd,
    offset: u64,
    len: u64,
    /// What is called after a read.
    told: Option<extern "C" fn(RawFd)>,
}

impl Ticket {
    /// What is first in one.
    const MAGIC: [u8; 8] = *b"FKDMABUF";

    /// `None` if the file is none.
    ///
    /// # Errors
    /// `EBADF` if there is no such file; what the ticket says, of one that is to be refused.
    fn of(fd: RawFd) -> Result<Option<Self>, Errno> {
        let mut words = [0; 6];
        if sys::file_size(fd)?.is_none() || sys::read_words_at(fd, &mut words)? != words.len() {
            return Ok(None);
        }
        let [magic, process, file, offset, len, told] = words;
        if magic != u64::from_ne_bytes(Self::MAGIC) || process != u64::from(std::process::id()) {
            return Ok(None);
        }
        let file = i32::try_from(file.cast_signed()).map_err(|_| Errno::EBADF)?;
        let fd = if file < 0 { return Err(Errno(file.saturating_neg())) } else { file };
        // SAFETY: by that word of this process' own it is such a function, or none.
        let told = unsafe { std::mem::transmute::<usize, Option<extern "C" fn(RawFd)>>(told as usize) };
        Ok(Some(Self { fd, offset, len, told }))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_part_of_a_file_is_the_same_bytes_and_nothing_beyond_its_end_is_mapped() {
        let file = sys::memfd().unwrap();
        sys::resize(&file, 10000).unwrap();
        let map = |offset, len| Foreign::map(file.as_raw_fd(), offset, len, true);
        let (whole, part) = (map(0, 10000).unwrap(), map(4100, 5900).unwrap());
        let (of_whole, of_part) = (whole.first().as_ptr().wrapping_add(4101), part.first().as_ptr().wrapping_add(1));
        // SAFETY: mapped, and the test's alone.
        unsafe { of_whole.write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { of_part.read() }, 7);
        for (offset, len) in [(0, 10001), (4100, 5901), (0, 0), (10000, 1), (u64::MAX, 2), (1 << 63, 1)] {
            assert_eq!(map(offset, len).map(drop), Err(Errno::EINVAL), "{len} from {offset}");
        }
    }

    #[test]
    fn a_ticket_is_the_part_of_the_file_that_it_names_and_nothing_beyond() {
        use std::io::Write;
        let file = sys::memfd().unwrap();
        sys::resize(&file, 16384).unwrap();
        static TOLD: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);
        extern "C" fn told(file: RawFd) {
            TOLD.store(file, Ordering::Relaxed);
        }
        let ticket_of = |file: i64, process: u64, offset: u64, len: u64| {
            let mut ticket = std::fs::File::from(sys::memfd().unwrap());
            let magic = u64::from_ne_bytes(Ticket::MAGIC);
            for word in
                [magic, process, file.cast_unsigned(), offset, len, told as extern "C" fn(RawFd) as usize as u64]
            {
                ticket.write_all(&word.to_ne_bytes()).unwrap();
            }
            ticket
        };
        let ticket = |process, offset, len| ticket_of(file.as_raw_fd().into(), process, offset, len);
        let me = u64::from(std::process::id());
        let (good, foreign, beyond) = (ticket(me, 4096, 8192), ticket(me ^ 1, 4096, 8192), ticket(me, 12288, 8192));
        let map = |ticket: &std::fs::File, offset, len| Foreign::map(ticket.as_raw_fd(), offset, len, true);
        let (whole, part) = (Foreign::map(file.as_raw_fd(), 0, 16384, true).unwrap(), map(&good, 4096, 4096).unwrap());
        // SAFETY: mapped, and the test's alone.
        unsafe { whole.first().as_ptr().wrapping_add(8192).write(9) };
        // SAFETY: as above.
        assert_eq!(unsafe { part.first().as_ptr().read() }, 9);
        assert_eq!(map(&good, 4096, 4097).map(drop), Err(Errno::EINVAL));
        assert_eq!(map(&good, 0, 0).map(drop), Err(Errno::EINVAL));
        assert_eq!(map(&beyond, 0, 8192).map(drop), Err(Errno::EINVAL));
        assert_eq!(map(&ticket_of(-524, me, 0, 8192), 0, 4096).map(drop), Err(Errno(524)));
        // Who exported it is told of reads in its part, and only there and so long.
        let heard = |byte: *const u8| {
            was_read(byte);
            TOLD.swap(-1, Ordering::Relaxed)
        };
        let first = part.first().as_ptr().cast_const();
        assert_eq!([heard(first), heard(whole.first().as_ptr())], [file.as_raw_fd(), -1]);
        drop(part);
        assert_eq!(heard(first), -1);
        // Of another process it is a file of no more than its words.
        assert_eq!(map(&foreign, 0, 4096).map(drop), Err(Errno::EINVAL));
    }

    #[test]
    fn what_is_no_file_in_memory_is_refused() {
        let (read, _write) = sys::pipe().unwrap();
        assert_eq!(Foreign::map(read.as_raw_fd(), 0, 1, false).map(drop), Err(Errno::EINVAL));
        assert_eq!(Foreign::map(-1, 0, 1, false).map(drop), Err(Errno::EBADF));
        assert_eq!(Foreign::map(1 << 29, 0, 1, false).map(drop), Err(Errno::EBADF));
    }

    #[test]
    fn a_file_that_was_cut_off_takes_and_gives_nothing_and_nobody_ends() {
        let file = sys::memfd().unwrap();
        sys::resize(&file, 8192).unwrap();
        let part = Foreign::map(file.as_raw_fd(), 0, 8192, true).unwrap();
        sys::resize(&file, 4096).unwrap();
        let mut byte = 5u8;
        let (here, there) = (&raw mut byte as u64, part.first().as_ptr() as u64);
        for (to, from, done) in [
            (there, here, Ok(())),
            (there + 4096, here, Err(Errno::EFAULT)),
            (here, there + 4096, Err(Errno::EFAULT)),
            (here, there, Ok(())),
        ] {
            // SAFETY: the bytes are the test's.
            assert_eq!(unsafe { sys::copy(to, from, 1) }, done);
        }
        assert_eq!(byte, 5);
    }
}
