//! What is done, by whoever does it.

/// Operations in flight at once: the depth of each queue.
pub(crate) const DEPTH: usize = 128;
/// Operations of a batch.
pub(crate) const BATCH: usize = 16;

/// What is posted, and so what completes. The numbers are those of `libefa.c`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Op {
    Send = 0,
    Write = 1,
    Read = 2,
    Recv = 3,
}

/// Where the queue pair's completions arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Queue {
    /// On a queue for each of its two.
    Own,
    /// On one for both.
    One,
    /// On that of a group of queue pairs.
    Group,
}

/// What is done over and over: a queue's depth is posted, the device does it, and it is polled for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Phase {
    /// One by one, or in batches and runs of 16.
    Done { op: Op, many: bool },
    /// One by one, the buffer taken out of its event.
    Taken(Op),
    /// Polls of an empty queue.
    Empty,
}

impl Phase {
    pub(crate) const ALL: [Self; 11] = {
        const fn done(op: Op, many: bool) -> Phase {
            Phase::Done { op, many }
        }
        [
            done(Op::Send, false),
            done(Op::Send, true),
            done(Op::Write, false),
            done(Op::Write, true),
            done(Op::Read, false),
            done(Op::Read, true),
            done(Op::Recv, false),
            done(Op::Recv, true),
            Self::Taken(Op::Send),
            Self::Taken(Op::Recv),
            Self::Empty,
        ]
    };

    pub(crate) fn op(self) -> Option<Op> {
        match self {
            Self::Done { op, .. } | Self::Taken(op) => Some(op),
            Self::Empty => None,
        }
    }

    pub(crate) fn many(self) -> bool {
        matches!(self, Self::Done { many: true, .. })
    }
}

/// Who does it. What `post` and `complete` do is measured, less what is around the calls to functions that are counted; the
/// rest is not.
pub(crate) trait Subject {
    /// Whether it has that.
    fn does(&self, phase: Phase) -> bool;
    /// What comes before: the other side's receives, and buffers at hand.
    fn prepare(&mut self, phase: Phase);
    /// Posts [`DEPTH`] operations.
    fn post(&mut self, phase: Phase);
    /// The device does them.
    fn device(&mut self, phase: Phase);
    /// Takes their completions, or looks as often where there are none.
    fn complete(&mut self, phase: Phase);
    /// What comes after: the other side's completions.
    fn clean_up(&mut self, phase: Phase);
}
