//! Peers: who can be reached, and who can reach us.

mod ah;

pub use ah::{Ah, AhAttr, AhObject};
