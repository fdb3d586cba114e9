//! R30: completion queues that are armed, their channels, and who is woken.

mod common;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context as Cx, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::puppet::Puppet;
use common::{config, page, required, zeros};
use efa_core::connect::introduce;
use efa_core::entry::control1;
use efa_core::memory::RemoteWrite;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Group, QpKind, Srd, Unsolicited, ops};
use efa_core::soft::{Config, Profile, SoftChannel, SoftDevice, Storage};
use efa_core::wire::{EndpointInfo, Hello};
use efa_core::work::Event;
use efa_core::{Context, Error, Gid, Limit, Notified, ProtectionDomain, Provider, Qkey, Qpn, Token, Verb};

type Waiting<K = Srd> = Endpoint<Notified<SoftDevice>, K>;

/// One that waits, and one that sends to it.
struct Stage<K: QpKind = Srd> {
    waiting: Waiting<K>,
    sender: Endpoint<SoftDevice, K>,
    to_waiting: Peer<Mutual, K::Features>,
    channel: SoftChannel,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

fn stage_of<K: QpKind>(config: Config, depth: Depth) -> Stage<K> {
    let ctx = Context::open(SoftDevice::new(config));
    let channel = ctx.provider().channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let waiting = pd.on_channel(&channel).endpoint(required::<_, K>(&ctx), depth).unwrap();
    let sender = pd.endpoint(required::<_, K>(&ctx), depth).unwrap();
    let (to_waiting, _) = introduce(&sender, &waiting).unwrap();
    Stage { waiting, sender, to_waiting, channel, pd, ctx }
}

fn stage() -> Stage {
    stage_of(config(Profile::RDMA), Depth::new(8, 8))
}

impl<K: QpKind> Stage<K> {
    fn turns(&self) {
        (0..20).for_each(|_| self.ctx.provider().progress());
    }
}

impl Stage {
    /// A message arrives, which nobody polled for.
    fn arrive(&mut self, token: u64) {
        self.waiting.post_recv(zeros(&self.pd, 8), Token(token)).unwrap();
        self.sender.post(self.to_waiting.send_empty(), Token(token)).unwrap();
        self.turns();
        while self.sender.poll().is_some() {}
    }

