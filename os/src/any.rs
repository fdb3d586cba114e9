//! A device that is an EFA or a software device, as is said when the program runs.

#![allow(unsafe_code)]

use core::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use efa_core::memory::{Mr, RawMemory};
use efa_core::peer::Ah;
use efa_core::qp::{QpAttr, QpState};
use efa_core::soft::{SoftCq, SoftPd, SoftQp};
use efa_core::{
    Caps, CqInit, CqRing, DataPath, DeviceId, Error, Gid, Leaks, Limits, MrInit, Notifies, PdId, Provider, QpInit,
    Queues, Registrations, Verb,
};

use crate::channel::Channel;
use crate::device::{Cq, Device, Pd, Qp};
use crate::soft;

const DEVICES: &str = "EFA_OS_DEVICES";

/// Which devices a program wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// EFA's. Where there is none, that is an error.
    Efa,
    /// Software devices.
    Soft,
    /// EFA's where there is one, else software devices.
    EfaElseSoft,
}

impl Choice {
    /// What `EFA_OS_DEVICES` says: `efa`, `soft`, or nothing, which leaves it open.
    ///
    /// # Errors
    /// [`crate::Error::Variable`] for any other value.
    pub fn from_environment() -> Result<Self, crate::Error> {
        Self::named(std::env::var_os(DEVICES).unwrap_or_default().to_string_lossy().into_owned())
    }

    fn named(value: String) -> Result<Self, crate::Error> {
        match value.as_str() {
            "" => Ok(Self::EfaElseSoft),
            "efa" => Ok(Self::Efa),
            "soft" => Ok(Self::Soft),
            _ => Err(crate::Error::Variable { name: DEVICES, value, accepted: "efa, soft" }),
        }
    }
}

/// The devices that were chosen.
#[derive(Debug)]
pub struct Chosen {
    /// At least one, all of one kind.
    pub devices: Vec<AnyDevice>,
    /// Why these are software devices and no EFA, where that was left open.
    pub instead_of: Option<crate::Error>,
}

/// An EFA, or a software device that other processes reach; clones name the same one.
///
/// ```
/// use efa_core::Context;
/// use efa_os::{AnyDevice, Choice, soft};
///
/// # fn main() -> Result<(), efa_os::Error> {
/// // An EFA if this machine has one, unless `EFA_OS_DEVICES` says otherwise.
/// let mut chosen = AnyDevice::choose(Choice::from_environment()?, &soft::Options::from_environment())?;
/// if let Some(why) = &chosen.instead_of {
///     println!("a software device: {why}");
/// }
/// let ctx = Context::open(chosen.devices.swap_remove(0));
/// println!("{} at {}", ctx.name(), ctx.gid());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum AnyDevice {
    /// An EFA.
    Efa(Device),
    /// A software device.
    Soft(soft::Device),
}

impl AnyDevice {
    /// The devices of this choice; software devices as the options say.
    ///
    /// # Errors
    /// What [`crate::devices`] or [`soft::Options::open`] says. That there is no EFA is none where either will do; that
    /// there is one which cannot be opened is.
    pub fn choose(choice: Choice, options: &soft::Options) -> Result<Chosen, crate::Error> {
        let instead_of = match choice {
            Choice::Soft => None,
            Choice::Efa | Choice::EfaElseSoft => match crate::devices() {
                Ok(devices) => {
                    return Ok(Chosen { devices: devices.into_iter().map(Self::Efa).collect(), instead_of: None });
                }
                Err(error @ (crate::Error::Load(_) | crate::Error::NoDevice { .. }))
                    if choice == Choice::EfaElseSoft =>
                {
                    Some(error)
                }
                Err(error) => return Err(error),
            },
        };
        Ok(Chosen { devices: options.open()?.into_iter().map(Self::Soft).collect(), instead_of })
    }
}

macro_rules! of_either {
    ($(#[$doc:meta] $name:ident: $efa:ty, $soft:ty;)*) => {$(
        #[$doc]
        pub struct $name(Either<$efa, $soft>);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match &self.0 {
                    Either::Efa(one) => one.fmt(f),
                    Either::Soft(one) => one.fmt(f),
                }
            }
        }
    )*};
}

#[derive(Clone)]
enum Either<E, S> {
    Efa(E),
    Soft(S),
}

/// A completion channel of an [`AnyDevice`]; clones name the same one.
#[derive(Clone, Debug)]
pub enum AnyChannel {
    /// An EFA's.
    Efa(Channel),
    /// A software device's.
    Soft(soft::Channel),
}

