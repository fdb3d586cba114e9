//! The order of delivery.

use std::collections::BTreeSet;

use efa_core::QpInit;
use efa_core::flags::SendOps;
use efa_core::soft::{Config, Profile};

use crate::driver::{ALL_OPS, MEMORY, Pair, config, init, pair_with, send, with_imm};

fn arrivals(config: Config, count: u16) -> Vec<u16> {
    let both = QpInit { send_depth: 16, recv_depth: 16, ..init(ALL_OPS) };
    let Pair { mut a, mut b, to_b, .. } = pair_with(config, both, both);
    let target = b.region(1, MEMORY);
    for nth in 0..count {
        b.post_recv(nth, &[target.buffer(0, 8)]);
        a.write(with_imm(send(nth, &to_b, &b, &[]), nth.into()));
    }
    a.ring_send();
    (0..count).for_each(|_| assert_eq!(a.status(), 0));
    std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| u16::from_le_bytes([entry[12], entry[13]])).collect()
}

#[test]
fn r16_messages_arrive_in_any_order_by_default_the_same_for_the_same_seed() {
    let config = config(Profile::NONE);
    let only_sends = |config: Config| {
        // SENDs alone: the profile has no RDMA.
        let both = QpInit { send_depth: 16, recv_depth: 16, ..init(SendOps::SEND | SendOps::SEND_WITH_IMM) };
        let Pair { mut a, mut b, to_b, .. } = pair_with(config, both, both);
        let target = b.region(1, MEMORY);
        for nth in 0..12 {
            b.post_recv(nth, &[target.buffer(0, 8)]);
            a.write(with_imm(send(nth, &to_b, &b, &[]), nth.into()));
        }
        a.ring_send();
        (0..12).for_each(|_| assert_eq!(a.status(), 0));
        std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| entry[12].into()).collect::<Vec<u16>>()
    };
    let sorted: Vec<u16> = (0..12).collect();
    let first = only_sends(config);
    assert_ne!(first, sorted);
    assert_eq!(first.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>(), sorted);
    assert_eq!(only_sends(config), first);
    assert_ne!(only_sends(config.seed(2)), first);
    assert_eq!(arrivals(self::config(Profile::RDMA).shuffle(false), 12), sorted);
}

#[test]
fn what_does_not_fit_on_the_wire_waits_in_its_queue() {
    assert_eq!(arrivals(config(Profile::RDMA).shuffle(false).packets(3), 12), (0..12).collect::<Vec<u16>>());
}