    /// Polls until nothing comes.
    fn drain(&mut self) -> u32 {
        std::iter::from_fn(|| self.waiting.poll()).count() as u32
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting() -> (Arc<Counting>, Waker) {
    let counting = Arc::new(Counting::default());
    (counting.clone(), counting.into())
}

impl Counting {
    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn r30_arming_looks_once_more_and_an_armed_queue_raises_one_event() {
    let mut stage = stage();
    stage.arrive(1);
    assert_eq!(stage.channel.take(), 0, "nobody asked");
    assert!(matches!(stage.waiting.arm(), Ok(Some(Event::Received(_)))), "what was there before the arming");
    assert_eq!(stage.channel.take(), 1, "it was there for the arming to see, too");
    assert!(matches!(stage.waiting.arm(), Ok(None)));
    assert_eq!(stage.channel.take(), 0);
    for token in 2..6 {
        stage.arrive(token);
    }
    assert_eq!(stage.channel.take(), 1, "one event for one arming, whatever completes");
    assert_eq!(stage.channel.take(), 0);
    assert_eq!(stage.drain(), 4);
    stage.arrive(6);
    assert_eq!(stage.channel.take(), 0, "it was not armed again");
    assert_eq!(stage.drain(), 1);
}

#[test]
fn r30_arming_again_or_polling_in_between_asks_for_no_second_event() {
    let mut stage = stage();
    for _ in 0..5 {
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        assert!(stage.waiting.poll().is_none());
    }
    stage.arrive(1);
    assert_eq!(stage.drain(), 1);
    for _ in 0..5 {
        assert!(matches!(stage.waiting.arm(), Ok(None)));
    }
    assert_eq!(stage.channel.take(), 1, "of before; what was armed since waits until it is taken");
}

#[test]
fn r30_sends_and_receives_of_a_queue_pair_tell_one_channel() {
    for depth in [Depth::new(8, 8), Depth::new(8, 8).one_completion_queue()] {
        let mut stage: Stage = stage_of(config(Profile::RDMA), depth);
        let (to_sender, _) = introduce(&stage.waiting, &stage.sender).unwrap();
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        stage.sender.post_recv(zeros(&stage.pd, 8), Token(1)).unwrap();
        stage.waiting.post(to_sender.send_empty(), Token(2)).unwrap();
        stage.turns();
        assert_eq!(stage.channel.take(), 1);
        assert!(matches!(stage.waiting.poll(), Some(Event::Sent(_))));
        assert!(matches!(stage.waiting.arm(), Ok(None)));
        stage.arrive(3);
        assert_eq!(stage.channel.take(), 1);
        assert!(matches!(stage.waiting.poll(), Some(Event::Received(_))));
    }
}

#[test]
fn r30_a_group_is_armed_as_a_whole() {
    let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    let channel = ctx.provider().channel().unwrap();
    let pd = ctx.alloc_pd().unwrap();
    let mut group: Group<_, Srd, 4> = pd.on_channel(&channel).group(ctx.require().unwrap(), 64).unwrap();
    let members = [0; 3].map(|_| group.endpoint(Depth::new(4, 4)).unwrap());
    let (to_last, _) = {
        let [first, last] = [members[0], members[2]].map(|member| group.queue_pair(member).unwrap());
        introduce(first, last).unwrap()
    };
    for round in 0..if cfg!(miri) { 20 } else { 100 } {
        assert!(matches!(group.arm(), Ok(None)), "round {round}");
        group.member(members[2]).unwrap().post_recv(zeros(&pd, 8), Token(1)).unwrap();
        group.member(members[0]).unwrap().post(to_last.send_empty(), Token(2)).unwrap();
        (0..20).for_each(|_| ctx.provider().progress());
        assert_eq!(channel.take(), 1, "round {round}");
        assert!(matches!(group.arm(), Ok(Some(_))), "what is there comes before any sleep");
        assert_eq!(std::iter::from_fn(|| group.poll()).count(), 1);
        channel.take();
    }
}

/// What a program and its peer may do between two sleeps.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive,
    Poll,
    Arm,
    Take,
    Register,
}

#[test]
fn r30_no_wake_up_is_lost_in_any_order_of_arrivals_polls_arms_and_takes() {
    const STEPS: [Step; 5] = [Step::Arrive, Step::Poll, Step::Arm, Step::Take, Step::Register];
    let length = if cfg!(miri) { 2 } else { 7 };
    let mut stage: Stage = stage_of(config(Profile::RDMA), Depth::new(16, 16));
    let (_, spent) = counting();
    for sequence in 0..STEPS.len().pow(length) {
        let steps: Vec<Step> = (0..length).map(|nth| STEPS[sequence / STEPS.len().pow(nth) % STEPS.len()]).collect();
        for step in &steps {
            match step {
                Step::Arrive => stage.arrive(1),
                Step::Poll => drop(stage.waiting.poll()),
                Step::Arm => drop(stage.waiting.arm().unwrap()),
                Step::Take => drop(stage.channel.take()),
                Step::Register => stage.channel.register(&spent),
            }
        }
        // Whatever was before: register, poll, arm, and sleep if there is nothing.
        let (counting, waker) = counting();
        stage.drain();
        stage.channel.register(&waker);
        assert!(matches!(stage.waiting.arm(), Ok(None)), "{steps:?}");
        let before = counting.count();
        if before == 0 {
            stage.arrive(2);
            assert_eq!(counting.count(), 1, "asleep for ever after {steps:?}");
        }
        // Woken by what was older: once that is taken, too.
        stage.channel.take();
        stage.drain();
        let (counting, waker) = self::counting();
        stage.channel.register(&waker);
        assert!(matches!(stage.waiting.arm(), Ok(None)), "{steps:?}");
        assert_eq!(counting.count(), 0, "awake for nothing after {steps:?}");
        stage.arrive(3);
        assert_eq!(counting.count(), 1, "asleep for ever after {steps:?}");
        stage.channel.take();
        stage.drain();
    }
}

#[test]
fn r30_what_was_consumed_is_told_in_16_bits_however_often_the_ring_was_gone_through() {
    let near_wrap = stage_of(config(Profile::RDMA).near_wrap(5), Depth::new(8, 8));
    for (mut stage, messages) in [(stage(), 66_000), (near_wrap, 300)] {
        let messages = if cfg!(miri) { 40 } else { messages };
        for nth in 0..messages {
            stage.arrive(nth);
            assert_eq!(stage.drain(), 1);
            if nth % 97 == 0 {
                assert!(matches!(stage.waiting.arm(), Ok(None)));
                assert_eq!(stage.channel.take(), 0, "nothing is unread after {nth} messages");
                stage.arrive(nth);
                assert_eq!((stage.channel.take(), stage.drain()), (1, 1));
            }
        }
    }
}

#[test]
fn r30_what_was_consumed_is_told_after_each_poll_and_with_each_arming() {
    let device = Puppet::new(Profile::RDMA.caps());
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap().on_channel(&());
    let kind = required::<_, Srd>(&ctx);
    let mut qp = pd.endpoint(kind, Depth::new(4, 4).one_completion_queue()).unwrap();
    let address = EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) };
    let peer = qp.resolve_address(address).unwrap().assert_mutual();
    let mut consumed = 0;
    for round in 0..40 {
        // Up to as many as are in flight, of a ring of eight.
        for place in 0..round % 4 + 1 {
            qp.post(peer.send_empty(), Token(1)).unwrap();
            device.send_done(device.send_id((consumed as usize + place) % 4), 0, control1::OP_SEND);
        }
        for _ in 0..round % 4 + 1 {
            assert!(matches!(qp.poll(), Some(Event::Sent(_))));
            consumed += 1;
            assert_eq!(device.told(), [(false, consumed)]);
        }
        assert!(matches!(qp.arm(), Ok(None)));
        assert_eq!(device.told(), [(true, consumed), (false, consumed)]);
    }
    // What the next life finds was consumed too.
    let qp = qp.error().unwrap();
    device.send_done(0, 0, control1::OP_SEND);
    let _reset = qp.reset().unwrap();
    assert_eq!(device.told(), [(false, consumed + 1)]);
    // Nobody is told where nobody can be woken.
    let mut plain = ctx.alloc_pd().unwrap().endpoint(kind, Depth::new(4, 4)).unwrap();
    assert!(plain.poll().is_none() && device.told().is_empty());
}

#[test]
fn r30_what_was_consumed_of_a_groups_queue_is_told_after_each_poll_and_with_each_arming() {
    let device = Puppet::new(Profile::RDMA.caps());
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap().on_channel(&());
    let mut group: Group<_, Srd, 2> = pd.group(required::<_, Srd>(&ctx), 8).unwrap();
    let id = group.endpoint(Depth::new(4, 4)).unwrap();
    let address = EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) };
    let peer = group.queue_pair(id).unwrap().resolve_address(address).unwrap().assert_mutual();
    device.told();
    for consumed in 1..20 {
        group.member(id).unwrap().post(peer.send_empty(), Token(1)).unwrap();
        device.send_done(device.send_id((consumed as usize - 1) % 4), 0, control1::OP_SEND);
        assert!(matches!(group.poll(), Some((_, Event::Sent(_)))));
        assert_eq!(device.told(), [(false, consumed)]);
        assert!(matches!(group.arm(), Ok(None)));
        assert_eq!(device.told(), [(true, consumed), (false, consumed)]);
    }
}

