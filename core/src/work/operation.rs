//! The operations: values that say what goes to whom, checked and consumed by a post.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use super::source::Raw;
use super::{OneBuffer, SendSource, WritableBuffer};
use crate::caps::sealed::Sealed;
use crate::entry::{Quad, control, control1, head, length_and_key};
use crate::error::Limit;
use crate::memory::{AllowsRead, AllowsWrite};
use crate::peer::{OneWay, Peer, PeerCore, RemoteWindow, ResolvedUs, SendTo};
use crate::qp::{FeatureSet, HasRead, HasSend, HasSendImm, HasWrite, HasWriteImm, Identity, QpKind, SameFeatures};
use crate::{Error, Incarnation, RKey};

/// Something that a queue pair of kind `K` can post.
///
/// Implemented by the operations of this module, each where `K` has it (R06) and the features are the same (R05).
pub trait Operation<K>: Sealed + Sized {
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn into_parts(self) -> Parts;
}

/// An entry without request id, phase and fixed bits, and the buffers it names.
#[doc(hidden)]
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) entry: [Quad; 8],
    pub(crate) tag: u8,
    pub(crate) buffers: [crate::memory::RawBuffer; 2],
}

/// No immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoImm;

/// An immediate: 32 bits that arrive with the operation, exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Imm(pub u32);

/// A SEND. With [`Send::imm`], a SEND with immediate.
#[must_use = "an operation does nothing until it is posted"]
pub struct Send<'p, S, F, I = NoImm> {
    to: &'p PeerCore,
    source: S,
    imm: I,
    features: PhantomData<F>,
}

/// A SEND of a few bytes that travel in the entry itself, host memory only. With [`SendInline::imm`], with immediate.
#[must_use = "an operation does nothing until it is posted"]
pub struct SendInline<'p, F, I = NoImm> {
    to: &'p PeerCore,
    data: [u8; MAX_INLINE],
    len: u16,
    imm: I,
    features: PhantomData<F>,
}

/// An RDMA write. With [`Write::imm`], a write with immediate, which tells the responder's application.
#[must_use = "an operation does nothing until it is posted"]
pub struct Write<'p, S, F, I = NoImm> {
    to: &'p PeerCore,
    source: S,
    remote: Remote,
    imm: I,
    features: PhantomData<F>,
}

/// An RDMA read.
#[must_use = "an operation does nothing until it is posted"]
pub struct Read<'p, T, F> {
    to: &'p PeerCore,
    target: T,
    remote: Remote,
    features: PhantomData<F>,
}

#[derive(Clone, Copy)]
struct Remote {
    addr: u64,
    len: u64,
    rkey: RKey,
    incarnation: Option<Incarnation>,
}

/// Inline bytes of a 64-byte entry.
const MAX_INLINE: usize = 32;

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

impl<S, F, I> Send<'_, S, F, I> {
    /// The buffers again, of an operation that was refused.
    pub fn into_source(self) -> S {
        self.source
    }
}

impl<S, F, I> Write<'_, S, F, I> {
    /// The buffer again, of an operation that was refused.
    pub fn into_source(self) -> S {
        self.source
    }
}

