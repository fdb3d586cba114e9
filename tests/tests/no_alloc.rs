//! After set-up nothing allocates: 10,000 of each operation, from the post to both completions.
#![allow(missing_docs)]

use efa_core::flow::{Arrivals, RecvCredits, Reorder, SendCredits};
use efa_core::memory::{Buffers, Exposed, Frozen, PageSize, Pages, Pool, RemoteReadWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::{Depth, Srd, Unsolicited, ops};
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::Event;
use efa_core::{Token, soft};
use efa_tests::alloc_count::{CountingAllocator, allocations_in};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TIMES: u32 = 10_000;

struct Rig {
    a: Side,
    b: Side,
}

impl Rig {
    fn new() -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(64, 64).recv_buffers(2)).unwrap();
        Self { a, b }
    }

    fn shared(&mut self) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
        let memory = Pages::new(4096, PageSize::Base).unwrap();
        let shared = self.b.pd.expose(memory, self.b.ctx.require().unwrap()).unwrap();
        let window = self.a.peer.window(shared.grant(&self.b.endpoint).unwrap().as_bytes()).unwrap();
        (shared, window)
    }

    /// Polls both sides until so many completions have come.
    fn drive(&mut self, count: usize, mut sink: impl FnMut(Event)) {
        let mut left = count;
        while left > 0 {
            for event in [self.a.endpoint.poll(), self.b.endpoint.poll()].into_iter().flatten() {
                left -= 1;
                sink(event);
            }
        }
    }

    /// Sends and receives over and over, with `post` to send.
    fn sends(mut self, mut post: impl FnMut(&mut Side, &mut Option<Slice>)) {
        let mut source = Some(slice(&self.a));
        let mut target = Some(slice(&self.b));
        none_in(|| {
            self.b.endpoint.post_recv(target.take().unwrap(), Token(0)).unwrap();
            post(&mut self.a, &mut source);
            self.drive(2, |event| match event {
                Event::Sent(done) => source = whole(done.buffers).or(source.take()),
                Event::Received(message) => target = whole(message.buffers),
                other => panic!("{other:?}"),
            });
        });
    }
}

fn none_in(mut once: impl FnMut()) {
    let (allocations, ()) = allocations_in(|| (0..TIMES).for_each(|_| once()));
    assert_eq!(allocations, 0);
}

fn slice(side: &Side) -> Slice {
    side.pd.register(vec![7; 64]).unwrap().1
}

fn whole(mut buffers: Buffers) -> Option<Slice> {
    match (buffers.take_slice(), buffers.take_slice()) {
        (Some(head), Some(tail)) => Some(head.unsplit(tail).unwrap()),
        (slice, _) => slice,
    }
}

#[test]
fn send_allocates_nothing() {
    Rig::new().sends(|a, source| a.endpoint.post(a.peer.send(source.take().unwrap()), Token(1)).unwrap());
}

#[test]
fn send_with_immediate_allocates_nothing() {
    Rig::new().sends(|a, source| a.endpoint.post(a.peer.send(source.take().unwrap()).imm(9), Token(1)).unwrap());
}

#[test]
fn inline_and_empty_sends_allocate_nothing() {
    Rig::new().sends(|a, _| a.endpoint.post(a.peer.send_inline(&[5; 32]), Token(1)).unwrap());
    Rig::new().sends(|a, _| a.endpoint.post(a.peer.send_inline(&[5; 32]).imm(9), Token(1)).unwrap());
    Rig::new().sends(|a, _| a.endpoint.post(a.peer.send_empty().imm(9), Token(1)).unwrap());
}

#[test]
fn send_of_two_buffers_allocates_nothing() {
    Rig::new().sends(|a, source| {
        let (head, tail) = source.take().unwrap().split_at(24).unwrap();
        a.endpoint.post(a.peer.send([head, tail]), Token(1)).unwrap();
    });
}

#[test]
fn sends_of_one_frozen_slice_allocate_nothing() {
    let rig = Rig::new();
    let frozen: Frozen = slice(&rig.a).freeze().unwrap();
    rig.sends(|a, _| a.endpoint.post(a.peer.send(frozen.clone()), Token(1)).unwrap());
}

