//! Queues in memory of the driver's own, events, and what else a driver behind a kernel's ABI needs.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use efa_core::entry::control1;
use efa_core::flags::{Access, QpAttrMask as Mask};
use efa_core::memory::{Mr, RawMemory};
use efa_core::qp::QpState;
use efa_core::ring::{AtomicWord, Word};
use efa_core::soft::{CqMemory, Mover, Profile, QpRings, SoftCq, SoftDevice};
use efa_core::{CqInit, Error, Provider, QpInit, Verb};

use crate::driver::{ALL_OPS, Cursor, MEMORY, Pair, Side, Words, bring_up, config, init, modify, pair, rdma, send};

#[allow(dead_code)] // it is reached by address
#[repr(align(64))]
pub(super) struct Line([AtomicWord; 64 / size_of::<Word>()]);

/// What a driver maps: rings full of what was there before, and doorbells.
pub(super) struct Mapped {
    rings: [Box<[Line]>; 3],
    bells: Box<[AtomicU32; 3]>,
}

impl Mapped {
    pub(super) fn new() -> Self {
        let ring = || (0..8).map(|_| Line([const { AtomicWord::new(!0) }; 64 / size_of::<Word>()])).collect();
        Self { rings: [ring(), ring(), ring()], bells: Box::new([const { AtomicU32::new(!0) }; 3]) }
    }

    pub(super) fn ring(&self, nth: usize) -> NonNull<AtomicWord> {
        NonNull::from(&*self.rings[nth]).cast()
    }

    pub(super) fn bell(&self, nth: usize) -> NonNull<AtomicU32> {
        NonNull::from(&self.bells[nth])
    }

    /// Rings the completion queue's: entries consumed, events taken, armed or not.
    pub(super) fn notify(&self, consumed: u32, taken: u32, arm: bool) {
        self.bells[2].store(consumed & 0xFFFF | (taken & 3) << 29 | u32::from(arm) << 31, Ordering::Relaxed);
    }
}

/// A side whose queues are in given memory, one completion queue with a doorbell for both; the memory is dropped last.
fn side_in(mapped: &Mapped, device: &SoftDevice, init: QpInit) -> Side {
    let memory = CqMemory { ring: mapped.ring(0), doorbell: Some(mapped.bell(2)), sub_cqs: 1, moved: false };
    // SAFETY: 16 entries of 16 bytes are half of what there is, and the caller drops the memory after the side.
    let cq = unsafe { device.create_cq_in(&CqInit { entries: 16, sgid: false, unsolicited: true }, memory) }.unwrap();
    side_over(mapped, device, init, (&cq, [0, 0], false)).unwrap()
}

/// A side over a completion queue, by its rings, with request ids of 64 bits or not.
pub(super) fn side_over(
    mapped: &Mapped,
    device: &SoftDevice,
    init: QpInit,
    (cq, sub_cqs, req_id_64): (&SoftCq, [u8; 2], bool),
) -> Result<Side, Error> {
    let pd = device.alloc_pd().unwrap();
    let rings = QpRings {
        send: mapped.ring(1),
        recv: mapped.ring(2),
        send_doorbell: mapped.bell(0),
        recv_doorbell: mapped.bell(1),
        sub_cqs,
        req_id_64,
    };
    // SAFETY: 8 entries of 64 bytes, 16 descriptors of 16 bytes, and the caller drops the memory after the side.
    let mut qp = unsafe { device.create_qp_in(&pd, cq, cq, &init, rings) }?;
    bring_up(device, &mut qp, 7);
    let ring = device.completions(cq);
    Ok(Side {
        device: device.clone(),
        pd,
        queues: device.queues(&qp),
        qp: Some(qp),
        qkey: 7,
        send_cq: Cursor { ring, next: 0 },
        recv_cq: Cursor { ring, next: 0 },
        cqs: (cq.clone(), cq.clone()),
        sent: 0,
        posted: 0,
    })
}

/// Sends to itself once; the completion queue then has two entries more.
pub(super) fn exchange(side: &mut Side) {
    let ah = side.ah(side);
    side.post_recv(1, &[side.region(1, MEMORY).buffer(0, 0)]);
    let target = side.region(1, MEMORY);
    side.post_recv(2, &[target.buffer(0, 8)]);
    // The first one's memory is gone: it and its send end with an error, which is a completion as well.
    for req_id in [1, 2] {
        side.post(send(req_id, &ah, side, &[]));
        (0..8).for_each(|_| side.device.progress());
    }
}