impl AnyDevice {
    /// Makes a completion channel, for [`ProtectionDomain::on_channel`](efa_core::ProtectionDomain::on_channel).
    ///
    /// # Errors
    /// What the system answered.
    pub fn channel(&self) -> Result<AnyChannel, Error> {
        match self {
            Self::Efa(device) => device.channel().map(AnyChannel::Efa),
            Self::Soft(device) => device.channel().map(AnyChannel::Soft),
        }
    }
}

impl AnyChannel {
    /// Takes the events that there are; how many that was. It never waits.
    ///
    /// # Errors
    /// What the system answered.
    pub fn take(&self) -> Result<u32, Error> {
        match self {
            Self::Efa(channel) => channel.take(),
            Self::Soft(channel) => Ok(channel.take()),
        }
    }

    /// Waits until there is an event, or so long, and takes those that there are; how many that was.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait(&self, most: Option<Duration>) -> Result<u32, Error> {
        match self {
            Self::Efa(channel) => channel.wait(most),
            Self::Soft(channel) => channel.wait(most),
        }
    }
}

impl AsFd for AnyChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Efa(channel) => channel.as_fd(),
            Self::Soft(channel) => channel.as_fd(),
        }
    }
}

impl AsRawFd for AnyChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Notifies for AnyDevice {
    type Channel = AnyChannel;

    fn create_cq_on(&self, init: &CqInit, channel: &AnyChannel) -> Result<AnyCq, Error> {
        Ok(AnyCq(match (self, channel) {
            (Self::Efa(device), AnyChannel::Efa(channel)) => Either::Efa(device.create_cq_on(init, channel)?),
            (Self::Soft(device), AnyChannel::Soft(channel)) => Either::Soft(device.create_cq_on(init, channel)?),
            _ => return Err(foreign(Verb::CreateCq)),
        }))
    }

    fn arm(&self, cq: &AnyCq, consumed: u32) -> Result<(), Error> {
        match (self, &cq.0) {
            (Self::Efa(device), Either::Efa(cq)) => device.arm(cq, consumed),
            (Self::Soft(device), Either::Soft(cq)) => device.arm(cq, consumed),
            _ => Err(foreign(Verb::Arm)),
        }
    }
}

of_either! {
    /// A protection domain of an [`AnyDevice`].
    AnyPd: Pd, SoftPd;
    /// A completion queue of an [`AnyDevice`].
    AnyCq: Cq, SoftCq;
    /// A queue pair of an [`AnyDevice`].
    AnyQp: Qp, SoftQp;
}

impl Clone for AnyPd {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Clone for AnyCq {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A handle of another kind of device.
fn foreign(verb: Verb) -> Error {
    Error::Device { verb, errno: libc::EINVAL }
}

macro_rules! either {
    ($self:ident, $device:ident => $value:expr) => {
        match $self {
            AnyDevice::Efa($device) => $value,
            AnyDevice::Soft($device) => $value,
        }
    };
}

// SAFETY: the promises of whichever it is: each call goes to the device that made the handles that it is about, or is
// refused.
unsafe impl Provider for AnyDevice {
    type Pd = AnyPd;
    type Cq = AnyCq;
    type Qp = AnyQp;

    fn name(&self) -> &str {
        either!(self, device => device.name())
    }

    fn device_id(&self) -> DeviceId {
        either!(self, device => device.device_id())
    }

    fn caps(&self) -> Caps {
        either!(self, device => device.caps())
    }

    fn limits(&self) -> Limits {
        either!(self, device => device.limits())
    }

    fn gid(&self) -> Gid {
        either!(self, device => device.gid())
    }

    fn entropy(&self) -> u64 {
        either!(self, device => device.entropy())
    }

    fn leaks(&self) -> &Leaks {
        either!(self, device => device.leaks())
    }

    fn data_path(&self) -> DataPath {
        either!(self, device => device.data_path())
    }

    #[inline]
    fn progress(&self) {
        if let Self::Soft(device) = self {
            device.progress();
        }
    }

    const BY_CALLS: bool = true;

    fn announced(&self, qp: &AnyQp) {
        if let (Self::Efa(device), Either::Efa(qp)) = (self, &qp.0) {
            device.announced(qp);
        }
    }

    fn collect(&self, cq: &AnyCq) {
        if let (Self::Efa(device), Either::Efa(cq)) = (self, &cq.0) {
            device.collect(cq);
        }
    }

    #[inline]
    fn consumed(&self, cq: &AnyCq, consumed: u32) {
        if let (Self::Efa(device), Either::Efa(cq)) = (self, &cq.0) {
            device.consumed(cq, consumed);
        }
    }

    fn alloc_pd(&self) -> Result<AnyPd, Error> {
        Ok(AnyPd(match self {
            Self::Efa(device) => Either::Efa(device.alloc_pd()?),
            Self::Soft(device) => Either::Soft(device.alloc_pd()?),
        }))
    }

