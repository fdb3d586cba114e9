//! Frozen slices: read by many, written by none until they thaw.

use efa_core::memory::FROZEN_RANGES;
use efa_core::work::Event;
use efa_core::{Error, Limit, Token};

use crate::Two;

use crate::common::{pair, slice, slice_of, wait, zeros};

#[test]
fn a_frozen_slice_is_sent_to_many_at_once_and_thaws_after_the_last() {
    let mut two = Two::new();
    let (region, whole) = slice(&two.pd, b"to all of you");
    let frozen = whole.freeze().unwrap();
    for token in 0..3 {
        two.b.post_recv(zeros(&two.pd, 16), Token(token)).unwrap();
        two.a.post(two.to_b.send(frozen.clone()), Token(token)).unwrap();
    }
    let part = frozen.part(3..6).unwrap();
    assert_eq!(&part[..], b"all");
    assert!(matches!(frozen.part(3..14), Err(Error::OutOfBounds { .. })));
    let refused = frozen.thaw().unwrap_err();
    assert_eq!(refused.error(), Error::RegionInUse { handles: 4 });
    let frozen = refused.into_inner();
    assert_eq!(&frozen[..], b"to all of you", "readable while in flight");
    for _ in 0..3 {
        assert!(matches!(wait(&mut two.a), Event::Sent(_)));
        let event = wait(&mut two.b);
        assert_eq!(&slice_of(event)[..13], b"to all of you");
    }
    drop(frozen);
    // The last handle, though of a part, thaws all of it.
    let mut whole = part.thaw().unwrap();
    whole[0] = b'T';
    assert_eq!(region.close(whole).unwrap(), b"To all of you");
}

#[test]
fn a_frozen_slice_thaws_in_one_thread_only_when_those_of_others_and_of_operations_are_gone() {
    let (mut a, mut b) = pair();
    for _ in 0..if cfg!(miri) { 4 } else { 500 } {
        let (region, whole) = slice(&a.pd, &[7; 32]);
        let (first, second) = whole.split_at(16).unwrap();
        let mut frozen = first.freeze().unwrap();
        b.endpoint.post_recv(zeros(&b.pd, 32), Token(1)).unwrap();
        a.endpoint.post(a.peer.send((frozen.part(3..9).unwrap(), frozen.clone())), Token(2)).unwrap();
        let part = frozen.part(1..4).unwrap();
        let thawed = std::thread::scope(|scope| {
            scope.spawn(move || assert_eq!(part.clone()[..], [7; 3]));
            for endpoint in [&mut a.endpoint, &mut b.endpoint] {
                scope.spawn(move || {
                    while endpoint.in_flight() > 0 {
                        drop(endpoint.poll());
                        std::thread::yield_now();
                    }
                });
            }
            let thawing = scope.spawn(move || {
                loop {
                    match frozen.thaw() {
                        Ok(mut slice) => {
                            slice.fill(9);
                            return slice;
                        }
                        Err(refused) => frozen = refused.into_inner(),
                    }
                    std::thread::yield_now();
                }
            });
            thawing.join().unwrap()
        });
        let memory = region.close(thawed.unsplit(second).unwrap()).unwrap();
        assert_eq!(memory, [[9; 16], [7; 16]].concat());
    }
}

#[test]
fn frozen_ranges_of_one_region_are_apart_and_run_out_with_the_slice_given_back() {
    let two = Two::new();
    let (region, mut rest) = slice(&two.pd, &[1; 10]);
    let mut frozen = Vec::new();
    for _ in 0..FROZEN_RANGES {
        let (one, more) = rest.split_at(1).unwrap();
        frozen.push(one.freeze().unwrap());
        rest = more;
    }
    let refused = rest.freeze().unwrap_err();
    assert_eq!(refused.error(), Error::Exhausted { what: Limit::FrozenRanges, limit: FROZEN_RANGES as u64 });
    let mut rest = refused.into_inner();
    rest.fill(2);
    frozen.swap(0, 5);
    let again = frozen.pop().unwrap().thaw().unwrap().freeze().unwrap();
    frozen.push(again);
    frozen.swap(0, 5);
    let mut slices = frozen.into_iter().map(|frozen| frozen.thaw().unwrap());
    let mut whole = slices.next().unwrap();
    for slice in slices {
        whole = whole.unsplit(slice).unwrap();
    }
    assert_eq!(region.close(whole.unsplit(rest).unwrap()).unwrap(), [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]);
}
