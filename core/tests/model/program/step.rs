//! The steps of a program.

/// One call, or a few that belong together. Numbers are taken modulo what there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Send {
        node: u8,
        other: u8,
        imm: bool,
        halves: bool,
    },
    SendFrozen {
        node: u8,
        other: u8,
        len: u8,
    },
    SendMixed {
        node: u8,
        other: u8,
    },
    SendExposed {
        node: u8,
        other: u8,
        at: u8,
    },
    SendInline {
        node: u8,
        other: u8,
        len: u8,
        imm: bool,
    },
    Write {
        node: u8,
        other: u8,
        at: u8,
        imm: bool,
    },
    /// Where the kind has it.
    WriteInline {
        node: u8,
        other: u8,
        len: u8,
        at: u8,
        imm: bool,
    },
    Read {
        node: u8,
        other: u8,
        at: u8,
    },
    Split {
        node: u8,
        other: u8,
        chunk: u8,
    },
    Batch {
        node: u8,
        other: u8,
        count: u8,
        end: End,
    },
    Recv {
        node: u8,
        halves: bool,
    },
    RecvList {
        node: u8,
        count: u8,
    },
    Poll {
        node: u8,
        count: u8,
        fate: Fate,
    },
    PollAll {
        count: u8,
    },
    Expose {
        node: u8,
    },
    Revoke {
        node: u8,
    },
    CopyIn {
        node: u8,
        at: u8,
        len: u8,
    },
    CopyOut {
        node: u8,
    },
    Word {
        node: u8,
        at: u8,
    },
    Freeze {
        node: u8,
    },
    Thaw {
        node: u8,
        copy: bool,
    },
    Pool {
        node: u8,
        size: u8,
        backwards: bool,
    },
    CloseRegion {
        node: u8,
    },
    Lose {
        node: u8,
        thing: Thing,
        forget: bool,
    },
    Introduce {
        node: u8,
        other: u8,
    },
    Corrupt {
        node: u8,
        other: u8,
        at: u8,
        bit: u8,
    },
    Drain {
        node: u8,
    },
    Error {
        node: u8,
    },
    Reset {
        node: u8,
    },
    Close {
        node: u8,
    },
    ShutDown {
        node: u8,
        polls: u8,
    },
    Die {
        nic: u8,
    },
    Link {
        nic: u8,
        up: bool,
    },
}

/// What becomes of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Submit,
    Abort,
    Drop,
    Forget,
}

/// What becomes of an event's buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Keep,
    Drop,
    Forget,
}

/// What can be dropped, or forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Thing {
    Slice,
    Frozen,
    Region,
    Exposed,
    Peer(u8),
    QueuePair,
}
