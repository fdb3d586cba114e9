//! Peers: who can be reached, who can reach us, and who is who after a restart.

mod common;

use common::{LIMITS, assert_idle, config, connect, page, required, slice_of, wait, wait_failed, zeros};
use efa_core::memory::{RemoteRead, RemoteReadWrite, RemoteWrite};
use efa_core::peer::{Mutual, OneWay, Peer, PeerTable, Sender};
use efa_core::qp::{Depth, Endpoint, FeatureSet, QpKind, Solicited, Srd, Unsolicited, ops};
use efa_core::soft::{Profile, SoftDevice};
use efa_core::status::CompletionStatus;
use efa_core::wire::{EndpointInfo, Features, Field, Frame, Hello, LibfabricAddress, ParseError};
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Gid, Limit, Limits, ProtectionDomain, Qkey, Qpn, Token};

const DEPTH: Depth = Depth::new(8, 8);

type Qp<K = Srd> = Endpoint<SoftDevice, K>;

/// A device with one endpoint.
struct Node<K: QpKind = Srd> {
    qp: Qp<K>,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

impl<K: QpKind> Node<K> {
    fn on(device: SoftDevice) -> Self {
        let ctx = Context::open(device);
        let pd = ctx.alloc_pd().unwrap();
        let qp = pd.endpoint(required::<_, K>(&ctx), DEPTH).unwrap();
        Self { qp, pd, ctx }
    }

    fn recv(&mut self, token: u64) {
        self.qp.post_recv(zeros(&self.pd, 32), Token(token)).unwrap();
    }

    /// The device's next queue pair, for the one that is dropped: a restart.
    fn restart(&mut self) {
        let spare = self.pd.create_qp(required::<_, K>(&self.ctx), DEPTH).unwrap();
        let spare_qpn = spare.qpn();
        let old = std::mem::replace(&mut self.qp, spare.prepare().unwrap());
        let qpn = old.qpn();
        drop(old);
        self.qp = self.pd.endpoint(required::<_, K>(&self.ctx), DEPTH).unwrap();
        assert_eq!(self.qp.qpn(), qpn, "numbers are reused (R20), {spare_qpn} was spare");
    }
}

fn nodes(profile: Profile) -> (Node, Node) {
    let device = SoftDevice::new(config(profile));
    let other = device.neighbour().unwrap();
    (Node::on(device), Node::on(other))
}

#[test]
fn h01_r04_rdma_fails_with_14_until_the_other_side_has_resolved_us_and_after_it_forgot_us() {
    let (mut a, b) = nodes(Profile::RDMA);
    let memory = page::<_, RemoteReadWrite>(&b.ctx, &b.pd);
    let (to_b, _) = a.qp.resolve(b.qp.hello().as_bytes()).unwrap();
    let to_b = to_b.assert_mutual();
    let window = to_b.window::<RemoteReadWrite>(memory.grant(&b.qp).unwrap().as_bytes()).unwrap();
    let mut local = zeros(&a.pd, 32);
    local.fill(9);

    let attempt = |a: &mut Node, slice, read: bool| {
        if read {
            a.qp.post(to_b.read(slice, window), Token(1)).unwrap();
        } else {
            a.qp.post(to_b.write(slice, window), Token(1)).unwrap();
        }
        wait(&mut a.qp)
    };
    for read in [false, true] {
        let event = attempt(&mut a, local, read);
        let Event::Failed { failure, .. } = &event else { panic!("{event:?}") };
        assert_eq!(failure.status(), Some(CompletionStatus::RemoteUnknownPeer));
        assert!(failure.to_string().contains("has not resolved us"), "{failure}");
        local = slice_of(event);
    }
    let (to_a, _) = b.qp.resolve(a.qp.hello().as_bytes()).unwrap();
    let event = attempt(&mut a, local, false);
    assert!(matches!(event, Event::Written(_)), "{event:?}");
    drop(to_a);
    let event = attempt(&mut a, slice_of(event), false);
    assert!(matches!(&event, Event::Failed { failure, .. } if failure.status().unwrap().number() == 14), "{event:?}");
    assert_eq!(a.qp.cause().unwrap().status().unwrap().number(), 14);
    let mut bytes = [0; 33];
    memory.copy_out(0, &mut bytes).unwrap();
    assert_eq!((&bytes[..32], bytes[32]), (&[9; 32][..], 0));
}

#[test]
fn h02_r27_an_address_of_zeros_is_an_error_that_names_the_gid() {
    let zero = |frame| ParseError::Zero { frame, field: Field::Gid };
    assert_eq!(LibfabricAddress::parse(&[0; 32]).unwrap_err(), zero(Frame::LibfabricBytes));
    assert_eq!(EndpointInfo::parse(&[0; 24]).unwrap_err(), zero(Frame::Endpoint));
    let (a, b) = nodes(Profile::RDMA);
    let address = EndpointInfo { gid: Gid([0; 16]), ..b.qp.address() };
    let error = a.qp.resolve_address(address).unwrap_err();
    assert_eq!(error, Error::ZeroGid);
    let mut hello = b.qp.hello().as_bytes().to_vec();
    hello[8..24].fill(0);
    let parse = a.qp.resolve(&hello).unwrap_err();
    assert_eq!(parse, Error::Parse(zero(Frame::Hello)));
    for text in [error.to_string(), parse.to_string(), LibfabricAddress::parse(&[0; 32]).unwrap_err().to_string()] {
        assert!(text.contains("GID") && !text.contains("Success"), "{text}");
    }
}

#[test]
fn h04_an_address_is_the_same_bytes_on_every_host() {
    let info =
        EndpointInfo { gid: "fe80::0102:0304:0506:0708".parse().unwrap(), qpn: Qpn(0x1234), qkey: Qkey(0x0A0B_0C0D) };
    let golden = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x12, 0x34, 0x0A, 0x0B, 0x0C, 0x0D];
    assert_eq!(info.to_bytes().as_bytes(), golden);
    assert_eq!(EndpointInfo::parse(&golden).unwrap(), info);
}

