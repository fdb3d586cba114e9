//! The operations: values that say what goes to whom.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::num::NonZeroU64;

use super::{InlineBytes, OneBuffer, SendSource, WritableBuffer};
use crate::RKey;
use crate::caps::sealed::Sealed;
use crate::entry::{Quad, control1};
use crate::memory::{AllowsRead, AllowsWrite};
use crate::peer::{OneWay, Peer, PeerCore, RemoteWindow, ResolvedUs, SendTo};
use crate::qp::{FeatureSet, HasSend, HasSendImm, HasWrite, HasWriteImm};

/// No immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoImm;

/// An immediate: 32 bits that arrive with the operation, exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imm(pub u32);

/// A SEND. With [`Send::imm`], a SEND with immediate.
#[must_use = "an operation does nothing until it is posted"]
pub struct Send<'p, S, F, I = NoImm> {
    pub(super) to: &'p PeerCore,
    pub(super) source: S,
    pub(super) imm: I,
    features: PhantomData<F>,
}

/// A SEND of a few bytes that travel in the entry itself, host memory only. With [`SendInline::imm`], with immediate.
#[must_use = "an operation does nothing until it is posted"]
pub struct SendInline<'p, B, F, I = NoImm> {
    pub(super) to: &'p PeerCore,
    pub(super) bytes: B,
    pub(super) imm: I,
    features: PhantomData<F>,
}

/// An RDMA write. With [`Write::imm`], a write with immediate, which tells the responder's application.
#[must_use = "an operation does nothing until it is posted"]
pub struct Write<'p, S, F, I = NoImm> {
    pub(super) to: &'p PeerCore,
    pub(super) source: S,
    pub(super) remote: Remote,
    pub(super) imm: I,
    features: PhantomData<F>,
}

/// An RDMA write of a few bytes that travel in the entry itself, host memory only. With [`WriteInline::imm`], with
/// immediate.
#[must_use = "an operation does nothing until it is posted"]
pub struct WriteInline<'p, B, F, I = NoImm> {
    pub(super) to: &'p PeerCore,
    pub(super) bytes: B,
    pub(super) remote: Remote,
    pub(super) imm: I,
    features: PhantomData<F>,
}

/// An RDMA read.
#[must_use = "an operation does nothing until it is posted"]
pub struct Read<'p, T, F> {
    pub(super) to: &'p PeerCore,
    pub(super) target: T,
    pub(super) remote: Remote,
    features: PhantomData<F>,
}

#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) rkey: RKey,
    pub(super) granter: u32,
    pub(super) incarnation: Option<NonZeroU64>,
}

impl<R, F: FeatureSet> Peer<R, F> {
    /// A SEND of one or two registered buffers.
    pub fn send<S: SendSource>(&self, source: S) -> Send<'_, S, F>
    where
        R: SendTo,
    {
        To::new(&self.core).send(source)
    }

    /// A SEND of no bytes: it arrives, with its immediate if it has one (R14).
    pub fn send_empty(&self) -> SendInline<'_, [u8; 0], F>
    where
        R: SendTo,
    {
        To::new(&self.core).send_empty()
    }

    /// A SEND of a few bytes that need not be registered: up to 32, or 80 on queue pairs with
    /// [`Wide`](crate::qp::Wide) entries (R10). An array that is longer cannot be posted; a slice that is, or one
    /// that is longer than was [granted](crate::qp::QueuePair::granted), is refused by the post.
    pub fn send_inline<B: InlineBytes>(&self, bytes: B) -> SendInline<'_, B, F>
    where
        R: SendTo,
    {
        To::new(&self.core).send_inline(bytes)
    }

    /// An RDMA write of one registered buffer to the start of `window`.
    pub fn write<S: OneBuffer, A: AllowsWrite>(&self, source: S, window: RemoteWindow<A>) -> Write<'_, S, F>
    where
        R: ResolvedUs,
    {
        Write { to: &self.core, source, remote: Remote::of(window), imm: NoImm, features: PhantomData }
    }

    /// An RDMA write to the start of `window` of a few bytes that need not be registered, up to 80: for kinds with
    /// [`Wide`](crate::qp::Wide) entries (R10). Lengths are checked as those of [`Peer::send_inline`]. There is no
    /// such read.
    pub fn write_inline<B: InlineBytes, A: AllowsWrite>(
        &self,
        bytes: B,
        window: RemoteWindow<A>,
    ) -> WriteInline<'_, B, F>
    where
        R: ResolvedUs,
    {
        WriteInline { to: &self.core, bytes, remote: Remote::of(window), imm: NoImm, features: PhantomData }
    }

