//! The driver's types and numbers, of its System V interface on x86-64 and aarch64, each by C's name for it:
//! `loader/check.rs` compares them with NVIDIA's header. Handles are numbers here: nobody but the driver looks behind
//! one.

#![forbid(unsafe_code)]

/// `CUdeviceptr`.
pub(crate) type Address = u64;
/// A pointer of the driver's, of one of the three sorts that follow.
pub(crate) type Handle = usize;
pub(crate) type Context = Handle;
pub(crate) type Stream = Handle;
pub(crate) type Event = Handle;
/// `CUresult`.
pub(crate) type Code = i32;
pub(crate) type DeviceAttribute = i32;
pub(crate) type PointerAttribute = i32;
pub(crate) type CaptureStatus = i32;
pub(crate) type FlushTarget = i32;
pub(crate) type FlushScope = i32;
pub(crate) type RangeHandle = i32;

/// Constants, and what C calls them.
macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:literal, $c:ident;)*) => {
        $($(#[$doc])* pub(crate) const $name: $ty = $value;)*

        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, i64)] = &[$((stringify!($c), $value)),*];
    };
}

numbers! {
    SUCCESS: Code = 0, CUDA_SUCCESS;
    INVALID_VALUE: Code = 1, CUDA_ERROR_INVALID_VALUE;
    STUB_LIBRARY: Code = 34, CUDA_ERROR_STUB_LIBRARY;
    NO_DEVICE: Code = 100, CUDA_ERROR_NO_DEVICE;
    INVALID_CONTEXT: Code = 201, CUDA_ERROR_INVALID_CONTEXT;
    NOT_READY: Code = 600, CUDA_ERROR_NOT_READY;
    NOT_SUPPORTED: Code = 801, CUDA_ERROR_NOT_SUPPORTED;
    SYSTEM_DRIVER_MISMATCH: Code = 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    CAPTURE_UNSUPPORTED: Code = 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    CAPTURE_INVALIDATED: Code = 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    /// A call on the legacy stream while another one, which waits for it, is captured.
    CAPTURE_IMPLICIT: Code = 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    MEMORY_TYPE_HOST: u32 = 1, CU_MEMORYTYPE_HOST;
    MEMORY_TYPE_DEVICE: u32 = 2, CU_MEMORYTYPE_DEVICE;
    RANGE_HANDLE_DMA_BUF_FD: RangeHandle = 1, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    RANGE_FLAG_PCIE: u64 = 1, CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE;
    FLUSH_TARGET_CURRENT_CONTEXT: FlushTarget = 0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
    FLUSH_TO_OWNER: FlushScope = 100, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
    FLUSH_TO_ALL_DEVICES: FlushScope = 200, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES;
    FLUSH_OPTION_HOST: i32 = 1, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST;
    EVENT_DISABLE_TIMING: u32 = 2, CU_EVENT_DISABLE_TIMING;
    STREAM_LEGACY: Stream = 1, CU_STREAM_LEGACY;
    STREAM_PER_THREAD: Stream = 2, CU_STREAM_PER_THREAD;
}

/// The driver that first knows the flag of PCIe: before, flags must be 0.
pub(crate) const RANGE_FLAG_PCIE_SINCE: i32 = 12080;

/// Attributes of a device.
pub(crate) mod attribute {
    use super::DeviceAttribute as Attribute;

    numbers! {
        COMPUTE_CAPABILITY_MAJOR: Attribute = 75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        COMPUTE_CAPABILITY_MINOR: Attribute = 76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
        GPU_DIRECT_RDMA_SUPPORTED: Attribute = 116, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED;
        FLUSH_WRITES_OPTIONS: Attribute = 117, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS;
        WRITES_ORDERING: Attribute = 118, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
        DMA_BUF_SUPPORTED: Attribute = 124, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    }
}

/// Attributes of an address.
pub(crate) mod pointer {
    use super::PointerAttribute as Attribute;

    numbers! {
        CONTEXT: Attribute = 1, CU_POINTER_ATTRIBUTE_CONTEXT;
        MEMORY_TYPE: Attribute = 2, CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        SYNC_MEMOPS: Attribute = 6, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        BUFFER_ID: Attribute = 7, CU_POINTER_ATTRIBUTE_BUFFER_ID;
        IS_MANAGED: Attribute = 8, CU_POINTER_ATTRIBUTE_IS_MANAGED;
        DEVICE_ORDINAL: Attribute = 9, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        MEMPOOL_HANDLE: Attribute = 17, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
    }
}
