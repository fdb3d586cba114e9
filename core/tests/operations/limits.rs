//! What is more than the device takes is refused with the number, and given back.

use efa_core::qp::{Depth, Group, QpKind, Srd};
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::work::{Event, Posts};
use efa_core::{Error, Limit, Limits, Token};

use crate::common::{LIMITS, config, pair, required, slice, wait, zeros};
use crate::{received, recv, sent, window};

#[test]
fn r09_a_send_of_two_buffers_is_refused_where_the_device_takes_one() {
    let limits = Limits { max_send_sge: 1, ..LIMITS };
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    assert_eq!(a.endpoint.granted().send_buffers, 1);
    let two = a.pd.endpoint(required::<_, Srd>(&a.ctx), Depth::new(4, 4).send_buffers(2)).unwrap_err();
    assert_eq!(two, Error::AboveLimit { what: Limit::SendBuffers, asked: 2, limit: 1 });
    let refused = a.endpoint.post(a.peer.send([zeros(&a.pd, 4), zeros(&a.pd, 5)]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::SendBuffers, asked: 2, limit: 1 });
    assert!(refused.to_string().contains("R09"), "{refused}");
    let [four, five] = refused.into_inner();
    assert_eq!((four.len(), five.len()), (4, 5));
    recv(&mut b, 2);
    a.endpoint.post(a.peer.send(five), Token(3)).unwrap();
    assert_eq!(received(&mut b).0, [0; 5]);
}

#[test]
fn h13_r11_a_send_of_max_goes_and_one_byte_more_is_refused_with_the_number() {
    let limits = Limits { max_msg_size: 100, ..LIMITS };
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    for len in [99, 100] {
        b.endpoint.post_recv(zeros(&b.pd, 128), Token(1)).unwrap();
        let bytes: Vec<u8> = (0..len).collect();
        a.endpoint.post(a.peer.send(slice(&a.pd, &bytes).1), Token(1)).unwrap();
        assert_eq!(received(&mut b).0, bytes);
        let _ = sent(&mut a, 1);
    }
    let error = Error::AboveLimit { what: Limit::MessageBytes, asked: 101, limit: 100 };
    let refused = a.endpoint.post(a.peer.send(zeros(&a.pd, 101)), Token(2)).unwrap_err();
    assert_eq!(refused.error(), error);
    assert_eq!(refused.into_inner().len(), 101);
    let two = [zeros(&a.pd, 100), zeros(&a.pd, 1)];
    assert_eq!(a.endpoint.post(a.peer.send(two), Token(2)).unwrap_err().error(), error);
    let two_kinds = (zeros(&a.pd, 100), zeros(&a.pd, 1).freeze().unwrap());
    assert_eq!(a.endpoint.post(a.peer.send(two_kinds), Token(2)).unwrap_err().error(), error);
    assert!(error.to_string().contains("R11") && error.to_string().contains("split"), "{error}");
    assert_eq!(a.endpoint.in_flight(), 0);
}

#[test]
fn r11_a_limit_above_what_a_completion_can_tell_is_not_taken() {
    let limits = Limits { max_msg_size: 131_072, ..LIMITS };
    let depth = Depth::new(8, 8).recv_buffers(2);
    let (mut a, mut b) = pair_of::<Srd>(config(Profile::RDMA).limits(limits), depth).unwrap();
    assert_eq!(a.ctx.limits().max_msg_size, 65_535);
    let refused = a.endpoint.post(a.peer.send(zeros(&a.pd, 65_536)), Token(1)).unwrap_err();
    assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, limit: 65_535, .. }));
    b.endpoint.post_recv([zeros(&b.pd, 40_000), zeros(&b.pd, 40_000)], Token(2)).unwrap();
    a.endpoint.post(a.peer.send(zeros(&a.pd, 65_535)), Token(3)).unwrap();
    assert!(matches!(wait(&mut b.endpoint), Event::Received(message) if message.len == 65_535));
}

