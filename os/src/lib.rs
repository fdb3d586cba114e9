//! EFA on Linux: libibverbs and libefa, found when the program runs, as a provider for efa-core.
//!
//! It is to hold a loader with one table of symbols, the raw verbs checked against the C headers, handles that
//! release what they own, and the provider over them; no policy, and nothing but Linux.
//! Until that work is done it holds only this text: a program that needs a device today runs on the software one
//! in efa-core (feature `soft`).
#![forbid(unsafe_code)]

pub mod carrier;
