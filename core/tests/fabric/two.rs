//! Two endpoints with the layer over them.

use efa_core::connect::{self, connect_of};
use efa_core::fabric::{Carries, Efa, Event, Memory, Messages, Options, PeerId};
use efa_core::memory::{ByMessages, ExposedPart, PageSize, Pages, RemoteRead, RemoteReadWrite, Slice};
use efa_core::qp::{Depth, Srd, ops};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Caps, Context, ProtectionDomain};

/// SRD with SENDs and reads.
pub(crate) type WithReads = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;

pub(crate) const PACKET: usize = 512;

pub(crate) type Layer<K = Srd> = Efa<SoftDevice, K, Vec<u8>, Vec<u8>, 4, 16>;
pub(crate) type Happened = Event<Memory<Vec<u8>>, Memory<Vec<u8>>>;

/// One side.
pub(crate) struct End<K: Carries = Srd> {
    pub(crate) layer: Layer<K>,
    pub(crate) peer: PeerId,
    pub(crate) pd: ProtectionDomain<SoftDevice>,
    pub(crate) ctx: Context<SoftDevice>,
}

/// Both, and a clock.
pub(crate) struct Two<K: Carries = Srd> {
    pub(crate) ends: [End<K>; 2],
    pub(crate) now: u64,
}

impl<K: Carries> Two<K> {
    pub(crate) fn new(config: impl Into<Config>) -> Self {
        Self::with(config, Options::new(PACKET).near_wrap())
    }

    pub(crate) fn with(config: impl Into<Config>, options: Options) -> Self {
        let device = SoftDevice::new(config);
        let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
        let sides = connect_of::<_, K>(contexts, Depth::new(64, Layer::<K>::receives())).unwrap();
        Self { ends: sides.map(|side| end(side, options)), now: 0 }
    }

    /// Polls one side.
    pub(crate) fn poll(&mut self, side: usize) -> Option<Happened> {
        self.now += 5;
        self.ends[side].layer.poll(self.now)
    }

    /// Polls both until each has had so many events, but those of peers.
    pub(crate) fn collect(&mut self, counts: [usize; 2]) -> [Vec<Happened>; 2] {
        let mut events = [Vec::new(), Vec::new()];
        for _ in 0..2_000_000 {
            for (side, events) in events.iter_mut().enumerate() {
                events.extend(self.poll(side).filter(|event| !matches!(event, Event::Up(_))));
            }
            if events[0].len() >= counts[0] && events[1].len() >= counts[1] {
                return events;
            }
        }
        panic!("only {events:?} of {counts:?}: {:#?}", self.ends.each_ref().map(|end| &end.layer));
    }

    /// Polls both for a while, in which nothing but a peer's answer is an event.
    pub(crate) fn settle(&mut self) {
        for turn in 0..1000 {
            if let Some(event) = self.poll(turn % 2) {
                assert!(matches!(event, Event::Up(_)), "{event:?}");
            }
        }
    }

    pub(crate) fn slice(&self, side: usize, bytes: Vec<u8>) -> Slice {
        self.ends[side].pd.register(bytes).unwrap().1
    }
}

fn end<K: Carries>(side: connect::Side<SoftDevice, K>, options: Options) -> End<K> {
    let bytes = Layer::<K>::memory(PACKET, 16);
    let memory = side.pd.register(vec![0; bytes]).unwrap().1;
    let mut layer = Layer::new(side.endpoint, memory, options).unwrap();
    let peer = layer.add(side.peer).unwrap();
    End { layer, peer, pd: side.pd, ctx: side.ctx }
}

/// Bytes that tell where they are from, and where they belong.
pub(crate) fn payload(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(131) ^ at ^ (at >> 8)) as u8).collect()
}

/// Memory to be exposed, with those bytes, of whole words.
pub(crate) fn pages(bytes: &[u8]) -> Pages {
    let mut pages = Pages::new(bytes.len().next_multiple_of(8).max(8), PageSize::Base).unwrap();
    pages[..bytes.len()].copy_from_slice(bytes);
    pages
}

/// Calls the same test for each profile, with a kind for it.
macro_rules! profiles {
    ($test:ident) => {
        $test::<efa_core::qp::SendOnly>(efa_core::soft::Profile::NONE);
        $test::<crate::two::WithReads>(efa_core::soft::Profile::READ);
        $test::<efa_core::qp::Srd>(efa_core::soft::Profile::RDMA);
    };
}
pub(crate) use profiles;

/// Exposed memory with those bytes, for all the RDMA that the profile has.
pub(crate) fn exposed<K: Carries>(end: &End<K>, profile: Profile, bytes: &[u8]) -> ExposedPart {
    let (pages, len) = (pages(bytes), bytes.len());
    let (pd, ctx) = (&end.pd, &end.ctx);
    if profile.caps().contains(Caps::RDMA_WRITE) {
        pd.expose(pages, ctx.require::<RemoteReadWrite>().unwrap()).unwrap().part(0..len).unwrap()
    } else if profile.caps().contains(Caps::RDMA_READ) {
        pd.expose(pages, ctx.require::<RemoteRead>().unwrap()).unwrap().part(0..len).unwrap()
    } else {
        pd.expose(pages, ctx.require::<ByMessages>().unwrap()).unwrap().part(0..len).unwrap()
    }
}
