//! The queue pair.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use super::inner::next_id;
use super::{
    AnyQueuePair, CanReceive, Depth, EntrySize, Err, Init, InitAttr, Inner, MovesTo, QpAttr, QpKind, Reachable, Reset,
    Resumes, Retries, Rtr, Rts, RtsAttr, Sqd, Srd, Starts, State,
};
use crate::error::Limit;
use crate::flags::QpAttrMask;
use crate::provider::Provider;
use crate::wire::{EndpointInfo, Hello, HelloFrame};
use crate::work::{Event, Failure, Stats};
use crate::{Arms, Error, Incarnation, PdId, Qkey, Qpn, Refused};

/// A queue pair in state `S`, of kind `K`: the one object that posts, polls and is reached by peers.
///
/// A transition consumes it and gives the next state, or gives it back with the reason. It has one owner and
/// can be moved to a thread; for a field that lives through bring-up there is [`AnyQueuePair`](super::AnyQueuePair).
///
/// Dropping it destroys it: buffers in flight return to their regions. If the device refuses, everything it
/// may still use is leaked and counted in [`Leaks`](crate::Leaks).
#[must_use = "a queue pair that is dropped is destroyed"]
pub struct QueuePair<P: Provider, S = Rts, K = Srd> {
    pub(crate) inner: Inner<P>,
    typed: PhantomData<fn() -> (S, K)>,
}

/// A queue pair that can do everything: in RTS.
pub type Endpoint<P, K = Srd> = QueuePair<P, Rts, K>;

/// What was granted of what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedDepth {
    /// Operations in flight.
    pub send: u32,
    /// Receives in flight.
    pub recv: u32,
    /// Buffers of one SEND.
    pub send_buffers: u8,
    /// Buffers of one receive.
    pub recv_buffers: u8,
    /// Bytes of a send entry: 64, or 128 (R10).
    pub entry_size: u16,
    /// Inline bytes of one SEND, and of one inline write where the kind has it.
    pub inline: u16,
    /// Operations of one batch.
    pub batch: u16,
}

/// Packet sequence numbers have 24 bits.
const MAX_PSN: u32 = 0xFF_FFFF;

/// How a [`QueuePair::shut_down`] went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Operations and receives that completed, flushes included.
    pub completed: u32,
    /// Operations and receives that had not completed by the deadline; destroying the queue pair gave their
    /// buffers back.
    pub reclaimed: u32,
}

impl<P: Provider, K: QpKind> QueuePair<P, Reset, K> {
    pub(crate) fn create(provider: &P, pd: &P::Pd, depth: Depth) -> Result<Self, Error> {
        Inner::new::<K>(provider, pd, depth, None).map(Self::of)
    }
}

impl<P: Provider, S: State, K: QpKind> QueuePair<P, S, K> {
    pub(super) fn of(inner: Inner<P>) -> Self {
        Self { inner, typed: PhantomData }
    }

    fn move_to<T: State>(mut self, attr: &QpAttr) -> Result<QueuePair<P, T, K>, Refused<Self>>
    where
        S: MovesTo<T, K>,
    {
        match self.inner.modify(attr) {
            Ok(()) => Ok(QueuePair::of(self.inner)),
            Result::Err(error) => Result::Err(Refused::new(self, error)),
        }
    }

    /// To INIT: receives can be posted from here on.
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn init(self, attr: InitAttr) -> Result<QueuePair<P, Init, K>, Refused<Self>>
    where
        S: MovesTo<Init, K>,
    {
        // From RESET the table requires these attributes, from INIT it takes them.
        let given = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::QKEY;
        let mut init = self.move_to(&QpAttr {
            qkey: attr.qkey,
            port: attr.port,
            pkey_index: attr.pkey_index,
            ..QpAttr::to(Init::STATE, <S as MovesTo<Init, K>>::MASK | given)
        })?;
        init.inner.identity.qkey = attr.qkey;
        Ok(init)
    }

