//! What the example programs measure, move, print and verify, as modules to copy or depend on.
//!
//! | module | holds |
//! |---|---|
//! | [`connect`] | two endpoints that know each other, on any two devices |
//! | [`pingpong`], [`transfer`], [`bare`] | what the programs of these names do |
//! | [`pattern`], [`chunks`] | content to verify, and a whole cut into numbered pieces |
//! | [`stats`], [`human`], [`table`], [`fault`] | percentiles, units, columns, and why it failed |
//!
//! Without the feature `std` the modules that need neither an operating system nor an allocator are left.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

pub mod bare;
#[cfg(feature = "std")]
pub mod chunks;
pub mod connect;
#[cfg(feature = "std")]
pub mod fault;
pub mod human;
pub mod pattern;
#[cfg(feature = "std")]
pub mod pingpong;
pub mod stats;
#[cfg(feature = "std")]
pub mod table;
#[cfg(feature = "std")]
pub mod transfer;
