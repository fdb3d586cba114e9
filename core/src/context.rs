//! A device, and its protection domains.

#![allow(unsafe_code)]

use crate::error::Limit;
use crate::flags::Access;
use crate::memory::Mr;
use crate::memory::{DmaBuf, Exposed, RawMemory, Region, RegisterOptions, Registered, RemoteAccess, View};
use crate::notify::{Notified, Notifies};
use crate::provider::{MrInit, Provider, Registrations};
use crate::qp::{AnyQueuePair, Depth, Endpoint, Group, QpKind, QueuePair, Reset};
use crate::{Caps, Error, Gid, Granted, Leaks, Limits, PdId, Refused, Requirement};

/// An open device.
#[derive(Clone, Debug)]
pub struct Context<P> {
    provider: P,
}

impl<P: Provider> Context<P> {
    /// Takes a device from its provider.
    pub fn open(provider: P) -> Self {
        Self { provider }
    }

    /// The proof that the device has what `T` needs: a kind of queue pair, an access type, a capability (R07).
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what is needed and what the device has.
    pub fn require<T: Requirement>(&self) -> Result<Granted<T>, Error> {
        Granted::new(self.provider.device_id(), self.provider.caps())
    }

    /// Makes a protection domain: memory, peers and queue pairs work together within one only.
    ///
    /// # Errors
    /// What the device answered.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain<P>, Error> {
        let pd = self.provider.alloc_pd()?;
        Ok(ProtectionDomain { provider: self.provider.clone(), pd })
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        self.provider.name()
    }

    /// How operations reach it.
    pub fn data_path(&self) -> DataPath {
        self.provider.data_path()
    }

    /// What the device can do.
    pub fn caps(&self) -> Caps {
        self.provider.caps()
    }

    /// How much of it.
    pub fn limits(&self) -> Limits {
        self.provider.limits()
    }

    /// The device's address on its fabric.
    pub fn gid(&self) -> Gid {
        self.provider.gid()
    }

    /// What could not be released so far.
    pub fn leaks(&self) -> &Leaks {
        self.provider.leaks()
    }

    /// The provider that drives it.
    pub fn provider(&self) -> &P {
        &self.provider
    }
}

/// How operations reach a device.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPath {
    /// This crate writes and reads the device's queues itself.
    Direct,
    /// This crate writes and reads queues in memory, which the provider translates into calls of libibverbs and back.
    Verbs,
}

impl core::fmt::Display for DataPath {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Verbs => f.write_str("verbs"),
        }
    }
}

/// A protection domain. What is made in it keeps it alive.
#[derive(Clone)]
pub struct ProtectionDomain<P: Provider> {
    provider: P,
    pd: P::Pd,
}

impl<P: Provider> ProtectionDomain<P> {
    /// Makes a queue pair in RESET, with completion queues of its own.
    ///
    /// # Errors
    /// [`Error::ForeignToken`], [`Error::AboveLimit`] with both numbers, or what the device answered.
    pub fn create_qp<K: QpKind>(&self, kind: Granted<K>, depth: Depth) -> Result<QueuePair<P, Reset, K>, Error> {
        kind.check(self.provider.device_id())?;
        QueuePair::create(&self.provider, &self.pd, depth)
    }

    /// Makes a queue pair and brings it all the way up, with a random queue key and the defaults.
    ///
    /// # Errors
    /// As [`ProtectionDomain::create_qp`].
    pub fn endpoint<K: QpKind>(&self, kind: Granted<K>, depth: Depth) -> Result<Endpoint<P, K>, Error> {
        self.create_qp(kind, depth)?.prepare().map_err(Refused::<AnyQueuePair<P, K>>::into)
    }

    /// Makes a completion queue of `entries` for up to `N` queue pairs, which the group makes.
    ///
    /// Each needs as many as its granted depths and its budget of unsolicited arrivals together (R17).
    ///
    /// # Errors
    /// [`Error::ForeignToken`], [`Error::AboveLimit`] with both numbers, or what the device answered.
    pub fn group<K: QpKind, const N: usize>(&self, kind: Granted<K>, entries: u32) -> Result<Group<P, K, N>, Error> {
        kind.check(self.provider.device_id())?;
        let limit = self.provider.limits().max_cqe;
        if entries > limit {
            let (asked, limit) = (entries.into(), limit.into());
            return Err(Error::AboveLimit { what: Limit::CompletionEntries, asked, limit });
        }
        Group::create(&self.provider, &self.pd, entries)
    }

