//! The numbers of the kernel's interface: objects, methods, attributes, commands. Sources: `ib_user_ioctl_cmds.h`,
//! `ib_user_verbs.h` and `efa-abi.h`.

#![forbid(unsafe_code)]

/// The ioctl that carries everything.
pub const RDMA_VERBS_IOCTL: u64 = 0xC018_1B01;
/// EFA's number among the drivers.
pub const DRIVER_EFA: u32 = 17;

/// Objects.
pub mod object {
    /// The device itself: there are no instances.
    pub const DEVICE: u16 = 0;
    /// A protection domain.
    pub const PD: u16 = 1;
    /// A completion queue.
    pub const CQ: u16 = 3;
    /// A queue pair.
    pub const QP: u16 = 4;
    /// An address handle.
    pub const AH: u16 = 6;
    /// A memory region.
    pub const MR: u16 = 7;
    /// The file that asynchronous events are read from.
    pub const ASYNC_EVENT: u16 = 16;
    /// A completion counter.
    pub const COUNTER: u16 = 19;
}

/// Methods, by object.
pub mod method {
    /// A command of the older interface.
    pub const DEVICE_INVOKE_WRITE: u16 = 0;
    /// Port attributes.
    pub const DEVICE_QUERY_PORT: u16 = 2;
    /// Opens the device.
    pub const DEVICE_GET_CONTEXT: u16 = 3;
    /// A port's speed.
    pub const DEVICE_QUERY_PORT_SPEED: u16 = 7;
    /// All GIDs.
    pub const DEVICE_QUERY_GID_TABLE: u16 = 5;
    /// One GID.
    pub const DEVICE_QUERY_GID_ENTRY: u16 = 6;
    /// What there is of completion counters.
    pub const DEVICE_QUERY_COUNTERS: u16 = 8;
    /// Of a domain, or an address handle.
    pub const DESTROY: u16 = 0;
    /// Of a region.
    pub const MR_DESTROY: u16 = 1;
    /// Registers memory that a file names.
    pub const MR_REG_DMABUF: u16 = 4;
    /// Registers memory of either kind.
    pub const MR_REG: u16 = 5;
    /// The driver's own: how the device reaches a region.
    pub const MR_QUERY: u16 = 0x1000;
    /// Of a completion queue, queue pair or counter.
    pub const CREATE: u16 = 0;
    /// Of a completion queue, queue pair or counter.
    pub const CREATED_DESTROY: u16 = 1;
    /// Attaches a counter.
    pub const QP_ATTACH_COUNTER: u16 = 2;
    /// Sets a count, or adds to it.
    pub const COUNTER_MODIFY: u16 = 2;
    /// Tells a count.
    pub const COUNTER_READ: u16 = 3;
    /// Makes the file of asynchronous events.
    pub const ASYNC_EVENT_ALLOC: u16 = 0;
}

/// Attributes, by method.
pub mod attr {
    /// The driver's own part of a request.
    pub const UHW_IN: u16 = 0x1000;
    /// The driver's own part of an answer.
    pub const UHW_OUT: u16 = 0x1001;
    /// Of `INVOKE_WRITE`.
    pub const CORE_IN: u16 = 0;
    /// Of `INVOKE_WRITE`.
    pub const CORE_OUT: u16 = 1;
    /// Of `INVOKE_WRITE`.
    pub const WRITE_CMD: u16 = 2;
    /// What each destroying method begins with.
    pub const HANDLE: u16 = 0;
    /// What destroying a completion queue or queue pair answers.
    pub const DESTROY_RESP: u16 = 1;
    /// Of `CQ.CREATE`.
    pub const CQ_CQE: u16 = 1;
    /// Of `CQ.CREATE`.
    pub const CQ_USER_HANDLE: u16 = 2;
    /// Of `CQ.CREATE`.
    pub const CQ_COMP_CHANNEL: u16 = 3;
    /// Of `CQ.CREATE`.
    pub const CQ_COMP_VECTOR: u16 = 4;
    /// Of `CQ.CREATE`.
    pub const CQ_FLAGS: u16 = 5;
    /// Of `CQ.CREATE`.
    pub const CQ_RESP_CQE: u16 = 6;
    /// Of `CQ.CREATE`.
    pub const CQ_EVENT_FD: u16 = 7;
    /// Of `CQ.CREATE`.
    pub const CQ_BUFFER_VA: u16 = 8;
    /// Of `CQ.CREATE`.
    pub const CQ_BUFFER_LENGTH: u16 = 9;
    /// Of `CQ.CREATE`.
    pub const CQ_BUFFER_FD: u16 = 10;
    /// Of `CQ.CREATE`.
    pub const CQ_BUFFER_OFFSET: u16 = 11;
    /// Of `MR.REG_DMABUF` and `MR.REG`.
    pub const MR_PD: u16 = 1;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_OFFSET: u16 = 2;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_LENGTH: u16 = 3;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_IOVA: u16 = 4;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_FD: u16 = 5;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_ACCESS: u16 = 6;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_RESP_LKEY: u16 = 7;
    /// Of `MR.REG_DMABUF`.
    pub const DMABUF_RESP_RKEY: u16 = 8;
    /// Of `MR.REG`.
    pub const MR_DMA_HANDLE: u16 = 2;
    /// Of `MR.REG`.
    pub const MR_IOVA: u16 = 3;
    /// Of `MR.REG`.
    pub const MR_ADDR: u16 = 4;
    /// Of `MR.REG`.
    pub const MR_LENGTH: u16 = 5;
    /// Of `MR.REG`.
    pub const MR_ACCESS: u16 = 6;
    /// Of `MR.REG`.
    pub const MR_FD: u16 = 7;
    /// Of `MR.REG`.
    pub const MR_FD_OFFSET: u16 = 8;
    /// Of `MR.REG`.
    pub const MR_RESP_LKEY: u16 = 9;
    /// Of `MR.REG`.
    pub const MR_RESP_RKEY: u16 = 10;
    /// Of `MR.QUERY`: the region, and from the next number on what is answered.
    pub const MR_QUERIED: u16 = 0x1000;
    /// Of `QP.CREATE`.
    pub const QP_PD: u16 = 2;
    /// Of `QP.CREATE`.
    pub const QP_SEND_CQ: u16 = 4;
    /// Of `QP.CREATE`.
    pub const QP_RECV_CQ: u16 = 5;
    /// Of `QP.CREATE`.
    pub const QP_USER_HANDLE: u16 = 7;
    /// Of `QP.CREATE`.
    pub const QP_CAP: u16 = 8;
    /// Of `QP.CREATE`.
    pub const QP_TYPE: u16 = 9;
    /// Of `QP.CREATE`.
    pub const QP_FLAGS: u16 = 10;
    /// Of `QP.CREATE`.
    pub const QP_EVENT_FD: u16 = 12;
    /// Of `QP.CREATE`.
    pub const QP_RESP_CAP: u16 = 13;
    /// Of `QP.CREATE`.
    pub const QP_RESP_QP_NUM: u16 = 14;
    /// Of `COUNTER.CREATE`: where the count of what ended well is.
    pub const COUNTER_DONE: u16 = 0x1000;
    /// Of `COUNTER.CREATE`: where the count of what failed is.
    pub const COUNTER_FAILED: u16 = 0x1001;
    /// Of `COUNTER.MODIFY` and `READ`.
    pub const COUNTER_ENTRY: u16 = 1;
    /// Of `COUNTER.MODIFY`.
    pub const COUNTER_OP: u16 = 2;
    /// Of `COUNTER.MODIFY`.
    pub const COUNTER_VALUE: u16 = 3;
    /// Of `COUNTER.READ`.
    pub const COUNTER_RESP_VALUE: u16 = 2;
    /// Of `QP.ATTACH_COUNTER`.
    pub const COUNTER_HANDLE: u16 = 1;
    /// Of `QP.ATTACH_COUNTER`.
    pub const COUNTER_OPS: u16 = 2;
}

