//! The operations: values that say what goes to whom.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use super::{OneBuffer, SendSource, WritableBuffer};
use crate::caps::sealed::Sealed;
use crate::entry::{Quad, control1};
use crate::error::Limit;
use crate::memory::{AllowsRead, AllowsWrite};
use crate::peer::{OneWay, Peer, PeerCore, RemoteWindow, ResolvedUs, SendTo};
use crate::qp::{FeatureSet, HasSend, HasSendImm, HasWrite, HasWriteImm};
use crate::{Error, Incarnation, RKey};

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
pub struct SendInline<'p, F, I = NoImm> {
    pub(super) to: &'p PeerCore,
    pub(super) data: [u8; MAX_INLINE],
    pub(super) len: u16,
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
    pub(super) granter: (u16, u16),
    pub(super) incarnation: Option<Incarnation>,
}

/// Inline bytes of a 64-byte entry.
pub(crate) const MAX_INLINE: usize = 32;

impl<R, F: FeatureSet> Peer<R, F> {
    /// A SEND of one or two registered buffers.
    pub fn send<S: SendSource>(&self, source: S) -> Send<'_, S, F>
    where
        R: SendTo,
    {
        To::new(&self.core).send(source)
    }

    /// A SEND of no bytes: it arrives, with its immediate if it has one (R14).
    pub fn send_empty(&self) -> SendInline<'_, F>
    where
        R: SendTo,
    {
        To::new(&self.core).send_empty()
    }

    /// A SEND of up to 32 bytes that need not be registered (R10).
    ///
    /// # Errors
    /// [`Error::AboveLimit`].
    pub fn send_inline(&self, bytes: &[u8]) -> Result<SendInline<'_, F>, Error>
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
    pub fn send_empty(self) -> SendInline<'p, F> {
        SendInline { to: self.peer, data: [0; MAX_INLINE], len: 0, imm: NoImm, features: PhantomData }
    }

    /// A SEND of up to 32 bytes that need not be registered (R10).
    ///
    /// # Errors
    /// [`Error::AboveLimit`].
    pub fn send_inline(self, bytes: &[u8]) -> Result<SendInline<'p, F>, Error> {
        let mut operation = self.send_empty();
        let Some(data) = operation.data.get_mut(..bytes.len()) else {
            let (asked, limit) = (bytes.len() as u64, MAX_INLINE as u64);
            return Err(Error::AboveLimit { what: Limit::InlineBytes, asked, limit });
        };
        data.copy_from_slice(bytes);
        operation.len = bytes.len() as u16;
        Ok(operation)
    }
}

impl<'p, S, F> Send<'p, S, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> Send<'p, S, F, Imm> {
        Send { to: self.to, source: self.source, imm: Imm(imm), features: PhantomData }
    }
}

impl<'p, F> SendInline<'p, F> {
    /// With an immediate.
    pub fn imm(self, imm: u32) -> SendInline<'p, F, Imm> {
        SendInline { to: self.to, data: self.data, len: self.len, imm: Imm(imm), features: PhantomData }
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
impl<F, I> Sealed for SendInline<'_, F, I> {}
impl<S, F, I> Sealed for Write<'_, S, F, I> {}
impl<T, F> Sealed for Read<'_, T, F> {}

macro_rules! debug {
    ($($name:ident<$($param:ident),*>)*) => {
        $(
            impl<$($param),*> fmt::Debug for $name<'_, $($param),*> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name)).field("qpn", &self.to.qpn).finish_non_exhaustive()
                }
            }
        )*
    };
}

debug!(Send<S, F, I> SendInline<F, I> Write<S, F, I> Read<T, F>);

impl<F> fmt::Debug for To<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("To").field("qpn", &self.peer.qpn).finish_non_exhaustive()
    }
}
