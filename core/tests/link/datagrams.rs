//! UD over the link: a frame each, sent once, dropped where nobody takes it.

use efa_core::connect::{connect, connect_of};
use efa_core::peer::Sender;
use efa_core::qp::{Depth, Ud};
use efa_core::soft::SoftDevice;
use efa_core::soft::link::{Body, FRAME, Frame, PAYLOAD};
use efa_core::work::Event;
use efa_core::{Context, Provider, Token};

use crate::net::{Net, gid};
use crate::{Link, bytes, config, nothing, pair_of, pattern, recv, wait};

const HEADER: usize = 40;

fn pair() -> (Link<Ud>, Link<Ud>, Net) {
    pair_of::<Ud>(config(1), config(2), Depth::new(8, 8))
}

fn dropped(side: &Link<Ud>) -> u64 {
    side.ctx.provider().counters().rx_drops
}

#[test]
fn a_datagram_of_any_length_arrives_behind_its_header_and_is_done_before() {
    let (mut a, mut b, mut net) = pair();
    for (nth, len) in [0, 1, 32, 33, PAYLOAD - 1, PAYLOAD].into_iter().enumerate() {
        recv(&mut b, HEADER + PAYLOAD, 1);
        let sent = pattern(len, nth);
        match len {
            0 => a.endpoint.post(a.peer.send_empty().imm(5), Token(2)).unwrap(),
            1..33 => a.endpoint.post(a.peer.send_inline(&sent[..]), Token(2)).unwrap(),
            _ => a.endpoint.post(a.peer.send(bytes(&a, &sent)).imm(5), Token(2)).unwrap(),
        }
        assert!(matches!(a.endpoint.poll(), Some(Event::Sent(_))), "nothing was carried yet");
        let Event::Received(mut message) = wait(&mut net, &mut b.endpoint) else { panic!() };
        assert_eq!((message.len, message.imm), (HEADER + len, (!(1..33).contains(&len)).then_some(5)));
        assert_eq!(message.from, Sender::Known { ahn: b.peer.ahn(), qpn: a.endpoint.qpn() });
        let payload = message.payload();
        assert!(message.buffers.take_slice().unwrap()[payload] == sent);
    }
    assert!(net.log.iter().all(|bytes| matches!(Frame::parse(bytes).unwrap().body, Body::Ud(_))));
    let (sender, receiver) = (a.ctx.provider().counters(), b.ctx.provider().counters());
    assert_eq!((sender.send_wrs, receiver.recv_wrs, sender.send_bytes), (6, 6, receiver.recv_bytes));
    net.settle();
}

#[test]
fn a_datagram_that_nobody_takes_is_dropped_and_done_all_the_same() {
    let (mut a, mut b, mut net) = pair();
    let send = |a: &mut Link<Ud>| {
        a.endpoint.post(a.peer.send_inline(b"hello"), Token(1)).unwrap();
        assert!(matches!(a.endpoint.poll(), Some(Event::Sent(_))));
    };
    send(&mut a);
    net.settle();
    assert_eq!(dropped(&b), 1, "no receive");
    recv(&mut b, HEADER + 4, 1);
    send(&mut a);
    let Event::Failed { .. } = wait(&mut net, &mut b.endpoint) else { panic!("too short") };
    assert_eq!(dropped(&b), 2);
    recv(&mut b, HEADER + 5, 2);
    net.loss = 1000;
    send(&mut a);
    net.settle();
    nothing(&mut b.endpoint);
    net.loss = 0;
    a.ctx.provider().link(false);
    send(&mut a);
    a.ctx.provider().link(true);
    net.settle();
    nothing(&mut b.endpoint);
    assert_eq!(net.log.len(), 3, "what is sent by a device that is out is lost");
    send(&mut a);
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(message) if message.token == Token(2)));
}

