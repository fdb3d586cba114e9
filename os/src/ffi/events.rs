//! Events: of completion queues, and asynchronous ones.

#![forbid(unsafe_code)]

use core::ffi::{c_int, c_void};

use super::layout::layouts;

layouts! {
    /// An asynchronous event, and what it is of: a pointer to a queue pair or a completion queue, or the number of a port.
    struct IbvAsyncEvent = "struct ibv_async_event" {
        element: *mut c_void,
        event_type: c_int,
    }

    const {
        IBV_EVENT_CQ_ERR: c_int = 0;
        IBV_EVENT_QP_FATAL: c_int = 1;
        IBV_EVENT_QP_REQ_ERR: c_int = 2;
        IBV_EVENT_QP_ACCESS_ERR: c_int = 3;
        IBV_EVENT_COMM_EST: c_int = 4;
        IBV_EVENT_SQ_DRAINED: c_int = 5;
        IBV_EVENT_PATH_MIG: c_int = 6;
        IBV_EVENT_PATH_MIG_ERR: c_int = 7;
        IBV_EVENT_DEVICE_FATAL: c_int = 8;
        IBV_EVENT_PORT_ACTIVE: c_int = 9;
        IBV_EVENT_PORT_ERR: c_int = 10;
        IBV_EVENT_PKEY_CHANGE: c_int = 12;
        IBV_EVENT_QP_LAST_WQE_REACHED: c_int = 16;
        IBV_EVENT_GID_CHANGE: c_int = 18;
        IBV_EVENT_DEVICE_SPEED_CHANGE: c_int = 20 => 62;
    }
}
