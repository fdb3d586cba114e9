//! The end: in R34's order, with a deadline and a report, each operation resolved exactly once.

mod common;

use std::collections::HashMap;
use std::thread;

use common::{assert_idle, config, connect, context, page, pair, required, slice, slice_of, wait, wait_failed, zeros};
use efa_core::memory::{Pool, RemoteWrite};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{AnyQueuePair, Depth, Endpoint, InitAttr, RtsAttr, Shutdown, Srd};
use efa_core::soft::{Profile, Side, SoftDevice, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::{Event, Stats};
use efa_core::{Context, Provider, Qkey, Token};

/// Receives and a SEND that waits for one at the peer, all in flight.
fn busy() -> (Side, Side) {
    let (mut a, b) = pair();
    for token in 0..3 {
        a.endpoint.post_recv(zeros(&a.pd, 16), Token(token)).unwrap();
    }
    a.endpoint.post(a.peer.send(zeros(&a.pd, 16)), Token(3)).unwrap();
    a.endpoint.post(a.peer.send([zeros(&a.pd, 8), zeros(&a.pd, 8)]), Token(4)).unwrap();
    assert_idle(&mut a.endpoint);
    (a, b)
}

/// How often each token was resolved, as what, with how many bytes.
fn resolved(events: Vec<Event>) -> HashMap<u64, (usize, &'static str, usize)> {
    let mut found = HashMap::new();
    for event in events {
        let (token, what, bytes) = match &event {
            Event::Failed { failure, buffers } if failure.is_flush() => {
                (failure.token.unwrap(), "flushed", buffers.bytes())
            }
            Event::Reclaimed { token, buffers } => (*token, "reclaimed", buffers.bytes()),
            event => panic!("{event:?}"),
        };
        let entry = found.entry(token.0).or_insert((0, what, bytes));
        entry.0 += 1;
    }
    found
}

#[test]
fn r34_before_the_deadline_all_is_flushed_and_reported_once() {
    let (a, _b) = busy();
    let mut events = Vec::new();
    let report = a.endpoint.shut_down(|| false, |event| events.push(event)).unwrap();
    assert_eq!(report, Shutdown { completed: 5, reclaimed: 0 });
    let expected = (0..5).map(|token| (token, (1, "flushed", 16))).collect();
    assert_eq!(resolved(events), expected);
}

#[test]
fn r34_the_deadline_ends_the_waiting_and_not_what_is_there_already() {
    for patience in 0..6 {
        let (a, _b) = busy();
        let mut events = Vec::new();
        let mut left = patience;
        let expired = || {
            left -= 1;
            left < 0
        };
        let report = a.endpoint.shut_down(expired, |event| events.push(event)).unwrap();
        assert_eq!(report, Shutdown { completed: 5, reclaimed: 0 }, "{patience} turns");
        let expected = (0..5).map(|token| (token, (1, "flushed", 16))).collect();
        assert_eq!(resolved(events), expected);
    }
}

#[test]
fn shutting_down_works_from_every_state_but_reset_which_closes() {
    let ctx = context(Profile::RDMA);
    let pd = ctx.alloc_pd().unwrap();
    let reset = || pd.create_qp(required::<_, Srd>(&ctx), Depth::new(2, 2)).unwrap();
    let init = || reset().init(InitAttr::new(Qkey(1))).unwrap();
    let rts = || init().rtr().unwrap().rts(RtsAttr::new()).unwrap();
    let nothing = Shutdown { completed: 0, reclaimed: 0 };
    let end = || (|| true, |_| ());
    macro_rules! ends {
        ($($qp:expr),*) => {
            $({
                let (expired, sink) = end();
                assert_eq!($qp.shut_down(expired, sink).unwrap(), nothing);
            })*
        };
    }
    ends!(init(), init().rtr().unwrap(), rts(), rts().drain().unwrap(), rts().error().unwrap());
    reset().close().unwrap();
    assert_eq!(ctx.leaks().queue_pairs(), 0);
}

#[test]
fn r40_the_first_cause_is_kept_over_the_flushes_and_failures_that_follow() {
    let (mut a, b) = pair();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    memory.revoke().unwrap();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window), Token(1)).unwrap();
    let first = wait_failed(&mut a.endpoint);
    assert_eq!(first.status(), Some(CompletionStatus::RemoteBadAddress));
    drop(b);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    let second = wait_failed(&mut a.endpoint);
    assert_eq!(second.status(), Some(CompletionStatus::RemoteBadDestQpn), "H20");
    assert!(!first.is_flush() && !second.is_flush());
    for token in 3..6 {
        a.endpoint.post_recv(zeros(&a.pd, 8), Token(token)).unwrap();
    }
    let mut err = a.endpoint.error().unwrap();
    for _ in 0..3 {
        let flush = wait_failed(&mut err);
        assert!(flush.is_flush());
        assert!(flush.to_string().contains("first failure before it"), "{flush}");
    }
    assert_eq!(err.cause(), Some(&first));
    assert_eq!(err.stats(), Stats { stale: 0, flushed: 3 });
    let again = err.reset().unwrap().prepare().unwrap();
    assert_eq!(again.cause(), None);
}

