//! Kinds of queue pair: which operations it may post, and which features its peers must share.

#![forbid(unsafe_code)]

use super::{EntrySize, Narrow, QpType, Wide};
use crate::caps::sealed::Sealed;
use crate::flags::SendOps;
use crate::wire::Features;
use crate::{Caps, Requirement};

/// The operations, for naming a set of them: `Srd<{ ops::SEND | ops::RDMA_WRITE }>`.
pub mod ops {
    use crate::flags::SendOps;

    /// RDMA write.
    pub const RDMA_WRITE: u8 = SendOps::RDMA_WRITE.bits();
    /// RDMA write with immediate.
    pub const RDMA_WRITE_WITH_IMM: u8 = SendOps::RDMA_WRITE_WITH_IMM.bits();
    /// SEND.
    pub const SEND: u8 = SendOps::SEND.bits();
    /// SEND with immediate.
    pub const SEND_WITH_IMM: u8 = SendOps::SEND_WITH_IMM.bits();
    /// RDMA read.
    pub const RDMA_READ: u8 = SendOps::RDMA_READ.bits();
    /// All five.
    pub const ALL: u8 = SendOps::all().bits();
}

/// A scalable reliable datagram queue pair that may post `OPS`, shares `F` with its peers, and has send entries of
/// size `E`, which is its own affair.
///
/// SRD delivers each message once, and promises no order: neither between messages nor within one write
/// (R16). Every operation is signaled (R08). There are no atomics and no memory windows (R29).
#[derive(Clone, Copy, Debug)]
pub struct Srd<const OPS: u8 = { ops::ALL }, F = Solicited, E = Narrow>(core::marker::PhantomData<(F, E)>);

/// An SRD queue pair for devices without RDMA.
pub type SendOnly = Srd<{ ops::SEND | ops::SEND_WITH_IMM }>;

/// A kind of queue pair.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no kind of queue pair (R06, R29)",
    label = "not a kind of queue pair",
    note = "EFA has SRD: `ctx.require::<Srd>()?` for all five operations, `Srd<{{ ops::SEND | ops::RDMA_READ }}>` for some",
    note = "and UD: `ctx.require::<Ud>()?`, for SENDs that may be lost"
)]
pub trait QpKind: Requirement + 'static {
    /// The device's type, which has a state table of its own (R01).
    const TYPE: QpType;
    /// The operations it may post (R06).
    const OPS: SendOps;
    /// The features it shares with its peers (R05).
    type Features: FeatureSet;
    /// The size of its send entries (R10).
    type Entries: EntrySize;
}

impl<const OPS: u8, F: FeatureSet, E: EntrySize> Sealed for Srd<OPS, F, E> {}

impl<const OPS: u8, F: FeatureSet, E: EntrySize> Requirement for Srd<OPS, F, E> {
    const NEEDS: Caps = {
        let ops = match SendOps::from_bits(OPS) {
            Some(ops) => ops,
            None => panic!("EFA has five operations: name them by the constants in `efa_core::qp::ops` (R29)"),
        };
        let read = if ops.contains(SendOps::RDMA_READ) { Caps::RDMA_READ } else { Caps::empty() };
        let write = match ops.intersects(SendOps::RDMA_WRITE.union(SendOps::RDMA_WRITE_WITH_IMM)) {
            true if E::NEEDS.contains(Caps::WIDE_ENTRIES) => Caps::RDMA_WRITE.union(Caps::INLINE_WRITE),
            true => Caps::RDMA_WRITE,
            false => Caps::empty(),
        };
        read.union(write).union(F::NEEDS).union(E::NEEDS)
    };
}

impl<const OPS: u8, F: FeatureSet, E: EntrySize> QpKind for Srd<OPS, F, E> {
    const TYPE: QpType = QpType::Srd;
    const OPS: SendOps = SendOps::from_bits_retain(OPS);
    type Features = F;
    type Entries = E;
}

/// What both queue pairs of a connection must have been made with (R05).
pub trait FeatureSet: Sealed + Copy + Send + Sync + 'static {
    /// As it travels in a hello.
    const FEATURES: Features;
    /// What the device must be able to do.
    const NEEDS: Caps;
}

/// An RDMA write with immediate consumes a receive at the responder.
#[derive(Clone, Copy, Debug)]
pub struct Solicited(());

/// An RDMA write with immediate consumes no receive at the responder: its arrivals are bounded by nothing
/// but the completion queue, so ask for a [budget](crate::qp::Depth::unsolicited) (R17).
#[derive(Clone, Copy, Debug)]
pub struct Unsolicited(());

impl Sealed for Solicited {}
impl Sealed for Unsolicited {}

impl FeatureSet for Solicited {
    const FEATURES: Features = Features::empty();
    const NEEDS: Caps = Caps::empty();
}

