//! RDMA: bytes, windows, and writes that consume no receive.

use std::collections::HashSet;

use efa_core::memory::{RemoteRead, RemoteWrite};
use efa_core::qp::{Depth, Srd, Unsolicited, ops};
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::status::CompletionStatus;
use efa_core::work::{Event, Kind, UnsolicitedWrite};
use efa_core::{Limits, Token};

use crate::common::{LIMITS, assert_idle, config, page, pair, slice, slice_of, wait, wait_failed, zeros};
use crate::{IMMEDIATES, window};

#[test]
fn r16_writes_and_reads_move_exactly_their_bytes_at_every_alignment() {
    let (mut a, mut b) = pair();
    let (memory, whole) = window(&b, &a);
    for (offset, len) in [(0, 8), (1, 7), (3, 1), (5, 30), (8, 16), (15, 2), (4095, 1), (100, 0)] {
        memory.copy_in(0, &[0xEE; 4096]).unwrap();
        let bytes: Vec<u8> = (1..=len as u8).collect();
        let target = whole.range(offset..offset + len).unwrap();
        a.endpoint
            .post(
                a.peer.write(slice(&a.pd, &[&bytes[..], &[0xFF]].concat()).1.split_at(len as usize).unwrap().0, target),
                Token(1),
            )
            .unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Written(done) if done.buffers.bytes() == len as usize));
        let mut expected = [0xEE; 4096];
        expected[offset as usize..][..len as usize].copy_from_slice(&bytes);
        let mut found = [0; 4096];
        memory.copy_out(0, &mut found).unwrap();
        assert!(found == expected, "{len} at {offset}");

        let (local, _rest) = slice(&a.pd, &[0; 64]).1.split_at(len as usize).unwrap();
        a.endpoint.post(a.peer.read(local, target), Token(2)).unwrap();
        let event = wait(&mut a.endpoint);
        assert!(matches!(event, Event::Read(_)), "{event:?}");
        assert_eq!(slice_of(event)[..], bytes);
        assert_idle(&mut b.endpoint);
    }
}

#[test]
fn r22_unsolicited_writes_consume_no_receive_and_have_an_event_of_their_own() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let (mut a, mut b): (Side<Kind>, Side<Kind>) =
        pair_of(config(Profile::UNSOLICITED), Depth::new(4, 4).unsolicited(4)).unwrap();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    for imm in IMMEDIATES {
        a.endpoint.post(a.peer.write(zeros(&a.pd, 5), window).imm(imm), Token(2)).unwrap();
        let event = wait(&mut b.endpoint);
        let Event::UnsolicitedWrite(UnsolicitedWrite { imm: arrived, len, .. }) = event else { panic!("{event:?}") };
        assert_eq!((arrived, len), (imm, Some(5)));
        assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
    }
    assert_eq!(b.endpoint.in_flight(), 1, "the receive is still there");
    a.endpoint.post(a.peer.send_empty(), Token(3)).unwrap();
    assert!(matches!(wait(&mut b.endpoint), Event::Received(message) if message.token == Token(1)));
}

/// Without a budget unsolicited arrivals overrun the completion queue again and again: completions are lost, but
/// no entry is taken for another, so each receive comes out once, the lost ones at the end.
#[test]
fn r17_an_overrun_completion_queue_loses_completions_but_resolves_each_receive_once() {
    type Kind = Srd<{ ops::ALL }, Unsolicited>;
    let limits = Limits { max_mr: 64, ..LIMITS };
    let (mut a, mut b) = pair_of::<Kind>(config(Profile::UNSOLICITED).limits(limits), Depth::new(8, 8)).unwrap();
    let memory = page::<_, RemoteWrite>(&b.ctx, &b.pd);
    let window = a.peer.window::<RemoteWrite>(memory.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
    let (mut posted, mut lost, mut random) = (HashSet::new(), 0, 1u64);
    for token in 0..if cfg!(miri) { 300 } else { 20_000 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match random >> 61 {
            0 if b.endpoint.can_post_recv() => {
                b.endpoint.post_recv(zeros(&b.pd, 8), Token(token)).unwrap();
                posted.insert(Token(token));
            }
            0..4 => drop(a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window).imm(1), Token(0))),
            4 => drop(a.endpoint.post(a.peer.send_inline(b"12345678"), Token(0))),
            5 | 6 => while a.endpoint.poll().is_some() {},
            _ => {
                for event in (0..random >> 32 & 7).filter_map(|_| b.endpoint.poll()) {
                    assert!(event.token().is_none_or(|token| posted.remove(&token)), "{event:?}");
                }
            }
        }
    }
    let mut turns = 0;
    let expired = || {
        turns += 1;
        turns > 100
    };
    let sink = |event: Event| {
        lost += usize::from(matches!(event, Event::Reclaimed { .. }));
        assert!(event.token().is_none_or(|token| posted.remove(&token)), "{event:?}");
    };
    b.endpoint.shut_down(expired, sink).unwrap();
    assert!(posted.is_empty());
    assert!(lost > 0, "nothing was overrun");
}

#[test]
fn a_read_needs_a_window_that_grants_it_at_the_device_too() {
    let (mut a, b) = pair();
    let memory = page::<_, RemoteRead>(&b.ctx, &b.pd);
    let frame = memory.grant(&b.endpoint).unwrap();
    let mut forged = efa_core::wire::Grant::parse(frame.as_bytes()).unwrap();
    forged.access |= efa_core::flags::Access::REMOTE_WRITE;
    let window = a.peer.window::<RemoteWrite>(forged.to_frame().as_bytes()).unwrap();
    a.endpoint.post(a.peer.write(zeros(&a.pd, 8), window), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!((failure.status(), failure.kind), (Some(CompletionStatus::RemoteBadAddress), Kind::Write));
    forged.rkey.0 ^= 1 << 20;
    let window = a.peer.window::<RemoteRead>(forged.to_frame().as_bytes()).unwrap();
    a.endpoint.post(a.peer.read(zeros(&a.pd, 8), window), Token(1)).unwrap();
    let failure = wait_failed(&mut a.endpoint);
    assert_eq!((failure.status(), failure.kind), (Some(CompletionStatus::RemoteBadAddress), Kind::Read));
    forged.length += 8;
    forged.rkey.0 ^= 1 << 20;
    let window = a.peer.window::<RemoteRead>(forged.to_frame().as_bytes()).unwrap().range(4096..4104).unwrap();
    a.endpoint.post(a.peer.read(zeros(&a.pd, 8), window), Token(1)).unwrap();
    assert_eq!(wait_failed(&mut a.endpoint).status(), Some(CompletionStatus::RemoteBadAddress));
    assert_eq!(a.endpoint.cause().unwrap().kind, Kind::Write, "the first is the cause (R40)");
}
