//! The fabric `efa` over software devices.

mod messages;
mod ordeal;
mod remote;
mod two;

use two::{Two, payload};
