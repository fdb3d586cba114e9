//! Core on real libraries: whatever device this machine has, an EFA or one of tests/softefa.
//!
//! Feature `system`. `tests/softefa/run` before the program gives it software devices. Each test runs over each data path that
//! the libraries have. Where there is no device or no such path it prints that it was skipped and why, unless
//! `EFA_OS_REQUIRED` names the path, by which `tests/run` makes that a failure. `EFA_OS_SKIP` has a reason to skip all of them.
#![allow(missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use common::{Basic, has_writes, on_each_pair, on_each_path, skipped, wait};
use efa_core::memory::{PageSize, Pages, RemoteRead, RemoteWrite};
use efa_core::peer::Sender;
use efa_core::qp::{Depth, Endpoint, Group, InitAttr, MemberId, Solicited, Srd, Ud, Wide, ops};
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Provider, Qkey, SetRnrRetry, Token, Verb};
use efa_examples::pingpong::{self, Operation};
use efa_examples::transfer;
use efa_os::Device;

#[test]
fn a_device_tells_its_name_its_address_its_limits_and_its_libraries() {
    on_each_path("attributes", |[ctx, _]| {
        let (limits, device) = (ctx.limits(), ctx.provider());
        assert!(ctx.gid().is_link_local() && !ctx.name().is_empty() && device.guid() != 0);
        for count in [limits.max_qp, limits.max_cq, limits.max_mr, limits.max_pd, limits.max_ah, limits.max_cqe] {
            assert!(count > 0, "{limits:?}");
        }
        assert!(limits.max_send_depth >= limits.min_send_depth && limits.max_recv_depth > 0, "{limits:?}");
        assert!(limits.max_msg_size >= 4096 && limits.max_mr_size > 0 && limits.max_inline > 0, "{limits:?}");
        let [verbs, efa] = device.libraries();
        assert!(verbs.contains("libibverbs.so.1") && efa.contains("libefa.so.1"), "{verbs}, {efa}");
        println!("figure: {} at {}: {verbs}; {efa}", ctx.name(), ctx.gid());
    });
}

#[test]
fn every_operation_at_every_size_brings_every_byte() {
    on_each_pair("operations", |contexts| {
        let options = pingpong::Options {
            operations: Operation::ALL.to_vec(),
            iterations: 20,
            max_size: 100_000,
            seed: 11,
            corrupt: false,
            threads: false,
        };
        let rows = pingpong::run(&options, contexts.clone(), |_| {}).unwrap_or_else(|fault| panic!("{fault}"));
        // All that the devices and the libraries have between them.
        let caps = contexts[0].caps() & contexts[1].caps();
        let has = |operation| match operation {
            Operation::Read => caps.contains(Caps::RDMA_READ),
            Operation::Write | Operation::WriteImm => caps.contains(Caps::RDMA_READ | Caps::RDMA_WRITE),
            _ => true,
        };
        let mut cases = pingpong::cases(&options, &contexts[0].limits());
        cases.retain(|(operation, _)| has(*operation));
        assert_eq!(rows.iter().map(|row| (row.operation, row.size)).collect::<Vec<_>>(), cases);
    });
}

#[test]
fn a_changed_byte_is_noticed() {
    on_each_path("corruption", |contexts| {
        let options = pingpong::Options {
            operations: vec![Operation::Read],
            iterations: 5,
            max_size: 64,
            seed: 1,
            corrupt: true,
            threads: false,
        };
        let fault = pingpong::run(&options, contexts, |_| {}).unwrap_err();
        assert!(fault.to_string().contains("expected 0x"), "{fault}");
    });
}

#[test]
fn a_file_arrives_whole_in_chunks_of_any_size() {
    on_each_pair("transfer", |contexts| {
        if !has_writes(&contexts, "transfer") {
            return;
        }
        let file: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        for (chunk, window) in [(65_536, 8), (1000, 32), (777, 1)] {
            let options = transfer::Options { chunk: NonZeroU32::new(chunk).unwrap(), window, corrupt: false };
            let part = if window == 1 { &file[..20_000] } else { &file[..] };
            let mut arrived = Vec::new();
            let len = part.len() as u64;
            let report = transfer::transfer(options, contexts.clone(), part, len, &mut arrived, |_| {});
            let report = report.unwrap_or_else(|fault| panic!("{fault}"));
            assert!(arrived == part && report.bytes == len, "{len} bytes in chunks of {chunk}");
        }
    });
}

