//! What the GPU sees of what an EFA wrote into its memory: at once, after a flush, after a read by the EFA.

#![allow(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use efa_core::connect::introduce;
use efa_core::memory::RemoteRead;
use efa_core::qp::{Depth, Endpoint, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, ProtectionDomain, Token};
use efa_cuda::{Allocation, GpuRegion, Inbound, Loopback, Outbound, Primary, Scope, Stream, Unsynced};
use efa_os::Device;

use crate::Values;

type Messages = Srd<{ ops::SEND }>;

const LEN: usize = 8192;
const ROUNDS: u32 = 200;
const TIME: Duration = Duration::from_secs(10);

/// What is done between the completion and the look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Nothing,
    Flush,
    Read,
}

/// Two ends, and memory of the GPU that messages arrive in.
struct Ends {
    a: Endpoint<Device, Messages>,
    b: Endpoint<Device, Messages>,
    to_b: efa_core::peer::Peer<efa_core::peer::Mutual>,
    pd: ProtectionDomain<Device>,
    stream: Stream,
    region: GpuRegion<Allocation>,
}

pub(crate) fn seen(primary: &Primary, values: &mut Values) -> Result<(), Box<dyn Error>> {
    let (gpu, driver) = (primary.device(), primary.device().driver());
    let device = match efa_os::devices() {
        Ok(mut devices) => devices.swap_remove(0),
        Err(error) => {
            values.told("arrivals: not measured, no EFA", error);
            return Ok(());
        }
    };
    let ctx = Context::open(device);
    values.told("arrivals by the EFA", ctx.name());
    let pd = ctx.alloc_pd()?;
    let (region, mut memory) = match driver.register(&pd, Allocation::new(primary, LEN)?) {
        Ok(registered) => registered,
        Err(refused) => {
            values.told("arrivals: not measured", refused);
            return Ok(());
        }
    };
    values.told("synchronous copies", format!("{:?}", region.sync_memops()));
    let end = || pd.endpoint(ctx.require::<Messages>()?, Depth::new(8, 8));
    let (a, b) = (end()?, end()?);
    let (to_b, _to_a) = introduce(&a, &b)?;
    let mut ends = Ends { a, b, to_b, pd, stream: Stream::new(primary)?, region };
    let mut loopback = match ctx.require::<RemoteRead>() {
        Ok(access) => {
            let source = driver.expose(&ends.pd, Allocation::new(primary, 64)?, access)?;
            Some(Loopback::new(&ctx, &ends.pd, source).map_err(|refused| refused.error())?)
        }
        Err(error) => {
            values.told("arrivals by a read: not measured", error);
            None
        }
    };
    let flushes = gpu.flushes_from_host()?;
    for by in [By::Nothing, By::Flush, By::Read] {
        if by == By::Flush && !flushes || by == By::Read && loopback.is_none() {
            continue;
        }
        let (mut stale, mut times) = (0, Vec::new());
        for round in 0..ROUNDS {
            let byte = (round % 251) as u8 + 1;
            let arrived = ends.message(memory, byte)?;
            let start = Instant::now();
            let visible = match (by, &mut loopback) {
                (By::Flush, _) => ends.region.within(|current| arrived.flush(current, Scope::Owner))??,
                (By::Read, Some(loopback)) => loopback.flush(arrived, TIME)?,
                // SAFETY: this is what is measured: nobody flushed.
                _ => unsafe { arrived.assume_visible() },
            };
            times.push(start.elapsed());
            let mut bytes = vec![0; LEN];
            ends.region.within(|current| visible.copy_to_host(current, &mut bytes))??;
            stale += u32::from(bytes.iter().any(|seen| *seen != byte));
            memory = visible.into_outbound();
        }
        times.sort_unstable();
        let median = times[times.len() / 2];
        let what = format!("messages of {ROUNDS} whose bytes a copy did not see");
        match by {
            By::Nothing => values.told(&format!("without a flush, {what}"), stale),
            _ => {
                values.told(&format!("after a {by:?}, median time"), format!("{median:?}"));
                values.expected(&format!("after a {by:?}, {what}"), stale, &0);
            }
        }
        if by != By::Nothing && stale > 0 {
            return Err(format!("{stale} messages were not seen after a {by:?}").into());
        }
    }
    ends.region.close(memory).map_err(|refused| refused.error())?;
    Ok(())
}

impl Ends {
    /// A message of the host's in the GPU's memory.
    fn message(
        &mut self,
        memory: Outbound<Unsynced>,
        byte: u8,
    ) -> Result<Inbound<efa_cuda::Completed>, Box<dyn Error>> {
        let ready = memory.synchronize(&mut self.stream)?;
        self.b.post_recv(ready.into_slice(), Token(1))?;
        let (_host, bytes) = self.pd.register(vec![byte; LEN])?;
        self.a.post(self.to_b.send(bytes), Token(2))?;
        let (mut sent, mut received, start) = (false, None, Instant::now());
        while !sent || received.is_none() {
            match self.a.poll() {
                Some(Event::Failed { failure, .. }) => return Err(failure.into()),
                event => sent |= event.is_some(),
            }
            match self.b.poll() {
                Some(Event::Received(message)) => received = Some(message),
                Some(event) => return Err(format!("{event:?}").into()),
                None if start.elapsed() > TIME => return Err("nothing came in ten seconds".into()),
                None => {}
            }
        }
        let slice = received.and_then(|mut message| message.buffers.take_opaque()).ok_or("no buffer")?;
        Ok(self.region.completed(slice)?)
    }
}
