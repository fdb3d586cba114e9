//! What making and moving a queue pair takes.

#![forbid(unsafe_code)]

use super::{HasRnrRetry, QpKind};
use crate::caps::sealed::Sealed;
use crate::error::Limit;
use crate::{Error, Granted, Qkey, SetRnrRetry};

/// How much a queue pair holds: what to ask for. What was granted is in [`QueuePair::granted`](super::QueuePair::granted).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Depth {
    pub(crate) send: u32,
    pub(crate) recv: u32,
    pub(crate) send_buffers: Option<u8>,
    pub(crate) recv_buffers: u8,
    /// `None`: as much as there is.
    pub(crate) inline: Option<u16>,
    pub(crate) unsolicited: u32,
    pub(crate) one_queue: bool,
    pub(crate) service_level: u8,
}

impl Depth {
    /// `send` operations and `recv` receives in flight; the device rounds up to powers of two. Of operations in
    /// [`Wide`](super::Wide) entries it has half as many as of others (R18).
    ///
    /// Two buffers a SEND, and 32 inline bytes, or 80 in wide entries, or less if the device has less; one buffer a
    /// receive, and no unsolicited arrivals.
    pub const fn new(send: u32, recv: u32) -> Self {
        Self {
            send,
            recv,
            send_buffers: None,
            recv_buffers: 1,
            inline: None,
            unsolicited: 0,
            one_queue: false,
            service_level: 0,
        }
    }

    /// SENDs of up to `buffers` buffers, 1 or 2 (R09), or a refusal.
    pub const fn send_buffers(mut self, buffers: u8) -> Self {
        self.send_buffers = Some(buffers);
        self
    }

    /// Receives of up to `buffers` buffers, 1 or 2 (R19).
    pub const fn recv_buffers(mut self, buffers: u8) -> Self {
        self.recv_buffers = buffers;
        self
    }

    /// Inline SENDs, and inline writes where the kind has them, of up to `bytes` bytes (R10), or a refusal.
    pub const fn inline(mut self, bytes: u16) -> Self {
        self.inline = Some(bytes);
        self
    }

    /// Room in the completion queue for `writes` unsolicited arrivals that were not polled yet (R17).
    pub const fn unsolicited(mut self, writes: u32) -> Self {
        self.unsolicited = writes;
        self
    }

    /// Operations of this service level: 0 is that of who asks for none, 8 that for low latency. A device or a library that
    /// has it not refuses the queue pair. UD has 0 alone.
    pub const fn service_level(mut self, level: u8) -> Self {
        self.service_level = level;
        self
    }

    /// One completion queue for sends and receives, rather than one for each: half as many of the device's, and
    /// completions of both in one order. In a [`Group`](super::Group), which has its own, it says nothing.
    pub const fn one_completion_queue(mut self) -> Self {
        self.one_queue = true;
        self
    }
}

/// RESET to INIT: the queue key, the port and the partition key index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitAttr {
    pub(crate) qkey: Qkey,
    pub(crate) port: u8,
    pub(crate) pkey_index: u16,
}

impl InitAttr {
    /// With this queue key, which peers must use (R26); port 1 and partition key index 0, EFA's only ones.
    pub const fn new(qkey: Qkey) -> Self {
        Self { qkey, port: 1, pkey_index: 0 }
    }

    /// Another port; EFA has port 1 only, so the device refuses others.
    pub const fn port(mut self, port: u8) -> Self {
        self.port = port;
        self
    }

    /// Another partition key index; EFA has index 0 only, so the device refuses others.
    pub const fn pkey_index(mut self, index: u16) -> Self {
        self.pkey_index = index;
        self
    }
}

/// RTR to RTS: the first packet sequence number, and how often a peer that is not ready is tried again, if that
/// was said.
#[derive(Clone, Copy, Debug)]
pub struct RtsAttr<R = DeviceRetry> {
    pub(crate) psn: u32,
    pub(crate) rnr_retry: R,
}

impl RtsAttr {
    /// Sequence number 0, and the device's own retry rule, which is for ever on SRD.
    pub const fn new() -> Self {
        Self { psn: 0, rnr_retry: DeviceRetry(()) }
    }

    /// How often a SEND or write with immediate is tried again while the peer has no receive posted. After
    /// the last it fails with status 10, which leaves the queue pair usable. On SRD: UD tries nothing again.
    pub const fn rnr_retry(self, token: Granted<SetRnrRetry>, retry: RnrRetry) -> RtsAttr<ChosenRetry> {
        RtsAttr { psn: self.psn, rnr_retry: ChosenRetry(token, retry) }
    }
}

// Of this rule alone: `RtsAttr::default()` then tells which is meant.
impl Default for RtsAttr {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Copy> RtsAttr<R> {
    /// Another first packet sequence number, 24 bits.
    pub const fn psn(mut self, psn: u32) -> Self {
        self.psn = psn;
        self
    }
}

/// The device's own retry rule.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRetry(());

/// A retry rule of one's own choice, by [`RtsAttr::rnr_retry`].
#[derive(Clone, Copy, Debug)]
pub struct ChosenRetry(Granted<SetRnrRetry>, RnrRetry);

/// Retry rules that a queue pair of kind `K` takes.
pub trait Retries<K>: Sealed + Copy {
    #[doc(hidden)]
    fn chosen(self) -> Option<(Granted<SetRnrRetry>, RnrRetry)>;
}

impl Sealed for DeviceRetry {}
impl Sealed for ChosenRetry {}

impl<K: QpKind> Retries<K> for DeviceRetry {
    fn chosen(self) -> Option<(Granted<SetRnrRetry>, RnrRetry)> {
        None
    }
}

impl<K: HasRnrRetry> Retries<K> for ChosenRetry {
    fn chosen(self) -> Option<(Granted<SetRnrRetry>, RnrRetry)> {
        Some((self.0, self.1))
    }
}

/// How often a peer that is not ready is tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RnrRetry(u8);

impl RnrRetry {
    /// For ever: the device's default. A peer that never posts a receive holds the operation until the
    /// queue pair ends.
    pub const FOREVER: Self = Self(7);

    /// 0 to 6 times.
    ///
    /// # Errors
    /// [`Error::AboveLimit`] beyond 6: say [`RnrRetry::FOREVER`] for ever.
    pub const fn times(times: u8) -> Result<Self, Error> {
        if times > 6 {
            return Err(Error::AboveLimit { what: Limit::RnrRetries, asked: times as u64, limit: 6 });
        }
        Ok(Self(times))
    }

    /// The device's number: 0 to 6, or 7 for ever.
    pub const fn number(self) -> u8 {
        self.0
    }
}
