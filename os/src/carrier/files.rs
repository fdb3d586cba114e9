//! The files of all carriers of the process, and of whoever drives them, so that a forked child can close them.
//!
//! A child that keeps its parent's sockets keeps its addresses, too, and its death from being seen. It cannot drop the
//! parent's carriers: another thread may have been in the middle of a pass. So the numbers of all are in a table,
//! and whoever is told of forks, as by `pthread_atfork`, calls [`before_fork`], [`in_parent`] and [`in_child`].

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Held while a file is made or closed, and by whoever forks.
static GATE: AtomicBool = AtomicBool::new(false);

static KEPT: Numbers = Numbers::new();

/// A set of files by their numbers, up to 65,535, that any thread may look at.
#[derive(Debug)]
pub struct Numbers([AtomicU64; 1024]);

impl Numbers {
    /// None.
    #[allow(clippy::new_without_default)] // for statics
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 1024])
    }

    fn place(&self, fd: RawFd) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / 64)?, 1 << (fd % 64)))
    }

    /// Whether a file is among them.
    pub fn contains(&self, fd: RawFd) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Enters a file; whether its number is not too high.
    pub fn insert(&self, fd: RawFd) -> bool {
        self.place(fd).map(|(word, bit)| word.fetch_or(bit, Ordering::AcqRel)).is_some()
    }

    /// Takes a file out.
    pub fn remove(&self, fd: RawFd) {
        if let Some((word, bit)) = self.place(fd) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// Takes all out.
    pub fn drain(&self, mut taken: impl FnMut(RawFd)) {
        for (nth, word) in self.0.iter().enumerate() {
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                taken((64 * nth) as RawFd + bits.trailing_zeros() as RawFd);
                bits &= bits - 1;
            }
        }
    }
}

/// Waits until no thread is making such a file, and lets none until one of the others is called.
pub fn before_fork() {
    while GATE.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        thread::yield_now();
    }
}

/// The fork is over, in the parent.
pub fn in_parent() {
    GATE.store(false, Ordering::Release);
}

/// The fork is over, in the child: closes the files, which `close` does for a file's number. What the child has of its
/// parent's, carriers, claims and such, must not be used or dropped.
pub fn in_child(close: impl Fn(RawFd)) {
    KEPT.drain(close);
    in_parent();
}

/// Whether a file's number is one of these: who is asked to close it by a program that closes all files must not.
pub fn is_open(fd: RawFd) -> bool {
    KEPT.contains(fd)
}

/// A file in the table.
#[derive(Debug)]
pub struct Kept<F: AsRawFd> {
    /// Closed first, and then the gate is opened.
    file: F,
    _gate: Gate,
}

/// A socket in the table.
pub(super) type Socket = Kept<UnixDatagram>;

/// Opens the gate when it is dropped.
#[derive(Debug)]
struct Gate;

impl Drop for Gate {
    fn drop(&mut self) {
        in_parent();
    }
}

impl<F: AsRawFd> Drop for Kept<F> {
    fn drop(&mut self) {
        before_fork();
        KEPT.remove(self.file.as_raw_fd());
    }
}

impl<F: AsRawFd> Kept<F> {
    /// Makes files, of which none is in a child that is forked meanwhile.
    ///
    /// # Errors
    /// What `make` says, or that a file's number is too high.
    pub fn make<const N: usize>(make: impl FnOnce() -> io::Result<[F; N]>) -> io::Result<[Self; N]> {
        before_fork();
        let gate = Gate;
        let files = make()?;
        if files.iter().any(|file| !KEPT.insert(file.as_raw_fd())) {
            files.iter().for_each(|file| KEPT.remove(file.as_raw_fd()));
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        drop(gate);
        Ok(files.map(|file| Self { file, _gate: Gate }))
    }
}

impl Socket {
    pub(super) fn bound(address: &SocketAddr) -> io::Result<Self> {
        Self::of(|| UnixDatagram::bind_addr(address))
    }

    pub(super) fn connected(address: &SocketAddr) -> io::Result<Self> {
        Self::of(|| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(address)?;
            Ok(socket)
        })
    }

    fn of(make: impl FnOnce() -> io::Result<UnixDatagram>) -> io::Result<Self> {
        let [socket] = Self::make(|| {
            let socket = make()?;
            socket.set_nonblocking(true)?;
            Ok([socket])
        })?;
        Ok(socket)
    }
}

impl<F: AsRawFd> Deref for Kept<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}
