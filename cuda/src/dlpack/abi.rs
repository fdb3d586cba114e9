//! DLPack's structs, of 64-bit machines, as its header of 1.x has them; nothing here needs a standard library.

#![forbid(unsafe_code)]

use core::ffi::c_void;
use core::mem::offset_of;

/// The major version that is understood.
pub const MAJOR: u32 = 1;

/// Device types.
pub mod device_type {
    /// The host's memory.
    pub const CPU: i32 = 1;
    /// A GPU's, of CUDA.
    pub const CUDA: i32 = 2;
    /// The host's, pinned by CUDA.
    pub const CUDA_HOST: i32 = 3;
    /// CUDA's managed memory.
    pub const CUDA_MANAGED: i32 = 13;
}

/// Flag: the producer says that it is not to be written.
pub const READ_ONLY: u64 = 1;
/// Flag: types of fewer than eight bits have a byte each.
pub const SUBBYTE_PADDED: u64 = 4;

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// One of [`device_type`].
    pub device_type: i32,
    /// Which of them.
    pub device_id: i32,
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataType {
    /// What the bits mean.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Lanes of an element.
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DlTensor {
    /// The allocation, or where in it.
    pub data: *mut c_void,
    /// Where it is.
    pub device: Device,
    /// Dimensions.
    pub ndim: i32,
    /// What an element is.
    pub dtype: DataType,
    /// Elements in each dimension.
    pub shape: *const i64,
    /// Elements from one to the next in each dimension; null: they lie one behind the other, the last dimension innermost.
    pub strides: *const i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    /// What it is of.
    pub dl_tensor: DlTensor,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Called once it is no longer needed; null: the producer keeps it.
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// Another one has another layout.
    pub major: u32,
    /// More flags and types.
    pub minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedVersioned {
    /// Of this struct.
    pub version: Version,
    /// The producer's own.
    pub manager_ctx: *mut c_void,
    /// Called once it is no longer needed; null: the producer keeps it.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    /// [`READ_ONLY`], [`SUBBYTE_PADDED`].
    pub flags: u64,
    /// What it is of.
    pub dl_tensor: DlTensor,
}

static_assertions::assert_eq_size!(DlTensor, [u8; 48]);
static_assertions::assert_eq_size!(Managed, [u8; 64]);
static_assertions::assert_eq_size!(ManagedVersioned, [u8; 80]);
static_assertions::const_assert_eq!(offset_of!(DlTensor, device), 8);
static_assertions::const_assert_eq!(offset_of!(DlTensor, ndim), 16);
static_assertions::const_assert_eq!(offset_of!(DlTensor, dtype), 20);
static_assertions::const_assert_eq!(offset_of!(DlTensor, shape), 24);
static_assertions::const_assert_eq!(offset_of!(DlTensor, strides), 32);
static_assertions::const_assert_eq!(offset_of!(DlTensor, byte_offset), 40);
static_assertions::const_assert_eq!(offset_of!(Managed, manager_ctx), 48);
static_assertions::const_assert_eq!(offset_of!(Managed, deleter), 56);
static_assertions::const_assert_eq!(offset_of!(ManagedVersioned, manager_ctx), 8);
static_assertions::const_assert_eq!(offset_of!(ManagedVersioned, deleter), 16);
static_assertions::const_assert_eq!(offset_of!(ManagedVersioned, flags), 24);
static_assertions::const_assert_eq!(offset_of!(ManagedVersioned, dl_tensor), 32);
