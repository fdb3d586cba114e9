//! Peers that are lost, restarted, removed, not ready or hostile, and endpoints that end: everything is resolved once.

use efa_core::connect::{Side, connect_of, introduce};
use efa_core::fabric::{Event, Fabric, Memory, Messages, Options, Returned, Violation, Why};
use efa_core::qp::{Depth, SendOnly, Srd};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::status::CompletionStatus;
use efa_core::work::Cause;
use efa_core::{Context, Token};

use super::two::{Happened, Layer, PACKET};
use super::{Two, payload};

/// Sources and targets that came back with an error, and how many events there were besides.
fn failures(events: Vec<Happened>) -> (Vec<(u64, Why)>, usize) {
    let count = events.len();
    let failed = |event| match event {
        Event::Failed { token, why, .. } => Some((token.0, why)),
        _ => None,
    };
    let failed: Vec<_> = events.into_iter().filter_map(failed).collect();
    let others = count - failed.len();
    (failed, others)
}

/// Polls both for a while, and keeps the events of the first.
fn some(two: &mut Two, turns: usize) -> Vec<Happened> {
    let mut events = Vec::new();
    for _ in 0..turns {
        events.extend(two.poll(0));
        let _of_the_other = two.poll(1);
    }
    events
}

/// Everything that can be under way with a peer, of side 0.
fn begin(two: &mut Two) -> usize {
    let [a, b] = &mut two.ends;
    for token in 0..3 {
        a.layer.send(a.peer, Memory::Plain(payload(1, 30)), Token(token)).unwrap();
    }
    for token in 3..6 {
        a.layer.send(a.peer, Memory::Plain(payload(1, 90_000)), Token(token)).unwrap();
    }
    b.layer.send(b.peer, Memory::Plain(payload(2, 90_000)), Token(1)).unwrap();
    a.layer.recv(Memory::Plain(vec![0; 90_000]), Token(6)).unwrap();
    7
}

#[test]
fn a_peer_that_dies_ends_all_that_is_under_way_with_it_and_gives_the_buffers_back() {
    let mut two = Two::<Srd>::new(Config::new(Profile::RDMA));
    let count = begin(&mut two);
    let mut events = some(&mut two, 30);
    two.ends[1].ctx.provider().die();
    events.extend(some(&mut two, 400_000));
    let lost = events.iter().filter(|event| matches!(event, Event::Lost { why: Why::Device(_), .. })).count();
    assert_eq!(lost, 1);
    let (failed, others) = failures(events);
    let of_peers = others - (count - failed.len());
    assert!((1..=2).contains(&of_peers), "up, perhaps, and lost: {failed:?} and {others}");
    assert!(failed.len() >= 3, "{failed:?}");
    let refused = two.ends[0].layer.send(two.ends[0].peer, Memory::Plain(vec![1]), Token(9)).unwrap_err();
    assert!(matches!(refused.error(), Why::Device(_)));
    assert_eq!(two.ends[0].layer.under_way(), [0; 3]);
}

#[test]
fn a_removed_peer_ends_at_once_and_is_told_and_its_name_is_good_no_more() {
    let mut two = Two::<Srd>::new(Profile::RDMA);
    let count = begin(&mut two);
    let mut events = some(&mut two, 30);
    let peer = two.ends[0].peer;
    two.ends[0].layer.remove(peer);
    let mut left = false;
    for _ in 0..20_000 {
        events.extend(two.poll(0));
        left |= matches!(two.poll(1), Some(Event::Lost { why: Why::Left, .. }));
    }
    assert!(left);
    let (failed, others) = failures(events);
    assert!(failed.iter().all(|(_, why)| *why == Why::Removed), "{failed:?}");
    assert_eq!(failed.len() + others, count + 2, "and up, and lost");
    assert_eq!(two.ends[0].layer.is_up(peer), Err(Why::UnknownPeer));
    let refused = two.ends[0].layer.send(peer, Memory::Plain(vec![1]), Token(9)).unwrap_err();
    assert_eq!(refused.error(), Why::UnknownPeer);
}

