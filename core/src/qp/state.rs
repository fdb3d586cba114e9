//! States as types, and what each permits.

#![forbid(unsafe_code)]

use super::table::{QpState, transition};
use super::{QpKind, Srd};
use crate::flags::QpAttrMask;

mod sealed {
    pub trait Sealed {}
}

/// A queue pair's state, as a type.
pub trait State: sealed::Sealed + 'static {
    /// The state it stands for.
    const STATE: QpState;
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name(());

            impl sealed::Sealed for $name {}

            impl State for $name {
                const STATE: QpState = QpState::$name;
            }
        )*
    };
}

states!(
    /// Made; nothing can be posted.
    Reset,
    /// Receives can be posted.
    Init,
    /// Can receive; its address may be published (R03).
    Rtr,
    /// Can send.
    Rts,
    /// The send queue drains.
    Sqd,
    /// The send queue failed.
    Sqe,
    /// Failed; everything in flight is flushed.
    Err
);

/// The transitions of the device's table (R01), for queue pairs of kind `K`.
#[diagnostic::on_unimplemented(
    message = "no transition from `{Self}` to `{T}`: the device's state table has none (R01)",
    label = "not from this state",
    note = "the way up is RESET, `init(..)` INIT, `rtr()` RTR, `rts(..)` RTS; `prepare()` goes all of it from RESET",
    note = "the way down is `error()`, from every state but RESET, and `reset()`, once nothing is in flight",
    note = "`drain()` goes from RTS to SQD; `resume()` goes back from SQD and SQE"
)]
pub trait MovesTo<T: State, K: QpKind = Srd>: State {
    /// The attribute mask of the transition, from the table.
    const MASK: QpAttrMask = match transition(K::TYPE, Self::STATE, T::STATE) {
        Some(row) => row.mask(),
        None => panic!("the device's state table has no such transition (R01)"),
    };
}

macro_rules! moves {
    ($($from:ident => $($to:ident)*;)*) => {
        $($(
            #[diagnostic::do_not_recommend]
            impl<K: QpKind> MovesTo<$to, K> for $from {}
        )*)*
    };
}

moves! {
    Reset => Reset Init;
    Init => Reset Init Rtr Err;
    Rtr => Reset Rts Err;
    Rts => Reset Rts Sqd Err;
    Sqd => Reset Rts Sqd Err;
    Sqe => Reset Rts Err;
    Err => Reset Err;
}

/// The state from which RTS is entered for the first time, with a sequence number.
#[diagnostic::on_unimplemented(
    message = "`rts(..)` leads from RTR to RTS, not from `{Self}` (R01)",
    label = "not from this state",
    note = "from SQD and SQE, `resume()` goes back to RTS: the sequence number and the retries were given once"
)]
pub trait Starts<K: QpKind = Srd>: MovesTo<Rts, K> {}

/// States from which a queue pair goes back to RTS.
#[diagnostic::on_unimplemented(
    message = "`resume()` leads from SQD or SQE back to RTS, not from `{Self}` (R01)",
    label = "not from this state",
    note = "the way up is RESET, `init(..)` INIT, `rtr()` RTR, `rts(..)` RTS"
)]
pub trait Resumes<K: QpKind = Srd>: MovesTo<Rts, K> {}

impl<K: QpKind> Starts<K> for Rtr {}
impl<K: QpKind> Resumes<K> for Sqd {}
impl<K: QpKind> Resumes<K> for Sqe {}

/// States in which receives can be posted.
#[diagnostic::on_unimplemented(
    message = "receives can be posted from INIT on, not in `{Self}` (R02)",
    label = "this queue pair is in `{Self}`",
    note = "bring it up first: `init(..)`, or `prepare()` for all the way to RTS; from ERR, `reset()` comes before"
)]
pub trait CanReceive: State {}

/// States in which operations can be posted.
#[diagnostic::on_unimplemented(
    message = "SEND and RDMA can be posted in RTS only, not in `{Self}` (R02)",
    label = "this queue pair is in `{Self}`",
    note = "bring it up first: `init(..)`, `rtr()` and `rts(..)`, or `prepare()` for all three; from SQD and SQE, `resume()`"
)]
pub trait CanSend: State {}

/// States in which a queue pair's address means something to others.
#[diagnostic::on_unimplemented(
    message = "peers are resolved, and an address published, in RTR and RTS only, not in `{Self}` (R03)",
    label = "this queue pair is in `{Self}`",
    note = "in others its number and key need not be in force at the device: who learns them may send into nothing",
    note = "bring it up first: `init(..)` and `rtr()`, or `prepare()` for all the way to RTS; from SQD and SQE, `resume()`"
)]
pub trait Reachable: State {}

impl CanReceive for Init {}
impl CanReceive for Rtr {}
impl CanReceive for Rts {}
impl CanReceive for Sqd {}
impl CanReceive for Sqe {}
impl CanSend for Rts {}
impl Reachable for Rtr {}
impl Reachable for Rts {}
