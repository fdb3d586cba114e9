//! Peers: who can be reached, and who can reach us.
//!
//! ```text
//!   A                                B
//!   resolve(B's hello) ── ready ──▶  confirm(A's ready)   B's peer A is mutual
//!   confirm(B's ready) ◀── ready ──  resolve(A's hello)   A's peer B is mutual
//! ```
//!
//! Resolving makes an address handle: then we can send. RDMA needs more, the other side's address handle
//! for us (R04); its ready proves it, by the echo of our incarnation. The bytes travel on whatever channel
//! the application has.
//!
//! [`Ah`] and what it is made of are for whoever implements a [`Provider`](crate::Provider).
//!
//! | file | holds |
//! |---|---|
//! | `ah` | an address handle, counted |
//! | `resolve` | from a hello to a peer, from a ready to a mutual one |
//! | `window` | memory that a peer granted |
//! | `sender` | who sent what arrived |
//! | `table` | peers by what arrives |

mod ah;
mod resolve;
mod sender;
mod table;
mod window;

pub use ah::{Ah, AhAttr, AhObject};
pub(crate) use resolve::PeerCore;
pub use resolve::{Mutual, OneWay, Peer, Resolution, ResolvedUs, SendTo};
pub use sender::Sender;
pub use table::PeerTable;
pub use window::RemoteWindow;
