//! What a device is asked, and what its errno means.

#![forbid(unsafe_code)]

use core::fmt;

/// What a device is asked by a provider.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Make a protection domain.
    AllocPd,
    /// Register memory.
    RegMr,
    /// Deregister memory.
    DeregMr,
    /// Tell what is known of registered memory.
    QueryMr,
    /// Make an address handle.
    CreateAh,
    /// Make a completion queue.
    CreateCq,
    /// Make a queue pair.
    CreateQp,
    /// Move a queue pair.
    ModifyQp,
    /// End a queue pair.
    DestroyQp,
    /// Tell a queue pair's state.
    QueryQp,
    /// Make a completion counter.
    CreateCounter,
    /// Attach a completion counter to a queue pair.
    AttachCounter,
    /// Make a completion channel.
    CreateChannel,
    /// Arm a completion queue.
    Arm,
    /// Take an event.
    TakeEvent,
}

/// What an errno means in answer to a verb.
pub(super) struct Errno(pub(super) i32, pub(super) Verb);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.0, self.1) {
            (22, Verb::CreateAh) => {
                "EINVAL: the peer is in another availability zone or VPC, its GID is wrong, or the protection \
                 domain is not this device's (R28)"
            }
            (22, Verb::CreateQp) => {
                "EINVAL: something is another device's, or unsolicited receive was asked for with a completion queue \
                 that was not made to tell it (R22)"
            }
            (22, Verb::CreateCq) => {
                "EINVAL: its channel is another device's: make it of this one (R30); or it is to have more entries than the \
                 device takes (R17)"
            }
            (22, Verb::Arm) => "EINVAL: the queue is on no channel, or is another device's (R30)",
            (23 | 24, Verb::CreateChannel) => {
                "no more files may be open (RLIMIT_NOFILE, or the system's limit), of which each channel takes one or more"
            }
            (22, Verb::ModifyQp) => "EINVAL: the state or the attributes do not fit the device's table (R01)",
            (95, Verb::CreateCq) => {
                "EOPNOTSUPP: of what the queue was to be the device has none; if that is completion events, then on the \
                 direct data path of libefa before rdma-core 60 none can be asked for, and over the verbs path they can (R30)"
            }
            (95, Verb::ModifyQp) => "EOPNOTSUPP: port 1 and partition key index 0 are EFA's only ones (R01)",
            (12, Verb::CreateAh) => "ENOMEM: the device's table of address handles is full (R28)",
            (12, Verb::RegMr) => {
                "ENOMEM: out of regions, of device pages (huge pages need fewer), or of lockable memory \
                 (RLIMIT_MEMLOCK) (R36)"
            }
            (5, _) => "EIO: the device failed; whatever it may still use is kept, and counted as leaked",
            _ => return write!(f, "errno {}", self.0),
        };
        f.write_str(text)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllocPd => "make a protection domain",
            Self::RegMr => "register memory",
            Self::DeregMr => "deregister memory",
            Self::CreateAh => "make an address handle",
            Self::CreateCq => "make a completion queue",
            Self::CreateQp => "make a queue pair",
            Self::ModifyQp => "move the queue pair",
            Self::DestroyQp => "destroy the queue pair",
            Self::QueryQp => "tell the queue pair's state",
            Self::QueryMr => "tell what it knows of memory",
            Self::CreateCounter => "make a completion counter",
            Self::AttachCounter => "attach the completion counter",
            Self::CreateChannel => "make a completion channel",
            Self::Arm => "arm the completion queue",
            Self::TakeEvent => "take an event",
        })
    }
}
