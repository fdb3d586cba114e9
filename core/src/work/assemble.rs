//! From an operation to the device's entry: what is checked, and how the entry is put together.

#![deny(unsafe_code)]

use super::operation::{Immediate, MAX_INLINE, NoImm, Read, Remote, Send, SendInline, SendWith, Write, WriteWith};
use super::source::Raw;
use super::{OneBuffer, SendSource, WritableBuffer};
use crate::Error;
use crate::caps::sealed::Sealed;
use crate::entry::{Quad, control, control1, head, length_and_key};
use crate::error::Limit;
use crate::memory::RawBuffer;
use crate::peer::PeerCore;
use crate::qp::{HasRead, Identity, QpKind, SameFeatures};

/// Something that a queue pair of kind `K` can post.
///
/// Implemented by the operations of this module, each where `K` has it (R06) and the features are the same (R05).
pub trait Operation<K>: Sealed + Sized {
    /// What it took, and what a refusal gives back: its buffers.
    type Source;

    #[doc(hidden)]
    fn into_source(self) -> Self::Source;
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
    pub(crate) buffers: [RawBuffer; 2],
}

impl<S: SendSource, F, I: SendWith<K>, K> Operation<K> for Send<'_, S, F, I>
where
    K: QpKind,
    F: SameFeatures<K::Features>,
{
    type Source = S;

    #[inline(always)]
    fn into_source(self) -> S {
        self.source
    }

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
    type Source = ();

    #[inline(always)]
    fn into_source(self) {}

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
    type Source = S;

    #[inline(always)]
    fn into_source(self) -> S {
        self.source
    }

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
    type Source = T;

    #[inline(always)]
    fn into_source(self) -> T {
        self.target
    }

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
    if S::BUFFERS > 1 && S::BUFFERS > qp.max_buffers {
        let (asked, limit) = (S::BUFFERS.into(), qp.max_buffers.into());
        return Err(Error::AboveLimit { what: Limit::SendBuffers, asked, limit });
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
    if remote.granter != to.address() || remote.incarnation != to.incarnation {
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

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    use zerocopy::FromBytes;

    use super::*;
    use crate::entry::{SendEntry, control2};
    use crate::memory::{Buffers, RemoteReadWrite, Slice};
    use crate::qp::Srd;
    use crate::soft::{Profile, Side, pair};

    /// The entry as the layout reads it, with request id 0x0102 in the first round; the buffers come back.
    fn entry<O: Operation<Srd>>(operation: O) -> (SendEntry, Buffers) {
        let Parts { mut entry, tag, buffers } = operation.into_parts();
        entry[0] |= 0x0102 | control(control1::META_DESC, control2::FIXED);
        let bytes: [u8; 64] = core::array::from_fn(|at| entry[at / 8].to_le_bytes()[at % 8]);
        #[allow(unsafe_code)]
        // SAFETY: never posted, and used once.
        let buffers = unsafe { Buffers::from_raw(buffers, tag) };
        (SendEntry::read_from_bytes(&bytes).unwrap(), buffers)
    }

    fn sides() -> (Side, Side, Slice) {
        let (a, b) = pair(Profile::RDMA).unwrap();
        let (_, slice) = a.pd.register(std::vec![7u8; 256]).unwrap();
        (a, b, slice)
    }

    fn assert_meta(entry: &SendEntry, side: &Side, ctrl1: u8, length: u16, imm: u32) {
        assert_eq!(entry.req_id.get(), 0x0102);
        assert_eq!(entry.ctrl1, ctrl1 | control1::META_DESC);
        assert_eq!(entry.ctrl2, control2::FIRST | control2::LAST | control2::COMP_REQ);
        assert_eq!(entry.dest_qp_num.get(), side.peer.qpn().0);
        assert_eq!(entry.length.get(), length);
        assert_eq!(entry.immediate.get(), imm);
        assert_eq!(entry.ah.get(), side.peer.ahn().0);
        assert_eq!(entry.qkey.get(), side.peer.qkey().0);
        assert_eq!((entry.ctrl3, entry.reserved15, entry.reserved20), (0, 0, [0; 6]));
        assert_eq!(entry.req_id_ex.map(|part| part.get()), [0; 3]);
    }

    fn assert_buffer(data: &[u8], length: u32, key: u32, addr: u64) {
        assert_eq!(data[..4], length.to_le_bytes());
        assert_eq!(data[4..8], key.to_le_bytes());
        assert_eq!(data[8..16], addr.to_le_bytes());
    }

    #[test]
    fn a_send_of_two_buffers_names_both_and_counts_them() {
        let (a, _b, slice) = sides();
        let (first, second) = slice.split_at(100).unwrap();
        let (lkey, at) = (first.raw_key(), first.as_ptr().addr() as u64);
        let (entry, mut buffers) = entry(a.peer.send([first, second]).imm(0x8000_0001));
        assert_meta(&entry, &a, control1::OP_SEND | control1::HAS_IMM, 2, 0x8000_0001);
        assert_buffer(&entry.data[..16], 100, lkey, at);
        assert_buffer(&entry.data[16..], 156, lkey, at + 100);
        assert_eq!(buffers.take_slice().map(|slice| slice.len()), Some(100));
        assert_eq!(buffers.take_slice().map(|slice| slice.len()), Some(156));
    }

    #[test]
    fn r10_inline_bytes_stand_in_the_entry_and_the_length_counts_them() {
        let (a, _b, _slice) = sides();
        let bytes: [u8; 32] = core::array::from_fn(|at| at as u8 + 1);
        let (full, buffers) = entry(a.peer.send_inline(&bytes).unwrap());
        assert_meta(&full, &a, control1::OP_SEND | control1::INLINE, 32, 0);
        assert_eq!(full.data, bytes);
        assert!(buffers.is_empty());
        let (short, _) = entry(a.peer.send_inline(&bytes[..3]).unwrap());
        assert_eq!((short.length.get(), &short.data[..4]), (3, &[1, 2, 3, 0][..]));
    }

    #[test]
    fn r14_a_send_of_no_bytes_names_no_buffer() {
        let (a, _b, _slice) = sides();
        let (entry, _) = entry(a.peer.send_empty());
        assert_meta(&entry, &a, control1::OP_SEND, 0, 0);
        assert_eq!(entry.data, [0; 32]);
    }

    #[test]
    fn rdma_names_the_remote_buffer_then_the_local_one() {
        let (a, b, slice) = sides();
        let (lkey, at) = (slice.raw_key(), slice.as_ptr().addr() as u64);
        let access = b.ctx.require::<RemoteReadWrite>().unwrap();
        let exposed =
            b.pd.expose(crate::memory::Pages::new(1, crate::memory::PageSize::Base).unwrap(), access).unwrap();
        let frame = exposed.grant_range(&b.endpoint, 512..1024).unwrap();
        let grant = crate::wire::Grant::parse(frame.as_bytes()).unwrap();
        let window = a.peer.window::<RemoteReadWrite>(frame.as_bytes()).unwrap();
        let (write, mut buffers) = entry(a.peer.write(slice, window.range(8..512).unwrap()).imm(5));
        assert_meta(&write, &a, control1::OP_RDMA_WRITE | control1::HAS_IMM, 1, 5);
        assert_buffer(&write.data[..16], 256, grant.rkey.0, grant.address + 8);
        assert_buffer(&write.data[16..], 256, lkey, at);
        let (read, _) = entry(a.peer.read(buffers.take_slice().unwrap(), window));
        assert_meta(&read, &a, control1::OP_RDMA_READ, 1, 0);
        assert_buffer(&read.data[..16], 256, grant.rkey.0, grant.address);
    }
}
