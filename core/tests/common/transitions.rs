//! The device's state table in plain text, transcribed by hand from its description and not from core: what core's
//! own table, types and software device are compared with.

use std::sync::LazyLock;

use efa_core::flags::QpAttrMask as Mask;
use efa_core::qp::{QpState, QpType};

/// A transition a line: the type of queue pair, from, to, what is required, and, in brackets, what is allowed besides.
/// STATE is always required.
const TABLE: &str = "
    SRD RESET RESET
    SRD RESET INIT   PKEY_INDEX PORT QKEY
    SRD INIT  RESET
    SRD INIT  INIT   [PKEY_INDEX PORT QKEY]
    SRD INIT  RTR    [PKEY_INDEX QKEY]
    SRD INIT  ERR
    SRD RTR   RESET
    SRD RTR   RTS    SQ_PSN [CUR_STATE QKEY RNR_RETRY]
    SRD RTR   ERR
    SRD RTS   RESET
    SRD RTS   RTS    [CUR_STATE QKEY]
    SRD RTS   SQD    [EN_SQD_ASYNC_NOTIFY]
    SRD RTS   ERR
    SRD SQD   RESET
    SRD SQD   RTS    [CUR_STATE QKEY]
    SRD SQD   SQD    [PKEY_INDEX QKEY]
    SRD SQD   ERR
    SRD SQE   RESET
    SRD SQE   RTS    [CUR_STATE QKEY]
    SRD SQE   ERR
    SRD ERR   RESET
    SRD ERR   ERR

    UD  RESET RESET
    UD  RESET INIT   PKEY_INDEX PORT QKEY
    UD  INIT  RESET
    UD  INIT  INIT   [PKEY_INDEX PORT QKEY]
    UD  INIT  RTR    [PKEY_INDEX QKEY]
    UD  INIT  ERR
    UD  RTR   RESET
    UD  RTR   RTS    SQ_PSN [CUR_STATE QKEY]
    UD  RTR   ERR
    UD  RTS   RESET
    UD  RTS   RTS    [CUR_STATE QKEY]
    UD  RTS   SQD    [EN_SQD_ASYNC_NOTIFY]
    UD  RTS   ERR
    UD  SQD   RESET
    UD  SQD   RTS    [CUR_STATE QKEY]
    UD  SQD   SQD    [PKEY_INDEX QKEY]
    UD  SQD   ERR
    UD  SQE   RESET
    UD  SQE   RTS    [CUR_STATE QKEY]
    UD  SQE   ERR
    UD  ERR   RESET
    UD  ERR   ERR
";

/// The states by their names in the table.
const STATES: [(&str, QpState); 7] = [
    ("RESET", QpState::Reset),
    ("INIT", QpState::Init),
    ("RTR", QpState::Rtr),
    ("RTS", QpState::Rts),
    ("SQD", QpState::Sqd),
    ("SQE", QpState::Sqe),
    ("ERR", QpState::Err),
];

/// The attributes by their names in the table.
const ATTRIBUTES: [(&str, Mask); 8] = [
    ("STATE", Mask::STATE),
    ("CUR_STATE", Mask::CUR_STATE),
    ("EN_SQD_ASYNC_NOTIFY", Mask::EN_SQD_ASYNC_NOTIFY),
    ("PKEY_INDEX", Mask::PKEY_INDEX),
    ("PORT", Mask::PORT),
    ("QKEY", Mask::QKEY),
    ("SQ_PSN", Mask::SQ_PSN),
    ("RNR_RETRY", Mask::RNR_RETRY),
];

/// One line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    pub(crate) required: Mask,
    pub(crate) optional: Mask,
}

impl Line {
    /// Whether a move with `mask` is answered with yes.
    pub(crate) fn allows(self, mask: Mask) -> bool {
        (0..8).map(|nth| ATTRIBUTES[nth].1).all(|attribute| {
            if self.required.contains(attribute) {
                mask.contains(attribute)
            } else {
                self.optional.contains(attribute) || !mask.contains(attribute)
            }
        })
    }
}

/// The line of one transition; none if the device has no such.
pub(crate) fn expected(kind: QpType, from: QpState, to: QpState) -> Option<Line> {
    static PARSED: LazyLock<Vec<(QpType, QpState, QpState, Line)>> =
        LazyLock::new(|| TABLE.lines().filter_map(parsed).collect());
    let mut lines = PARSED.iter().filter(|line| (line.0, line.1, line.2) == (kind, from, to));
    let line = lines.next().map(|line| line.3);
    assert_eq!(lines.next(), None, "{kind} {from} {to} is there twice");
    line
}

/// All 256 sets of the eight attributes; some under Miri.
pub(crate) fn masks() -> impl Iterator<Item = Mask> {
    let chosen = (0..256usize).step_by(if cfg!(miri) { 37 } else { 1 });
    chosen.map(|chosen| (0..8).filter(|nth| chosen >> nth & 1 == 1).map(|nth| ATTRIBUTES[nth].1).collect())
}

fn parsed(line: &str) -> Option<(QpType, QpState, QpState, Line)> {
    let (head, optional) = line.trim().trim_end_matches(']').split_once('[').unwrap_or((line.trim(), ""));
    let mut words = head.split_whitespace();
    let (kind, from, to) = (parsed_type(words.next()?), parsed_state(words.next()?), parsed_state(words.next()?));
    let required = words.map(parsed_attribute).collect::<Mask>() | Mask::STATE;
    let optional = optional.split_whitespace().map(parsed_attribute).collect();
    Some((kind, from, to, Line { required, optional }))
}

fn parsed_type(name: &str) -> QpType {
    match name {
        "SRD" => QpType::Srd,
        "UD" => QpType::Ud,
        other => panic!("{other} is no type"),
    }
}

fn parsed_state(name: &str) -> QpState {
    STATES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} is no state")).1
}

fn parsed_attribute(name: &str) -> Mask {
    ATTRIBUTES.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} is no attribute")).1
}
