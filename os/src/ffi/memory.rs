//! Domains, regions, address handles.

#![forbid(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::layout::layouts;
use super::{IbvContext, IbvGid};

layouts! {
    /// A protection domain.
    struct IbvPd = "struct ibv_pd" {
        context: *mut IbvContext,
        handle: u32,
    }

    /// A memory region.
    struct IbvMr = "struct ibv_mr" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// An address handle.
    struct IbvAh = "struct ibv_ah" {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        handle: u32,
    }

    /// Where an address handle leads, by its GID.
    struct IbvGlobalRoute = "struct ibv_global_route" {
        dgid: IbvGid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// Where an address handle leads. Of these, EFA reads the GID, the port and whether it is global (R28).
    struct IbvAhAttr = "struct ibv_ah_attr" {
        grh: IbvGlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    const {
        IBV_ACCESS_LOCAL_WRITE: c_int = 1;
        IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
        IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;
        IBV_ACCESS_RELAXED_ORDERING: c_int = 1 << 20;
    }
}
