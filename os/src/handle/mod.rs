//! The device's objects as handles that keep their parents and release what they own.
//!
//! | file | holds |
//! |---|---|
//! | `context` | open devices, protection domains |
//! | `mr`, `ah` | regions and address handles, as core counts them |
//! | `channel`, `events` | events, acknowledged by who reads them |
//! | `objects` | what is alive by its number, for queries from anywhere |
//! | `cq`, `qp` | completion queues and queue pairs, with their rings |

mod ah;
mod channel;
mod context;
mod cq;
mod events;
mod mr;
mod objects;
mod qp;

use core::ffi::c_int;
use core::ptr::NonNull;

pub(crate) use channel::Channel;
pub(crate) use context::{Context, Pd};
pub(crate) use cq::Cq;
use efa_core::{Error, Verb};
pub(crate) use events::Of;
pub(crate) use mr::WRITABLE_PAGES;
pub(crate) use qp::Qp;

use crate::error::{answer, errno};

/// What a call that makes an object gave: it, or null and an errno.
fn made<T>(verb: Verb, object: *mut T) -> Result<NonNull<T>, Error> {
    NonNull::new(object).ok_or_else(|| Error::Device { verb, errno: errno() })
}

/// What a call that returns an errno answered.
fn answered(verb: Verb, returned: c_int) -> Result<(), Error> {
    answer(returned).map_err(|errno| Error::Device { verb, errno })
}
