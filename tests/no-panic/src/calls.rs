//! Each public function of the data path, and what leads to and from it.
//!
//! Left out, since it stands on code of others that can panic as far as the optimiser knows, and stands between
//! no post and its completion: text (`Display`, addresses parsed from text), `PeerTable`'s `insert` and `remove`
//! (heapless), and `Pool::into_slice` (the standard library's sort).

use core::ops::Range;

use efa_core::fabric::{Efa, EfaDirect, Messages, RemoteRange};
use efa_core::flow::{Arrivals, RecvCredits, Reorder, SendCredits, Split};
use efa_core::memory::{Buffers, Exposed, ExposedPart, Frozen, Pool, Region, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, PeerTable, RemoteWindow, Sender};
use efa_core::qp::{
    ChosenRetry, Datagram, Endpoint, Err, Group, Init, MemberId, QueuePair, Rtr, RtsAttr, Solicited, Sqd, Sqe, Srd, Ud,
    Unsolicited, Wide, ops,
};
use efa_core::wire::{EndpointBytes, EndpointInfo, Grant, Hello, LibfabricAddress, Ready};
use efa_core::work::{Batch, Event, Failure, OneBuffer, Operation, Received, RecvTarget, SendSource, WritableBuffer};
use efa_core::{Notified, Token};

use crate::stub::Stub;
use crate::{any, used};

type Qp = Endpoint<Stub>;
type To = Peer<Mutual>;
type Window = RemoteWindow<RemoteReadWrite>;
type Static = &'static mut [u8];
type Open = Exposed<Static, RemoteReadWrite>;

pub(crate) const CALLS: &[fn()] = &[
    send::<Slice>,
    send::<Frozen>,
    send::<ExposedPart>,
    send::<[Slice; 2]>,
    send::<[Frozen; 2]>,
    send::<[ExposedPart; 2]>,
    send::<(Slice, Frozen)>,
    send::<(ExposedPart, Slice)>,
    send::<(Frozen, ExposedPart)>,
    send_inline,
    wide,
    write::<Slice>,
    write::<Frozen>,
    write::<ExposedPart>,
    read::<Slice>,
    read::<ExposedPart>,
    recv::<Slice>,
    recv::<ExposedPart>,
    recv::<[Slice; 2]>,
    recv::<[ExposedPart; 2]>,
    unsolicited,
    datagrams,
    batch,
    poll,
    arm,
    group::<1>,
    group::<8>,
    events,
    buffers,
    slices,
    frozen,
    exposed,
    pool::<1>,
    pool::<64>,
    windows,
    peers,
    flow::<1>,
    flow::<64>,
    split::<1>,
    split::<16>,
    fabric::<1, 1>,
    fabric::<16, 64>,
    direct,
    wire,
    states,
    ends,
];

