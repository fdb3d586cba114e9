//! The send queue in error: SQE and back.

use efa_core::qp::{Depth, QpState, Srd};
use efa_core::soft::{Config, Profile, pair_of};
use efa_core::status::CompletionStatus as Status;
use efa_core::work::Event;
use efa_core::{Error, Token, Verb};

use crate::common::{assert_idle, config, slice, wait, wait_failed};

/// Each device's `n`-th operation fails, and stops the send queue.
fn stopping(n: u32) -> Config {
    config(Profile::RDMA).stop_sends(true).fail_nth(n, Status::RemoteAbort)
}

#[test]
fn r01_a_send_queue_in_error_flushes_while_receives_go_on_and_resume_leads_back() {
    let (mut a, mut b) = pair_of::<Srd>(stopping(2), Depth::new(8, 8)).unwrap();
    b.endpoint.post_recv(slice(&b.pd, &[0; 8]).1, Token(9)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(9)).unwrap();
    assert!(matches!((a.wait(), b.wait()), (Some(Event::Sent(_)), Some(Event::Received(_)))));
    for token in 0..3 {
        a.endpoint.post(a.peer.send(slice(&a.pd, b"12345678").1), Token(token)).unwrap();
    }
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(Status::RemoteAbort));
    for token in 1..3 {
        let failure = wait_failed(&mut a.endpoint);
        assert_eq!((failure.token, failure.is_flush()), (Some(Token(token)), true));
    }
    // What is posted before the program knows is flushed too, and gives its buffer back.
    a.endpoint.post(a.peer.send(slice(&a.pd, b"late").1), Token(3)).unwrap();
    match wait(&mut a.endpoint) {
        Event::Failed { failure, mut buffers } => {
            assert!(failure.is_flush());
            assert_eq!(&buffers.take_slice().unwrap()[..], b"late");
        }
        event => panic!("{event:?}"),
    }
    assert_eq!(a.endpoint.cause().unwrap().token, Some(Token(0)), "R40");

    let mut sqe = a.endpoint.query().unwrap().into_sqe().unwrap();
    sqe.post_recv(slice(&a.pd, &[0; 8]).1, Token(4)).unwrap();
    b.endpoint.post(b.peer.send_inline(b"hello"), Token(5)).unwrap();
    assert!(matches!(b.wait(), Some(Event::Sent(_))), "its receive queue is well");
    assert!(matches!(wait(&mut sqe), Event::Received(message) if message.len == 5));

    let mut endpoint = sqe.resume().unwrap();
    b.endpoint.post_recv(slice(&b.pd, &[0; 8]).1, Token(6)).unwrap();
    endpoint.post(a.peer.send(slice(&a.pd, b"again").1), Token(7)).unwrap();
    assert!(matches!(wait(&mut endpoint), Event::Sent(done) if done.token == Token(7)));
    assert!(matches!(b.wait(), Some(Event::Received(message)) if message.len == 5));
    assert_idle(&mut endpoint);
}

#[test]
fn r01_from_sqe_it_can_also_be_shut_down_or_reset() {
    for reset in [false, true] {
        let (mut a, _b) = pair_of::<Srd>(stopping(1), Depth::new(8, 8)).unwrap();
        a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
        let _ = wait_failed(&mut a.endpoint);
        let sqe = a.endpoint.query().unwrap().into_sqe().unwrap();
        if reset {
            let endpoint = sqe.reset().unwrap().prepare().unwrap();
            assert!(endpoint.can_post() && endpoint.cause().is_none());
        } else {
            let report = sqe.shut_down(|| false, |event| panic!("{event:?}")).unwrap();
            assert_eq!((report.completed, report.reclaimed), (0, 0));
        }
    }
}

#[test]
fn the_state_that_the_device_tells_is_the_type_and_a_refusal_gives_the_queue_pair_back() {
    let (a, b) = pair_of::<Srd>(config(Profile::RDMA).fail_verb(Verb::QueryQp, 1, 5), Depth::new(8, 8)).unwrap();
    let refused = a.endpoint.query().unwrap_err();
    assert_eq!(refused.error(), Error::Device { verb: Verb::QueryQp, errno: 5 });
    let any = refused.into_inner().query().unwrap();
    assert_eq!(any.state(), QpState::Rts);
    let sqd = any.into_rts().unwrap().drain().unwrap();
    assert_eq!(sqd.query().unwrap().state(), QpState::Sqd);
    // Who died is in ERR.
    b.ctx.provider().die();
    assert!(
        matches!(b.endpoint.query(), Err(refused) if refused.error() == Error::Device { verb: Verb::QueryQp, errno: 5 })
    );
}
