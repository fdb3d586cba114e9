//! Completion queues of several rings, in memory that may go, and request ids of either length, as a driver behind a
//! kernel's ABI asks for them.

use std::cell::Cell;

use efa_core::soft::{CqMemory, Mover, Profile, SoftCq, SoftDevice};
use efa_core::{CqInit, CqRing, Error, Provider, Verb};

use crate::driver::{ALL_OPS, Cursor, Side, config, init, send};
use crate::given::{Mapped, exchange, side_over};

const ENTRIES: u32 = 8;

fn cq(device: &SoftDevice, mapped: &Mapped, sub_cqs: u16, moved: bool) -> Result<SoftCq, Error> {
    let memory = CqMemory { ring: mapped.ring(0), sub_cqs, moved, doorbell: Some(mapped.bell(2)) };
    let init = CqInit { entries: ENTRIES, sgid: false, unsolicited: false };
    // SAFETY: four rings of 8 entries of 16 bytes are what there is, and each test drops the memory last.
    unsafe { device.create_cq_in(&init, memory) }
}

/// A consumer of one of the rings.
fn cursor(side: &Side, sub: usize) -> Cursor {
    let CqRing { base, entries, entry_size } = side.device.completions(&side.cqs.0);
    let bytes = sub * entries as usize * usize::from(entry_size);
    // SAFETY: inside, as there are four.
    let base = unsafe { base.byte_add(bytes) };
    Cursor { ring: CqRing { base, entries, entry_size }, next: 0 }
}

#[test]
fn each_ring_of_a_completion_queue_has_its_own_place_and_phase() {
    let (mapped, others) = (Mapped::new(), Mapped::new());
    let device = SoftDevice::new(config(Profile::RDMA));
    let cq = cq(&device, &mapped, 4, false).unwrap();
    let mut side = side_over(&mapped, &device, init(ALL_OPS), (&cq, [3, 1], false)).unwrap();
    let mut other = side_over(&others, &device, init(ALL_OPS), (&cq, [0, 0], false)).unwrap();
    let mut rings = [0, 1, 2, 3].map(|sub| cursor(&side, sub));
    let mut seen = [0; 4];
    for round in 0..20 {
        // Two of each in rings 3 and 1, and by the other queue pair now and then four in ring 0.
        exchange(&mut side);
        if round % 3 == 0 {
            exchange(&mut other);
        }
        for (ring, seen) in rings.iter_mut().zip(&mut seen) {
            *seen += std::iter::from_fn(|| ring.poll()).count();
        }
    }
    assert_eq!(seen, [4 * 7, 40, 0, 40]);
    // Events count what is in all of them.
    let entries = seen.iter().sum::<usize>() as u32;
    mapped.notify(entries, 0, true);
    assert!(!cq.take_event(), "all was consumed");
    exchange(&mut side);
    assert!(cq.take_event());
    drop((side, other));
}

#[test]
fn rings_that_are_not_there_are_refused() {
    let mapped = Mapped::new();
    let device = SoftDevice::new(config(Profile::RDMA));
    let refused = |verb| Error::Device { verb, errno: 22 };
    for (sub_cqs, moved) in [(0, false), (3, false), (8, false), (1, true)] {
        let error = cq(&device, &mapped, sub_cqs, moved).map(drop).unwrap_err();
        assert_eq!(error, refused(Verb::CreateCq), "{sub_cqs} {moved}");
    }
    let cq = cq(&device, &mapped, 2, false).unwrap();
    for (sub_cqs, req_id_64) in [([2, 0], false), ([0, 2], false), ([0, 0], true)] {
        let error = side_over(&mapped, &device, init(ALL_OPS), (&cq, sub_cqs, req_id_64)).map(drop).unwrap_err();
        assert_eq!(error, refused(Verb::CreateQp), "{sub_cqs:?} {req_id_64}");
    }
}

thread_local! {
    static GONE: Cell<bool> = const { Cell::new(false) };
    static LENGTHS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

/// # Safety
/// Both are valid, unless what the driver gave is gone, and nobody else's for now.
unsafe fn unless_gone(to: *mut u8, from: *const u8, len: usize) {
    LENGTHS.set([LENGTHS.get()[1], len]);
    if !GONE.get() {
        // SAFETY: by the caller's word.
        unsafe { std::ptr::copy(from, to, len) }
    }
}

#[test]
fn memory_of_a_completion_queue_that_may_go_is_written_by_the_mover_and_the_phase_last() {
    let mapped = Mapped::new();
    // SAFETY: the test looks at memory only when the device is quiet.
    let mover = unsafe { Mover::new(unless_gone) };
    let device = SoftDevice::new(config(Profile::RDMA).mover(mover));
    // Zeros, by a queue that the device clears.
    drop(cq(&device, &mapped, 4, false).unwrap());
    let cq = cq(&device, &mapped, 2, true).unwrap();
    let mut side = side_over(&mapped, &device, init(ALL_OPS), (&cq, [0, 1], false)).unwrap();
    let (mut sends, mut receives) = (cursor(&side, 0), cursor(&side, 1));
    for round in 0..10 {
        exchange(&mut side);
        assert_eq!(LENGTHS.get(), [16, 1], "an entry, then its phase");
        for ring in [&mut sends, &mut receives] {
            assert_eq!(std::iter::from_fn(|| ring.poll()).count(), 2, "round {round}");
        }
    }
    // What is gone takes nothing, and the device goes on.
    GONE.set(true);
    exchange(&mut side);
    assert!(sends.poll().is_none() && receives.poll().is_none());
    drop((side, cq));
}

#[test]
fn r20_request_ids_have_the_length_that_each_queue_pair_asks_for() {
    for asks in [true, false] {
        let mapped = Mapped::new();
        let device = SoftDevice::new(config(Profile::RDMA).req_id_64(true));
        let cq = cq(&device, &mapped, 1, false).unwrap();
        let mut side = side_over(&mapped, &device, init(ALL_OPS), (&cq, [0, 0], asks)).unwrap();
        let ah = side.ah(&side);
        let mut entry = send(5, &ah, &side, &[]);
        entry.dest_qp_num = 0x7777.into();
        entry.req_id_ex = [1u16, 2, 3].map(Into::into);
        side.post(entry);
        let completion = side.sent_completion();
        let (status, upper) = if asks { (9, [1, 0, 2, 0, 3, 0]) } else { (2, [0; 6]) };
        assert_eq!((completion[2], &completion[6..12]), (status, &upper[..]), "{asks}");
    }
}
