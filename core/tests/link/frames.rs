//! Any bytes are a frame or an error; what is accepted is written back as it came; and no wire minds.

use efa_core::Gid;
use efa_core::entry::control1;
use efa_core::memory::{Exposed, Pages, RemoteReadWrite};
use efa_core::soft::SoftDevice;
use efa_core::soft::link::{Answers, Body, FRAME, Field, Frame, FrameError, PAYLOAD, Request};
use efa_core::work::Event;
use efa_core::{Provider, Token};
use proptest::prelude::*;

use crate::net::{Net, gid};
use crate::{Link, bytes, config, look, pair, recv, wait, window};

const GOLDEN: [u8; 117] = [
    b'E', b'F', b'A', b'L', 1, 4, 0, 117, // magic, version, kind, length
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x15, // to
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x08, 0xff, 0xe2, 0xff, 0xfe, 0x9a, 0xb8, 0x16, // from
    1, 2, 3, 4, 5, 6, 7, 8, // to_session
    9, 10, 11, 12, 13, 14, 15, 16, // from_session
    0, 0, 0, 0, 0, 0, 0, 9, // sequence
    0, 0, 0, 0, 0, 0, 0, 7, // floor
    2, 3, // op, flags
    0x12, 0x34, // source
    0x56, 0x78, // destination
    0, 0, // reserved
    0x0a, 0x0b, 0x0c, 0x0d, // qkey
    0x80, 0, 0, 1, // immediate
    0xde, 0xad, 0xbe, 0xef, // rkey
    0, 1, 0, 5, // length
    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // address
    0, 1, 0, 0, // at
    0, 0, 0, 5, // part
    b'h', b'e', b'l', b'l', b'o',
];

fn golden() -> Frame<'static> {
    Frame {
        to: Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b815),
        from: Gid::from_parts(0xfe80_0000_0000_0000, 0x08ff_e2ff_fe9a_b816),
        to_session: 0x0102_0304_0506_0708,
        from_session: 0x090a_0b0c_0d0e_0f10,
        body: Body::Request(Request {
            sequence: 9,
            floor: 7,
            op: control1::OP_RDMA_WRITE,
            imm: Some(0x8000_0001),
            unsolicited: true,
            source: 0x1234,
            destination: 0x5678,
            qkey: 0x0a0b_0c0d,
            rkey: 0xdead_beef,
            length: 0x0001_0005,
            address: 0x1122_3344_5566_7788,
            at: 0x0001_0000,
            part: 5,
            data: b"hello",
        }),
    }
}

#[test]
fn h04_a_frame_has_the_same_bytes_on_every_host() {
    assert_eq!(Frame::parse(&GOLDEN), Ok(golden()));
    let mut bytes = [0; FRAME];
    let len = golden().write(&mut bytes).unwrap();
    assert_eq!(bytes[..len], GOLDEN);
}

#[test]
fn a_frame_with_one_wrong_field_is_refused_by_its_name() {
    let field = |field, found| FrameError::Field { field, found };
    let cases: &[(usize, &[u8], FrameError)] = &[
        (0, b"EFAH", FrameError::Magic { found: *b"EFAH" }),
        (4, &[2], FrameError::Version { expected: 1, found: 2 }),
        (5, &[0], field(Field::Kind, 0)),
        (5, &[8], field(Field::Kind, 8)),
        (5, &[7], field(Field::FromSession, 0x090a_0b0c_0d0e_0f10)),
        (6, &[0, 116], FrameError::Length { says: 116, found: 117 }),
        (8, &[0; 16], field(Field::Addressee, 0)),
        (24, &[0; 16], field(Field::From, 0)),
        (40, &[0; 8], field(Field::ToSession, 0)),
        (48, &[0; 8], field(Field::FromSession, 0)),
        (63, &[7 + 64], field(Field::Sequence, 71)),
        (63, &[6], field(Field::Sequence, 6)),
        (72, &[3], field(Field::Op, 3)),
        (73, &[4], field(Field::Flags, 4)),
        (73, &[2], field(Field::Immediate, 0x8000_0001)),
        (78, &[1, 0], field(Field::Reserved, 0x100)),
        (95, &[4], field(Field::At, 0x1_0000)),
        (95, &[6], field(Field::Flags, 3)),
        (104, &[0xff; 4], field(Field::At, 0xffff_ffff)),
        (108, &[0; 4], field(Field::Part, 0)),
        (111, &[4], field(Field::Flags, 3)),
        (72, &[0], field(Field::Part, 5)),
        (72, &[1], field(Field::Flags, 3)),
    ];
    for (at, change, error) in cases {
        let mut bytes = GOLDEN;
        bytes[*at..at + change.len()].copy_from_slice(change);
        assert_eq!(Frame::parse(&bytes), Err(*error), "{at} {change:?}");
        let text = error.to_string();
        assert!(text.contains(';') && text.len() > 30, "{text}");
    }
    // Data that is missing, or too much.
    for len in 0..GOLDEN.len() {
        let mut bytes = GOLDEN[..len].to_vec();
        if len > 8 {
            bytes[7] = len as u8;
        }
        assert!(Frame::parse(&bytes).is_err(), "{len}");
    }
    let mut long = GOLDEN.to_vec();
    long.push(0);
    long[7] += 1;
    assert!(Frame::parse(&long).is_err());
    for kind in [1, 2, 3, 5] {
        let mut bytes = GOLDEN;
        bytes[5] = kind;
        assert!(Frame::parse(&bytes).is_err(), "{kind}");
    }
    assert!(matches!(Frame::parse(&[0; FRAME + 1]), Err(FrameError::Magic { .. })));
    let mut huge = vec![0; FRAME + 1];
    huge[..GOLDEN.len()].copy_from_slice(&GOLDEN);
    huge[6..8].copy_from_slice(&(FRAME as u16 + 1).to_be_bytes());
    assert_eq!(Frame::parse(&huge), Err(FrameError::TooLong { limit: FRAME, found: FRAME + 1 }));
}

