//! A program at the kernel's ABI that may ask for anything: see [`softefa::script`].

use softefa::errno::Errno;
use softefa::script;

use crate::Reached;

const GOOD: [&str; script::KINDS as usize] = [
    "a device opened",
    "a file of asynchronous events made",
    "device attributes asked for",
    "fewer device attributes asked for",
    "a port asked for",
    "all GIDs asked for",
    "a GID asked for",
    "a domain made",
    "memory registered",
    "an address handle made",
    "a channel made",
    "a completion queue made",
    "a queue pair made",
    "a queue pair moved",
    "a queue pair asked for",
    "a queue pair destroyed",
    "a completion queue destroyed",
    "an address handle destroyed",
    "memory deregistered",
    "a domain destroyed",
    "a port's speed asked for",
    "a file registered",
    "memory of an address registered",
    "memory of a file registered",
    "a region asked for",
    "a completion queue made at an address",
    "a completion queue made in a file",
    "counters asked for",
    "a counter made at an address",
    "a counter made in a file",
    "a counter changed",
    "a counter asked for",
    "a counter attached",
    "a counter destroyed",
];

/// Runs the requests on a device, which answers each and goes on.
pub fn requests(data: &[u8]) -> Reached {
    let outcomes = script::run(data);
    let refusals = [
        (Errno::EBADF, "EBADF"),
        (Errno::EBUSY, "EBUSY"),
        (Errno::EFAULT, "EFAULT"),
        (Errno::EINVAL, "EINVAL"),
        (Errno::ENOENT, "ENOENT"),
        (Errno::ENOSPC, "ENOSPC"),
        (Errno::EOPNOTSUPP, "EOPNOTSUPP"),
        (Errno::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
    ];
    let name = |(kind, answer): script::Outcome| match answer {
        Ok(()) => GOOD.get(usize::from(kind)).copied(),
        Err(errno) => refusals.iter().find(|(known, _)| *known == errno).map(|(_, name)| *name),
    };
    outcomes.into_iter().filter_map(name).collect()
}