/// Two devices of one wire whose queue pairs differ in unsolicited receive.
fn mixed(strict: bool) -> (Node, Node<Srd<{ ops::ALL }, Unsolicited>>) {
    let device = SoftDevice::new(config(Profile::UNSOLICITED).strict_features(strict));
    let other = device.neighbour().unwrap();
    (Node::on(device), Node::on(other))
}

#[test]
fn h33_r05_a_peer_with_other_features_is_refused_with_both_sets() {
    let (a, b) = mixed(false);
    let error = a.qp.resolve(b.qp.hello().as_bytes()).unwrap_err();
    let (ours, theirs) = (Features::empty(), Features::UNSOLICITED_WRITE_RECV);
    assert_eq!(error, Error::FeatureMismatch { ours, theirs });
    let text = error.to_string();
    assert!(text.contains("UNSOLICITED_WRITE_RECV") && text.contains("none") && text.contains("R05"), "{text}");
    let error = b.qp.resolve(a.qp.hello().as_bytes()).unwrap_err();
    assert_eq!(error, Error::FeatureMismatch { ours: theirs, theirs: ours });
    assert_eq!((Solicited::FEATURES, Unsolicited::FEATURES), (ours, theirs));
}

#[test]
fn h33_r05_behind_a_bare_address_only_status_18_tells() {
    for strict in [false, true] {
        let (mut a, mut b) = mixed(strict);
        let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
        let to_b = a.qp.resolve_address(b.qp.address()).unwrap().assert_mutual();
        let _to_a = b.qp.resolve_address(a.qp.address()).unwrap();
        assert_eq!(to_b.incarnation(), None);
        let window = to_b.window::<RemoteWrite>(memory.grant(&b.qp).unwrap().as_bytes()).unwrap();
        b.recv(1);
        a.qp.post(to_b.write(zeros(&a.pd, 8), window).imm(1), Token(1)).unwrap();
        let failure = wait_failed(&mut a.qp);
        assert_eq!(failure.status(), Some(CompletionStatus::RemoteFeatureMismatch));
        assert!(failure.to_string().contains("feature mismatch"), "{failure}");
        a.qp.post(to_b.send_empty(), Token(2)).unwrap();
        a.qp.post(to_b.write(zeros(&a.pd, 8), window), Token(3)).unwrap();
        for _ in 0..2 {
            let event = wait(&mut a.qp);
            assert_eq!(matches!(event, Event::Failed { .. }), strict, "{event:?}");
        }
    }
}

