//! A guest's memory, at the addresses by which a device on its bus reaches it.
//!
//! It comes and goes by the monitor's calls, in pieces, each a part of a file that both map. The guest writes it at any time, so
//! bytes are copied out before they are looked at. What is used for longer is a [`Place`], which stays mapped until it is dropped.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};
use std::{fmt, io};

use vm_memory::{Bytes, MmapRegion, VolatileMemory};

/// Bytes of a page of the device's.
pub const PAGE: usize = 4096;

/// No memory, or none that may be written, is at that address of the bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmapped {
    /// The address.
    pub at: u64,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device reached for bus address {:#x}, where the guest has no memory for it", self.at)
    }
}

impl std::error::Error for Unmapped {}

#[derive(Debug)]
struct Map {
    memory: Arc<MmapRegion>,
    writable: bool,
}

/// All of a guest's memory.
#[derive(Debug, Default)]
pub struct Guest {
    /// By the first address of each piece.
    maps: RwLock<BTreeMap<u64, Map>>,
}

impl Guest {
    /// Adds a piece.
    ///
    /// # Errors
    /// EINVAL if another has some of it already, or it goes beyond the last address.
    pub fn map(&self, at: u64, memory: MmapRegion, writable: bool) -> io::Result<()> {
        let invalid = io::Error::from_raw_os_error(22);
        let Some(end) = at.checked_add(memory.size() as u64) else { return Err(invalid) };
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let before = maps.range(..end).next_back();
        if before.is_some_and(|(start, map)| start + map.memory.size() as u64 > at) {
            return Err(invalid);
        }
        maps.insert(at, Map { memory: Arc::new(memory), writable });
        Ok(())
    }

    /// Takes what begins in `size` bytes away. What is in use as a [`Place`] stays until that goes.
    pub fn unmap(&self, at: u64, size: u64) {
        let end = at.saturating_add(size);
        self.maps.write().unwrap_or_else(PoisonError::into_inner).retain(|start, _| !(at..end).contains(start));
    }

    /// Takes all away.
    pub fn clear(&self) {
        self.maps.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The piece that has an address, and where in it that is, if it has so many bytes more and may be used so.
    fn find(&self, at: u64, writing: bool) -> Result<(Arc<MmapRegion>, usize), Unmapped> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let (start, map) = maps.range(..=at).next_back().ok_or(Unmapped { at })?;
        let offset = usize::try_from(at - start).map_err(|_| Unmapped { at })?;
        if offset >= map.memory.size() || writing && !map.writable {
            return Err(Unmapped { at });
        }
        Ok((map.memory.clone(), offset))
    }

    /// Calls `each` with the pieces that a range has, in order.
    fn pieces(
        &self,
        at: u64,
        len: usize,
        writing: bool,
        mut each: impl FnMut(&MmapRegion, usize, std::ops::Range<usize>) -> Option<()>,
    ) -> Result<(), Unmapped> {
        let mut done = 0;
        while done < len {
            let here = at.checked_add(done as u64).ok_or(Unmapped { at })?;
            let (memory, offset) = self.find(here, writing)?;
            let part = (memory.size() - offset).min(len - done);
            each(&memory, offset, done..done + part).ok_or(Unmapped { at: here })?;
            done += part;
        }
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// Where some of it is not there; `out` may have what came before it.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        self.pieces(at, out.len(), false, |memory, offset, part| {
            let slice = memory.get_slice(offset, part.len()).ok()?;
            slice.copy_to(out.get_mut(part)?);
            Some(())
        })
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// Where some of it is not there, or may not be written; what comes before it may have been.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        self.pieces(at, bytes.len(), true, |memory, offset, part| {
            let slice = memory.get_slice(offset, part.len()).ok()?;
            slice.copy_from(bytes.get(part)?);
            Some(())
        })
    }

    /// Stores a word, after all that was written before it.
    ///
    /// # Errors
    /// Where it is not there, or not aligned.
    pub fn publish(&self, at: u64, word: u32) -> Result<(), Unmapped> {
        let (memory, offset) = self.find(at, true)?;
        let slice = memory.get_slice(offset, 4).map_err(|_| Unmapped { at })?;
        slice.store(word, 0, std::sync::atomic::Ordering::Release).map_err(|_| Unmapped { at })
    }

    /// Bytes that lie in one piece, and stay there.
    ///
    /// # Errors
    /// Where they do not, or are not aligned to 64 bytes.
    pub fn place(&self, at: u64, len: usize) -> Result<Place, Unmapped> {
        let (memory, offset) = self.find(at, true)?;
        // Mappings begin at pages: so far into one is so aligned.
        if memory.size() - offset < len || !offset.is_multiple_of(64) {
            return Err(Unmapped { at });
        }
        Ok(Place { memory, offset })
    }
}

/// Some of a guest's memory, kept.
#[derive(Clone, Debug)]
pub struct Place {
    memory: Arc<MmapRegion>,
    offset: usize,
}

impl Place {
    /// So many bytes, rounded up to pages, of the device's own.
    ///
    /// # Errors
    /// What the system said.
    pub fn own(len: usize) -> io::Result<Self> {
        let memory = MmapRegion::new(len.max(1).next_multiple_of(PAGE)).map_err(io::Error::other)?;
        Ok(Self { memory: Arc::new(memory), offset: 0 })
    }

    /// So far into memory that is shared, which has so many bytes there.
    pub fn within(memory: &Arc<MmapRegion>, offset: usize, len: usize) -> Option<Self> {
        (memory.size().checked_sub(offset)? >= len).then(|| Self { memory: memory.clone(), offset })
    }

    /// Where it is.
    pub fn first(&self) -> NonNull<u8> {
        // SAFETY: `offset` is inside the mapping, by whoever made this.
        let first = unsafe { self.memory.as_ptr().add(self.offset) };
        NonNull::new(first).expect("a mapping is nowhere at zero")
    }
}
