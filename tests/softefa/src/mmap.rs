//! The memory of queues: this library has it mapped, and the program maps it too, by key.
//!
//! One file in memory for each open device; a key is an offset in it. Offsets are never given twice, so what a program
//! has mapped stays what it was, whatever it destroys first; what nobody needs any more is given back to the system.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::errno::Errno;
use crate::sys;

/// What mappings and keys are multiples of.
pub const PAGE: usize = 4096;

/// Bytes rounded up to whole pages, at least one; none if that is more than there can be.
pub const fn pages(len: usize) -> Option<usize> {
    let len = if len == 0 { 1 } else { len };
    len.checked_next_multiple_of(PAGE)
}

/// The file behind the queues of one open device.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    /// Held while the file grows: what is mapped of it must never be beyond its end.
    end: Mutex<u64>,
}

impl Arena {
    /// An empty one.
    ///
    /// # Errors
    /// What the system answered.
    pub fn new() -> Result<Arc<Self>, Errno> {
        // Key 0 is left out: libefa takes it for none.
        Ok(Arc::new(Self { file: sys::memfd()?, end: Mutex::new(PAGE as u64) }))
    }

    /// The file.
    pub fn file(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Zeroed memory of `len` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// `ENOMEM` for more than there can be, or what the system answered.
    pub fn region(self: &Arc<Self>, len: usize) -> Result<Region, Errno> {
        let len = pages(len).ok_or(Errno::ENOMEM)?;
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = *end;
        let grown = offset.checked_add(len as u64).ok_or(Errno::ENOMEM)?;
        sys::resize(&self.file, grown)?;
        *end = grown;
        drop(end);
        let base = sys::map(&self.file, offset, len)?;
        Ok(Region { arena: self.clone(), offset, len, base })
    }
}

/// A piece of an arena, mapped here until it is dropped.
#[derive(Debug)]
pub struct Region {
    arena: Arc<Arena>,
    offset: u64,
    len: usize,
    base: NonNull<u8>,
}

// SAFETY: it names memory that both sides reach by atomics alone.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// By which the program maps it.
    pub fn key(&self) -> u64 {
        self.offset
    }

    /// Bytes: whole pages.
    pub fn size(&self) -> usize {
        self.len
    }

    /// Where it is mapped here.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Some bytes further; the first ones if that would be beyond the end.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        let offset = if offset < self.len { offset } else { 0 };
        // SAFETY: less than the length.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `region`; whoever used it through `base` is gone, by the word that they gave.
        unsafe { sys::unmap(self.base, self.len) };
        sys::punch(&self.arena.file, self.offset, self.len);
    }
}

/// What can be mapped of an open device.
#[derive(Debug, Default)]
pub struct Keys {
    sizes: BTreeMap<u64, usize>,
}

impl Keys {
    /// Makes a region known.
    pub fn add(&mut self, region: &Region) {
        self.sizes.insert(region.key(), region.size());
    }

    /// Forgets it: what is mapped stays so.
    pub fn remove(&mut self, region: &Region) {
        self.sizes.remove(&region.key());
    }

    /// Whether a program may map so.
    ///
    /// # Errors
    /// `EINVAL` unless the key is known, the length is exact and the mapping shared; `EPERM` for code.
    pub fn check(&self, key: u64, len: usize, shared: bool, executable: bool) -> Result<(), Errno> {
        let size = self.sizes.get(&key).ok_or(Errno::EINVAL)?;
        if Some(*size) != pages(len) || !shared {
            return Err(Errno::EINVAL);
        }
        if executable { Err(Errno::EPERM) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_from_creation_to_destruction_with_their_exact_length() {
        let arena = Arena::new().unwrap();
        let (first, second) = (arena.region(100).unwrap(), arena.region(2 * PAGE).unwrap());
        let mut keys = Keys::default();
        keys.add(&first);
        keys.add(&second);
        assert!(first.key() != 0 && second.key() != first.key());
        assert_eq!(keys.check(first.key(), PAGE, true, false), Ok(()));
        assert_eq!(keys.check(second.key(), 2 * PAGE, true, false), Ok(()));
        for (key, len) in [
            (second.key(), PAGE),
            (first.key(), 2 * PAGE),
            (first.key() + 1, PAGE),
            (0, PAGE),
            (first.key(), usize::MAX),
        ] {
            assert_eq!(keys.check(key, len, true, false), Err(Errno::EINVAL), "{key:#x} {len}");
        }
        assert_eq!(keys.check(first.key(), PAGE, false, false), Err(Errno::EINVAL));
        assert_eq!(keys.check(first.key(), PAGE, true, true), Err(Errno::EPERM));
        keys.remove(&first);
        assert_eq!(keys.check(first.key(), PAGE, true, false), Err(Errno::EINVAL));
    }

    #[test]
    fn regions_made_by_many_threads_are_all_there_whoever_was_last() {
        let arena = Arena::new().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for nth in 0..500 {
                        let region = arena.region(PAGE << (nth % 4)).unwrap();
                        // SAFETY: mapped, and this thread's alone.
                        unsafe { region.at(region.size() - 1).write(1) };
                    }
                });
            }
        });
        assert_eq!(arena.region(usize::MAX).map(|region| region.key()), Err(Errno::ENOMEM));
    }

    #[test]
    fn an_offset_is_never_given_twice_and_another_mapping_outlives_the_region() {
        let arena = Arena::new().unwrap();
        let region = arena.region(PAGE).unwrap();
        let key = region.key();
        let other = sys::map(&arena.file, key, PAGE).unwrap();
        let byte = other.as_ptr().wrapping_add(8);
        // SAFETY: mapped, and the test's alone.
        unsafe { region.at(8).write(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { byte.read() }, 7);
        drop(region);
        // SAFETY: still mapped.
        assert_eq!(unsafe { byte.read() }, 0);
        assert!(arena.region(PAGE).unwrap().key() > key);
        // SAFETY: nobody uses it.
        unsafe { sys::unmap(other, PAGE) };
    }
}
