//! How things end on real libraries, whatever is dropped or forgotten first. As `devices.rs`.
#![allow(missing_docs, unsafe_code)]

mod common;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Basic, on_each_path, skipped, wait};
use efa_core::memory::{DmaBuf, RawParts, Visible};
use efa_core::qp::Depth;
use efa_core::work::Event;
use efa_core::{Error, Token, Verb};

/// Memory that says when it is freed.
struct Watched(Vec<u8>, Arc<AtomicBool>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
    }
}

// SAFETY: as the vector's own; the box is taken back once.
unsafe impl DmaBuf for Watched {
    type View = Visible;

    fn into_raw(mut self) -> RawParts {
        let (base, len) = (core::ptr::NonNull::new(self.0.as_mut_ptr()).unwrap(), self.0.len());
        RawParts { base, len, extra: Box::into_raw(Box::new(self)).expose_provenance() }
    }

    unsafe fn from_raw(parts: RawParts) -> Self {
        // SAFETY: of `into_raw`, by the caller's word.
        *unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut(parts.extra)) }
    }
}

/// What is dropped or forgotten: each is one bit.
const NAMES: [&str; 5] = ["domain", "endpoint", "region", "slice", "peer"];
/// Those that hold the memory.
const HOLDERS: usize = 0b01110;
const ENDPOINT: usize = 0b00010;

#[test]
fn whatever_is_forgotten_or_dropped_in_whatever_order_memory_is_freed_when_all_let_go_and_not_under_the_device() {
    on_each_path("forgotten", |[ctx, other]| {
        let other_pd = other.alloc_pd().unwrap();
        let mut kept = 0;
        for round in 0..120 {
            // Of each of the orders once, and each set of what is forgotten several times.
            let (order, forgotten) = (round, round * 7 % 32);
            // A queue pair that is forgotten is so for ever: not more of them than a device has.
            if forgotten & ENDPOINT != 0 {
                kept += 1;
                if kept > ctx.limits().max_qp / 4 {
                    continue;
                }
            }
            let freed = Arc::new(AtomicBool::new(false));
            let pd = ctx.alloc_pd().unwrap();
            let mut endpoint = pd.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
            let mut sender = other_pd.endpoint(other.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
            let (to, peer) = efa_core::connect::introduce(&sender, &endpoint).unwrap();
            let (region, whole) = pd.register(Watched(vec![1; 4096], freed.clone())).unwrap();
            let (head, slice) = whole.split_at(64).unwrap();
            endpoint.post_recv(head, Token(0)).unwrap();
            let mut things: Vec<(usize, Option<Box<dyn core::any::Any>>)> = vec![
                (1, Some(Box::new(pd))),
                (ENDPOINT, Some(Box::new(endpoint))),
                (4, Some(Box::new(region))),
                (8, Some(Box::new(slice))),
                (16, Some(Box::new(peer))),
            ];
            let (mut rest, mut alive) = (order, HOLDERS);
            for left in (1..=NAMES.len()).rev() {
                let (bit, thing) = things.remove(rest % left);
                rest /= left;
                if forgotten & bit == 0 {
                    drop(thing);
                    alive &= !bit;
                } else {
                    mem::forget(thing);
                }
                let names: Vec<_> = (0..5).filter(|nth| forgotten >> nth & 1 == 1).map(|nth| NAMES[nth]).collect();
                assert_eq!(freed.load(Ordering::Acquire), alive == 0, "order {order}, forgotten: {names:?}");
            }
            if forgotten & ENDPOINT != 0 {
                // The device still writes into what was posted, and that is still there.
                sender.post(to.send_inline(b"still there"), Token(1)).unwrap();
                assert!(matches!(wait(&mut sender), Event::Sent(_)));
                assert!(!freed.load(Ordering::Acquire));
            }
        }
        assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions()), (0, 0), "what is forgotten was not refused");
    });
}

#[test]
fn r34_a_domain_is_gone_only_after_all_that_is_in_it_and_a_groups_queue_after_its_members() {
    on_each_path("order of ends", |[ctx, _]| {
        let used = || {
            let explained = ctx.provider().explain(Error::ZeroLength);
            (explained.queue_pairs, explained.regions)
        };
        for shut_down in [true, false] {
            let pd = ctx.alloc_pd().unwrap();
            let mut group = pd.group::<Basic, 2>(ctx.require::<Basic>().unwrap(), 256).unwrap();
            let first = group.endpoint(Depth::new(4, 4)).unwrap();
            let second = match group.endpoint(Depth::new(4, 4)) {
                Err(Error::Device { verb: Verb::CreateQp, errno: libc::EOPNOTSUPP }) => {
                    skipped("order of ends", "this libefa cannot tell queue pairs on one completion queue apart");
                    None
                }
                made => Some(made.unwrap()),
            };
            let members: Vec<_> = [Some(first), second].into_iter().flatten().collect();
            for member in &members {
                for token in 0..3 {
                    let receive = pd.register(vec![0; 64]).unwrap().1;
                    group.member(*member).unwrap().post_recv(receive, Token(token)).unwrap();
                }
            }
            // A peer that is there keeps its domain; the domain's own handle is gone first.
            let qp = group.queue_pair(first).unwrap();
            let (to_itself, _) = efa_core::connect::introduce(qp, qp).unwrap();
            group.member(first).unwrap().post(to_itself.send_inline(b"x"), Token(9)).unwrap();
            drop(pd);
            assert_eq!(used(), (members.len() as u64, 3 * members.len() as u64));
            let mut ended = 0;
            for member in members {
                if shut_down {
                    let start = Instant::now();
                    group.shut_down(member, || start.elapsed() > Duration::from_secs(10), |_, _| ended += 1).unwrap();
                } else {
                    group.close(member).unwrap();
                }
            }
            while group.poll().is_some() {
                ended += 1;
            }
            assert!(!shut_down || ended >= 4, "{ended}");
            drop((group, to_itself));
            assert_eq!(used(), (0, 0));
            assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
        }
    });
}
