//! Device memory: addresses that are mapped nowhere, and two views of what is there.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::state::{Answer, INVALID_VALUE, NOT_FOUND, OUT_OF_MEMORY};

/// What `cuMemAlloc` makes blocks of, and a mapping of virtual memory.
pub(crate) const BLOCK: u64 = 2 << 20;
const SMALL: u64 = 512;
pub(crate) const PAGE: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Malloc,
    Virtual,
    Pool,
    Managed,
    Host,
}

/// A range that one call made: an allocation, or one mapping of virtual memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) id: u64,
}

impl Piece {
    fn has(&self, va: u64) -> bool {
        (self.at..self.at + self.len).contains(&va)
    }
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) kind: Kind,
    pub(crate) device: i32,
    /// 0 for memory that has none.
    pub(crate) context: u64,
    pub(crate) sync_memops: bool,
    pub(crate) pieces: Vec<Piece>,
    file: OwnedFd,
    bus: *mut u8,
    kernel: Vec<u8>,
}

// SAFETY: the mapping is the block's own, and is reached under the one lock, and by devices.
unsafe impl Send for Block {}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) blocks: Vec<Block>,
    /// Addresses that were given back, which are given out again first.
    free: Vec<(u64, u64)>,
    /// Where none were yet.
    next: u64,
    ids: u64,
}

/// Where device addresses begin: no process has anything there, so that the host cannot reach them by accident.
const ADDRESSES: u64 = 1 << 53;

impl Memory {
    pub(crate) const NEW: Self = Self { blocks: Vec::new(), free: Vec::new(), next: ADDRESSES, ids: 0 };

    pub(crate) fn emptied(mut self) -> Self {
        self.blocks.clear();
        self
    }

    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// As `cuMemAlloc`: what is small is a part of a block that others are in.
    pub(crate) fn malloc(&mut self, device: i32, context: u64, len: u64) -> Answer<u64> {
        if len == 0 {
            return Err(INVALID_VALUE);
        }
        let id = self.id();
        let mine = |block: &&mut Block| block.kind == Kind::Malloc && block.context == context && block.len == BLOCK;
        if let Some(block) = self.blocks.iter_mut().find(mine) {
            let end = block.pieces.iter().map(|piece| piece.at + piece.len).max().unwrap_or(block.at);
            let at = end.next_multiple_of(SMALL);
            if len < BLOCK && at + len <= block.at + block.len {
                block.pieces.push(Piece { at, len, id });
                return Ok(at);
            }
        }
        let at = self.add(Kind::Malloc, device, context, len.next_multiple_of(BLOCK))?;
        self.blocks.last_mut().expect("just added").pieces.push(Piece { at, len, id });
        Ok(at)
    }

    /// Memory of the other kinds; virtual memory is mapped in pieces of [`BLOCK`], of which `hole` is left out.
    pub(crate) fn make(&mut self, kind: Kind, device: i32, len: u64, hole: Option<u64>) -> Answer<u64> {
        let at = self.add(kind, device, 0, len.next_multiple_of(BLOCK))?;
        let step = if kind == Kind::Virtual { BLOCK } else { len };
        for nth in 0..len.div_ceil(step) {
            let id = self.id();
            if hole != Some(nth) {
                let piece = Piece { at: at + nth * step, len: step, id };
                self.blocks.last_mut().expect("just added").pieces.push(piece);
            }
        }
        Ok(at)
    }

    /// Addresses that nothing is mapped at yet.
    pub(crate) fn reserve(&mut self, device: i32, len: u64) -> Answer<u64> {
        self.add(Kind::Virtual, device, 0, len)
    }

    pub(crate) fn unreserve(&mut self, va: u64) -> Answer {
        let nth = self.blocks.iter().position(|block| block.at == va && block.pieces.is_empty());
        let block = self.blocks.remove(nth.ok_or(INVALID_VALUE)?);
        self.free.push((block.at, block.len));
        Ok(())
    }

    /// Maps physical memory at reserved addresses where none is.
    pub(crate) fn map(&mut self, va: u64, len: u64, device: i32) -> Answer {
        let id = self.id();
        let inside = |block: &&mut Block| block.kind == Kind::Virtual && block.range(va, len).is_ok();
        let block = self.blocks.iter_mut().find(inside).ok_or(INVALID_VALUE)?;
        if block.pieces.iter().any(|piece| piece.at < va + len && va < piece.at + piece.len) {
            return Err(INVALID_VALUE);
        }
        block.device = device;
        block.pieces.push(Piece { at: va, len, id });
        Ok(())
    }

    /// Whole mappings.
    pub(crate) fn unmap(&mut self, va: u64, len: u64) -> Answer {
        let (block, _) = self.find(va)?;
        let inside = |piece: &Piece| va <= piece.at && piece.at + piece.len <= va + len;
        if block.pieces.iter().filter(|piece| inside(piece)).map(|piece| piece.len).sum::<u64>() != len {
            return Err(INVALID_VALUE);
        }
        block.pieces.retain(|piece| !inside(piece));
        Ok(())
    }

