//! R17, H18: completion queues that are too small for what is attached.

use efa_core::flags::SendOps;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{CqInit, Provider, QpInit};

use crate::driver::{ALL_OPS, Cursor, MEMORY, Side, bring_up, config, init, pair_with, send};

fn strict() -> Config {
    config(Profile::UNSOLICITED).shuffle(false).strict_overruns()
}

#[test]
fn h18_receives_deeper_than_their_completion_queue_overrun_it_silently_are_counted_and_are_loud_where_strict() {
    // The driver makes completion queues of 16 entries.
    let deep = QpInit { recv_depth: 32, recv_sge: 1, ..init(ALL_OPS) };
    let counting = config(Profile::UNSOLICITED).shuffle(false).count_overruns();
    let plain = config(Profile::UNSOLICITED).shuffle(false);
    for (config, counted, last) in [(plain, 0, 0), (counting, 4, 0), (strict(), 16, 9)] {
        let pair = pair_with(config, init(ALL_OPS), deep);
        let (mut a, mut b, to_b, _to_a) = (pair.a, pair.b, pair.to_b, pair.to_a);
        let target = b.region(1, MEMORY);
        for req_id in 0..32 {
            b.post_recv(req_id, &[target.buffer(0, 8)]);
        }
        let statuses: Vec<u8> = (0..20)
            .map(|req_id| {
                a.post(send(req_id, &to_b, &b, &[]));
                a.status()
            })
            .collect();
        assert_eq!((statuses[..17].to_vec(), statuses[17]), (vec![0; 17], last));
        assert_eq!(b.device.counters().cq_overruns, counted, "of 20, or of the 17th and 15 flushes");
        let read: Vec<u8> = std::iter::from_fn(|| b.recv_cq.poll()).map(|entry| entry[0]).collect();
        if last == 0 {
            assert!(read.is_empty(), "the first place looks as if nothing was ever there: {read:?}");
        } else {
            assert_eq!(read, (0..16).collect::<Vec<_>>(), "what was unread stays");
        }
        assert_eq!(a.device.counters().cq_overruns, 0);
    }
}

#[test]
fn r17_a_shared_completion_queue_with_room_for_all_its_queues_is_never_reported() {
    let device = SoftDevice::new(strict());
    let mut b = Side::new(&device, init(ALL_OPS), false);
    let shared = device.create_cq(&CqInit { entries: 32, sgid: false, unsolicited: false }).unwrap();
    let mut cursor = Cursor { ring: device.completions(&shared), next: 0 };
    // Two queue pairs, each with eight sends and eight receives.
    let mut sides = [(); 2].map(|()| {
        let mut qp = device.create_qp(&b.pd, &shared, &shared, &init(SendOps::SEND)).unwrap();
        bring_up(&device, &mut qp, 5);
        let mut side = Side::in_domain(&device, b.pd.clone(), init(ALL_OPS), false);
        (side.queues, side.qkey) = (device.queues(&qp), 5);
        side.qp = Some(qp);
        side
    });
    let (to_b, target) = (b.ah(&b), b.region(1, MEMORY));
    for round in 0..if cfg!(miri) { 3 } else { 100 } {
        for side in &mut sides {
            for nth in 0..8 {
                side.post_recv(nth, &[target.buffer(0, 8)]);
                b.post_recv(nth, &[target.buffer(0, 8)]);
                side.post(send(nth, &to_b, &b, &[]));
                b.post(send(nth, &to_b, side, &[]));
                assert_eq!(b.status(), 0);
            }
            (0..20).for_each(|_| device.progress());
            while b.recv_cq.poll().is_some() {}
        }
        let count = std::iter::from_fn(|| cursor.poll()).count();
        assert_eq!((count, device.counters().cq_overruns), (32, 0), "round {round}");
    }
}
