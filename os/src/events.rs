//! What a device tells unasked.

#![forbid(unsafe_code)]

use core::ffi::c_int;
use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use efa_core::{Error, Qpn, Verb};

use crate::device::Device;
use crate::ffi::*;
use crate::handle::{Context, Of};

/// The asynchronous events of a [`Device`], as an iterator that never waits; its file is readable while there are any.
///
/// Each is acknowledged when it is taken, so that what it is of can be destroyed whether anybody takes events or not. All of
/// these of one device share its events: each is told once. Bytes that a program reads from the file itself are events that
/// nobody acknowledges, for which the library then waits when what they are of is destroyed.
///
/// ```no_run
/// use efa_os::{AsyncEvent, QueuePairEvent};
///
/// # fn main() -> Result<(), efa_os::Error> {
/// let device = efa_os::devices()?.swap_remove(0);
/// for event in device.events()? {
///     match event? {
///         AsyncEvent::QueuePair { qpn, event: QueuePairEvent::Fatal } => println!("{qpn:?} is beyond use"),
///         AsyncEvent::DeviceFatal => println!("so is all of the device"),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct AsyncEvents(Arc<Context>);

/// What happened.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The device failed or was removed: all that was made of it is beyond use.
    DeviceFatal,
    /// Something about a port, which is EFA's only one.
    Port {
        /// Its number.
        port: u32,
        /// What.
        event: PortEvent,
    },
    /// Something about a queue pair.
    QueuePair {
        /// Its number; it may be gone, and another have the number.
        qpn: Qpn,
        /// What.
        event: QueuePairEvent,
    },
    /// A completion queue failed, by an overrun for one: its queue pairs hear of no more completions (R17).
    CompletionQueueError {
        /// Those that it serves.
        queue_pairs: Vec<Qpn>,
    },
    /// One that this crate has no name for.
    Other {
        /// Its number in `enum ibv_event_type`.
        number: i32,
    },
}

/// What happened to a port.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortEvent {
    /// It has a link.
    Active,
    /// It has none.
    Error,
    /// Its table of addresses changed: so may have the device's address, [`Context::gid`](efa_core::Context::gid), which is read
    /// when the device is opened.
    GidChange,
    /// Its table of partition keys changed.
    PkeyChange,
    /// It became faster or slower.
    SpeedChange,
}

/// What happened to a queue pair.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairEvent {
    /// It is beyond use, and in ERR.
    Fatal,
    /// It was asked for what cannot be.
    RequestError,
    /// It was asked for what is not permitted.
    AccessError,
    /// In SQD, as [`QueuePair::drain`](efa_core::qp::QueuePair::drain) leads to: what the device had begun is done, if it was
    /// asked to say so ([`QpAttr::sqd_async_notify`](efa_core::qp::QpAttr::sqd_async_notify)).
    SendQueueDrained,
}

impl Device {
    /// Its asynchronous events.
    ///
    /// # Errors
    /// What the system answered.
    pub fn events(&self) -> Result<AsyncEvents, Error> {
        self.context().unblock_events().map_err(|errno| Error::Device { verb: Verb::TakeEvent, errno })?;
        Ok(AsyncEvents(self.context().clone()))
    }
}

impl Iterator for AsyncEvents {
    type Item = Result<AsyncEvent, Error>;

    /// The next that is there.
    fn next(&mut self) -> Option<Self::Item> {
        self.0.take_async().transpose().map(|taken| taken.map(|(number, of)| AsyncEvent::named(number, of)))
    }
}

impl AsyncEvent {
    fn named(number: c_int, of: Of) -> Self {
        match of {
            Of::QueuePair(qpn) => match QueuePairEvent::named(number) {
                Some(event) => Self::QueuePair { qpn, event },
                None => Self::Other { number },
            },
            Of::CompletionQueue(queue_pairs) => Self::CompletionQueueError { queue_pairs },
            Of::Port(_) if number == IBV_EVENT_DEVICE_FATAL => Self::DeviceFatal,
            Of::Port(port) => match PortEvent::named(number) {
                Some(event) => Self::Port { port, event },
                None => Self::Other { number },
            },
        }
    }
}

impl PortEvent {
    fn named(number: c_int) -> Option<Self> {
        Some(match number {
            IBV_EVENT_PORT_ACTIVE => Self::Active,
            IBV_EVENT_PORT_ERR => Self::Error,
            IBV_EVENT_GID_CHANGE => Self::GidChange,
            IBV_EVENT_PKEY_CHANGE => Self::PkeyChange,
            IBV_EVENT_DEVICE_SPEED_CHANGE => Self::SpeedChange,
            _ => return None,
        })
    }
}

impl QueuePairEvent {
    fn named(number: c_int) -> Option<Self> {
        Some(match number {
            IBV_EVENT_QP_FATAL => Self::Fatal,
            IBV_EVENT_QP_REQ_ERR => Self::RequestError,
            IBV_EVENT_QP_ACCESS_ERR => Self::AccessError,
            IBV_EVENT_SQ_DRAINED => Self::SendQueueDrained,
            _ => return None,
        })
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events_file()
    }
}

impl fmt::Debug for AsyncEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEvents").field("file", &self.as_fd().as_raw_fd()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_that_an_efa_can_raise_has_a_name_and_any_other_keeps_its_number() {
        use PortEvent::{Active, GidChange, PkeyChange, SpeedChange};
        use QueuePairEvent::{AccessError, Fatal, RequestError, SendQueueDrained};
        let qpn = Qpn(7);
        for (number, event) in [(1, Fatal), (2, RequestError), (3, AccessError), (5, SendQueueDrained)] {
            assert_eq!(AsyncEvent::named(number, Of::QueuePair(qpn)), AsyncEvent::QueuePair { qpn, event });
        }
        for (number, event) in
            [(9, Active), (10, PortEvent::Error), (12, PkeyChange), (18, GidChange), (20, SpeedChange)]
        {
            assert_eq!(AsyncEvent::named(number, Of::Port(1)), AsyncEvent::Port { port: 1, event });
        }
        assert_eq!(AsyncEvent::named(8, Of::Port(0)), AsyncEvent::DeviceFatal);
        let queue_pairs = vec![qpn];
        let failed = AsyncEvent::named(0, Of::CompletionQueue(queue_pairs.clone()));
        assert_eq!(failed, AsyncEvent::CompletionQueueError { queue_pairs });
        assert_eq!(AsyncEvent::named(4, Of::QueuePair(qpn)), AsyncEvent::Other { number: 4 });
        assert_eq!(AsyncEvent::named(77, Of::Port(3)), AsyncEvent::Other { number: 77 });
    }
}