#[test]
fn datagrams_arrive_behind_their_header() {
    on_each_pair("datagrams", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Ud>().unwrap(), Depth::new(4, 4)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Ud>().unwrap(), Depth::new(4, 4)).unwrap();
        let (peer, _) = efa_core::connect::introduce(&from, &to).unwrap();
        to.post_recv(b_pd.register(vec![0; 128]).unwrap().1, Token(1)).unwrap();
        from.post(peer.send_inline(b"datagram").imm(0x0102_0304), Token(2)).unwrap();
        assert!(matches!(wait(&mut from), Event::Sent(done) if done.token == Token(2)));
        let Event::Received(mut message) = wait(&mut to) else { panic!("no message") };
        assert_eq!((message.imm, message.payload().len()), (Some(0x0102_0304), 8));
        let payload = message.payload();
        assert_eq!(&message.buffers.take_slice().unwrap()[payload], b"datagram");
    });
}

#[test]
fn a_queue_wraps_many_times_and_its_receives_of_two_buffers_too() {
    on_each_path("wrap", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let depth = Depth::new(4, 4).recv_buffers(2);
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), depth).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), depth).unwrap();
        let (peer, _) = efa_core::connect::introduce(&from, &to).unwrap();
        let (mut first, mut second) = b_pd.register(vec![0; 64]).unwrap().1.split_at(3).unwrap();
        for n in 0..1000u64 {
            to.post_recv([first, second], Token(n)).unwrap();
            from.post(peer.send_inline(&n.to_le_bytes()), Token(n)).unwrap();
            assert!(matches!(wait(&mut from), Event::Sent(done) if done.token == Token(n)));
            let Event::Received(mut message) = wait(&mut to) else { panic!("no message") };
            (first, second) = (message.buffers.take_slice().unwrap(), message.buffers.take_slice().unwrap());
            let bytes: Vec<u8> = first.iter().chain(second.iter()).copied().take(message.len).collect();
            assert_eq!((message.token, bytes.as_slice()), (Token(n), &n.to_le_bytes()[..]));
        }
        assert_eq!((from.stats().stale, to.stats().stale), (0, 0));
    });
}

#[test]
fn a_queue_pair_goes_around_its_states_and_works_after_reset() {
    on_each_path("states", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        let srd = ctx.require::<Basic>().unwrap();
        let mut target = pd.endpoint(srd, Depth::new(8, 8)).unwrap();
        let mut qp = pd.create_qp(srd, Depth::new(8, 8)).unwrap();
        for round in 0..3 {
            let key = Qkey(0x1234 + round);
            let rtr = qp.init(InitAttr::new(key)).unwrap().rtr().unwrap();
            let mut rts = rtr.rts(efa_core::qp::RtsAttr::new()).unwrap();
            let (peer, _) = efa_core::connect::introduce(&rts, &target).unwrap();
            for n in 0..5 {
                target.post_recv(pd.register(vec![0; 16]).unwrap().1, Token(n)).unwrap();
                rts.post(peer.send_inline(b"again"), Token(n)).unwrap();
                assert!(matches!(wait(&mut rts), Event::Sent(_)));
                assert!(matches!(wait(&mut target), Event::Received(message) if message.len == 5));
            }
            // Drained and back, then down, and up once more.
            let rts = rts.drain().unwrap().resume().unwrap();
            qp = rts.error().unwrap().reset().unwrap();
        }
        qp.close().unwrap();
        assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
    });
}

