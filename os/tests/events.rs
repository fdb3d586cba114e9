//! Sleeping until something completes, and what a device tells unasked, on real libraries. As `devices.rs`.
#![allow(missing_docs)]

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{on_each_path, rounds, skipped};
use efa_core::connect::introduce;
use efa_core::flags::{QpAttrMask as Mask, SendOps};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Group, QpAttr, QpKind, QpState, QpType, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, CqInit, Error, Limit, Notified, Provider, Qkey, QpInit, Token, Verb};
use efa_os::{AsyncEvent, Channel, Device, PortEvent, QueuePairEvent};

/// SENDs alone: what every libefa has.
type Basic = Srd<{ ops::SEND | ops::SEND_WITH_IMM }>;
type Features = <Basic as QpKind>::Features;

const LONG: Duration = Duration::from_secs(20);

/// One that sleeps, and one that sends to it.
struct Stage {
    waiting: Endpoint<Notified<Device>, Basic>,
    sender: Endpoint<Device, Basic>,
    to_waiting: Peer<Mutual, Features>,
    to_sender: Peer<Mutual, Features>,
    channel: Channel,
    pds: [efa_core::ProtectionDomain<Device>; 2],
}

fn stage(contexts: &[Context<Device>; 2], depth: Depth) -> Stage {
    let [ours, theirs] = contexts;
    let channel = ours.provider().channel().unwrap();
    let pds = [ours.alloc_pd().unwrap(), theirs.alloc_pd().unwrap()];
    let waiting = pds[0].on_channel(&channel).endpoint(ours.require::<Basic>().unwrap(), depth).unwrap();
    let sender = pds[1].endpoint(theirs.require::<Basic>().unwrap(), depth).unwrap();
    let (to_waiting, to_sender) = introduce(&sender, &waiting).unwrap();
    Stage { waiting, sender, to_waiting, to_sender, channel, pds }
}

impl Stage {
    fn receive(&mut self, token: u64) {
        let target = self.pds[0].register(vec![0; 16]).unwrap().1;
        self.waiting.post_recv(target, Token(token)).unwrap();
    }

    /// A message is sent, and has arrived.
    fn send(&mut self, token: u64) {
        self.sender.post(self.to_waiting.send_inline(b"x"), Token(token)).unwrap();
        let start = Instant::now();
        while self.sender.in_flight() > 0 {
            self.sender.poll();
            assert!(start.elapsed() < LONG, "it was not sent");
        }
    }
}

/// Whether a file is readable, as poll(2) says, within that time.
fn readable(file: impl AsFd, within: Duration) -> bool {
    let mut waiting = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one struct of ours, of an open file.
    let found = unsafe { libc::poll(&mut waiting, 1, within.as_millis() as i32) };
    assert!(found >= 0);
    found == 1
}

/// Does not hang: what does is a failure of this, not of whoever waits for the tests.
fn in_time(what: &str, run: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    if is_done.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("{what} hangs");
    }
    thread.join().unwrap();
}

