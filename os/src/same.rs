//! What has a number in C and one in core: the same one, or this does not compile.

#![forbid(unsafe_code)]

use efa_core::Caps;
use efa_core::flags::{Access, QpAttrMask, SendOps};
use efa_core::qp::QpState;

use crate::ffi::*;

macro_rules! same {
    ($($core:expr, $c:expr;)*) => {
        $(const _: () = assert!($core as u64 == $c as u64);)*
    };
}

same! {
    Caps::RDMA_READ.bits(), EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
    Caps::RNR_RETRY.bits(), EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
    Caps::CQ_WITH_SGID.bits(), EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
    Caps::RDMA_WRITE.bits(), EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE;
    Caps::UNSOLICITED_WRITE_RECV.bits(), EFADV_DEVICE_ATTR_CAPS_UNSOLICITED_WRITE_RECV;
    Caps::CQ_WITH_EXT_MEM_DMABUF.bits(), EFADV_DEVICE_ATTR_CAPS_CQ_WITH_EXT_MEM_DMABUF;
    Caps::COMP_CNTR.bits(), EFADV_DEVICE_ATTR_CAPS_COMP_CNTR;

    Access::LOCAL_WRITE.bits(), IBV_ACCESS_LOCAL_WRITE;
    Access::REMOTE_WRITE.bits(), IBV_ACCESS_REMOTE_WRITE;
    Access::REMOTE_READ.bits(), IBV_ACCESS_REMOTE_READ;
    Access::RELAXED_ORDERING.bits(), IBV_ACCESS_RELAXED_ORDERING;

    SendOps::RDMA_WRITE.bits(), IBV_QP_EX_WITH_RDMA_WRITE;
    SendOps::RDMA_WRITE_WITH_IMM.bits(), IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    SendOps::SEND.bits(), IBV_QP_EX_WITH_SEND;
    SendOps::SEND_WITH_IMM.bits(), IBV_QP_EX_WITH_SEND_WITH_IMM;
    SendOps::RDMA_READ.bits(), IBV_QP_EX_WITH_RDMA_READ;

    QpAttrMask::STATE.bits(), IBV_QP_STATE;
    QpAttrMask::CUR_STATE.bits(), IBV_QP_CUR_STATE;
    QpAttrMask::EN_SQD_ASYNC_NOTIFY.bits(), IBV_QP_EN_SQD_ASYNC_NOTIFY;
    QpAttrMask::PKEY_INDEX.bits(), IBV_QP_PKEY_INDEX;
    QpAttrMask::PORT.bits(), IBV_QP_PORT;
    QpAttrMask::QKEY.bits(), IBV_QP_QKEY;
    QpAttrMask::RNR_RETRY.bits(), IBV_QP_RNR_RETRY;
    QpAttrMask::SQ_PSN.bits(), IBV_QP_SQ_PSN;

    QpState::Reset.number(), IBV_QPS_RESET;
    QpState::Init.number(), IBV_QPS_INIT;
    QpState::Rtr.number(), IBV_QPS_RTR;
    QpState::Rts.number(), IBV_QPS_RTS;
    QpState::Sqd.number(), IBV_QPS_SQD;
    QpState::Sqe.number(), IBV_QPS_SQE;
    QpState::Err.number(), IBV_QPS_ERR;
}
