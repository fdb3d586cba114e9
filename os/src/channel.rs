//! Waiting for completions: a file to sleep on.

#![forbid(unsafe_code)]

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use efa_core::{CqInit, Error, Limit, Notifies, Verb};

use crate::device::{Cq, Device};
use crate::handle;
use crate::poll::readable;

/// A completion channel of a [`Device`]: a file that is readable while an event was not taken. Clones name the same one;
/// it is closed when the last is dropped, and the last queue on it.
///
/// ```no_run
/// use efa_core::Context;
/// use efa_core::qp::{Depth, Srd};
///
/// # fn main() -> Result<(), efa_os::Error> {
/// let ctx = Context::open(efa_os::devices()?.swap_remove(0));
/// let channel = ctx.provider().channel()?;
/// let pd = ctx.alloc_pd()?;
/// let mut endpoint = pd.on_channel(&channel).endpoint(ctx.require::<Srd>()?, Depth::new(8, 8))?;
/// loop {
///     while let Some(event) = endpoint.poll() {
///         println!("{event:?}");
///     }
///     // Armed, and polled once more: with nothing, one may sleep.
///     match endpoint.arm()? {
///         Some(event) => println!("{event:?}"),
///         None => drop(channel.wait(None)?),
///     }
/// }
/// # }
/// ```
///
/// With a reactor, wait for its file to be readable instead, then [`Channel::take`]. Who takes events takes those of all
/// queues on the channel, and wakes whoever they belong to: with several tasks that each wait on their own, give each a channel.
///
/// libefa before rdma-core 56 leaves a page mapped for each queue that was on a channel, where the device's doorbell is not
/// at a page's beginning (H29): there, keep queue pairs rather than make new ones.
///
/// Its file is for waiting. Bytes that a program reads from it itself are events that nobody acknowledges, for which the
/// library then waits when their queue is destroyed.
#[derive(Clone)]
pub struct Channel {
    handle: Arc<handle::Channel>,
    vector: u32,
}

impl Device {
    /// Makes a completion channel, for [`ProtectionDomain::on_channel`](efa_core::ProtectionDomain::on_channel), on the first
    /// completion vector.
    ///
    /// # Errors
    /// What the system answered.
    pub fn channel(&self) -> Result<Channel, Error> {
        Ok(Channel { handle: handle::Channel::create(self.context())?, vector: 0 })
    }

    /// How many completion vectors there are: interrupts of the device, each served by a processor of its own.
    pub fn completion_vectors(&self) -> u32 {
        self.context().completion_vectors()
    }
}

impl Channel {
    /// The same channel, for queues whose events come by another completion vector.
    ///
    /// # Errors
    /// [`Error::AboveLimit`] with the last one that there is.
    pub fn on_vector(&self, vector: u32) -> Result<Self, Error> {
        let count = self.handle.context.completion_vectors();
        if vector >= count {
            let (asked, limit) = (vector.into(), count.saturating_sub(1).into());
            return Err(Error::AboveLimit { what: Limit::CompletionVector, asked, limit });
        }
        Ok(Self { handle: self.handle.clone(), vector })
    }

    /// Takes and acknowledges the events that there are; how many that was. It never waits.
    ///
    /// # Errors
    /// What the system answered.
    pub fn take(&self) -> Result<u32, Error> {
        let mut count = 0u32;
        while self.handle.take()? {
            count = count.saturating_add(1);
        }
        Ok(count)
    }

    /// Waits until there is an event, or so long, and takes those that there are; how many that was.
    ///
    /// # Errors
    /// What the system answered; EIO if no event will ever come, as when the device was removed.
    pub fn wait(&self, most: Option<Duration>) -> Result<u32, Error> {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // Somebody else may take what there is first, or it goes with its queue.
            let taken = if readable(self.as_fd(), left)? { self.take()? } else { 0 };
            if taken > 0 || left == Some(Duration::ZERO) {
                return Ok(taken);
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("file", &self.as_fd().as_raw_fd()).field("vector", &self.vector).finish()
    }
}

impl Notifies for Device {
    type Channel = Channel;

    fn create_cq_on(&self, init: &CqInit, channel: &Channel) -> Result<Cq, Error> {
        if !Arc::ptr_eq(&channel.handle.context, self.context()) {
            return Err(Error::Device { verb: Verb::CreateCq, errno: libc::EINVAL });
        }
        handle::Cq::create(self.context(), init, Some((&channel.handle, channel.vector))).map(Cq::of)
    }

    fn arm(&self, cq: &Cq, consumed: u32) -> Result<(), Error> {
        cq.handle().arm(consumed)
    }
}
