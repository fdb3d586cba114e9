//! Completion channels of the software device: a file that is readable when there may be something to do.

#![allow(unsafe_code)]

use core::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use efa_core::soft::{SoftChannel, SoftCq};
use efa_core::{CqInit, Error, Notifies, Verb};

use super::Device;
use crate::carrier::files::Kept;
use crate::poll::readable;

/// A completion channel of a software device: a file that is readable while an event was not taken, or there is
/// something to do for the device, which [`Channel::take`] and [`Channel::wait`] do. Clones name the same one.
#[derive(Clone)]
pub struct Channel {
    device: Device,
    events: SoftChannel,
    files: Arc<Files>,
    waker: Waker,
}

/// Turns that taking events takes at most.
const TURNS: u32 = 64;

/// What a channel's file tells of: sockets that frames come to, when something is due, and events that were raised. A forked
/// child has none of them: it would take what its parent waits for.
struct Files {
    all: Kept<OwnedFd>,
    timer: Kept<OwnedFd>,
    raised: Arc<Raised>,
}

/// Readable from when an event was raised until it was taken.
struct Raised(Kept<OwnedFd>);

impl Wake for Raised {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let one = 1u64;
        // SAFETY: eight bytes of ours, to an open file. Full, it is readable all the same.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// The file of a call that makes one.
fn made(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made just now, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes what a counter has counted.
fn clear(file: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: room for eight bytes, of an open file, which does not wait.
    unsafe { libc::read(file.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

impl Files {
    fn new(device: &Device) -> Result<Self, Error> {
        let refused = |error: io::Error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Error::Device { verb: Verb::CreateChannel, errno }
        };
        let make = || {
            // SAFETY: it takes numbers.
            let all = made(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
            let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
            // SAFETY: it takes numbers.
            let timer = made(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
            // SAFETY: it takes numbers.
            let raised = made(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
            Ok([all, timer, raised])
        };
        let [all, timer, raised] = Kept::make(make).map_err(refused)?;
        let files = Self { all, timer, raised: Arc::new(Raised(raised)) };
        files.watch(files.timer.as_fd())?;
        files.watch(files.raised.0.as_fd())?;
        device.shared.with_carrier(|carrier| carrier.frames().try_for_each(|socket| files.watch(socket)))?;
        Ok(files)
    }

    fn watch(&self, file: BorrowedFd<'_>) -> Result<(), Error> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: open files, and a struct of ours.
        let added = unsafe { libc::epoll_ctl(self.all.as_raw_fd(), libc::EPOLL_CTL_ADD, file.as_raw_fd(), &mut event) };
        if added == 0 { Ok(()) } else { Err(Error::Device { verb: Verb::CreateChannel, errno: crate::error::errno() }) }
    }

    /// Readable in so long; without a time, not by the timer.
    fn set(&self, after: Option<Duration>) {
        let mut when: libc::itimerspec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        };
        if let Some(after) = after {
            // Zero would stop it.
            let after = after.max(Duration::from_nanos(1));
            when.it_value.tv_sec = libc::time_t::try_from(after.as_secs()).unwrap_or(libc::time_t::MAX);
            when.it_value.tv_nsec = after.subsec_nanos().into();
        }
        // SAFETY: an open timer, a struct of ours, and no room for the old one.
        unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &when, core::ptr::null_mut()) };
    }
}

impl Device {
    /// Makes a completion channel, for [`ProtectionDomain::on_channel`](efa_core::ProtectionDomain::on_channel).
    ///
    /// # Errors
    /// What the system answered, or that the device has as many as it can.
    pub fn channel(&self) -> Result<Channel, Error> {
        let files = Arc::new(Files::new(self)?);
        let events = self.device.channel()?;
        let waker = Waker::from(files.raised.clone());
        events.register(&waker);
        self.shared.sleepers().push(Arc::downgrade(&files));
        Ok(Channel { device: self.clone(), events, files, waker })
    }
}

/// Files of those who sleep, which are told when something is due.
#[derive(Default)]
pub(super) struct Sleepers(Vec<std::sync::Weak<Files>>);

impl Sleepers {
    fn push(&mut self, files: std::sync::Weak<Files>) {
        self.0.retain(|files| files.strong_count() > 0);
        self.0.push(files);
    }

    /// When the device is to be driven next.
    pub(super) fn set(&self, after: Option<Duration>) {
        self.0.iter().filter_map(std::sync::Weak::upgrade).for_each(|files| files.set(after));
    }
}

impl fmt::Debug for Sleepers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleepers").field(&self.0.len()).finish()
    }
}

impl Channel {
    /// Does what there is to do for the device, and takes the events that there are; how many that was. It never waits.
    pub fn take(&self) -> u32 {
        clear(self.files.timer.as_fd());
        self.device.shared.may_sleep();
        // What is on its way within the wire takes some turns in which nothing is seen to be done. What is left is due
        // at once, which the last one says.
        for _ in 0..TURNS {
            if !self.device.turn() && !self.device.device.is_carrying() {
                break;
            }
        }
        clear(self.files.raised.0.as_fd());
        let taken = self.events.take();
        // An event between the two is one that is pending, and tells at once.
        self.events.register(&self.waker);
        taken
    }

    /// Waits until there is an event, or so long, and takes those that there are; how many that was. It drives the device
    /// meanwhile.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait(&self, most: Option<Duration>) -> Result<u32, Error> {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        loop {
            let taken = self.take();
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if taken > 0 || left == Some(Duration::ZERO) {
                return Ok(taken);
            }
            readable(self.as_fd(), left)?;
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.files.all.as_fd()
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("file", &self.as_fd().as_raw_fd()).finish_non_exhaustive()
    }
}

impl Notifies for Device {
    type Channel = Channel;

    fn create_cq_on(&self, init: &CqInit, channel: &Channel) -> Result<SoftCq, Error> {
        self.device.create_cq_on(init, &channel.events)
    }

    fn arm(&self, cq: &SoftCq, consumed: u32) -> Result<(), Error> {
        self.device.arm(cq, consumed)?;
        self.shared.may_sleep();
        Ok(())
    }
}