#[test]
fn receives_of_two_buffers_allocate_nothing() {
    let mut rig = Rig::new();
    let mut target = Some(slice(&rig.b));
    none_in(|| {
        let (head, tail) = target.take().unwrap().split_at(24).unwrap();
        rig.b.endpoint.post_recv([head, tail], Token(0)).unwrap();
        rig.a.endpoint.post(rig.a.peer.send_inline(&[5; 32]), Token(1)).unwrap();
        rig.drive(2, |event| match event {
            Event::Sent(_) => {}
            Event::Received(message) => target = whole(message.buffers),
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn rdma_write_and_read_allocate_nothing() {
    let mut rig = Rig::new();
    let (_shared, window) = rig.shared();
    let mut local = Some(slice(&rig.a));
    none_in(|| {
        let place = window.range(64..128).unwrap();
        rig.a.endpoint.post(rig.a.peer.write(local.take().unwrap(), place), Token(1)).unwrap();
        rig.drive(1, |event| match event {
            Event::Written(done) => local = whole(done.buffers),
            other => panic!("{other:?}"),
        });
        rig.a.endpoint.post(rig.a.peer.read(local.take().unwrap(), place), Token(2)).unwrap();
        rig.drive(1, |event| match event {
            Event::Read(done) => local = whole(done.buffers),
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn rdma_write_with_immediate_allocates_nothing() {
    let mut rig = Rig::new();
    let (shared, window) = rig.shared();
    let (mut local, mut target) = (Some(slice(&rig.a)), Some(slice(&rig.b)));
    let mut copy = [0; 64];
    none_in(|| {
        rig.b.endpoint.post_recv(target.take().unwrap(), Token(0)).unwrap();
        rig.a.endpoint.post(rig.a.peer.write(local.take().unwrap(), window).imm(3), Token(1)).unwrap();
        rig.drive(2, |event| match event {
            Event::Written(done) => local = whole(done.buffers),
            Event::WriteArrived(write) => target = whole(write.buffers),
            other => panic!("{other:?}"),
        });
        shared.copy_out(0, &mut copy).unwrap();
        assert_eq!(copy, [7; 64]);
    });
}

#[test]
fn unsolicited_writes_from_exposed_memory_allocate_nothing() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let depth = Depth::new(8, 8).unsolicited(8);
    let (mut a, mut b): (soft::Side<Kind>, soft::Side<Kind>) = pair_of(Profile::UNSOLICITED, depth).unwrap();
    let expose = |side: &soft::Side<Kind>| {
        let memory = Pages::new(4096, PageSize::Base).unwrap();
        side.pd.expose(memory, side.ctx.require::<RemoteReadWrite>().unwrap()).unwrap()
    };
    let (source, target) = (expose(&a), expose(&b));
    let window = a.peer.window::<RemoteReadWrite>(target.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    none_in(|| {
        a.endpoint.post(a.peer.write(source.part(0..4096).unwrap(), window).imm(3), Token(1)).unwrap();
        let mut left = 2;
        while left > 0 {
            match a.endpoint.poll().or_else(|| b.endpoint.poll()) {
                Some(Event::Written(_) | Event::UnsolicitedWrite(_)) => left -= 1,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    });
}

#[test]
fn batches_of_mixed_operations_and_lists_of_receives_allocate_nothing() {
    let mut rig = Rig::new();
    let (_shared, window) = rig.shared();
    let (mut targets, _) = Pool::<16>::new(rig.b.pd.register(vec![0; 1024]).unwrap().1, 64).unwrap();
    let (mut sources, _) = Pool::<16>::new(rig.a.pd.register(vec![0; 1024]).unwrap().1, 64).unwrap();
    none_in(|| {
        let mut list = core::iter::from_fn(|| targets.take()).map(|slot| (slot, Token(0)));
        assert_eq!(rig.b.endpoint.post_recv_list(&mut list).unwrap(), 16);
        let Side { endpoint, peer, .. } = &mut rig.a;
        let mut batch = endpoint.batch();
        for number in 0..8 {
            let (send, write) = (sources.take().unwrap(), sources.take().unwrap());
            batch.push(peer.send(send), Token(number)).unwrap();
            batch.push(peer.write(write, window).imm(number as u32), Token(number)).unwrap();
        }
        assert_eq!(batch.submit(), 16);
        rig.drive(32, |event| match event {
            Event::Sent(mut done) | Event::Written(mut done) => {
                sources.put(done.buffers.take_slice().unwrap()).unwrap()
            }
            Event::Received(mut message) => targets.put(message.buffers.take_slice().unwrap()).unwrap(),
            Event::WriteArrived(mut write) => targets.put(write.buffers.take_slice().unwrap()).unwrap(),
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn refusals_and_failures_allocate_nothing_and_give_the_buffers_back() {
    let mut rig = Rig::new();
    let (shared, window) = rig.shared();
    drop(shared.revoke().unwrap());
    let mut local = Some(slice(&rig.a));
    none_in(|| {
        let short = window.range(0..8).unwrap();
        let refused = rig.a.endpoint.post(rig.a.peer.write(local.take().unwrap(), short), Token(1)).unwrap_err();
        local = Some(refused.into_inner());
        rig.a.endpoint.post(rig.a.peer.write(local.take().unwrap(), window), Token(2)).unwrap();
        rig.drive(1, |event| match event {
            Event::Failed { failure, buffers } => {
                assert_eq!(failure.status(), Some(CompletionStatus::RemoteBadAddress));
                local = whole(buffers);
            }
            other => panic!("{other:?}"),
        });
    });
}

#[test]
fn counting_and_ordering_allocate_nothing() {
    let mut order = Reorder::<u32, 16>::new();
    let (mut sender, mut receiver) = (SendCredits::new(), RecvCredits::new());
    let mut arrivals = Arrivals::expect(u64::from(TIMES) * 2);
    let mut next = 0;
    none_in(|| {
        order.push(next + 1, 0).unwrap();
        order.push(next, 0).unwrap();
        next += 2;
        assert!(order.pop().is_some() && order.pop().is_some());
        receiver.posted(2);
        sender.add(receiver.tell(1).unwrap());
        assert!(sender.take() && sender.take());
        arrivals.arrived().unwrap();
        arrivals.arrived().unwrap();
    });
    assert!(arrivals.all_here());
}
