//! The system calls that this library makes, as such: libc's functions of the same names may be this library's.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::errno::Errno;

/// What `libc::syscall` answered, as a result.
fn result(answer: i64) -> Result<i64, Errno> {
    if answer >= 0 { Ok(answer) } else { Err(last()) }
}

fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: the system call before gave this file to us alone.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// A pipe: where it is read, and where it is written, which never blocks.
///
/// # Errors
/// What the system answered.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut fds = [0i32; 2];
    // SAFETY: there is room for two numbers.
    result(unsafe { libc::syscall(libc::SYS_pipe2, fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    let (read, write) = (owned(fds[0].into()), owned(fds[1].into()));
    // SAFETY: the file is ours, and its other end is a description of its own.
    result(unsafe { libc::syscall(libc::SYS_fcntl, write.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok((read, write))
}

/// Another number for the same open file.
///
/// # Errors
/// What the system answered.
pub fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    // SAFETY: plain numbers.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) }).map(owned)
}

/// Writes; a pipe takes so few bytes as a whole, or none.
///
/// # Errors
/// What the system answered.
pub fn write(fd: RawFd, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY: the bytes are there.
    result(unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) }).map(|_| ())
}

/// Reads what is there, up to the room.
///
/// # Errors
/// What the system answered.
pub fn read(fd: &OwnedFd, room: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the room is there.
    let read = result(unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), room.as_mut_ptr(), room.len()) })?;
    Ok(read as usize)
}

/// Moves up to `len` bytes from a pipe to another, and never waits, whatever the first one's flags say.
pub fn splice(from: &OwnedFd, to: &OwnedFd, len: usize) -> usize {
    let none = std::ptr::null_mut::<i64>();
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: pipes have no offsets, and none are given.
    let moved = unsafe { libc::syscall(libc::SYS_splice, from, none, to, none, len, libc::SPLICE_F_NONBLOCK) };
    usize::try_from(moved).unwrap_or(0)
}

/// Memory that is a file.
///
/// # Errors
/// What the system answered.
pub fn memfd() -> Result<OwnedFd, Errno> {
    // SAFETY: the name is a C string.
    result(unsafe { libc::syscall(libc::SYS_memfd_create, c"softefa".as_ptr(), libc::MFD_CLOEXEC) }).map(owned)
}

/// Makes a file that long.
///
/// # Errors
/// What the system answered.
pub fn resize(fd: &OwnedFd, len: u64) -> Result<(), Errno> {
    // SAFETY: plain numbers.
    result(unsafe { libc::syscall(libc::SYS_ftruncate, fd.as_raw_fd(), len) }).map(|_| ())
}

/// Gives a part of a file's memory back to the system: it reads as zeros from then on.
pub fn punch(fd: &OwnedFd, offset: u64, len: usize) {
    let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_fallocate, fd.as_raw_fd(), how, offset, len) };
}

/// Maps a part of a file where a forked child has nothing.
///
/// # Errors
/// What the system answered.
pub fn map(fd: &OwnedFd, offset: u64, len: usize) -> Result<NonNull<u8>, Errno> {
    map_file(fd.as_raw_fd(), offset, len, true)
}

/// [`map`] of a file that may be anybody's, to be written too or only read.
///
/// # Errors
/// What the system answered.
pub fn map_file(fd: RawFd, offset: u64, len: usize, writable: bool) -> Result<NonNull<u8>, Errno> {
    let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
    let anywhere = std::ptr::null_mut::<u8>();
    // SAFETY: the system chooses where, so nothing is replaced.
    let base = unsafe { libc::syscall(libc::SYS_mmap, anywhere, len, protection, libc::MAP_SHARED, fd, offset) };
    let base = result(base)? as *mut u8;
    // SAFETY: just mapped.
    unsafe { libc::syscall(libc::SYS_madvise, base, len, libc::MADV_DONTFORK) };
    NonNull::new(base).ok_or(Errno::ENOMEM)
}

/// Undoes [`map`].
///
/// # Safety
/// `base` and `len` are of a mapping that nobody uses.
pub unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: by the caller's word.
    unsafe { libc::syscall(libc::SYS_munmap, base.as_ptr(), len) };
}

/// Copies between two places of this process, either of which may not be there.
///
/// # Safety
/// What is written is nobody's who minds.
pub unsafe fn copy(to: u64, from: u64, len: usize) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let part = (len - done).min(MOST);
        let (to, from) = (to.wrapping_add(done as u64), from.wrapping_add(done as u64));
        // SAFETY: by the caller's word.
        unsafe { copy_part(to, from, part) }?;
        done += part;
    }
    Ok(())
}

/// Bytes of one call: the system moves no more than 2 GiB less a page.
const MOST: usize = 1 << 30;

