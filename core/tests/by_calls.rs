//! A device whose operations go by a library's calls: each announcement is handed on, and completions are collected
//! before they are looked for.

mod common;

use common::puppet::{Puppet, recv_entry};
use common::{required, slice_of, zeros};
use efa_core::entry::control1;
use efa_core::memory::Slice;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Group, Srd};
use efa_core::soft::Profile;
use efa_core::wire::EndpointInfo;
use efa_core::work::Event;
use efa_core::{Context, DataPath, Gid, ProtectionDomain, Qkey, Qpn, Token};

type Device = Puppet<true>;

struct Stage {
    qp: Endpoint<Device>,
    peer: Peer<Mutual>,
    device: Device,
    pd: ProtectionDomain<Device>,
    ctx: Context<Device>,
}

fn peer_of(qp: &Endpoint<Device>) -> Peer<Mutual> {
    let address = EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) };
    qp.resolve_address(address).unwrap().assert_mutual()
}

fn stage(path: DataPath, depth: Depth) -> Stage {
    let device = Puppet::by_calls(Profile::RDMA.caps(), path);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.endpoint(required::<_, Srd>(&ctx), depth).unwrap();
    Stage { peer: peer_of(&qp), qp, device, pd, ctx }
}

impl Stage {
    /// How often entries were handed on since this was asked last.
    fn handed_on(&self) -> u32 {
        self.device.calls().0
    }
}

#[test]
fn each_announcement_is_handed_on_once_and_what_announces_nothing_is_not() {
    let mut stage = stage(DataPath::Verbs, Depth::new(4, 4));
    stage.qp.post(stage.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(stage.handed_on(), 1, "an operation");
    stage.qp.post_recv(zeros(&stage.pd, 8), Token(2)).unwrap();
    assert_eq!(stage.handed_on(), 1, "a receive");
    let list: Vec<(Slice, Token)> = (3..5).map(|token| (zeros(&stage.pd, 8), Token(token))).collect();
    assert_eq!(stage.qp.post_recv_list(&mut list.into_iter()).unwrap(), 2);
    assert_eq!(stage.handed_on(), 1, "a list of receives");
    assert_eq!(stage.qp.post_recv_list(&mut std::iter::empty::<(Slice, Token)>()).unwrap(), 0);
    assert_eq!(stage.handed_on(), 0, "a list of none");

    let mut batch = stage.qp.batch();
    batch.push(stage.peer.send_empty(), Token(5)).unwrap();
    batch.push(stage.peer.send_empty(), Token(6)).unwrap();
    assert_eq!(batch.submit(), 2);
    assert_eq!(stage.handed_on(), 1, "a batch");
    assert_eq!(stage.qp.batch().submit(), 0);
    let mut batch = stage.qp.batch();
    batch.push(stage.peer.send_empty(), Token(7)).unwrap();
    drop(batch);
    assert!(stage.qp.poll().is_none());
    assert_eq!(stage.handed_on(), 0, "a batch of none, one that never was, and a poll");

    let mut batch = stage.qp.batch();
    batch.push(stage.peer.send_empty(), Token(8)).unwrap();
    std::mem::forget(batch);
    assert!(stage.qp.poll().is_none());
    assert_eq!((stage.handed_on(), stage.device.doorbells().0), (0, 3), "one that was forgotten");
}

#[test]
fn what_completed_is_collected_before_it_is_looked_for_whatever_queue_it_is_in() {
    let depth = Depth::new(4, 4);
    for (depth, queues) in [(depth, 2), (depth.one_completion_queue(), 1)] {
        let Stage { mut qp, peer, device, pd, .. } = stage(DataPath::Verbs, depth);
        qp.post(peer.send(zeros(&pd, 8)), Token(1)).unwrap();
        qp.post_recv(zeros(&pd, 16), Token(2)).unwrap();
        assert!(qp.poll().is_none());
        assert_eq!(device.calls().1, queues);
        device.send_done(device.send_id(0), 0, control1::OP_SEND);
        assert_eq!(slice_of(qp.poll().unwrap()).len(), 8);
        device.recv_done(recv_entry(device.recv_id(0), 16));
        assert_eq!(slice_of(qp.poll().unwrap()).len(), 16);
        assert_eq!((device.calls().1, qp.in_flight()), (2 * queues, 0));
        // What a reset finds there is the former life's.
        let err = qp.error().unwrap();
        device.send_done(device.send_id(0), 0, control1::OP_SEND);
        let mut next = err.reset().unwrap().prepare().unwrap();
        assert_eq!(next.stats().stale, 1);
        assert!(next.poll().is_none());
    }
}

#[test]
fn a_queue_pair_on_a_channel_goes_by_calls_too() {
    let Stage { device, pd, ctx, .. } = stage(DataPath::Verbs, Depth::new(4, 4));
    let pd = pd.on_channel(&());
    let mut qp = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let address = EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) };
    let peer = qp.resolve_address(address).unwrap().assert_mutual();
    qp.post(peer.send(zeros(&pd, 8)), Token(1)).unwrap();
    assert_eq!(device.calls(), (1, 0));
    device.send_done(device.send_id(0), 0, control1::OP_SEND);
    assert_eq!(slice_of(qp.poll().unwrap()).len(), 8);
    assert_eq!(device.calls(), (0, 2));
}