#[test]
fn r30_ten_thousand_messages_come_by_events_and_no_wake_up_is_lost() {
    // Fewer only where `EFA_OS_ROUNDS` says so.
    let messages = 20 * u64::from(rounds(500));
    on_each_path("messages by events", |contexts| {
        let Stage { mut waiting, mut sender, to_waiting, to_sender: _to_sender, channel, pds } =
            stage(&contexts, Depth::new(16, 16));
        let path = contexts[0].data_path();
        let arrived = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut sent, mut moved) = (0, Instant::now());
                while sent < messages || sender.in_flight() > 0 {
                    // Now and then whoever waits has all there is, and is let fall asleep.
                    let pauses = sent.is_multiple_of(64);
                    if sent < messages && sender.can_post() && !(pauses && arrived.load(Ordering::Acquire) < sent) {
                        if pauses {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                        sender.post(to_waiting.send_inline(&sent.to_le_bytes()), Token(sent)).unwrap();
                        (sent, moved) = (sent + 1, Instant::now());
                    }
                    match sender.poll() {
                        Some(event) => assert!(matches!(event, Event::Sent(_)), "{event:?}"),
                        None => std::thread::yield_now(),
                    }
                    assert!(moved.elapsed() < 2 * LONG, "after {sent} messages nobody takes more");
                }
            });
            let (mut posted, mut got, mut slept, mut for_nothing) = (0, 0, 0u32, 0u32);
            let mut seen = vec![false; messages as usize];
            let mut free: Vec<_> = (0..16).map(|_| pds[0].register(vec![0; 16]).unwrap().1).collect();
            let mut woken = false;
            while got < messages {
                while let Some(target) = free.pop() {
                    waiting.post_recv(target, Token(posted)).unwrap();
                    posted += 1;
                }
                let event = match waiting.poll() {
                    Some(event) => Some(event),
                    None => waiting.arm().unwrap(),
                };
                let Some(event) = event else {
                    for_nothing += u32::from(std::mem::replace(&mut woken, true));
                    assert!(readable(&channel, LONG), "no event after {got} messages");
                    assert!(channel.take().unwrap() > 0);
                    slept += 1;
                    continue;
                };
                woken = false;
                let Event::Received(mut message) = event else { panic!("{event:?}") };
                let slice = message.buffers.take_slice().unwrap();
                let number = u64::from_le_bytes(slice[..8].try_into().unwrap());
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} came twice");
                free.push(slice);
                got += 1;
                arrived.store(got, Ordering::Release);
            }
            println!(
                "figure: {messages} messages by events over the {path} path: slept {slept} times, {for_nothing} for nothing"
            );
            assert!(slept > 10, "it hardly slept");
        });
    });
}

#[test]
fn r30_the_file_is_readable_from_the_completion_that_was_armed_for_until_the_event_is_taken() {
    on_each_path("file", |contexts| {
        let mut stage = stage(&contexts, Depth::new(8, 8));
        let now = Duration::ZERO;
        (1..4).for_each(|token| stage.receive(token));
        stage.send(1);
        assert!(!readable(&stage.channel, Duration::from_millis(20)), "nobody asked");
        assert!(matches!(stage.waiting.arm(), Ok(Some(Event::Received(_)))), "it was there before");
        // Of what was there when it was armed: whether it comes is the device's choice.
        let _ = stage.channel.wait(Some(Duration::from_millis(50))).unwrap();
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        assert!(matches!(stage.waiting.arm(), Ok(None)), "again is the same");
        assert!(!readable(&stage.channel, Duration::from_millis(20)), "awake for nothing");
        assert_eq!(stage.channel.take(), Ok(0));
        stage.send(2);
        assert!(readable(&stage.channel, LONG));
        stage.send(3);
        assert_eq!(stage.channel.take(), Ok(1), "one event for one arming");
        assert!(!readable(&stage.channel, now));
        let start = Instant::now();
        for _ in 0..2 {
            while !matches!(stage.waiting.poll(), Some(Event::Received(_))) {
                assert!(start.elapsed() < LONG);
            }
        }
        // Its sends tell the same channel.
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        let target = stage.pds[1].register(vec![0; 16]).unwrap().1;
        stage.sender.post_recv(target, Token(9)).unwrap();
        stage.waiting.post(stage.to_sender.send_inline(b"y"), Token(8)).unwrap();
        let sent = loop {
            assert!(stage.channel.wait(Some(LONG)).unwrap() > 0);
            // One that came of the library's polls, if it is none.
            if let Some(event) = stage.waiting.poll().or_else(|| stage.waiting.arm().unwrap()) {
                break event;
            }
        };
        assert!(matches!(sent, Event::Sent(_)), "{sent:?}");
        stage.channel.wait(Some(Duration::from_millis(50))).unwrap();
        let start = Instant::now();
        assert_eq!(stage.channel.wait(Some(Duration::from_millis(30))), Ok(0));
        assert!(start.elapsed() >= Duration::from_millis(30));
    });
}

