//! What applications need because SRD keeps no order: counting arrivals, restoring an order, and knowing how
//! many receives the peer has posted.
//!
//! And large RDMA in parts. All of it is by value and without allocation; only [`Split`] touches a queue pair.

#![forbid(unsafe_code)]

mod arrivals;
mod credits;
mod reorder;
mod split;

pub use arrivals::Arrivals;
pub use credits::{RecvCredits, SendCredits};
pub use reorder::Reorder;
pub use split::{FailedPart, Split, Step};
