//! Lists of a guest's pages as contiguous memory to the device's model.
//!
//! A region of the device's is scattered over the guest's memory, and the guest may take that away at any time. So what the model is
//! given are addresses at which nothing is: a range of this process's, reserved, that no load or store reaches. The model's mover finds
//! by such an address the window, by that the page, and by that the guest's memory, if it is there still.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use efa_core::memory::{DmaBuf, Opaque, RawParts};
use efa_core::soft::Mover;
use vm_memory::MmapRegion;

use crate::guest::{Guest, PAGE, Unmapped};

/// Nothing may be done with the reserved range.
const PROT_NONE: i32 = 0;
const MAP_PRIVATE: i32 = 0x2;
const MAP_ANONYMOUS: i32 = 0x20;
const MAP_NORESERVE: i32 = 0x4000;

/// Every window, by its first byte.
static WINDOWS: RwLock<BTreeMap<usize, Arc<Pages>>> = RwLock::new(BTreeMap::new());
/// How often the device reached for memory that was not there.
static FAULTS: AtomicU64 = AtomicU64::new(0);

/// Where the bytes of a window are.
#[derive(Debug)]
struct Pages {
    /// The addresses.
    _reserved: MmapRegion,
    guest: Arc<Guest>,
    /// Addresses on the bus.
    pages: Box<[u64]>,
    /// Log2 of a page's bytes.
    shift: u32,
    /// How far into the first page the first byte is.
    offset: usize,
    len: usize,
}

impl Pages {
    /// Calls `each` with the address of each page's part of a range.
    fn parts(
        &self,
        at: usize,
        len: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), Unmapped>,
    ) -> Result<(), Unmapped> {
        let page = 1_usize << self.shift;
        let mut done = 0;
        while done < len {
            let at = self.offset + at + done;
            let part = (page - at % page).min(len - done);
            let base = self.pages.get(at >> self.shift).ok_or(Unmapped { at: at as u64 })?;
            each(base.wrapping_add((at % page) as u64), done..done + part)?;
            done += part;
        }
        Ok(())
    }

    fn read(&self, at: usize, out: &mut [u8]) -> Result<(), Unmapped> {
        self.parts(at, out.len(), |bus, part| self.guest.read(bus, &mut out[part]))
    }

    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), Unmapped> {
        self.parts(at, bytes.len(), |bus, part| self.guest.write(bus, &bytes[part]))
    }
}

/// A list of pages, for as long as this lives.
#[derive(Debug)]
pub struct Window {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: it is a key of a table, at which nothing is.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

// SAFETY: there are no bytes at `base`, as the view says; what the mover makes of them is there until the window is dropped.
unsafe impl DmaBuf for Window {
    type View = Opaque;

    fn into_raw(self) -> RawParts {
        let this = ManuallyDrop::new(self);
        RawParts { base: this.first, len: this.len, extra: 0 }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        Self { first: parts.base, len: parts.len }
    }
}

impl Window {
    /// `len` bytes, from `offset` in the first of these pages on, each of 2^`shift` bytes, at least [`PAGE`].
    ///
    /// # Errors
    /// EINVAL if the pages do not have the bytes, or what the system said.
    pub fn open(guest: &Arc<Guest>, pages: Vec<u64>, shift: u32, offset: usize, len: usize) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(22);
        let has = (pages.len() as u64).checked_shl(shift).and_then(|has| usize::try_from(has).ok());
        let end = offset.checked_add(len).ok_or_else(invalid)?;
        if len == 0 || shift < PAGE.trailing_zeros() || shift > 40 || has.is_none_or(|has| end > has) {
            return Err(invalid());
        }
        // As far into a page of this machine's as it is into one of the guest's.
        let here = offset % PAGE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let size = (here + len).next_multiple_of(PAGE);
        let reserved = MmapRegion::build(None, size, PROT_NONE, flags).map_err(io::Error::other)?;
        let first = NonNull::new(reserved.as_ptr().wrapping_add(here)).expect("a mapping is nowhere at zero");
        let pages = Pages { _reserved: reserved, guest: guest.clone(), pages: pages.into(), shift, offset, len };
        WINDOWS.write().unwrap_or_else(PoisonError::into_inner).insert(first.addr().get(), Arc::new(pages));
        Ok(Self { first, len })
    }

    /// `len` bytes that follow each other on the bus.
    ///
    /// # Errors
    /// As [`Window::open`].
    pub fn contiguous(guest: &Arc<Guest>, at: u64, len: usize) -> io::Result<Self> {
        let offset = at as usize % PAGE;
        let count = offset.saturating_add(len).div_ceil(PAGE) as u64;
        let first = at - offset as u64;
        let pages = (0..count).map(|nth| first.wrapping_add(nth * PAGE as u64)).collect();
        Self::open(guest, pages, PAGE.trailing_zeros(), offset, len)
    }

    /// Where the model believes the first byte to be.
    pub fn first(&self) -> NonNull<u8> {
        self.first
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOWS.write().unwrap_or_else(PoisonError::into_inner).remove(&self.first.addr().get());
    }
}

/// How often the device reached for memory of a region that the guest had taken away: it wrote nothing then, and read zeros.
pub fn faults() -> u64 {
    FAULTS.load(Ordering::Relaxed)
}

/// What moves the model's bytes.
pub const fn mover() -> Mover {
    // SAFETY: `copy` reaches registered memory by its window alone, whose bytes are copied as volatile ones, and the device's own
    // by its address, exactly the bytes that it was asked for; it calls nothing of the device.
    unsafe { Mover::new(copy) }
}

fn window(at: usize, len: usize) -> Option<(Arc<Pages>, usize)> {
    let windows = WINDOWS.read().unwrap_or_else(PoisonError::into_inner);
    let (first, pages) = windows.range(..=at).next_back()?;
    let offset = at - first;
    (pages.len.checked_sub(offset)? >= len).then(|| (pages.clone(), offset))
}

/// # Safety
/// As [`Mover::new`] says of its calls: what is in no window is the device's own, valid and nobody else's.
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let (target, source) = (window(to.addr(), len), window(from.addr(), len));
    let mut bytes = [0; PAGE];
    let mut done = 0;
    while done < len {
        let part = &mut bytes[..PAGE.min(len - done)];
        let read = match &source {
            Some((pages, at)) => pages.read(at + done, part),
            None => {
                let from = from.wrapping_add(done);
                // SAFETY: by the caller's word, these bytes are the device's own.
                unsafe { from.copy_to_nonoverlapping(part.as_mut_ptr(), part.len()) };
                Ok(())
            }
        };
        if read.is_err() {
            part.fill(0);
        }
        let written = match &target {
            Some((pages, at)) => pages.write(at + done, part),
            None => {
                let to = to.wrapping_add(done);
                // SAFETY: as above.
                unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
                Ok(())
            }
        };
        FAULTS.fetch_add((read.is_err() || written.is_err()).into(), Ordering::Relaxed);
        done += part.len();
    }
}