#[test]
fn a_peer_that_restarts_ends_what_was_under_way_with_its_former_life_by_name() {
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    let depth = Depth::new(64, Layer::<Srd>::receives());
    let [a, b] = connect_of::<_, Srd>(contexts, depth).unwrap();
    let layer = |side: Side<SoftDevice>| {
        let memory = side.pd.register(vec![0; Layer::<Srd>::memory(PACKET, 16)]).unwrap().1;
        let mut layer = Layer::<Srd>::new(side.endpoint, memory, Options::new(PACKET)).unwrap();
        let peer = layer.add(side.peer).unwrap();
        (layer, peer, side.pd, side.ctx)
    };
    let ((mut a, to_b, ..), (b, _, b_pd, b_ctx)) = (layer(a), layer(b));
    a.recv(Memory::Plain(vec![0; 9]), Token(1)).unwrap();
    a.send(to_b, Memory::Plain(payload(1, 5000)), Token(2)).unwrap();
    drop(b);
    // The restarted program has another queue pair with the same number, and another life.
    let endpoint = b_pd.endpoint(b_ctx.require::<Srd>().unwrap(), depth).unwrap();
    let (new_b, new_a) = introduce(a.endpoint(), &endpoint).unwrap();
    let life = new_b.incarnation().unwrap();
    let memory = b_pd.register(vec![0; Layer::<Srd>::memory(PACKET, 16)]).unwrap().1;
    let mut b = Layer::<Srd>::new(endpoint, memory, Options::new(PACKET)).unwrap();
    b.add(new_a).unwrap();
    let again = a.add(new_b).unwrap();
    b.recv(Memory::Plain(vec![0; 9]), Token(1)).unwrap();
    a.send(again, Memory::Plain(payload(3, 9)), Token(3)).unwrap();
    let (mut failed, mut sent, mut arrived) = (None, false, false);
    for now in (0..400_000).step_by(5) {
        match a.poll(now) {
            Some(Event::Failed { token: Token(2), why: Why::Restarted { old: Some(old), new }, buffer, .. }) => {
                assert!(failed.is_none() && new == life && old != life);
                failed = Some(matches!(buffer, Returned::Source(Memory::Plain(bytes)) if bytes == payload(1, 5000)));
            }
            Some(Event::Sent { token: Token(3), .. }) => sent = true,
            Some(Event::Failed { token, why, .. }) => panic!("{token}: {why}"),
            _ => {}
        }
        if let Some(Event::Received { target: Memory::Plain(bytes), .. }) = b.poll(now) {
            arrived = bytes == payload(3, 9);
        }
    }
    assert_eq!((failed, sent, arrived), (Some(true), true, true));
}

