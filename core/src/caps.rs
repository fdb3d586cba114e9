//! What a device can do and how much of it, as its query answered; and the tokens that prove it.

#![forbid(unsafe_code)]

use core::marker::PhantomData;

use bitflags::bitflags;

use crate::{DeviceId, Error};

bitflags! {
    /// Capabilities a device reports (`efadv_query_device`, same bits; from bit 30 on, what else it says).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Caps: u32 {
        /// RDMA read.
        const RDMA_READ = 1 << 0;
        /// The RNR retry count can be set.
        const RNR_RETRY = 1 << 1;
        /// A completion queue can report the sender's GID.
        const CQ_WITH_SGID = 1 << 2;
        /// RDMA write and RDMA write with immediate.
        const RDMA_WRITE = 1 << 3;
        /// RDMA write with immediate that consumes no receive at the responder.
        const UNSOLICITED_WRITE_RECV = 1 << 4;
        /// Completion queue memory given by the caller.
        const CQ_WITH_EXT_MEM_DMABUF = 1 << 5;
        /// Completion counters.
        const COMP_CNTR = 1 << 6;
        /// 128-byte send entries (R10): `inline_buf_size_ex` is more than `inline_buf_size`.
        const WIDE_ENTRIES = 1 << 30;
        /// RDMA write of inline bytes, in 128-byte entries (R10). To libefa it is a flag of the queue pair
        /// (`EFADV_QP_FLAGS_INLINE_WRITE`) that it takes wherever there is RDMA write.
        const INLINE_WRITE = 1 << 31;
    }
}

/// Limits of a device: counts, bytes and depths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// Address handles.
    pub max_ah: u32,
    /// Bytes of one memory region.
    pub max_mr_size: u64,
    /// Bytes of one SEND: the port's `max_msg_sz` (R11).
    pub max_msg_size: u32,
    /// Bytes of one RDMA operation (R11).
    pub max_rdma_size: u32,
    /// Send queue entries of 64 bytes of one queue pair; of 128 bytes there are half as many (R18).
    pub max_send_depth: u32,
    /// The least send queue entries of one queue pair (R18).
    pub min_send_depth: u32,
    /// Receive queue descriptors of one queue pair (R19).
    pub max_recv_depth: u32,
    /// Buffers of one SEND (R09).
    pub max_send_sge: u8,
    /// Buffers of one receive (R19).
    pub max_recv_sge: u8,
    /// Inline bytes of one SEND in a 64-byte entry: `inline_buf_size` (R10).
    pub max_inline: u16,
    /// Inline bytes of one SEND or RDMA write in a 128-byte entry: `inline_buf_size_ex` (R10).
    pub max_inline_wide: u16,
    /// Entries of a completion queue (R17).
    pub max_cqe: u32,
    /// Entries of 64 bytes that one doorbell may announce; of 128 bytes it may announce half as many (R18).
    pub max_batch: u16,
}

/// What can be required of a device: a capability, a queue pair kind, an access type.
///
/// Implemented by this crate's marker types only.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is nothing that can be required of a device (R07)",
    label = "not a requirement",
    note = "a kind of queue pair: `Srd`, `SendOnly`, `Ud`; an access: `RemoteRead`, `RemoteWrite`, `RemoteReadWrite`; a capability: `SetRnrRetry`"
)]
pub trait Requirement: sealed::Sealed {
    /// The capabilities it needs.
    const NEEDS: Caps;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The proof that a device has what `T` needs: made by [`Context::require`](crate::Context::require) alone (R07).
#[must_use = "a granted requirement is the argument of the call that needs it"]
#[derive(Debug)]
pub struct Granted<T> {
    device: DeviceId,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Granted<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Granted<T> {}

impl<T: Requirement> Granted<T> {
    pub(crate) fn new(device: DeviceId, has: Caps) -> Result<Self, Error> {
        if has.contains(T::NEEDS) {
            Ok(Self { device, of: PhantomData })
        } else {
            Err(Error::Unsupported { needs: T::NEEDS, has })
        }
    }

    /// Refuses a token that another device issued.
    pub(crate) fn check(&self, device: DeviceId) -> Result<(), Error> {
        if self.device == device { Ok(()) } else { Err(Error::ForeignToken { token: self.device, device }) }
    }
}

macro_rules! capability {
    ($(#[$doc:meta])* $name:ident needs $caps:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name(());

        impl sealed::Sealed for $name {}

        impl Requirement for $name {
            const NEEDS: Caps = $caps;
        }
    };
}

capability!(
    /// The RNR retry count can be set: needed by [`RtsAttr::rnr_retry`](crate::qp::RtsAttr::rnr_retry).
    SetRnrRetry needs Caps::RNR_RETRY
);
