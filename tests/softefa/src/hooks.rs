//! The C functions that stand before libc's.
//!
//! Whatever is not this library's goes to the system as it came. Calls are made as such, not through the functions
//! that would come next: there may be none yet, when the first of them is called.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use efa_os::carrier;

use crate::errno::Errno;
use crate::process::{self, Process};
use crate::uapi::RDMA_VERBS_IOCTL;
use crate::{sys, sysfs};

const DEVICES: &[u8] = b"/dev/infiniband/uverbs";
const SYSFS: &[u8] = b"/sys/class/infiniband";
const SYSFS_PATH: &CStr = c"SYSFS_PATH";
/// `NETLINK_RDMA`.
const NETLINK_RDMA: c_int = 20;

/// Answers as a C function does.
fn fail(Errno(errno): Errno) -> c_int {
    // SAFETY: each thread has its own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's.
    unsafe { *place = errno };
    -1
}

/// Calls, and leaves errno as it was: what succeeds says nothing there.
fn quietly<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: each thread has its own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the thread's.
    let before = unsafe { *place };
    let result = call();
    // SAFETY: the thread's.
    unsafe { *place = before };
    result
}

/// What a path stands for.
enum Stands {
    /// For itself.
    Itself,
    /// For one of this library's devices: the character device behind it.
    Device(usize, &'static CStr),
    /// For another file.
    Path(CString),
    /// For nothing.
    Nothing(Errno),
}

/// # Safety
/// `path` is null or a C string.
unsafe fn stands_for(path: *const c_char) -> Stands {
    if path.is_null() || process::is_making() {
        return Stands::Itself;
    }
    // SAFETY: by the caller's word.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if let Some(number) = path.strip_prefix(DEVICES) {
        let number = std::str::from_utf8(number).ok().and_then(|number| number.parse::<usize>().ok());
        let Some(process) = Process::get() else { return Stands::Nothing(Errno::EINVAL) };
        return match number.filter(|device| *device < process.devices()) {
            Some(device) => {
                sysfs::node(device).map_or(Stands::Nothing(Errno::ENOENT), |node| Stands::Device(device, node))
            }
            None => Stands::Nothing(Errno::ENOENT),
        };
    }
    let root = || sysfs::root(sys::process_id());
    if path.starts_with(SYSFS) {
        let Some(process) = Process::get() else { return Stands::Nothing(Errno::EINVAL) };
        let below = Path::new(OsStr::from_bytes(path)).strip_prefix("/sys").unwrap_or(Path::new(""));
        let path = CString::new(process.tree().join(below).into_os_string().into_vec());
        return path.map_or(Stands::Itself, Stands::Path);
    }
    if path.windows(OWN_TREE.len()).any(|part| part == OWN_TREE)
        && Path::new(OsStr::from_bytes(path)).starts_with(root())
    {
        // The files are there from now on.
        if Process::get().map(Process::tree).is_none() {
            return Stands::Nothing(Errno::EINVAL);
        }
    }
    Stands::Itself
}

const OWN_TREE: &[u8] = b"softefa-sysfs-";

/// # Safety
/// As for `openat`.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let system = |path: *const c_char| {
        // SAFETY: a C string, by the caller's word or our own.
        unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) as c_int }
    };
    // SAFETY: by the caller's word.
    match unsafe { stands_for(path) } {
        Stands::Itself => system(path),
        Stands::Path(path) => system(path.as_ptr()),
        Stands::Nothing(errno) => fail(errno),
        Stands::Device(device, node) => {
            let fd = system(node.as_ptr());
            if fd < 0 {
                return fd;
            }
            match quietly(|| Process::get().ok_or(Errno::EINVAL).and_then(|process| process.opened(device, fd))) {
                Ok(()) => fd,
                Err(errno) => {
                    // SAFETY: opened above.
                    unsafe { libc::syscall(libc::SYS_close, fd) };
                    fail(errno)
                }
            }
        }
    }
}

macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the function of that name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $answer $body
        )*
    };
}

/// For a program that measures itself: the devices do here all that is to be done, and from the first call on nothing beside the
/// program. What comes from other processes does not arrive then.
#[unsafe(no_mangle)]
pub extern "C" fn softefa_drive() {
    quietly(|| {
        if let Some(process) = Process::get() {
            process.drive();
        }
    });
}