#[test]
fn a_restart_that_only_the_peers_own_hello_tells_ends_what_its_former_life_began() {
    let device = SoftDevice::new(Profile::RDMA);
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    let depth = Depth::new(64, Layer::<Srd>::receives());
    let [a, b] = connect_of::<_, Srd>(contexts, depth).unwrap();
    let old = a.peer.incarnation();
    let layer = |side: Side<SoftDevice>| {
        let memory = side.pd.register(vec![0; Layer::<Srd>::memory(PACKET, 16)]).unwrap().1;
        let mut layer = Layer::<Srd>::new(side.endpoint, memory, Options::new(PACKET)).unwrap();
        let peer = layer.add(side.peer).unwrap();
        (layer, peer, side.pd, side.ctx)
    };
    let ((mut a, to_b, ..), (mut b, to_a, b_pd, b_ctx)) = (layer(a), layer(b));
    a.recv(Memory::Plain(vec![0; 90_000]), Token(1)).unwrap();
    b.send(to_a, Memory::Plain(payload(1, 90_000)), Token(2)).unwrap();
    // Until it is announced, and what its receiver says to that is out.
    let mut now = 0;
    while a.under_way()[1] == 0 {
        now += 5;
        let _up = (a.poll(now), b.poll(now));
    }
    for _ in 0..100 {
        now += 5;
        assert!(a.poll(now).is_none());
    }
    drop(b);
    let endpoint = b_pd.endpoint(b_ctx.require::<Srd>().unwrap(), depth).unwrap();
    let (new_b, new_a) = introduce(a.endpoint(), &endpoint).unwrap();
    let memory = b_pd.register(vec![0; Layer::<Srd>::memory(PACKET, 16)]).unwrap().1;
    let mut b = Layer::<Srd>::new(endpoint, memory, Options::new(PACKET)).unwrap();
    b.add(new_a).unwrap();
    let (mut failed, mut lost) = (None, None);
    for _ in 0..10_000 {
        now += 5;
        let _greeting = b.poll(now);
        match a.poll(now) {
            Some(Event::Failed { token: Token(1), why, buffer: Returned::Target(target), .. }) => {
                assert!(failed.replace((why, target.len())).is_none());
            }
            Some(Event::Lost { peer, why }) => assert!(peer == to_b && lost.replace(why).is_none()),
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }
    let why = Why::Restarted { old, new: new_b.incarnation().unwrap() };
    assert_eq!((failed, lost), (Some((why, 90_000)), Some(why)));
}

#[test]
fn packets_that_find_no_receive_are_tried_again_after_growing_waits() {
    // The third SEND of each device: the hellos are before it.
    let config = Config::new(Profile::NONE).shuffle(false).fail_nth(3, CompletionStatus::RemoteRnr);
    let mut two = Two::<SendOnly>::new(config);
    for token in 0..5 {
        let [a, b] = &mut two.ends;
        b.layer.recv(Memory::Plain(vec![0; 20]), Token(token)).unwrap();
        a.layer.send(a.peer, Memory::Plain(payload(token as usize, 20)), Token(token)).unwrap();
    }
    let [_, arrived] = two.collect([5; 2]);
    for (token, event) in arrived.into_iter().enumerate() {
        match event {
            Event::Received { target: Memory::Plain(bytes), .. } => assert_eq!(bytes, payload(token, 20)),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(two.ends[0].layer.counters().not_ready, 1);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_lost_for_a_reason_that_can_be_asked() {
    let device = SoftDevice::new(Profile::NONE);
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
    let [a, mut b] = connect_of::<_, SendOnly>(contexts, Depth::new(64, Layer::<SendOnly>::receives())).unwrap();
    let memory = a.pd.register(vec![0; Layer::<SendOnly>::memory(PACKET, 16)]).unwrap().1;
    let mut layer = Layer::<SendOnly>::new(a.endpoint, memory, Options::new(PACKET)).unwrap();
    let peer = layer.add(a.peer).unwrap();
    let life = b.peer.incarnation().unwrap();
    layer.recv(Memory::Plain(vec![7; 40]), Token(1)).unwrap();
    // This side speaks for itself: a hello that echoes, then a message far ahead of its turn.
    let mut hello = vec![0; 48];
    hello[..4].copy_from_slice(&[0xEF, 1, 1, 0]);
    hello[4..6].copy_from_slice(&[0xFF, 0xFF]);
    let own = efa_core::wire::Hello::parse(b.endpoint.hello().as_bytes()).unwrap().incarnation.0;
    hello[8..12].copy_from_slice(&(own as u32).to_be_bytes());
    hello[16..24].copy_from_slice(&own.to_be_bytes());
    hello[24..32].copy_from_slice(&life.0.to_be_bytes());
    hello[36..40].copy_from_slice(&512_u32.to_be_bytes());
    hello[44..48].copy_from_slice(&[0, 0, 0, 32]);
    let mut ahead = vec![0; 25];
    ahead[..4].copy_from_slice(&[0xEF, 1, 3, 0]);
    ahead[8..12].copy_from_slice(&(own as u32).to_be_bytes());
    ahead[16..20].copy_from_slice(&64_u32.to_be_bytes());
    for _ in 0..8 {
        b.endpoint.post_recv(b.pd.register(vec![0; 600]).unwrap().1, Token(9)).unwrap();
    }
    let mut events = Vec::new();
    for (index, packet) in [hello, ahead].into_iter().enumerate() {
        b.endpoint.post(b.peer.send(b.pd.register(packet).unwrap().1), Token(index as u64)).unwrap();
        for now in 0..2000 {
            events.extend(layer.poll(now));
            let _of_the_other = b.endpoint.poll();
        }
    }
    let why = Why::Violation(Violation::Sequence { found: 64, expected: 0 });
    assert!(matches!(events[0], Event::Up(up) if up == peer), "{events:?}");
    assert!(matches!(events[1], Event::Lost { why: found, .. } if found == why), "{events:?}");
    assert_eq!((layer.is_up(peer), layer.counters().violations), (Err(why), 1));
    assert_eq!(layer.under_way(), [0, 0, 1], "the receive waits for others");
}

#[test]
fn strangers_and_former_lives_are_counted_and_change_nothing() {
    let mut two = Two::<Srd>::new(Profile::RDMA);
    two.settle();
    // A third endpoint, which was never added.
    let [a, _] = &mut two.ends;
    let stranger = a.pd.endpoint(a.ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    let (_, to_a) = introduce(a.layer.endpoint(), &stranger).unwrap();
    let mut stranger = stranger;
    stranger.post(to_a.send_inline(&[0xEF; 20][..]), Token(1)).unwrap();
    for _ in 0..1000 {
        let _ended = stranger.poll();
        assert!(two.poll(0).is_none());
    }
    assert_eq!(two.ends[0].layer.counters().strangers, 1);
}

#[test]
fn closing_resolves_everything_and_tells_the_peer() {
    let mut two = Two::<Srd>::new(Profile::RDMA);
    let count = begin(&mut two);
    two.ends[0].layer.recv(Memory::Plain(vec![1; 5]), Token(7)).unwrap();
    let before = some(&mut two, 20);
    let [a, mut b] = two.ends;
    let (mut turns, mut events) = (0, before);
    a.layer
        .close(
            || {
                turns += 1;
                let _of_the_other = b.layer.poll(turns);
                turns > 50_000
            },
            |event| events.push(event),
        )
        .unwrap();
    let resolved = events.iter().filter(|event| event.token().is_some()).count();
    assert_eq!(resolved, count + 1);
    let lost = (0..10_000).find_map(|now| match b.layer.poll(now) {
        Some(Event::Lost { why, .. }) => Some(why),
        _ => None,
    });
    match lost {
        None => assert_eq!(b.layer.is_up(b.peer), Err(Why::Left)),
        Some(Why::Left) => {}
        Some(Why::Device(failure)) => assert!(matches!(failure.cause, Cause::Status(_))),
        Some(why) => panic!("{why}"),
    }
}

#[test]
fn what_an_endpoint_is_made_of_is_checked_and_comes_back() {
    use efa_core::Error;
    let device = SoftDevice::new(Profile::RDMA);
    let ctx = Context::open(device);
    let pd = ctx.alloc_pd().unwrap();
    let endpoint = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    let memory = pd.register(vec![0; Layer::<Srd>::memory(PACKET, 16)]).unwrap().1;
    let refused = Layer::<Srd>::new(endpoint, memory, Options::new(PACKET)).unwrap_err();
    assert!(matches!(refused.error(), Error::BelowLimit { asked: 8, .. }));
    let (endpoint, memory) = refused.into_inner();
    let refused = Layer::<Srd>::new(endpoint, memory, Options::new(9000)).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { asked: 9000, limit: 8928, .. }));
    let (endpoint, memory) = refused.into_inner();
    let refused = Layer::<Srd>::new(endpoint, memory, Options::new(255)).unwrap_err();
    assert!(matches!(refused.error(), Error::BelowLimit { asked: 255, limit: 256, .. }));
    let (endpoint, memory) = refused.into_inner();
    let refused = Layer::<Srd>::new(endpoint, memory, Options::new(4096)).unwrap_err();
    assert!(matches!(refused.error(), Error::BelowLimit { .. }));
}

#[test]
fn the_same_program_runs_over_efa_direct() {
    use efa_core::fabric::EfaDirect;
    use efa_core::memory::Slice;
    let [a, b] = connect_of::<_, Srd>(
        {
            let device = SoftDevice::new(Profile::RDMA);
            [Context::open(device.clone()), Context::open(device.neighbour().unwrap())]
        },
        Depth::new(8, 8),
    )
    .unwrap();
    let slice = |side: &Side<SoftDevice>, bytes: Vec<u8>| side.pd.register(bytes).unwrap().1;
    let (source, target) = (slice(&a, payload(1, 100)), slice(&b, vec![0; 100]));
    let long = slice(&a, vec![0; 10_000]);
    let (mut from, mut to) = (EfaDirect::<_, Srd>::new(a.endpoint), EfaDirect::<_, Srd>::new(b.endpoint));
    let (peer, back) = (from.add(a.peer).unwrap(), to.add(b.peer).unwrap());
    assert_eq!((from.fabric(), from.max_message()), (Fabric::EfaDirect, 8928));
    to.recv(target, Token(1)).unwrap();
    from.send(peer, source, Token(2)).unwrap();
    let (mut sent, mut received) = (None, None);
    for now in 0..1000 {
        match from.poll(now) {
            Some(Event::Sent { token: Token(2), source, .. }) => sent = Some(source),
            Some(event) => panic!("{event:?}"),
            None => {}
        }
        match to.poll(now) {
            Some(Event::Received { token: Token(1), from, len: 100, target }) => received = Some((from, target)),
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }
    let received: (_, Slice) = received.unwrap();
    assert!(received.0 == Some(back) && received.1[..] == payload(1, 100) && sent.unwrap().len() == 100);
    let refused = from.send(peer, long, Token(3)).unwrap_err();
    assert_eq!(refused.error(), Why::TooLong { len: 10_000, limit: 8928 });
    assert!(from.remove(peer).is_some());
    assert_eq!(from.send(peer, refused.into_inner(), Token(3)).unwrap_err().error(), Why::UnknownPeer);
}
