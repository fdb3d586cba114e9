//! Nothing is left when all is closed. A program of its own, since it counts what the process has. As `devices.rs`.
//!
//! `EFA_OS_ROUNDS` says how often, 300 times if it does not.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::{on_each_path, rounds};
use efa_core::Token;
use efa_core::qp::{Depth, SendOnly};

/// Open files, mappings, and bytes of the heap that are in use.
fn resources() -> (usize, usize, usize) {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    // SAFETY: it takes nothing. The libraries' memory is of the same heap.
    let heap = unsafe { libc::mallinfo2() };
    (files, maps, heap.uordblks + heap.hblkhd)
}

#[test]
fn h29_nothing_is_left_of_devices_that_were_opened_used_and_closed_many_times() {
    let lives = rounds(300);
    on_each_path("soak", |[ctx, _]| {
        let path = ctx.data_path();
        drop(ctx);
        let count = AtomicU32::new(0);
        let round = || {
            for listed in efa_os::list().unwrap() {
                let ctx = efa_core::Context::open(listed.open_with(path).unwrap());
                let pd = ctx.alloc_pd().unwrap();
                let mut endpoint = pd.endpoint(ctx.require::<SendOnly>().unwrap(), Depth::new(4, 4)).unwrap();
                let (peer, _) = efa_core::connect::introduce(&endpoint, &endpoint).unwrap();
                endpoint.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
                endpoint.post(peer.send_inline(b"hello"), Token(2)).unwrap();
                // The same on a completion channel, in turn with its event unread, taken, or still to come.
                let channel = ctx.provider().channel().unwrap();
                let kind = ctx.require::<SendOnly>().unwrap();
                let mut waiting = pd.on_channel(&channel).endpoint(kind, Depth::new(4, 4)).unwrap();
                waiting.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(3)).unwrap();
                assert!(waiting.arm().unwrap().is_none());
                let (to_waiting, _) = efa_core::connect::introduce(&endpoint, &waiting).unwrap();
                endpoint.post(to_waiting.send_inline(b"hello"), Token(4)).unwrap();
                let nth = count.fetch_add(1, Ordering::Relaxed);
                if !nth.is_multiple_of(3) {
                    while endpoint.in_flight() > 1 {
                        endpoint.poll();
                    }
                }
                if nth % 3 == 2 {
                    assert!(channel.wait(Some(Duration::from_secs(10))).unwrap() > 0);
                }
                drop(ctx.provider().events().unwrap());
            }
        };
        (0..lives / 3).for_each(|_| round());
        let before = resources();
        // What leaks, leaks in each round, so in each of these. A thread's stack may come or go besides, and what the libraries or
        // this program keep for the next time may still grow once.
        const PARTS: u32 = 4;
        let mut last = before;
        let least = (0..PARTS).map(|_| {
            (0..lives / PARTS).for_each(|_| round());
            let grown = resources().2.saturating_sub(last.2);
            last = resources();
            grown
        });
        let least = least.min().unwrap_or(0);
        println!(
            "figure: {lives} lives over the {path} path: files, mappings, bytes {before:?} before, {last:?} after"
        );
        assert!(last.0 <= before.0 + 2 && last.1 <= before.1 + 4, "{before:?}, {last:?}");
        assert!(least < 8 * (lives / PARTS) as usize + 4096, "{least} bytes or more in each {} lives", lives / PARTS);
    });
}