#[test]
fn closing_returns_buffers_in_flight_to_their_regions() {
    let (mut a, _b) = pair();
    let (region, whole) = slice(&a.pd, &[0; 16]);
    let (posted, kept) = whole.split_at(8).unwrap();
    a.endpoint.post_recv(posted, Token(1)).unwrap();
    let (region, kept) = region.close(kept).unwrap_err().into_inner();
    a.endpoint.close().unwrap();
    drop((region, kept));
    assert_eq!((a.ctx.leaks().queue_pairs(), a.ctx.leaks().regions()), (0, 0));
    // Closed to the end: the domain has no handle left but ours, and the device takes a new one.
    let again: Endpoint<SoftDevice> = a.pd.endpoint(required(&a.ctx), Depth::new(1, 1)).unwrap();
    assert_eq!(again.in_flight(), 0);
}

#[test]
fn r20_r21_completions_that_nobody_read_do_not_reach_the_next_queue_pair_of_the_number() {
    let (mut a, mut b) = pair();
    let qpn = a.endpoint.qpn();
    for token in 0..4 {
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
        a.endpoint.post_recv(zeros(&a.pd, 8), Token(token)).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(token)).unwrap();
        b.endpoint.post(b.peer.send_empty(), Token(token)).unwrap();
    }
    for _ in 0..4 {
        let _ = wait(&mut b.endpoint); // the device moves on; A's completions lie unread
    }
    a.endpoint.close().unwrap();
    let mut next: Endpoint<SoftDevice> = a.pd.endpoint(required(&a.ctx), Depth::new(8, 8)).unwrap();
    assert_eq!(next.qpn(), qpn);
    next.post_recv(zeros(&a.pd, 8), Token(9)).unwrap();
    assert_idle(&mut next);
    assert_eq!((next.stats().stale, next.in_flight()), (0, 1));
    let (to_next, _to_b) = connect(&b.endpoint, &next);
    while b.endpoint.poll().is_some() {}
    b.endpoint.post(to_next.send_empty(), Token(10)).unwrap();
    assert!(matches!(wait(&mut next), Event::Received(message) if message.token == Token(9)));
}

#[test]
fn h20_a_peer_that_is_gone_and_a_link_that_is_down_have_their_own_statuses() {
    let (mut a, b) = pair();
    b.ctx.provider().link(false);
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!(failure.status(), Some(CompletionStatus::LocalUnreachRemote));
    assert!(failure.to_string().contains("security group"), "{failure}");
    b.ctx.provider().link(true);
    drop(b.endpoint);
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!(failure.status(), Some(CompletionStatus::RemoteBadDestQpn));
    assert!(failure.to_string().contains("gone"), "{failure}");
}

#[test]
fn handles_keep_their_parents_so_that_any_of_them_may_be_dropped_first() {
    let device = SoftDevice::new(config(Profile::RDMA));
    let ctx = Context::open(device);
    let pd = ctx.alloc_pd().unwrap();
    let id = pd.id();
    let mut qp: Endpoint<SoftDevice> = pd.endpoint(required(&ctx), Depth::new(2, 2)).unwrap();
    let (peer, _to) = connect(&qp, &qp);
    let target = zeros(&pd, 8);
    drop((pd, ctx));
    // To itself, with nothing held but the endpoint, the peer and the slice.
    qp.post_recv(target, Token(1)).unwrap();
    qp.post(peer.send_inline(b"self"), Token(2)).unwrap();
    let mut events = [wait(&mut qp), wait(&mut qp)];
    if matches!(events[0], Event::Sent(_)) {
        events.swap(0, 1);
    }
    let [received, sent] = events;
    assert!(matches!(sent, Event::Sent(_)));
    assert_eq!(&slice_of(received)[..4], b"self");
    assert_eq!(qp.pd_id(), id);
}

/// What an application keeps: it owns all of it and can be moved anywhere.
struct Service<P: Provider> {
    endpoint: Endpoint<P>,
    peer: Peer<Mutual>,
    pool: Pool<4>,
    echoed: u64,
}

