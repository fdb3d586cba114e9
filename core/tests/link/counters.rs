//! Completion counters over the link: what came in parts counts once, when all of it is there.

use efa_core::entry::control1::{OP_RDMA_READ, OP_RDMA_WRITE};
use efa_core::flags::Access;
use efa_core::qp::QpState;
use efa_core::soft::link::PAYLOAD;
use efa_core::soft::{Config, CountedOps as Ops, Counts, Profile, SoftCounter, SoftDevice};

use crate::driver::{ALL_OPS, MEMORY, Side, bring_up, init, rdma, send};
use crate::net::{Net, gid};

fn wire(n: u64) -> SoftDevice {
    let config = Config::new(Profile::RDMA.counting()).limits(crate::common::LIMITS).packets(64);
    SoftDevice::new(config.gid(gid(n)).linked(n))
}

/// A side whose operations of these kinds are counted.
fn side(device: &SoftDevice, ops: Ops) -> (Side, SoftCounter) {
    let (mut side, counter) = (Side::new(device, init(ALL_OPS), false), device.create_counter().unwrap());
    side.modify(QpState::Reset);
    let qp = side.qp.as_mut().unwrap();
    counter.attach(qp, ops).unwrap();
    bring_up(device, qp, side.qkey);
    (side, counter)
}

const fn done(done: u64) -> Counts {
    Counts { done, failed: 0 }
}

/// Steps until the operation completed well; what `look` says after each step.
fn run<T>(net: &mut Net, side: &mut Side, mut look: impl FnMut() -> T) -> Vec<T> {
    let mut seen = Vec::new();
    for _ in 0..20_000 {
        net.step();
        seen.push(look());
        if let Some(entry) = side.send_cq.poll() {
            assert_eq!(entry[2], 0);
            return seen;
        }
    }
    panic!("no completion");
}

#[test]
fn a_write_counts_at_its_target_when_its_last_byte_is_there_and_a_read_when_all_was_read() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let devices = [wire(1), wire(2)];
        let mut net = Net::new(seed, &[&devices[0], &devices[1]]);
        (net.loss, net.repeats, net.delay) = (if cfg!(miri) { 0 } else { 200 }, 200, 500);
        let (mut a, of_a) = side(&devices[0], Ops::RDMA_WRITE | Ops::RDMA_READ);
        let (b, written) = side(&devices[1], Ops::REMOTE_RDMA_WRITE);
        let (mut c, read) = side(&devices[1], Ops::REMOTE_RDMA_READ);
        let (to_b, _to_a, _from_c) = (a.ah(&b), b.ah(&a), c.ah(&a));
        let len = 3 * PAYLOAD + 8;
        let local = a.region(len / 8, MEMORY);
        local.fill(0, &vec![7; len]);
        let at_b = b.region(len / 8, MEMORY | Access::REMOTE_WRITE);
        a.post(rdma(OP_RDMA_WRITE, 1, &to_b, &b, local.buffer(0, len as u32), at_b.remote(0, len as u32)));
        let seen = run(&mut net, &mut a, || (written.counts().done, at_b.bytes(0, len) == vec![7; len]));
        assert!(seen.iter().all(|(count, whole)| *count == 0 || *whole), "it counted before it was there");
        net.settle();
        assert_eq!((of_a.counts(), written.counts()), (done(1), done(1)), "seed {seed}");
        let at_c = c.region(len / 8, MEMORY | Access::REMOTE_READ);
        a.post(rdma(OP_RDMA_READ, 2, &to_b, &c, local.buffer(0, len as u32), at_c.remote(0, len as u32)));
        run(&mut net, &mut a, || ());
        net.settle();
        assert_eq!((of_a.counts(), read.counts()), (done(2), done(1)), "seed {seed}");
        assert!(c.recv_cq.poll().is_none());
    }
}

#[test]
fn a_message_counts_on_both_wires() {
    let devices = [wire(1), wire(2)];
    let mut net = Net::new(1, &[&devices[0], &devices[1]]);
    let ((mut a, sent), (mut b, received)) = (side(&devices[0], Ops::SEND), side(&devices[1], Ops::RECV));
    let (to_b, _to_a) = (a.ah(&b), b.ah(&a));
    let (from, to) = (a.region(1, MEMORY), b.region(1, MEMORY));
    b.post_recv(1, &[to.buffer(0, 8)]);
    a.post(send(1, &to_b, &b, &[from.buffer(0, 8)]));
    run(&mut net, &mut a, || ());
    assert_eq!((sent.counts(), received.counts()), (done(1), done(1)));
}