/// Commands of `INVOKE_WRITE`.
pub mod command {
    /// The one that a probe asks for.
    pub const GET_CONTEXT: u32 = 0;
    /// Device attributes.
    pub const QUERY_DEVICE: u32 = 1;
    /// Makes a protection domain.
    pub const ALLOC_PD: u32 = 3;
    /// Makes an address handle.
    pub const CREATE_AH: u32 = 5;
    /// Registers memory.
    pub const REG_MR: u32 = 9;
    /// Makes a completion channel.
    pub const CREATE_COMP_CHANNEL: u32 = 17;
    /// Queue pair attributes.
    pub const QUERY_QP: u32 = 25;
    /// Moves a queue pair.
    pub const MODIFY_QP: u32 = 26;
    /// Device attributes, all.
    pub const EX_QUERY_DEVICE: u32 = 0x8000_0001;
}

/// `QP_TYPE`: unreliable datagrams.
pub const QPT_UD: u64 = 4;
/// `QP_TYPE`: the driver's own, which is SRD.
pub const QPT_DRIVER: u64 = 0xFF;
/// `QP_FLAGS`: all sends are signaled, as they are on EFA anyway.
pub const QP_SQ_SIG_ALL: u64 = 1 << 12;

/// What a structure of a request begins with: fields beyond what was sent are zero, as older programs mean it.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(self.0.iter().skip(at)) {
            *to = *from;
        }
        out
    }

    /// The byte at an offset.
    pub fn u8(self, at: usize) -> u8 {
        u8::from_ne_bytes(self.bytes(at))
    }

    /// The two bytes at an offset.
    pub fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    /// The four bytes at an offset.
    pub fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    /// The eight bytes at an offset.
    pub fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }

    /// The sixteen bytes at an offset.
    pub fn gid(self, at: usize) -> [u8; 16] {
        self.bytes(at)
    }

    /// Whether all from an offset on are zero.
    pub fn is_zero_from(self, at: usize) -> bool {
        self.0.iter().skip(at).all(|byte| *byte == 0)
    }
}

/// A structure of an answer, zero where nothing is put.
#[derive(Clone, Debug)]
pub struct Answer<const N: usize>(pub [u8; N]);

impl<const N: usize> Answer<N> {
    /// All zeros.
    pub const fn new() -> Self {
        Self([0; N])
    }

    /// With these bytes at an offset; what would be beyond the end is left out.
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        for (to, from) in self.0.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
        self
    }

    /// With a byte.
    pub fn u8(self, at: usize, value: u8) -> Self {
        self.with(at, &[value])
    }

    /// With two bytes.
    pub fn u16(self, at: usize, value: u16) -> Self {
        self.with(at, &value.to_ne_bytes())
    }

    /// With four bytes.
    pub fn u32(self, at: usize, value: u32) -> Self {
        self.with(at, &value.to_ne_bytes())
    }

    /// With eight bytes.
    pub fn u64(self, at: usize, value: u64) -> Self {
        self.with(at, &value.to_ne_bytes())
    }
}

impl<const N: usize> Default for Answer<N> {
    fn default() -> Self {
        Self::new()
    }
}
