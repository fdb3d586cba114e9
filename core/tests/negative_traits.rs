//! What the types must not be able to do, and which threads they may go to.

mod common;

use common::puppet::Puppet;
use efa_core::memory::{
    Arena, Buffers, Exposed, ExposedPart, Frozen, Mr, Ordered, Pages, Pool, Region, RemoteWrite, Slice,
};
use efa_core::peer::{Ah, Mutual, OneWay, Peer, PeerTable, RemoteWindow};
use efa_core::qp::{
    AnyQueuePair, CanReceive, CanSend, Err, Group, Init, Member, MemberId, MovesTo, QueuePair, Reachable, Reset, Rtr,
    Rts, Sqd, Sqe, Srd,
};
use efa_core::ring::Slot;
use efa_core::soft::{SoftChannel, SoftDevice};
use efa_core::work::{Batch, Event, Imm, NoImm, Read, Send as SendOp, SendInline, Write};
use efa_core::{Arms, Context, Granted, Notified, Notifies, ProtectionDomain, Refused};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::ops::{Deref, DerefMut, Index};

type Qp<S> = QueuePair<SoftDevice, S, Srd>;
type Memory = Exposed<Vec<u8>, RemoteWrite>;

// R39: a queue pair has one owner, who may move it to another thread.
assert_not_impl_any!(Qp<Reset>: Clone, Copy, Default);
assert_not_impl_any!(Qp<Init>: Clone, Copy);
assert_not_impl_any!(Qp<Rtr>: Clone, Copy);
assert_not_impl_any!(Qp<Rts>: Clone, Copy, Default, Deref);
assert_not_impl_any!(Qp<Sqd>: Clone, Copy);
assert_not_impl_any!(Qp<Sqe>: Clone, Copy);
assert_not_impl_any!(Qp<Err>: Clone, Copy);
assert_not_impl_any!(AnyQueuePair<SoftDevice, Srd>: Clone, Copy);
// Shared, it can only be asked: so that errors which give one back go into any boxed error.
assert_impl_all!(Qp<Rts>: Send, Sync);
assert_impl_all!(QueuePair<Puppet, Reset, Srd>: Sync);
assert_impl_all!(QueuePair<Puppet, Rts, Srd>: Send);
assert_impl_all!(AnyQueuePair<SoftDevice, Srd>: Send);