hooks! {
    /// `open`.
    fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
    }
    /// `open64`.
    fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
    }
    /// `open` as fortified programs call it.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
    }
    /// `open64` as fortified programs call it.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
    }
    /// `openat`.
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(folder, path, flags, mode) }
    }
    /// `openat64`.
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(folder, path, flags, mode) }
    }
    /// `openat` as fortified programs call it.
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(folder, path, flags, 0) }
    }
    /// `openat64` as fortified programs call it.
    fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { open_at(folder, path, flags, 0) }
    }
    /// `stat`.
    fn stat(path: *const c_char, answer: *mut c_void) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(libc::AT_FDCWD, path, answer, 0) }
    }
    /// `stat64`.
    fn stat64(path: *const c_char, answer: *mut c_void) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(libc::AT_FDCWD, path, answer, 0) }
    }
    /// `lstat`.
    fn lstat(path: *const c_char, answer: *mut c_void) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(libc::AT_FDCWD, path, answer, libc::AT_SYMLINK_NOFOLLOW) }
    }
    /// `lstat64`.
    fn lstat64(path: *const c_char, answer: *mut c_void) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(libc::AT_FDCWD, path, answer, libc::AT_SYMLINK_NOFOLLOW) }
    }
    /// `fstatat`.
    fn fstatat(folder: c_int, path: *const c_char, answer: *mut c_void, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(folder, path, answer, flags) }
    }
    /// `fstatat64`.
    fn fstatat64(folder: c_int, path: *const c_char, answer: *mut c_void, flags: c_int) -> c_int {
        // SAFETY: by the caller's word.
        unsafe { stat_at(folder, path, answer, flags) }
    }
    /// `access`.
    fn access(path: *const c_char, mode: c_int) -> c_int {
        let mut place = None;
        // SAFETY: by the caller's word.
        match unsafe { resolve(path, &mut place) } {
            // SAFETY: by the caller's word.
            Ok(path) => unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, mode) as c_int },
            Err(errno) => fail(errno),
        }
    }
    /// `opendir`.
    fn opendir(path: *const c_char) -> *mut c_void {
        static NEXT: Next = Next::new(c"opendir");
        // SAFETY: by the caller's word.
        unsafe { pointer_of(&NEXT, path, std::ptr::null()) }
    }
    /// `fopen`.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void {
        static NEXT: Next = Next::new(c"fopen");
        // SAFETY: by the caller's word.
        unsafe { pointer_of(&NEXT, path, mode) }
    }
    /// `fopen64`.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void {
        static NEXT: Next = Next::new(c"fopen64");
        // SAFETY: by the caller's word.
        unsafe { pointer_of(&NEXT, path, mode) }
    }
    /// `ioctl`.
    fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int {
        if request == RDMA_VERBS_IOCTL && process::is_ours(fd) {
            let done = quietly(|| Process::get().and_then(|process| process.ioctl(fd, argument as u64)));
            if let Some(done) = done {
                return done.map_or_else(fail, |()| 0);
            }
        }
        // SAFETY: by the caller's word.
        unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as c_int }
    }
    /// `mmap`.
    fn mmap(addr: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: c_long) -> *mut c_void {
        // SAFETY: by the caller's word.
        unsafe { map(addr, len, protection, flags, fd, offset) }
    }
    /// `mmap64`.
    fn mmap64(addr: *mut c_void, len: usize, protection: c_int, flags: c_int, fd: c_int, offset: c_long) -> *mut c_void {
        // SAFETY: by the caller's word.
        unsafe { map(addr, len, protection, flags, fd, offset) }
    }
    /// `close`: what carries frames is no file of the program's, also where it closes all numbers that there are.
    fn close(fd: c_int) -> c_int {
        if carrier::files::is_open(fd) && process::is_home() {
            return fail(Errno::EBADF);
        }
        if process::is_ours(fd) && let Some(process) = Process::get() {
            quietly(|| process.closed(fd));
        }
        // SAFETY: by the caller's word.
        unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
    }
    /// `socket`: there is no RDMA in this kernel, so that only this library's devices are found.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        if domain == libc::AF_NETLINK && protocol == NETLINK_RDMA {
            return fail(Errno::EPROTONOSUPPORT);
        }
        // SAFETY: plain numbers.
        unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) as c_int }
    }
}