impl<T, F> Read<'_, T, F> {
    /// The buffer again, of an operation that was refused.
    pub fn into_target(self) -> T {
        self.target
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

/// The first 32 bytes of an entry.
#[inline(always)]
fn meta<I: Immediate>(to: &PeerCore, ctrl1: u8, imm: I, length: u16) -> [Quad; 4] {
    let control = control(ctrl1 | I::CONTROL, 0);
    [head(0, control, to.qpn, length), imm.quad() | Quad::from(to.ahn) << 32, to.qkey.into(), 0]
}

#[inline(always)]
fn check_owner(to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    if to.owner == qp.id { Ok(()) } else { Err(Error::ForeignPeer) }
}

#[inline(always)]
fn check_source<S: SendSource>(source: &S, to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    check_owner(to, qp)?;
    if let Some(of) = source.foreign_to(qp.pd) {
        return Err(Error::ForeignDomain { of, domain: qp.pd });
    }
    let (total, limit) = (source.total(), to.max_msg);
    if total > limit as usize {
        return Err(Error::AboveLimit { what: Limit::MessageBytes, asked: total as u64, limit: limit.into() });
    }
    Ok(())
}

#[inline(always)]
fn check_rdma<B: OneBuffer>(local: &B, remote: &Remote, to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    check_owner(to, qp)?;
    if local.domain() != qp.pd {
        return Err(Error::ForeignDomain { of: local.domain(), domain: qp.pd });
    }
    let len = local.bytes() as u64;
    if len > qp.max_rdma.into() {
        return Err(Error::AboveLimit { what: Limit::RdmaBytes, asked: len, limit: qp.max_rdma.into() });
    }
    if len > remote.len {
        return Err(Error::OutOfBounds { offset: 0, len, within: remote.len });
    }
    if remote.incarnation != to.incarnation {
        return Err(Error::WindowOfAnotherPeer);
    }
    Ok(())
}

#[inline(always)]
fn send_parts<I: Immediate>(to: &PeerCore, imm: I, raw: Raw) -> Parts {
    let [meta0, meta1, meta2, meta3] = meta(to, control1::OP_SEND, imm, raw.count);
    let [first, second] = raw.buffers;
    let entry = [
        meta0,
        meta1,
        meta2,
        meta3,
        length_and_key(first.len, first.lkey),
        first.addr,
        length_and_key(second.len, second.lkey),
        second.addr,
    ];
    Parts { entry, tag: raw.tag, buffers: raw.buffers }
}

#[inline(always)]
fn rdma_parts<I: Immediate>(to: &PeerCore, op: u8, imm: I, remote: Remote, raw: Raw) -> Parts {
    let [meta0, meta1, meta2, meta3] = meta(to, op, imm, 1);
    let [local, _] = raw.buffers;
    let entry = [
        meta0,
        meta1,
        meta2,
        meta3,
        length_and_key(local.len, remote.rkey.0),
        remote.addr,
        length_and_key(local.len, local.lkey),
        local.addr,
    ];
    Parts { entry, tag: raw.tag, buffers: raw.buffers }
}

#[inline(always)]
fn inline_parts<I: Immediate>(to: &PeerCore, imm: I, data: &[u8; MAX_INLINE], len: u16) -> Parts {
    // No bytes are no buffers rather than inline of length 0: the same on the wire, one form for the device.
    let ctrl1 = if len == 0 { control1::OP_SEND } else { control1::OP_SEND | control1::INLINE };
    let [meta0, meta1, meta2, meta3] = meta(to, ctrl1, imm, len);
    let [d0, d1, d2, d3] = crate::entry::quads::<4>(data);
    let Raw { tag, buffers, .. } = Raw::NONE;
    Parts { entry: [meta0, meta1, meta2, meta3, d0, d1, d2, d3], tag, buffers }
}

fn check_inline(to: &PeerCore, len: u16, qp: &Identity) -> Result<(), Error> {
    check_owner(to, qp)?;
    if len > qp.max_inline {
        let (asked, limit) = (len.into(), qp.max_inline.into());
        return Err(Error::AboveLimit { what: Limit::InlineBytes, asked, limit });
    }
    Ok(())
}

impl Remote {
    fn of<A>(window: RemoteWindow<A>) -> Self {
        Self { addr: window.addr, len: window.len, rkey: window.rkey, incarnation: window.incarnation }
    }
}

impl<S: SendSource, F, I: SendWith<K>, K> Operation<K> for Send<'_, S, F, I>
where
    K: QpKind,
    F: SameFeatures<K::Features>,
{
    #[inline(always)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error> {
        check_source(&self.source, self.to, qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts(self) -> Parts {
        send_parts(self.to, self.imm, self.source.into_buffers())
    }
}

impl<F, I: SendWith<K>, K> Operation<K> for SendInline<'_, F, I>
where
    K: QpKind,
    F: SameFeatures<K::Features>,
{
    #[inline(always)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error> {
        check_inline(self.to, self.len, qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts(self) -> Parts {
        inline_parts(self.to, self.imm, &self.data, self.len)
    }
}

impl<S: OneBuffer, F, I: WriteWith<K>, K> Operation<K> for Write<'_, S, F, I>
where
    K: QpKind,
    F: SameFeatures<K::Features>,
{
    #[inline(always)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error> {
        check_rdma(&self.source, &self.remote, self.to, qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts(self) -> Parts {
        rdma_parts(self.to, control1::OP_RDMA_WRITE, self.imm, self.remote, Raw::one(self.source))
    }
}

impl<T: WritableBuffer, F, K> Operation<K> for Read<'_, T, F>
where
    K: QpKind + HasRead,
    F: SameFeatures<K::Features>,
{
    #[inline(always)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error> {
        check_rdma(&self.target, &self.remote, self.to, qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts(self) -> Parts {
        rdma_parts(self.to, control1::OP_RDMA_READ, NoImm, self.remote, Raw::one(self.target))
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
