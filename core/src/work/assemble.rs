//! From an operation to the device's entry: what is checked, and how the entry is put together.

#![deny(unsafe_code)]

use core::num::NonZeroU64;

use super::operation::{Immediate, NoImm, Read, Remote, Send, SendInline, SendWith, Write, WriteInline, WriteWith};
use super::source::Raw;
use super::{FitsInline, OneBuffer, SendSource, WritableBuffer};
use crate::Error;
use crate::caps::sealed::Sealed;
use crate::entry::{control1, length_and_key};
use crate::error::Limit;
use crate::peer::PeerCore;
use crate::qp::{EntrySize, HasInlineWrite, HasRead, Identity, QpKind, SameFeatures, Wide};
use crate::ring::SendParts;

/// Something that a queue pair of kind `K` can post.
///
/// Implemented by the operations of this module, each where `K` has it (R06) and the features are the same (R05).
pub trait Operation<K: QpKind>: Sealed + Sized {
    /// What it took, and what a refusal gives back: its buffers.
    type Source;

    #[doc(hidden)]
    fn into_source(self) -> Self::Source;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error>;
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn into_parts<'p>(self) -> Parts<'p, K::Entries>
    where
        Self: 'p;
}

/// An entry of size `E`, for the queue to complete.
#[doc(hidden)]
pub(crate) type Parts<'p, E> = SendParts<'p, <E as EntrySize>::Data>;

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
    fn into_parts<'p>(self) -> Parts<'p, K::Entries>
    where
        Self: 'p,
    {
        send_parts::<K::Entries, _>(self.to, self.imm, self.source.into_buffers())
    }
}

impl<B: FitsInline<K::Entries>, F, I: SendWith<K>, K> Operation<K> for SendInline<'_, B, F, I>
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
        check_inline(self.to, self.bytes.bytes(), qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts<'p>(self) -> Parts<'p, K::Entries>
    where
        Self: 'p,
    {
        inline_parts::<K::Entries, _>(self.to, self.imm, self.bytes.bytes())
    }
}

