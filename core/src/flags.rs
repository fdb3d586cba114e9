//! The verbs' flag sets, bit for bit.

#![forbid(unsafe_code)]

use bitflags::bitflags;

bitflags! {
    /// Access rights of a memory region (`ibv_access_flags`).
    ///
    /// The typed interface derives these from how memory is registered; they are never typed twice.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Access: u32 {
        /// The device may write: receive and read targets (R15).
        const LOCAL_WRITE = 1 << 0;
        /// Peers may write by RDMA; implies [`Access::LOCAL_WRITE`] (R15).
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read by RDMA.
        const REMOTE_READ = 1 << 2;
        /// PCIe relaxed ordering: see [`crate::memory::RegisterOptions::relaxed_ordering`].
        const RELAXED_ORDERING = 1 << 20;
    }
}

bitflags! {
    /// Operations a queue pair may post (`ibv_qp_create_send_ops_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendOps: u8 {
        /// RDMA write.
        const RDMA_WRITE = 1 << 0;
        /// RDMA write with immediate.
        const RDMA_WRITE_WITH_IMM = 1 << 1;
        /// SEND.
        const SEND = 1 << 2;
        /// SEND with immediate.
        const SEND_WITH_IMM = 1 << 3;
        /// RDMA read.
        const RDMA_READ = 1 << 4;
    }
}

bitflags! {
    /// Queue pair attributes (`ibv_qp_attr_mask`): those that EFA takes (R01).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct QpAttrMask: u32 {
        /// The state to move to.
        const STATE = 1 << 0;
        /// The state to move from.
        const CUR_STATE = 1 << 1;
        /// Notify when the send queue is drained.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// The partition key index: 0.
        const PKEY_INDEX = 1 << 4;
        /// The port: 1.
        const PORT = 1 << 5;
        /// The queue key.
        const QKEY = 1 << 6;
        /// Receiver-not-ready retries.
        const RNR_RETRY = 1 << 11;
        /// The first packet sequence number.
        const SQ_PSN = 1 << 16;
    }
}
