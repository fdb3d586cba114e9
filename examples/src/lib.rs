//! What the example programs measure, move, print and verify, as modules to copy or depend on.
//!
//! | module | holds |
//! |---|---|
//! | [`pingpong`], [`transfer`], [`bare`] | what the programs of these names do |
//! | [`pattern`], [`chunks`] | content to verify, and a whole cut into numbered pieces |
//! | [`stats`], [`human`], [`table`], [`fault`] | percentiles, units, columns, and why it failed |
//! | [`device`], [`describe`] | which device runs, chosen and told |
//! | [`exchange`], [`programs`] | two programs introduced to each other, and what they are told on their command lines |
//! | [`host`] | what a host is for EFA, and what is wrong with it: the program `efa` |
//! | [`wait`], [`service`] | polls while a completion is likely, then sleeps; and who is waited for |
//!
//! Without the feature `std` the modules that need neither an operating system nor an allocator are left.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![forbid(unsafe_code)]

pub mod bare;
#[cfg(feature = "std")]
pub mod chunks;
pub mod describe;
#[cfg(feature = "std")]
pub mod device;
#[cfg(feature = "std")]
pub mod exchange;
#[cfg(feature = "std")]
pub mod fault;
#[cfg(feature = "std")]
pub mod host;
pub mod human;
pub mod pattern;
#[cfg(feature = "std")]
pub mod pingpong;
#[cfg(feature = "std")]
pub mod programs;
#[cfg(feature = "std")]
pub mod service;
pub mod stats;
#[cfg(feature = "std")]
pub mod table;
#[cfg(feature = "std")]
pub mod transfer;
#[cfg(feature = "std")]
pub mod wait;
