//! Completion counters: what they count, and of which queue pairs.

use efa_core::entry::control1::{OP_RDMA_READ, OP_RDMA_WRITE};
use efa_core::flags::{Access, QpAttrMask as Mask};
use efa_core::qp::QpState;
use efa_core::soft::{Count, CountedOps as Ops, Counts, Profile, SoftCounter, SoftDevice, Storage};
use efa_core::{Caps, Error, Limit, Provider, QpInit, Verb};

use crate::driver::{ALL_OPS, MEMORY, Pair, Side, bring_up, config, init, modify, pair_with, rdma, send, with_imm};

const COUNTING: Profile = Profile::UNSOLICITED.counting();
const SHARED: Access = MEMORY.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

fn counting_pair(init: QpInit) -> Pair {
    pair_with(config(COUNTING), init, init)
}

fn counts(done: u64, failed: u64) -> Counts {
    Counts { done, failed }
}

/// Puts a queue pair into RESET, attaches, and brings it up again.
fn attach(side: &mut Side, attached: &[(&SoftCounter, Ops)]) {
    side.modify(QpState::Reset);
    (side.sent, side.posted) = (0, 0);
    for (counter, ops) in attached {
        counter.attach(side.qp.as_ref().unwrap(), *ops).unwrap();
    }
    bring_up(&side.device, side.qp.as_mut().unwrap(), side.qkey);
}

/// A counter for each kind of operation, in the order of their bits.
fn one_each(side: &mut Side) -> Vec<SoftCounter> {
    let kinds: Vec<Ops> = Ops::all().iter().collect();
    let counters: Vec<_> = kinds.iter().map(|_| side.device.create_counter().unwrap()).collect();
    let attached: Vec<_> = counters.iter().zip(kinds).collect();
    attach(side, &attached);
    counters
}

fn all(counters: &[SoftCounter]) -> Vec<(u64, u64)> {
    counters.iter().map(|counter| (counter.counts().done, counter.counts().failed)).collect()
}

#[test]
fn each_kind_of_operation_is_counted_where_it_was_posted_and_where_it_ends() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = counting_pair(init(ALL_OPS));
    let (of_a, of_b) = (one_each(&mut a), one_each(&mut b));
    let (local, remote) = (a.region(8, MEMORY), b.region(8, SHARED));
    let target = b.region(8, MEMORY);
    for nth in 0..3 {
        b.post_recv(nth, &[target.buffer(0, 64)]);
    }
    a.post(send(0, &to_b, &b, &[local.buffer(0, 8)]));
    assert_eq!(a.status(), 0);
    a.post(send(1, &to_b, &b, &[local.buffer(0, 8)]));
    assert_eq!(a.status(), 0);
    for (nth, op) in [OP_RDMA_READ, OP_RDMA_WRITE, OP_RDMA_WRITE, OP_RDMA_WRITE].into_iter().enumerate() {
        a.post(rdma(op, nth as u16, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)));
        assert_eq!(a.status(), 0);
    }
    assert_eq!(all(&of_a), [(2, 0), (0, 0), (1, 0), (0, 0), (3, 0), (0, 0)]);
    assert_eq!(all(&of_b), [(0, 0), (2, 0), (0, 0), (1, 0), (0, 0), (3, 0)]);
    // With an immediate it consumes a receive, and is a write all the same.
    let write = rdma(OP_RDMA_WRITE, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8));
    a.post(with_imm(write, 7));
    assert_eq!(a.status(), 0);
    assert_eq!(all(&of_a), [(2, 0), (0, 0), (1, 0), (0, 0), (4, 0), (0, 0)]);
    assert_eq!(all(&of_b), [(0, 0), (3, 0), (0, 0), (1, 0), (0, 0), (4, 0)]);
}

#[test]
fn what_consumes_no_receive_counts_as_none() {
    let unsolicited = QpInit { unsolicited: true, ..init(ALL_OPS) };
    let Pair { mut a, mut b, to_b, to_a: _to_a } = counting_pair(unsolicited);
    let of_b = one_each(&mut b);
    let (local, remote) = (a.region(1, MEMORY), b.region(1, SHARED));
    a.post(with_imm(rdma(OP_RDMA_WRITE, 0, &to_b, &b, local.buffer(0, 8), remote.remote(0, 8)), 7));
    assert_eq!(a.status(), 0);
    assert!(b.recv_cq.poll().is_some());
    assert_eq!(all(&of_b), [(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (1, 0)]);
}

#[test]
fn what_fails_counts_as_such_where_it_was_posted_and_nowhere_else() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = counting_pair(init(ALL_OPS));
    let (of_a, of_b) = (one_each(&mut a), one_each(&mut b));
    let (local, hidden) = (a.region(8, MEMORY), b.region(8, MEMORY));
    for op in [OP_RDMA_READ, OP_RDMA_WRITE, OP_RDMA_WRITE] {
        a.post(rdma(op, 0, &to_b, &b, local.buffer(0, 8), hidden.remote(0, 8)));
        assert_eq!(a.status(), 7);
    }
    // Into a receive that is too short: an error at both.
    b.post_recv(0, &[hidden.buffer(0, 4)]);
    a.post(send(0, &to_b, &b, &[local.buffer(0, 8)]));
    assert_eq!(a.status(), 11);
    assert_eq!(all(&of_a), [(0, 1), (0, 0), (0, 1), (0, 0), (0, 2), (0, 0)]);
    assert_eq!(all(&of_b), [(0, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)]);
    // What is flushed ended too.
    b.post_recv(1, &[hidden.buffer(0, 4)]);
    b.post_recv(2, &[hidden.buffer(0, 4)]);
    b.modify(QpState::Err);
    a.modify(QpState::Err);
    a.post(send(0, &to_b, &b, &[local.buffer(0, 8)]));
    assert_eq!(a.status(), 1);
    assert_eq!((of_a[0].counts(), of_b[1].counts()), (counts(0, 2), counts(0, 3)));
}

