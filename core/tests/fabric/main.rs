//! The fabric `efa` over software devices. Not under Miri, which takes too long: what it stands on is tried there, and it
//! forbids unsafe code itself.
#![cfg(not(miri))]

mod by_hand;
mod direct;
mod ending;
mod flow;
mod hand;
mod messages;
mod operations;
mod ordeal;
mod rdma;
mod remote;
mod two;

use two::{Two, payload};
