//! One queue pair that talks with 1 to 4096 others: what an operation costs it must not grow with how many they are.
//!
//! The device takes its turns while nothing is measured, since what it does grows: it looks at each queue pair's doorbell.
//! What is measured is, for each of 64 operations that are in flight whatever the number of peers: to find the peer, to
//! post a SEND to it, its completion; to post a receive, and the arrival of a message, with its sender found.

use std::time::{Duration, Instant};

use efa_core::memory::Slice;
use efa_core::peer::{Mutual, Peer, PeerTable};
use efa_core::qp::{Depth, Endpoint, SendOnly};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Context, Gid, Limits, Qpn, Token};
use efa_examples::fault::Fault;
use efa_examples::stats::Summary;
use efa_tests::alloc_count::allocations_in;
use efa_tests::still::Still;

use crate::rates::slices;
use crate::{Options, Report};

/// What an operation with the most peers may cost, in times of one with a single peer. It was 1.8, and 3.0 in a table of as many
/// places as peers: room for what the caches hold and how long a table is probed, and none for a search through all of them.
pub(crate) const BOUND: f64 = 4.0;

const COUNTS: [usize; 7] = [1, 4, 16, 64, 256, 1024, MOST];
const MOST: usize = 4096;
/// Places of the table: twice the peers, since one that is full is probed for longer.
const PLACES: usize = 2 * MOST;
const IN_FLIGHT: usize = 64;
const MESSAGE: usize = 64;

type Qp = Endpoint<Still<SoftDevice>, SendOnly>;

/// How often something was allocated after set-up.
pub(crate) fn run(options: &Options, report: &mut Report) -> Result<u64, Fault> {
    let mut all = 0;
    let mut first = None;
    for count in COUNTS {
        let mut hub = Hub::new(count)?;
        hub.rounds(64.max(count / IN_FLIGHT));
        let rounds = if options.quick { 256 } else { 2048 };
        let (allocations, nanos) = allocations_in(|| hub.rounds(rounds));
        all += allocations;
        report.told(&format!("SEND, its completion, receive and arrival, {count} peers"), nanos, "ns");
        let growth = nanos / *first.get_or_insert(nanos);
        if count == MOST {
            let target = format!("at most {BOUND}");
            report.must("the same with 4096 peers against one", growth, "", &target, growth <= BOUND);
        }
    }
    Ok(all)
}

struct Hub {
    device: SoftDevice,
    qp: Qp,
    table: Box<PeerTable<PLACES>>,
    spokes: Vec<Spoke>,
    /// The spoke that comes next.
    next: usize,
    receives: Vec<Slice>,
    times: Vec<Duration>,
}

struct Spoke {
    qp: Qp,
    gid: Gid,
    qpn: Qpn,
    to_hub: Peer<Mutual>,
    receives: Vec<Slice>,
}

impl Hub {
    fn new(count: usize) -> Result<Self, Fault> {
        let queue_pairs = MOST as u32 + 16;
        let limits = Limits { max_qp: queue_pairs, max_cq: 2 * queue_pairs, ..Config::LIMITS };
        let device = SoftDevice::new(Config::new(Profile::RDMA).limits(limits).shuffle(false));
        let (ctx, other) = (Context::open(Still(device.clone())), Context::open(Still(device.neighbour()?)));
        let (pd, other_pd) = (ctx.alloc_pd()?, other.alloc_pd()?);
        let depth = Depth::new(IN_FLIGHT as u32, IN_FLIGHT as u32);
        let qp = pd.endpoint(ctx.require::<SendOnly>()?, depth)?;
        let mut table = Box::new(PeerTable::new());
        // As many receives of each as may be under way to it.
        let each = (IN_FLIGHT / count).max(1);
        let mut memory = slices(other_pd.register(vec![0; MESSAGE * each * count])?.1, each * count);
        let mut spokes = Vec::with_capacity(count);
        for _ in 0..count {
            let depth = Depth::new(each as u32, each as u32).one_completion_queue();
            let spoke = other_pd.endpoint(other.require::<SendOnly>()?, depth)?;
            let (to_spoke, to_hub) = efa_core::connect::introduce(&qp, &spoke)?;
            let (gid, qpn) = (to_spoke.gid(), to_spoke.qpn());
            table.insert(to_spoke)?;
            let receives = memory.split_off(memory.len() - each);
            spokes.push(Spoke { qp: spoke, gid, qpn, to_hub, receives });
        }
        let receives = slices(pd.register(vec![0; MESSAGE * IN_FLIGHT])?.1, IN_FLIGHT);
        Ok(Self { device, qp, table, spokes, next: 0, receives, times: Vec::with_capacity(1 << 12) })
    }

    /// Lets the device do all that is to be done.
    fn device(&self) {
        while self.device.drive() || self.device.is_carrying() {}
    }

    /// The median of an operation's nanoseconds.
    fn rounds(&mut self, rounds: usize) -> f64 {
        self.times.clear();
        for _ in 0..rounds.min(self.times.capacity()) {
            let took = self.round();
            self.times.push(took);
        }
        Summary::of(&mut self.times).map_or(0.0, |summary| summary.p50.as_nanos() as f64 / IN_FLIGHT as f64)
    }

    fn round(&mut self) -> Duration {
        let first = self.next;
        self.next = (first + IN_FLIGHT) % self.spokes.len();
        let count = self.spokes.len();
        let turn = move |nth: usize| (first + nth) % count;
        for nth in 0..IN_FLIGHT {
            let spoke = &mut self.spokes[turn(nth)];
            spoke.qp.post_recv(spoke.receives.pop().unwrap(), Token(0)).unwrap();
        }
        // The sum of what the hub does.
        let mut took = Duration::ZERO;
        let start = Instant::now();
        for nth in 0..IN_FLIGHT {
            let Spoke { gid, qpn, .. } = self.spokes[turn(nth)];
            let peer = self.table.get(gid, qpn).unwrap();
            self.qp.post(peer.send_inline([7; 8]), Token(1)).unwrap();
        }
        for receive in self.receives.drain(..) {
            self.qp.post_recv(receive, Token(2)).unwrap();
        }
        took += start.elapsed();
        self.device();
        for nth in 0..IN_FLIGHT {
            let spoke = &mut self.spokes[turn(nth)];
            let Some(Event::Received(message)) = spoke.qp.poll() else { panic!("no message") };
            spoke.receives.push(message.buffers.into_slice().unwrap());
            spoke.qp.post(spoke.to_hub.send_inline([8; 8]), Token(3)).unwrap();
        }
        let start = Instant::now();
        for _ in 0..IN_FLIGHT {
            assert!(matches!(self.qp.poll(), Some(Event::Sent(_))));
        }
        took += start.elapsed();
        self.device();
        for nth in 0..IN_FLIGHT {
            assert!(matches!(self.spokes[turn(nth)].qp.poll(), Some(Event::Sent(_))));
        }
        let start = Instant::now();
        for _ in 0..IN_FLIGHT {
            let Some(Event::Received(message)) = self.qp.poll() else { panic!("no message") };
            assert!(self.table.find(&message.from).is_some());
            self.receives.push(message.buffers.into_slice().unwrap());
        }
        took + start.elapsed()
    }
}
