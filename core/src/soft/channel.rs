//! Completion channels: the events of some completion queues, and the waker of whoever waits for them.

#![forbid(unsafe_code)]

use core::mem;
use core::task::Waker;

use super::device::{SoftCq, SoftDevice};
use super::tables::State;
use super::verbs::{self, vacant};
use crate::error::Limit;
use crate::{CqInit, Error, Notifies, Verb};

/// A completion channel of a software device, made by [`SoftDevice::channel`]; clones name the same one.
///
/// It tells of events by one waker: [`SoftChannel::register`] replaces the last. Who takes events takes those of all its
/// queues, so tasks that wait on their own have a channel each.
///
/// The device advances in polls alone. While all who poll are asleep somebody else must drive it, an idle executor or a
/// thread: [`SoftDevice::turn`].
#[derive(Debug)]
pub struct SoftChannel {
    device: SoftDevice,
    index: u16,
}

/// What a wire knows of it.
#[derive(Debug)]
pub(super) struct Channel {
    handles: usize,
    waker: Option<Waker>,
    /// The waker is to be woken.
    due: bool,
}

impl SoftDevice {
    /// Makes a completion channel, for [`ProtectionDomain::on_channel`](crate::ProtectionDomain::on_channel).
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there are as many as the wire has room for queue pairs.
    pub fn channel(&self) -> Result<SoftChannel, Error> {
        let mut state = self.wire().lock();
        let all = state.tables.channels.len() as u32;
        let index = vacant(state.tables.channels.all(), Limit::Channels, all)?;
        if let Some(place) = state.tables.channels.get_mut(usize::from(index)) {
            *place = Some(Channel { handles: 1, waker: None, due: false });
        }
        drop(state);
        Ok(SoftChannel { device: self.clone(), index })
    }
}

impl Clone for SoftChannel {
    fn clone(&self) -> Self {
        if let Some(channel) = self.device.wire().lock().channel_mut(self.index) {
            // It sticks at its end.
            channel.handles = channel.handles.saturating_add(1);
        }
        Self { device: self.device.clone(), index: self.index }
    }
}

impl Drop for SoftChannel {
    fn drop(&mut self) {
        let last = self.device.wire().lock().release_channel(self.index);
        // Its waker is the program's: not under the lock.
        drop(last);
    }
}

impl SoftChannel {
    /// Takes the events of all its queues; how many there were. A queue raises no further one before.
    pub fn take(&self) -> u32 {
        let mut state = self.device.wire().lock();
        state.notifies_of(self.index).map(|notify| notify.take_pending()).sum()
    }

    /// Has `waker` woken at the next event, once: at once if there are events that were not taken.
    pub fn register(&self, waker: &Waker) {
        let mut waker = Some(waker.clone());
        let mut state = self.device.wire().lock();
        if state.notifies_of(self.index).any(|notify| notify.pending() > 0) {
            drop(state);
            waker.into_iter().for_each(Waker::wake);
            return;
        }
        if let Some(channel) = state.channel_mut(self.index) {
            mem::swap(&mut channel.waker, &mut waker);
            channel.due = false;
        }
        drop(state);
        // The one before, which is the program's: not under the lock.
        drop(waker);
    }
}

impl Notifies for SoftDevice {
    type Channel = SoftChannel;

    fn create_cq_on(&self, init: &CqInit, channel: &SoftChannel) -> Result<SoftCq, Error> {
        self.invalid(Verb::CreateCq, &[&channel.device])?;
        self.make_cq(init, None, Some(channel.clone()))
    }

    fn arm(&self, cq: &SoftCq, consumed: u32) -> Result<(), Error> {
        let refused = verbs::refused(Verb::Arm, verbs::EINVAL);
        self.invalid(Verb::Arm, &[cq.device()])?;
        let mut state = self.wire().lock();
        let cq_of = state.cq_mut(cq.index()).ok_or(refused)?;
        let channel = cq_of.channel().ok_or(refused)?;
        if let Some(notify) = cq_of.notify_mut() {
            notify.arm(consumed);
        }
        state.raise_if_due(cq.index(), channel);
        Ok(())
    }
}

impl SoftChannel {
    pub(super) fn index(&self) -> u16 {
        self.index
    }
}

impl State {
    fn channel_mut(&mut self, index: u16) -> Option<&mut Channel> {
        self.tables.channels.get_mut(usize::from(index))?.as_mut()
    }

    /// Of all completion queues on a channel.
    fn notifies_of(&mut self, channel: u16) -> impl Iterator<Item = &mut super::notify::Notify> {
        let all = self.tables.cqs.all_mut().iter_mut().flatten().filter_map(|cq| cq.notify_mut());
        all.filter(move |notify| notify.channel() == Some(channel))
    }

    /// One handle less; gives the channel after the last.
    fn release_channel(&mut self, index: u16) -> Option<Channel> {
        let channel = self.channel_mut(index)?;
        if channel.handles != usize::MAX {
            channel.handles = channel.handles.saturating_sub(1);
        }
        if channel.handles == 0 { self.tables.channels.get_mut(usize::from(index))?.take() } else { None }
    }

    /// Raises an event of a completion queue on its channel, if one is due.
    pub(super) fn raise_if_due(&mut self, cq: u16, channel: u16) {
        if !self.cq_mut(cq).is_some_and(|cq| cq.take_event()) {
            return;
        }
        if let Some(channel) = self.channel_mut(channel).filter(|channel| channel.waker.is_some()) {
            channel.due = true;
            self.wakes = true;
        }
    }

    /// The next waker to be woken; without one there is nothing to wake for.
    pub(super) fn next_to_wake(&mut self) -> Option<Waker> {
        let due = self.tables.channels.all_mut().iter_mut().flatten().find(|channel| channel.due);
        let Some(channel) = due else {
            self.wakes = false;
            return None;
        };
        channel.due = false;
        channel.waker.take()
    }
}
