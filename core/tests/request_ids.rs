//! Request ids of 64 bits: a completion of a send queue names the life that its request was posted in, which no
//! other queue pair has and no earlier life of this one had.

mod common;

use std::collections::BTreeSet;

use common::puppet::{GENERATION, Puppet};
use common::{config, connect, required, slice, slice_of, wait, zeros};
use efa_core::entry::control1;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Err, QpKind, QueuePair, Solicited, Srd, Wide, ops};
use efa_core::soft::{Config, Profile, Side, pair_of};
use efa_core::wire::EndpointInfo;
use efa_core::work::Event;
use efa_core::{Context, Gid, ProtectionDomain, Qkey, Qpn, Token};

type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;

/// A queue pair of a device that says whatever it is told to.
struct Stage<K: QpKind> {
    qp: Endpoint<Puppet, K>,
    peer: Peer<Mutual, K::Features>,
    pd: ProtectionDomain<Puppet>,
    device: Puppet,
}

fn peer<K: QpKind>(qp: &Endpoint<Puppet, K>) -> Peer<Mutual, K::Features> {
    let address = EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) };
    qp.resolve_address(address).unwrap().assert_mutual()
}

fn stage<K: QpKind>(req_id_64: bool) -> Stage<K> {
    let device = Puppet::with(Profile::RDMA.wide().caps(), req_id_64, None);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.endpoint(required::<_, K>(&ctx), Depth::new(4, 4)).unwrap();
    Stage { peer: peer(&qp), qp, pd, device }
}

/// The upper 48 bits of the request id in the entry at a place of the ring.
fn upper(device: &Puppet, place: usize) -> u64 {
    device.send_quad(place, 3) >> 16
}

#[test]
fn r20_each_entry_names_the_life_of_its_queue_pair_and_no_two_lives_have_one_name() {
    names_the_life::<Srd>();
    names_the_life::<WideSrd>();
}

fn names_the_life<K>()
where
    K: QpKind + efa_core::qp::HasSend,
    K::Features: efa_core::qp::SameFeatures<K::Features>,
{
    let mut names = BTreeSet::new();
    for _ in 0..3 {
        let Stage { mut qp, peer: mut to, pd, device } = stage::<K>(true);
        for _life in 0..3 {
            let mut of_this_life = BTreeSet::new();
            for place in 0..3 {
                qp.post(to.send(zeros(&pd, 8)), Token(1)).unwrap();
                of_this_life.insert(upper(&device, place));
                // The lower bits are slot and generation, as everywhere.
                assert_eq!(device.send_id(place) >> 2, GENERATION);
            }
            assert_eq!(of_this_life.len(), 1, "one name for all of a life");
            assert!(!of_this_life.contains(&0) && names.is_disjoint(&of_this_life), "{names:?} {of_this_life:?}");
            let name = of_this_life.pop_first().unwrap();
            names.insert(name);
            for place in 0..3 {
                device.send_done_ex(device.send_id(place), name, 0, control1::OP_SEND);
                assert!(matches!(qp.poll(), Some(Event::Sent(_))));
            }
            qp = qp.error().unwrap().reset().unwrap().prepare().unwrap();
            to = peer(&qp);
        }
    }
    assert_eq!(names.len(), 9);
}

#[test]
fn r20_where_request_ids_have_16_bits_the_upper_ones_are_zero_and_nobody_looks_at_a_completions() {
    let mut stage = stage::<Srd>(false);
    stage.qp.post(stage.peer.send(slice(&stage.pd, b"sixteen").1), Token(1)).unwrap();
    assert_eq!(upper(&stage.device, 0), 0);
    stage.device.send_done_ex(stage.device.send_id(0), 0xFFFF_FFFF_FFFF, 0, control1::OP_SEND);
    assert_eq!(slice_of(stage.qp.poll().unwrap()).len(), 7);
}

#[test]
fn r20_a_completion_with_any_wrong_bit_in_the_upper_48_is_stale_whatever_its_status() {
    let Stage { mut qp, peer, pd, device } = stage::<Srd>(true);
    qp.post(peer.send(zeros(&pd, 8)), Token(1)).unwrap();
    let (id, right) = (device.send_id(0), upper(&device, 0));
    let mut stale = 0;
    for bit in 0..48 {
        for status in [0, 1, 9] {
            device.send_done_ex(id, right ^ 1 << bit, status, control1::OP_SEND);
            assert!(qp.poll().is_none(), "bit {bit}, status {status}");
            // The other queue has its turn every second time.
            assert!(qp.poll().is_none());
            stale += 1;
            assert_eq!((qp.stats().stale, qp.in_flight()), (stale, 1));
        }
    }
    device.send_done_ex(id, right, 9, control1::OP_SEND);
    let event = qp.poll().unwrap();
    assert!(matches!(&event, Event::Failed { failure, .. } if failure.token == Some(Token(1))), "{event:?}");
    assert_eq!(slice_of(event).len(), 8);
}

