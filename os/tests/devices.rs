//! Core on real libraries: whatever device this machine has, an EFA or one of tests/softefa.
//!
//! Feature `system`. `tests/softefa/run` before the program gives it software devices. Without any device each test prints
//! that it was skipped and why, unless `EFA_OS_DEVICE=required`, by which `tests/run` makes that a failure.
#![allow(missing_docs)]

use std::io::Write;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use efa_core::flags::QpAttrMask;
use efa_core::memory::{PageSize, Pages, RemoteReadWrite};
use efa_core::qp::{Depth, Endpoint, InitAttr, QpKind, Srd, Ud};
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Provider, Qkey, SetRnrRetry, Token, Verb};
use efa_examples::pingpong::{self, Operation};
use efa_examples::transfer;
use efa_os::Device;

/// The devices: of two, one to each side; of one, both sides.
fn contexts(test: &str) -> Option<[Context<Device>; 2]> {
    let devices = match efa_os::devices() {
        Ok(devices) => devices,
        Err(error) => {
            assert!(std::env::var_os("EFA_OS_DEVICE").is_none_or(|value| value != "required"), "{error}");
            let mut out = std::io::stdout().lock();
            writeln!(out, "\nfigure: efa-os: skipped {test}: {error}").unwrap();
            return None;
        }
    };
    let [first, second] = [0, 1 % devices.len()].map(|nth| Context::open(devices[nth].clone()));
    Some([first, second])
}

/// The contexts, or the end of the test.
macro_rules! contexts {
    ($test:literal) => {
        match contexts($test) {
            Some(contexts) => contexts,
            None => return,
        }
    };
}

/// The next event, which must come within ten seconds.
#[track_caller]
fn wait<P: Provider, K: QpKind>(endpoint: &mut Endpoint<P, K>) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = endpoint.poll() {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no event came");
        std::thread::yield_now();
    }
}

#[test]
fn a_device_tells_its_name_its_address_its_limits_and_its_libraries() {
    let [ctx, _] = contexts!("attributes");
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
}

#[test]
fn every_operation_at_every_size_brings_every_byte() {
    let contexts = contexts!("operations");
    let caps = contexts.iter().fold(Caps::all(), |caps, ctx| caps & ctx.caps());
    assert!(caps.contains(Caps::RDMA_READ | Caps::RDMA_WRITE), "this device has no RDMA: {caps:?}");
    let options = pingpong::Options {
        operations: Operation::ALL.to_vec(),
        iterations: 20,
        max_size: 100_000,
        seed: 11,
        corrupt: false,
        threads: false,
    };
    let rows = pingpong::run(&options, contexts.clone(), |_| {}).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(rows.len(), pingpong::cases(&options, &contexts[0].limits()).len());
    assert!(Operation::ALL.iter().all(|operation| rows.iter().any(|row| row.operation == *operation)));
}

#[test]
fn a_changed_byte_is_noticed() {
    let contexts = contexts!("corruption");
    let options = pingpong::Options {
        operations: vec![Operation::Write],
        iterations: 5,
        max_size: 64,
        seed: 1,
        corrupt: true,
        threads: false,
    };
    let fault = pingpong::run(&options, contexts, |_| {}).unwrap_err();
    assert!(fault.to_string().contains("expected 0x"), "{fault}");
}

#[test]
fn a_file_arrives_whole_in_chunks_of_any_size() {
    let contexts = contexts!("transfer");
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
}

#[test]
fn datagrams_arrive_behind_their_header() {
    let [a, b] = contexts!("datagrams");
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
}

#[test]
fn a_queue_wraps_many_times_and_its_receives_of_two_buffers_too() {
    let [a, b] = contexts!("wrap");
    let (a_pd, b_pd) = (a.alloc_pd().unwrap(), b.alloc_pd().unwrap());
    let depth = Depth::new(4, 4).recv_buffers(2);
    let mut from = a_pd.endpoint(a.require::<Srd>().unwrap(), depth).unwrap();
    let mut to = b_pd.endpoint(b.require::<Srd>().unwrap(), depth).unwrap();
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
}

#[test]
fn a_queue_pair_goes_around_its_states_and_works_after_reset() {
    let [ctx, _] = contexts!("states");
    let pd = ctx.alloc_pd().unwrap();
    let srd = ctx.require::<Srd>().unwrap();
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
}

