//! The work by efa-core's public types: on the queue pair `a`, which is measured and reaches `b`.
//!
//! Functions whose names begin with `counted_` are what is counted. Of a completion two things are: the event, made where
//! the caller wants it, and the event with its slice taken out of it. In batches slices are taken out of a vector, and in
//! runs events are handed to a function that begins with `uncounted_`, which is left out.

use std::ffi::c_void;

use efa_core::memory::{Buffers, Exposed, PageSize, Pages, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, Group, MemberId, Srd};
use efa_core::work::Event;
use efa_core::{Context, Provider, Token};

use crate::forge::{Forge, Side};
use crate::subject::{BATCH, DEPTH, Op, Phase, Queue, Subject};

type Window = RemoteWindow<RemoteReadWrite>;
type Slices = Vec<Slice>;
type Pairs<P> = Group<P, Srd, 8>;

const BYTES: usize = 64;

#[inline(never)]
fn counted_send<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slice: Slice, token: Token) -> bool {
    qp.post(peer.send(slice), token).is_ok()
}

#[inline(never)]
fn counted_sends<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slices: &mut Slices, token: Token) -> bool {
    let mut batch = qp.batch();
    while let Some(slice) = slices.pop() {
        if batch.push(peer.send(slice), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[inline(never)]
fn counted_write<P: Provider>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: &Window,
    token: Token,
) -> bool {
    qp.post(peer.write(slice, *window), token).is_ok()
}

#[inline(never)]
fn counted_writes<P: Provider>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    slices: &mut Slices,
    window: &Window,
    token: Token,
) -> bool {
    let mut batch = qp.batch();
    while let Some(slice) = slices.pop() {
        if batch.push(peer.write(slice, *window), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[inline(never)]
fn counted_read<P: Provider>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: &Window,
    token: Token,
) -> bool {
    qp.post(peer.read(slice, *window), token).is_ok()
}

#[inline(never)]
fn counted_reads<P: Provider>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    slices: &mut Slices,
    window: &Window,
    token: Token,
) -> bool {
    let mut batch = qp.batch();
    while let Some(slice) = slices.pop() {
        if batch.push(peer.read(slice, *window), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[inline(never)]
fn counted_recv<P: Provider>(qp: &mut Endpoint<P>, slice: Slice, token: Token) -> bool {
    qp.post_recv(slice, token).is_ok()
}

#[inline(never)]
fn counted_recvs<P: Provider>(qp: &mut Endpoint<P>, slices: &mut Slices, token: Token) -> bool {
    let mut list = std::iter::from_fn(|| Some((slices.pop()?, token)));
    qp.post_recv_list(&mut list).is_ok_and(|count| count == BATCH)
}

#[inline(never)]
fn counted_event<P: Provider>(qp: &mut Endpoint<P>) -> Option<Event> {
    qp.poll()
}

#[inline(never)]
fn counted_events<P: Provider>(qp: &mut Endpoint<P>, events: &mut Vec<Event>) {
    for _ in 0..BATCH {
        uncounted_keep(events, qp.poll());
    }
}

#[inline(never)]
fn uncounted_keep(events: &mut Vec<Event>, polled: Option<Event>) {
    events.extend(polled);
}

#[inline(never)]
fn counted_event_sent<P: Provider>(qp: &mut Endpoint<P>) -> Option<(Token, Slice)> {
    match qp.poll() {
        Some(Event::Sent(done)) => Some((done.token, done.buffers.into_slice()?)),
        _ => None,
    }
}

#[inline(never)]
fn counted_event_received<P: Provider>(qp: &mut Endpoint<P>) -> Option<(Token, usize, Slice)> {
    match qp.poll() {
        Some(Event::Received(message)) => Some((message.token, message.len, message.buffers.into_slice()?)),
        _ => None,
    }
}

#[inline(never)]
fn counted_event_of<P: Provider>(group: &mut Pairs<P>) -> Option<(MemberId, Event)> {
    group.poll()
}

#[inline(never)]
fn counted_events_of<P: Provider>(group: &mut Pairs<P>, events: &mut Vec<Event>) {
    for _ in 0..BATCH {
        uncounted_keep_of(events, group.poll());
    }
}

#[inline(never)]
fn uncounted_keep_of(events: &mut Vec<Event>, polled: Option<(MemberId, Event)>) {
    events.extend(polled.map(|(_, event)| event));
}

#[inline(never)]
fn counted_event_sent_of<P: Provider>(group: &mut Pairs<P>) -> Option<(MemberId, Token, Slice)> {
    match group.poll() {
        Some((member, Event::Sent(done))) => Some((member, done.token, done.buffers.into_slice()?)),
        _ => None,
    }
}

/// What is timed of completions, counted or not: the slices are in the vector then.
#[inline(never)]
fn taken<P: Provider>(qp: &mut Endpoint<P>, slices: &mut Slices, count: usize) -> bool {
    (0..count).all(|_| match qp.poll() {
        Some(Event::Sent(done) | Event::Written(done) | Event::Read(done)) => keep(done.buffers, slices),
        Some(Event::Received(message)) => keep(message.buffers, slices),
        _ => false,
    })
}

#[inline(never)]
fn taken_of<P: Provider>(group: &mut Pairs<P>, slices: &mut Slices, count: usize) -> bool {
    (0..count).all(|_| match group.poll() {
        Some((_, Event::Sent(done) | Event::Written(done) | Event::Read(done))) => keep(done.buffers, slices),
        Some((_, Event::Received(message))) => keep(message.buffers, slices),
        _ => false,
    })
}

#[inline(always)]
fn keep(buffers: Buffers, slices: &mut Slices) -> bool {
    buffers.into_slice().map(|slice| slices.push(slice)).is_some()
}

/// Who does what is posted.
pub(crate) enum Device {
    /// The device behind the provider, which this drives.
    Driven(Box<dyn Fn()>),
    /// Nobody: completions are written in its stead, to rings that this makes writable.
    Forged(Box<dyn Fn(*mut c_void, usize)>),
}

/// Both sides, with what they need.
struct Sides<P: Provider> {
    a: Measured<P>,
    b: Endpoint<P>,
    to_b: Peer<Mutual>,
    to_a: Peer<Mutual>,
    window: Window,
    _exposed: Exposed<Pages, RemoteReadWrite>,
    slices: Slices,
    /// The same in sixteens.
    many: Vec<Slices>,
    at_b: Slices,
    events: Vec<Event>,
    timed: bool,
    drive: Option<Box<dyn Fn()>>,
    forge: Option<Forge>,
}

enum Measured<P: Provider> {
    Alone(Endpoint<P>),
    InGroup(Pairs<P>, MemberId),
}

/// The subject on that device, with its completions there.
pub(crate) fn subject<P: Provider>(provider: P, queue: Queue, device: Device, timed: bool) -> Box<dyn Subject> {
    let ctx = Context::open(provider);
    let pd = ctx.alloc_pd().unwrap();
    let srd = || ctx.require::<Srd>().unwrap();
    let depth = Depth::new(DEPTH as u32, DEPTH as u32);
    let slices = || {
        let (_, mut rest) = pd.register(vec![7_u8; BYTES * DEPTH]).unwrap();
        let mut slices = Vec::with_capacity(DEPTH);
        for _ in 1..DEPTH {
            let (slice, more) = rest.split_at(BYTES).unwrap();
            slices.push(slice);
            rest = more;
        }
        slices.push(rest);
        slices
    };
    let a = match queue {
        Queue::Own => Measured::Alone(pd.endpoint(srd(), depth).unwrap()),
        Queue::One => Measured::Alone(pd.endpoint(srd(), depth.one_completion_queue()).unwrap()),
        Queue::Group => {
            let mut group: Pairs<P> = pd.group(srd(), 4 * DEPTH as u32).unwrap();
            let member = group.endpoint(depth).unwrap();
            // Another one, so that it must be found out whose a completion is.
            group.endpoint(Depth::new(16, 16)).unwrap();
            Measured::InGroup(group, member)
        }
    };
    let others = if queue == Queue::Group { 2 } else { 1 };
    let b = pd.endpoint(srd(), depth).unwrap();
    let introduced = match &a {
        Measured::Alone(a) => efa_core::connect::introduce(a, &b),
        Measured::InGroup(group, member) => efa_core::connect::introduce(group.queue_pair(*member).unwrap(), &b),
    };
    let (to_b, to_a) = introduced.unwrap();
    let access = ctx.require::<RemoteReadWrite>().unwrap();
    let exposed = pd.expose(Pages::new(4096, PageSize::Base).unwrap(), access).unwrap();
    let window = to_b.window::<RemoteReadWrite>(exposed.grant(&b).unwrap().as_bytes()).unwrap();
    let window = window.range(0..BYTES as u64).unwrap();
    let (drive, forge) = match device {
        Device::Driven(drive) => (Some(drive), None),
        Device::Forged(unlock) => (None, Some(Forge::new(others, if queue == Queue::Own { 2 } else { 1 }, &unlock))),
    };
    Box::new(Sides {
        a,
        b,
        to_b,
        to_a,
        window,
        _exposed: exposed,
        slices: slices(),
        many: (0..DEPTH / BATCH).map(|_| Vec::with_capacity(BATCH)).collect(),
        at_b: slices(),
        events: Vec::with_capacity(BATCH),
        timed,
        drive,
        forge,
    })
}

fn slice_of(event: Event) -> Slice {
    assert!(matches!(event, Event::Sent(_) | Event::Written(_) | Event::Read(_) | Event::Received(_)), "{event:?}");
    event.into_buffers().into_slice().unwrap()
}

impl<P: Provider> Subject for Sides<P> {
    fn does(&self, phase: Phase) -> bool {
        matches!((&self.a, phase.op()), (Measured::Alone(_), _) | (_, Some(Op::Send | Op::Recv) | None))
    }

    fn prepare(&mut self, phase: Phase) {
        if phase.many() {
            for many in &mut self.many {
                many.extend(self.slices.drain(..BATCH));
            }
        }
        if phase.op() == Some(Op::Send) && self.drive.is_some() {
            for slice in self.at_b.drain(..) {
                self.b.post_recv(slice, Token(2)).unwrap();
            }
        }
    }

    fn post(&mut self, phase: Phase) {
        let (token, to_b, window) = (Token(1), &self.to_b, &self.window);
        let Some(op) = phase.op() else { return };
        let a = match &mut self.a {
            Measured::Alone(a) => a,
            Measured::InGroup(group, member) => {
                for slice in self.slices.drain(..).chain(self.many.iter_mut().flat_map(|many| many.drain(..))) {
                    let mut member = group.member(*member).unwrap();
                    match op {
                        Op::Send => member.post(to_b.send(slice), token).unwrap(),
                        _ => member.post_recv(slice, token).unwrap(),
                    }
                }
                return;
            }
        };
        if phase.many() {
            for slices in &mut self.many {
                assert!(match op {
                    Op::Send => counted_sends(a, to_b, slices, token),
                    Op::Write => counted_writes(a, to_b, slices, window, token),
                    Op::Read => counted_reads(a, to_b, slices, window, token),
                    Op::Recv => counted_recvs(a, slices, token),
                });
            }
        } else {
            for slice in self.slices.drain(..) {
                assert!(match op {
                    Op::Send => counted_send(a, to_b, slice, token),
                    Op::Write => counted_write(a, to_b, slice, window, token),
                    Op::Read => counted_read(a, to_b, slice, window, token),
                    Op::Recv => counted_recv(a, slice, token),
                });
            }
        }
    }

    fn device(&mut self, phase: Phase) {
        let Some(op) = phase.op() else { return };
        if let Some(forge) = &mut self.forge {
            return forge.complete(if op == Op::Recv { Side::Recv } else { Side::Send }, DEPTH);
        }
        if op == Op::Recv {
            for slice in self.at_b.drain(..) {
                self.b.post(self.to_a.send(slice), Token(3)).unwrap();
            }
        }
        if let Some(drive) = &self.drive {
            drive();
        }
    }

    fn complete(&mut self, phase: Phase) {
        let (slices, events) = (&mut self.slices, &mut self.events);
        if self.timed && phase != Phase::Empty {
            let count = if phase.many() { BATCH } else { 1 };
            return (0..DEPTH / count).for_each(|_| {
                assert!(match &mut self.a {
                    Measured::Alone(a) => taken(a, slices, count),
                    Measured::InGroup(group, _) => taken_of(group, slices, count),
                });
            });
        }
        let a = match &mut self.a {
            Measured::Alone(a) => a,
            Measured::InGroup(group, member) => {
                match phase {
                    Phase::Empty => (0..DEPTH).for_each(|_| assert!(counted_event_of(group).is_none())),
                    Phase::Taken(Op::Send) => {
                        slices.extend((0..DEPTH).map(|_| counted_event_sent_of(group).unwrap().2))
                    }
                    Phase::Done { many: true, .. } => {
                        for _ in 0..DEPTH / BATCH {
                            counted_events_of(group, events);
                            slices.extend(events.drain(..).map(slice_of));
                        }
                    }
                    _ => {
                        for _ in 0..DEPTH {
                            let (whose, event) = counted_event_of(group).unwrap();
                            assert!(whose == *member);
                            slices.push(slice_of(event));
                        }
                    }
                }
                return;
            }
        };
        match phase {
            Phase::Empty => (0..DEPTH).for_each(|_| assert!(counted_event(a).is_none())),
            Phase::Taken(Op::Recv) => slices.extend((0..DEPTH).map(|_| counted_event_received(a).unwrap().2)),
            Phase::Taken(_) => slices.extend((0..DEPTH).map(|_| counted_event_sent(a).unwrap().1)),
            Phase::Done { many: false, .. } => slices.extend((0..DEPTH).map(|_| slice_of(counted_event(a).unwrap()))),
            Phase::Done { many: true, .. } => {
                for _ in 0..DEPTH / BATCH {
                    counted_events(a, events);
                    slices.extend(events.drain(..).map(slice_of));
                }
            }
        }
    }

    fn clean_up(&mut self, phase: Phase) {
        assert_eq!(self.slices.len(), DEPTH);
        if matches!(phase.op(), Some(Op::Send | Op::Recv)) && self.drive.is_some() {
            self.at_b.extend((0..DEPTH).map(|_| slice_of(self.b.poll().unwrap())));
        }
    }
}