#[test]
fn the_exchange_survives_frames_that_are_lost_repeated_and_reordered() {
    let (mut a, mut b) = nodes(Profile::RDMA);
    let (a_hello, b_hello) = (a.qp.hello(), b.qp.hello());
    // B's ready comes before its hello was resolved: it is kept by the application and used later.
    let (lost, _) = b.qp.resolve(a_hello.as_bytes()).unwrap();
    drop(lost);
    let (to_a, b_ready) = b.qp.resolve(a_hello.as_bytes()).unwrap();
    let (again, b_ready_again) = b.qp.resolve(a_hello.as_bytes()).unwrap();
    assert_eq!(b_ready, b_ready_again);
    assert_eq!((again.ahn(), again.incarnation()), (to_a.ahn(), to_a.incarnation()));
    let (to_b, a_ready) = a.qp.resolve(b_hello.as_bytes()).unwrap();
    // A frame of the wrong kind, a short one, our own, and then the right one twice.
    let to_b = to_b.confirm(b_hello.as_bytes()).unwrap_err().into_inner();
    let to_b = to_b.confirm(&b_ready.as_bytes()[..43]).unwrap_err().into_inner();
    let refused = to_b.confirm(a_ready.as_bytes()).unwrap_err();
    assert!(matches!(refused.error(), Error::NotThisPeer { .. }), "{refused}");
    let to_b = refused.into_inner().confirm(b_ready.as_bytes()).unwrap();
    let (twice, _) = a.qp.resolve(b_hello.as_bytes()).unwrap();
    let twice = twice.confirm(b_ready.as_bytes()).unwrap();
    let to_a = to_a.confirm(a_ready.as_bytes()).unwrap();
    for (peer, token) in [(&to_b, 1), (&twice, 2)] {
        b.recv(token);
        a.qp.post(peer.send_empty(), Token(token)).unwrap();
        assert!(matches!(wait(&mut a.qp), Event::Sent(_)));
        assert!(matches!(wait(&mut b.qp), Event::Received(message) if message.from == Sender::Known {
            ahn: to_a.ahn(),
            qpn: a.qp.qpn(),
        }));
    }
}

#[test]
fn r25_a_peer_restarted_with_the_same_gid_and_number_is_another_peer() {
    let (mut a, mut b) = nodes(Profile::RDMA);
    let (to_old, _old_to_a) = connect(&a.qp, &b.qp);
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let old_grant = memory.grant(&b.qp).unwrap();
    let mut table = PeerTable::<4>::new();
    assert!(table.insert(to_old).unwrap().is_none());

    b.restart();
    b.recv(1);
    a.qp.post(table.get(b.ctx.gid(), b.qp.qpn()).unwrap().send_empty(), Token(1)).unwrap();
    let failure = wait_failed(&mut a.qp);
    assert_eq!(failure.status(), Some(CompletionStatus::RemoteBadDestQpn), "the old key opens nothing (R26)");
    assert!(failure.to_string().contains("restarted"), "{failure}");
    assert_idle(&mut b.qp);

    let (to_new, _to_a) = connect(&a.qp, &b.qp);
    assert!(matches!(to_new.window::<RemoteWrite>(old_grant.as_bytes()), Err(Error::StaleGrant { .. })));
    let (new_qkey, new_life) = (to_new.qkey(), to_new.incarnation());
    let displaced = table.insert(to_new).unwrap().unwrap();
    assert_ne!((displaced.qkey(), displaced.incarnation()), (new_qkey, new_life));
    assert_eq!(table.len(), 1);
    a.qp.post(table.get(b.ctx.gid(), b.qp.qpn()).unwrap().send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut a.qp), Event::Sent(_)));
    drop(displaced);
    assert_eq!(table.get(b.ctx.gid(), b.qp.qpn()).unwrap().incarnation(), new_life);
}

