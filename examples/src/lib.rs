//! What the example programs measure, print and verify with, as modules to copy or depend on.
//!
//! Nothing here knows of a device: samples, content, chunks and text. Each module's header says what it is exact
//! about. Without the feature `std` the modules that need no allocator are left.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

#[cfg(feature = "std")]
pub mod chunks;
pub mod human;
pub mod pattern;
pub mod stats;
#[cfg(feature = "std")]
pub mod table;
