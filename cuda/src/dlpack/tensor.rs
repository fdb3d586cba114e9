//! A tensor that a framework handed over.

#![allow(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroUsize;
use core::ptr::{NonNull, with_exposed_provenance_mut};

use efa_core::memory::{DmaBuf, RawParts, Visible};

use super::abi::{self, DataType, DlTensor, Managed, ManagedVersioned, device_type};
use super::extent::{DlpackError, bytes};
use crate::memory::{Access, Owner, ReadOnly, Writable};

/// What calls the producer's deleter, once, when it is dropped.
enum Deleter {
    Legacy(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

// SAFETY: the deleter may be called from any thread, by the word of whoever handed the tensor over.
unsafe impl Send for Deleter {}

impl Drop for Deleter {
    fn drop(&mut self) {
        match *self {
            Self::Legacy(managed) => {
                // SAFETY: the producer's struct, which is there until its deleter was called.
                if let Some(deleter) = unsafe { (*managed.as_ptr()).deleter } {
                    // SAFETY: called once, with what it is for.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
            Self::Versioned(managed) => {
                // SAFETY: as above: this field is where it is in every version.
                if let Some(deleter) = unsafe { (*managed.as_ptr()).deleter } {
                    // SAFETY: as above.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
        }
    }
}

/// A tensor of a framework's, which is given back, by its deleter, when this is dropped: once it was deregistered.
///
/// It is no copy. Kernels that the framework has queued may still write it: see [`Stream`](crate::Stream).
pub struct Tensor<A = Writable> {
    address: u64,
    len: usize,
    device: abi::Device,
    dtype: DataType,
    shape: Vec<i64>,
    _deleter: Deleter,
    access: PhantomData<fn() -> A>,
}

/// A tensor, as its producer said that it may be used.
#[derive(Debug)]
pub enum Imported {
    /// It may be written.
    Writable(Tensor),
    /// It may not.
    ReadOnly(Tensor<ReadOnly>),
}

impl Tensor {
    /// Takes over what a capsule named `dltensor` has, which is to be renamed to `used_dltensor`.
    ///
    /// # Errors
    /// [`DlpackError`]; the tensor was given back.
    ///
    /// # Safety
    /// It is what DLPack's header says, shape and strides with as many numbers as it has dimensions; nobody else calls its deleter,
    /// which may be called from any thread, and until then, or, where it has none, until the tensor was dropped, the memory stays
    /// allocated, its context alive.
    pub unsafe fn from_legacy(managed: NonNull<Managed>) -> Result<Self, DlpackError> {
        let deleter = Deleter::Legacy(managed);
        // SAFETY: by the caller's word.
        let tensor = unsafe { managed.as_ref() }.dl_tensor;
        // SAFETY: likewise.
        unsafe { Self::new(&tensor, false, deleter) }
    }

    /// Takes over what a capsule named `dltensor_versioned` has, which is to be renamed to `used_dltensor_versioned`.
    ///
    /// # Errors
    /// [`DlpackError`]; the tensor was given back.
    ///
    /// # Safety
    /// As [`Tensor::from_legacy`]; of another major version, version and deleter alone need be what the header says.
    pub unsafe fn from_versioned(managed: NonNull<ManagedVersioned>) -> Result<Imported, DlpackError> {
        let deleter = Deleter::Versioned(managed);
        // SAFETY: by the caller's word; a raw place, since of another version the rest may not be there.
        let version = unsafe { (*managed.as_ptr()).version };
        if version.major != abi::MAJOR {
            return Err(DlpackError::Version { major: version.major, understood: abi::MAJOR });
        }
        // SAFETY: of this version all of it is there.
        let ManagedVersioned { flags, dl_tensor, .. } = unsafe { managed.as_ref() };
        let (padded, read_only) = (flags & abi::SUBBYTE_PADDED != 0, flags & abi::READ_ONLY != 0);
        let tensor = *dl_tensor;
        if read_only {
            // SAFETY: by the caller's word.
            return unsafe { Tensor::new(&tensor, padded, deleter) }.map(Imported::ReadOnly);
        }
        // SAFETY: likewise.
        unsafe { Tensor::new(&tensor, padded, deleter) }.map(Imported::Writable)
    }
}

impl<A: Access> Tensor<A> {
    /// # Safety
    /// As [`Tensor::from_legacy`].
    unsafe fn new(tensor: &DlTensor, padded: bool, deleter: Deleter) -> Result<Self, DlpackError> {
        let DlTensor { data, device, ndim, dtype, shape, strides, byte_offset } = *tensor;
        match device.device_type {
            device_type::CPU | device_type::CUDA | device_type::CUDA_HOST => {}
            device_type::CUDA_MANAGED => return Err(DlpackError::Managed),
            other => return Err(DlpackError::Device { device_type: other }),
        }
        let ndim = usize::try_from(ndim).map_err(|_| DlpackError::Malformed)?;
        let numbers = |from: *const i64| {
            if ndim == 0 || from.is_null() {
                return None;
            }
            // SAFETY: as many numbers as dimensions, by the caller's word.
            Some(unsafe { core::slice::from_raw_parts(from, ndim) }.to_vec())
        };
        let (shape, strides) = (numbers(shape), numbers(strides));
        if ndim > 0 && shape.is_none() {
            return Err(DlpackError::Malformed);
        }
        let shape = shape.unwrap_or_default();
        let len = bytes(dtype, padded, &shape, strides.as_deref())?;
        // Of a GPU's memory it is a number; of the host's the pointer is made again from it.
        let address = (data.expose_provenance() as u64).checked_add(byte_offset);
        let address = address.filter(|first| first.checked_add(len as u64).is_some() && (*first != 0 || len == 0));
        let address = address.ok_or(DlpackError::Malformed)?;
        Ok(Self { address, len, device, dtype, shape, _deleter: deleter, access: PhantomData })
    }

    /// Whether it is the host's memory, pinned or not.
    pub fn is_host(&self) -> bool {
        self.device.device_type != device_type::CUDA
    }

    /// Where it is, as DLPack says.
    pub fn device(&self) -> abi::Device {
        self.device
    }

    /// What an element is.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Elements in each dimension.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The first byte, as whoever has it knows it.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none, which nothing registers (R37).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Tensor {
    /// A tensor of the host's as memory to be registered as any other there is, by
    /// [`ProtectionDomain::register`](efa_core::ProtectionDomain::register): no driver of CUDA's is needed for it.
    ///
    /// # Errors
    /// The tensor, if it is a GPU's, or empty.
    ///
    /// # Safety
    /// Its bytes are initialised, and nobody else reads or writes them until the deleter was called: neither the framework nor another
    /// tensor that shares them.
    pub unsafe fn into_host(self) -> Result<HostTensor, Self> {
        match usize::try_from(self.address).ok().and_then(NonZeroUsize::new) {
            Some(address) if self.is_host() && self.len > 0 => Ok(HostTensor { address, tensor: self }),
            _ => Err(self),
        }
    }
}

// SAFETY: the memory stays until the deleter was called, by the word of whoever handed it over; address and length do not change.
unsafe impl<A: Access> Owner for Tensor<A> {
    type Access = A;

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl<A> fmt::Debug for Tensor<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (abi::Device { device_type, device_id }, Self { dtype, shape, address, len, .. }) = (self.device, self);
        write!(f, "Tensor {{ {len} bytes at {address:#x}, device {device_type}:{device_id}, {shape:?} of {dtype:?} }}")
    }
}

/// A tensor of the host's, to be registered.
#[derive(Debug)]
pub struct HostTensor {
    address: NonZeroUsize,
    tensor: Tensor,
}

impl HostTensor {
    /// The tensor again.
    pub fn into_tensor(self) -> Tensor {
        self.tensor
    }
}

// SAFETY: initialised bytes that stay where they are until the deleter was called, and are nobody else's, by `into_host`'s contract.
unsafe impl DmaBuf for HostTensor {
    type View = Visible;

    fn into_raw(self) -> RawParts {
        let base = NonNull::new(with_exposed_provenance_mut(self.address.get()));
        let (len, extra) = (self.tensor.len, Box::into_raw(Box::new(self.tensor)).expose_provenance());
        RawParts { base: base.unwrap_or(NonNull::dangling()), len, extra }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: boxed by `into_raw`, and taken back once, by the caller's word.
        let tensor = *unsafe { Box::from_raw(with_exposed_provenance_mut::<Tensor>(parts.extra)) };
        Self { address: parts.base.addr(), tensor }
    }
}
