//! Receives, one at a time and in lists.

use std::panic::{AssertUnwindSafe, catch_unwind};

use efa_core::memory::{PageSize, Pages, RemoteWrite, Slice};
use efa_core::qp::Depth;
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::work::{Event, Received};
use efa_core::{Error, Limit, Token};

use crate::common::{config, pair, required, slice, slice_of, wait, zeros};
use crate::{received, recv, sent};

#[test]
fn r12_a_receive_of_65535_bytes_is_posted_and_one_of_65536_does_not_wrap_to_none() {
    let (mut a, mut b) = pair();
    let error = Error::AboveLimit { what: Limit::RecvBytes, asked: 65_536, limit: 65_535 };
    let refused = b.endpoint.post_recv(zeros(&b.pd, 65_536), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    assert!(error.to_string().contains("R12"), "{error}");
    let (all, one) = refused.into_inner().split_at(65_535).unwrap();
    b.endpoint.post_recv(all, Token(1)).unwrap();
    a.endpoint.post(a.peer.send(slice(&a.pd, &[7; 8000]).1), Token(1)).unwrap();
    let event = wait(&mut b.endpoint);
    assert!(matches!(&event, Event::Received(message) if message.len == 8000), "{event:?}");
    let all = slice_of(event);
    assert!(all[..8000].iter().all(|byte| *byte == 7) && all[8000..].iter().all(|byte| *byte == 0));
    assert!(all.unsplit(one).is_ok());
}

#[test]
fn r12_no_buffer_of_a_receive_is_longer_than_65535_bytes_whatever_it_is_and_whichever_of_two() {
    let (_, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 4).recv_buffers(2)).unwrap();
    let error = Error::AboveLimit { what: Limit::RecvBytes, asked: 65_536, limit: 65_535 };
    let memory = Pages::new(65_536, PageSize::Base).unwrap();
    let exposed = b.pd.expose(memory, required::<_, RemoteWrite>(&b.ctx)).unwrap();
    let refused = b.endpoint.post_recv(exposed.part(0..65_536).unwrap(), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error);
    b.endpoint.post_recv(exposed.part(0..65_535).unwrap(), Token(1)).unwrap();
    let refused = b.endpoint.post_recv([zeros(&b.pd, 65_536), zeros(&b.pd, 8)], Token(2)).unwrap_err();
    assert_eq!(refused.error(), error);
    let [long, short] = refused.into_inner();
    let refused = b.endpoint.post_recv([short, long], Token(2)).unwrap_err();
    assert_eq!(refused.error(), error);
    let [short, long] = refused.into_inner();
    b.endpoint.post_recv([short, long.split_at(65_535).unwrap().0], Token(2)).unwrap();
}

#[test]
fn r19_a_receive_of_two_buffers_fills_one_after_the_other_if_it_was_asked_for() {
    let (_, mut plain) = pair();
    let refused = plain.endpoint.post_recv([zeros(&plain.pd, 4), zeros(&plain.pd, 4)], Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::RecvBuffers, asked: 2, limit: 1 });
    assert!(refused.to_string().contains("recv_buffers"), "{refused}");

    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 2).recv_buffers(2)).unwrap();
    for round in 0..5 {
        // Receives of one and of two buffers share the ring.
        b.endpoint.post_recv([zeros(&b.pd, 4), zeros(&b.pd, 4)], Token(round)).unwrap();
        recv(&mut b, 100);
        assert!(!b.endpoint.can_post_recv());
        for message in [&b"123456"[..], b"abc"] {
            a.endpoint.post(a.peer.send_inline(message), Token(1)).unwrap();
            let _ = sent(&mut a, 1);
        }
        let Event::Received(Received { len: 6, mut buffers, token, .. }) = wait(&mut b.endpoint) else { panic!() };
        assert_eq!((token, buffers.len(), buffers.bytes()), (Token(round), 2, 8));
        assert_eq!(&buffers.take_slice().unwrap()[..], b"1234");
        assert_eq!(&buffers.take_slice().unwrap()[..], b"56\0\0");
        assert_eq!(received(&mut b).0, b"abc");
    }
}

#[test]
fn a_receive_list_accepted_in_part_gives_back_exactly_the_rest() {
    let (_, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(1, 4)).unwrap();
    let list: Vec<(Slice, Token)> = (0..6).map(|n| (slice(&b.pd, &[n as u8; 4]).1, Token(n))).collect();
    let mut list = list.into_iter();
    assert_eq!(b.endpoint.post_recv_list(&mut list).unwrap(), 4);
    let rest: Vec<(Slice, Token)> = list.collect();
    assert_eq!(rest.iter().map(|(slice, token)| (slice[0], token.0)).collect::<Vec<_>>(), [(4, 4), (5, 5)]);
    let mut rest = rest.into_iter();
    assert_eq!(b.endpoint.post_recv_list(&mut rest).unwrap(), 0);
    assert_eq!(rest.len(), 2);
    let refused = b.endpoint.post_recv(rest.next().unwrap().0, Token(6)).unwrap_err();
    assert_eq!(refused.error(), Error::RecvQueueFull { in_flight: 4 });
}

#[test]
fn a_receive_list_with_a_wrong_one_posts_those_before_and_leaves_those_after() {
    let (mut a, mut b) = pair();
    let lens = [64, 64, 70_000, 64];
    let mut list = lens.map(|len| zeros(&b.pd, len)).into_iter().zip((0..).map(Token));
    let refused = b.endpoint.post_recv_list(&mut list).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked: 70_000, .. }));
    let (wrong, token) = refused.into_inner();
    assert_eq!((wrong.len(), token), (70_000, Token(2)));
    assert_eq!((list.next().unwrap().1, list.next().is_none(), b.endpoint.in_flight()), (Token(3), true, 2));
    for message in [b"a", b"b"] {
        a.endpoint.post(a.peer.send_inline(message), Token(1)).unwrap();
        assert_eq!(received(&mut b).0, message);
    }
}

#[test]
fn a_receive_list_whose_iterator_panics_posts_those_before() {
    let (mut a, mut b) = pair();
    let slices = [(); 3].map(|()| zeros(&b.pd, 8));
    let mut list = slices.into_iter().zip((0..).map(Token)).inspect(|(_, token)| assert_ne!(*token, Token(2)));
    assert!(catch_unwind(AssertUnwindSafe(|| b.endpoint.post_recv_list(&mut list))).is_err());
    a.endpoint.post(a.peer.send_inline(b"x"), Token(1)).unwrap();
    assert_eq!(received(&mut b).0, b"x");
    let shutdown = b.endpoint.shut_down(|| false, |event| assert_eq!(event.token(), Some(Token(1)))).unwrap();
    assert_eq!((shutdown.completed, shutdown.reclaimed), (1, 0));
}