#[test]
fn r30_a_future_woken_by_the_file_loses_nothing_when_it_is_dropped() {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::{Context as Cx, Poll, Waker};

    /// What a reactor does: the next poll is when the file is readable.
    fn block_on<T>(channel: &Channel, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Cx::from_waker(Waker::noop())) {
                return value;
            }
            assert!(readable(channel, LONG), "asleep for ever");
        }
    }

    /// The next completion. Nothing is in the future that could be lost with it.
    async fn next(qp: &mut Endpoint<Notified<Device>, Basic>, channel: &Channel) -> Event {
        poll_fn(|_| {
            if let Some(event) = qp.poll() {
                return Poll::Ready(event);
            }
            channel.take().unwrap();
            qp.arm().unwrap().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    on_each_path("futures", |contexts| {
        let mut stage = stage(&contexts, Depth::new(8, 8));
        for token in 0..200 {
            stage.receive(token);
            let dropped = {
                let mut future = pin!(next(&mut stage.waiting, &stage.channel));
                future.as_mut().poll(&mut Cx::from_waker(Waker::noop())).is_pending()
            };
            assert!(dropped, "nothing was sent");
            stage.sender.post(stage.to_waiting.send_inline(b"x"), Token(token)).unwrap();
            let event = block_on(&stage.channel, next(&mut stage.waiting, &stage.channel));
            assert!(matches!(event, Event::Received(message) if message.token == Token(token)));
            while stage.sender.in_flight() > 0 {
                stage.sender.poll();
            }
        }
    });
}

#[test]
fn r30_a_ring_that_was_gone_through_more_than_65536_entries_wakes_nobody_for_nothing() {
    on_each_path("counted in 16 bits", |contexts| {
        let mut stage = stage(&contexts, Depth::new(64, 64));
        let mut free: Vec<_> = (0..64).map(|_| stage.pds[0].register(vec![0; 16]).unwrap().1).collect();
        let (mut sent, mut got) = (0u64, 0u64);
        while got < 66_000 {
            // With few doorbells, each of which takes long where the device is emulated.
            let count = free.len();
            let posted = stage.waiting.post_recv_list(&mut free.drain(..).map(|target| (target, Token(1))));
            assert_eq!(posted.unwrap(), count);
            let mut batch = stage.sender.batch();
            while sent < got + 64 {
                match batch.push(stage.to_waiting.send_inline(b"x"), Token(sent)) {
                    Ok(()) => sent += 1,
                    Err(refused) => {
                        let error = refused.error();
                        assert!(matches!(error, Error::BatchFull { .. } | Error::QueueFull { .. }), "{error}");
                        break;
                    }
                }
            }
            batch.submit();
            while stage.sender.poll().is_some() {}
            while let Some(Event::Received(mut message)) = stage.waiting.poll() {
                free.extend(message.buffers.take_slice());
                got += 1;
            }
        }
        while stage.sender.in_flight() > 0 {
            stage.sender.poll();
        }
        while got < sent {
            got += u64::from(stage.waiting.poll().is_some());
        }
        // One that nobody asked for may have come of the library's polls.
        stage.channel.take().unwrap();
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        assert!(!readable(&stage.channel, Duration::from_millis(20)), "after {got} messages");
        stage.receive(1);
        stage.send(1);
        assert_eq!(stage.channel.wait(Some(LONG)), Ok(1));
    });
}

#[test]
fn r30_a_group_and_an_endpoint_of_one_channel_are_told_by_it() {
    on_each_path("shared channel", |[ctx, other]| {
        let mut stage = stage(&[ctx.clone(), other], Depth::new(4, 4));
        let mut group: Group<_, Basic, 4> =
            stage.pds[0].on_channel(&stage.channel).group(ctx.require::<Basic>().unwrap(), 64).unwrap();
        let member = group.endpoint(Depth::new(4, 4)).unwrap();
        let (to_itself, _) = introduce(group.queue_pair(member).unwrap(), group.queue_pair(member).unwrap()).unwrap();
        for round in 0..20 {
            let target = stage.pds[0].register(vec![0; 16]).unwrap().1;
            group.member(member).unwrap().post_recv(target, Token(round)).unwrap();
            assert!(matches!(group.arm(), Ok(None)) && matches!(stage.waiting.arm(), Ok(None)));
            if round % 2 == 0 {
                group.member(member).unwrap().post(to_itself.send_inline(b"x"), Token(round)).unwrap();
            } else {
                stage.receive(round);
                stage.send(round);
            }
            assert!(stage.channel.wait(Some(LONG)).unwrap() > 0, "round {round}");
            let start = Instant::now();
            let mut left = if round % 2 == 0 { 2 } else { 1 };
            while left > 0 {
                left -= u32::from(group.poll().is_some()) + u32::from(stage.waiting.poll().is_some());
                assert!(start.elapsed() < LONG, "round {round}");
            }
            stage.channel.take().unwrap();
            if round % 2 == 1 {
                group.member(member).unwrap().post(to_itself.send_inline(b"x"), Token(round)).unwrap();
                while group.queue_pair(member).unwrap().in_flight() > 0 {
                    group.poll();
                }
                stage.channel.take().unwrap();
            }
        }
    });
}

#[test]
fn r30_channels_and_queues_end_in_any_order_with_events_unread_and_queues_forgotten() {
    on_each_path("ends", |contexts| {
        in_time("an end", move || {
            for order in 0..6 {
                let mut stage = stage(&contexts, Depth::new(4, 4));
                stage.receive(1);
                assert!(matches!(stage.waiting.arm(), Ok(None)));
                stage.send(1);
                assert!(readable(&stage.channel, LONG));
                let Stage { waiting, channel, .. } = stage;
                match order {
                    // The file stays for the queues, and the event in it goes with them.
                    0 => drop((channel, waiting)),
                    1 => {
                        drop(waiting);
                        assert_eq!(channel.take(), Ok(0), "events go with their queue");
                    }
                    // With the event taken.
                    2 => {
                        assert_eq!(channel.take(), Ok(1));
                        drop(waiting);
                    }
                    3 => {
                        let mut waiting = waiting;
                        assert_eq!(channel.take(), Ok(1));
                        assert!(matches!(waiting.arm(), Ok(Some(_))));
                        drop((waiting, channel));
                    }
                    // Forgotten, with the event unread and not.
                    4 => std::mem::forget(waiting),
                    _ => {
                        std::mem::forget(waiting);
                        assert_eq!(channel.take(), Ok(1));
                    }
                }
            }
        });
    });
}

#[test]
fn r30_queues_that_end_while_another_thread_takes_their_events_wait_for_nobody() {
    let rounds = rounds(300);
    on_each_path("ends beside takes", move |contexts| {
        in_time("an end beside a take", move || {
            let (ctx, over) = (contexts[0].clone(), AtomicBool::new(false));
            let channel = ctx.provider().channel().unwrap();
            let pd = ctx.alloc_pd().unwrap();
            let mut taken = 0;
            std::thread::scope(|scope| {
                let takers = [0; 2].map(|_| {
                    scope.spawn(|| {
                        let mut taken = 0;
                        while !over.load(Ordering::Relaxed) {
                            taken += channel.wait(Some(Duration::from_millis(2))).unwrap();
                        }
                        taken
                    })
                });
                for round in 0..u64::from(rounds) {
                    let on_channel = pd.on_channel(&channel);
                    let mut qp = on_channel.endpoint(ctx.require::<Basic>().unwrap(), Depth::new(4, 4)).unwrap();
                    let (to_itself, _) = introduce(&qp, &qp).unwrap();
                    qp.post_recv(pd.register(vec![0; 16]).unwrap().1, Token(1)).unwrap();
                    let _ = qp.arm().unwrap();
                    qp.post(to_itself.send_inline(b"x"), Token(2)).unwrap();
                    if !round.is_multiple_of(3) {
                        while qp.in_flight() > 0 {
                            qp.poll();
                        }
                        // The events come at about now.
                        let until = Instant::now() + Duration::from_micros(round % 50);
                        while Instant::now() < until {}
                    }
                    drop(qp);
                }
                over.store(true, Ordering::Relaxed);
                taken = takers.map(|taker| taker.join().unwrap()).iter().sum();
            });
            println!(
                "figure: {taken} events taken beside {rounds} endpoints that ended, over the {} path",
                ctx.data_path()
            );
            assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().objects()), (0, 0));
        });
    });
}