#[test]
fn r23_a_table_finds_the_sender_by_handle_number_or_by_gid_and_forgets_in_any_order() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let mut a: Node = Node::on(device.clone());
    let mut others: Vec<Node> = (0..3).map(|_| Node::on(device.neighbour().unwrap())).collect();
    let mut second = others[0].pd.endpoint(required::<_, Srd>(&others[0].ctx), DEPTH).unwrap();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let mut table = PeerTable::<4, OneWay>::new();
        assert!(table.is_empty());
        let mut hellos: Vec<_> = others.iter().map(|node| node.qp.hello()).collect();
        hellos.push(second.hello());
        for hello in &hellos {
            assert!(table.insert(a.qp.resolve(hello.as_bytes()).unwrap().0).unwrap().is_none());
        }
        for (index, other) in others.iter_mut().map(|node| &mut node.qp).chain([&mut second]).enumerate() {
            a.recv(index as u64);
            let (to_a, _) = other.resolve(a.qp.hello().as_bytes()).unwrap();
            other.post(to_a.one_way().send_empty(), Token(1)).unwrap();
            assert!(matches!(wait(other), Event::Sent(_)));
            let Event::Received(message) = wait(&mut a.qp) else { panic!() };
            let hello = Hello::parse(hellos[index].as_bytes()).unwrap();
            let peer = table.find(&message.from).unwrap();
            assert_eq!((peer.gid(), peer.qpn()), (hello.endpoint.gid, hello.endpoint.qpn));
            assert_eq!((message.from.qpn(), table.is_empty()), (peer.qpn(), false));
            assert!(matches!(message.from, Sender::Known { .. }));
            let early = Sender::Unknown { gid: Some(peer.gid()), qpn: peer.qpn() };
            assert_eq!(early.qpn(), peer.qpn());
            assert_eq!(table.find(&early).unwrap().incarnation(), Some(hello.incarnation));
            assert!(table.find(&Sender::Unknown { gid: None, qpn: peer.qpn() }).is_none());
        }
        for (removed, index) in order.into_iter().enumerate() {
            let EndpointInfo { gid, qpn, .. } = Hello::parse(hellos[index].as_bytes()).unwrap().endpoint;
            assert_eq!(table.remove(gid, qpn).unwrap().qpn(), qpn);
            assert!(table.remove(gid, qpn).is_none() && table.get(gid, qpn).is_none());
            assert_eq!((table.len(), table.iter().count()), (3 - removed, 3 - removed));
            for left in &order[removed + 1..] {
                let EndpointInfo { gid, qpn, .. } = Hello::parse(hellos[*left].as_bytes()).unwrap().endpoint;
                assert_eq!(table.get(gid, qpn).unwrap().qpn(), qpn);
            }
        }
        assert!(table.is_empty());
    }
}

#[test]
fn a_full_table_gives_the_peer_back_and_still_takes_a_successor() {
    let (a, b) = nodes(Profile::RDMA);
    let more: Vec<Qp> = (0..2).map(|_| b.pd.endpoint(required(&b.ctx), DEPTH).unwrap()).collect();
    let mut table = PeerTable::<2, OneWay>::new();
    let peer = |qp: &Qp| a.qp.resolve(qp.hello().as_bytes()).unwrap().0;
    assert!(table.insert(peer(&b.qp)).unwrap().is_none());
    assert!(table.insert(peer(&more[0])).unwrap().is_none());
    let refused = table.insert(peer(&more[1])).unwrap_err();
    assert_eq!(refused.error(), Error::Exhausted { what: Limit::Peers, limit: 2 });
    assert_eq!(refused.into_inner().qpn(), more[1].qpn());
    assert!(table.insert(peer(&b.qp)).unwrap().is_some());
    assert!(table.remove(b.ctx.gid(), b.qp.qpn()).is_some());
    assert!(table.insert(peer(&more[1])).unwrap().is_none());
    assert_eq!(table.get(b.ctx.gid(), more[0].qpn()).unwrap().qpn(), more[0].qpn());
}

#[test]
fn peers_of_two_devices_are_refused_in_one_table_rather_than_mistaken_for_one_another() {
    let (a, b) = nodes(Profile::RDMA);
    let (c, d) = nodes(Profile::RDMA);
    let (to_b, _) = a.qp.resolve(b.qp.hello().as_bytes()).unwrap();
    let (to_d, _) = c.qp.resolve(d.qp.hello().as_bytes()).unwrap();
    assert_eq!((to_b.ahn(), to_b.qpn()), (to_d.ahn(), to_d.qpn()));
    let mut table = PeerTable::<2, OneWay>::new();
    assert!(table.insert(to_b).unwrap().is_none());
    let refused = table.insert(to_d).unwrap_err();
    assert!(matches!(refused.error(), Error::PeersOfTwoDevices { .. }) && refused.to_string().contains("a table for"));
    assert_eq!(refused.into_inner().gid(), d.ctx.gid());
    assert_eq!(table.get(b.ctx.gid(), b.qp.qpn()).unwrap().gid(), b.ctx.gid());
    assert_eq!(table.len(), 1);
}

