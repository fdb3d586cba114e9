//! Small messages by queue depth, and a large write beside memcpy, in one process.

use std::hint::black_box;
use std::time::{Duration, Instant};

use efa_core::Token;
use efa_core::memory::{Exposed, PageSize, Pages, RemoteWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::Depth;
use efa_core::soft::{Profile, Side, pair_of};
use efa_core::work::Event;
use efa_examples::stats::Summary;
use efa_tests::alloc_count::allocations_in;

use crate::{Options, Report};

const MESSAGE: usize = 64;
const BATCH: usize = 16;
const WRITE: usize = 1 << 20;
/// Operations in flight.
const DEPTHS: [usize; 6] = [1, 4, 16, 64, 256, 1024];

/// 64-byte SENDs for each second.
const SENDS_TARGET: f64 = 2e6;
/// RDMA write's speed as a share of memcpy's.
const WRITE_TARGET: f64 = 0.5;

/// How often something was allocated after set-up.
pub(crate) fn run(options: &Options, report: &mut Report) -> u64 {
    let (runs, time) = if options.quick { (3, 30) } else { (11, 100) };
    let mut all = 0;
    for depth in DEPTHS {
        let mut sends = Sends::new(depth);
        sends.run(Duration::from_millis(20));
        let (allocations, rate) = allocations_in(|| median(runs, || sends.run(Duration::from_millis(time))));
        all += allocations;
        let what = format!("64-byte SENDs to both completions, {depth} in flight");
        match depth {
            BATCH => report.held(&what, rate / 1e6, "M/s", "at least 2", rate >= SENDS_TARGET),
            _ => report.told(&what, rate / 1e6, "M/s"),
        }
    }
    let mut writes = Writes::new();
    let (allocations, (write, memcpy)) = allocations_in(|| writes.run(if options.quick { 128 } else { 512 }));
    let ratio = memcpy.as_secs_f64() / write.as_secs_f64();
    report.held("RDMA write of 1 MiB against memcpy, median", ratio, "", "at least 0.5", ratio >= WRITE_TARGET);
    all + allocations
}

fn median(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    let mut rates = [0_u64; 16];
    let rates = &mut rates[..runs.min(16)];
    rates.fill_with(|| run() as u64);
    Summary::of(rates).map_or(0.0, |summary| summary.p50 as f64)
}

struct Sends {
    a: Side,
    b: Side,
    sources: Vec<Slice>,
    targets: Vec<Slice>,
}

/// So many slices of a message each.
pub(crate) fn slices(registered: Slice, count: usize) -> Vec<Slice> {
    let mut slices = Vec::with_capacity(count);
    let mut rest = Some(registered);
    while let Some(slice) = rest.take() {
        if slices.len() + 1 == count {
            slices.push(slice);
        } else {
            let (slice, more) = slice.split_at(MESSAGE).unwrap();
            slices.push(slice);
            rest = Some(more);
        }
    }
    slices
}

impl Sends {
    fn new(depth: usize) -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(depth as u32, depth as u32)).unwrap();
        let of = |side: &Side| slices(side.pd.register(vec![7; MESSAGE * depth]).unwrap().1, depth);
        let (sources, targets) = (of(&a), of(&b));
        Self { a, b, sources, targets }
    }

    /// SENDs for each second, for about so long.
    fn run(&mut self, time: Duration) -> f64 {
        let start = Instant::now();
        let mut sent = 0_usize;
        while start.elapsed() < time {
            for _ in 0..(512 / self.sources.len()).max(1) {
                sent += self.round();
            }
        }
        sent as f64 / start.elapsed().as_secs_f64()
    }

    /// As many as may be in flight, in batches; gives how many.
    fn round(&mut self) -> usize {
        let count = self.sources.len();
        self.b.endpoint.post_recv_list(&mut self.targets.drain(..).map(|slot| (slot, Token(0)))).unwrap();
        while !self.sources.is_empty() {
            let mut batch = self.a.endpoint.batch();
            for slice in self.sources.drain(self.sources.len().saturating_sub(BATCH)..) {
                batch.push(self.a.peer.send(slice), Token(0)).unwrap();
            }
            batch.submit();
        }
        while self.sources.len() < count || self.targets.len() < count {
            match self.a.endpoint.poll() {
                Some(Event::Sent(done)) => self.sources.push(done.buffers.into_slice().unwrap()),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match self.b.endpoint.poll() {
                Some(Event::Received(message)) => {
                    assert_eq!(message.len, MESSAGE);
                    self.targets.push(message.buffers.into_slice().unwrap());
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        count
    }
}

struct Writes {
    a: Side,
    _b: Side,
    _shared: Exposed<Pages, RemoteWrite>,
    window: RemoteWindow<RemoteWrite>,
    source: Option<Slice>,
    from: Pages,
    to: Pages,
    times: Vec<[Duration; 2]>,
}

impl Writes {
    fn new() -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(64, 64)).unwrap();
        let memory = || {
            let mut pages = Pages::new(WRITE, PageSize::Base).unwrap();
            pages.fill(7);
            pages
        };
        let shared = b.pd.expose(memory(), b.ctx.require::<RemoteWrite>().unwrap()).unwrap();
        let window = a.peer.window(shared.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
        let source = Some(a.pd.register(memory()).unwrap().1);
        let times = Vec::with_capacity(1024);
        Self { a, _b: b, _shared: shared, window, source, from: memory(), to: memory(), times }
    }

    /// The medians of a write's and of a copy's time, taken in turn.
    fn run(&mut self, rounds: usize) -> (Duration, Duration) {
        for _ in 0..rounds.min(self.times.capacity()) {
            let start = Instant::now();
            black_box(&mut self.to[..]).copy_from_slice(black_box(&self.from[..]));
            let copied = start.elapsed();
            let start = Instant::now();
            self.a.endpoint.post(self.a.peer.write(self.source.take().unwrap(), self.window), Token(1)).unwrap();
            while self.source.is_none() {
                match self.a.endpoint.poll() {
                    Some(Event::Written(done)) => self.source = done.buffers.into_slice(),
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            self.times.push([start.elapsed(), copied]);
        }
        let mut median = |which: usize| {
            self.times.sort_unstable_by_key(|times| times[which]);
            self.times[self.times.len() / 2][which]
        };
        (median(0), median(1))
    }
}