#[test]
fn a_device_behind_a_channel_has_its_turns_and_its_ends_as_before() {
    let mut stage = stage();
    // Nobody but the one that waits polls.
    stage.waiting.post_recv(zeros(&stage.pd, 8), Token(1)).unwrap();
    stage.sender.post(stage.to_waiting.send_empty(), Token(2)).unwrap();
    assert!((0..100).find_map(|_| stage.waiting.poll()).is_some());
    let pd = stage.pd.on_channel(&stage.channel);
    let before = stage.pd.registrations();
    let _slice = zeros(&pd, 8);
    assert!(pd.registrations() == stage.pd.registrations() && pd.registrations() != before);
    // More of them one after the other than there can be at once.
    for _ in 0..=stage.ctx.limits().max_qp {
        let qp = pd.endpoint(required::<_, Srd>(&stage.ctx), Depth::new(2, 2)).unwrap();
        qp.close().unwrap();
    }
}

#[test]
fn r34_a_device_that_refuses_to_destroy_a_queue_pair_on_a_channel_gives_it_back() {
    let stage: Stage = stage_of(config(Profile::RDMA).fail_destroy(1), Depth::new(2, 2));
    let refused = stage.waiting.close().unwrap_err();
    assert_eq!(refused.error(), Error::Device { verb: Verb::DestroyQp, errno: 5 });
    refused.into_inner().close().unwrap();
}