#[test]
fn h13_r11_an_rdma_of_max_goes_and_one_byte_more_is_refused_before_it_could_wrap() {
    let limits = Limits { max_rdma_size: 1000, ..LIMITS };
    let (mut a, b): (Side, Side) = pair_of(config(Profile::RDMA).limits(limits), Depth::new(4, 4)).unwrap();
    let (_memory, window) = window(&b, &a);
    for len in [999, 1000] {
        a.endpoint.post(a.peer.write(zeros(&a.pd, len), window), Token(1)).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
        a.endpoint.post(a.peer.read(zeros(&a.pd, len), window), Token(1)).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Read(_)));
    }
    let error = |asked| Error::AboveLimit { what: Limit::RdmaBytes, asked, limit: 1000 };
    let refused = a.endpoint.post(a.peer.write(zeros(&a.pd, 1001), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error(1001));
    let refused = a.endpoint.post(a.peer.read(refused.into_inner(), window), Token(1)).unwrap_err();
    assert_eq!(refused.error(), error(1001));
    if cfg!(all(target_pointer_width = "64", not(miri))) {
        // Zeroed memory that nobody touches is address space only.
        for len in [1u64 << 32, (1 << 32) + 1] {
            let huge = zeros(&a.pd, len as usize);
            let refused = a.endpoint.post(a.peer.write(huge, window), Token(1)).unwrap_err();
            assert_eq!(refused.error(), error(len));
            let refused = a.endpoint.post(a.peer.send(refused.into_inner()), Token(1)).unwrap_err();
            assert!(
                matches!(refused.error(), Error::AboveLimit { what: Limit::MessageBytes, asked, .. } if asked == len)
            );
            let refused = a.endpoint.post_recv(refused.into_inner(), Token(1)).unwrap_err();
            assert!(matches!(refused.error(), Error::AboveLimit { what: Limit::RecvBytes, asked, .. } if asked == len));
        }
    }
}

#[test]
fn an_rdma_beyond_its_window_is_refused_with_both_lengths() {
    let (mut a, b) = pair();
    let (_memory, window) = window(&b, &a);
    let small = window.range(4000..4096).unwrap();
    assert_eq!((small.len(), small.is_empty()), (96, false));
    let refused = a.endpoint.post(a.peer.write(zeros(&a.pd, 97), small), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 97, within: 96 });
    let refused = a.endpoint.post(a.peer.read(refused.into_inner(), small), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::OutOfBounds { offset: 0, len: 97, within: 96 });
    assert!(window.range(4000..4097).is_err() && window.range(0..u64::MAX).is_err());
    #[allow(clippy::reversed_empty_ranges)] // that is the case
    let backwards = window.range(8..4);
    assert!(matches!(backwards, Err(Error::OutOfBounds { .. })));
}

#[test]
fn whoever_posts_can_be_asked_for_room_be_it_a_queue_pair_or_a_member() {
    fn has_room<K: QpKind>(posts: &impl Posts<K>) -> bool {
        posts.can_post()
    }
    let (mut a, b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(1, 1)).unwrap();
    assert!(has_room(&a.endpoint));
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert!(!has_room(&a.endpoint));
    let mut group: Group<_, Srd, 1> = a.pd.group(required(&a.ctx), 8).unwrap();
    let id = group.endpoint(Depth::new(1, 1)).unwrap();
    let to_b = group.queue_pair(id).unwrap().resolve(b.endpoint.hello().as_bytes()).unwrap().0.assert_mutual();
    let mut member = group.member(id).unwrap();
    assert!(has_room(&member));
    member.post(to_b.send_empty(), Token(1)).unwrap();
    assert!(!has_room(&member));
}

#[test]
fn h16_r33_a_full_send_queue_gives_the_buffers_back_and_takes_them_after_a_poll() {
    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(4, 8)).unwrap();
    for token in 0..8 {
        recv(&mut b, token);
    }
    for token in 0..4 {
        assert!(a.endpoint.can_post());
        a.endpoint.post(a.peer.send_inline(&[token]), Token(token.into())).unwrap();
    }
    assert!(!a.endpoint.can_post());
    let refused = a.endpoint.post(a.peer.send(slice(&a.pd, b"fifth").1).imm(5), Token(4)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFull { in_flight: 4 });
    assert!(refused.to_string().contains("poll"), "{refused}");
    let fifth = refused.into_inner();
    let mut batch = a.endpoint.batch();
    let refused = batch.push(a.peer.send_empty(), Token(9)).unwrap_err();
    assert_eq!(refused.error(), Error::QueueFull { in_flight: 4 });
    assert_eq!(batch.submit(), 0);
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(done) if done.token == Token(0)));
    a.endpoint.post(a.peer.send(fifth).imm(5), Token(4)).unwrap();
    assert_eq!((0..5).map(|_| received(&mut b).0).collect::<Vec<_>>(), [&[0][..], &[1], &[2], &[3], b"fifth"]);
    for token in 1..5 {
        let _ = sent(&mut a, token);
    }
}
