//! Software devices that are opened like an EFA: each opening has sockets of its own, as in a process of its own.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use efa_core::connect::{Side, connect, introduce};
use efa_core::memory::{PageSize, Pages, RemoteReadWrite};
use efa_core::qp::{Depth, Endpoint, Srd};
use efa_core::soft::Profile;
use efa_core::work::Event;
use efa_core::{Context, Gid, Notified, ProtectionDomain, Provider, Token};
use efa_os::soft::{Channel, Device, Options};
use efa_os::{AnyDevice, Choice, Error};

/// Nothing here takes as long.
const LIMIT: Duration = Duration::from_secs(20);

fn options(name: &str) -> Options {
    Options::new(Profile::RDMA).fabric(&format!("{name}-{}", std::process::id()))
}

fn pair(name: &str) -> [Side<Device>; 2] {
    let open = || Context::open(options(name).open().unwrap().swap_remove(0));
    connect([open(), open()], Depth::new(8, 8)).unwrap()
}

/// Polls both until the first has an event.
#[track_caller]
fn event(of: &mut Side<Device>, other: &mut Side<Device>) -> Event {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(event) = of.endpoint.poll() {
            return event;
        }
        assert!(other.endpoint.poll().is_none(), "the other side has an event first");
        assert!(Instant::now() < end, "nothing came");
    }
}

#[test]
fn whoever_opens_a_device_on_the_same_fabric_reaches_it_by_polling_alone() {
    let [mut a, mut b] = pair("reach");
    assert_ne!(a.ctx.gid(), b.ctx.gid());
    b.endpoint.post_recv(b.pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(2)).unwrap();
    let Event::Received(message) = event(&mut b, &mut a) else { panic!() };
    assert_eq!(&message.buffers.into_slice().unwrap()[..5], b"hello");
    assert!(matches!(event(&mut a, &mut b), Event::Sent(done) if done.token == Token(2)));
    let frames = a.ctx.provider().frames();
    assert!(frames.sent > 0 && frames.received > 0 && frames.lost == 0, "{frames:?}");
}