#[test]
fn queues_in_given_memory_are_cleared_and_work_round_after_round() {
    let mapped = Mapped::new();
    let device = SoftDevice::new(config(Profile::UNSOLICITED));
    let mut side = side_in(&mapped, &device, init(ALL_OPS));
    assert!(side.send_cq.poll().is_none(), "an entry of before");
    for round in 0..10 {
        exchange(&mut side);
        let ends: Vec<_> = std::iter::from_fn(|| side.send_cq.poll()).map(|entry| entry[2]).collect();
        let mut sorted = ends.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 0, 5, 12], "round {round}: {ends:?}");
    }
    drop(side);
}

#[test]
fn an_event_is_raised_once_for_each_arming_and_none_is_lost() {
    let mapped = Mapped::new();
    let device = SoftDevice::new(config(Profile::UNSOLICITED));
    let mut side = side_in(&mapped, &device, init(ALL_OPS));
    let cq = side.cqs.0.clone();
    exchange(&mut side);
    assert!(!cq.take_event(), "its doorbell was never rung");
    // Armed behind entries that were not consumed.
    mapped.notify(0, 0, true);
    assert!(cq.take_event() && !cq.take_event(), "one, and not a second one");
    // The program took the event, and consumed all: nothing is due until there is more.
    mapped.notify(4, 1, true);
    assert!(!cq.take_event());
    exchange(&mut side);
    // A poll after the arming has overwritten its bit: armed all the same.
    mapped.notify(5, 1, false);
    assert!(cq.take_event() && !cq.take_event());
    // It was not taken: no other one, whatever else is rung.
    mapped.notify(6, 1, true);
    exchange(&mut side);
    assert!(!cq.take_event());
    // Two bits count those taken.
    for taken in 2..9 {
        mapped.notify(0, taken, true);
        assert!(cq.take_event(), "the {taken}th");
    }
    // What is consumed before anybody looks was written to an armed queue all the same.
    mapped.notify(12, 9, true);
    exchange(&mut side);
    mapped.notify(16, 9, false);
    assert!(cq.take_event() && !cq.take_event());
    let plain = device.create_cq(&CqInit { entries: 16, sgid: false, unsolicited: false }).unwrap();
    assert!(!plain.take_event(), "it has no doorbell");
    drop((side, cq));
}

#[test]
fn a_queue_pair_in_given_memory_is_destroyed_and_no_other_is_refused_for_it() {
    let mapped = Mapped::new();
    let device = SoftDevice::new(config(Profile::UNSOLICITED));
    for _ in 0..20 {
        let mut side = side_in(&mapped, &device, init(ALL_OPS));
        assert_eq!(side.qp.as_ref().unwrap().is_drained(), Ok(true));
        let mut qp = side.qp.take().unwrap();
        device.destroy_qp(&mut qp).unwrap();
        assert_eq!(qp.is_drained(), Err(Error::Device { verb: Verb::QueryQp, errno: 22 }));
    }
}

static MOVED: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// Both are valid, and nobody else's for now.
unsafe fn count_and_copy(to: *mut u8, from: *const u8, len: usize) {
    MOVED.fetch_add(len, Ordering::Relaxed);
    // SAFETY: by the caller's word.
    unsafe { std::ptr::copy(from, to, len) }
}