/// # Safety
/// As for [`copy`].
unsafe fn copy_part(to: u64, from: u64, len: usize) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: from as *mut _, iov_len: len };
    let remote = libc::iovec { iov_base: to as *mut _, iov_len: len };
    let (local, remote): (*const libc::iovec, *const libc::iovec) = (&local, &remote);
    // SAFETY: the vectors are there; what they name is checked by the system.
    let copied = unsafe { libc::syscall(libc::SYS_process_vm_writev, process_id(), local, 1, remote, 1, 0) };
    match copied {
        copied if copied == len as i64 => Ok(()),
        copied if copied >= 0 => Err(Errno::EFAULT),
        _ if matches!(last(), Errno::EFAULT | Errno::ENOMEM) => Err(Errno::EFAULT),
        // The call is not there, or is forbidden.
        // SAFETY: by the caller's word.
        _ => unsafe { copy_by_pipe(to, from, len) },
    }
}

/// As [`copy`] does, by calls that are never forbidden: the system reads and writes the memory here too.
///
/// # Safety
/// As for [`copy`].
unsafe fn copy_by_pipe(to: u64, from: u64, len: usize) -> Result<(), Errno> {
    // Of its own: one that is kept would be closed by programs that close all files.
    let (read, write) = pipe()?;
    let whole = |moved: i64, part: usize| if moved == part as i64 { Ok(()) } else { Err(Errno::EFAULT) };
    let mut done = 0;
    while done < len {
        // What an empty pipe takes as a whole.
        let part = (len - done).min(libc::PIPE_BUF);
        let (to, from) = (to.wrapping_add(done as u64), from.wrapping_add(done as u64));
        // SAFETY: what the address names is checked by the system.
        let written = unsafe { libc::syscall(libc::SYS_write, write.as_raw_fd(), from, part) };
        whole(result(written)?, part)?;
        // SAFETY: as above; by the caller's word it may be written.
        let taken = unsafe { libc::syscall(libc::SYS_read, read.as_raw_fd(), to, part) };
        whole(result(taken)?, part)?;
        done += part;
    }
    Ok(())
}

/// Sees to it that memory is there, with this right, as pinning does.
///
/// # Errors
/// `EFAULT` if it is not.
pub fn populate(start: u64, len: u64, writable: bool) -> Result<(), Errno> {
    const PAGE: u64 = 4096;
    let first = start / PAGE * PAGE;
    let end = start.checked_add(len).and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
    let populate = |advice: libc::c_int| {
        // SAFETY: it changes no bytes.
        result(unsafe { libc::syscall(libc::SYS_madvise, first, end - first, advice) })
    };
    let read = match populate(libc::MADV_POPULATE_READ) {
        // A kernel before 5.14, or memory of a device: it is not looked into.
        Err(Errno::EINVAL) => return Ok(()),
        read => read,
    };
    let written = if writable { populate(libc::MADV_POPULATE_WRITE) } else { read };
    read.and(written).map_or(Err(Errno::EFAULT), |_| Ok(()))
}

/// This process.
pub fn process_id() -> i32 {
    // SAFETY: no precondition.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// The user whose rights this process has.
pub fn user() -> u32 {
    // SAFETY: no precondition.
    unsafe { libc::syscall(libc::SYS_geteuid) as u32 }
}

/// Random bits.
///
/// # Errors
/// What the system answered.
pub fn random() -> Result<u64, Errno> {
    let mut bits = [0; 8];
    // SAFETY: there is room for them.
    let got = result(unsafe { libc::syscall(libc::SYS_getrandom, bits.as_mut_ptr(), bits.len(), 0) })?;
    if got == bits.len() as i64 { Ok(u64::from_ne_bytes(bits)) } else { Err(Errno::EINTR) }
}

/// Closes a file by its number.
///
/// # Safety
/// Nobody uses it from now on.
pub unsafe fn close(fd: RawFd) {
    // SAFETY: by the caller's word.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// What is waited for at a file, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The file.
    pub fd: RawFd,
    /// Whether for room to write, else for something to read.
    pub room: bool,
}

/// How long is waited where the system waits for no file.
const UNREADY: Duration = Duration::from_micros(200);

/// Waits until one of these files is ready, for ever where no time is given; whether the first is, if any.
pub fn wait(files: &[Wait], most: Option<Duration>) -> Option<bool> {
    let events = |room| if room { libc::POLLOUT } else { libc::POLLIN };
    let mut files: Vec<_> =
        files.iter().map(|wait| libc::pollfd { fd: wait.fd, events: events(wait.room), revents: 0 }).collect();
    let most = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let timeout = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let none = std::ptr::null::<libc::sigset_t>();
    // SAFETY: files and time are there.
    let ready = unsafe { libc::syscall(libc::SYS_ppoll, files.as_mut_ptr(), files.len(), timeout, none, 0) };
    if ready < 0 && last() != Errno(libc::EINTR) {
        // More files than may be waited for, perhaps: to be asked again, but not at once.
        std::thread::sleep(UNREADY);
    }
    (ready > 0).then(|| files.first().is_some_and(|first| first.revents != 0))
}

fn stat(fd: RawFd) -> Result<libc::stat, Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for the answer.
    result(unsafe { libc::syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) })?;
    // SAFETY: zeroed, and the system wrote it.
    Ok(unsafe { stat.assume_init() })
}