#[test]
fn one_counter_adds_up_what_it_is_attached_to_and_counts_on_after_reset_until_that_is_destroyed() {
    let device = SoftDevice::new(config(COUNTING));
    let (mut a, mut b) = (Side::new(&device, init(ALL_OPS), false), Side::new(&device, init(ALL_OPS), false));
    let (sent, received) = (device.create_counter().unwrap(), device.create_counter().unwrap());
    attach(&mut a, &[(&sent, Ops::SEND), (&received, Ops::RECV)]);
    attach(&mut b, &[(&sent, Ops::SEND), (&received, Ops::RECV)]);
    let (to_a, to_b) = (b.ah(&a), a.ah(&b));
    let (of_a, of_b) = (a.region(1, MEMORY), b.region(1, MEMORY));
    let round = |a: &mut Side, b: &mut Side| {
        a.post_recv(0, &[of_a.buffer(0, 8)]);
        b.post_recv(0, &[of_b.buffer(0, 8)]);
        a.post(send(0, &to_b, b, &[of_a.buffer(0, 8)]));
        b.post(send(0, &to_a, a, &[of_b.buffer(0, 8)]));
        assert_eq!((a.status(), b.status()), (0, 0));
    };
    round(&mut a, &mut b);
    assert_eq!((sent.counts(), received.counts()), (counts(2, 0), counts(2, 0)));
    attach(&mut a, &[]);
    round(&mut a, &mut b);
    assert_eq!((sent.counts(), received.counts()), (counts(4, 0), counts(4, 0)));
    b.destroy();
    a.post_recv(1, &[of_a.buffer(0, 8)]);
    a.modify(QpState::Err);
    assert_eq!((sent.counts(), received.counts()), (counts(4, 0), counts(4, 1)));
}

#[test]
fn a_change_is_told_once_and_may_be_the_drivers() {
    let device = SoftDevice::new(config(COUNTING));
    let counter = device.create_counter().unwrap();
    assert_eq!(counter.take_change(), None);
    counter.set(Count::Done, u64::MAX);
    counter.add(Count::Done, 3);
    counter.add(Count::Failed, 5);
    assert_eq!((counter.take_change(), counter.take_change()), (Some(counts(2, 5)), None));
    assert_eq!(counter.counts(), counts(2, 5));
    counter.set(Count::Failed, 5);
    assert_eq!(counter.take_change(), Some(counts(2, 5)));
}

#[test]
fn it_is_attached_in_reset_and_init_to_what_no_other_counts_on_its_own_device() {
    let device = SoftDevice::new(config(COUNTING));
    let mut side = Side::new(&device, init(ALL_OPS), false);
    let (counter, other) = (device.create_counter().unwrap(), device.create_counter().unwrap());
    let refused = |errno| Err(Error::Device { verb: Verb::AttachCounter, errno });
    assert_eq!(counter.attach(side.qp.as_ref().unwrap(), Ops::SEND), refused(22), "in RTS");
    side.modify(QpState::Reset);
    let qp = side.qp.as_mut().unwrap();
    assert_eq!(counter.attach(qp, Ops::empty()), refused(22));
    assert_eq!(counter.attach(qp, Ops::from_bits_retain(1 << 6)), refused(22));
    assert_eq!(counter.attach(qp, Ops::SEND | Ops::RECV), Ok(()));
    modify(&device, qp, QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY, 1).unwrap();
    for counter in [&counter, &other] {
        assert_eq!(counter.attach(qp, Ops::RDMA_READ | Ops::RECV), refused(16));
    }
    assert_eq!(other.attach(qp, Ops::RDMA_READ), Ok(()));
    // One that is gone counts no more, and another may.
    drop(counter);
    assert_eq!(other.attach(qp, Ops::RECV | Ops::SEND), Ok(()));
    let foreign = device.neighbour().unwrap().create_counter().unwrap();
    assert_eq!(foreign.attach(qp, Ops::RDMA_WRITE), refused(22));
    device.destroy_qp(qp).unwrap();
    assert_eq!(other.attach(qp, Ops::RDMA_WRITE), refused(22));
}

#[test]
fn there_are_two_for_each_queue_pair_and_none_where_the_device_has_none() {
    static NIC: Storage<2, 8, 4> = Storage::new();
    let device = NIC.start(COUNTING).unwrap();
    let counters = [(); 4].map(|()| device.create_counter().unwrap());
    let full = Error::Exhausted { what: Limit::Counters, limit: 4 };
    assert_eq!((device.create_counter().err(), device.max_counters()), (Some(full), 4));
    drop(counters);
    assert!(device.create_counter().is_ok());
    let without = SoftDevice::new(config(Profile::UNSOLICITED));
    let refused = Error::Unsupported { needs: Caps::COMP_CNTR, has: Profile::UNSOLICITED.caps() };
    assert_eq!((without.create_counter().err(), without.max_counters()), (Some(refused), 0));
    let failing = SoftDevice::new(config(COUNTING).fail_verb(Verb::CreateCounter, 1, 12));
    assert_eq!(failing.create_counter().err(), Some(Error::Device { verb: Verb::CreateCounter, errno: 12 }));
    assert!(failing.create_counter().is_ok());
}
