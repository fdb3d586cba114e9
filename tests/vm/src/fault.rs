//! What a card can have wrong: the driver's probe must end with an error, and the machine go on.

use clap::ValueEnum;

/// One thing that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Fault {
    /// The capabilities say that a reset takes no time.
    #[value(name = "reset-timeout-0")]
    ResetTimeoutZero,
    /// A register that was asked for is answered as another.
    ReadlessOffset,
    /// No asynchronous events of the groups that the driver needs.
    NoAenqGroup,
    /// No feature that tells the driver how long to wait.
    NoHardwareHints,
    /// Event queues are refused.
    CreateEq,
}
