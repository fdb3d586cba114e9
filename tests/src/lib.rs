//! What the tests and benchmarks across crates share. The checks themselves are in `tests/` and efa-benches, and the
//! script `run` beside this crate's manifest runs every check of the repository.
#![deny(unsafe_code)]

pub mod alloc_count;
pub mod still;

/// The README's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
