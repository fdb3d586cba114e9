//! What the data path is held to, measured on one core over the software device, whose own work is included.
//!
//! ```text
//! cargo bench -p efa-tests --bench data_path -- [--quick] [--check]
//! ```
//!
//! Each line has what was measured, its target, and whether it was met. `--check` fails if one was not; `--quick`
//! measures for a shorter time.
#![allow(missing_docs)]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use efa_core::flow::{Arrivals, Reorder};
use efa_core::memory::{Exposed, ExposedPart, Frozen, PageSize, Pages, Pool, Region, RemoteWrite, Slice};
use efa_core::peer::{Mutual, Peer, PeerTable, RemoteWindow};
use efa_core::qp::{Depth, Endpoint};
use efa_core::ring::Slot;
use efa_core::soft::{Profile, Side, SoftDevice, pair_of};
use efa_core::work::{Batch, Event};
use efa_core::{Context, Error, ProtectionDomain, Refused, Token};
use efa_examples::connect::Description;
use efa_examples::human::{Bytes, Rate, Time};
use efa_examples::stats::Summary;
use efa_examples::table::Table;
use efa_tests::alloc_count::{CountingAllocator, allocations_in};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MESSAGE: usize = 64;
const BATCH: usize = 16;
const WRITE: usize = 1 << 20;

/// 64-byte SENDs for each second.
const SENDS_TARGET: f64 = 2e6;
/// RDMA write's speed as a share of memcpy's.
const WRITE_TARGET: f64 = 0.5;

