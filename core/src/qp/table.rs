//! The queue pair state table, as data (R01). Source: the kernel driver's table for EFA.

#![forbid(unsafe_code)]

use core::fmt;

use crate::Qkey;
use crate::flags::QpAttrMask as Mask;

/// A queue pair's state (`ibv_qp_state`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpState {
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
    Err,
    /// A number this crate does not know.
    Unknown(u32),
}

impl QpState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 7] = [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    /// The verbs' number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Reset => 0,
            Self::Init => 1,
            Self::Rtr => 2,
            Self::Rts => 3,
            Self::Sqd => 4,
            Self::Sqe => 5,
            Self::Err => 6,
            Self::Unknown(number) => number,
        }
    }

    /// The state of a verbs' number.
    pub const fn from_number(number: u32) -> Self {
        if number < 7 { Self::ALL[number as usize] } else { Self::Unknown(number) }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => f.write_str("RESET"),
            Self::Init => f.write_str("INIT"),
            Self::Rtr => f.write_str("RTR"),
            Self::Rts => f.write_str("RTS"),
            Self::Sqd => f.write_str("SQD"),
            Self::Sqe => f.write_str("SQE"),
            Self::Err => f.write_str("ERR"),
            Self::Unknown(number) => write!(f, "state {number}"),
        }
    }
}

/// Whether a device moves a queue pair so by itself: to ERR from everywhere, to SQE where the send queue runs.
///
/// Never to RESET above all: there its rings start over, which their producers here do only with a move of their own.
pub(super) const fn moves_by_itself(from: QpState, to: QpState) -> bool {
    matches!((from, to), (_, QpState::Err) | (QpState::Rts | QpState::Sqd, QpState::Sqe))
}

/// The types of queue pair that EFA has (R29).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QpType {
    /// Scalable reliable datagram: reliable, unordered; EFA's own.
    Srd,
    /// Unreliable datagram.
    Ud,
}

impl QpType {
    /// Bytes that lie before the payload in each receive: the routing header (GRH) of a datagram, none of SRD. They
    /// count in a completion's length.
    pub const fn header(self) -> u8 {
        match self {
            Self::Srd => 0,
            Self::Ud => 40,
        }
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Srd => "SRD",
            Self::Ud => "UD",
        })
    }
}

/// The attributes that one transition takes, besides STATE, which every transition takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transition {
    /// Must be given.
    pub required: Mask,
    /// May be given.
    pub optional: Mask,
}

impl Transition {
    /// What `modify` is called with when nothing optional is asked for.
    pub const fn mask(self) -> Mask {
        self.required.union(Mask::STATE)
    }

    /// Whether `mask` has all that is required and nothing that is not allowed.
    pub const fn allows(self, mask: Mask) -> bool {
        let allowed = self.mask().union(self.optional);
        mask.contains(self.mask()) && allowed.contains(mask)
    }
}

/// The row of one transition; `None` if the device refuses it.
pub const fn transition(kind: QpType, from: QpState, to: QpState) -> Option<Transition> {
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe, Unknown};

    const BRING_UP: Mask = Mask::PKEY_INDEX.union(Mask::PORT).union(Mask::QKEY);
    const INDEX_AND_KEY: Mask = Mask::PKEY_INDEX.union(Mask::QKEY);
    const STATE_AND_KEY: Mask = Mask::CUR_STATE.union(Mask::QKEY);

    let (required, optional) = match (from, to) {
        (Unknown(_), _) | (_, Unknown(_)) => return None,
        (_, Reset) => (Mask::empty(), Mask::empty()),
        (Reset, Err) => return None,
        (_, Err) => (Mask::empty(), Mask::empty()),
        (Reset, Init) => (BRING_UP, Mask::empty()),
        (Init, Init) => (Mask::empty(), BRING_UP),
        (Init, Rtr) => (Mask::empty(), INDEX_AND_KEY),
        (Rtr, Rts) => (
            Mask::SQ_PSN,
            match kind {
                QpType::Srd => STATE_AND_KEY.union(Mask::RNR_RETRY),
                QpType::Ud => STATE_AND_KEY,
            },
        ),
        (Rts | Sqd | Sqe, Rts) => (Mask::empty(), STATE_AND_KEY),
        (Rts, Sqd) => (Mask::empty(), Mask::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (Mask::empty(), INDEX_AND_KEY),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// A queue pair's attributes, as `modify` takes them: those not in the mask mean nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// Which attributes are given.
    pub mask: Mask,
    /// The state to move to.
    pub state: QpState,
    /// The state to move from.
    pub cur_state: QpState,
    /// 0.
    pub pkey_index: u16,
    /// 1.
    pub port: u8,
    /// The queue key.
    pub qkey: Qkey,
    /// The first packet sequence number, 24 bits.
    pub sq_psn: u32,
    /// 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
    /// Notify when the send queue is drained.
    pub sqd_async_notify: bool,
}

impl QpAttr {
    /// A move to `state` with the given mask, all else at its default.
    pub const fn to(state: QpState, mask: Mask) -> Self {
        Self {
            mask,
            state,
            cur_state: state,
            pkey_index: 0,
            port: 1,
            qkey: Qkey(0),
            sq_psn: 0,
            rnr_retry: 7,
            sqd_async_notify: false,
        }
    }
}
