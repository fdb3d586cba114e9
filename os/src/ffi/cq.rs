//! Completion queues.

#![forbid(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::layout::layouts;
use super::{IbvContext, IbvPd, Unused};

/// A reader of a completion's field; none if the queue was made without it (R31).
pub(crate) type Read32 = Option<unsafe extern "C" fn(*mut IbvCqEx) -> u32>;

layouts! {
    /// Where completion events come from.
    struct IbvCompChannel = "struct ibv_comp_channel" {
        context: *mut IbvContext,
        fd: c_int,
        refcnt: c_int,
    }

    /// A completion queue.
    struct IbvCq = "struct ibv_cq" {
        context: *mut IbvContext,
        channel: *mut IbvCompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    /// A completion queue with its readers. It begins as [`IbvCq`] does, which it may be used as.
    struct IbvCqEx = "struct ibv_cq_ex" {
        context: *mut IbvContext,
        channel: *mut IbvCompChannel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: c_int,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut IbvCqEx, *mut IbvPollCqAttr) -> c_int>,
        next_poll: Unused,
        end_poll: Option<unsafe extern "C" fn(*mut IbvCqEx)>,
        read_opcode: Option<unsafe extern "C" fn(*mut IbvCqEx) -> c_int>,
        read_vendor_err: Read32,
        read_byte_len: Read32,
        read_imm_data: Read32,
        read_qp_num: Read32,
        read_src_qp: Read32,
        read_wc_flags: Read32,
        read_slid: Read32,
        read_sl: Unused,
        read_dlid_path_bits: Unused,
        read_completion_ts: Unused,
        read_cvlan: Unused,
        read_flow_tag: Unused,
        read_tm_info: Unused,
        read_completion_wallclock_ns: Unused,
    }

    /// What a completion queue is made with.
    struct IbvCqInitAttrEx = "struct ibv_cq_init_attr_ex" {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut IbvCompChannel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut IbvPd,
    }

    /// How a poll begins.
    struct IbvPollCqAttr = "struct ibv_poll_cq_attr" {
        comp_mask: u32,
    }

    const {
        IBV_WC_EX_WITH_BYTE_LEN: u64 = 1;
        IBV_WC_EX_WITH_IMM: u64 = 1 << 1;
        IBV_WC_EX_WITH_QP_NUM: u64 = 1 << 2;
        IBV_WC_EX_WITH_SRC_QP: u64 = 1 << 3;
        IBV_WC_EX_WITH_SLID: u64 = 1 << 4;
        IBV_WC_WITH_IMM: u32 = 1 << 1;
        IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
        IBV_WC_RECV_RDMA_WITH_IMM: c_int = 129;
    }
}