fn main() -> ExitCode {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let runs = if has("--quick") { 3 } else { 11 };
    let mut report = Report { table: Table::new(["measured", "", "target", ""]), missed: 0 };

    let mut sends = Sends::new();
    println!("{}, one core\n", Description(&sends.a.ctx));
    sends.run(Duration::from_millis(20)); // warm up
    let (allocations, rates) = allocations_in(|| rates(runs, || sends.run(Duration::from_millis(100))));
    report.held(
        "64-byte SENDs, batches of 16, post to both completions",
        Rate { per_second: rates }.operations().to_string(),
        "at least 2 M/s",
        rates >= SENDS_TARGET,
    );
    let singly = rates_of_singles(&mut sends, runs);
    report.told("64-byte SENDs, one at a time", Rate { per_second: singly }.operations().to_string());

    let mut writes = Writes::new();
    let (write_allocations, (write, memcpy)) = allocations_in(|| writes.run(if runs > 3 { 512 } else { 128 }));
    let ratio = memcpy.as_secs_f64() / write.as_secs_f64();
    let speed = |time| Rate::of(WRITE as u64, time).map_or_else(String::new, |rate| rate.bytes().to_string());
    report.told("memcpy of 1 MiB, median", format!("{}, {}", Time(memcpy), speed(memcpy)));
    report.told("RDMA write of 1 MiB, post to completion, median", format!("{}, {}", Time(write), speed(write)));
    report.held("RDMA write's share of memcpy's speed", format!("{ratio:.2}"), "at least 0.50", ratio >= WRITE_TARGET);

    let all = allocations + write_allocations;
    report.held("allocations after set-up in all of these", all.to_string(), "0", all == 0);
    sizes(&mut report);
    println!("{}", report.table);
    match report.missed {
        0 => println!("all targets met"),
        missed => println!("{missed} targets missed"),
    }
    if has("--check") && report.missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Report {
    table: Table<4>,
    missed: u32,
}

impl Report {
    fn held(&mut self, what: &str, measured: String, target: &str, met: bool) {
        let verdict = if met { "met" } else { "MISSED" };
        self.missed += u32::from(!met);
        self.table.row([what.into(), measured, target.into(), verdict.into()]);
    }

    fn told(&mut self, what: &str, measured: String) {
        self.table.row([what.into(), measured, String::new(), String::new()]);
    }
}

/// The median of several runs.
fn rates(runs: usize, mut run: impl FnMut() -> f64) -> f64 {
    let mut rates = [0_u64; 16];
    let rates = &mut rates[..runs.min(16)];
    rates.fill_with(|| run() as u64);
    Summary::of(rates).map_or(0.0, |summary| summary.p50 as f64)
}

fn rates_of_singles(sends: &mut Sends, runs: usize) -> f64 {
    rates(runs, || sends.run_singly(Duration::from_millis(100)))
}

struct Sends {
    a: Side,
    b: Side,
    sources: Pool<BATCH>,
    targets: Pool<BATCH>,
}

impl Sends {
    fn new() -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(64, 64)).unwrap();
        let pool = |side: &Side| {
            let (_, slice) = side.pd.register(vec![7; MESSAGE * BATCH]).unwrap();
            Pool::new(slice, MESSAGE).unwrap().0
        };
        let (sources, targets) = (pool(&a), pool(&b));
        Self { a, b, sources, targets }
    }

    /// SENDs for each second, for about so long.
    fn run(&mut self, time: Duration) -> f64 {
        let start = Instant::now();
        let mut sent = 0_u64;
        while start.elapsed() < time {
            for _ in 0..32 {
                self.batch();
                sent += BATCH as u64;
            }
        }
        sent as f64 / start.elapsed().as_secs_f64()
    }

    fn run_singly(&mut self, time: Duration) -> f64 {
        let start = Instant::now();
        let mut sent = 0_u64;
        while start.elapsed() < time {
            for _ in 0..512 {
                self.b.endpoint.post_recv(self.targets.take().unwrap(), Token(sent)).unwrap();
                self.a.endpoint.post(self.a.peer.send(self.sources.take().unwrap()), Token(sent)).unwrap();
                self.complete(1);
                sent += 1;
            }
        }
        sent as f64 / start.elapsed().as_secs_f64()
    }

    fn batch(&mut self) {
        let mut list = core::iter::from_fn(|| self.targets.take()).map(|slot| (slot, Token(0)));
        self.b.endpoint.post_recv_list(&mut list).unwrap();
        let mut batch = self.a.endpoint.batch();
        while let Some(slot) = self.sources.take() {
            batch.push(self.a.peer.send(slot), Token(0)).unwrap();
        }
        batch.submit();
        self.complete(BATCH);
    }

    /// Polls until so many are done at both sides, and their slots are back.
    fn complete(&mut self, count: usize) {
        let mut left = 2 * count;
        while left > 0 {
            match self.a.endpoint.poll() {
                Some(Event::Sent(mut done)) => {
                    self.sources.put(done.buffers.take_slice().unwrap()).unwrap();
                    left -= 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match self.b.endpoint.poll() {
                Some(Event::Received(mut message)) => {
                    assert_eq!(message.len, MESSAGE);
                    self.targets.put(message.buffers.take_slice().unwrap()).unwrap();
                    left -= 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
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
                    Some(Event::Written(mut done)) => self.source = done.buffers.take_slice(),
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

fn sizes(report: &mut Report) {
    fn size<T>(report: &mut Report, name: &str) {
        report.told(&format!("size of {name}"), Bytes(size_of::<T>() as u64).to_string());
    }
    type P = SoftDevice;
    size::<Token>(report, "Token");
    size::<Error>(report, "Error");
    size::<Slice>(report, "Slice");
    size::<Frozen>(report, "Frozen");
    size::<ExposedPart>(report, "ExposedPart");
    size::<Exposed<Pages, RemoteWrite>>(report, "Exposed");
    size::<Region<Pages>>(report, "Region");
    size::<RemoteWindow<RemoteWrite>>(report, "RemoteWindow");
    size::<Refused<Slice>>(report, "Refused<Slice>");
    size::<Peer<Mutual>>(report, "Peer");
    size::<PeerTable<16>>(report, "PeerTable of 16");
    size::<Slot>(report, "Slot, for each operation in flight");
    size::<Event>(report, "Event");
    size::<Batch<'_, P, efa_core::qp::Srd>>(report, "Batch");
    size::<Pool<16>>(report, "Pool of 16");
    size::<Arrivals>(report, "Arrivals");
    size::<Reorder<Slice, 16>>(report, "Reorder of 16 slices");
    size::<Context<P>>(report, "Context of the software device");
    size::<ProtectionDomain<P>>(report, "ProtectionDomain of it");
    size::<Endpoint<P>>(report, "QueuePair on it");
}
