//! The state table of both types of queue pair, as data and as types, against one that was written by hand (R01). The
//! software device is compared with the same one in `soft_queues`.

#[path = "common/transitions.rs"]
mod transitions;

use std::marker::PhantomData;

use efa_core::flags::QpAttrMask as Mask;
use efa_core::qp::{
    Err, Init, MovesTo, QpKind, QpState, QpType, Reset, Rtr, Rts, SendOnly, Sqd, Sqe, Srd, State, Ud, Unsolicited, ops,
    transition,
};
use transitions::{expected, masks};

const TYPES: [QpType; 2] = [QpType::Srd, QpType::Ud];

#[test]
fn r01_the_table_is_the_devices_in_every_state_for_every_set_of_attributes() {
    let mut allowed = [0, 0];
    for (kind, allowed) in TYPES.into_iter().zip(&mut allowed) {
        for from in QpState::ALL {
            for to in QpState::ALL {
                let (row, line) = (transition(kind, from, to), expected(kind, from, to));
                assert_eq!(row.is_some(), line.is_some(), "{kind} {from} to {to}");
                for mask in masks() {
                    let is = row.is_some_and(|row| row.allows(mask));
                    let is_to_be = line.is_some_and(|line| line.allows(mask));
                    assert_eq!(is, is_to_be, "{kind} {from} to {to} with {mask:?}");
                    *allowed += u32::from(is);
                }
            }
        }
    }
    // By hand: RESET to INIT, and 13 moves to RESET and ERR, have one set each; the others as many as these.
    let by_hand = [14 + 8 + 4 + 8 + 4 + 2 + 4 + 4 + 4, 14 + 8 + 4 + 4 + 4 + 2 + 4 + 4 + 4];
    assert!(cfg!(miri) || allowed == by_hand, "{allowed:?}");
}

/// Whether there is a transition as a type, and its mask: the method of a bound that holds comes before the trait's.
struct Probe<S, T, K>(PhantomData<(S, T, K)>);

trait Absent {
    fn mask(&self) -> Option<Mask> {
        None
    }
}

impl<S: MovesTo<T, K>, T: State, K: QpKind> Probe<S, T, K> {
    fn mask(&self) -> Option<Mask> {
        Some(S::MASK)
    }
}

impl<S, T, K> Absent for Probe<S, T, K> {}

/// Each pair of states that the types know of a kind.
macro_rules! typed {
    ($kind:ty: $from:ident => $($to:ident)*) => {
        [$((QpState::$from, QpState::$to, Probe::<$from, $to, $kind>(PhantomData).mask())),*]
    };
    ($kind:ty) => {
        [
            typed!($kind: Reset => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Init => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Rtr => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Rts => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Sqd => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Sqe => Reset Init Rtr Rts Sqd Sqe Err),
            typed!($kind: Err => Reset Init Rtr Rts Sqd Sqe Err),
        ]
        .concat()
    };
}

#[test]
fn r01_the_types_have_exactly_the_devices_transitions_each_with_what_is_required() {
    for (kind, typed) in [
        (QpType::Srd, typed!(Srd)),
        (QpType::Srd, typed!(SendOnly)),
        (QpType::Srd, typed!(Srd<{ ops::RDMA_READ }, Unsolicited>)),
        (QpType::Ud, typed!(Ud)),
    ] {
        assert_eq!(typed.len(), 49);
        for (from, to, mask) in typed {
            let required = expected(kind, from, to).map(|line| line.required);
            assert_eq!(mask, required, "{kind} {from} to {to}");
        }
    }
}