    /// To RTR: peers can reach it, so its address may be published from here on (R03).
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn rtr(self) -> Result<QueuePair<P, Rtr, K>, Refused<Self>>
    where
        S: MovesTo<Rtr, K>,
    {
        self.move_to(&QpAttr::to(Rtr::STATE, <S as MovesTo<Rtr, K>>::MASK))
    }

    /// To RTS: operations can be posted from here on.
    ///
    /// # Errors
    /// [`Error::AboveLimit`] for a sequence number of more than 24 bits, [`Error::ForeignToken`] for a token of
    /// another device, or what the device answered; with the queue pair.
    pub fn rts<R>(self, attr: RtsAttr<R>) -> Result<QueuePair<P, Rts, K>, Refused<Self>>
    where
        S: Starts<K>,
        R: Retries<K>,
    {
        if attr.psn > MAX_PSN {
            let (asked, limit) = (attr.psn.into(), MAX_PSN.into());
            return Result::Err(Refused::new(self, Error::AboveLimit { what: Limit::SequenceNumber, asked, limit }));
        }
        let mut qp_attr = QpAttr { sq_psn: attr.psn, ..QpAttr::to(Rts::STATE, <S as MovesTo<Rts, K>>::MASK) };
        if let Some((token, retry)) = attr.rnr_retry.chosen() {
            if let Result::Err(error) = token.check(self.inner.provider.device_id()) {
                return Result::Err(Refused::new(self, error));
            }
            qp_attr.rnr_retry = retry.number();
            qp_attr.mask |= QpAttrMask::RNR_RETRY;
        }
        self.move_to(&qp_attr)
    }

    /// From SQD or SQE back to RTS: what waits in the send queue goes on. From SQE, poll first until nothing comes: a
    /// failure of before that is read later would close the send queue again.
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn resume(self) -> Result<QueuePair<P, Rts, K>, Refused<Self>>
    where
        S: Resumes<K>,
    {
        let mut resumed = self.move_to(&QpAttr::to(Rts::STATE, <S as MovesTo<Rts, K>>::MASK))?;
        resumed.inner.send.reopen();
        Ok(resumed)
    }

    /// In the state that the device says it is in. A device moves a queue pair by itself: to ERR when it is beyond
    /// use, to SQE when its send queue alone is, from where [`QueuePair::resume`] leads back.
    ///
    /// # Errors
    /// What the device answered, [`Error::WrongState`] for a state that no device moves it to by itself, RESET above
    /// all (R01); with the queue pair.
    pub fn query(mut self) -> Result<AnyQueuePair<P, K>, Refused<Self>> {
        let state = match self.inner.query(S::STATE) {
            Ok(state) => state,
            Result::Err(error) => return Result::Err(Refused::new(self, error)),
        };
        AnyQueuePair::of(self.inner, state).map_err(|inner| Refused::new(Self::of(inner), Error::WrongState { state }))
    }

    /// From RESET or INIT all the way to RTS, with a random queue key and the defaults of [`InitAttr`] and [`RtsAttr`].
    ///
    /// # Errors
    /// What the device answered, with the queue pair in the state that it reached.
    pub fn prepare(self) -> Result<QueuePair<P, Rts, K>, Refused<AnyQueuePair<P, K>>>
    where
        S: MovesTo<Init, K>,
        Self: Into<AnyQueuePair<P, K>>,
    {
        let qkey = Qkey::from_random(self.inner.provider.entropy());
        let init = self.init(InitAttr::new(qkey)).map_err(|refused| refused.map(Into::into))?;
        let rtr = init.rtr().map_err(|refused| refused.map(Into::into))?;
        rtr.rts(RtsAttr::new()).map_err(|refused| refused.map(Into::into))
    }

    /// To SQD: what the device has begun completes; the rest waits, in flight, for [`QueuePair::resume`].
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn drain(self) -> Result<QueuePair<P, Sqd, K>, Refused<Self>>
    where
        S: MovesTo<Sqd, K>,
    {
        self.move_to(&QpAttr::to(Sqd::STATE, <S as MovesTo<Sqd, K>>::MASK))
    }

