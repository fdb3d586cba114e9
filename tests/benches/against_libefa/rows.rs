//! The table's rows, with the counts that are committed.

use crate::subject::{Op, Phase, Queue};

/// What of a phase a row tells.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Part {
    Post,
    Complete,
}

/// A row: its name, where it completes, what is done, what is told of it, and the instructions of an operation that are
/// committed, of core on the stub and of efa-os on its direct path. More than a twentieth above them fails; what is lower is to
/// be committed.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) queue: Queue,
    pub(crate) phase: Phase,
    pub(crate) part: Part,
    pub(crate) committed: [f64; 2],
}

const fn row(name: &'static str, queue: Queue, phase: Phase, part: Part, core: f64, direct: f64) -> Row {
    Row { name, queue, phase, part, committed: [core, direct] }
}

const fn one(op: Op) -> Phase {
    Phase::Done { op, many: false }
}

const fn many(op: Op) -> Phase {
    Phase::Done { op, many: true }
}

use Op::{Read, Recv, Send, Write};
use Part::{Complete, Post};
use Queue::{Group, One, Own};

pub(crate) const ROWS: [Row; 28] = [
    row("SEND", Own, one(Send), Post, 57.7, 57.7),
    row("SEND, batches of 16", Own, many(Send), Post, 58.6, 58.6),
    row("RDMA write", Own, one(Write), Post, 76.7, 76.7),
    row("RDMA write, batches of 16", Own, many(Write), Post, 69.2, 69.2),
    row("RDMA read", Own, one(Read), Post, 76.7, 76.7),
    row("RDMA read, batches of 16", Own, many(Read), Post, 69.2, 69.2),
    row("receive", Own, one(Recv), Post, 45.0, 45.0),
    row("receive, lists of 16", Own, many(Recv), Post, 57.6, 57.6),
    row("completion of a SEND", Own, one(Send), Complete, 48.6, 48.6),
    row("completion of a SEND, runs of 16", Own, many(Send), Complete, 51.8, 51.8),
    row("completion of a SEND, its slice taken", Own, Phase::Taken(Send), Complete, 85.6, 85.6),
    row("completion of an RDMA write", Own, one(Write), Complete, 63.6, 63.6),
    row("completion of an RDMA read", Own, one(Read), Complete, 66.6, 66.6),
    row("completion of a receive", Own, one(Recv), Complete, 64.6, 64.6),
    row("completion of a receive, runs of 16", Own, many(Recv), Complete, 67.7, 67.7),
    row("completion of a receive, its slice taken", Own, Phase::Taken(Recv), Complete, 98.6, 98.6),
    row("empty poll", Own, Phase::Empty, Complete, 19.0, 19.0),
    row("one queue for both: completion of a SEND", One, one(Send), Complete, 80.3, 80.3),
    row("one queue for both: completion of a SEND, runs of 16", One, many(Send), Complete, 80.3, 80.3),
    row("one queue for both: completion of a receive", One, one(Recv), Complete, 92.3, 92.3),
    row("one queue for both: completion of a receive, runs of 16", One, many(Recv), Complete, 92.3, 92.3),
    row("one queue for both: empty poll", One, Phase::Empty, Complete, 19.0, 19.0),
    row("group: completion of a SEND", Group, one(Send), Complete, 82.0, 82.0),
    row("group: completion of a SEND, runs of 16", Group, many(Send), Complete, 82.8, 82.8),
    row("group: completion of a SEND, its slice taken", Group, Phase::Taken(Send), Complete, 125.0, 125.0),
    row("group: completion of a receive", Group, one(Recv), Complete, 93.0, 93.0),
    row("group: completion of a receive, runs of 16", Group, many(Recv), Complete, 93.8, 93.8),
    row("group: empty poll", Group, Phase::Empty, Complete, 35.0, 35.0),
];
