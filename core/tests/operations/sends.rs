//! SENDs of every form, and what comes back of them.

use efa_core::memory::{Buffer, RemoteWrite};
use efa_core::qp::Depth;
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::{Event, Kind, WriteArrived};
use efa_core::{Error, Limit, Token};

use crate::common::{config, page, pair, slice, wait, wait_failed, zeros};
use crate::{IMMEDIATES, received, recv, sent, window};

#[test]
fn r09_a_send_of_one_or_two_buffers_of_any_kind_arrives_in_their_order() {
    let (mut a, mut b) = pair();
    let exposed = page::<_, RemoteWrite>(&a.ctx, &a.pd);
    exposed.copy_in(3, b"exposed").unwrap();
    let frozen = slice(&a.pd, b"frozen").1.freeze().unwrap();
    let part = || exposed.part(3..10).unwrap();
    let pd = a.pd.clone();
    let own = || slice(&pd, b"slice").1;
    for token in 0..8 {
        recv(&mut b, token);
    }
    macro_rules! arrives {
        ($source:expr, $bytes:expr, $count:expr) => {
            a.endpoint.post(a.peer.send($source), Token(7)).unwrap();
            assert_eq!(received(&mut b), ($bytes.to_vec(), None));
            assert_eq!(sent(&mut a, 7).len(), $count);
        };
    }
    arrives!(own(), b"slice", 1);
    arrives!(part(), b"exposed", 1);
    arrives!(frozen.clone(), b"frozen", 1);
    arrives!([own(), own()], b"sliceslice", 2);
    arrives!((own(), part()), b"sliceexposed", 2);
    arrives!((frozen.clone(), part()), b"frozenexposed", 2);
    arrives!([frozen.clone(), frozen.part(0..2).unwrap()], b"frozenfr", 2);
    assert_eq!(&frozen.thaw().unwrap()[..], b"frozen");
}

#[test]
fn the_buffers_come_back_as_what_they_were() {
    let (mut a, mut b) = pair();
    let exposed = page::<_, RemoteWrite>(&a.ctx, &a.pd);
    let frozen = slice(&a.pd, b"frozen").1.freeze().unwrap();
    recv(&mut b, 1);
    a.endpoint.post(a.peer.send((frozen, exposed.part(8..16).unwrap())), Token(1)).unwrap();
    let mut buffers = sent(&mut a, 1);
    let (first, second) = (buffers.next().unwrap(), buffers.next().unwrap());
    assert_eq!((first.len(), second.len(), buffers.len()), (6, 8, 0));
    let (Buffer::Frozen(frozen), Buffer::Exposed(part)) = (first, second) else { panic!() };
    assert_eq!((&frozen[..], part.len()), (&b"frozen"[..], 8));
    drop(part);
    exposed.revoke().unwrap();
}

#[test]
fn r10_inline_sends_carry_up_to_32_bytes_and_longer_ones_are_refused() {
    let (mut a, mut b) = pair();
    let bytes: Vec<u8> = (1..=33).collect();
    for len in 0..=32 {
        recv(&mut b, 1);
        a.endpoint.post(a.peer.send_inline(&bytes[..len]), Token(2)).unwrap();
        assert_eq!(received(&mut b), (bytes[..len].to_vec(), None));
        assert!(sent(&mut a, 2).is_empty());
    }
    let refused = a.endpoint.post(a.peer.send_inline(&bytes[..]), Token(2)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 33, limit: 32 });

    let (mut a, mut b): (Side, Side) = pair_of(config(Profile::RDMA), Depth::new(2, 2).inline(16)).unwrap();
    let refused = a.endpoint.post(a.peer.send_inline(&bytes[..17]), Token(1)).unwrap_err();
    assert_eq!(refused.error(), Error::AboveLimit { what: Limit::InlineBytes, asked: 17, limit: 16 });
    recv(&mut b, 1);
    a.endpoint.post(a.peer.send_inline(&bytes[..16]), Token(1)).unwrap();
    assert_eq!(received(&mut b).0, &bytes[..16]);
}