/// The path that a call is to have instead; `place` keeps it.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn resolve(path: *const c_char, place: &mut Option<CString>) -> Result<*const c_char, Errno> {
    // SAFETY: by the caller's word.
    match unsafe { stands_for(path) } {
        Stands::Itself => Ok(path),
        Stands::Device(_, node) => Ok(node.as_ptr()),
        Stands::Path(path) => Ok(place.insert(path).as_ptr()),
        Stands::Nothing(errno) => Err(errno),
    }
}

/// # Safety
/// As for `fstatat`.
unsafe fn stat_at(folder: c_int, path: *const c_char, answer: *mut c_void, flags: c_int) -> c_int {
    let mut place = None;
    // SAFETY: by the caller's word.
    match unsafe { resolve(path, &mut place) } {
        // SAFETY: by the caller's word.
        Ok(path) => unsafe { libc::syscall(libc::SYS_newfstatat, folder, path, answer, flags) as c_int },
        Err(errno) => fail(errno),
    }
}

/// # Safety
/// As for the function that comes next; one that takes no mode does not look at it.
unsafe fn pointer_of(next: &Next, path: *const c_char, mode: *const c_char) -> *mut c_void {
    let mut place = None;
    // SAFETY: by the caller's word.
    let path = match (next.function(), unsafe { resolve(path, &mut place) }) {
        (Some(next), Ok(path)) => (next, path),
        (None, _) => {
            fail(Errno::ENOSYS);
            return std::ptr::null_mut();
        }
        (_, Err(errno)) => {
            fail(errno);
            return std::ptr::null_mut();
        }
    };
    let (next, path) = path;
    // SAFETY: by the caller's word.
    unsafe { next(path, mode) }
}

/// # Safety
/// As for `mmap`.
unsafe fn map(
    addr: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    let (mut file, mut arena) = (fd, None);
    if process::is_ours(fd)
        && let Some(process) = Process::get()
    {
        let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
        match process.mapping(fd, offset as u64, len, shared, protection & libc::PROT_EXEC != 0) {
            Some(Ok(memory)) => file = arena.insert(memory).file(),
            Some(Err(errno)) => {
                fail(errno);
                return libc::MAP_FAILED;
            }
            None => {}
        }
    }
    // SAFETY: by the caller's word.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, addr, len, protection, flags, file, offset) as *mut c_void };
    // Until now: a close in another thread would have ended the file.
    quietly(|| drop(arena));
    mapped
}

/// A function of libc's by the name that it has here too.
struct Next {
    name: &'static CStr,
    found: AtomicUsize,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicUsize::new(0) }
    }

    /// The function, as one of a path and a mode.
    fn function(&self) -> Option<unsafe extern "C" fn(*const c_char, *const c_char) -> *mut c_void> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found == 0 {
            // SAFETY: the name is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: an address or none; what libc calls by these names takes a path, and a mode or nothing more, in the
        // same registers.
        unsafe { std::mem::transmute(found) }
    }
}

extern "C" fn before_fork() {
    carrier::files::before_fork();
}

extern "C" fn in_parent() {
    carrier::files::in_parent();
}

extern "C" fn in_child() {
    Process::forget_in_child();
    announce();
}

extern "C" fn at_exit() {
    Process::clean_up();
}

/// Says where the devices' files are, unless somebody said that they are elsewhere. By libc's functions: what Rust's
/// library has around them is a lock, which a thread that a forked child has not may have held.
fn announce() {
    // First of all: from now on the folder is known.
    let root = sysfs::root(sys::process_id());
    // SAFETY: the name is a C string.
    let theirs = unsafe { libc::getenv(SYSFS_PATH.as_ptr()) };
    if !theirs.is_null() {
        // SAFETY: the environment holds C strings.
        let theirs = unsafe { CStr::from_ptr(theirs) }.to_bytes();
        if !theirs.windows(OWN_TREE.len()).any(|part| part == OWN_TREE) {
            return;
        }
    }
    let Ok(root) = CString::new(root.into_os_string().into_vec()) else { return };
    // SAFETY: C strings; when the library is loaded, and in a forked child, there is one thread.
    unsafe { libc::setenv(SYSFS_PATH.as_ptr(), root.as_ptr(), 1) };
}

extern "C" fn loaded() {
    Process::begin();
    announce();
    // SAFETY: functions of the library, which stays.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    // SAFETY: as above.
    unsafe { libc::atexit(at_exit) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;