    /// An RDMA read from the start of `window` that fills one registered buffer.
    pub fn read<T: WritableBuffer, A: AllowsRead>(&self, target: T, window: RemoteWindow<A>) -> Read<'_, T, F>
    where
        R: ResolvedUs,
    {
        Read { to: &self.core, target, remote: Remote::of(window), features: PhantomData }
    }
}

impl<F: FeatureSet> Peer<OneWay, F> {
    /// The road to a peer that is not known to have resolved us: SEND only. It cannot reach us by RDMA, and
    /// we cannot reach it so, until it has.
    pub fn one_way(&self) -> To<'_, F> {
        To::new(&self.core)
    }
}

/// Where SENDs go.
#[derive(Clone, Copy)]
pub struct To<'p, F> {
    peer: &'p PeerCore,
    features: PhantomData<F>,
}

impl<'p, F: FeatureSet> To<'p, F> {
    fn new(peer: &'p PeerCore) -> Self {
        Self { peer, features: PhantomData }
    }

    /// A SEND of one or two registered buffers.
    pub fn send<S: SendSource>(self, source: S) -> Send<'p, S, F> {
        Send { to: self.peer, source, imm: NoImm, features: PhantomData }
    }

    /// A SEND of no bytes.
    pub fn send_empty(self) -> SendInline<'p, [u8; 0], F> {
        self.send_inline([])
    }

    /// A SEND of a few bytes that need not be registered (R10): see [`Peer::send_inline`].
    pub fn send_inline<B: InlineBytes>(self, bytes: B) -> SendInline<'p, B, F> {
        SendInline { to: self.peer, bytes, imm: NoImm, features: PhantomData }
    }
}

impl<'p, S, F> Send<'p, S, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> Send<'p, S, F, Imm> {
        Send { to: self.to, source: self.source, imm: Imm(imm), features: PhantomData }
    }
}

impl<'p, B, F> SendInline<'p, B, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> SendInline<'p, B, F, Imm> {
        SendInline { to: self.to, bytes: self.bytes, imm: Imm(imm), features: PhantomData }
    }
}

impl<'p, B, F> WriteInline<'p, B, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> WriteInline<'p, B, F, Imm> {
        WriteInline { to: self.to, bytes: self.bytes, remote: self.remote, imm: Imm(imm), features: PhantomData }
    }
}

impl<'p, S, F> Write<'p, S, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> Write<'p, S, F, Imm> {
        Write { to: self.to, source: self.source, remote: self.remote, imm: Imm(imm), features: PhantomData }
    }
}

/// Either no immediate or one, as the entry wants it.
pub trait Immediate: Sealed + Copy {
    #[doc(hidden)]
    const CONTROL: u8;
    #[doc(hidden)]
    fn quad(self) -> Quad;
}

/// Immediates, or none, with which kind `K` may post SENDs.
pub trait SendWith<K>: Immediate {}

/// Immediates, or none, with which kind `K` may post RDMA writes.
pub trait WriteWith<K>: Immediate {}

impl Sealed for NoImm {}
impl Sealed for Imm {}
impl<K: HasSend> SendWith<K> for NoImm {}
impl<K: HasSendImm> SendWith<K> for Imm {}
impl<K: HasWrite> WriteWith<K> for NoImm {}
impl<K: HasWriteImm> WriteWith<K> for Imm {}

impl Immediate for NoImm {
    const CONTROL: u8 = 0;

    #[inline(always)]
    fn quad(self) -> Quad {
        0
    }
}

impl Immediate for Imm {
    const CONTROL: u8 = control1::HAS_IMM;

    #[inline(always)]
    fn quad(self) -> Quad {
        self.0.into()
    }
}

impl Remote {
    fn of<A>(window: RemoteWindow<A>) -> Self {
        let RemoteWindow { addr, len, rkey, granter, incarnation, .. } = window;
        Self { addr, len, rkey, granter, incarnation }
    }
}

impl<S, F, I> Sealed for Send<'_, S, F, I> {}
impl<B, F, I> Sealed for SendInline<'_, B, F, I> {}
impl<B, F, I> Sealed for WriteInline<'_, B, F, I> {}
impl<S, F, I> Sealed for Write<'_, S, F, I> {}
impl<T, F> Sealed for Read<'_, T, F> {}

macro_rules! debug {
    ($($name:ident<$($param:ident),*>)*) => {
        $(
            impl<$($param),*> fmt::Debug for $name<'_, $($param),*> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name)).field("qpn", &self.to.qpn()).finish_non_exhaustive()
                }
            }
        )*
    };
}

debug!(Send<S, F, I> SendInline<B, F, I> Write<S, F, I> WriteInline<B, F, I> Read<T, F>);

impl<F> fmt::Debug for To<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("To").field("qpn", &self.peer.qpn()).finish_non_exhaustive()
    }
}