#[test]
fn r30_who_waits_ends_in_time_though_another_thread_takes_every_event_first() {
    on_each_path("events taken by another", |contexts| {
        let mut stage = stage(&contexts, Depth::new(8, 8));
        let (channel, over, stolen) = (stage.channel.clone(), AtomicBool::new(false), AtomicU32::new(0));
        let most = Duration::from_millis(30);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    stolen.fetch_add(channel.take().unwrap(), Ordering::Relaxed);
                }
            });
            // Until it got nothing, in a time in which there was some: with one processor the others may not have run yet.
            let waiter = scope.spawn(|| {
                let begun = Instant::now();
                let waited = loop {
                    let (start, before) = (Instant::now(), stolen.load(Ordering::Relaxed));
                    let taken = channel.wait(Some(most)).unwrap();
                    if taken == 0 && stolen.load(Ordering::Relaxed) > before || begun.elapsed() > LONG {
                        break (taken, start.elapsed());
                    }
                };
                over.store(true, Ordering::Relaxed);
                waited
            });
            let mut token = 0;
            while !over.load(Ordering::Relaxed) {
                token += 1;
                if stage.waiting.arm().unwrap().is_none() {
                    stage.receive(token);
                    stage.send(token);
                }
            }
            let ((taken, waited), stolen) = (waiter.join().unwrap(), stolen.load(Ordering::Relaxed));
            assert!(taken == 0 && waited >= most && stolen > 0, "{taken} in {waited:?}, {stolen} by another");
        });
    });
}