#[test]
fn what_is_in_flight_is_flushed_and_reclaimed_when_the_queue_pair_ends() {
    on_each_path("shutdown", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        let mut endpoint = pd.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        for n in 0..8 {
            endpoint.post_recv(pd.register(vec![n as u8; 64]).unwrap().1, Token(n)).unwrap();
        }
        let start = Instant::now();
        let mut ended = 0;
        let report = endpoint.shut_down(|| start.elapsed() > Duration::from_secs(10), |_| ended += 1).unwrap();
        assert_eq!((ended, report.completed + report.reclaimed), (8, 8));
    });
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    on_each_path("order", |[ctx, _]| {
        for order in 0..24 {
            let pd = ctx.alloc_pd().unwrap();
            let mut endpoint = pd.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
            let (region, slice) = pd.register(vec![1u8; 4096]).unwrap();
            let (head, tail) = slice.split_at(100).unwrap();
            endpoint.post_recv(head, Token(0)).unwrap();
            let (peer, _) = efa_core::connect::introduce(&endpoint, &endpoint).unwrap();
            // Of four things the one that goes first, then second, and so on.
            let mut things: Vec<Box<dyn std::any::Any>> =
                vec![Box::new(pd), Box::new(endpoint), Box::new((region, tail)), Box::new(peer)];
            let mut rest = order;
            for left in (1..=4).rev() {
                drop(things.remove(rest % left));
                rest /= left;
            }
        }
        assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions(), ctx.leaks().objects()), (0, 0, 0));
    });
}

#[test]
fn what_the_device_refuses_comes_back_with_its_errno() {
    on_each_path("refusals", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        // A queue pair that does not move so.
        let qp = pd.create_qp(ctx.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let refused = qp.init(InitAttr::new(Qkey(1)).port(2)).unwrap_err();
        let error = refused.error();
        assert!(matches!(error, Error::Device { verb: Verb::ModifyQp, errno: 95 | 22 }), "{error}");
        refused.into_inner().close().unwrap();
        // Nobody is at an address of zeros.
        let error =
            efa_core::Provider::create_ah(ctx.provider(), &ctx.provider().alloc_pd().unwrap(), Default::default());
        assert!(matches!(error, Err(Error::Device { verb: Verb::CreateAh, errno: 22 })), "{error:?}");
    });
}

#[test]
fn r28_one_address_handle_serves_all_who_ask_for_it_from_any_thread() {
    on_each_path("address handles", |[ctx, _]| {
        let device = ctx.provider();
        let pd = device.alloc_pd().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let first = device.create_ah(&pd, ctx.gid()).unwrap();
                        let second = device.create_ah(&pd, ctx.gid()).unwrap();
                        assert_eq!(first.attr(), second.attr());
                    }
                });
            }
        });
        drop(pd);
        assert_eq!(ctx.leaks().objects(), 0);
    });
}

#[test]
fn a_second_opening_of_the_device_is_a_device_of_its_own() {
    on_each_path("twice", |[a, _]| {
        let b = Context::open(efa_os::devices().unwrap().swap_remove(0));
        assert_eq!((a.gid(), a.name()), (b.gid(), b.name()));
        let (theirs, pd) = (b.alloc_pd().unwrap(), a.alloc_pd().unwrap());
        let error = theirs.endpoint(a.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap_err();
        assert!(matches!(error, Error::ForeignToken { .. }), "{error}");
        let refused = pd.expose(Pages::new(1, PageSize::Base).unwrap(), b.require::<RemoteRead>().unwrap());
        assert!(matches!(refused.unwrap_err().error(), Error::ForeignToken { .. }));
    });
}

#[test]
fn r18_a_batch_takes_as_many_as_the_device_was_said_to_take() {
    on_each_path("batch", |[ctx, _]| {
        let (pd, limits) = (ctx.alloc_pd().unwrap(), ctx.limits());
        let depth = limits.max_send_depth.min(64);
        let qp = pd.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(depth, 4)).unwrap();
        assert_eq!(u32::from(qp.granted().batch), u32::from(limits.max_batch).min(qp.granted().send));
    });
}

