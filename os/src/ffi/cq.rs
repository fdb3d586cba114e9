//! Completion queues.

#![forbid(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::layout::layouts;
use super::{IbvContext, IbvPd, Unused};

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
        start_poll: Unused,
        next_poll: Unused,
        end_poll: Unused,
        read_opcode: Unused,
        read_vendor_err: Unused,
        read_byte_len: Unused,
        read_imm_data: Unused,
        read_qp_num: Unused,
        read_src_qp: Unused,
        read_wc_flags: Unused,
        read_slid: Unused,
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
}