#[test]
fn r30_a_vector_beyond_those_of_the_device_is_refused_with_the_last_and_another_device_has_other_channels() {
    on_each_path("vectors", |[ctx, other]| {
        let count = ctx.provider().completion_vectors();
        assert!(count > 0);
        let channel = ctx.provider().channel().unwrap();
        let (asked, limit) = (u64::from(count), u64::from(count) - 1);
        let refused = channel.on_vector(count).unwrap_err();
        assert_eq!(refused, Error::AboveLimit { what: Limit::CompletionVector, asked, limit });
        assert!(refused.to_string().contains(&format!("{asked} is above the limit of {limit}")), "{refused}");
        let pd = ctx.alloc_pd().unwrap();
        for vector in 0..count {
            let channel = channel.on_vector(vector).unwrap();
            let basic = ctx.require::<Basic>().unwrap();
            let mut qp = pd.on_channel(&channel).endpoint(basic, Depth::new(4, 4)).unwrap();
            let (to_itself, _) = introduce(&qp, &qp).unwrap();
            assert!(matches!(qp.arm(), Ok(None)));
            qp.post_recv(pd.register(vec![0; 16]).unwrap().1, Token(1)).unwrap();
            qp.post(to_itself.send_inline(b"x"), Token(2)).unwrap();
            assert!(channel.wait(Some(LONG)).unwrap() > 0, "vector {vector}");
        }
        let elsewhere = efa_os::list().unwrap().into_iter().find(|listed| listed.name() == other.name());
        let elsewhere = elsewhere.unwrap().open_with(ctx.data_path()).unwrap().channel().unwrap();
        let refused = pd.on_channel(&elsewhere).endpoint(ctx.require::<Basic>().unwrap(), Depth::new(4, 4));
        assert_eq!(refused.unwrap_err(), Error::Device { verb: Verb::CreateCq, errno: libc::EINVAL });
    });
}