#[test]
fn who_does_not_poll_is_driven_by_a_thread_of_his_own() {
    let [mut a, b] = pair("driven");
    let memory = Pages::new(4096, PageSize::Base).unwrap();
    let shared = b.pd.expose(memory, b.ctx.require::<RemoteReadWrite>().unwrap()).unwrap();
    let window = a.peer.window::<RemoteReadWrite>(shared.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    let (device, stop) = (b.ctx.provider().clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| device.run(&stop));
        let (source, target) = a.pd.register(vec![7; 8192]).unwrap().1.split_at(4096).unwrap();
        a.endpoint.post(a.peer.write(source, window), Token(1)).unwrap();
        let begun = Instant::now();
        let mut done = || {
            loop {
                match a.endpoint.poll() {
                    Some(event) => return event,
                    None => assert!(begun.elapsed() < LIMIT, "nothing came"),
                }
            }
        };
        assert!(matches!(done(), Event::Written(_)));
        a.endpoint.post(a.peer.read(target, window), Token(2)).unwrap();
        let begun = Instant::now();
        let read = loop {
            match a.endpoint.poll() {
                Some(Event::Read(read)) => break read,
                Some(event) => panic!("{event:?}"),
                None => assert!(begun.elapsed() < LIMIT, "nothing came"),
            }
        };
        assert!(read.buffers.into_slice().unwrap().iter().all(|byte| *byte == 7));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn devices_that_are_opened_together_have_addresses_that_follow_each_other_and_others_are_refused() {
    let first = Gid::from_parts(0xFE80 << 48, 7);
    let options = options("together").gid(first).devices(3);
    let devices = options.open().unwrap();
    assert_eq!(
        devices.iter().map(Provider::gid).collect::<Vec<_>>(),
        [7, 8, 9].map(|n| Gid::from_parts(0xFE80 << 48, n))
    );
    let error = options.open().unwrap_err();
    assert!(
        matches!(&error, Error::Claim(claim) if claim.is_taken()) && error.to_string().contains("fe80::7"),
        "{error}"
    );
    drop(devices);
    options.open().unwrap();

    assert!(matches!(options.clone().devices(0).open(), Err(Error::Linked(_))));
    for too_many in [9, u32::MAX] {
        let error = options.clone().devices(too_many).open().unwrap_err();
        assert!(matches!(error, Error::Linked(_)) && error.to_string().contains('8'), "{error}");
    }
    assert!(matches!(options.fabric("no/name").open(), Err(Error::Fabric(_))));
}

#[test]
fn h05_what_was_asked_for_runs_or_is_an_error_and_what_runs_instead_is_told() {
    let soft = options("choice");
    let chosen = AnyDevice::choose(Choice::Soft, &soft).unwrap();
    assert!(matches!(chosen.devices[..], [AnyDevice::Soft(_)]) && chosen.instead_of.is_none());
    match AnyDevice::choose(Choice::Efa, &soft) {
        Ok(chosen) => assert!(chosen.devices.iter().all(|device| matches!(device, AnyDevice::Efa(_)))),
        // Never a software device.
        Err(error) => {
            assert!(matches!(error, Error::Load(_) | Error::NoDevice { .. }), "{error}");
            let chosen = AnyDevice::choose(Choice::EfaElseSoft, &soft).unwrap();
            assert!(matches!(chosen.devices[..], [AnyDevice::Soft(_)]));
            assert_eq!(chosen.instead_of, Some(error));
        }
    }
}

#[test]
fn the_same_program_runs_on_whichever_device_was_chosen() {
    let soft = options("any").devices(2);
    let devices = AnyDevice::choose(Choice::Soft, &soft).unwrap().devices;
    let [mut a, mut b] =
        connect([devices[0].clone(), devices[1].clone()].map(Context::open), Depth::new(8, 8)).unwrap();
    assert_eq!(a.ctx.name(), "software0");
    b.endpoint.post_recv(b.pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"hello"), Token(2)).unwrap();
    assert!(matches!(b.wait(), Some(Event::Received(_))) && matches!(a.wait(), Some(Event::Sent(_))));
    a.endpoint.close().unwrap();
    b.endpoint.close().unwrap();
    assert!(devices.iter().all(|device| device.leaks().queue_pairs() == 0));
}

/// What this thread has used of a processor.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

/// The next event, asleep while there is none.
#[track_caller]
fn asleep(endpoint: &mut Endpoint<Notified<Device>>, channel: &Channel, begun: Instant) -> Event {
    loop {
        if let Some(event) = endpoint.poll() {
            return event;
        }
        if let Some(event) = endpoint.arm().unwrap() {
            return event;
        }
        channel.wait(Some(LIMIT)).unwrap();
        assert!(begun.elapsed() < LIMIT, "nothing came");
    }
}

#[test]
fn r30_two_sides_that_sleep_are_woken_for_each_of_many_messages_and_sleep_else() {
    const MESSAGES: u64 = 5_000;
    let open = || {
        let ctx = Context::open(options("asleep").open().unwrap().swap_remove(0));
        let channel = ctx.provider().channel().unwrap();
        let pd = ctx.alloc_pd().unwrap();
        let endpoint = pd.on_channel(&channel).endpoint(ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
        (pd, endpoint, channel)
    };
    let ((a_pd, mut a, a_channel), (b_pd, mut b, b_channel)) = (open(), open());
    let (to_b, to_a) = introduce(&a, &b).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            b.post_recv(b_pd.register(vec![0; 64]).unwrap().1, Token(0)).unwrap();
            let mut echoed = 0;
            while echoed < MESSAGES || b.in_flight() > 1 {
                match asleep(&mut b, &b_channel, begun) {
                    Event::Received(message) => {
                        b.post_recv(message.buffers.into_slice().unwrap(), Token(0)).unwrap();
                        b.post(to_a.send_inline(&[2]), Token(1)).unwrap();
                        echoed += 1;
                    }
                    Event::Sent(_) => {}
                    event => panic!("{event:?}"),
                }
            }
        });
        let (mut sent, mut received) = (0, 0);
        a.post_recv(a_pd.register(vec![0; 64]).unwrap().1, Token(0)).unwrap();
        a.post(to_b.send_inline(&[1]), Token(1)).unwrap();
        while sent < MESSAGES || received < MESSAGES {
            match asleep(&mut a, &a_channel, begun) {
                Event::Sent(_) => sent += 1,
                Event::Received(message) => {
                    received += 1;
                    a.post_recv(message.buffers.into_slice().unwrap(), Token(0)).unwrap();
                    if received < MESSAGES {
                        a.post(to_b.send_inline(&[1]), Token(1)).unwrap();
                    }
                }
                event => panic!("{event:?}"),
            }
        }
    });
    println!("figure: {MESSAGES} messages each way between two who sleep: {:?}", begun.elapsed());

    // With nothing to do it sleeps: no processor is used. An event of what was polled already may be left, and the answer to
    // the last message be on its way.
    while a_channel.wait(Some(Duration::from_millis(100))).unwrap() > 0 {}
    let before = cpu();
    assert_eq!(a_channel.wait(Some(Duration::from_millis(500))).unwrap(), 0);
    let used = cpu() - before;
    assert!(used < Duration::from_millis(5), "{used:?} of the processor while nothing was to do");
}