    fn add(&mut self, kind: Kind, device: i32, context: u64, len: u64) -> Answer<u64> {
        let size = usize::try_from(len).map_err(|_| OUT_OF_MEMORY)?;
        let at = match self.free.iter().position(|(_, free)| *free == len) {
            Some(nth) => self.free.remove(nth).0,
            None => {
                self.next += len + BLOCK;
                self.next - len - BLOCK
            }
        };
        let file = memory_file(c"fakecuda bus")?;
        // SAFETY: a file of ours.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len.cast_signed()) } != 0 {
            return Err(OUT_OF_MEMORY);
        }
        let bus = map(size, file.as_raw_fd())?;
        let kernel = vec![0; size];
        self.blocks.push(Block {
            at,
            len,
            kind,
            device,
            context,
            sync_memops: false,
            pieces: Vec::new(),
            file,
            bus,
            kernel,
        });
        Ok(at)
    }

    /// As `cuMemFree`: the addresses are given out again, and what holds the old memory holds it still.
    pub(crate) fn free(&mut self, va: u64) -> Answer {
        let nth = self.blocks.iter().position(|block| block.pieces.iter().any(|piece| piece.at == va));
        let block = &mut self.blocks[nth.ok_or(INVALID_VALUE)?];
        if block.kind == Kind::Malloc {
            block.pieces.retain(|piece| piece.at != va);
        } else {
            block.pieces.clear();
        }
        if block.pieces.is_empty() {
            let block = self.blocks.remove(nth.ok_or(INVALID_VALUE)?);
            self.free.push((block.at, block.len));
        }
        Ok(())
    }

    /// Whose address it is.
    pub(crate) fn find(&mut self, va: u64) -> Answer<(&mut Block, Piece)> {
        self.blocks
            .iter_mut()
            .find_map(|block| {
                let piece = *block.pieces.iter().find(|piece| piece.has(va))?;
                Some((block, piece))
            })
            .ok_or(NOT_FOUND)
    }
}

impl Block {
    fn range(&self, va: u64, len: u64) -> Answer<std::ops::Range<usize>> {
        let at = va.checked_sub(self.at).ok_or(INVALID_VALUE)?;
        let end = at.checked_add(len).filter(|end| *end <= self.len).ok_or(INVALID_VALUE)?;
        Ok(at as usize..end as usize)
    }

    /// What a kernel writes: both views have it.
    pub(crate) fn write(&mut self, va: u64, bytes: &[u8]) -> Answer {
        let range = self.range(va, bytes.len() as u64)?;
        // SAFETY: inside the mapping, which has as many bytes as the block; devices move bytes of it by system calls.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bus.wrapping_add(range.start), bytes.len()) };
        self.kernel[range].copy_from_slice(bytes);
        Ok(())
    }

    /// What a kernel reads.
    pub(crate) fn read(&self, va: u64, len: u64, ordered: bool) -> Answer<Vec<u8>> {
        let range = self.range(va, len)?;
        Ok(if ordered { self.on_bus(range) } else { self.kernel[range].to_vec() })
    }

    /// What a device reads.
    pub(crate) fn read_bus(&self, va: u64, len: u64) -> Answer<Vec<u8>> {
        Ok(self.on_bus(self.range(va, len)?))
    }

    /// What a device writes: the bus view alone.
    pub(crate) fn write_bus(&mut self, va: u64, bytes: &[u8]) -> Answer {
        let range = self.range(va, bytes.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bus.wrapping_add(range.start), bytes.len()) };
        Ok(())
    }

    fn on_bus(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.bus.wrapping_add(range.start), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    pub(crate) fn flush(&mut self) {
        self.kernel = self.on_bus(0..self.kernel.len());
    }

    /// Whether all of a range is mapped; what `cuMemAlloc` made is mapped in whole blocks.
    pub(crate) fn is_mapped(&self, va: u64, len: u64) -> bool {
        let inside = self.range(va, len).is_ok();
        let pages =
            || (va..va + len).step_by(PAGE as usize).all(|page| self.pieces.iter().any(|piece| piece.has(page)));
        inside && (self.kind != Kind::Virtual || pages())
    }

    pub(crate) fn is_in(&self, file: i32) -> bool {
        self.file.as_raw_fd() == file
    }

    /// A sealed file that names a part of the bus view.
    pub(crate) fn ticket(&self, va: u64, len: u64) -> Answer<OwnedFd> {
        ticket(self.file.as_raw_fd().into(), self.range(va, len)?.start as u64, len)
    }
}

/// One for a part of a file; of a negative one it is refused with that error number.
pub(crate) fn ticket(file: i64, at: u64, len: u64) -> Answer<OwnedFd> {
    let ticket = memory_file(c"fakecuda ticket")?;
    let magic = u64::from_ne_bytes(*b"FKDMABUF");
    let told = crate::control::fakecuda_bus_was_read as extern "C" fn(i32) as usize as u64;
    let words = [magic, u64::from(std::process::id()), file.cast_unsigned(), at, len, told];
    let size = size_of_val(&words);
    // As long as what it stands for, whose length the file of a dma-buf tells.
    // SAFETY: a file of ours.
    if unsafe { libc::ftruncate(ticket.as_raw_fd(), len.cast_signed()) } != 0 {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: words of ours, into a file of ours.
    let written = unsafe { libc::pwrite(ticket.as_raw_fd(), words.as_ptr().cast(), size, 0) };
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: a file of ours.
    let sealed = unsafe { libc::fcntl(ticket.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if written == size as isize && sealed == 0 { Ok(ticket) } else { Err(OUT_OF_MEMORY) }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped in `add`, and unmapped once. Whoever else mapped the file has it still.
        unsafe { libc::munmap(self.bus.cast::<c_void>(), self.len as usize) };
    }
}

fn memory_file(name: &std::ffi::CStr) -> Answer<OwnedFd> {
    // SAFETY: a name that ends.
    let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if number < 0 {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: made just now.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn map(len: usize, file: i32) -> Answer<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the system chooses where, so nothing is replaced.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file, 0) };
    if base == libc::MAP_FAILED { Err(OUT_OF_MEMORY) } else { Ok(base.cast()) }
}
