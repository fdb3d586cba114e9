//! The direct data path: entries written to and read from a queue pair's rings.
//!
//! What is public here, a [`Word`] apart, is what a [`Provider`](crate::Provider) lays its rings out in.
//!
//! | file | holds |
//! |---|---|
//! | `word` | the one word type, and quads of ring memory |
//! | `barrier` | which fence stands where |
//! | `slots` | operations in flight: request ids, tokens, buffers |
//! | `send`, `recv` | the producers |
//! | `completion` | the consumer |

mod barrier;
mod completion;
mod recv;
mod send;
mod slots;
mod word;

pub(crate) use completion::{CompletionQueue, Consumed, Entry, Rest, Seen, Serves, Taken};
pub(crate) use recv::{RecvPlace, RecvQueue, Written};
pub(crate) use send::{Place, SendParts, SendQueue, TakenBack};
pub use slots::Slot;
pub(crate) use slots::{Finished, InFlight, Slots};
#[cfg(feature = "soft")]
pub(crate) use word::publish_quad;
pub use word::{AtomicWord, WORDS_PER_QUAD, Word};
pub(crate) use word::{load_quad, store_quad};
