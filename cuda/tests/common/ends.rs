//! Two ends that reach each other by the first EFA there is.

use std::time::{Duration, Instant};

use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, QpKind, Srd, ops};
use efa_core::work::Event;
use efa_core::{Context, ProtectionDomain};
use efa_cuda::BorrowedDevice;
use efa_os::Device;

pub(crate) const LEN: usize = 8192;

pub(crate) type Kind = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;

/// Two ends that reach each other.
pub(crate) struct Ends {
    pub(crate) ctx: Context<Device>,
    pub(crate) pd: ProtectionDomain<Device>,
    pub(crate) a: Endpoint<Device, Kind>,
    pub(crate) b: Endpoint<Device, Kind>,
    pub(crate) to_b: Peer<Mutual>,
    pub(crate) to_a: Peer<Mutual>,
}

impl Ends {
    pub(crate) fn new() -> Self {
        let ctx = Context::open(efa_os::devices().unwrap().swap_remove(0));
        let pd = ctx.alloc_pd().unwrap();
        let end = || pd.endpoint(ctx.require::<Kind>().unwrap(), Depth::new(8, 8)).unwrap();
        let (a, b) = (end(), end());
        let (to_b, to_a) = efa_core::connect::introduce(&a, &b).unwrap();
        Self { pd, a, b, to_b, to_a, ctx }
    }

    #[track_caller]
    pub(crate) fn at_a(&mut self) -> Event {
        wait(&mut self.a)
    }

    #[track_caller]
    pub(crate) fn at_b(&mut self) -> Event {
        wait(&mut self.b)
    }
}

#[track_caller]
pub(crate) fn wait<K: QpKind>(endpoint: &mut Endpoint<Device, K>) -> Event {
    let start = Instant::now();
    loop {
        if let Some(event) = endpoint.poll() {
            return event;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "no event came");
        std::thread::yield_now();
    }
}

pub(crate) fn borrowed(address: u64, len: usize) -> BorrowedDevice {
    // SAFETY: the fake's memory, which each test frees after what it registered, if at all.
    unsafe { BorrowedDevice::new(address, len) }
}