#[test]
fn r25_lives_on_a_channel_take_their_random_bits_from_the_device_too() {
    let stage = stage();
    let more = [(); 2].map(|()| {
        let pd = stage.pd.on_channel(&stage.channel);
        pd.endpoint(required::<_, Srd>(&stage.ctx), Depth::new(2, 2)).unwrap()
    });
    let lives = [&stage.waiting, &more[0], &more[1]].map(|qp| Hello::parse(qp.hello().as_bytes()).unwrap().incarnation);
    assert!(lives[0] != lives[1] && lives[1] != lives[2] && lives[0] != lives[2], "{lives:?}");
}

/// The next completion of a queue pair.
async fn next(qp: &mut Waiting, channel: &SoftChannel) -> Event {
    poll_fn(|cx| {
        if let Some(event) = qp.poll() {
            return Poll::Ready(event);
        }
        channel.take();
        channel.register(cx.waker());
        qp.arm().unwrap().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

#[test]
fn r30_a_future_that_is_dropped_loses_nothing_and_the_next_one_is_woken() {
    let mut stage = stage();
    for round in 0..50 {
        let (first, waker) = counting();
        {
            let mut future = pin!(next(&mut stage.waiting, &stage.channel));
            assert!(future.as_mut().poll(&mut Cx::from_waker(&waker)).is_pending());
        }
        stage.arrive(round);
        assert_eq!(first.count(), 1, "who had asked is told, though nobody waits any more");
        let (second, waker) = counting();
        let mut future = pin!(next(&mut stage.waiting, &stage.channel));
        let Poll::Ready(Event::Received(message)) = future.as_mut().poll(&mut Cx::from_waker(&waker)) else {
            panic!("the message is there");
        };
        assert_eq!((message.token, second.count()), (Token(round), 0));
    }
}

#[test]
fn r30_a_waker_runs_outside_the_devices_lock_and_the_last_one_registered_is_it() {
    /// Asks the device for something.
    struct Asking(Context<SoftDevice>, Counting);
    impl Wake for Asking {
        fn wake(self: Arc<Self>) {
            drop(self.0.alloc_pd().unwrap());
            self.0.provider().progress();
            self.1.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Drop for Asking {
        fn drop(&mut self) {
            drop(self.0.alloc_pd().unwrap());
        }
    }
    let mut stage = stage();
    let (replaced, other) = counting();
    let asking = Arc::new(Asking(stage.ctx.clone(), Counting::default()));
    assert!(matches!(stage.waiting.arm(), Ok(None)));
    stage.channel.register(&other);
    stage.channel.register(&asking.clone().into());
    stage.arrive(1);
    assert_eq!((asking.1.count(), replaced.count()), (1, 0));
    // With an event that was not taken it is woken at once.
    stage.channel.register(&asking.clone().into());
    assert_eq!(asking.1.count(), 2);
    assert_eq!(stage.channel.take(), 1);
    // And dropped outside the lock, as what is replaced and as what is left of a channel.
    stage.channel.register(&asking.into());
    stage.channel.register(&other);
    stage.channel.register(&Arc::new(Asking(stage.ctx.clone(), Counting::default())).into());
    let Stage { waiting, channel, .. } = stage;
    drop(channel);
    drop(waiting);
}

#[test]
fn r30_a_thread_that_sleeps_until_it_is_woken_gets_every_message() {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let messages: u64 = if cfg!(miri) { 30 } else { 1_500 };
    let Stage { mut waiting, mut sender, to_waiting, channel, pd, ctx: _ctx } = stage();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            let mut next_recv = 0;
            let mut got = 0;
            let mut slept = 0u64;
            while got < messages {
                while next_recv < messages && waiting.can_post_recv() {
                    waiting.post_recv(zeros(&pd, 8), Token(next_recv)).unwrap();
                    next_recv += 1;
                }
                let event = match waiting.poll() {
                    Some(event) => event,
                    None => {
                        channel.take();
                        channel.register(&waker);
                        match waiting.arm().unwrap() {
                            Some(event) => event,
                            None => {
                                let start = Instant::now();
                                std::thread::park_timeout(Duration::from_secs(20));
                                assert!(start.elapsed() < Duration::from_secs(20), "no wake-up after {got} messages");
                                slept += 1;
                                continue;
                            }
                        }
                    }
                };
                assert!(matches!(event, Event::Received(_)), "{event:?}");
                got += 1;
            }
            println!("figure: {slept} sleeps for {messages} messages");
        });
        let mut sent = 0;
        while sent < messages || sender.in_flight() > 0 {
            if sent < messages && sender.can_post() {
                sender.post(to_waiting.send_empty(), Token(sent)).unwrap();
                sent += 1;
            }
            if let Some(event) = sender.poll() {
                assert!(matches!(event, Event::Sent(_)), "{event:?}");
            }
            if sent.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn r30_channels_and_queues_may_go_in_any_order_with_events_untaken() {
    static NIC: Storage<2, 8, 8> = Storage::new();
    let device = NIC.start(Profile::RDMA).unwrap();
    let ctx = Context::open(device.clone());
    for order in 0..3 {
        for _ in 0..4 {
            let channel = device.channel().unwrap();
            let pd = ctx.alloc_pd().unwrap();
            let mut qp = pd.on_channel(&channel).endpoint(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap();
            let (peer, _) = introduce(&qp, &qp).unwrap();
            assert!(matches!(qp.arm(), Ok(None)));
            let (counting, waker) = counting();
            channel.register(&waker);
            qp.post_recv(zeros(&pd, 8), Token(1)).unwrap();
            qp.post(peer.send_empty(), Token(2)).unwrap();
            (0..20).for_each(|_| device.progress());
            assert_eq!(counting.count(), 1);
            match order {
                0 => {
                    drop(channel);
                    assert_eq!(std::iter::from_fn(|| qp.poll()).count(), 2, "the queues keep it");
                    drop(qp);
                }
                1 => {
                    drop(qp);
                    assert_eq!(channel.take(), 0, "events go with their queue");
                }
                _ => {
                    assert_eq!(channel.take(), 2, "of both queues");
                    drop((qp, channel));
                }
            }
        }
    }
    // None was kept: there are as many as at first.
    let all = [0; 2].map(|_| device.channel().unwrap());
    assert_eq!(device.channel().unwrap_err(), Error::Exhausted { what: Limit::Channels, limit: 2 });
    drop(all);
    device.channel().unwrap();
}

#[test]
fn r30_a_channel_of_another_device_is_refused() {
    let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    let other = ctx.provider().neighbour().unwrap().channel().unwrap();
    let pd = ctx.alloc_pd().unwrap().on_channel(&other);
    let refused = pd.endpoint(ctx.require::<Srd>().unwrap(), Depth::new(4, 4)).unwrap_err();
    assert_eq!(refused, Error::Device { verb: Verb::CreateCq, errno: 22 });
    assert!(refused.to_string().contains("its channel is another device's: make it of this one"), "{refused}");
}

#[test]
fn what_is_on_a_channel_is_the_same_device_in_all_else() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let rdma = config(Profile::UNSOLICITED).strict_overruns();
    let mut stage: Stage<Kind> = stage_of(rdma, Depth::new(4, 4).unsolicited(4));
    let notified = stage.waiting.provider().clone();
    let device = stage.ctx.provider();
    assert_eq!(
        (notified.name(), notified.device_id(), notified.gid()),
        (device.name(), device.device_id(), device.gid())
    );
    assert_eq!((notified.caps(), notified.limits()), (device.caps(), device.limits()));
    assert_eq!(notified.data_path(), device.data_path());
    assert_eq!(notified.device().gid(), notified.gid());
    assert!(std::ptr::eq(notified.leaks(), device.leaks()));
    assert_eq!(notified.channel().take(), 0);
    // More unsolicited arrivals than there is room for at once: the device hears of each that was read.
    let memory = page::<_, RemoteWrite>(&stage.ctx, &stage.pd);
    let grant = memory.grant(&stage.waiting).unwrap();
    let window = stage.to_waiting.window::<RemoteWrite>(grant.as_bytes()).unwrap();
    for imm in 0..40 {
        let write = stage.to_waiting.write(zeros(&stage.pd, 8), window.range(0..8).unwrap()).imm(imm);
        stage.sender.post(write, Token(1)).unwrap();
        let sent = (0..1000).find_map(|_| stage.sender.poll());
        assert!(matches!(sent, Some(Event::Written(_))), "{sent:?}");
        assert!(matches!(stage.waiting.poll(), Some(Event::UnsolicitedWrite(_))));
    }
    assert_eq!(device.counters().cq_overruns, 0);
    // Memory and peers of the plain domain are the other's too.
    let on_channel = stage.pd.on_channel(&stage.channel);
    assert_eq!(on_channel.id(), stage.pd.id());
    stage.waiting.post_recv(zeros(&on_channel, 8), Token(2)).unwrap();
    stage.waiting.close().unwrap();
}