/// Bytes of a file, if it is one that has a length.
///
/// # Errors
/// `EBADF` if there is none.
pub fn file_size(fd: RawFd) -> Result<Option<u64>, Errno> {
    let stat = stat(fd)?;
    Ok(if stat.st_mode & libc::S_IFMT == libc::S_IFREG { u64::try_from(stat.st_size).ok() } else { None })
}

/// Reads whole words from the beginning of a file, and says how many there were.
///
/// # Errors
/// What the system answered.
pub fn read_words_at(fd: RawFd, words: &mut [u64]) -> Result<usize, Errno> {
    // SAFETY: words of ours, as many bytes as they have.
    let read = unsafe { libc::syscall(libc::SYS_pread64, fd, words.as_mut_ptr(), size_of_val(words), 0) };
    Ok(result(read)? as usize / size_of::<u64>())
}

/// The device number of a file that is a character device.
pub fn character_device(fd: RawFd) -> Option<(u32, u32)> {
    let stat = stat(fd).ok()?;
    let is_one = stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
    is_one.then(|| (libc::major(stat.st_rdev), libc::minor(stat.st_rdev)))
}

/// Lets the calling thread sleep as briefly as it asks, and run soon after, where the system can.
pub fn prefer_latency() {
    #[repr(C)]
    struct Attr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SLICE: u64 = 100_000;
    // What the program was given, as the system tells it: 20 less.
    // SAFETY: plain numbers.
    let rank = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, 0) };
    let nice = if rank > 0 { 20 - rank as i32 } else { 0 };
    let attr = Attr { size: 48, policy: 0, flags: 0, nice, priority: 0, runtime: SLICE, deadline: 0, period: 0 };
    let attr: *const Attr = &attr;
    // SAFETY: plain numbers.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    // SAFETY: plain numbers.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    if policy != i64::from(libc::SCHED_OTHER) {
        return;
    }
    // SAFETY: the attributes are there.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, attr, 0) };
}

/// Calls with all signals blocked: a thread that is made in it never runs the program's handlers.
pub fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
    // SAFETY: there is room for the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the set was filled, and there is room for the one before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let result = call();
    // SAFETY: the set was written by the call before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_a_fault_and_not_a_signal() {
        let mut here = [1u8, 2, 3];
        let there = [7u8, 8, 9];
        let (to, from) = (here.as_mut_ptr() as u64, there.as_ptr() as u64);
        // SAFETY: the bytes are the test's.
        assert_eq!(unsafe { copy(to, from, 3) }, Ok(()));
        assert_eq!(here, there);
        // SAFETY: as above.
        assert_eq!(unsafe { copy(to, 64, 3) }, Err(Errno::EFAULT));
        // SAFETY: nobody has memory there.
        assert_eq!(unsafe { copy(64, from, 3) }, Err(Errno::EFAULT));
        // SAFETY: no byte is moved.
        assert_eq!(unsafe { copy(64, 64, 0) }, Ok(()));
        assert_eq!(populate(to, 3, true), Ok(()));
        assert_eq!(populate(4096, 3, false), Err(Errno::EFAULT));
        assert_eq!(populate(u64::MAX - 5, 3, false), Err(Errno::EINVAL));
    }

    #[test]
    fn where_the_one_call_is_forbidden_a_pipe_copies_as_much_and_faults_alike() {
        let there: Vec<u8> = (0..3 * libc::PIPE_BUF + 5).map(|nth| nth as u8).collect();
        let mut here = vec![0; there.len()];
        let (to, from) = (here.as_mut_ptr() as u64, there.as_ptr() as u64);
        // SAFETY: the bytes are the test's.
        assert_eq!(unsafe { copy_by_pipe(to, from, there.len()) }, Ok(()));
        assert_eq!(here, there);
        // SAFETY: as above.
        assert_eq!(unsafe { copy_by_pipe(to, 64, 3) }, Err(Errno::EFAULT));
        // SAFETY: nobody has memory there.
        assert_eq!(unsafe { copy_by_pipe(64, from, 3) }, Err(Errno::EFAULT));
        // Half of it is there.
        let page = 4096;
        let fd = memfd().unwrap();
        resize(&fd, page as u64).unwrap();
        let half = map(&fd, 0, 2 * page).unwrap();
        let last = half.as_ptr() as u64 + page as u64 - 8;
        // SAFETY: the test's, and the rest is not there.
        assert_eq!(unsafe { copy_by_pipe(last, from, 16) }, Err(Errno::EFAULT));
        // SAFETY: as above.
        assert_eq!(unsafe { copy_by_pipe(to, last, 16) }, Err(Errno::EFAULT));
        // SAFETY: nobody uses it.
        unsafe { unmap(half, 2 * page) };
    }
}