/// Posts, alone and in a batch.
fn post<O: Operation<Srd>>(make: impl Fn() -> O) {
    used(any::<&mut Qp>().post(make(), any()));
    used(any::<&mut Batch<'_, Stub, Srd>>().push(make(), any()));
}

fn send<S: SendSource>() {
    let (peer, stranger): (&To, &Peer<OneWay>) = (any(), any());
    post(|| peer.send(any::<S>()));
    post(|| peer.send(any::<S>()).imm(any()));
    post(|| stranger.one_way().send(any::<S>()));
    post(|| stranger.one_way().send(any::<S>()).imm(any()));
}

fn send_inline() {
    let (peer, stranger): (&To, &Peer<OneWay>) = (any(), any());
    post(|| peer.send_empty());
    post(|| peer.send_empty().imm(any()));
    post(|| stranger.one_way().send_empty());
    post(|| peer.send_inline(any::<&[u8]>()));
    post(|| peer.send_inline(any::<&[u8]>()).imm(any()));
    post(|| peer.send_inline(any::<[u8; 32]>()));
    post(|| peer.send_inline(any::<&[u8; 7]>()).imm(any()));
    post(|| stranger.one_way().send_inline(any::<&[u8]>()));
}

/// The same and more in entries of 128 bytes.
fn wide() {
    type Kind = Srd<{ ops::ALL }, Solicited, Wide>;
    let peer: &To = any();
    fn post<O: Operation<Kind>>(make: impl Fn() -> O) {
        used(any::<&mut Endpoint<Stub, Kind>>().post(make(), any()));
        used(any::<&mut Batch<'_, Stub, Kind>>().push(make(), any()));
    }
    post(|| peer.send(any::<Slice>()));
    post(|| peer.send(any::<[Slice; 2]>()).imm(any()));
    post(|| peer.send_inline(any::<&[u8]>()).imm(any()));
    post(|| peer.send_inline(any::<[u8; 80]>()));
    post(|| peer.write(any::<Slice>(), any::<Window>()));
    post(|| peer.write_inline(any::<&[u8]>(), any::<Window>()));
    post(|| peer.write_inline(any::<&[u8; 80]>(), any::<Window>()).imm(any()));
    post(|| peer.read(any::<Slice>(), any::<Window>()));
    let qp: &mut Endpoint<Stub, Kind> = any();
    used((qp.poll(), qp.granted()));
    qp.batch().abort(|token, buffers| used((token, buffers)));
}

fn write<S: OneBuffer>() {
    let peer: &To = any();
    post(|| peer.write(any::<S>(), any::<Window>()));
    post(|| peer.write(any::<S>(), any::<Window>()).imm(any()));
}

fn read<T: WritableBuffer>() {
    let peer: &To = any();
    post(|| peer.read(any::<T>(), any::<Window>()));
}

fn recv<T: RecvTarget>() {
    used(any::<&mut QueuePair<Stub, Init>>().post_recv(any::<T>(), any()));
    used(any::<&mut QueuePair<Stub, Rtr>>().post_recv(any::<T>(), any()));
    used(any::<&mut Qp>().post_recv(any::<T>(), any()));
    let mut list = core::iter::from_fn(any::<Option<(T, Token)>>);
    used(any::<&mut Qp>().post_recv_list(&mut list));
}

/// The other kind of completion: arrivals without a receive.
fn unsolicited() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let (qp, peer): (&mut Endpoint<Stub, Kind>, &Peer<Mutual, Unsolicited>) = (any(), any());
    used(qp.post(peer.write(any::<Slice>(), any::<Window>()).imm(any()), any()));
    used(qp.poll());
}

/// The other type: receives with a header.
fn datagrams() {
    let (qp, peer): (&mut Endpoint<Stub, Ud>, &Peer<Mutual, Datagram>) = (any(), any());
    used(qp.post(peer.send(any::<Slice>()), any()));
    used(qp.post(peer.send(any::<[Slice; 2]>()).imm(any()), any()));
    used(qp.post_recv(any::<Slice>(), any()));
    used(qp.post_recv(any::<[Slice; 2]>(), any()));
    used(qp.poll());
    used(any::<QueuePair<Stub, Init, Ud>>().error());
    used(any::<QueuePair<Stub, Rtr, Ud>>().rts(any::<RtsAttr>()));
    used(any::<Endpoint<Stub, Ud>>().shut_down(any::<bool>, used));
}

fn batch() {
    let qp: &mut Qp = any();
    used(qp.can_post());
    used(qp.can_post_recv());
    let batch = qp.batch();
    used((batch.len(), batch.is_empty()));
    used(batch.submit());
    qp.batch().abort(|token, buffers| used((token, buffers)));
    let batch = qp.batch();
    drop(batch);
    core::mem::forget(qp.batch());
}

fn group<const N: usize>() {
    let (group, id): (&mut Group<Stub, Srd, N>, MemberId) = (any(), any());
    used(group.poll());
    used(group.shut_down(id, any, |whose, event| used((whose, event))));
    used((group.close(id), group.query(id), group.resume(id), group.queue_pair(id).is_ok()));
    used((group.entries(), group.room(), group.stale(), group.members().count()));
    let peer: &To = any();
    if let Ok(mut member) = group.member(id) {
        used(member.post(peer.send(any::<Slice>()), any()));
        used(member.post_recv(any::<Slice>(), any()));
        used(member.post_recv_list(&mut core::iter::from_fn(any::<Option<(Slice, Token)>>)));
        used(member.batch().submit());
        used(any::<&mut Split<RemoteReadWrite, 4>>().post(&mut member, |part, window| peer.write(part, window)));
    }
}

fn poll() {
    used(any::<&mut QueuePair<Stub, Init>>().poll());
    used(any::<&mut QueuePair<Stub, Rtr>>().poll());
    used(any::<&mut QueuePair<Stub, Sqd>>().poll());
    used(any::<&mut QueuePair<Stub, Err>>().poll());
    let qp: &mut Qp = any();
    used(qp.poll());
    used((qp.cause().copied(), qp.stats(), qp.in_flight(), qp.granted(), qp.max_rdma_size(), qp.pd_id(), qp.qpn()));
}

/// On a channel.
fn arm() {
    let qp: &mut Endpoint<Notified<Stub>> = any();
    let peer: &To = any();
    used(qp.arm());
    used(qp.poll());
    used(qp.post(peer.send(any::<Slice>()), any()));
    used(any::<&mut Group<Notified<Stub>, Srd, 8>>().arm());
}

fn events() {
    used(any::<Event>().into_buffers());
    used(any::<&Event>().token());
    used(any::<Event>());
    let failure: &Failure = any();
    used((failure.is_flush(), failure.status()));
    if let Some(status) = failure.status() {
        used((status.number(), status.wc_status(), status.cause(), status.remedy()));
    }
    used(any::<&Sender>().qpn());
    used(any::<&Received>().payload());
}

fn buffers() {
    let buffers: &mut Buffers = any();
    used((buffers.len(), buffers.is_empty(), buffers.bytes()));
    used(buffers.take_slice());
    used(buffers.next().map(|buffer| (buffer.len(), buffer.is_empty())));
    used(buffers.next());
    used(any::<Buffers>().into_slice());
    used(any::<Buffers>());
    used(Buffers::default());
}

fn slices() {
    used(any::<Slice>().split_at(any()));
    used(any::<Slice>().unsplit(any()));
    used(any::<&Slice>().is_followed_by(any()));
    used(any::<Slice>().freeze());
    let slice: &mut Slice = any();
    used(slice.pd());
    used(&slice[..]);
    used(&mut slice[..]);
    used(any::<Slice>());
    used(any::<Region<Static>>().close(any()));
    used(any::<&Region<Static>>().len());
    used(any::<Region<Static>>());
}

fn frozen() {
    let frozen: &Frozen = any();
    used(&frozen[..]);
    used((frozen.pd(), frozen.clone(), frozen.part(any())));
    used(any::<Frozen>().thaw());
    used(any::<Frozen>());
}

fn exposed() {
    let exposed: &Open = any();
    used(exposed.len());
    used(exposed.copy_in(any(), any()));
    used(exposed.copy_out(any(), any()));
    used(exposed.load(any()));
    used(exposed.store(any(), any()));
    used(exposed.part(any()));
    used(exposed.grant(any::<&Qp>()));
    used(exposed.grant_range(any::<&Qp>(), any()));
    used(any::<Open>().revoke());
    used(any::<Open>());
    let part: &ExposedPart = any();
    used((part.len(), part.is_empty(), part.pd(), part.clone()));
    used(any::<ExposedPart>());
}

fn pool<const N: usize>() {
    used(Pool::<N>::new(any(), any()));
    let pool: &mut Pool<N> = any();
    used(pool.take());
    used(pool.put(any()));
    used((pool.free(), pool.slots(), pool.slot_size()));
    used(any::<Pool<N>>());
}

fn windows() {
    let window: &Window = any();
    used((window.len(), window.is_empty()));
    used(window.range(any()));
    used(any::<&To>().window::<RemoteReadWrite>(any()));
    used(any::<&Peer<OneWay>>().window::<RemoteReadWrite>(any()));
}

fn peers() {
    let qp: &Qp = any();
    used(qp.hello());
    used(qp.address());
    used(qp.resolve(any()));
    used(qp.resolve_address(any()));
    used(any::<Peer<OneWay>>().confirm(any()));
    used(any::<Peer<OneWay>>().assert_mutual());
    let peer: &To = any();
    used((peer.gid(), peer.qpn(), peer.qkey(), peer.ahn(), peer.incarnation(), peer.max_msg_size()));
    let table: &PeerTable<16> = any();
    used(table.find(any()).map(|peer| peer.qpn()));
    used(table.get(any(), any()).map(|peer| peer.qpn()));
    used((table.len(), table.is_empty(), table.iter().count()));
}

fn flow<const N: usize>() {
    let arrivals: &mut Arrivals = any();
    used((arrivals.arrived(), arrivals.all_here(), arrivals.missing()));
    let credits: &mut SendCredits = any();
    credits.add(any());
    used((credits.take(), credits.available()));
    credits.put_back();
    let credits: &mut RecvCredits = any();
    credits.posted(any());
    used(credits.tell(any()));
    let order: &mut Reorder<Slice, N> = any();
    used(order.push(any(), any()));
    used((order.pop(), order.next()));
    used(Reorder::<Slice, N>::starting_at(any()));
}

fn split<const N: usize>() {
    type Parts<const N: usize> = Split<RemoteReadWrite, N>;
    used(Parts::<N>::new(any(), any(), any(), any()));
    let (parts, qp, peer): (&mut Parts<N>, &mut Qp, &To) = (any(), any(), any());
    used(parts.post(qp, |slice, window| peer.write(slice, window)));
    used(parts.post(qp, |slice, window| peer.read(slice, window)));
    used(parts.step(any()));
    used(parts.parts());
    used(any::<Parts<N>>().into_slice());
}

/// The fabric `efa`: in one program for each size of its tables, since each function is compiled for itself.
fn fabric<const PEERS: usize, const OPERATIONS: usize>() {
    type Buffer = &'static mut [u8];
    type Layer<const PEERS: usize, const OPERATIONS: usize> = Efa<Stub, Srd, &'static [u8], Buffer, PEERS, OPERATIONS>;
    let layer: &mut Layer<PEERS, OPERATIONS> = any();
    used(layer.send(any(), any(), any()));
    used(layer.recv(any(), any()));
    used(layer.poll(any()));
    used(layer.write(any(), any(), any(), any()));
    used(layer.read(any(), any(), any(), any()));
    used((layer.open(any(), any()), layer.shut(any())));
    used(layer.remote(any(), any::<&[u8]>()));
    used(layer.describe(any()));
    used(any::<&RemoteRange>().range(any::<Range<u64>>()));
    used((layer.is_up(any()), layer.features(any()), layer.counters(), layer.under_way()));
    layer.remove(any());
    used(layer.add(any::<To>()));
}

fn direct() {
    let direct: &mut EfaDirect<Stub> = any();
    used(direct.send(any(), any::<Slice>(), any()));
    used(direct.recv(any::<Slice>(), any()));
    used(direct.poll(any()));
}

fn wire() {
    used(efa_core::wire::Window::parse(any()));
    used(any::<&efa_core::wire::Window>().to_frame().as_bytes());
    used(Hello::parse(any()));
    used(any::<&Hello>().to_frame().as_bytes());
    used(Ready::parse(any()));
    used(any::<&Ready>().to_frame().as_bytes());
    used(Grant::parse(any()));
    used(any::<&Grant>().to_frame().as_bytes());
    used(EndpointBytes::parse(any()));
    used(any::<&EndpointBytes>().resolve());
    used(EndpointInfo::parse(any()));
    used(any::<&EndpointInfo>().to_bytes().as_bytes());
    used(LibfabricAddress::parse(any()));
    used(any::<&LibfabricAddress>().to_bytes().as_bytes());
}

fn states() {
    used(any::<QueuePair<Stub, efa_core::qp::Reset>>().prepare());
    used(any::<QueuePair<Stub, Init>>().rtr());
    used(any::<QueuePair<Stub, Rtr>>().rts(any::<RtsAttr>()));
    used(any::<QueuePair<Stub, Rtr>>().rts(any::<RtsAttr<ChosenRetry>>()));
    used(any::<Qp>().drain());
    used(any::<QueuePair<Stub, Sqd>>().resume());
    used(any::<QueuePair<Stub, Sqe>>().resume());
    used(any::<Qp>().error());
    used(any::<QueuePair<Stub, Err>>().reset());
}

fn ends() {
    used(any::<Qp>().close());
    used(any::<Qp>().shut_down(any::<bool>, used));
    used(any::<Qp>());
}
