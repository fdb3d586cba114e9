//! The admin queue's entries, as the driver and the device write them: little-endian, 64 bytes.

#![forbid(unsafe_code)]
// What the derived implementations make for themselves has none.
#![allow(missing_debug_implementations)]

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a command, and of its completion.
pub const ENTRY: usize = 64;

/// What the commands are called by.
pub mod opcode {
    #![allow(missing_docs)]
    pub const CREATE_QP: u8 = 1;
    pub const MODIFY_QP: u8 = 2;
    pub const QUERY_QP: u8 = 3;
    pub const DESTROY_QP: u8 = 4;
    pub const CREATE_AH: u8 = 5;
    pub const DESTROY_AH: u8 = 6;
    pub const REG_MR: u8 = 7;
    pub const DEREG_MR: u8 = 8;
    pub const CREATE_CQ: u8 = 9;
    pub const DESTROY_CQ: u8 = 10;
    pub const GET_FEATURE: u8 = 11;
    pub const SET_FEATURE: u8 = 12;
    pub const GET_STATS: u8 = 13;
    pub const ALLOC_PD: u8 = 14;
    pub const DEALLOC_PD: u8 = 15;
    pub const ALLOC_UAR: u8 = 16;
    pub const DEALLOC_UAR: u8 = 17;
    pub const CREATE_EQ: u8 = 18;
    pub const DESTROY_EQ: u8 = 19;
}

/// What the features are called by.
pub mod feature {
    #![allow(missing_docs)]
    pub const DEVICE: u8 = 1;
    pub const AENQ: u8 = 2;
    pub const NETWORK: u8 = 3;
    pub const QUEUES: u8 = 4;
    pub const HARDWARE_HINTS: u8 = 5;
    pub const HOST_INFO: u8 = 6;
    pub const EVENT_QUEUES: u8 = 7;
    pub const QUEUES_2: u8 = 9;
}

macro_rules! layout {
    ($(#[$doc:meta])* $name:ident = $bytes:literal { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $type),* }

        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

layout! {
    /// A command.
    Command = 64 { id: U16, opcode: u8, flags: u8, body: [u8; 60] }
}
layout! {
    /// A completion: its first word is written last.
    Completion = 64 { id: U16, status: u8, phase: u8, extended: U16, sq_head: U16, body: [u8; 56] }
}

/// An address is given, of a control buffer.
pub const WITH_BUFFER: u8 = 1 << 1;
/// It is that of the first of a chain of lists.
pub const INDIRECT: u8 = 1 << 2;
/// Bits of a command's number.
pub const ID_MASK: u16 = 0xFFF;

layout! {
    /// Where something is, and its bytes.
    Buffer = 12 { length: U32, low: U32, high: U32 }
}

impl Buffer {
    /// On the bus.
    pub fn at(&self) -> u64 {
        address(self.low, self.high)
    }
}

/// An address of two words.
pub fn address(low: U32, high: U32) -> u64 {
    u64::from(low.get()) | u64::from(high.get()) << 32
}

layout! {
    CreateQp = 60 {
        pd: U16, qp_type: u8, flags: u8, sq_base: U64, rq_base: U64, send_cq: U32, recv_cq: U32, sq_lkey: U32, rq_lkey: U32,
        sq_bytes: U32, sq_depth: U32, rq_bytes: U32, rq_depth: U32, uar: U16, service_level: u8, reserved: [u8; 5],
    }
}
layout! {
    QpMade = 28 {
        handle: U32, qpn: U16, reserved: U16, send_sub_cq: U16, recv_sub_cq: U16, sq_doorbell: U32, rq_doorbell: U32, llq: U32,
        unused: U32,
    }
}
layout! {
    ModifyQp = 28 {
        mask: U32, handle: U32, state: U32, cur_state: U32, qkey: U32, sq_psn: U32, notify: u8, rnr_retry: u8, reserved: U16,
    }
}
layout! {
    QpQueried = 16 { state: U32, qkey: U32, sq_psn: U32, draining: u8, rnr_retry: u8, reserved: U16 }
}
layout! {
    CreateAh = 20 { gid: [u8; 16], pd: U16, reserved: U16 }
}
layout! {
    DestroyAh = 4 { ah: U16, pd: U16 }
}
layout! {
    RegMr = 60 {
        pd: U16, reserved: U16, list: [u8; 32], length: U64, flags: u8, permissions: u8, reserved2: U16, pages: U32, iova: U64,
    }
}
layout! {
    MrMade = 12 { lkey: U32, rkey: U32, validity: u8, interconnects: [u8; 3] }
}
layout! {
    CreateCq = 24 {
        caps: u8, entry: u8, depth: U16, eqn: U16, reserved: U16, low: U32, high: U32, lkey: U32, sub_cqs: U16, uar: U16,
    }
}
layout! {
    CqMade = 12 { index: U16, depth: U16, doorbell: U32, flags: U32 }
}
layout! {
    CreateEq = 20 { depth: U16, vector: u8, entry: u8, low: U32, high: U32, events: U32, reserved: U32 }
}
layout! {
    /// Of GET_FEATURE and SET_FEATURE.
    Feature = 60 { buffer: Buffer, reserved: u8, id: u8, reserved2: U16, values: [U32; 11] }
}
layout! {
    GetStats = 16 { buffer: Buffer, kind: u8, scope: u8, modifier: U16 }
}
layout! {
    DeviceAttributes = 56 {
        features: U64, page_sizes: U64, firmware: U32, admin_version: U32, device_version: U32, doorbell_region: U16,
        physical_bits: u8, virtual_bits: u8, caps: U32, max_rdma_size: U32, guid: U64, gigabits: U16, reserved: [u8; 6],
    }
}
layout! {
    QueueAttributes = 56 {
        max_qp: U32, max_sq_depth: U32, inline: U32, max_rq_depth: U32, max_cq: U32, max_cq_depth: U32, sub_cqs: U16,
        min_sq_depth: U16, send_sges: U16, recv_sges: U16, max_mr: U32, max_mr_pages: U32, max_pd: U32, max_ah: U32,
        max_llq_bytes: U32, rdma_sges: U16, max_batch: U16,
    }
}
layout! {
    NetworkAttributes = 20 { gid: [u8; 16], mtu: U32 }
}