// R21: a group is whole, and a queue pair of it is lent by reference, never to be exchanged for another.
assert_not_impl_any!(Group<SoftDevice, Srd, 4>: Clone, Copy);
assert_not_impl_any!(Member<'static, SoftDevice, Srd>: Clone, Copy, DerefMut);
assert_impl_all!(Group<SoftDevice, Srd, 4>: Send);
assert_impl_all!(MemberId: Copy, Send, Sync);
assert_impl_all!(Batch<'static, SoftDevice, Srd>: Send, Sync);

// R30: what is on a channel is as any other, and moves to the thread that sleeps; channels are shared.
assert_impl_all!(QueuePair<Notified<SoftDevice>, Rts, Srd>: Send, Sync);
assert_impl_all!(Group<Notified<SoftDevice>, Srd, 4>: Send);
assert_impl_all!(SoftChannel: Clone, Send, Sync);
assert_not_impl_any!(SoftDevice: Arms);
assert_not_impl_any!(Notified<SoftDevice>: Notifies);
assert_impl_all!(Notified<SoftDevice>: Arms);

// R01: the states without a transition to each other.
assert_not_impl_any!(Reset: MovesTo<Rtr>, MovesTo<Rts>, MovesTo<Sqd>, MovesTo<Sqe>, MovesTo<Err>);
assert_not_impl_any!(Init: MovesTo<Rts>, MovesTo<Sqd>, MovesTo<Sqe>);
assert_not_impl_any!(Rtr: MovesTo<Init>, MovesTo<Rtr>, MovesTo<Sqd>, MovesTo<Sqe>);
assert_not_impl_any!(Rts: MovesTo<Init>, MovesTo<Rtr>, MovesTo<Sqe>);
assert_not_impl_any!(Sqd: MovesTo<Init>, MovesTo<Rtr>, MovesTo<Sqe>);
assert_not_impl_any!(Sqe: MovesTo<Init>, MovesTo<Rtr>, MovesTo<Sqd>, MovesTo<Sqe>);
assert_not_impl_any!(Err: MovesTo<Init>, MovesTo<Rtr>, MovesTo<Rts>, MovesTo<Sqd>, MovesTo<Sqe>);

// R02, R03.
assert_not_impl_any!(Reset: CanReceive, CanSend, Reachable);
assert_not_impl_any!(Init: CanSend, Reachable);
assert_not_impl_any!(Rtr: CanSend);
assert_not_impl_any!(Sqd: CanSend, Reachable);
assert_not_impl_any!(Sqe: CanSend, Reachable);
assert_not_impl_any!(Err: CanReceive, CanSend, Reachable);

// R15: unique bytes are unique, frozen ones are read only, and both may go to other threads.
assert_not_impl_any!(Slice: Clone, Copy, Default);
assert_impl_all!(Slice: Send, Sync, DerefMut);
assert_not_impl_any!(Frozen: Copy, DerefMut);
assert_impl_all!(Frozen: Clone, Send, Sync);
assert_not_impl_any!(Region<Vec<u8>>: Clone, Copy, Deref);
assert_not_impl_any!(Pool<4>: Clone, Copy);
assert_not_impl_any!(Pages: Clone, Copy);
assert_not_impl_any!(Arena<8>: Clone, Copy, Deref);
assert_impl_all!(Arena<8>: Sync);
assert_not_impl_any!(Mr: Copy);
assert_not_impl_any!(Slot: Clone, Copy);

// R16: no view of memory that peers write.
assert_not_impl_any!(Memory: Clone, Copy, Deref, AsRef<[u8]>, AsMut<[u8]>, Index<usize>);
assert_not_impl_any!(ExposedPart: Copy, Deref, AsRef<[u8]>, AsMut<[u8]>, Index<usize>);
assert_not_impl_any!(ExposedPart<Ordered>: Clone);
assert_impl_all!(Memory: Send, Sync);

// R25: a peer is one handle; what is known of its memory may be copied.
assert_not_impl_any!(Peer<OneWay>: Clone, Copy);
assert_not_impl_any!(Peer<Mutual>: Clone, Copy);
assert_not_impl_any!(PeerTable<4>: Clone, Copy);
assert_not_impl_any!(Ah: Clone, Copy);
assert_impl_all!(Peer<Mutual>: Send, Sync);
assert_impl_all!(RemoteWindow<RemoteWrite>: Copy, Send, Sync);

// An operation is posted once; its event is read once.
assert_not_impl_any!(SendOp<'static, Slice, (), Imm>: Clone, Copy);
assert_not_impl_any!(SendInline<'static, (), NoImm>: Clone, Copy);
assert_not_impl_any!(Write<'static, Slice, (), NoImm>: Clone, Copy);
assert_not_impl_any!(Read<'static, Slice, ()>: Clone, Copy);
assert_not_impl_any!(Batch<'static, SoftDevice, Srd>: Clone, Copy);
assert_not_impl_any!(Event: Clone, Copy, Default);
assert_not_impl_any!(Buffers: Clone, Copy, From<Slice>, From<[Slice; 1]>, From<[Slice; 2]>);
assert_impl_all!(Event: Send);

// R07: tokens come from `require` alone, and may be kept.
assert_not_impl_any!(Granted<Srd>: Default, From<()>, From<u32>);
assert_impl_all!(Granted<Srd>: Copy, Send, Sync);
assert_impl_all!(Context<SoftDevice>: Clone, Send, Sync);
assert_impl_all!(ProtectionDomain<SoftDevice>: Clone, Send, Sync);
assert_not_impl_any!(Refused<Slice>: Clone, Copy);

#[test]
fn the_assertions_above_hold_because_this_compiles() {}
