//! The fuzz bodies: functions of bytes that panic when a property does not hold.
//!
//! libFuzzer calls them in `fuzz_targets/`; `tests/corpus.rs` calls them with the corpus, on stable.

mod wire;

pub use wire::{endpoint, frames};