#[test]
fn r23_r24_an_unresolved_sender_is_a_value_with_its_gid_where_the_device_can_tell_it() {
    let rdma = Caps::RDMA_READ | Caps::RDMA_WRITE;
    for (caps, tells) in [(rdma | Caps::CQ_WITH_SGID, true), (rdma, false)] {
        let (mut a, mut b) = nodes(Profile::with_caps(caps));
        let (to_b, _) = a.qp.resolve(b.qp.hello().as_bytes()).unwrap();
        b.recv(1);
        a.qp.post(to_b.one_way().send_inline(b"who?").imm(0x8000_0001), Token(1)).unwrap();
        let Event::Received(message) = wait(&mut b.qp) else { panic!() };
        let gid = tells.then(|| a.ctx.gid());
        assert_eq!(message.from, Sender::Unknown { gid, qpn: a.qp.qpn() });
        assert_eq!((message.len, message.imm), (4, Some(0x8000_0001)));
        assert_eq!(message.from.to_string().contains("unknown device"), !tells);
    }
}

#[test]
fn r28_there_is_one_address_handle_for_each_domain_and_gid_and_it_is_counted() {
    let limits = Limits { max_ah: 2, ..LIMITS };
    let device = SoftDevice::new(config(Profile::RDMA).limits(limits));
    let a: Node = Node::on(device.clone());
    let b: Node = Node::on(device.neighbour().unwrap());
    let c: Node = Node::on(device.neighbour().unwrap());
    let b_second: Qp = b.pd.endpoint(required(&b.ctx), DEPTH).unwrap();
    let other_pd = a.ctx.alloc_pd().unwrap();
    let in_other_pd: Qp = other_pd.endpoint(required(&a.ctx), DEPTH).unwrap();

    let (first, _) = a.qp.resolve(b.qp.hello().as_bytes()).unwrap();
    let (same, _) = a.qp.resolve(b_second.hello().as_bytes()).unwrap();
    assert_eq!(first.ahn(), same.ahn());
    let (other, _) = in_other_pd.resolve(b.qp.hello().as_bytes()).unwrap();
    assert_ne!(first.ahn(), other.ahn());
    let error = a.qp.resolve(c.qp.hello().as_bytes()).unwrap_err();
    assert_eq!(error, Error::Exhausted { what: Limit::AddressHandles, limit: 2 });
    drop(first);
    assert!(a.qp.resolve(c.qp.hello().as_bytes()).is_err(), "one peer still holds it");
    drop(same);
    let (to_c, _) = a.qp.resolve(c.qp.hello().as_bytes()).unwrap();
    assert_eq!(to_c.gid(), c.ctx.gid());
}

