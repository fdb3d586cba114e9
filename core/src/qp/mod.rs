//! Queue pairs: their states, kinds and transitions.
//!
//! ```text
//!            init()         rtr()         rts(..)
//!   RESET ───────────▶ INIT ───────▶ RTR ─────────▶ RTS ◀──────▶ SQD, SQE  drain(), resume()
//!     ▲                  │            │              │
//!     └── reset() ───────┴──────▶ ERR ◀──────────────┘  error()
//! ```
//!
//! | may | RESET | INIT | RTR | RTS | SQD, SQE | ERR |
//! |---|---|---|---|---|---|---|
//! | post receives | | yes | yes | yes | yes | |
//! | publish the address, resolve peers | | | yes | yes | | |
//! | post sends and RDMA | | | | yes | | |
//! | poll | yes | yes | yes | yes | yes | yes |
//!
//! | kind | carries | to |
//! |---|---|---|
//! | [`Srd`], [`SendOnly`], `Srd<{ ops::SEND \| .. }>` | SEND and RDMA, each delivered once, in no order | SRD queue pairs |
//! | `Srd<{ ops::ALL }, Unsolicited>` | the same, with writes that consume no receive | SRD queue pairs of that kind |
//! | [`Ud`] | SEND, on a best effort | UD queue pairs |
//!
//! A UD queue pair takes no [RNR retry](RtsAttr::rnr_retry).
//!
//! | file | holds |
//! |---|---|
//! | `table` | the device's state table, as data |
//! | `state` | states and what they permit, as types |
//! | `kind` | SRD: operation sets and feature sets, as types |
//! | `entries` | sizes of send entries, as types |
//! | `ud` | UD |
//! | `attr` | what the transitions take |
//! | `pair` | the queue pair |
//! | `inner` | what it owns, and how that ends |
//! | `completions` | where its completions arrive |
//! | `group` | queue pairs that share a completion queue |
//! | `any` | a queue pair in whichever state |

mod any;
mod attr;
mod completions;
mod entries;
mod group;
mod inner;
mod kind;
mod pair;
mod state;
mod table;
mod ud;

pub use any::AnyQueuePair;
pub use attr::{ChosenRetry, Depth, DeviceRetry, InitAttr, Retries, RnrRetry, RtsAttr};
pub(crate) use completions::{Are, Completions};
pub use entries::{EntrySize, Narrow, Wide};
pub use group::{Group, Member, MemberId};
pub(crate) use inner::{Identity, Inner};
pub use kind::{
    FeatureSet, HasInlineWrite, HasRead, HasRnrRetry, HasSend, HasSendImm, HasWrite, HasWriteImm, QpKind, SameFeatures,
    SendOnly, Solicited, Srd, Unsolicited, ops,
};
pub use pair::{Endpoint, GrantedDepth, QueuePair, Shutdown};
pub use state::{
    CanReceive, CanSend, Err, Init, MovesTo, Reachable, Reset, Resumes, Rtr, Rts, Sqd, Sqe, Starts, State,
};
pub use table::{QpAttr, QpState, QpType, Transition, transition};
pub use ud::{Datagram, Ud};
