//! Waiting without spinning: completion queues that raise an event when they are armed and something completes.

#![allow(unsafe_code)]

use core::sync::atomic::{Ordering, fence};

use crate::memory::{Mr, RawMemory};
use crate::peer::Ah;
use crate::provider::{CqInit, CqRing, MrInit, Provider, QpInit, Queues, Registrations};
use crate::qp::{QpAttr, QpState};
use crate::{Caps, DataPath, DeviceId, Error, Gid, Leaks, Limits, PdId};

/// A provider whose completion queues can raise events on a channel (R30).
///
/// An event that was raised and not taken from its channel counts as a wake-up still to come, and is lost only with its
/// queue. It is acknowledged when it is taken, so that no queue waits for that when it ends.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no completion channels (R30)",
    label = "its completion queues raise no events",
    note = "a domain of the device's own is what `on_channel` is called on: not one that is on a channel already"
)]
pub trait Notifies: Provider {
    /// A completion channel; clones name the same one. Queues made on it keep it.
    type Channel: Clone + Send + Sync + 'static;

    /// [`Provider::create_cq`], of a queue that raises its events on `channel`.
    ///
    /// # Errors
    /// As there, and what the device answered to a channel.
    fn create_cq_on(&self, init: &CqInit, channel: &Self::Channel) -> Result<Self::Cq, Error>;

    /// Asks for one event, of a queue of [`Notifies::create_cq_on`], that `consumed` entries were read of so far: raised as
    /// soon as there are more than that, also if there are already, unless an event of the queue was not taken
    /// yet. Asking again before it is raised asks for nothing more.
    ///
    /// # Errors
    /// What the device answered.
    fn arm(&self, cq: &Self::Cq, consumed: u32) -> Result<(), Error>;
}

/// A device whose queue pairs can be waited for: what [`ProtectionDomain::on_channel`](crate::ProtectionDomain::on_channel)
/// makes them on. In all else it is `P`.
#[derive(Clone, Debug)]
pub struct Notified<P: Notifies> {
    device: P,
    channel: P::Channel,
}

/// A device whose completion queues can be armed (R30).
#[diagnostic::on_unimplemented(
    message = "completions of `{Self}` raise no events (R30)",
    label = "there is nothing to arm",
    note = "ask for a channel when the queue pair or the group is made: `domain.on_channel(&channel).endpoint(..)`"
)]
pub trait Arms: Provider + sealed::Sealed {
    /// [`Notifies::arm`].
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)]
    fn arm_cq(&self, cq: &Self::Cq, consumed: u32) -> Result<(), Error>;
}

impl<P: Notifies> Notified<P> {
    pub(crate) fn new(device: P, channel: P::Channel) -> Self {
        Self { device, channel }
    }

    /// The device.
    pub fn device(&self) -> &P {
        &self.device
    }

    /// The channel.
    pub fn channel(&self) -> &P::Channel {
        &self.channel
    }
}

/// Of its own, so that texts about others do not name what is here.
pub(crate) mod sealed {
    pub trait Sealed {}
}

impl<P: Notifies> sealed::Sealed for Notified<P> {}

impl<P: Notifies> Arms for Notified<P> {
    fn arm_cq(&self, cq: &P::Cq, consumed: u32) -> Result<(), Error> {
        self.device.arm(cq, consumed)?;
        // The poll that follows sees what was written by whoever has not seen the arming.
        fence(Ordering::SeqCst);
        Ok(())
    }
}

// SAFETY: each call is the device's own, whose promises are these.
unsafe impl<P: Notifies> Provider for Notified<P> {
    type Pd = P::Pd;
    type Cq = P::Cq;
    type Qp = P::Qp;

    const HAS_CQ_DOORBELL: bool = true;
    const BY_CALLS: bool = P::BY_CALLS;

    fn name(&self) -> &str {
        self.device.name()
    }

    fn device_id(&self) -> DeviceId {
        self.device.device_id()
    }

    fn caps(&self) -> Caps {
        self.device.caps()
    }

    fn limits(&self) -> Limits {
        self.device.limits()
    }

    fn gid(&self) -> Gid {
        self.device.gid()
    }

    fn entropy(&self) -> u64 {
        self.device.entropy()
    }

    fn leaks(&self) -> &Leaks {
        self.device.leaks()
    }

    fn data_path(&self) -> DataPath {
        self.device.data_path()
    }

    #[inline(always)]
    fn progress(&self) {
        self.device.progress();
    }

    fn announced(&self, qp: &P::Qp) {
        self.device.announced(qp);
    }

    fn collect(&self, cq: &P::Cq) {
        self.device.collect(cq);
    }

    #[inline(always)]
    fn consumed(&self, cq: &P::Cq, consumed: u32) {
        self.device.consumed(cq, consumed);
    }

    fn alloc_pd(&self) -> Result<P::Pd, Error> {
        self.device.alloc_pd()
    }

    fn pd_id(pd: &P::Pd) -> PdId {
        P::pd_id(pd)
    }

    unsafe fn reg_mr(&self, pd: &P::Pd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        // SAFETY: by the caller's word.
        unsafe { self.device.reg_mr(pd, memory, init) }
    }

    fn registrations(&self, pd: &P::Pd) -> Option<Registrations> {
        self.device.registrations(pd)
    }

    fn create_ah(&self, pd: &P::Pd, gid: Gid) -> Result<Ah, Error> {
        self.device.create_ah(pd, gid)
    }

    fn create_cq(&self, init: &CqInit) -> Result<P::Cq, Error> {
        self.device.create_cq_on(init, &self.channel)
    }

    fn create_qp(&self, pd: &P::Pd, send: &P::Cq, recv: &P::Cq, init: &QpInit) -> Result<P::Qp, Error> {
        self.device.create_qp(pd, send, recv, init)
    }

    fn modify_qp(&self, qp: &mut P::Qp, attr: &QpAttr) -> Result<(), Error> {
        self.device.modify_qp(qp, attr)
    }

    fn query_qp(&self, qp: &P::Qp) -> Result<QpState, Error> {
        self.device.query_qp(qp)
    }

    fn destroy_qp(&self, qp: &mut P::Qp) -> Result<(), Error> {
        self.device.destroy_qp(qp)
    }

    #[inline(always)]
    fn unsolicited_read(&self, qp: &P::Qp) {
        self.device.unsolicited_read(qp);
    }

    fn queues(&self, qp: &P::Qp) -> Queues {
        self.device.queues(qp)
    }

    fn completions(&self, cq: &P::Cq) -> CqRing {
        self.device.completions(cq)
    }
}