#[test]
fn what_belongs_elsewhere_is_refused_at_the_post_and_comes_back_whole() {
    let (mut a, b) = nodes(Profile::RDMA);
    let (to_b, _to_a) = connect(&a.qp, &b.qp);
    let c: Qp = b.pd.endpoint(required(&b.ctx), DEPTH).unwrap();
    let (to_c, _c_to_a) = connect(&a.qp, &c);
    let memory = page::<_, RemoteReadWrite>(&b.ctx, &b.pd);
    let of_b = to_b.window::<RemoteReadWrite>(memory.grant(&b.qp).unwrap().as_bytes()).unwrap();
    let other_pd = a.ctx.alloc_pd().unwrap();
    let (region, mut foreign) = other_pd.register(vec![0; 8]).unwrap();
    foreign.copy_from_slice(b"foreign!");

    // Memory of another domain, in every operation and as a receive.
    let error = Error::ForeignDomain { of: other_pd.id(), domain: a.pd.id() };
    let refused = a.qp.post(to_b.send(foreign), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let refused = a.qp.post(to_b.write(refused.into_inner(), of_b), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let refused = a.qp.post(to_b.read(refused.into_inner(), of_b), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let refused = a.qp.post_recv(refused.into_inner(), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let pair = (zeros(&a.pd, 8), refused.into_inner());
    let refused = a.qp.post(to_b.send(pair), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let (own, foreign) = refused.into_inner();
    let refused = a.qp.post(to_b.send([own, foreign]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let [own, foreign] = refused.into_inner();
    let refused = a.qp.post(to_b.send([foreign, own]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    let [foreign, own] = refused.into_inner();
    assert_eq!(&foreign[..], b"foreign!");
    region.close(foreign).unwrap();

    // A window of another peer, and of less than is needed.
    let refused = a.qp.post(to_c.write(own, of_b), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::WindowOfAnotherPeer);
    let own = refused.into_inner();
    // Nor by bare addresses, behind which no life can be told from another.
    let bare = |of: &Qp| a.qp.resolve_address(of.address()).unwrap().assert_mutual();
    let (bare_b, bare_c) = (bare(&b.qp), bare(&c));
    let of_bare_b = bare_b.window::<RemoteReadWrite>(memory.grant(&b.qp).unwrap().as_bytes()).unwrap();
    let refused = a.qp.post(bare_c.write(own, of_bare_b), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::WindowOfAnotherPeer);
    let own = refused.into_inner();
    let read_only = page::<_, RemoteRead>(&b.ctx, &b.pd);
    let error = to_b.window::<RemoteWrite>(read_only.grant(&b.qp).unwrap().as_bytes()).unwrap_err();
    assert!(matches!(error, Error::AccessNotGranted { .. }), "{error}");
    assert!(error.to_string().contains("REMOTE_WRITE") && error.to_string().contains("REMOTE_READ"), "{error}");
    assert!(matches!(memory.grant(&a.qp), Err(Error::ForeignDomain { .. })));

    // A peer that another queue pair resolved.
    let mut sibling: Qp = a.pd.endpoint(required(&a.ctx), DEPTH).unwrap();
    let refused = sibling.post(to_b.send(own), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::ForeignPeer);
    a.qp.post(to_b.write(refused.into_inner(), of_b), Token(2)).unwrap();
    assert!(matches!(wait(&mut a.qp), Event::Written(_)));
    assert_eq!(a.qp.in_flight() + sibling.in_flight(), 0);
}

#[test]
fn r04_the_one_way_road_and_a_mutual_peer_carry_every_form_of_send() {
    let (mut a, mut b) = nodes(Profile::RDMA);
    let (one_way, _) = a.qp.resolve(b.qp.hello().as_bytes()).unwrap();
    let road = one_way.one_way();
    let arrived = |b: &mut Node, len, imm| {
        let event = wait(&mut b.qp);
        assert!(matches!(&event, Event::Received(message) if message.len == len && message.imm == imm), "{event:?}");
    };
    for token in 0..8 {
        b.recv(token);
    }
    a.qp.post(road.send(zeros(&a.pd, 32)), Token(1)).unwrap();
    arrived(&mut b, 32, None);
    a.qp.post(road.send([zeros(&a.pd, 8), zeros(&a.pd, 9)]).imm(1), Token(2)).unwrap();
    arrived(&mut b, 17, Some(1));
    a.qp.post(road.send_inline(b"abc"), Token(3)).unwrap();
    arrived(&mut b, 3, None);
    a.qp.post(road.send_empty().imm(u32::MAX), Token(4)).unwrap();
    arrived(&mut b, 0, Some(u32::MAX));
    let (_to_a, b_ready) = b.qp.resolve(a.qp.hello().as_bytes()).unwrap();
    let mutual: Peer<Mutual> = one_way.confirm(b_ready.as_bytes()).unwrap();
    a.qp.post(mutual.send(zeros(&a.pd, 1)), Token(5)).unwrap();
    arrived(&mut b, 1, None);
    while a.qp.in_flight() > 0 {
        assert!(matches!(wait(&mut a.qp), Event::Sent(_)));
    }
}

#[test]
fn a_mutual_peer_says_what_is_known_of_it_and_the_smaller_limit_holds() {
    let (mut a, b) = nodes(Profile::RDMA);
    let hello = Hello { max_message: 100, ..Hello::parse(b.qp.hello().as_bytes()).unwrap() };
    let (peer, _) = a.qp.resolve(hello.to_frame().as_bytes()).unwrap();
    assert_eq!((peer.gid(), peer.qpn(), peer.qkey()), (b.ctx.gid(), b.qp.qpn(), b.qp.address().qkey));
    assert_eq!((peer.incarnation(), peer.max_msg_size()), (Some(hello.incarnation), 100));
    let refused = a.qp.post(peer.one_way().send(zeros(&a.pd, 101)), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked: 101, limit: 100 });
    let huge = Hello { max_message: u32::MAX, ..hello };
    let (peer, _) = a.qp.resolve(huge.to_frame().as_bytes()).unwrap();
    assert_eq!(peer.max_msg_size(), LIMITS.max_msg_size);
}

#[test]
fn a_peer_outlives_its_queue_pair_its_domain_and_its_context() {
    let (a, b) = nodes(Profile::RDMA);
    let (to_b, to_a) = connect(&a.qp, &b.qp);
    drop((a, b));
    assert!(!to_a.gid().is_zero() && !to_b.gid().is_zero());
    drop((to_a, to_b));
}
