//! What libibverbs' and libefa's headers declare, as far as it is used here, by hand.
//!
//! | file | holds |
//! |---|---|
//! | `layout` | the macro that declares, and registers for the comparison with C |
//! | `device` | devices, contexts, ports |
//! | `events` | events |
//! | `memory` | domains, regions, address handles |
//! | `cq`, `qp` | completion queues, queue pairs |
//! | `efadv` | libefa's own |
//! | `check` | the comparison with the headers that are installed (feature `system`, tests only) |
//!
//! Enumerations of C are numbers here: a value that nobody knows yet is no undefined behaviour.

#[cfg(all(test, feature = "system"))]
mod check;
mod cq;
mod device;
mod efadv;
mod events;
pub(crate) mod layout;
mod memory;
mod qp;
mod zeroed;

pub(crate) use cq::*;
pub(crate) use device::*;
pub(crate) use efadv::*;
pub(crate) use events::*;
pub(crate) use memory::*;
pub(crate) use qp::*;
pub(crate) use zeroed::Zeroed;
