//! What applications need because SRD keeps no order: counting arrivals, restoring an order, and knowing how
//! many receives the peer has posted.
//!
//! None of it touches a device; all of it is by value and without allocation.

#![forbid(unsafe_code)]

mod arrivals;
mod credits;
mod reorder;

pub use arrivals::Arrivals;
pub use credits::{RecvCredits, SendCredits};
pub use reorder::Reorder;
