//! Queue pairs: their states, kinds and transitions.

mod table;

pub use table::{QpAttr, QpState, QpType, Transition, transition};