impl<P: Provider> Service<P> {
    fn new(side: Side) -> Service<SoftDevice> {
        let (pool, _) = Pool::new(zeros(&side.pd, 4 * 64), 64).unwrap();
        Service { endpoint: side.endpoint, peer: side.peer, pool, echoed: 0 }
    }

    fn listen(&mut self) {
        while let Some(slot) = self.pool.take() {
            self.endpoint.post_recv(slot, Token(0)).unwrap();
        }
    }

    /// Sends back what arrives, `count` times.
    fn echo(mut self, count: u64) -> Self {
        let mut sending = 0;
        while self.echoed < count || sending > 0 {
            match self.endpoint.poll() {
                Some(Event::Received(mut message)) => {
                    let slot = message.buffers.take_slice().unwrap();
                    let imm = message.imm.unwrap();
                    self.endpoint.post(self.peer.send(slot).imm(imm), Token(imm.into())).unwrap();
                    self.echoed += 1;
                    sending += 1;
                }
                Some(event) => {
                    assert!(matches!(event, Event::Sent(_)), "{event:?}");
                    self.pool.put(slice_of(event)).unwrap();
                    sending -= 1;
                    self.listen();
                }
                None => thread::yield_now(),
            }
        }
        self
    }
}

#[test]
fn r39_an_endpoint_in_a_struct_moves_to_a_thread_and_back_with_operations_in_flight() {
    let count: u64 = if cfg!(miri) { 6 } else { 2_000 };
    let config = config(Profile::RDMA).shuffle(true);
    let (a, b): (Side, Side) = pair_of(config, Depth::new(8, 8)).unwrap();
    let (pd, ctx) = (b.pd.clone(), b.ctx.clone());
    let mut service = Service::<SoftDevice>::new(b);
    service.listen();
    let worker = thread::spawn(move || service.echo(count));
    let mut a = a;
    let mut slots = vec![zeros(&a.pd, 64), zeros(&a.pd, 64)];
    let (mut sent, mut back) = (0u64, 0);
    while back < count {
        if sent - back < 2
            && sent < count
            && let Some(mut slot) = slots.pop()
        {
            slot.fill(sent as u8);
            a.endpoint.post_recv(zeros(&a.pd, 64), Token(0)).unwrap();
            a.endpoint.post(a.peer.send(slot).imm(sent as u32), Token(sent)).unwrap();
            sent += 1;
        }
        match a.endpoint.poll() {
            Some(Event::Received(mut message)) => {
                let bytes = message.buffers.take_slice().unwrap();
                assert!(bytes.iter().all(|byte| *byte == message.imm.unwrap() as u8));
                back += 1;
            }
            Some(event) => {
                assert!(matches!(event, Event::Sent(_)), "{event:?}");
                slots.push(slice_of(event));
            }
            None => thread::yield_now(),
        }
    }
    let service = worker.join().unwrap();
    assert_eq!(service.echoed, count);
    let mut pool = service.pool;
    let report = service.endpoint.shut_down(|| false, |event| pool.put(slice_of(event)).unwrap()).unwrap();
    assert_eq!(report.reclaimed, 0);
    assert_eq!(pool.into_slice().unwrap().len(), 4 * 64);
    drop(pd);
    assert_eq!((ctx.leaks().queue_pairs(), ctx.leaks().regions()), (0, 0));
}

#[test]
fn any_queue_pair_of_a_struct_is_closed_whatever_its_state() {
    fn close(qp: AnyQueuePair<SoftDevice, Srd>) {
        let closed = match qp {
            AnyQueuePair::Reset(qp) => qp.close().is_ok(),
            AnyQueuePair::Init(qp) => qp.close().is_ok(),
            AnyQueuePair::Rtr(qp) => qp.close().is_ok(),
            AnyQueuePair::Rts(qp) => qp.close().is_ok(),
            AnyQueuePair::Sqd(qp) => qp.close().is_ok(),
            AnyQueuePair::Sqe(qp) => qp.close().is_ok(),
            AnyQueuePair::Err(qp) => qp.close().is_ok(),
        };
        assert!(closed);
    }
    let ctx = context(Profile::RDMA);
    let pd = ctx.alloc_pd().unwrap();
    let reset = || pd.create_qp(required::<_, Srd>(&ctx), Depth::new(1, 1)).unwrap();
    close(reset().into());
    close(reset().init(InitAttr::new(Qkey(1))).unwrap().into());
    let rts = reset().prepare().unwrap();
    assert!(format!("{:?}", AnyQueuePair::from(rts)).contains("Rts"));
    close(reset().prepare().unwrap().drain().unwrap().into());
    close(reset().prepare().unwrap().error().unwrap().into());
}