    fn pd_id(pd: &AnyPd) -> PdId {
        match &pd.0 {
            Either::Efa(pd) => Device::pd_id(pd),
            Either::Soft(pd) => soft::Device::pd_id(pd),
        }
    }

    unsafe fn reg_mr(&self, pd: &AnyPd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        match (self, &pd.0) {
            // SAFETY: by the caller's word.
            (Self::Efa(device), Either::Efa(pd)) => unsafe { device.reg_mr(pd, memory, init) },
            // SAFETY: by the caller's word.
            (Self::Soft(device), Either::Soft(pd)) => unsafe { device.reg_mr(pd, memory, init) },
            _ => Err((memory, foreign(Verb::RegMr))),
        }
    }

    fn registrations(&self, pd: &AnyPd) -> Option<Registrations> {
        match (self, &pd.0) {
            (Self::Efa(device), Either::Efa(pd)) => device.registrations(pd),
            (Self::Soft(device), Either::Soft(pd)) => device.registrations(pd),
            _ => None,
        }
    }

    fn create_ah(&self, pd: &AnyPd, gid: Gid) -> Result<Ah, Error> {
        match (self, &pd.0) {
            (Self::Efa(device), Either::Efa(pd)) => device.create_ah(pd, gid),
            (Self::Soft(device), Either::Soft(pd)) => device.create_ah(pd, gid),
            _ => Err(foreign(Verb::CreateAh)),
        }
    }

    fn create_cq(&self, init: &CqInit) -> Result<AnyCq, Error> {
        Ok(AnyCq(match self {
            Self::Efa(device) => Either::Efa(device.create_cq(init)?),
            Self::Soft(device) => Either::Soft(device.create_cq(init)?),
        }))
    }

    fn create_qp(&self, pd: &AnyPd, send: &AnyCq, recv: &AnyCq, init: &QpInit) -> Result<AnyQp, Error> {
        Ok(AnyQp(match (self, &pd.0, &send.0, &recv.0) {
            (Self::Efa(device), Either::Efa(pd), Either::Efa(send), Either::Efa(recv)) => {
                Either::Efa(device.create_qp(pd, send, recv, init)?)
            }
            (Self::Soft(device), Either::Soft(pd), Either::Soft(send), Either::Soft(recv)) => {
                Either::Soft(device.create_qp(pd, send, recv, init)?)
            }
            _ => return Err(foreign(Verb::CreateQp)),
        }))
    }

    fn modify_qp(&self, qp: &mut AnyQp, attr: &QpAttr) -> Result<(), Error> {
        match (self, &mut qp.0) {
            (Self::Efa(device), Either::Efa(qp)) => device.modify_qp(qp, attr),
            (Self::Soft(device), Either::Soft(qp)) => device.modify_qp(qp, attr),
            _ => Err(foreign(Verb::ModifyQp)),
        }
    }

    fn query_qp(&self, qp: &AnyQp) -> Result<QpState, Error> {
        match (self, &qp.0) {
            (Self::Efa(device), Either::Efa(qp)) => device.query_qp(qp),
            (Self::Soft(device), Either::Soft(qp)) => device.query_qp(qp),
            _ => Err(foreign(Verb::QueryQp)),
        }
    }

    fn destroy_qp(&self, qp: &mut AnyQp) -> Result<(), Error> {
        match (self, &mut qp.0) {
            (Self::Efa(device), Either::Efa(qp)) => device.destroy_qp(qp),
            (Self::Soft(device), Either::Soft(qp)) => device.destroy_qp(qp),
            _ => Err(foreign(Verb::DestroyQp)),
        }
    }

    fn unsolicited_read(&self, qp: &AnyQp) {
        if let (Self::Soft(device), Either::Soft(qp)) = (self, &qp.0) {
            device.unsolicited_read(qp);
        }
    }

    fn queues(&self, qp: &AnyQp) -> Queues {
        match &qp.0 {
            Either::Efa(qp) => qp.queues(),
            Either::Soft(qp) => qp.queues(),
        }
    }

    fn completions(&self, cq: &AnyCq) -> CqRing {
        match &cq.0 {
            Either::Efa(cq) => cq.ring(),
            Either::Soft(cq) => cq.ring(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_device_is_named_or_left_open_and_any_other_value_is_told() {
        let named = |value: &str| Choice::named(value.to_owned());
        assert_eq!(
            (named(""), named("efa"), named("soft")),
            (Ok(Choice::EfaElseSoft), Ok(Choice::Efa), Ok(Choice::Soft))
        );
        let error = named("hardware").unwrap_err().to_string();
        assert!(
            error.contains("EFA_OS_DEVICES") && error.contains("hardware") && error.contains("efa, soft"),
            "{error}"
        );
    }
}
