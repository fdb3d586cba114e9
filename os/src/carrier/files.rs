//! The sockets of the process, all carriers' together, so that a forked child can close them.
//!
//! A child that keeps its parent's sockets keeps its addresses, too, and its death from being seen. It cannot drop the
//! parent's carriers: another thread may have been in the middle of a pass. So the numbers of all sockets are in a table,
//! and whoever is told of forks, as by `pthread_atfork`, calls [`before_fork`], [`in_parent`] and [`in_child`].

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Held while a socket is made or closed, and by whoever forks.
static GATE: AtomicBool = AtomicBool::new(false);

/// Which files are sockets of ours.
static OPEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
const WORDS: usize = 1024;

/// Waits until no thread is making a socket, and lets none until one of the others is called.
pub fn before_fork() {
    while GATE.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        thread::yield_now();
    }
}

/// The fork is over, in the parent.
pub fn in_parent() {
    GATE.store(false, Ordering::Release);
}

/// The fork is over, in the child: closes the sockets, which `close` does for a file's number. Carriers and claims that
/// the child has of its parent's must not be used or dropped.
pub fn in_child(close: impl Fn(RawFd)) {
    for (nth, word) in OPEN.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::Relaxed);
        while bits != 0 {
            close((64 * nth) as RawFd + bits.trailing_zeros() as RawFd);
            bits &= bits - 1;
        }
    }
    in_parent();
}

/// Whether a file's number is a socket's: who is asked to close it by a program that closes all files must not.
pub fn is_open(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OPEN.get(fd / 64)?, 1 << (fd % 64)))
}

/// A socket in the table.
#[derive(Debug)]
pub(super) struct Socket {
    /// Closed first, and then the gate is opened.
    socket: UnixDatagram,
    _gate: Gate,
}

/// Opens the gate when it is dropped.
#[derive(Debug)]
struct Gate;

impl Drop for Gate {
    fn drop(&mut self) {
        in_parent();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        before_fork();
        if let Some((word, bit)) = place(self.socket.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl Socket {
    pub(super) fn bound(address: &SocketAddr) -> io::Result<Self> {
        Self::make(|| UnixDatagram::bind_addr(address))
    }

    pub(super) fn connected(address: &SocketAddr) -> io::Result<Self> {
        Self::make(|| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(address)?;
            Ok(socket)
        })
    }

    fn make(make: impl FnOnce() -> io::Result<UnixDatagram>) -> io::Result<Self> {
        before_fork();
        let gate = Gate;
        let socket = make()?;
        socket.set_nonblocking(true)?;
        let too_many = || io::Error::other("the process has too many files open");
        let (word, bit) = place(socket.as_raw_fd()).ok_or_else(too_many)?;
        word.fetch_or(bit, Ordering::Relaxed);
        drop(gate);
        Ok(Self { socket, _gate: Gate })
    }
}

impl Deref for Socket {
    type Target = UnixDatagram;

    fn deref(&self) -> &UnixDatagram {
        &self.socket
    }
}