/// As [`asleep`], by a reactor that is told of edges: of what is new, and not that something is there still.
#[track_caller]
fn asleep_by_edges(
    endpoint: &mut Endpoint<Notified<Device>>,
    channel: &Channel,
    edges: &OwnedFd,
    begun: Instant,
) -> Event {
    loop {
        if let Some(event) = endpoint.poll() {
            return event;
        }
        if let Some(event) = endpoint.arm().unwrap() {
            return event;
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: an open file, and one struct of ours.
        unsafe { libc::epoll_wait(edges.as_raw_fd(), &mut event, 1, LIMIT.as_millis() as i32) };
        channel.take();
        assert!(begun.elapsed() < LIMIT, "nothing came");
    }
}

/// What tells of the edges of a channel's file.
fn edges(channel: &Channel) -> OwnedFd {
    // SAFETY: it takes a number.
    let edges = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(edges >= 0);
    // SAFETY: made just now, and nobody else's.
    let edges = unsafe { OwnedFd::from_raw_fd(edges) };
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    // SAFETY: open files, and a struct of ours.
    let added = unsafe { libc::epoll_ctl(edges.as_raw_fd(), libc::EPOLL_CTL_ADD, channel.as_raw_fd(), &mut event) };
    assert_eq!(added, 0);
    edges
}

/// Whether a channel's file becomes readable while nobody polls.
fn is_told(channel: &Channel) -> bool {
    let mut file = libc::pollfd { fd: channel.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one struct of ours, of an open file.
    unsafe { libc::poll(&mut file, 1, 1000) == 1 }
}

#[test]
fn r30_who_sleeps_is_told_of_what_a_poll_by_somebody_else_began_and_left() {
    let open = || Context::open(options("left").open().unwrap().swap_remove(0));
    let (here, there) = (open(), open());
    let channel = here.provider().channel().unwrap();
    let pd = here.alloc_pd().unwrap();
    let srd = here.require::<Srd>().unwrap();
    let mut sleeper = pd.on_channel(&channel).endpoint(srd, Depth::new(8, 8)).unwrap();
    // Of the same device, as another thread has it, which polls once and then does something else.
    let mut other = pd.endpoint(srd, Depth::new(8, 8)).unwrap();
    let remote_pd = there.alloc_pd().unwrap();
    let mut remote = remote_pd.endpoint(there.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
    let (_to_remote, to_sleeper) = introduce(&sleeper, &remote).unwrap();
    // The answer takes more frames than one poll sends.
    const BYTES: usize = 4 << 20;
    let memory = Pages::new(BYTES, PageSize::Base).unwrap();
    let shared = pd.expose(memory, here.require::<RemoteReadWrite>().unwrap()).unwrap();
    let window = to_sleeper.window::<RemoteReadWrite>(shared.grant(&sleeper).unwrap().as_bytes()).unwrap();
    let target = remote_pd.register(vec![1; BYTES]).unwrap().1;
    assert!(sleeper.arm().unwrap().is_none());
    assert_eq!(channel.take(), 0);
    remote.post(to_sleeper.read(target, window), Token(1)).unwrap();
    // The request goes out, and somebody else's poll takes it in.
    let begun = Instant::now();
    let before = here.provider().frames().received;
    while here.provider().frames().received == before {
        assert!(remote.poll().is_none());
        assert!(other.poll().is_none());
        assert!(begun.elapsed() < LIMIT, "nothing came");
    }
    assert!(is_told(&channel), "there is an answer to go on with, and nobody is told");
    // Who is told goes on with it.
    let read = loop {
        channel.wait(Some(Duration::from_millis(1))).unwrap();
        match remote.poll() {
            Some(Event::Read(read)) => break read,
            Some(event) => panic!("{event:?}"),
            None => assert!(begun.elapsed() < LIMIT, "nothing came"),
        }
    };
    assert!(read.buffers.into_slice().unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn r30_who_sleeps_is_told_of_a_message_from_this_device_that_its_sender_polled_for_once() {
    let ctx = Context::open(options("once").open().unwrap().swap_remove(0));
    let channel = ctx.provider().channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let srd = ctx.require::<Srd>().unwrap();
    let mut sleeper = pd.on_channel(&channel).endpoint(srd, Depth::new(8, 8)).unwrap();
    let mut sender = pd.endpoint(srd, Depth::new(8, 8)).unwrap();
    let (to_sleeper, _to_sender) = introduce(&sender, &sleeper).unwrap();
    sleeper.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(1)).unwrap();
    let begun = Instant::now();
    for number in 0..200 {
        assert!(sleeper.arm().unwrap().is_none());
        sender.post(to_sleeper.send_inline(b"hello"), Token(2)).unwrap();
        while sender.poll().is_none() {
            assert!(is_told(&channel), "message {number} is on its way, and nobody is told");
            let _ = channel.take();
        }
        match asleep(&mut sleeper, &channel, begun) {
            Event::Received(message) => {
                sleeper.post_recv(message.buffers.into_slice().unwrap(), Token(1)).unwrap();
            }
            event => panic!("{event:?}"),
        }
    }
}

#[test]
fn r30_several_who_sleep_on_one_device_while_others_poll_now_and_then_all_go_on() {
    const MESSAGES: u64 = 2_000;
    let open = || Context::open(options("several").open().unwrap().swap_remove(0));
    let (here, there) = (open(), open());
    let [pd, remote_pd] = [&here, &there].map(|ctx| ctx.alloc_pd().unwrap());
    let waiting = |ctx: &Context<Device>, pd: &ProtectionDomain<Device>| {
        let channel = ctx.provider().channel().unwrap();
        let mut endpoint = pd.on_channel(&channel).endpoint(ctx.require::<Srd>().unwrap(), Depth::new(8, 8)).unwrap();
        endpoint.post_recv(pd.register(vec![0; 64]).unwrap().1, Token(0)).unwrap();
        (endpoint, channel)
    };
    let begun = Instant::now();
    let stop = AtomicBool::new(false);
    let slowest = std::thread::scope(|scope| {
        // Now and then, and never until all is done.
        let sometimes = scope.spawn(|| {
            let mut other = pd.endpoint(here.require::<Srd>().unwrap(), Depth::new(1, 1)).unwrap();
            let mut polls = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                polls += 1;
                assert!(other.poll().is_none());
                std::thread::sleep(Duration::from_micros((polls % 97).into()));
            }
        });
        // Two pairs between the devices, and one within the first.
        let pairs = [(&there, &remote_pd), (&there, &remote_pd), (&here, &pd)].map(|(ctx, pd_of_b)| {
            let (mut a, a_channel) = waiting(&here, &pd);
            let (mut b, b_channel) = waiting(ctx, pd_of_b);
            let (to_b, to_a) = introduce(&a, &b).unwrap();
            let b_edges = edges(&b_channel);
            scope.spawn(move || {
                let mut ends = 0;
                while ends < 2 * MESSAGES {
                    if let Event::Received(message) = asleep_by_edges(&mut b, &b_channel, &b_edges, begun) {
                        b.post_recv(message.buffers.into_slice().unwrap(), Token(0)).unwrap();
                        b.post(to_a.send_inline(&[2]), Token(1)).unwrap();
                    }
                    ends += 1;
                }
            });
            scope.spawn(move || {
                let mut slowest = Duration::ZERO;
                for _ in 0..MESSAGES {
                    let asked = Instant::now();
                    a.post(to_b.send_inline(&[1]), Token(1)).unwrap();
                    for _ in 0..2 {
                        match asleep(&mut a, &a_channel, begun) {
                            Event::Sent(_) => {}
                            Event::Received(message) => {
                                a.post_recv(message.buffers.into_slice().unwrap(), Token(0)).unwrap();
                            }
                            event => panic!("{event:?}"),
                        }
                    }
                    slowest = slowest.max(asked.elapsed());
                }
                slowest
            })
        });
        let slowest = pairs.map(|pair| pair.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        sometimes.join().unwrap();
        slowest
    });
    println!("figure: 3 times {MESSAGES} questions of those who sleep: {:?}, the slowest {slowest:?}", begun.elapsed());
}
