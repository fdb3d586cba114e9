//! The software EFA device behind the Linux kernel's verbs ABI: a library for `LD_PRELOAD`.
//!
//! It answers as `/dev/infiniband/uverbsN`, its files in sysfs, its ioctl and its mappings do, so that the real,
//! unmodified libibverbs and libefa, and any program on them, find EFA devices where there are none. The devices are
//! those of [`efa_core::soft`]. See the README beside this crate for how to use it and what it cannot do.
//!
//! | module | holds |
//! |---|---|
//! | `hooks` | the C functions that stand before libc's (feature `preload`) |
//! | [`process`] | the process's devices and files |
//! | [`host`] | its addresses on the fabric that it shares with other processes |
//! | [`config`], [`driver`] | the environment, and what of it is the driver's |
//! | [`sysfs`] | the files that describe the devices |
//! | [`uapi`], [`ioctl`] | the interface's numbers, and taking its requests apart |
//! | [`handles`], [`verbs`] | objects, and what each call does |
//! | [`mmap`], [`foreign`], `peer` | the memory of queues, what the program names by a file, a GPU's by its address |
//! | [`events`], [`progress`] | event files, and the thread that drives the devices |
//! | [`script`] | calls of a program that may ask for anything, for tests |
//! | [`own`], [`sys`], [`errno`] | this process's memory, system calls, error numbers |

#![deny(unsafe_code)]

pub mod config;
pub mod driver;
pub mod errno;
pub mod events;
pub mod foreign;
pub mod handles;
#[cfg(all(feature = "preload", not(test)))]
pub mod hooks;
pub mod host;
pub mod ioctl;
pub mod mmap;
pub mod own;
mod peer;
pub mod process;
pub mod progress;
pub mod script;
pub mod sys;
pub mod sysfs;
pub mod uapi;
pub mod verbs;