#[test]
fn a_mover_moves_every_byte_and_memory_is_exposed_in_any_alignment() {
    // SAFETY: the test looks at memory only when the device is quiet.
    let mover = unsafe { Mover::new(count_and_copy) };
    let device = SoftDevice::new(config(Profile::UNSOLICITED).mover(mover));
    let (mut a, mut b) = (Side::new(&device, init(ALL_OPS), false), Side::new(&device, init(ALL_OPS), false));
    let (to_b, _to_a) = (a.ah(&b), b.ah(&a));
    let (source, target) = (a.region(4, MEMORY), b.region(4, MEMORY));
    source.fill(0, b"0123456789abcdef");
    b.post_recv(1, &[target.buffer(1, 20)]);
    a.post(send(1, &to_b, &b, &[source.buffer(3, 5), source.buffer(10, 2)]));
    assert_eq!(a.status(), 0);
    assert_eq!((target.bytes(0, 9), MOVED.load(Ordering::Relaxed)), (b"\x0034567ab\0".to_vec(), 7));
    // 13 bytes are no whole words.
    let mut bytes = vec![0u8; 13];
    let parts = NonNull::new(bytes.as_mut_ptr()).unwrap();
    // SAFETY: valid until the region is dropped, before the vector, and looked at when the device is quiet.
    let memory = RawMemory::new(unsafe { efa_core::memory::BorrowedMemory::new(parts, 13) });
    // SAFETY: as above.
    let mr: Mr = unsafe { device.reg_mr_at(&b.pd, memory, 0x7001, MEMORY | Access::REMOTE_WRITE) }.unwrap();
    assert_eq!(mr.attr().iova, 0x7001);
    let mut write = rdma(control1::OP_RDMA_WRITE, 2, &to_b, &b, source.buffer(0, 11), target.remote(0, 11));
    write.data[4..8].copy_from_slice(&mr.attr().rkey.0.to_le_bytes());
    write.data[8..16].copy_from_slice(&0x7003u64.to_le_bytes());
    a.post(write);
    assert_eq!(a.status(), 0);
    assert_eq!(MOVED.load(Ordering::Relaxed), 18);
    // One byte before the region, and one behind it.
    for (at, len) in [(0x7000u64, 4u32), (0x7003, 12)] {
        let mut write = rdma(control1::OP_RDMA_WRITE, 3, &to_b, &b, source.buffer(0, len), target.remote(0, len));
        write.data[4..8].copy_from_slice(&mr.attr().rkey.0.to_le_bytes());
        write.data[8..16].copy_from_slice(&at.to_le_bytes());
        a.post(write);
        assert_eq!(a.status(), 7, "{at:#x}");
    }
    drop(mr);
    assert_eq!(bytes, b"\0\x000123456789a");
}

#[test]
fn a_region_has_the_address_that_it_was_given() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let memory = RawMemory::new(Words(vec![0x2A2A_2A2A_2A2A_2A2A; 2].into_boxed_slice()));
    // SAFETY: it is looked at by nobody.
    let mr = unsafe { a.device.reg_mr_at(&a.pd, memory, 0x10_0000, MEMORY) }.unwrap();
    let target = b.region(2, MEMORY);
    b.post_recv(1, &[target.buffer(0, 16)]);
    let mut entry = send(1, &to_b, &b, &[target.buffer(0, 8)]);
    entry.data[4..8].copy_from_slice(&mr.attr().lkey.0.to_le_bytes());
    entry.data[8..16].copy_from_slice(&0x10_0008u64.to_le_bytes());
    a.post(entry);
    assert_eq!(a.status(), 0);
    assert_eq!(target.bytes(0, 16), [&[0x2A; 8][..], &[0; 8]].concat());
}

#[test]
fn after_a_reset_either_phase_is_taken_and_before_it_the_right_one_alone() {
    let Pair { mut a, mut b, to_b, .. } = pair();
    let target = b.region(1, MEMORY);
    (0..4).for_each(|req_id| b.post_recv(req_id, &[target.buffer(0, 8)]));
    let wrong = |a: &mut Side, req_id| {
        let mut entry = send(req_id, &to_b, &b, &[]);
        entry.ctrl2 ^= 1;
        a.post(entry);
        a.status()
    };
    assert_eq!(wrong(&mut a, 1), 2);
    for req_id in 2..4 {
        a.modify(QpState::Reset);
        (a.sent, a.posted) = (0, 0);
        bring_up(&a.device, a.qp.as_mut().unwrap(), a.qkey);
        assert_eq!(wrong(&mut a, req_id), 0);
    }
    // As it should be is right as well.
    a.post(send(9, &to_b, &b, &[]));
    assert_eq!(a.status(), 0);
}

#[test]
fn a_turn_tells_whether_anything_was_done_and_a_queue_when_it_is_drained() {
    let device = SoftDevice::new(config(Profile::UNSOLICITED).shuffle(false));
    let (mut a, mut b) = (Side::new(&device, init(ALL_OPS), false), Side::new(&device, init(ALL_OPS), false));
    let to_b = a.ah(&b);
    assert!(!device.turn());
    a.post(send(1, &to_b, &b, &[]));
    assert!(device.turn(), "it was taken from its queue");
    // It waits for a receive, and nothing is done about it.
    assert!(!(0..10).any(|_| device.turn()));
    modify(&device, a.qp.as_mut().unwrap(), QpState::Sqd, Mask::empty(), 0).unwrap();
    assert_eq!(a.qp.as_ref().unwrap().is_drained(), Ok(false));
    let target = b.region(1, MEMORY);
    b.post_recv(1, &[target.buffer(0, 8)]);
    assert!((0..10).any(|_| device.turn()));
    assert_eq!(a.qp.as_ref().unwrap().is_drained(), Ok(true));
    assert_eq!(a.status(), 0);
}