#[test]
fn what_is_no_frame_is_not_written() {
    let mut bytes = [0; FRAME];
    let long = vec![0; 2 * FRAME];
    for (len, error) in [
        (PAYLOAD + 1, FrameError::Field { field: Field::Part, found: PAYLOAD as u64 + 1 }),
        (2 * FRAME, FrameError::TooLong { limit: FRAME, found: 56 + 8 + 2 * FRAME }),
    ] {
        let body = Body::Data { sequence: 1, bytes: &long[..len] };
        assert_eq!(Frame { body, ..golden() }.write(&mut bytes), Err(error));
    }
    assert!(Frame { from_session: 0, ..golden() }.write(&mut bytes).is_err());
    let body = Body::Data { sequence: 1, bytes: &long[..PAYLOAD] };
    assert!(Frame { body, ..golden() }.write(&mut bytes).is_ok());
}

/// What is accepted is written as it came.
fn round_trip(bytes: &[u8]) {
    match Frame::parse(bytes) {
        Ok(frame) => {
            let mut written = [0; FRAME];
            let len = frame.write(&mut written).unwrap();
            assert_eq!(&written[..len], bytes);
            if let Body::Answers(answers) = frame.body {
                assert!((1..=64).contains(&Answers::iter(&answers).count()));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A header that is right, before any bytes.
fn behind_a_header(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = GOLDEN[..56].to_vec();
    bytes.extend(body.iter().take(FRAME - 56));
    bytes[5] = kind;
    if kind == 7 {
        bytes[40..56].fill(0);
    }
    let len = (bytes.len() as u16).to_be_bytes();
    bytes[6..8].copy_from_slice(&len);
    bytes
}

/// Two wires between which everything happened, and the memory that it happened in.
fn session() -> (Link, Link, Net, Exposed<Pages, RemoteReadWrite>) {
    let (mut a, mut b, mut net) = pair();
    let (memory, window) = window(&b, &a);
    recv(&mut b, 64, 1);
    a.endpoint.post(a.peer.send(bytes(&a, b"hello")).imm(1), Token(1)).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, b"hello"), window.range(3..8).unwrap()), Token(2)).unwrap();
    a.endpoint.post(a.peer.read(bytes(&a, b"hello"), window.range(0..5).unwrap()), Token(3)).unwrap();
    for _ in 0..3 {
        assert!(!matches!(wait(&mut net, &mut a.endpoint), Event::Failed { .. }));
    }
    assert!(matches!(wait(&mut net, &mut b.endpoint), Event::Received(_)));
    net.settle();
    (a, b, net, memory)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..9) {
        round_trip(&bytes);
        round_trip(&behind_a_header(kind, &bytes));
    }

    /// Frames of a real session, damaged, repeated and mixed with made-up ones of that session, reach a wire that
    /// had a part in it: no operation ends twice, and memory that no key opened keeps its bytes.
    #[test]
    fn damaged_frames_break_no_promise(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..40),
        bodies in prop::collection::vec((0u8..9, prop::collection::vec(any::<u8>(), 0..80)), 0..10),
    ) {
        let (mut a, mut b, mut net, _memory) = session();
        let (guard, _window) = window(&b, &a);
        for token in 0..4 {
            recv(&mut b, 64, token);
            recv(&mut a, 64, 10 + token);
            a.endpoint.post(a.peer.send(bytes(&a, b"hello")), Token(20 + token)).unwrap();
        }
        net.steps(6);
        let mut ended = Vec::new();
        let all = net.log.clone();
        for (which, at, value) in changes {
            let mut frame = all[which.index(all.len())].clone();
            let at = at.index(frame.len());
            frame[at] = value;
            round_trip(&frame);
            for wire in &net.wires {
                let _ = wire.receive(net.now, &frame);
            }
            net.step();
        }
        for (kind, body) in bodies {
            let head = all[all.len() - 1].clone();
            let mut frame = behind_a_header(kind, &body);
            let addressed = if kind == 7 { 8..40 } else { 8..56 };
            frame[addressed.clone()].copy_from_slice(&head[addressed]);
            for wire in &net.wires {
                let _ = wire.receive(net.now, &frame);
            }
            net.step();
        }
        for _ in 0..if cfg!(miri) { 40 } else { 400 } {
            net.step();
            for side in [&mut a, &mut b] {
                while let Some(event) = side.endpoint.poll() {
                    ended.extend(event.token());
                }
            }
        }
        let before = ended.len();
        ended.sort_unstable();
        ended.dedup();
        prop_assert_eq!(ended.len(), before, "an operation ended twice");
        prop_assert_eq!(a.endpoint.stats().stale + b.endpoint.stats().stale, 0);
        prop_assert!(look(&guard, 4096) == vec![0; 4096]);
    }
}

#[test]
fn a_wire_says_of_every_frame_that_it_cannot_take_why() {
    let device = SoftDevice::new(config(1));
    let mut bytes = GOLDEN;
    bytes[8..24].copy_from_slice(&gid(1).0);
    assert_eq!(device.receive(0, &bytes), Ok(()));
    assert!(device.receive(0, &bytes[..50]).is_err());
    assert_eq!(device.receive(0, &GOLDEN), Err(FrameError::NotForUs { to: golden().to }));
    assert_eq!(device.gid(), gid(1));
}
