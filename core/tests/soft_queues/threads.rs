//! Several threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use efa_core::Provider;
use efa_core::flags::Access;
use efa_core::ring::Word;
use efa_core::soft::{Profile, SoftDevice};

use crate::driver::{ALL_OPS, MEMORY, Pair, Side, config, init, le16, pair, rdma, send, word};

#[test]
fn one_thread_may_drive_the_device_while_others_post_and_look_at_exposed_memory() {
    let Pair { mut a, mut b, to_b, to_a: _to_a } = pair();
    let rounds = if cfg!(miri) { 12 } else { 20_000u32 };
    let (local, remote) = (a.region(4, MEMORY), b.region(4, MEMORY | Access::REMOTE_WRITE));
    let target = b.region(4, MEMORY);
    let (stop, driver) = (AtomicU32::new(0), a.device.clone());
    let look = remote.mr.clone();
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                driver.progress();
                thread::yield_now();
            }
        });
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                for nth in 0..32 / size_of::<Word>() {
                    std::hint::black_box(word(look.attr().base.cast(), nth).load(Ordering::Relaxed));
                }
                thread::yield_now();
            }
        });
        for round in 0..rounds {
            local.fill(0, &[round as u8; 32]);
            b.post_recv(round as u16, &[target.buffer(0, 32)]);
            a.write(send(0, &to_b, &b, &[local.buffer(0, 32)]));
            a.write(rdma(2, 1, &to_b, &b, local.buffer(0, 27), remote.remote(3, 27)));
            a.ring_send();
            for _ in 0..2 {
                let completion = loop {
                    if let Some(completion) = a.send_cq.poll() {
                        break completion;
                    }
                    thread::yield_now();
                };
                assert_eq!(completion[2], 0);
            }
            assert_eq!(b.recv_cq.poll().unwrap()[..2], le16(round as u16));
            assert_eq!(target.bytes(0, 32), [round as u8; 32]);
        }
        stop.store(1, Ordering::Release);
    });
    assert_eq!(remote.bytes(3, 27), [(rounds - 1) as u8; 27]);
}

#[test]
fn handles_may_be_made_and_dropped_while_another_thread_drives_the_device() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let stop = AtomicU32::new(0);
    let rounds = if cfg!(miri) { 4 } else { 2_000 };
    thread::scope(|scope| {
        let (driver, stop) = (device.clone(), &stop);
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                driver.progress();
                thread::yield_now();
            }
        });
        let workers = [(), ()].map(|()| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let side = Side::new(&device, init(ALL_OPS), true);
                    let region = side.region(2, MEMORY | Access::REMOTE_READ);
                    let ah = side.ah(&side);
                    assert_eq!(ah.attr().gid, device.gid());
                    drop((region, side));
                }
            })
        });
        let ends = workers.map(|worker| worker.join());
        stop.store(1, Ordering::Release);
        assert!(ends.iter().all(Result::is_ok));
    });
}
