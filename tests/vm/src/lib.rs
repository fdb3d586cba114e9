//! The software EFA device as a PCI function: what the Linux driver finds on its bus, served by vfio-user.
//!
//! The device behind it is [`efa_core::soft`]'s, at its queues. Here is what a driver sees of a card before and beside them:
//! registers that it never reads, the admin queue and its completions, events by message-signaled interrupts, and memory by
//! lists of pages. All that a guest writes is foreign: it is checked, and refused with the status that the device has for it.
//!
//! | module | holds |
//! |---|---|
//! | [`function`] | one function: what the monitor (QEMU) asks for goes to the right one of what follows |
//! | [`pci`] | the configuration space and the regions |
//! | [`registers`] | the registers, and reading them without a read |
//! | [`admin`] | the admin queue, and each of its commands |
//! | [`objects`] | what the commands made |
//! | [`events`] | event queues, asynchronous events, interrupts |
//! | [`guest`], [`window`] | the guest's memory by bus addresses, and by lists of pages as the device's regions |
//! | [`card`] | the functions of one wire, and what makes them advance |
//! | [`fault`] | what a card can have wrong, for tests of the driver |

#![deny(unsafe_code)]

pub mod admin;
pub mod card;
pub mod events;
pub mod fault;
pub mod function;
pub mod guest;
pub mod objects;
pub mod pci;
pub mod registers;
pub mod window;