impl<B: FitsInline<Wide>, F, I: WriteWith<K>, K> Operation<K> for WriteInline<'_, B, F, I>
where
    K: HasInlineWrite,
    F: SameFeatures<K::Features>,
{
    type Source = ();

    #[inline(always)]
    fn into_source(self) {}

    #[inline(always)]
    #[allow(private_interfaces)]
    fn check(&self, qp: &Identity) -> Result<(), Error> {
        let bytes = self.bytes.bytes();
        check_inline(self.to, bytes, qp)?;
        check_remote(bytes.len() as u64, &self.remote, self.to, qp)
    }

    #[inline(always)]
    #[allow(private_interfaces)]
    fn into_parts<'p>(self) -> Parts<'p, Wide>
    where
        Self: 'p,
    {
        inline_write_parts(self.to, self.imm, self.remote, self.bytes.bytes())
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
    fn into_parts<'p>(self) -> Parts<'p, K::Entries>
    where
        Self: 'p,
    {
        rdma_parts::<K::Entries, _, _>(self.to, control1::OP_RDMA_WRITE, self.imm, self.remote, self.source)
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
    fn into_parts<'p>(self) -> Parts<'p, K::Entries>
    where
        Self: 'p,
    {
        rdma_parts::<K::Entries, _, _>(self.to, control1::OP_RDMA_READ, NoImm, self.remote, self.target)
    }
}

#[inline(always)]
fn check_owner(to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    if to.owner == qp.id { Ok(()) } else { Err(Error::ForeignPeer) }
}

#[inline(always)]
fn check_source<S: SendSource>(source: &S, to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    check_owner(to, qp)?;
    let above = |asked| Error::AboveLimit { what: Limit::MessageBytes, asked, limit: to.max_msg };
    if source.differs(qp.pd) != 0 {
        return Err(match source.foreign_to(qp.pd) {
            Some(of) => Error::ForeignDomain { of, domain: qp.pd },
            None => above(source.total()),
        });
    }
    if S::BUFFERS > 1 && S::BUFFERS > qp.max_buffers {
        let (asked, limit) = (S::BUFFERS.into(), qp.max_buffers.into());
        return Err(Error::AboveLimit { what: Limit::SendBuffers, asked, limit });
    }
    if source.total() > to.max_msg { Err(above(source.total())) } else { Ok(()) }
}

#[inline(always)]
fn check_rdma<B: OneBuffer>(local: &B, remote: &Remote, to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    // All that must be equal in one, before anything else: what is compared needs no register after that.
    if u64::from(to.owner ^ qp.id) | local.differs(qp.pd) | foreign(remote, to) != 0 {
        check_owner(to, qp)?;
        if local.domain() != qp.pd {
            return Err(Error::ForeignDomain { of: local.domain(), domain: qp.pd });
        }
        check_remote_len(local.bytes() as u64, remote, qp)?;
        return Err(Error::WindowOfAnotherPeer);
    }
    check_remote_len(local.length().into(), remote, qp)
}

#[inline(always)]
fn check_remote(len: u64, remote: &Remote, to: &PeerCore, qp: &Identity) -> Result<(), Error> {
    check_remote_len(len, remote, qp)?;
    if foreign(remote, to) == 0 { Ok(()) } else { Err(Error::WindowOfAnotherPeer) }
}

#[inline(always)]
fn check_remote_len(len: u64, remote: &Remote, qp: &Identity) -> Result<(), Error> {
    if len > qp.max_rdma {
        return Err(Error::AboveLimit { what: Limit::RdmaBytes, asked: len, limit: qp.max_rdma });
    }
    if len > remote.len {
        return Err(Error::OutOfBounds { offset: 0, len, within: remote.len });
    }
    Ok(())
}

/// 0 if the window is the peer's.
#[inline(always)]
fn foreign(remote: &Remote, to: &PeerCore) -> u64 {
    u64::from(remote.granter ^ to.address) | (bits(remote.incarnation) ^ bits(to.incarnation))
}

/// Compared as one number, which an `Option` is not.
#[inline(always)]
fn bits(incarnation: Option<NonZeroU64>) -> u64 {
    incarnation.map_or(0, NonZeroU64::get)
}

#[inline(always)]
fn send_parts<E: EntrySize, I: Immediate>(to: &PeerCore, imm: I, raw: Raw) -> Parts<'_, E> {
    let [first, second] = raw.buffers;
    let data = [first.length_and_key, first.addr, second.length_and_key, second.addr];
    parts(to, control1::OP_SEND, 0, imm, raw.count, E::buffers(data), raw)
}

#[inline(always)]
fn rdma_parts<E: EntrySize, I: Immediate, B: OneBuffer>(
    to: &PeerCore,
    op: u8,
    imm: I,
    remote: Remote,
    buffer: B,
) -> Parts<'_, E> {
    let remote = [length_and_key(buffer.length(), remote.rkey.0), remote.addr];
    let raw = Raw::one(buffer);
    let [local, _] = raw.buffers;
    let data = [remote[0], remote[1], local.length_and_key, local.addr];
    parts(to, op, 0, imm, 1, E::buffers(data), raw)
}

#[inline(always)]
fn inline_parts<'p, E: EntrySize, I: Immediate>(to: &'p PeerCore, imm: I, bytes: &[u8]) -> Parts<'p, E> {
    // No bytes are no buffers rather than inline of length 0: the same on the wire, one form for the device.
    let inline = if bytes.is_empty() { 0 } else { control1::INLINE };
    parts(to, control1::OP_SEND, inline, imm, bytes.len() as u16, E::inline(bytes), Raw::NONE)
}

#[inline(always)]
fn inline_write_parts<'p, I: Immediate>(to: &'p PeerCore, imm: I, remote: Remote, bytes: &[u8]) -> Parts<'p, Wide> {
    let data = Wide::inline_write([length_and_key(bytes.len() as u32, remote.rkey.0), remote.addr], bytes);
    // Also of no bytes: without the flag it would have to name a registered buffer (R14).
    parts(to, control1::OP_RDMA_WRITE, control1::INLINE, imm, bytes.len() as u16, data, Raw::NONE)
}

#[inline(always)]
fn parts<I: Immediate, D>(
    to: &PeerCore,
    op: u8,
    ctrl1: u8,
    imm: I,
    length: u16,
    data: D,
    Raw { tag, buffers, .. }: Raw,
) -> SendParts<'_, D> {
    SendParts { op, ctrl1: ctrl1 | I::CONTROL, length, imm: imm.quad(), to, data, tag, buffers }
}

