//! R20, R21: completions of a queue pair that is gone.

use efa_core::qp::{Depth, Srd};
use efa_core::soft::Profile;
use efa_core::work::Event;
use efa_core::{Context, Token};

use crate::common::{assert_idle, config, connect, required, slice_of, wait, zeros};
use crate::pair;

#[test]
fn r20_completions_of_a_numbers_last_owner_are_dropped_and_counted_and_end_no_request() {
    let (mut a, mut b) = pair(config(Profile::RDMA).stale_completions(3));
    assert_idle(&mut a.endpoint);
    assert_eq!(a.endpoint.stats().stale, 0, "nobody had this number before");
    for life in 0..if cfg!(miri) { 1 } else { 20 } {
        let qpn = a.endpoint.qpn();
        a.endpoint.close().unwrap();
        a.endpoint = a.pd.endpoint(required::<_, Srd>(&a.ctx), Depth::new(8, 8)).unwrap();
        assert_eq!(a.endpoint.qpn(), qpn);
        (a.peer, b.peer) = connect(&a.endpoint, &b.endpoint);
        // In flight before the first poll: the stale ones are first in both completion queues.
        for token in 0..3 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
            a.endpoint.post_recv(zeros(&a.pd, 8), Token(10 + token)).unwrap();
            a.endpoint.post(a.peer.send(zeros(&a.pd, 8)), Token(20 + token)).unwrap();
            b.endpoint.post(b.peer.send(zeros(&b.pd, 4)), Token(30 + token)).unwrap();
        }
        let mut tokens: Vec<u64> = (0..6)
            .map(|_| {
                let event = wait(&mut a.endpoint);
                assert!(matches!(event, Event::Sent(_) | Event::Received(_)), "{event:?}");
                let token = event.token().unwrap();
                assert_eq!(slice_of(event).len(), 8);
                token.0
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [10, 11, 12, 20, 21, 22]);
        assert_eq!(a.endpoint.stats().stale, 6, "life {life}");
        assert_eq!((a.endpoint.in_flight(), a.endpoint.cause()), (0, None));
        while b.endpoint.in_flight() > 0 {
            assert!(matches!(wait(&mut b.endpoint), Event::Sent(_) | Event::Received(_)));
        }
    }
}

#[test]
fn h31_a_queue_pair_destroyed_with_unread_completions_disturbs_no_other_and_no_successor() {
    let ctx = Context::open(efa_core::soft::SoftDevice::new(config(Profile::RDMA).stale_completions(2)));
    let pd = ctx.alloc_pd().unwrap();
    let make = || pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let (mut kept, mut gone) = (make(), make());
    for round in 0..if cfg!(miri) { 2 } else { 30 } {
        let (to_gone, to_kept) = connect(&kept, &gone);
        gone.post_recv(zeros(&pd, 8), Token(0)).unwrap();
        kept.post_recv(zeros(&pd, 8), Token(1)).unwrap();
        kept.post(to_gone.send_empty(), Token(2)).unwrap();
        gone.post(to_kept.send_empty(), Token(3)).unwrap();
        // Only one of them is polled; the completions of the other are written and stay unread.
        let events = [wait(&mut kept), wait(&mut kept)];
        assert!(events.iter().any(|event| matches!(event, Event::Sent(done) if done.token == Token(2))));
        assert!(events.iter().any(|event| matches!(event, Event::Received(message) if message.token == Token(1))));
        assert_eq!(gone.in_flight(), 2);
        let qpn = gone.qpn();
        drop(gone);
        gone = make();
        assert_eq!(gone.qpn(), qpn);
        assert_idle(&mut kept);
        assert_idle(&mut gone);
        assert_eq!((kept.stats().stale, gone.stats().stale), (0, 4), "round {round}");
    }
}