/// A queue pair of the provider's own, with one completion queue, in RTS.
fn raw(device: &Device) -> <Device as Provider>::Qp {
    let init = QpInit::new(QpType::Srd, SendOps::SEND, device.limits().min_send_depth.max(4), 4);
    let entries = init.send_depth + init.recv_depth;
    let cq = device.create_cq(&CqInit { entries, sgid: false, unsolicited: false }).unwrap();
    let pd = device.alloc_pd().unwrap();
    let mut qp = device.create_qp(&pd, &cq, &cq, &init).unwrap();
    let to_init = Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY;
    device.modify_qp(&mut qp, &QpAttr { qkey: Qkey(7), ..QpAttr::to(QpState::Init, to_init) }).unwrap();
    device.modify_qp(&mut qp, &QpAttr::to(QpState::Rtr, Mask::STATE)).unwrap();
    device.modify_qp(&mut qp, &QpAttr::to(QpState::Rts, Mask::STATE | Mask::SQ_PSN)).unwrap();
    qp
}

#[test]
fn an_asynchronous_event_names_itself_and_its_queue_pair_and_holds_nothing_up() {
    on_each_path("asynchronous events", |[ctx, _]| {
        let device = ctx.provider().clone();
        in_time("the end of a queue pair with an event", move || {
            let mut events = device.events().unwrap();
            assert!(!readable(&events, Duration::ZERO) && events.next().is_none());
            let to_sqd = Mask::STATE | Mask::EN_SQD_ASYNC_NOTIFY;
            let attr = QpAttr { sqd_async_notify: true, ..QpAttr::to(QpState::Sqd, to_sqd) };
            for read in [true, false, true] {
                let mut qp = raw(&device);
                device.modify_qp(&mut qp, &attr).unwrap();
                if !readable(&events, Duration::from_millis(500)) {
                    skipped("asynchronous events", "no event of a drained send queue by this device");
                    return;
                }
                if read {
                    let (qpn, event) = (device.queues(&qp).qpn, QueuePairEvent::SendQueueDrained);
                    assert_eq!(events.next(), Some(Ok(AsyncEvent::QueuePair { qpn, event })));
                    assert_eq!(events.next(), None);
                }
                // Whether it was read or not.
                device.destroy_qp(&mut qp).unwrap();
                assert_eq!(events.next(), None, "it goes with its queue pair");
            }
        });
    });
}

#[test]
fn every_asynchronous_event_is_named_and_acknowledged() {
    on_each_path("all asynchronous events", |[ctx, _]| {
        let device = ctx.provider().clone();
        in_time("the end of queues with events", move || {
            for take in [0, 3, 100] {
                let mut qp = raw(&device);
                let qpn = device.queues(&qp).qpn;
                let mut events = device.events().unwrap();
                device.modify_qp(&mut qp, &QpAttr::to(QpState::Err, Mask::STATE)).unwrap();
                if !readable(&events, Duration::ZERO) {
                    skipped("all asynchronous events", "no alarms of this device");
                    return;
                }
                let told: Vec<AsyncEvent> = events.by_ref().take(take).map(Result::unwrap).collect();
                if take == 100 {
                    let queue_pair = |event| AsyncEvent::QueuePair { qpn, event };
                    let port = |event| AsyncEvent::Port { port: 1, event };
                    let failed = AsyncEvent::CompletionQueueError { queue_pairs: vec![qpn] };
                    let expected = [
                        queue_pair(QueuePairEvent::Fatal),
                        queue_pair(QueuePairEvent::RequestError),
                        queue_pair(QueuePairEvent::AccessError),
                        failed.clone(),
                        failed,
                        port(PortEvent::Error),
                        port(PortEvent::Active),
                        port(PortEvent::GidChange),
                        port(PortEvent::PkeyChange),
                        AsyncEvent::DeviceFatal,
                        AsyncEvent::Other { number: 99 },
                    ];
                    assert_eq!(told, expected);
                }
                device.destroy_qp(&mut qp).unwrap();
                drop(qp);
                // What is of the port stays.
                let _ = events.count();
            }
            assert_eq!(device.leaks().objects(), 0);
        });
    });
}
