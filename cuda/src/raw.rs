//! The driver's types and numbers, of its System V interface on x86-64 and aarch64. Handles are numbers here: nobody but the driver
//! looks behind one.

#![forbid(unsafe_code)]

/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// `CUcontext`, `CUstream`, `CUevent`: pointers of the driver's.
pub(crate) type Handle = usize;
/// `CUresult`.
pub(crate) type Code = i32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const STUB_LIBRARY: Code = 34;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const SYSTEM_DRIVER_MISMATCH: Code = 803;
pub(crate) const CAPTURE_UNSUPPORTED: Code = 900;
pub(crate) const CAPTURE_INVALIDATED: Code = 901;
/// A call on the legacy stream while another one, which waits for it, is captured.
pub(crate) const CAPTURE_IMPLICIT: Code = 906;

/// Attributes of a device.
pub(crate) mod attribute {
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    pub(crate) const GPU_DIRECT_RDMA_SUPPORTED: i32 = 116;
    pub(crate) const FLUSH_WRITES_OPTIONS: i32 = 117;
    pub(crate) const WRITES_ORDERING: i32 = 118;
    pub(crate) const DMA_BUF_SUPPORTED: i32 = 124;
}

/// Attributes of an address.
pub(crate) mod pointer {
    pub(crate) const CONTEXT: i32 = 1;
    pub(crate) const MEMORY_TYPE: i32 = 2;
    pub(crate) const SYNC_MEMOPS: i32 = 6;
    pub(crate) const BUFFER_ID: i32 = 7;
    pub(crate) const IS_MANAGED: i32 = 8;
    pub(crate) const DEVICE_ORDINAL: i32 = 9;
    pub(crate) const MEMPOOL_HANDLE: i32 = 17;
}

pub(crate) const MEMORY_TYPE_HOST: u32 = 1;
pub(crate) const MEMORY_TYPE_DEVICE: u32 = 2;

pub(crate) const RANGE_HANDLE_DMA_BUF_FD: i32 = 1;
pub(crate) const RANGE_FLAG_PCIE: u64 = 1;
/// The driver that first knows the flag: before, flags must be 0.
pub(crate) const RANGE_FLAG_PCIE_SINCE: i32 = 12080;

pub(crate) const FLUSH_TARGET_CURRENT_CONTEXT: i32 = 0;
pub(crate) const FLUSH_OPTION_HOST: i32 = 1;

pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;

pub(crate) const STREAM_LEGACY: Handle = 1;
pub(crate) const STREAM_PER_THREAD: Handle = 2;
