//! What libefa has of its own. Its structs grow at their end, and each call takes the length that the caller knows.

#![forbid(unsafe_code)]

use core::ffi::c_int;

use super::layout::layouts;
use super::{IbvGid, Unused};

layouts! {
    /// What a device can do.
    struct EfadvDeviceAttr = "struct efadv_device_attr" {
        comp_mask: u64,
        max_sq_wr: u32,
        max_rq_wr: u32,
        max_sq_sge: u16,
        max_rq_sge: u16,
        inline_buf_size: u16,
        inline_buf_size_ex: u16 => 63,
        device_caps: u32,
        max_rdma_size: u32,
    }

    /// The number of an address handle.
    struct EfadvAhAttr = "struct efadv_ah_attr" {
        comp_mask: u64,
        ahn: u16,
        reserved: [u8; 6],
    }

    /// What a queue pair is made with besides. `flags` and `sl` were reserved, and zero, before they had a meaning.
    struct EfadvQpInitAttr = "struct efadv_qp_init_attr" {
        comp_mask: u64,
        driver_qp_type: u32,
        flags: u16 => 52,
        sl: u8 => 55,
        reserved: u8 => 55,
        wr_flags: u64 => 64,
    }

    /// A queue of a queue pair. `caps` was reserved before it had a meaning.
    struct EfadvWqAttr = "struct efadv_wq_attr" => 59 {
        comp_mask: u64,
        buffer: *mut u8,
        entry_size: u32,
        num_entries: u32,
        doorbell: *mut u32,
        max_batch: u32,
        caps: u16 => 65,
        reserved: [u8; 2] => 65,
    }

    /// A completion queue's ring.
    struct EfadvCqAttr = "struct efadv_cq_attr" => 59 {
        comp_mask: u64,
        buffer: *mut u8,
        entry_size: u32,
        num_entries: u32,
        doorbell: *mut u32 => 60,
    }

    /// What a completion queue is made with besides, as far as every libefa knows it: from 59 on it goes on with memory of
    /// the caller's for the queue.
    struct EfadvCqInitAttr = "struct efadv_cq_init_attr" until 59 {
        comp_mask: u64,
        wc_flags: u64,
    }

    /// By which of a device's interconnects it reaches a region, in which roles, where it tells.
    struct EfadvMrAttr = "struct efadv_mr_attr" => 50 {
        comp_mask: u64,
        ic_id_validity: u16,
        recv_ic_id: u16,
        rdma_read_ic_id: u16,
        rdma_recv_ic_id: u16,
    }

    /// A completion queue's readers of libefa's own.
    struct EfadvCq = "struct efadv_cq" {
        comp_mask: u64,
        wc_read_sgid: Option<unsafe extern "C" fn(*mut EfadvCq, *mut IbvGid) -> c_int>,
        wc_is_unsolicited: Unused => 52,
    }

    /// How many entries a send queue may have of what it is to hold.
    struct EfadvSqDepthAttr = "struct efadv_sq_depth_attr" => 63 {
        comp_mask: u64,
        flags: u32,
        max_send_sge: u32,
        max_rdma_sge: u32,
        max_inline_data: u32,
    }

    const {
        EFADV_DEVICE_ATTR_CAPS_RDMA_READ: u32 = 1;
        EFADV_DEVICE_ATTR_CAPS_RNR_RETRY: u32 = 1 << 1;
        EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID: u32 = 1 << 2;
        EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE: u32 = 1 << 3 => 46;
        EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV: u32 = 1 << 4 => 52;
        EFADV_DEVICE_ATTR_CAPS_CQ_WITH_EXT_MEM_DMABUF: u32 = 1 << 5 => 59;
        EFADV_DEVICE_ATTR_CAPS_COMP_CNTR: u32 = 1 << 6 => 65;
        EFADV_QP_DRIVER_TYPE_SRD: u32 = 0;
        EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV: u16 = 1 => 52;
        EFADV_QP_FLAGS_INLINE_WRITE: u16 = 1 << 1 => 63;
        EFADV_WQ_CAPS_64_BIT_REQ_ID: u16 = 1 => 65;
        EFADV_MR_ATTR_VALIDITY_RECV_IC_ID: u16 = 1 => 50;
        EFADV_MR_ATTR_VALIDITY_RDMA_READ_IC_ID: u16 = 1 << 1 => 50;
        EFADV_MR_ATTR_VALIDITY_RDMA_RECV_IC_ID: u16 = 1 << 2 => 50;
        EFADV_WC_EX_WITH_SGID: u64 = 1;
        EFADV_WC_EX_WITH_IS_UNSOLICITED: u64 = 1 << 1 => 52;
    }
}
