//! A GPU's memory read by the EFA that wrote it: where the host cannot flush.

#![forbid(unsafe_code)]

use core::fmt;
use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::memory::{RemoteRead, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, PdId, ProtectionDomain, Provider, Token};

use super::{Completed, Holder, Inbound, Visible};
use crate::error::{Error, Refused};
use crate::memory::{GpuExposed, Owner};

type Reads = Srd<{ ops::RDMA_READ }>;

/// What the read is of: as much as a PCIe read may be answered with at least.
const LEN: usize = 64;

/// Reads a GPU's memory by the EFA itself, by a queue pair of its own to itself.
///
/// On PCIe a read overtakes no write that went the same way before it: once it has completed, what an operation wrote
/// whose completion was seen before is in the GPU's memory, wherever in it. It is for a GPU whose [`Inbound::flush`]
/// answers [`Error::NoHostFlush`], and takes an EFA with RDMA reads; what it makes visible is so for that GPU, not for
/// others that look there. Not measured yet.
pub struct Loopback<P: Provider, O: Owner> {
    endpoint: Endpoint<P, Reads>,
    itself: Peer<Mutual>,
    window: RemoteWindow<RemoteRead>,
    /// What is read, registered by the way that other memory of that GPU is.
    source: GpuExposed<O, RemoteRead>,
    pd: PdId,
    /// Where to; none while a read is in flight.
    landing: Option<Slice>,
}

impl<P: Provider, O: Owner> Loopback<P, O> {
    /// With memory of the GPU, of which up to 64 bytes are read: [`Driver::expose`](crate::Driver::expose) of a small
    /// [`Allocation`](crate::Allocation). What is to be seen by it is registered in `pd`, too.
    ///
    /// # Errors
    /// [`efa_core::Error::Unsupported`] if the device has no RDMA read, [`efa_core::Error::ForeignDomain`] if the
    /// memory is of another protection domain, what the device answered; with the memory.
    pub fn new(
        ctx: &Context<P>,
        pd: &ProtectionDomain<P>,
        source: GpuExposed<O, RemoteRead>,
    ) -> Result<Self, Refused<GpuExposed<O, RemoteRead>>> {
        match Self::ends(ctx, pd, &source) {
            Ok((endpoint, itself, window, landing)) => {
                Ok(Self { endpoint, itself, window, pd: landing.pd(), source, landing: Some(landing) })
            }
            Err(error) => Err(Refused::new(source, error.into())),
        }
    }

    #[allow(clippy::type_complexity)] // what `new` puts together
    fn ends(
        ctx: &Context<P>,
        pd: &ProtectionDomain<P>,
        source: &GpuExposed<O, RemoteRead>,
    ) -> Result<(Endpoint<P, Reads>, Peer<Mutual>, RemoteWindow<RemoteRead>, Slice), efa_core::Error> {
        let len = LEN.min(source.attr().len);
        let endpoint = pd.endpoint(ctx.require::<Reads>()?, Depth::new(1, 1))?;
        let (itself, _) = introduce(&endpoint, &endpoint)?;
        let window = itself.window(source.grant_range(&endpoint, 0..len)?.as_bytes())?;
        let (_region, landing) = pd.register(vec![0u8; len]).map_err(|refused| refused.error())?;
        Ok((endpoint, itself, window, landing))
    }

    /// The memory that was read, once nothing is read any more.
    pub fn into_source(self) -> GpuExposed<O, RemoteRead> {
        self.source
    }

    /// Has the GPU see what arrived: reads its memory, and waits for that, some ten microseconds, at most for `time`.
    ///
    /// # Errors
    /// [`Error::OtherWay`] if a read of this one says nothing of that memory;
    /// [`Error::Loopback`], [`Error::LoopbackTime`], what the device answered. With the memory, which is as before:
    /// after a read that failed take another `Loopback`, since its queue pair may be of no use any more.
    pub fn flush<B: Holder>(
        &mut self,
        arrived: Inbound<Completed, B>,
        time: Duration,
    ) -> Result<Inbound<Visible, B>, Refused<Inbound<Completed, B>>> {
        match arrived.check_way(self.source.place(), self.pd).and_then(|()| self.read(time)) {
            Ok(()) => Ok(arrived.visible()),
            Err(error) => Err(Refused::new(arrived, error)),
        }
    }

    /// One read, from now on: the end of an earlier one, that was not waited for, says nothing.
    fn read(&mut self, time: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let landing = match self.landing.take() {
            Some(landing) => landing,
            None => self.ended(start, time)?.0,
        };
        if let Err(refused) = self.endpoint.post(self.itself.read(landing, self.window), Token(0)) {
            let (landing, error) = refused.into_parts();
            self.landing = Some(landing);
            return Err(error.into());
        }
        let (landing, answer) = self.ended(start, time)?;
        self.landing = Some(landing);
        answer
    }

    /// Waits for the end of the one that is in flight.
    fn ended(&mut self, start: Instant, time: Duration) -> Result<(Slice, Result<(), Error>), Error> {
        loop {
            let event = self.endpoint.poll();
            let answer = match &event {
                Some(Event::Read(_)) => Ok(()),
                Some(Event::Failed { failure, .. }) => Err(Error::Loopback(*failure)),
                _ => Err(Error::LoopbackTime),
            };
            match event.and_then(|event| event.into_buffers().into_slice()) {
                Some(landing) => return Ok((landing, answer)),
                None if start.elapsed() >= time => return Err(Error::LoopbackTime),
                None => std::thread::yield_now(),
            }
        }
    }
}

impl<P: Provider, O: Owner> fmt::Debug for Loopback<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").field("source", &self.source).field("in_flight", &self.landing.is_none()).finish()
    }
}
