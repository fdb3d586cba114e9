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
    row("SEND", Own, one(Send), Post, 53.1, 57.1),
    row("SEND, batches of 16", Own, many(Send), Post, 53.3, 52.3),
    row("RDMA write", Own, one(Write), Post, 68.1, 70.1),
    row("RDMA write, batches of 16", Own, many(Write), Post, 62.1, 61.0),
    row("RDMA read", Own, one(Read), Post, 68.1, 70.1),
    row("RDMA read, batches of 16", Own, many(Read), Post, 62.1, 61.0),
    row("receive", Own, one(Recv), Post, 46.0, 50.0),
    row("receive, lists of 16", Own, many(Recv), Post, 50.7, 50.8),
    row("completion of a SEND", Own, one(Send), Complete, 44.1, 44.1),
    row("completion of a SEND, runs of 16", Own, many(Send), Complete, 51.3, 51.3),
    row("completion of a SEND, its slice taken", Own, Phase::Taken(Send), Complete, 67.1, 68.1),
    row("completion of an RDMA write", Own, one(Write), Complete, 56.1, 56.1),
    row("completion of an RDMA read", Own, one(Read), Complete, 59.1, 59.1),
    row("completion of a receive", Own, one(Recv), Complete, 60.1, 60.1),
    row("completion of a receive, runs of 16", Own, many(Recv), Complete, 67.3, 67.3),
    row("completion of a receive, its slice taken", Own, Phase::Taken(Recv), Complete, 85.1, 86.1),
    row("empty poll", Own, Phase::Empty, Complete, 14.0, 16.0),
    row("one queue for both: completion of a SEND", One, one(Send), Complete, 73.0, 73.0),
    row("one queue for both: completion of a SEND, runs of 16", One, many(Send), Complete, 83.2, 83.2),
    row("one queue for both: completion of a receive", One, one(Recv), Complete, 85.0, 85.0),
    row("one queue for both: completion of a receive, runs of 16", One, many(Recv), Complete, 95.2, 95.2),
    row("one queue for both: empty poll", One, Phase::Empty, Complete, 14.0, 16.0),
    row("group: completion of a SEND", Group, one(Send), Complete, 77.0, 76.0),
    row("group: completion of a SEND, runs of 16", Group, many(Send), Complete, 82.8, 81.8),
    row("group: completion of a SEND, its slice taken", Group, Phase::Taken(Send), Complete, 110.0, 109.0),
    row("group: completion of a receive", Group, one(Recv), Complete, 88.0, 87.0),
    row("group: completion of a receive, runs of 16", Group, many(Recv), Complete, 93.8, 92.8),
    row("group: empty poll", Group, Phase::Empty, Complete, 13.0, 15.0),
];
