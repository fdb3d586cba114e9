//! Every status on any operation, and retries that run out: typed events with a cause and a remedy.

use std::collections::BTreeSet;

use efa_core::qp::{Depth, InitAttr, RnrRetry, RtsAttr, Srd};
use efa_core::soft::{Config, Profile};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::{Cause, Event, Kind};
use efa_core::{Error, Qkey, Token};

use crate::common::{config, required, slice_of, wait, wait_failed, zeros};
use crate::{bytes, look, pair, window};

fn rdma() -> Config {
    config(Profile::RDMA)
}

#[test]
fn h19_each_status_on_the_nth_operation_is_an_event_of_its_own_and_gives_the_buffer_back_unsent() {
    let mut texts = BTreeSet::new();
    let statuses = Status::ALL[1..].iter().copied().chain([Status::Unknown(77)]);
    for status in statuses.filter(|status| !cfg!(miri) || [2, 12].contains(&status.number())) {
        let (mut a, mut b) = pair(rdma().fail_nth(2, status));
        for token in 0..3 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
            a.endpoint.post(a.peer.send(bytes(&a, &[token as u8; 4])), Token(10 + token)).unwrap();
        }
        assert!(matches!(wait(&mut a.endpoint), Event::Sent(done) if done.token == Token(10)));
        let Event::Failed { failure, mut buffers } = wait(&mut a.endpoint) else { panic!("{status:?}") };
        assert_eq!((failure.cause, failure.kind), (Cause::Status(status), Kind::Send));
        assert_eq!((failure.token, failure.qpn), (Some(Token(11)), a.endpoint.qpn()));
        assert_eq!(buffers.take_slice().unwrap()[..], [1; 4]);
        let text = failure.to_string();
        assert!(text.contains(status.cause()) && text.contains(status.remedy()), "{text}");
        assert!(texts.insert(text.clone()), "said before: {text}");
        assert!(matches!(wait(&mut a.endpoint), Event::Sent(done) if done.token == Token(12)));
        // Two of three were executed, and the failed one took no receive.
        for expected in [0, 2] {
            let event = wait(&mut b.endpoint);
            assert!(matches!(event, Event::Received(_)), "{event:?}");
            assert_eq!(slice_of(event)[..4], [expected; 4]);
        }
        assert_eq!(b.endpoint.in_flight(), 1);
        // R40: a flush is a consequence, never the cause.
        let cause = a.endpoint.cause().map(|failure| failure.token);
        assert_eq!(cause, (status != Status::Flushed).then_some(Some(Token(11))));
        assert_eq!(a.endpoint.can_post(), status != Status::LocalQpInternalError);
    }
}

#[test]
fn status_2_on_an_operation_closes_the_queue_and_the_operation_after_it_comes_back() {
    let (mut a, _b) = pair(rdma().fail_nth(1, Status::LocalQpInternalError));
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert!(failure.to_string().contains("make a new queue pair"), "{failure}");
    let refused = a.endpoint.post(a.peer.send(bytes(&a, b"kept")), Token(2)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFailed);
    assert_eq!(refused.into_inner()[..], *b"kept");
}

#[test]
fn a_write_or_read_that_is_made_to_fail_touches_nothing() {
    for (status, reads) in [(Status::RemoteAbort, false), (Status::RemoteBadStatus, true)] {
        let (mut a, b) = pair(rdma().fail_nth(1, status).pieces(8));
        let (memory, window) = window(&b, &a);
        memory.copy_in(0, &[7; 32]).unwrap();
        let target = window.range(0..32).unwrap();
        let local = bytes(&a, &[1; 32]);
        if reads {
            a.endpoint.post(a.peer.read(local, target), Token(1)).unwrap();
        } else {
            a.endpoint.post(a.peer.write(local, target), Token(1)).unwrap();
        }
        let event = wait(&mut a.endpoint);
        let Event::Failed { failure, .. } = &event else { panic!("{event:?}") };
        assert_eq!(failure.status(), Some(status));
        assert_eq!(failure.kind, if reads { Kind::Read } else { Kind::Write });
        assert_eq!(slice_of(event)[..], [1; 32]);
        assert_eq!(look(&memory, 32), [7; 32]);
        let counters = a.ctx.provider().counters();
        assert_eq!((counters.wr_errors, counters.rdma_read_wr_err), (1, reads.into()));
    }
}

#[test]
fn each_device_of_a_wire_counts_its_own_operations() {
    let (mut a, mut b) = pair(rdma().fail_nth(1, Status::RemoteAbort));
    for side in [&mut a, &mut b] {
        side.endpoint.post(side.peer.send_empty(), Token(1)).unwrap();
        assert_eq!(wait_failed(&mut side.endpoint).status(), Some(Status::RemoteAbort));
    }
}

#[test]
fn h21_a_receiver_that_is_made_not_ready_is_retried_as_often_as_was_asked_and_then_answers_10() {
    let cases = [(3, 2, false), (3, 3, true), (3, 7, true), (0, 0, true)];
    for (forced, retries, good) in cases.into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
        let (a, mut b) = pair(rdma().force_rnr(forced));
        let init = a.pd.create_qp(required::<_, Srd>(&a.ctx), Depth::new(8, 8)).unwrap();
        let rtr = init.init(InitAttr::new(Qkey(5))).unwrap().rtr().unwrap();
        let retry = RnrRetry::times(retries).unwrap_or(RnrRetry::FOREVER);
        let mut qp = rtr.rts(RtsAttr::new().rnr_retry(required(&a.ctx), retry)).unwrap();
        let (to_b, _to_a) = crate::common::connect(&qp, &b.endpoint);
        for _ in 0..2 {
            b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
        }
        for _ in 0..2 {
            qp.post(to_b.send_empty(), Token(2)).unwrap();
            match wait(&mut qp) {
                Event::Sent(_) => assert!(good),
                Event::Failed { failure, .. } => {
                    assert!(!good);
                    assert_eq!(failure.status(), Some(Status::RemoteRnr));
                    assert!(failure.to_string().contains("post more receives"), "{failure}");
                }
                event => panic!("{event:?}"),
            }
        }
        assert_eq!(b.endpoint.in_flight(), 2);
        assert_eq!(std::iter::from_fn(|| b.endpoint.poll()).count(), if good { 2 } else { 0 });
    }
}

#[test]
fn what_needs_no_receive_minds_no_receiver_that_is_made_not_ready() {
    let (mut a, b) = pair(rdma().force_rnr(u8::MAX));
    let (memory, window) = window(&b, &a);
    a.endpoint.post(a.peer.write(bytes(&a, &[3; 8]), window.range(0..8).unwrap()), Token(1)).unwrap();
    let written = (0..4).find_map(|_| a.endpoint.poll());
    assert!(matches!(written, Some(Event::Written(_))), "{written:?}");
    assert_eq!(look(&memory, 8), [3; 8]);
}