impl FeatureSet for Unsolicited {
    const FEATURES: Features = Features::UNSOLICITED_WRITE_RECV;
    const NEEDS: Caps = Caps::UNSOLICITED_WRITE_RECV.union(Caps::RDMA_WRITE);
}

/// Feature sets that are the same.
#[diagnostic::on_unimplemented(
    message = "this peer was resolved for feature set `{Self}`, the queue pair has `{F}` (R05)",
    label = "feature sets differ",
    note = "both queue pairs must be made with the same feature set, or the device answers status 18, or drops what is sent",
    note = "make both of one kind: `Srd`, `Srd<{{ ops::ALL }}, Unsolicited>` or `Ud`"
)]
pub trait SameFeatures<F>: FeatureSet {}

impl<F: FeatureSet> SameFeatures<F> for F {}

macro_rules! has {
    ($(#[$attr:meta])* $name:ident: $($mask:literal)*) => {
        $(#[$attr])*
        pub trait $name: QpKind {}

        $(
            #[diagnostic::do_not_recommend]
            impl<F: FeatureSet, E: EntrySize> $name for Srd<$mask, F, E> {}
        )*
    };
}

has!(
    /// Kinds that may post RDMA write.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` was not made for RDMA write (R06)",
        label = "posted on a queue pair of kind `{Self}`",
        note = "name the operation in the kind: `Srd<{{ ops::SEND | ops::RDMA_WRITE }}>`, or `Srd` for all five",
        note = "`Ud` has SEND only: for RDMA make an SRD queue pair at both ends"
    )]
    HasWrite: 1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31
);
has!(
    /// Kinds that may post RDMA write with immediate.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` was not made for RDMA write with immediate (R06)",
        label = "posted on a queue pair of kind `{Self}`",
        note = "name the operation in the kind: `Srd<{{ ops::SEND | ops::RDMA_WRITE_WITH_IMM }}>`, or `Srd` for all five",
        note = "`Ud` has SEND only: for RDMA make an SRD queue pair at both ends"
    )]
    HasWriteImm: 2 3 6 7 10 11 14 15 18 19 22 23 26 27 30 31
);
has!(
    /// Kinds that may post SEND.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` was not made for SEND (R06)",
        label = "posted on a queue pair of kind `{Self}`",
        note = "name the operation in the kind: `Srd<{{ ops::SEND | ops::RDMA_WRITE }}>`, or `Srd` for all five"
    )]
    HasSend: 4 5 6 7 12 13 14 15 20 21 22 23 28 29 30 31
);
has!(
    /// Kinds that may post SEND with immediate.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` was not made for SEND with immediate (R06)",
        label = "posted on a queue pair of kind `{Self}`",
        note = "name the operation in the kind: `SendOnly` has both SENDs, `Srd` all five operations"
    )]
    HasSendImm: 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31
);
has!(
    /// Kinds that may post RDMA read.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` was not made for RDMA read (R06)",
        label = "posted on a queue pair of kind `{Self}`",
        note = "name the operation in the kind: `Srd<{{ ops::SEND | ops::RDMA_READ }}>`, or `Srd` for all five",
        note = "`Ud` has SEND only: for RDMA make an SRD queue pair at both ends"
    )]
    HasRead: 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);

/// Kinds that try again, as often as they are told, where the peer has no receive posted.
#[diagnostic::on_unimplemented(
    message = "`{Self}` takes no RNR retry (R01)",
    label = "a retry was set for a queue pair of kind `{Self}`",
    note = "a datagram that finds no receive is dropped while its send succeeds: there is nothing to retry",
    note = "leave `rnr_retry(..)` out; for SENDs that wait for a receive make an SRD queue pair at both ends"
)]
pub trait HasRnrRetry: QpKind {}

#[diagnostic::do_not_recommend]
impl<const OPS: u8, F: FeatureSet, E: EntrySize> HasRnrRetry for Srd<OPS, F, E> {}

/// Kinds that may post RDMA writes of inline bytes: those that may post RDMA write, with [`Wide`] entries.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no inline RDMA write (R10)",
    label = "posted on a queue pair of kind `{Self}`",
    note = "it takes 128-byte entries and RDMA write: make the queue pair of kind `Srd<{{ ops::ALL }}, Solicited, Wide>`",
    note = "or register the bytes and write a slice of them: `peer.write(slice, window)`"
)]
pub trait HasInlineWrite: QpKind<Entries = Wide> {}

macro_rules! has_inline_write {
    ($($mask:literal)*) => {
        $(
            #[diagnostic::do_not_recommend]
            impl<F: FeatureSet> HasInlineWrite for Srd<$mask, F, Wide> {}
        )*
    };
}

has_inline_write!(1 2 3 5 6 7 9 10 11 13 14 15 17 18 19 21 22 23 25 26 27 29 30 31);