#[test]
fn a_groups_queue_is_collected_before_each_poll_of_it() {
    let Stage { device, pd, ctx, .. } = stage(DataPath::Verbs, Depth::new(4, 4));
    let mut group: Group<_, Srd, 2> = pd.group(required::<_, Srd>(&ctx), 16).unwrap();
    let id = group.endpoint(Depth::new(4, 4)).unwrap();
    assert_eq!(device.calls(), (0, 1), "a new member must find nothing of another");
    let peer = peer_of(group.queue_pair(id).unwrap());
    group.member(id).unwrap().post(peer.send(zeros(&pd, 8)), Token(1)).unwrap();
    assert_eq!(device.calls(), (1, 0));
    assert!(group.poll().is_none());
    assert_eq!(device.calls(), (0, 1));
    device.send_done(device.send_id(0), 0, control1::OP_SEND);
    let (whose, event) = group.poll().unwrap();
    assert_eq!((whose, slice_of(event).len()), (id, 8));
    // What is there at the end of a member is told, though nobody polled.
    group.member(id).unwrap().post(peer.send(zeros(&pd, 24)), Token(2)).unwrap();
    device.send_done(device.send_id(1), 0, control1::OP_SEND);
    let mut told = Vec::new();
    let ended = group.shut_down(id, || true, |whose, event| told.push((whose, slice_of(event).len()))).unwrap();
    assert_eq!((told, ended.completed, ended.reclaimed), (vec![(id, 24)], 1, 0));
}

#[test]
fn a_provider_that_could_go_by_calls_is_not_called_where_operations_reach_the_device_directly() {
    let Stage { mut qp, peer, device, pd, ctx } = stage(DataPath::Direct, Depth::new(4, 4));
    qp.post(peer.send(zeros(&pd, 8)), Token(1)).unwrap();
    qp.post_recv(zeros(&pd, 8), Token(2)).unwrap();
    device.send_done(device.send_id(0), 0, control1::OP_SEND);
    assert!(matches!(qp.poll(), Some(Event::Sent(_))));
    assert!(qp.poll().is_none());
    let mut group: Group<_, Srd, 2> = pd.group(required::<_, Srd>(&ctx), 16).unwrap();
    let id = group.endpoint(Depth::new(4, 4)).unwrap();
    let peer = peer_of(group.queue_pair(id).unwrap());
    group.member(id).unwrap().post(peer.send_empty(), Token(3)).unwrap();
    assert!(group.poll().is_none());
    assert_eq!(device.calls(), (0, 0));
}
