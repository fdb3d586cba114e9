//! What owns a GPU's memory.

#![allow(unsafe_code)]

use core::fmt::Debug;

/// Whether memory may be written: [`Writable`] or [`ReadOnly`].
pub trait Access: sealed::Sealed + Debug + Send + Sync + 'static {
    /// Whether it may.
    const WRITABLE: bool;
}

mod sealed {
    #[expect(unnameable_types, reason = "sealed")]
    pub trait Sealed {}
}

impl sealed::Sealed for Writable {}
impl sealed::Sealed for ReadOnly {}

/// Memory that may be written.
#[derive(Clone, Copy, Debug)]
pub enum Writable {}

/// Memory that its producer says is not to be written: it is sent, and neither exposed nor told to have arrived. The device has no
/// right to write it: what is received or read into it all the same fails by its completion (R15).
#[derive(Clone, Copy, Debug)]
pub enum ReadOnly {}

/// Access to memory that a device may write.
#[diagnostic::on_unimplemented(
    message = "memory that is `{Self}` is not written by the device: nothing arrives in it, and it is not exposed",
    label = "its producer says that it is not to be written",
    note = "take a copy of the tensor, or ask its producer for one that may be written: it then comes as `Imported::Writable`"
)]
pub trait MayBeWritten: Access {}

impl MayBeWritten for Writable {}

impl Access for Writable {
    const WRITABLE: bool = true;
}

impl Access for ReadOnly {
    const WRITABLE: bool = false;
}

/// An owner of device memory, which is kept until that was deregistered.
///
/// # Safety
/// From [`Owner::address`] on, [`Owner::len`] bytes are device memory that stays allocated, and mapped as it is, with its context
/// alive, until this is dropped; both answer the same each time. It may be dropped on any thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no owner of a GPU's memory",
    label = "not an owner of a GPU's memory",
    note = "a tensor: `dlpack::Tensor`; an address: `unsafe BorrowedDevice::new`, which says what must hold"
)]
pub unsafe trait Owner: Send + 'static {
    /// Whether it may be written.
    type Access: Access;

    /// The first byte, as the GPU knows it.
    fn address(&self) -> u64;

    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there are none, which nothing registers (R37).
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Device memory that the program keeps itself.
#[derive(Debug)]
pub struct BorrowedDevice {
    address: u64,
    len: usize,
}

impl BorrowedDevice {
    /// `len` bytes from an address of the GPU's on.
    ///
    /// # Safety
    /// They are one allocation's, or mapped virtual memory, and stay allocated and mapped as they are, their context alive,
    /// until this value is dropped: which is after whatever registered it was closed or dropped, and no operation on it is in
    /// flight. An allocator that gives memory back, `torch.cuda.empty_cache` for one, ends that.
    pub unsafe fn new(address: u64, len: usize) -> Self {
        Self { address, len }
    }
}

// SAFETY: by the word of whoever made it.
unsafe impl Owner for BorrowedDevice {
    type Access = Writable;

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}