#[test]
fn datagrams_that_wait_when_their_device_is_plugged_out_are_lost_and_others_take_turns_with_requests() {
    let (mut a, _b, net) = pair();
    let (wire, mut bytes) = (a.ctx.provider().clone(), [0; FRAME]);
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(1)).unwrap();
    assert!(matches!(a.endpoint.poll(), Some(Event::Sent(_))));
    wire.link(false);
    assert_eq!(wire.transmit(net.now, &mut bytes), None);
    wire.link(true);
    assert_eq!((wire.transmit(net.now, &mut bytes), wire.next_timeout()), (None, None));

    // On one wire: an SRD queue pair with requests to send, and a UD one with datagrams.
    let devices = [5, 6].map(|n| SoftDevice::new(config(n)));
    let mut net = Net::new(7, &[&devices[0], &devices[1]]);
    let [mut srd, mut far] = connect(devices.clone().map(Context::open), Depth::new(8, 8)).unwrap();
    let [mut ud, _far] = connect_of::<_, Ud>(devices.map(Context::open), Depth::new(8, 8)).unwrap();
    recv(&mut far, 8, 0);
    srd.endpoint.post(srd.peer.send_empty(), Token(0)).unwrap();
    assert!(matches!(wait(&mut net, &mut srd.endpoint), Event::Sent(_)));
    net.settle();
    for token in 0..8 {
        srd.endpoint.post(srd.peer.send_empty(), Token(token)).unwrap();
        ud.endpoint.post(ud.peer.send_empty(), Token(token)).unwrap();
    }
    (0..20).for_each(|_| srd.ctx.provider().progress());
    let kinds: Vec<bool> = (0..6)
        .map(|_| {
            let (_, len) = srd.ctx.provider().transmit(net.now, &mut bytes).unwrap();
            matches!(Frame::parse(&bytes[..len]).unwrap().body, Body::Ud(_))
        })
        .collect();
    assert_eq!(kinds.iter().filter(|is_datagram| **is_datagram).count(), 3, "{kinds:?}");
}

#[test]
fn what_is_for_another_kind_of_queue_pair_or_key_is_dropped() {
    let (a, mut b, mut net) = pair();
    recv(&mut b, HEADER + 5, 1);
    let srd = config(3);
    let contexts = [3, 4].map(|n| Context::open(SoftDevice::new(srd.gid(gid(n)))));
    let [_c, mut d] = connect(contexts, Depth::new(8, 8)).unwrap();
    recv(&mut d, 8, 1);
    let send = |to: &SoftDevice, qpn: u16, qkey: u32| {
        let datagram = efa_core::soft::link::UdMessage { source: 3, destination: qpn, qkey, imm: None, data: b"hello" };
        let body = Body::Ud(datagram);
        let mut bytes = [0; FRAME];
        let len = Frame { to: to.gid(), from: gid(9), to_session: 0, from_session: 0, body }.write(&mut bytes).unwrap();
        to.receive(1, &bytes[..len]).unwrap();
    };
    let (address, other) = (b.endpoint.address(), d.endpoint.address());
    send(b.ctx.provider(), address.qpn.0 + 1, address.qkey.0);
    send(b.ctx.provider(), address.qpn.0, address.qkey.0 ^ 1);
    send(d.ctx.provider(), other.qpn.0, other.qkey.0);
    nothing(&mut b.endpoint);
    nothing(&mut d.endpoint);
    assert_eq!((dropped(&b), d.ctx.provider().counters().rx_drops), (2, 1));
    send(b.ctx.provider(), address.qpn.0, address.qkey.0);
    let Event::Received(message) = wait(&mut net, &mut b.endpoint) else { panic!() };
    assert!(matches!(message.from, Sender::Unknown { gid: Some(from), .. } if from == gid(9)), "{:?}", message.from);
    drop(a);
}

#[test]
fn more_datagrams_than_the_link_holds_wait_in_their_send_queue() {
    let (mut a, b, mut net) = pair_of::<Ud>(config(1).packets(256), config(2), Depth::new(128, 8));
    for token in 0..100 {
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
    }
    let mut done = 0;
    for _ in 0..50 {
        done += usize::from(a.endpoint.poll().is_some());
    }
    let polled = std::iter::from_fn(|| a.endpoint.poll()).count();
    assert_eq!(done + polled, 64);
    net.settle();
    assert_eq!(std::iter::from_fn(|| a.endpoint.poll()).count(), 36);
    assert_eq!((net.log.len(), dropped(&b)), (100, 100));
}

#[test]
fn datagrams_for_who_is_busy_wait_behind_those_for_others() {
    let (mut a, mut b, mut net) = pair();
    let third = SoftDevice::new(config(3));
    let wire = a.ctx.provider().clone();
    let [mut c, _d] =
        connect_of::<_, Ud>([Context::open(wire.clone()), Context::open(third)], Depth::new(8, 8)).unwrap();
    recv(&mut b, 64, 1);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    c.endpoint.post(c.peer.send_empty(), Token(2)).unwrap();
    (0..20).for_each(|_| wire.progress());
    let mut frame = [0; FRAME];
    assert_eq!(wire.transmit_except(net.now, &mut frame, &[gid(2)]).map(|(gid, _)| gid), Some(gid(3)));
    assert_eq!(wire.transmit_except(net.now, &mut frame, &[gid(2)]), None);
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
}