#[test]
fn a_finite_retry_ends_with_status_10_if_the_device_can_be_told() {
    on_each_path("retries", |[ctx, _]| {
        let Ok(token) = ctx.require::<SetRnrRetry>() else {
            return skipped("retries", "the device cannot be told how often to try again");
        };
        let (pd, srd) = (ctx.alloc_pd().unwrap(), ctx.require::<Basic>().unwrap());
        let target = pd.endpoint(srd, Depth::new(4, 4)).unwrap();
        let rtr = pd.create_qp(srd, Depth::new(4, 4)).unwrap().init(InitAttr::new(Qkey(5))).unwrap().rtr().unwrap();
        let retry = efa_core::qp::RnrRetry::times(1).unwrap();
        let mut from = rtr.rts(efa_core::qp::RtsAttr::new().rnr_retry(token, retry)).unwrap();
        let (peer, _) = efa_core::connect::introduce(&from, &target).unwrap();
        from.post(peer.send_inline(b"x"), Token(1)).unwrap();
        let Event::Failed { failure, .. } = wait(&mut from) else { panic!("it was received") };
        assert!(failure.to_string().contains("receive"), "{failure}");
    });
}

#[test]
fn r13_bytes_and_immediates_of_every_kind_arrive_exact_through_the_real_library() {
    on_each_pair("basics", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(16, 16)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(16, 16)).unwrap();
        // The target keeps the initiator resolved, or its reads fail with status 14 (R04).
        let (peer, _initiator) = efa_core::connect::introduce(&from, &to).unwrap();
        let largest = a.limits().max_msg_size as usize;
        for size in [1, 33, 4096, largest] {
            let bytes: Vec<u8> = (0..size).map(|n| (n * 7 + size) as u8).collect();
            let receive = |to: &mut Endpoint<Device, Basic>| {
                let Event::Received(mut message) = wait(to) else { panic!("no message") };
                let slice = message.buffers.take_slice().unwrap();
                assert!(slice[..message.len] == bytes, "{size} bytes");
                message.imm
            };
            let target = || b_pd.register(vec![0; largest]).unwrap().1;
            to.post_recv_list(&mut (0..3).map(|n| (target(), Token(n)))).unwrap();
            from.post(peer.send(a_pd.register(bytes.clone()).unwrap().1), Token(1)).unwrap();
            assert!(matches!(wait(&mut from), Event::Sent(done) if done.token == Token(1)));
            assert_eq!(receive(&mut to), None);
            from.post(peer.send(a_pd.register(bytes.clone()).unwrap().1).imm(0x8000_0001), Token(2)).unwrap();
            assert!(matches!(wait(&mut from), Event::Sent(done) if done.token == Token(2)));
            assert_eq!(receive(&mut to), Some(0x8000_0001));
            let (head, tail) = a_pd.register(bytes.clone()).unwrap().1.split_at(size / 2).unwrap();
            from.post(peer.send([head, tail]), Token(3)).unwrap();
            assert!(matches!(wait(&mut from), Event::Sent(done) if done.token == Token(3)));
            assert_eq!(receive(&mut to), None);

            let exposed =
                b_pd.expose(Pages::new(2 * largest, PageSize::Base).unwrap(), b.require::<RemoteRead>().unwrap());
            let exposed = exposed.unwrap();
            exposed.copy_in(64, &bytes).unwrap();
            let grant = exposed.grant(&to).unwrap();
            let window = peer.window::<RemoteRead>(grant.as_bytes()).unwrap().range(64..64 + size as u64).unwrap();
            from.post(peer.read(a_pd.register(vec![0; size]).unwrap().1, window), Token(4)).unwrap();
            let Event::Read(mut done) = wait(&mut from) else { panic!("not read") };
            assert!(done.buffers.take_slice().unwrap()[..] == bytes, "{size} bytes read");
        }
        assert_eq!((from.stats().stale, to.stats().stale), (0, 0));
    });
}