    /// To ERR: whatever is in flight is flushed, that is, completes with [`Flushed`](crate::status::CompletionStatus::Flushed).
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn error(self) -> Result<QueuePair<P, Err, K>, Refused<Self>>
    where
        S: MovesTo<Err, K>,
    {
        self.move_to(&QpAttr::to(Err::STATE, <S as MovesTo<Err, K>>::MASK))
    }

    /// Back to RESET, where it can be brought up again, in a new life: peers must resolve it anew. Arrivals that
    /// were not polled are dropped, and counted as stale: nothing in them tells one life from the next (R20, R21).
    ///
    /// # Errors
    /// [`Error::InFlight`] while anything is in flight, since RESET gives no buffer back: go to ERR and poll
    /// until nothing is. What a forgotten [batch](QueuePair::batch) had stays in flight: [shut it down](QueuePair::shut_down) instead. Else what
    /// the device answered. With the queue pair.
    pub fn reset(self) -> Result<QueuePair<P, Reset, K>, Refused<Self>>
    where
        S: MovesTo<Reset, K>,
    {
        let operations = self.inner.in_flight();
        if operations > 0 {
            return Result::Err(Refused::new(self, Error::InFlight { operations }));
        }
        let id = match next_id() {
            Ok(id) => id,
            Result::Err(error) => return Result::Err(Refused::new(self, error)),
        };
        let mut reset = self.move_to(&QpAttr::to(Reset::STATE, <S as MovesTo<Reset, K>>::MASK))?;
        reset.inner.start_over(id);
        Ok(reset)
    }

    /// The next completion: an operation done, an arrival, or a failure. `None` if there is none yet.
    ///
    /// Of two completion queues the one that had something last is looked at first, until it was read once around: the
    /// other waits for no longer than that. A software device advances here.
    #[inline]
    pub fn poll(&mut self) -> Option<Event> {
        self.inner.poll::<K>()
    }

    /// Arms its completion queues, for an event on their channel at the next completion of each, and polls once more
    /// (R30): `None` says that one may sleep until the channel has an event.
    ///
    /// After that sleep take the channel's events, poll until nothing comes, and arm again, in this order; post before that,
    /// not after, since what a library refuses of a post completes without an event ([`DataPath::Verbs`](crate::DataPath)). An
    /// event may turn out to be of what was polled already; none is missing. Arming again before an event came, after polls
    /// or without, asks for no second one, and a completion that this returns leaves the queues armed.
    ///
    /// # Errors
    /// What the device answered; it may then not be armed.
    pub fn arm(&mut self) -> Result<Option<Event>, Error>
    where
        P: Arms,
    {
        self.inner.arm()?;
        Ok(self.poll())
    }

    /// The first failure that was not a flush, whose consequences the flushes that follow are (R40), or the one by
    /// which the device failed the queue pair: then nothing more can be posted.
    pub fn cause(&self) -> Option<&Failure> {
        self.inner.cause.as_ref()
    }

    /// What was counted so far.
    pub fn stats(&self) -> Stats {
        self.inner.stats
    }

    /// Operations and receives in flight.
    pub fn in_flight(&self) -> u32 {
        self.inner.in_flight()
    }

    /// What was granted of what was asked for.
    pub fn granted(&self) -> GrantedDepth {
        GrantedDepth {
            send: self.inner.send.slots().depth(),
            recv: self.inner.recv.slots().depth(),
            send_buffers: self.inner.identity.max_buffers,
            recv_buffers: self.inner.recv.max_buffers(),
            entry_size: K::Entries::BYTES,
            inline: self.inner.identity.max_inline,
            batch: self.inner.send.max_batch(),
        }
    }

    /// Bytes of one RDMA operation; more go in parts, by [`Split`](crate::flow::Split).
    pub fn max_rdma_size(&self) -> u32 {
        // It was made of as many bits.
        self.inner.identity.max_rdma as u32
    }