#[test]
fn what_is_in_flight_is_flushed_and_reclaimed_when_the_queue_pair_ends() {
    let [ctx, _] = contexts!("shutdown");
    let pd = ctx.alloc_pd().unwrap();
    let mut endpoint = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    for n in 0..8 {
        endpoint.post_recv(pd.register(vec![n as u8; 64]).unwrap().1, Token(n)).unwrap();
    }
    let start = Instant::now();
    let mut ended = 0;
    let report = endpoint.shut_down(|| start.elapsed() > Duration::from_secs(10), |_| ended += 1).unwrap();
    assert_eq!((ended, report.completed + report.reclaimed), (8, 8));
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let [ctx, _] = contexts!("order");
    for order in 0..24 {
        let pd = ctx.alloc_pd().unwrap();
        let mut endpoint = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap();
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
}

#[test]
fn what_the_device_refuses_comes_back_with_its_errno() {
    let [ctx, _] = contexts!("refusals");
    let pd = ctx.alloc_pd().unwrap();
    // Nobody's memory: a page that is not mapped.
    let page = Pages::new(4096, PageSize::Base).unwrap();
    let (region, slice) = pd.register(page).unwrap();
    assert_eq!(region.close(slice).map(|pages| pages.len()).map_err(|refused| refused.error()), Ok(4096));
    // A queue pair that does not move so.
    let qp = pd.create_qp(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap();
    let refused = qp.init(InitAttr::new(Qkey(1)).port(2)).unwrap_err();
    let error = refused.error();
    assert!(matches!(error, Error::Device { verb: Verb::ModifyQp, errno: 95 | 22 }), "{error}");
    refused.into_inner().close().unwrap();
    // Nobody is at an address of zeros.
    let error = efa_core::Provider::create_ah(ctx.provider(), &ctx.provider().alloc_pd().unwrap(), Default::default());
    assert!(matches!(error, Err(Error::Device { verb: Verb::CreateAh, errno: 22 })), "{error:?}");
}

#[test]
fn one_address_handle_serves_all_who_ask_for_it_from_any_thread() {
    let [ctx, _] = contexts!("address handles");
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
}

#[test]
fn a_second_opening_of_the_device_is_a_device_of_its_own() {
    let [a, _] = contexts!("twice");
    let [b, _] = contexts!("twice");
    assert_eq!((a.gid(), a.name()), (b.gid(), b.name()));
    let (theirs, pd) = (b.alloc_pd().unwrap(), a.alloc_pd().unwrap());
    let error = theirs.endpoint(a.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap_err();
    assert!(matches!(error, Error::ForeignToken { .. }), "{error}");
    let refused = pd.expose(Pages::new(1, PageSize::Base).unwrap(), b.require::<RemoteReadWrite>().unwrap());
    assert!(matches!(refused.unwrap_err().error(), Error::ForeignToken { .. }));
}

#[test]
fn a_finite_retry_ends_with_status_10_if_the_device_can_be_told() {
    let [ctx, _] = contexts!("retries");
    let Ok(token) = ctx.require::<SetRnrRetry>() else { return };
    let (pd, srd) = (ctx.alloc_pd().unwrap(), ctx.require::<Srd>().unwrap());
    let target = pd.endpoint(srd, Depth::new(4, 4)).unwrap();
    let rtr = pd.create_qp(srd, Depth::new(4, 4)).unwrap().init(InitAttr::new(Qkey(5))).unwrap().rtr().unwrap();
    let retry = efa_core::qp::RnrRetry::times(1).unwrap();
    let mut from = rtr.rts(efa_core::qp::RtsAttr::new().rnr_retry(token, retry)).unwrap();
    let (peer, _) = efa_core::connect::introduce(&from, &target).unwrap();
    from.post(peer.send_inline(b"x"), Token(1)).unwrap();
    let Event::Failed { failure, .. } = wait(&mut from) else { panic!("it was received") };
    assert!(failure.to_string().contains("receive"), "{failure}");
}

#[test]
fn attribute_masks_are_the_verbs() {
    // What is given to `ibv_modify_qp` is core's mask, as it is.
    assert_eq!(QpAttrMask::SQ_PSN.bits(), 1 << 16);
}