#[test]
fn r32_r33_a_batch_goes_out_whole_and_a_full_queue_gives_the_operation_back() {
    on_each_path("batch", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(8, 8)).unwrap();
        let (peer, _) = efa_core::connect::introduce(&from, &to).unwrap();
        for round in 0..20u64 {
            to.post_recv_list(&mut (0..8).map(|n| (b_pd.register(vec![0; 8]).unwrap().1, Token(n)))).unwrap();
            let mut batch = from.batch();
            let mut size = 0;
            while size < 8 && batch.push(peer.send_inline(&[round as u8, size as u8]), Token(size)).is_ok() {
                size += 1;
            }
            assert_eq!(batch.submit() as u64, size);
            let sent: BTreeSet<u64> = (0..size)
                .map(|_| match wait(&mut from) {
                    Event::Sent(done) => done.token.0,
                    event => panic!("{event:?}"),
                })
                .collect();
            assert_eq!(sent.len() as u64, size);
            let arrived: BTreeSet<u8> = (0..size)
                .map(|_| match wait(&mut to) {
                    Event::Received(mut message) => {
                        let bytes = message.buffers.take_slice().unwrap();
                        assert_eq!((message.len, bytes[0]), (2, round as u8));
                        bytes[1]
                    }
                    event => panic!("{event:?}"),
                })
                .collect();
            assert_eq!(arrived.len() as u64, size);
            // Receives that no message took are posted again by nobody: as many as were sent were taken.
            for n in size..8 {
                from.post(peer.send_inline(&[0]), Token(n)).unwrap();
                assert!(matches!(wait(&mut from), Event::Sent(_)) && matches!(wait(&mut to), Event::Received(_)));
            }
        }
        // Nobody receives: as many as were granted wait, the next comes back.
        let depth = from.granted().send;
        for n in 0..depth.into() {
            from.post(peer.send_inline(b"waits"), Token(n)).unwrap();
        }
        let error = from.post(peer.send_inline(b"one more"), Token(9)).unwrap_err().error();
        assert!(matches!(error, Error::QueueFull { in_flight } if in_flight == depth), "{error}");
    });
}

#[test]
fn r23_r24_r31_an_unknown_sender_is_told_by_its_gid_read_of_a_queue_made_for_it() {
    on_each_path("sgid", |[a, b]| {
        if !b.caps().contains(Caps::CQ_WITH_SGID) {
            return skipped("sgid", "the device cannot tell it");
        }
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        to.post_recv(b_pd.register(vec![0; 8]).unwrap().1, Token(1)).unwrap();
        // Only one side resolves the other: by the road for that.
        let (peer, _) = from.resolve(to.hello().as_bytes()).unwrap();
        from.post(peer.one_way().send_inline(b"who"), Token(2)).unwrap();
        assert!(matches!(wait(&mut from), Event::Sent(_)));
        let Event::Received(message) = wait(&mut to) else { panic!("no message") };
        assert_eq!(message.from, Sender::Unknown { gid: Some(a.gid()), qpn: from.qpn() });
    });
}

