//! Devices, contexts, ports.

#![forbid(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};

use super::layout::layouts;
use super::{IbvCq, IbvQp, IbvQpInitAttrEx, IbvRecvWr};

/// A pointer to a function that is never called through it.
pub(crate) type Unused = *mut c_void;

/// The call that posts receives.
pub(crate) type PostRecv = unsafe extern "C" fn(*mut IbvQp, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int;

layouts! {
    /// An RDMA device of the list.
    struct IbvDevice = "struct ibv_device" {
        _ops: [Unused; 2],
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    /// An open device.
    struct IbvContext = "struct ibv_context" {
        device: *mut IbvDevice,
        ops: IbvContextOps,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// The functions that the header calls inline.
    struct IbvContextOps = "struct ibv_context_ops" {
        _compat_query_device: Unused,
        _compat_query_port: Unused,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Unused,
        bind_mw: Unused,
        dealloc_mw: Unused,
        _compat_create_cq: Unused,
        poll_cq: Unused,
        req_notify_cq: Option<unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Unused,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Unused,
        post_recv: Option<PostRecv>,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }

    /// What a device is, and how much there is of it.
    struct IbvDeviceAttr = "struct ibv_device_attr" {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: u32,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: c_int,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    /// What a port is.
    struct IbvPortAttr = "struct ibv_port_attr" {
        state: c_int,
        max_mtu: c_int,
        active_mtu: c_int,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
        active_speed_ex: u32 => 56,
    }

    /// A GID. In C it is a union with integers of the network's byte order, which decides its alignment.
    struct IbvGid = "union ibv_gid" {
        raw: IbvGidBytes,
    }

    const {
        IBV_FORK_DISABLED: c_int = 0;
        IBV_FORK_ENABLED: c_int = 1;
        IBV_FORK_UNNEEDED: c_int = 2;
        IBV_PORT_DOWN: c_int = 1;
        IBV_PORT_INIT: c_int = 2;
        IBV_PORT_ARMED: c_int = 3;
        IBV_PORT_ACTIVE: c_int = 4;
        IBV_PORT_ACTIVE_DEFER: c_int = 5;
        IBV_MTU_256: c_int = 1;
        IBV_MTU_4096: c_int = 5;
        IBV_LINK_LAYER_UNSPECIFIED: c_int = 0;
        IBV_LINK_LAYER_INFINIBAND: c_int = 1;
        IBV_LINK_LAYER_ETHERNET: c_int = 2;
    }
}

/// The end of `struct verbs_context`, whose last member is the [`IbvContext`] that the library gave: it grows at its
/// front, and its size says which members exist.
#[repr(C)]
pub(crate) struct VerbsContextTail {
    pub(crate) create_qp_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp>,
    pub(crate) get_srq_num: Unused,
    pub(crate) create_srq_ex: Unused,
    pub(crate) open_xrcd: Unused,
    pub(crate) close_xrcd: Unused,
    pub(crate) placeholder: u64,
    pub(crate) sz: usize,
    pub(crate) context: IbvContext,
}

/// The bytes of a GID, aligned as C's union is.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct IbvGidBytes(pub(crate) [u8; 16]);

/// What `ibv_query_port` writes: the part of [`IbvPortAttr`] that the first release had. The rest stays as it was.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct CompatIbvPortAttr(pub(crate) IbvPortAttr);

/// Whether a child after `fork` leaves registered memory alone.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct ForkStatus(pub(crate) c_int);

/// A character of C's: signed on some machines and not on others.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Char(c_char);

/// A number in the network's byte order.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Be64(u64);

impl Be64 {
    pub(crate) fn number(self) -> u64 {
        u64::from_be(self.0)
    }
}

#[cfg(all(test, feature = "system"))]
mod c_types {
    use super::super::layout::CType;

    impl CType for super::CompatIbvPortAttr {
        fn c_type() -> String {
            "struct _compat_ibv_port_attr".to_owned()
        }
    }

    impl CType for super::ForkStatus {
        fn c_type() -> String {
            "enum ibv_fork_status".to_owned()
        }
    }

    impl CType for super::Char {
        fn c_type() -> String {
            "char".to_owned()
        }
    }

    impl CType for super::Be64 {
        fn c_type() -> String {
            "__be64".to_owned()
        }
    }
}
