//! The order between the GPU's work and the device's, as types.
//!
//! ```text
//!            synchronize, or record and wait          into_slice, post
//! Outbound<Unsynced> ──────────────────► Outbound<Ready> ──────────► in flight ──► a slice, from a completion
//!      ▲                                                                            │ outbound: it was sent
//!      ├────────────────────────────────────────────────────────────────────────────┤
//!      │ into_outbound    flush, loopback, or elide              completed: it was   │ received or read
//! Inbound<Visible> ◄───────────────────────────────── Inbound<Completed> ◄──────────┘
//! ```
//!
//! What a kernel may still read is not received into either, so that a receive takes memory that is `Ready` as a SEND does.
//!
//! | file | holds |
//! |---|---|
//! | `stream` | streams, and events that are recorded on them |
//! | `outbound` | memory that is to be posted |
//! | `inbound` | memory that something arrived in |
//! | `loopback` | what has the GPU see it where the host cannot flush |

/// What is asked of a range of memory in either direction.
macro_rules! range {
    () => {
        /// Bytes.
        pub fn len(&self) -> usize {
            self.bytes.span().1
        }

        /// Whether it has no bytes.
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        /// The GPU whose memory it is.
        pub fn device(&self) -> crate::Device {
            self.place.device
        }
    };
}

mod inbound;
mod loopback;
mod outbound;
mod stream;

pub use inbound::{Arrival, Completed, Inbound, Seen, Visible};
pub use loopback::Loopback;
pub use outbound::{Holder, Outbound, Progress, Ready, Recorded, Unsynced, Waited};
pub use stream::Stream;
