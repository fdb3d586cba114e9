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

bitflags! {
    /// Flags of one send request (`ibv_send_flags`), for bindings to C.
    ///
    /// The typed interface has none of them: every operation is signaled (R08), inline is an operation of its
    /// own (R10), and EFA refuses the others, so that there is nothing left to choose.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SendFlags: u32 {
        /// Wait for earlier RDMA reads. EFA refuses it: SRD has no order to wait for (R16).
        const FENCE = 1 << 0;
        /// Report the completion. EFA refuses a request without it (R08).
        const SIGNALED = 1 << 1;
        /// Raise an event at the peer. EFA refuses it (R30).
        const SOLICITED = 1 << 2;
        /// The data is in the request itself; memory of the host only (R10).
        const INLINE = 1 << 3;
    }
}

impl SendFlags {
    /// The only ones that EFA takes.
    pub const TAKEN_BY_EFA: Self = Self::SIGNALED.union(Self::INLINE);
}

bitflags! {
    /// What a completion says of itself (`ibv_wc_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WcFlags: u32 {
        /// 40 bytes of routing header precede the payload: true of every UD receive, though libefa does not set it.
        const GRH = 1 << 0;
        /// There is an immediate.
        const WITH_IMM = 1 << 1;
    }
}

bitflags! {
    /// What can be read of a completion (`ibv_create_cq_wc_flags`): those that EFA takes (R31).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CqFields: u64 {
        /// Bytes that arrived.
        const BYTE_LEN = 1 << 0;
        /// The immediate.
        const IMM = 1 << 1;
        /// The local queue pair.
        const QP_NUM = 1 << 2;
        /// The sender's queue pair.
        const SRC_QP = 1 << 3;
        /// The sender's address handle number, where InfiniBand has the sender's port.
        const SLID = 1 << 4;
        /// The service level: 0.
        const SL = 1 << 5;
        /// Path bits: 0.
        const DLID_PATH_BITS = 1 << 6;
    }
}

bitflags! {
    /// What can be read of a completion besides (`efadv_cq_init_attr.wc_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct EfaCqFields: u64 {
        /// The sender's GID (`EFADV_WC_EX_WITH_SGID`), where the device knows no address handle for it (R24).
        const SGID = 1 << 0;
        /// Whether a receive was consumed (`EFADV_WC_EX_WITH_IS_UNSOLICITED`, R22).
        const IS_UNSOLICITED = 1 << 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_values_of_libibverbs_and_libefa() {
        assert_eq!(SendFlags::all().bits(), 0b1111);
        assert_eq!((SendFlags::SIGNALED.bits(), SendFlags::INLINE.bits()), (2, 8));
        assert_eq!((WcFlags::GRH.bits(), WcFlags::WITH_IMM.bits()), (1, 2));
        assert_eq!(CqFields::all().bits(), 0x7F);
        assert_eq!((CqFields::SLID.bits(), CqFields::DLID_PATH_BITS.bits()), (16, 64));
        assert_eq!((EfaCqFields::SGID.bits(), EfaCqFields::IS_UNSOLICITED.bits()), (1, 2));
        assert_eq!(Access::RELAXED_ORDERING.bits(), 0x10_0000);
        assert_eq!(QpAttrMask::SQ_PSN.bits(), 0x1_0000);
    }

    #[test]
    fn bits_this_crate_does_not_know_are_kept() {
        assert_eq!(WcFlags::from_bits_retain(0x8000_0002).bits(), 0x8000_0002);
    }
}