#[test]
fn r13_immediates_are_exact_in_every_operation_that_has_one() {
    let (mut a, mut b) = pair();
    let (memory, window) = window(&b, &a);
    for imm in IMMEDIATES {
        for token in 0..4 {
            recv(&mut b, token);
        }
        a.endpoint.post(a.peer.send(zeros(&a.pd, 3)).imm(imm), Token(1)).unwrap();
        assert_eq!(received(&mut b), (vec![0; 3], Some(imm)));
        a.endpoint.post(a.peer.send_inline(b"xy").imm(imm), Token(2)).unwrap();
        assert_eq!(received(&mut b), (b"xy".to_vec(), Some(imm)));
        a.endpoint.post(a.peer.send_empty().imm(imm), Token(3)).unwrap();
        assert_eq!(received(&mut b), (vec![], Some(imm)));
        a.endpoint.post(a.peer.write(slice(&a.pd, b"abc").1, window).imm(imm), Token(4)).unwrap();
        let event = wait(&mut b.endpoint);
        let Event::WriteArrived(WriteArrived { token, imm: arrived, len, .. }) = event else { panic!("{event:?}") };
        assert_eq!((token, arrived, len), (Token(3), imm, Some(3)));
        for token in 1..=4 {
            let event = wait(&mut a.endpoint);
            assert!(matches!(&event, Event::Sent(d) | Event::Written(d) if d.token == Token(token)), "{event:?}");
        }
    }
    let mut bytes = [0; 4];
    memory.copy_out(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc\0");
}

#[test]
fn r14_operations_of_no_bytes_arrive() {
    let (mut a, mut b) = pair();
    let (_memory, window) = window(&b, &a);
    let empty = || {
        let (empty, _rest) = zeros(&a.pd, 8).split_at(0).unwrap();
        empty
    };
    for token in 0..4 {
        recv(&mut b, token);
    }
    a.endpoint.post(a.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(received(&mut b), (vec![], None));
    a.endpoint.post(a.peer.send(empty()), Token(2)).unwrap();
    assert_eq!(received(&mut b), (vec![], None));
    a.endpoint.post(a.peer.send_inline(&[]).imm(5), Token(3)).unwrap();
    assert_eq!(received(&mut b), (vec![], Some(5)));
    let nothing = window.range(16..16).unwrap();
    assert!(nothing.is_empty());
    a.endpoint.post(a.peer.write(empty(), nothing), Token(4)).unwrap();
    a.endpoint.post(a.peer.write(empty(), nothing).imm(6), Token(5)).unwrap();
    a.endpoint.post(a.peer.read(empty(), nothing), Token(6)).unwrap();
    let event = wait(&mut b.endpoint);
    assert!(matches!(&event, Event::WriteArrived(arrived) if arrived.imm == 6 && arrived.len == Some(0)), "{event:?}");
    let tokens: Vec<u64> = (0..6)
        .map(|_| match wait(&mut a.endpoint) {
            Event::Sent(done) | Event::Written(done) | Event::Read(done) => done.token.0,
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6]);
    // A receive of one empty buffer takes a message of no bytes.
    let mut c = pair();
    let (empty, _rest) = zeros(&c.1.pd, 8).split_at(0).unwrap();
    c.1.endpoint.post_recv(empty, Token(1)).unwrap();
    c.0.endpoint.post(c.0.peer.send_empty(), Token(1)).unwrap();
    assert_eq!(received(&mut c.1), (vec![], None));
}

#[test]
fn a_message_longer_than_its_receive_fails_on_both_sides_with_their_own_statuses() {
    let (mut a, mut b) = pair();
    b.endpoint.post_recv(zeros(&b.pd, 4), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_inline(b"12345"), Token(2)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadLength));
    let event = wait(&mut b.endpoint);
    let Event::Failed { failure, buffers } = event else { panic!("{event:?}") };
    assert_eq!((failure.kind, failure.token, buffers.bytes()), (Kind::Recv, Some(Token(1)), 4));
    assert_eq!(failure.status(), Some(CompletionStatus::LocalBadLength));
    recv(&mut b, 3);
    a.endpoint.post(a.peer.send_inline(b"12345"), Token(4)).unwrap();
    assert_eq!(received(&mut b).0, b"12345");
}
