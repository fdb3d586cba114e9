//! Lives of objects, and what is counted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use efa_core::flags::{Access, SendOps};
use efa_core::soft::{Config, Profile, SoftDevice, Storage};
use efa_core::{Error, Limit, Provider, Verb};

use crate::driver::{ALL_OPS, MEMORY, Pair, Region, Side, config, init, pair, rdma, send};

#[test]
fn everything_can_be_dropped_in_any_order() {
    for order in 0..6 {
        let device = SoftDevice::new(config(Profile::RDMA));
        let Side { device: again, pd, qp, cqs, .. } = Side::new(&device, init(ALL_OPS), false);
        let neighbour = device.neighbour().unwrap();
        let region = Region::new(&device, &pd, 4, MEMORY | Access::REMOTE_WRITE);
        let ah = device.create_ah(&pd, neighbour.gid()).unwrap();
        let mut things: Vec<Box<dyn std::any::Any>> = vec![
            Box::new((device, again)),
            Box::new(pd),
            Box::new(qp),
            Box::new(cqs),
            Box::new((region.mr.clone(), region.mr)),
            Box::new((ah, neighbour)),
        ];
        things.rotate_left(order);
        if order % 2 == 1 {
            things.reverse();
        }
        things.into_iter().for_each(drop);
    }
}

#[test]
fn memory_outlives_every_handle_but_its_own() {
    let region = {
        let Pair { a, .. } = pair();
        a.region(2, MEMORY)
    };
    region.fill(0, b"still here");
    assert_eq!(region.bytes(0, 10), b"still here");
}

#[test]
fn r34_a_queue_pair_that_cannot_be_destroyed_is_leaked_and_counted() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Config::new(Profile::RDMA).fail_destroy(2)).unwrap();
    let mut side = Side::new(&device, init(SendOps::SEND), false);
    let failed = device.destroy_qp(side.qp.as_mut().unwrap());
    assert_eq!(failed, Err(Error::Device { verb: Verb::DestroyQp, errno: 5 }));
    assert_eq!(device.leaks().queue_pairs(), 0, "whoever has the handle decides");
    let queues = side.queues;
    drop(side);
    assert_eq!(device.leaks().queue_pairs(), 1);
    let mut other = Side::new(&device, init(SendOps::SEND), false);
    assert_ne!(other.qpn(), queues.qpn.0, "it lives on");
    other.destroy();
    drop(other);
    assert_eq!(device.leaks().queue_pairs(), 1);
}

#[test]
fn r34_a_region_that_cannot_be_deregistered_keeps_its_memory_and_is_counted() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Config::new(Profile::RDMA).fail_deregister(1)).unwrap();
    let pd = device.alloc_pd().unwrap();
    let region = Region::new(&device, &pd, 4, MEMORY);
    let attr = *region.mr.attr();
    // A static keeps what is leaked here in reach, for leak checkers.
    static LEAKED: AtomicU32 = AtomicU32::new(0);
    LEAKED.store(attr.lkey.0, Ordering::Relaxed);
    drop(region);
    assert_eq!(device.leaks().regions(), 1);
    let other = Region::new(&device, &pd, 4, MEMORY);
    assert_ne!(other.mr.attr().lkey, attr.lkey);
    drop(other);
    assert_eq!(device.leaks().regions(), 1);
}

#[test]
fn a_static_device_starts_once_and_does_all_that_one_on_the_heap_does() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(Profile::RDMA).unwrap();
    assert_eq!(NIC.start(Profile::RDMA).map(drop).unwrap_err(), Error::AlreadyStarted);
    for _ in 0..3 {
        let mut a = Side::new(&device, init(SendOps::SEND | SendOps::RDMA_WRITE), false);
        let mut b = Side::new(&device, init(SendOps::SEND), true);
        let (to_b, _to_a) = (a.ah(&b), b.ah(&a));
        let (source, target) = (a.region(2, MEMORY), b.region(2, MEMORY | Access::REMOTE_WRITE));
        source.fill(0, b"static memory..!");
        b.post_recv(0, &[target.buffer(0, 16)]);
        a.post(send(0, &to_b, &b, &[source.buffer(0, 7)]));
        assert_eq!((a.status(), b.recv_cq.poll().unwrap()[6]), (0, 7));
        a.post(rdma(2, 1, &to_b, &b, source.buffer(7, 9), target.remote(7, 9)));
        assert_eq!(a.status(), 0);
        assert_eq!(target.bytes(0, 16), b"static memory..!");
        let limits = device.limits();
        assert_eq!((limits.max_qp, limits.max_send_depth, limits.max_mr, limits.max_cqe), (2, 8, 4, 32));
        assert_eq!(
            device.create_qp(&a.pd, &a.cqs.0, &a.cqs.1, &init(SendOps::SEND)).map(drop).unwrap_err(),
            Error::Exhausted { what: Limit::QueuePairs, limit: 2 }
        );
    }
}

#[test]
fn a_wire_has_room_for_eight_devices() {
    static NIC: Storage<1, 1, 1> = Storage::new();
    let first = NIC.start(Profile::NONE).unwrap();
    let all: Vec<_> = (1..8).map(|_| first.neighbour().unwrap()).collect();
    assert_eq!(first.neighbour().map(drop).unwrap_err(), Error::Exhausted { what: Limit::Devices, limit: 8 });
    let gids: BTreeSet<_> = all.iter().map(Provider::gid).chain([first.gid()]).collect();
    assert_eq!(gids.len(), 8);
    assert_eq!(all[6].name(), "software7");
}

#[test]
fn counters_tell_what_was_moved() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let (local, remote) = (a.region(4, MEMORY), b.region(4, MEMORY | Access::REMOTE_READ | Access::REMOTE_WRITE));
    b.post_recv(0, &[remote.buffer(0, 8)]);
    a.post(send(0, &to_b, &b, &[local.buffer(0, 5)]));
    a.status();
    a.post(rdma(2, 0, &to_b, &b, local.buffer(0, 16), remote.remote(0, 16)));
    a.status();
    a.post(rdma(1, 0, &to_b, &b, local.buffer(0, 32), remote.remote(0, 32)));
    a.status();
    a.post(rdma(1, 0, &to_b, &b, local.buffer(0, 32), remote.remote(1, 32)));
    assert_eq!(a.status(), 7);
    let (a, b) = (a.device.counters(), b.device.counters());
    assert_eq!((a.tx_bytes, a.tx_pkts, a.rx_bytes, a.rx_pkts), (21, 2, 32, 1));
    assert_eq!((b.tx_bytes, b.tx_pkts, b.rx_bytes, b.rx_pkts), (32, 1, 21, 2));
    assert_eq!((a.send_wrs, a.send_bytes, b.recv_wrs, b.recv_bytes), (1, 5, 1, 5));
    assert_eq!((a.rdma_write_wrs, a.rdma_write_bytes, b.rdma_write_recv_bytes), (1, 16, 16));
    assert_eq!((a.rdma_read_wrs, a.rdma_read_bytes, b.rdma_read_resp_bytes, a.rdma_read_wr_err), (1, 32, 32, 1));
    assert_eq!((a.wr_errors, b.rx_drops), (1, 1));
}