    /// The protection domain it belongs to.
    pub fn pd_id(&self) -> PdId {
        self.inner.identity.pd
    }

    /// Its number: for messages and tools. An address for peers is in [`QueuePair::hello`].
    pub fn qpn(&self) -> Qpn {
        self.inner.identity.qpn
    }

    /// Its present life.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.inner.identity.incarnation
    }

    /// The provider that drives it.
    pub fn provider(&self) -> &P {
        &self.inner.provider
    }

    /// Destroys it now. Buffers in flight return to their regions; [`QueuePair::shut_down`] hands them over.
    ///
    /// # Errors
    /// What the device answered, with the queue pair.
    pub fn close(mut self) -> Result<(), Refused<Self>> {
        self.inner.destroy().map_err(|error| Refused::new(self, error))
    }

    /// Ends it in R34's order: to ERR, poll until nothing is in flight or `expired` says so, destroy.
    ///
    /// Every operation is resolved exactly once: `sink` gets each completion as an event, and after the
    /// queue pair was destroyed, what had not completed as [`Event::Reclaimed`].
    ///
    /// # Errors
    /// What the device answered, with the queue pair in the state that it reached; what is in flight is then
    /// still the device's.
    pub fn shut_down(
        self,
        mut expired: impl FnMut() -> bool,
        mut sink: impl FnMut(Event),
    ) -> Result<Shutdown, Refused<AnyQueuePair<P, K>>>
    where
        S: MovesTo<Err, K>,
        Self: Into<AnyQueuePair<P, K>>,
    {
        let mut qp = self.error().map_err(|refused| refused.map(Into::into))?;
        let before = qp.in_flight();
        while qp.in_flight() > 0 && !expired() {
            match qp.poll() {
                Some(event) => sink(event),
                None => core::hint::spin_loop(),
            }
        }
        // The deadline ends the waiting, not what is here already; as much as the queues hold, for a peer may go on.
        for _ in 0..qp.inner.completions.entries() {
            let Some(event) = qp.inner.poll_ready::<K>() else { break };
            sink(event);
        }
        let reclaimed = qp.in_flight();
        if let Result::Err(error) = qp.inner.destroy() {
            return Result::Err(Refused::new(qp.into(), error));
        }
        while let Some(event) = qp.inner.reclaim() {
            sink(event);
        }
        Ok(Shutdown { completed: before - reclaimed, reclaimed })
    }
}

impl<P: Provider, S: State, K: QpKind> QueuePair<P, S, K> {
    /// What peers must know of it. Post receives before you send this: a peer may use it at once.
    pub fn hello(&self) -> HelloFrame
    where
        S: Reachable,
    {
        let identity = &self.inner.identity;
        let hello = Hello {
            endpoint: self.address(),
            features: <K::Features as super::FeatureSet>::FEATURES,
            ops: K::OPS,
            caps: self.inner.provider.caps(),
            max_message: identity.max_msg,
            max_rdma: self.max_rdma_size(),
            incarnation: identity.incarnation,
        };
        hello.to_frame()
    }

    /// Its bare address, for peers that speak the 24-byte form or libfabric's: it carries neither features
    /// nor an incarnation, so nothing of them can be checked.
    pub fn address(&self) -> EndpointInfo
    where
        S: Reachable,
    {
        let identity = &self.inner.identity;
        EndpointInfo { gid: self.inner.provider.gid(), qpn: identity.qpn, qkey: identity.qkey }
    }
}

impl<P: Provider, S: State, K: QpKind> QueuePair<P, S, K> {
    /// Whether there is room for another receive.
    pub fn can_post_recv(&self) -> bool
    where
        S: CanReceive,
    {
        !self.inner.recv.slots().is_full()
    }
}

impl<P: Provider, S: State, K> fmt::Debug for QueuePair<P, S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("device", &self.inner.provider.name())
            .field("state", &S::STATE)
            .field("qpn", &self.inner.identity.qpn)
            .field("in_flight", &self.inner.in_flight())
            .finish_non_exhaustive()
    }
}
