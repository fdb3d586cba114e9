//! Queue pairs.

#![forbid(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::layout::layouts;
use super::{IbvAh, IbvAhAttr, IbvContext, IbvCq, IbvPd, Unused};

layouts! {
    /// A queue pair.
    struct IbvQp = "struct ibv_qp" {
        context: *mut IbvContext,
        qp_context: *mut c_void,
        pd: *mut IbvPd,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut c_void,
        handle: u32,
        qp_num: u32,
        state: c_int,
        qp_type: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    /// How much a queue pair holds.
    struct IbvQpCap = "struct ibv_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    /// What a queue pair is made with.
    struct IbvQpInitAttr = "struct ibv_qp_init_attr" {
        qp_context: *mut c_void,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut c_void,
        cap: IbvQpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
    }

    /// Of raw packets, which EFA has none of.
    struct IbvRxHashConf = "struct ibv_rx_hash_conf" {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    /// What a queue pair is made with, and which operations it may post (R06).
    struct IbvQpInitAttrEx = "struct ibv_qp_init_attr_ex" {
        qp_context: *mut c_void,
        send_cq: *mut IbvCq,
        recv_cq: *mut IbvCq,
        srq: *mut c_void,
        cap: IbvQpCap,
        qp_type: c_int,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut IbvPd,
        xrcd: *mut c_void,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: Unused,
        rx_hash_conf: IbvRxHashConf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    /// A queue pair with the calls that post on it. An operation that it was not made with has none (R06).
    struct IbvQpEx = "struct ibv_qp_ex" {
        qp_base: IbvQp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: u32,
        wr_atomic_cmp_swp: Unused,
        wr_atomic_fetch_add: Unused,
        wr_bind_mw: Unused,
        wr_local_inv: Unused,
        wr_rdma_read: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64)>,
        wr_rdma_write: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64)>,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut IbvQpEx, u32, u64, u32)>,
        wr_send: Option<unsafe extern "C" fn(*mut IbvQpEx)>,
        wr_send_imm: Option<unsafe extern "C" fn(*mut IbvQpEx, u32)>,
        wr_send_inv: Unused,
        wr_send_tso: Unused,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut IbvQpEx, *mut IbvAh, u32, u32)>,
        wr_set_xrc_srqn: Unused,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut IbvQpEx, *mut c_void, usize)>,
        wr_set_inline_data_list: Unused,
        wr_set_sge: Unused,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut IbvQpEx, usize, *const IbvSge)>,
        wr_start: Option<unsafe extern "C" fn(*mut IbvQpEx)>,
        wr_complete: Option<unsafe extern "C" fn(*mut IbvQpEx) -> c_int>,
        wr_abort: Option<unsafe extern "C" fn(*mut IbvQpEx)>,
        wr_atomic_write: Unused,
        wr_flush: Unused => 45,
    }

    /// A local buffer.
    struct IbvSge = "struct ibv_sge" {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    /// A receive to post.
    struct IbvRecvWr = "struct ibv_recv_wr" {
        wr_id: u64,
        next: *mut IbvRecvWr,
        sg_list: *mut IbvSge,
        num_sge: c_int,
    }

    /// What a queue pair is moved with, or tells.
    struct IbvQpAttr = "struct ibv_qp_attr" {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        cap: IbvQpCap,
        ah_attr: IbvAhAttr,
        alt_ah_attr: IbvAhAttr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    const {
        IBV_QPT_UD: c_int = 4;
        IBV_QPT_DRIVER: c_int = 0xFF;
        IBV_QP_INIT_ATTR_PD: u32 = 1;
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
        IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
        IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
        IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
        IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
        IBV_QP_STATE: c_int = 1;
        IBV_QP_CUR_STATE: c_int = 1 << 1;
        IBV_QP_EN_SQD_ASYNC_NOTIFY: c_int = 1 << 2;
        IBV_QP_PKEY_INDEX: c_int = 1 << 4;
        IBV_QP_PORT: c_int = 1 << 5;
        IBV_QP_QKEY: c_int = 1 << 6;
        IBV_QP_RNR_RETRY: c_int = 1 << 11;
        IBV_QP_SQ_PSN: c_int = 1 << 16;
        IBV_QP_CAP: c_int = 1 << 19;
        IBV_QPS_RESET: u32 = 0;
        IBV_QPS_INIT: u32 = 1;
        IBV_QPS_RTR: u32 = 2;
        IBV_QPS_RTS: u32 = 3;
        IBV_QPS_SQD: u32 = 4;
        IBV_QPS_SQE: u32 = 5;
        IBV_QPS_ERR: u32 = 6;
    }
}
