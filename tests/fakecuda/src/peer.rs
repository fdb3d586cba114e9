//! Peer-to-peer: memory by its address for another device's driver, which is told when it is freed. Where `p2p` is set.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use crate::memory::Kind;
use crate::state::Fake;

type Freed = extern "C" fn(*mut c_void);

/// Who is to be told that memory was freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    token: u64,
    at: u64,
    len: u64,
    freed: Freed,
    /// What is given back: a pointer of the caller's.
    with: usize,
}

impl Watcher {
    pub(crate) fn tell(self) {
        (self.freed)(std::ptr::with_exposed_provenance_mut(self.with));
    }

    pub(crate) fn is_of(&self, at: u64, len: u64) -> bool {
        self.at < at + len && at < self.at + self.len
    }
}

/// A ticket for a range of one allocation; below 0 where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_peer_get(va: u64, len: u64) -> i32 {
    let mut fake = Fake::lock();
    if fake.settings.p2p == 0 {
        return -1;
    }
    let found = fake.memory.find(va);
    let ticket = found.and_then(|(block, _)| if block.kind == Kind::Malloc { block.ticket(va, len) } else { Err(1) });
    ticket.map_or(-1, IntoRawFd::into_raw_fd)
}

/// Has a function called, with no lock held, once memory in a range is freed.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_peer_watch(va: u64, len: u64, freed: Freed, with: *mut c_void) -> u64 {
    let mut fake = Fake::lock();
    let token = fake.handle();
    fake.watchers.push(Watcher { token, at: va, len, freed, with: with.expose_provenance() });
    token
}

/// Ends that, and gives back what it was to be called with; null if it was, or is about to be.
#[unsafe(no_mangle)]
pub extern "C" fn fakecuda_peer_put(token: u64) -> *mut c_void {
    let mut fake = Fake::lock();
    let nth = fake.watchers.iter().position(|watcher| watcher.token == token);
    nth.map_or(std::ptr::null_mut(), |nth| std::ptr::with_exposed_provenance_mut(fake.watchers.remove(nth).with))
}