#[test]
fn r21_h31_queue_pairs_of_a_group_share_a_completion_queue_and_end_with_receives_posted() {
    on_each_path("group", |[ctx, _]| {
        let pd = ctx.alloc_pd().unwrap();
        let mut group = pd.group::<Basic, 2>(ctx.require::<Basic>().unwrap(), 256).unwrap();
        for _ in 0..3 {
            let first = group.endpoint(Depth::new(4, 4)).unwrap();
            let Some(second) = second_on_a_queue("group", group.endpoint(Depth::new(4, 4))) else { return };
            let members = [first, second];
            let [first, second] = members.map(|member| group.queue_pair(member).unwrap());
            let (to_second, to_first) = efa_core::connect::introduce(first, second).unwrap();
            for member in members {
                let receive = pd.register(vec![0; 8]).unwrap().1;
                group.member(member).unwrap().post_recv(receive, Token(0)).unwrap();
            }
            group.member(members[0]).unwrap().post(to_second.send_inline(b"one"), Token(1)).unwrap();
            group.member(members[1]).unwrap().post(to_first.send_inline(b"two"), Token(2)).unwrap();
            let start = Instant::now();
            let mut events = Vec::new();
            while events.len() < 4 {
                assert!(start.elapsed() < Duration::from_secs(10), "{events:?}");
                events.extend(group.poll());
            }
            // One ends with a receive posted and completions that nobody read; what is of the other comes all the same.
            let receive = |group: &mut Group<Device, Basic, 2>, at: usize| {
                let slice = pd.register(vec![0; 8]).unwrap().1;
                group.member(members[at]).unwrap().post_recv(slice, Token(3)).unwrap();
            };
            receive(&mut group, 0);
            receive(&mut group, 1);
            group.member(members[0]).unwrap().post(to_second.send_inline(b"last"), Token(4)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            group.close(members[0]).unwrap();
            let start = Instant::now();
            let (whose, event) = loop {
                assert!(start.elapsed() < Duration::from_secs(10), "the message did not come");
                if let Some(event) = group.poll() {
                    break event;
                }
            };
            assert!(whose == members[1] && matches!(event, Event::Received(message) if message.len == 4));
            assert!(group.poll().is_none());
            group.close(members[1]).unwrap();
            while group.poll().is_some() {}
        }
    });
}

/// Another queue pair on a completion queue, where the library can tell it from one that was there before.
fn second_on_a_queue(test: &str, made: Result<MemberId, Error>) -> Option<MemberId> {
    match made {
        Err(Error::Device { verb: Verb::CreateQp, errno }) if errno == libc::EOPNOTSUPP => {
            skipped(test, "this libefa cannot tell queue pairs on one completion queue apart");
            None
        }
        made => Some(made.unwrap()),
    }
}

#[test]
fn r21_what_a_closed_member_left_unread_ends_nothing_of_the_next_with_its_number() {
    on_each_path("left", |[ctx, other]| {
        let (pd, other_pd) = (ctx.alloc_pd().unwrap(), other.alloc_pd().unwrap());
        let mut to = other_pd.endpoint(other.require::<Basic>().unwrap(), Depth::new(64, 64)).unwrap();
        let mut group = pd.group::<Basic, 4>(ctx.require::<Basic>().unwrap(), 256).unwrap();
        let mut numbers = Vec::new();
        for _ in 0..20 {
            let made = group.endpoint(Depth::new(4, 4));
            let Some(first) = second_on_a_queue("left", made) else { return };
            numbers.push(group.queue_pair(first).unwrap().qpn());
            let (peer, _back) = efa_core::connect::introduce(group.queue_pair(first).unwrap(), &to).unwrap();
            for token in 0..4 {
                to.post_recv(other_pd.register(vec![0; 64]).unwrap().1, Token(9)).unwrap();
                group.member(first).unwrap().post(peer.send_inline(b"one"), Token(token)).unwrap();
            }
            (0..4).for_each(|_| drop(wait(&mut to)));
            std::thread::sleep(Duration::from_millis(5));
            group.close(first).unwrap();
            let second = match group.endpoint(Depth::new(4, 4)) {
                Err(Error::UnreadCompletions { .. }) => {
                    while group.poll().is_some() {}
                    continue;
                }
                made => match second_on_a_queue("left", made) {
                    Some(second) => second,
                    None => return,
                },
            };
            // Nobody has a receive for these.
            let (peer, _back) = efa_core::connect::introduce(group.queue_pair(second).unwrap(), &to).unwrap();
            for token in 0..4 {
                group.member(second).unwrap().post(peer.send_inline(b"waits"), Token(token)).unwrap();
            }
            assert!((0..100).find_map(|_| group.poll()).is_none(), "{numbers:?}");
            group.close(second).unwrap();
            while group.poll().is_some() {}
        }
    });
}

#[test]
fn an_operation_whose_address_handle_is_gone_before_its_doorbell_fails_and_gives_its_buffer_back() {
    on_each_path("gone", |[a, b]| {
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(a.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let mut to = b_pd.endpoint(b.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
        let (peer, _back) = efa_core::connect::introduce(&from, &to).unwrap();
        let mut batch = from.batch();
        batch.push(peer.send(a_pd.register(vec![1; 8]).unwrap().1), Token(1)).unwrap();
        batch.push(peer.send_inline(b"also"), Token(2)).unwrap();
        drop(peer);
        batch.submit();
        let mut slices = 0;
        for _ in 0..2 {
            let Event::Failed { failure, mut buffers, .. } = wait(&mut from) else { panic!("it was sent") };
            assert!(failure.to_string().contains("address handle"), "{failure}");
            slices += usize::from(buffers.take_slice().is_some());
        }
        assert_eq!(slices, 1);
        // The queue pair goes on.
        let (peer, _back) = efa_core::connect::introduce(&from, &to).unwrap();
        to.post_recv(b_pd.register(vec![0; 8]).unwrap().1, Token(3)).unwrap();
        from.post(peer.send_inline(b"fine"), Token(3)).unwrap();
        assert!(matches!(wait(&mut from), Event::Sent(_)) && matches!(wait(&mut to), Event::Received(_)));
    });
}

#[test]
fn r10_wide_entries_carry_80_bytes_inline_where_libefa_knows_them() {
    type WideKind = Srd<{ ops::SEND | ops::RDMA_WRITE | ops::RDMA_WRITE_WITH_IMM }, Solicited, Wide>;
    on_each_path("wide", |[a, b]| {
        let (Ok(kind), Ok(other)) = (a.require::<WideKind>(), b.require::<WideKind>()) else {
            return skipped(
                "wide",
                &format!("no wide entries over the {} path of this libefa and device", a.data_path()),
            );
        };
        let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
        let mut from = a_pd.endpoint(kind, Depth::new(4, 4)).unwrap();
        let mut to = b_pd.endpoint(other, Depth::new(4, 4)).unwrap();
        assert_eq!((from.granted().entry_size, from.granted().inline), (128, 80));
        let (peer, _initiator) = efa_core::connect::introduce(&from, &to).unwrap();
        let exposed =
            b_pd.expose(Pages::new(4096, PageSize::Base).unwrap(), b.require::<RemoteWrite>().unwrap()).unwrap();
        let window = peer.window::<RemoteWrite>(exposed.grant(&to).unwrap().as_bytes()).unwrap();
        for round in 0..20u8 {
            let bytes: [u8; 80] = core::array::from_fn(|at| at as u8 ^ round);
            to.post_recv(b_pd.register(vec![0; 80]).unwrap().1, Token(1)).unwrap();
            from.post(peer.send_inline(bytes), Token(2)).unwrap();
            assert!(matches!(wait(&mut from), Event::Sent(_)));
            let Event::Received(mut message) = wait(&mut to) else { panic!("no message") };
            assert!(message.len == 80 && message.buffers.take_slice().unwrap()[..] == bytes);
            to.post_recv(b_pd.register(vec![0; 8]).unwrap().1, Token(3)).unwrap();
            from.post(peer.write_inline(bytes, window.range(8..88).unwrap()).imm(round.into()), Token(4)).unwrap();
            assert!(matches!(wait(&mut from), Event::Written(_)));
            assert!(matches!(wait(&mut to), Event::WriteArrived(arrived) if arrived.imm == u32::from(round)));
            let mut copy = [0; 80];
            exposed.copy_out(8, &mut copy).unwrap();
            assert_eq!(copy, bytes);
        }
    });
}

#[test]
fn a_queue_pair_for_low_latency_is_made_where_libefa_has_service_levels_and_refused_else() {
    on_each_path("service levels", |[a, b]| {
        let depth = Depth::new(8, 8).service_level(8);
        let [a_pd, b_pd] = [&a, &b].map(|ctx| ctx.alloc_pd().unwrap());
        let made = a_pd.endpoint(a.require::<Basic>().unwrap(), depth);
        let mut a_end = match made {
            Ok(endpoint) => endpoint,
            Err(error) => {
                assert!(matches!(error, Error::Device { verb: Verb::CreateQp, .. }), "{error}");
                return skipped("service levels", "this libefa has no service levels");
            }
        };
        let mut b_end = b_pd.endpoint(b.require::<Basic>().unwrap(), depth).unwrap();
        let (to_b, _to_a) = efa_core::connect::introduce(&a_end, &b_end).unwrap();
        b_end.post_recv(b_pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
        a_end.post(to_b.send_inline(b"soon"), Token(2)).unwrap();
        assert!(matches!(wait(&mut b_end), Event::Received(_)) && matches!(wait(&mut a_end), Event::Sent(_)));
        // A level that the device has not, and any of UD.
        let unknown = a_pd.endpoint(a.require::<Basic>().unwrap(), depth.service_level(3));
        assert!(matches!(unknown, Err(Error::Device { verb: Verb::CreateQp, .. })), "{unknown:?}");
        let ud = a_pd.endpoint(a.require::<Ud>().unwrap(), depth);
        assert!(matches!(ud, Err(Error::Device { verb: Verb::CreateQp, .. })), "{ud:?}");
    });
}