#[test]
fn r20_completions_of_the_life_before_a_reset_end_no_request_of_the_next_though_the_generation_is_the_same() {
    let Stage { mut qp, peer: to, pd, device } = stage::<Srd>(true);
    qp.post(to.send(zeros(&pd, 8)), Token(1)).unwrap();
    let (id, before) = (device.send_id(0), upper(&device, 0));
    device.send_done_ex(id, before, 0, control1::OP_SEND);
    assert!(matches!(wait(&mut qp), Event::Sent(_)));
    let err: QueuePair<_, Err> = qp.error().unwrap();
    let mut qp = err.reset().unwrap().prepare().unwrap();
    let to = peer(&qp);
    qp.post(to.send(zeros(&pd, 16)), Token(2)).unwrap();
    assert_eq!(device.send_id(0), id, "slot and generation are those of the life before");
    for status in [0, 1] {
        device.send_done_ex(id, before, status, control1::OP_SEND);
        assert!(qp.poll().or_else(|| qp.poll()).is_none());
    }
    assert_eq!((qp.stats().stale, qp.in_flight()), (2, 1));
    device.send_done_ex(id, upper(&device, 0), 0, control1::OP_SEND);
    assert_eq!(slice_of(wait(&mut qp)).len(), 16);
}

/// Lives of one number, whose completions haunt each next one with the very generation that it has itself.
fn haunted<K>(config: Config)
where
    K: QpKind + efa_core::qp::HasSend,
    K::Features: efa_core::qp::SameFeatures<K::Features>,
{
    let (mut a, mut b): (Side<K>, Side<K>) =
        pair_of(config.req_id_64(true).stale_completions(4), Depth::new(8, 8)).unwrap();
    for life in 1..if cfg!(miri) { 4 } else { 40 } {
        // The predecessor's last request, and then the stale completions, tell its name.
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(0)).unwrap();
        a.endpoint.post(a.peer.send(zeros(&a.pd, 8)), Token(1)).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
        assert!(matches!(wait(&mut b.endpoint), Event::Received(_)));
        let qpn = a.endpoint.qpn();
        a.endpoint.close().unwrap();
        a.endpoint = a.pd.endpoint(required::<_, K>(&a.ctx), Depth::new(8, 8)).unwrap();
        assert_eq!(a.endpoint.qpn(), qpn);
        (a.peer, b.peer) = connect(&a.endpoint, &b.endpoint);
        // All before the first poll, so that each stale completion finds its request id in flight.
        for token in 0..4 {
            b.endpoint.post_recv(zeros(&b.pd, 64), Token(token)).unwrap();
            a.endpoint.post(a.peer.send(slice(&a.pd, &[token as u8; 33]).1), Token(token)).unwrap();
        }
        let mut arrived: Vec<u8> = (0..4)
            .map(|_| {
                let slice = slice_of(wait(&mut b.endpoint));
                assert_eq!(slice[..33], [slice[0]; 33]);
                slice[0]
            })
            .collect();
        arrived.sort_unstable();
        assert_eq!(arrived, [0, 1, 2, 3]);
        for _ in 0..4 {
            let event = wait(&mut a.endpoint);
            assert!(matches!(event, Event::Sent(_)), "{event:?}");
            assert_eq!(slice_of(event).len(), 33);
        }
        assert!(a.endpoint.poll().or_else(|| a.endpoint.poll()).is_none());
        assert_eq!((a.endpoint.stats().stale, a.endpoint.in_flight()), (8, 0), "life {life}");
    }
}

#[test]
fn r20_64_bit_request_ids_tell_lives_apart_after_16_bit_generations_wrapped() {
    haunted::<Srd>(config(Profile::RDMA));
    haunted::<WideSrd>(config(Profile::RDMA.wide()));
    haunted::<Srd>(config(Profile::RDMA).near_wrap(2));
    haunted::<WideSrd>(config(Profile::RDMA.wide()).near_wrap(9));
}
