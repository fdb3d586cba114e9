//! R16: bytes arrive in pieces, in any order, some of them twice; the completion alone tells.

use efa_core::Token;
use efa_core::soft::Profile;
use efa_core::work::Event;

use crate::common::{config, slice_of, wait, zeros};
use crate::{bytes, look, pair, window};

/// The pieces of a write in the order in which exposed memory shows them.
fn pieces_of_a_write(seed: u64) -> Vec<usize> {
    let (mut a, b) = pair(config(Profile::RDMA).seed(seed).pieces(8));
    let (memory, window) = window(&b, &a);
    let whole = window.range(0..96).unwrap();
    a.endpoint.post(a.peer.write(bytes(&a, &[0xAB; 96]), whole), Token(1)).unwrap();
    let mut seen = Vec::new();
    loop {
        // One turn, one move.
        let event = a.endpoint.poll();
        let found = look(&memory, 96);
        for piece in (0..12).filter(|piece| found[piece * 8..][..8] == [0xAB; 8]) {
            seen.push(piece);
            memory.copy_in(piece * 8, &[0; 8]).unwrap();
        }
        if let Some(event) = event {
            assert!(matches!(event, Event::Written(_)), "{event:?}");
            break;
        }
    }
    // Nothing after the completion.
    for _ in 0..if cfg!(miri) { 10 } else { 200 } {
        assert!(a.endpoint.poll().is_none());
    }
    assert_eq!(look(&memory, 96), [0; 96]);
    seen
}

#[test]
fn r16_a_write_is_seen_in_any_order_and_in_part_twice_before_its_completion_and_never_after() {
    let seen = pieces_of_a_write(1);
    let mut each = seen.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each, (0..12).collect::<Vec<_>>(), "all of it arrived");
    assert!(seen.len() > 12, "some of it twice: {seen:?}");
    assert!(!seen.is_sorted(), "{seen:?}");
    if !cfg!(miri) {
        assert_eq!(pieces_of_a_write(1), seen, "one seed, one run");
        assert_ne!(pieces_of_a_write(2), seen);
    }
}

#[test]
fn r16_whatever_the_pieces_a_completed_write_or_read_has_every_byte() {
    let (lens, pieces): (&[u64], &[u32]) =
        if cfg!(miri) { (&[0, 9, 33], &[1, 16]) } else { (&[0, 1, 7, 8, 9, 63, 64, 65, 1000], &[1, 3, 8, 64, 4096]) };
    for &piece in pieces {
        let (mut a, b) = pair(config(Profile::RDMA).pieces(piece).shuffle(true));
        let (memory, whole) = window(&b, &a);
        for &len in lens {
            let target = whole.range(5..5 + len).unwrap();
            let content: Vec<u8> = (0..len).map(|nth| (nth % 251 + 1) as u8).collect();
            memory.copy_in(0, &[0xEE; 1010]).unwrap();
            let (source, _rest) = bytes(&a, &[&content[..], &[1]].concat()).split_at(len as usize).unwrap();
            a.endpoint.post(a.peer.write(source, target), Token(1)).unwrap();
            assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
            let expected = [&[0xEE; 5][..], &content, &[0xEE; 5]].concat();
            assert_eq!(look(&memory, len as usize + 10), expected, "{len} bytes in pieces of {piece}");
            let (local, _rest) = zeros(&a.pd, len as usize + 1).split_at(len as usize).unwrap();
            a.endpoint.post(a.peer.read(local, target), Token(2)).unwrap();
            let event = wait(&mut a.endpoint);
            assert!(matches!(event, Event::Read(_)), "{event:?}");
            assert_eq!(slice_of(event)[..], content, "{len} bytes in pieces of {piece}");
        }
    }
}

#[test]
fn r16_an_immediate_arrives_when_all_bytes_of_its_write_are_there_and_none_comes_after() {
    for seed in 0..if cfg!(miri) { 3 } else { 50 } {
        let (mut a, mut b) = pair(config(Profile::RDMA).seed(seed).pieces(4).lose(200, 100).delay(3));
        let (memory, window) = window(&b, &a);
        b.endpoint.post_recv(zeros(&b.pd, 8), Token(7)).unwrap();
        let write = a.peer.write(bytes(&a, &[9; 40]), window.range(0..40).unwrap()).imm(3);
        a.endpoint.post(write, Token(1)).unwrap();
        let event = wait(&mut b.endpoint);
        assert!(matches!(event, Event::WriteArrived(ref arrived) if arrived.imm == 3), "{event:?}");
        assert_eq!(look(&memory, 40), [9; 40]);
        memory.copy_in(0, &[0; 40]).unwrap();
        assert!(matches!(wait(&mut a.endpoint), Event::Written(_)));
        assert_eq!(look(&memory, 40), [0; 40]);
    }
}