#[inline(always)]
fn check_inline(to: &PeerCore, bytes: &[u8], qp: &Identity) -> Result<(), Error> {
    check_owner(to, qp)?;
    if bytes.len() > usize::from(qp.max_inline) {
        let (asked, limit) = (bytes.len() as u64, qp.max_inline.into());
        return Err(Error::AboveLimit { what: Limit::InlineBytes, asked, limit });
    }
    Ok(())
}

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;
    use crate::entry::{SendEntry, WideSendEntry, control, control2};
    use crate::memory::{Buffers, Exposed, PageSize, Pages, RemoteReadWrite, Slice};
    use crate::qp::{Solicited, Srd, ops};
    use crate::soft::{Profile, Side, pair};
    use crate::wire::GrantFrame;

    type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;

    /// The bytes of the entry, with request id 0x0102 in the first round; the buffers come back.
    fn assembled<K: QpKind, const N: usize>(operation: impl Operation<K>) -> ([u8; N], Buffers) {
        let parts = operation.into_parts();
        let fixed = 0x0102 | control(control1::META_DESC, control2::FIXED);
        let meta = [parts.first() | fixed, parts.second(), parts.third(), 0];
        let SendParts { op, data, tag, buffers, .. } = parts;
        assert_eq!(op, (meta[0] >> 16) as u8 & control1::OP_MASK);
        let entry: std::vec::Vec<u8> = meta.iter().chain(data.as_ref()).flat_map(|quad| quad.to_le_bytes()).collect();
        #[allow(unsafe_code)]
        // SAFETY: never posted, and used once.
        let buffers = unsafe { Buffers::from_raw(buffers, tag) };
        (entry.try_into().unwrap(), buffers)
    }

    /// A wide entry that records no buffer.
    fn wide_entry(operation: impl Operation<WideSrd>) -> WideSendEntry {
        let (bytes, buffers) = assembled::<WideSrd, 128>(operation);
        assert!(buffers.is_empty());
        WideSendEntry::read_from_bytes(&bytes).unwrap()
    }

    /// What is as in an entry of 64 bytes.
    fn narrowed(wide: &WideSendEntry) -> SendEntry {
        SendEntry::read_from_bytes(&wide.as_bytes()[..64]).unwrap()
    }

    /// The entry as the layout reads it, with request id 0x0102 in the first round; the buffers come back.
    fn entry<O: Operation<Srd>>(operation: O) -> (SendEntry, Buffers) {
        let (bytes, buffers) = assembled::<Srd, 64>(operation);
        (SendEntry::read_from_bytes(&bytes).unwrap(), buffers)
    }

    fn sides() -> (Side, Side, Slice) {
        let (a, b) = pair(Profile::RDMA).unwrap();
        let (_, slice) = a.pd.register(std::vec![7u8; 256]).unwrap();
        (a, b, slice)
    }

    /// Memory of a side, and its grant of 512 bytes.
    fn exposed(side: &Side) -> (Exposed<Pages, RemoteReadWrite>, GrantFrame) {
        let access = side.ctx.require::<RemoteReadWrite>().unwrap();
        let exposed = side.pd.expose(Pages::new(1, PageSize::Base).unwrap(), access).unwrap();
        let frame = exposed.grant_range(&side.endpoint, 512..1024).unwrap();
        (exposed, frame)
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
        let (full, buffers) = entry(a.peer.send_inline(&bytes));
        assert_meta(&full, &a, control1::OP_SEND | control1::INLINE, 32, 0);
        assert_eq!(full.data, bytes);
        assert!(buffers.is_empty());
        let (short, _) = entry(a.peer.send_inline(&bytes[..3]));
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
        let (_exposed, frame) = exposed(&b);
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

    #[test]
    fn what_is_wrong_by_the_same_bits_in_two_respects_is_refused_all_the_same() {
        let (a, b, slice) = sides();
        let (_exposed, frame) = exposed(&b);
        let window = a.peer.window::<RemoteReadWrite>(frame.as_bytes()).unwrap();
        let (write, right) = (a.peer.write(slice, window), a.endpoint.inner.identity);
        let check = |remote: Remote, qp: Identity| check_rdma(&write.source, &remote, &a.peer.core, &qp);
        let remote = write.remote;
        assert_eq!(check(remote, right), Ok(()));
        // Another queue pair's peer, and memory of another domain; or a window of another peer.
        let pd = crate::PdId::unique().unwrap();
        let of_two = Identity { pd, id: right.id ^ (right.pd.bits() ^ pd.bits()) as u32, ..right };
        assert_eq!(check(remote, of_two), Err(Error::ForeignPeer));
        let of_another = Remote { granter: remote.granter ^ 5, ..remote };
        assert_eq!(check(of_another, Identity { id: right.id ^ 5, ..right }), Err(Error::ForeignPeer));
        // A window of another peer, and of another life.
        let life = remote.incarnation.and_then(|life| NonZeroU64::new(life.get() ^ 5));
        let of_another_life = Remote { incarnation: life, ..of_another };
        assert_eq!(check(of_another_life, right), Err(Error::WindowOfAnotherPeer));
        assert_eq!(check_remote(8, &of_another_life, &a.peer.core, &right), Err(Error::WindowOfAnotherPeer));
    }

    #[test]
    fn r10_a_wide_entry_has_80_inline_bytes_of_a_send_behind_its_first_32() {
        let (a, _b, _slice) = sides();
        let bytes: [u8; 80] = core::array::from_fn(|at| at as u8 + 1);
        for len in [1, 32, 33, 80] {
            let wide = wide_entry(a.peer.send_inline(&bytes[..len]).imm(7));
            let ctrl1 = control1::OP_SEND | control1::INLINE | control1::HAS_IMM;
            assert_meta(&narrowed(&wide), &a, ctrl1, len as u16, 7);
            assert_eq!((&wide.data[..len], &wide.data[len..]), (&bytes[..len], &[0; 96][len..]));
        }
        assert_eq!(wide_entry(a.peer.send_inline(bytes)), wide_entry(a.peer.send_inline(&bytes[..])));
        let none = wide_entry(a.peer.send_empty());
        assert_meta(&narrowed(&none), &a, control1::OP_SEND, 0, 0);
        assert_eq!(none.data, [0; 96]);
    }

    #[test]
    fn r10_an_inline_write_names_the_remote_buffer_and_its_bytes_follow_it() {
        let (a, b, _slice) = sides();
        let (_, frame) = exposed(&b);
        let grant = crate::wire::Grant::parse(frame.as_bytes()).unwrap();
        let window = a.peer.window::<RemoteReadWrite>(frame.as_bytes()).unwrap().range(8..512).unwrap();
        let bytes: [u8; 80] = core::array::from_fn(|at| at as u8 + 1);
        for len in [0, 1, 32, 33, 80] {
            let wide = wide_entry(a.peer.write_inline(&bytes[..len], window));
            assert_meta(&narrowed(&wide), &a, control1::OP_RDMA_WRITE | control1::INLINE, len as u16, 0);
            assert_buffer(&wide.data[..16], len as u32, grant.rkey.0, grant.address + 8);
            assert_eq!((&wide.data[16..16 + len], &wide.data[16 + len..]), (&bytes[..len], &[0; 80][len..]));
        }
        let with_imm = wide_entry(a.peer.write_inline(bytes, window).imm(9));
        assert_eq!((with_imm.ctrl1 & control1::HAS_IMM, with_imm.immediate.get()), (control1::HAS_IMM, 9));
    }

    #[test]
    fn a_wide_entry_of_buffers_is_a_narrow_one_and_zeros() {
        let (a, b, slice) = sides();
        let (_, frame) = exposed(&b);
        let window = a.peer.window::<RemoteReadWrite>(frame.as_bytes()).unwrap();
        let (wide, mut buffers) = assembled::<WideSrd, 128>(a.peer.send(slice).imm(3));
        let (narrow, mut again) = entry(a.peer.send(buffers.take_slice().unwrap()).imm(3));
        assert_eq!((&wide[..64], &wide[64..]), (narrow.as_bytes(), &[0; 64][..]));
        let (wide, mut buffers) = assembled::<WideSrd, 128>(a.peer.write(again.take_slice().unwrap(), window));
        let (narrow, _) = entry(a.peer.write(buffers.take_slice().unwrap(), window));
        assert_eq!((&wide[..64], &wide[64..]), (narrow.as_bytes(), &[0; 64][..]));
    }
}