    /// The same domain, to make queue pairs and groups in that can be waited for: their completion queues raise events on
    /// `channel`, once each time that they were armed (R30).
    ///
    /// [`QueuePair::arm`] and [`Group::arm`] ask for an event, poll once more, and say with `None` that one may sleep. Memory
    /// and peers are the domain's as before, and several queue pairs may be on one channel.
    ///
    /// ```
    /// # #[cfg(feature = "alloc")] {
    /// use core::future::poll_fn;
    /// use core::task::Poll;
    /// use efa_core::qp::{Depth, Endpoint, Srd};
    /// use efa_core::soft::{Profile, SoftChannel, SoftDevice};
    /// use efa_core::work::Event;
    /// use efa_core::{Context, Error, Notified};
    ///
    /// let ctx = Context::open(SoftDevice::new(Profile::RDMA));
    /// let channel = ctx.provider().channel()?;
    /// let pd = ctx.alloc_pd()?;
    /// let mut endpoint = pd.on_channel(&channel).endpoint(ctx.require::<Srd>()?, Depth::new(8, 8))?;
    ///
    /// /// The next completion. Dropping this future loses nothing: what is in flight is the queue pair's.
    /// async fn next(qp: &mut Endpoint<Notified<SoftDevice>>, channel: &SoftChannel) -> Result<Event, Error> {
    ///     poll_fn(|cx| {
    ///         if let Some(event) = qp.poll() {
    ///             return Poll::Ready(Ok(event));
    ///         }
    ///         // What was raised so far is no news; then the waker, before the queues are armed and looked at once more.
    ///         channel.take();
    ///         channel.register(cx.waker());
    ///         match qp.arm() {
    ///             Ok(Some(event)) => Poll::Ready(Ok(event)),
    ///             Ok(None) => Poll::Pending,
    ///             Err(error) => Poll::Ready(Err(error)),
    ///         }
    ///     })
    ///     .await
    /// }
    /// # let _ = (&mut endpoint, next);
    /// # }
    /// # Ok::<(), efa_core::Error>(())
    /// ```
    pub fn on_channel(&self, channel: &P::Channel) -> ProtectionDomain<Notified<P>>
    where
        P: Notifies,
    {
        ProtectionDomain { provider: Notified::new(self.provider.clone(), channel.clone()), pd: self.pd.clone() }
    }

    /// Registers memory for this side's own operations: peers have no right to it.
    ///
    /// Registration is slow, hundreds of milliseconds for a gibibyte, and what can be registered is bounded:
    /// do it once, for few large regions, and use slices of them (R35).
    ///
    /// # Errors
    /// [`Error::ZeroLength`] (R37), [`Error::AboveLimit`], or what the device answered; with the memory.
    pub fn register<M: DmaBuf>(&self, memory: M) -> Result<Registered<M>, Refused<M>> {
        self.register_with(memory, RegisterOptions::new())
    }

    /// Registers memory with options.
    ///
    /// # Errors
    /// As [`ProtectionDomain::register`]; [`Error::PageOffset`].
    pub fn register_with<M: DmaBuf>(&self, memory: M, options: RegisterOptions) -> Result<Registered<M>, Refused<M>> {
        self.reg_mr(memory, &options.init(Access::LOCAL_WRITE, false), 1).map(Region::new)
    }

    /// Registers memory that peers may reach, as `A` says, by the grants that they are given.
    ///
    /// It must be aligned to and a whole number of words, since both sides use atomics on it, if the CPU sees it.
    ///
    /// # Errors
    /// [`Error::ForeignToken`], [`Error::Misaligned`], or as [`ProtectionDomain::register`]; with the memory.
    pub fn expose<M: DmaBuf, A: RemoteAccess>(
        &self,
        memory: M,
        access: Granted<A>,
    ) -> Result<Exposed<M, A>, Refused<M>> {
        self.expose_with(memory, access, RegisterOptions::new())
    }

    /// Registers memory that peers may reach, with options.
    ///
    /// # Errors
    /// As [`ProtectionDomain::expose`].
    pub fn expose_with<M: DmaBuf, A: RemoteAccess>(
        &self,
        memory: M,
        access: Granted<A>,
        options: RegisterOptions,
    ) -> Result<Exposed<M, A>, Refused<M>> {
        if let Err(error) = access.check(self.provider.device_id()) {
            return Err(Refused::new(memory, error));
        }
        self.reg_mr(memory, &options.init(A::ACCESS, true), M::View::SHARED_ALIGN).map(Exposed::new)
    }

    fn reg_mr<M: DmaBuf>(&self, memory: M, init: &MrInit, align: usize) -> Result<Mr, Refused<M>> {
        let memory = RawMemory::new(memory);
        let (address, len) = (memory.parts().base.addr().get(), memory.parts().len);
        let limit = self.provider.limits().max_mr_size;
        let refusal = if len == 0 {
            Some(Error::ZeroLength)
        } else if len as u64 > limit {
            Some(Error::AboveLimit { what: Limit::RegionBytes, asked: len as u64, limit })
        } else if !address.is_multiple_of(align) || !len.is_multiple_of(align) {
            Some(Error::Misaligned { address: address as u64, len: len as u64, to: align as u64 })
        } else {
            None
        };
        let result = match refusal {
            Some(error) => Err((memory, error)),
            // SAFETY: a `DmaBuf` is valid until it is given back and reached through nothing else; shared it
            // becomes an `Exposed`, which uses atomics only.
            None => unsafe { self.provider.reg_mr(&self.pd, memory, init) },
        };
        result.map_err(|(memory, error)| {
            // SAFETY: the provider gives back what it was given, which was made from an `M` above.
            let memory = unsafe { memory.into_owner::<M>() };
            Refused::new(memory, error)
        })
    }

    /// What registration cost so far, if the provider counts it: it is slow, so few and large regions that are used again are
    /// what one wants to see (R35).
    ///
    /// ```
    /// # #[cfg(feature = "alloc")] {
    /// # use efa_core::{Context, soft};
    /// let pd = Context::open(soft::SoftDevice::new(soft::Profile::RDMA)).alloc_pd()?;
    /// let (_, slice) = pd.register(vec![0; 4096])?;
    /// assert_eq!(pd.registrations().unwrap().to_string(), "1 registration of 4096 bytes");
    /// # drop(slice);
    /// # }
    /// # Ok::<(), efa_core::Error>(())
    /// ```
    pub fn registrations(&self) -> Option<Registrations> {
        self.provider.registrations(&self.pd)
    }

    /// The domain's identity.
    pub fn id(&self) -> PdId {
        P::pd_id(&self.pd)
    }
}

impl<P: Provider> core::fmt::Debug for ProtectionDomain<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("ProtectionDomain").field(&self.id()).finish()
    }
}
