//! The two fabrics side by side, on one core over the software device, whose own work is in both.
//!
//! ```text
//! cargo bench -p efa-tests --bench fabrics -- [--quick] [--check]
//! ```
//!
//! Each pair is measured in turn, in short runs of one process and by the processor's time for it, so that what counts is the
//! ratio, whatever else the machine does. `--check` fails if a target was missed.
#![allow(missing_docs)]

use std::process::ExitCode;
use std::time::Duration;

use efa_core::Token;
use efa_core::fabric::{Efa, Event, Memory, Messages, Options, PeerId};
use efa_core::memory::{PageSize, Pages, Pool, RemoteRead, RemoteWrite, Slice};
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Profile, Side, SoftDevice, pair_of};
use efa_core::work;
use efa_examples::human::{Bytes, Rate};
use efa_examples::stats::Summary;
use efa_examples::table::Table;
use efa_tests::alloc_count::{CountingAllocator, allocations_in};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MESSAGE: usize = 64;
/// Messages under way at a time.
const WINDOW: usize = 16;
const LONG: usize = 64 << 20;
const PACKET: usize = 8192;

/// 64-byte messages, as a share of raw SENDs.
const EAGER_TARGET: f64 = 0.5;
/// 64 MiB messages, as a share of raw RDMA writes.
const LONG_TARGET: f64 = 0.7;

type Layer = Efa<SoftDevice, Srd, Box<[u8]>, Box<[u8]>, 4, 32>;

fn main() -> ExitCode {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (runs, time, longs) = if has("--quick") { (21, 8, 2) } else { (101, 10, 8) };
    let mut table = Table::new(["measured", "efa-direct", "efa", "ratio"]);
    let mut missed = 0;
    let mut held = |what: &str, direct: Rates, efa: Rates, target: Option<f64>, bytes: bool| {
        let (direct, efa) = (direct.median(), efa.median());
        let ratio = efa / direct;
        let show = |per_second| {
            let rate = Rate { per_second };
            if bytes { rate.bytes().to_string() } else { rate.operations().to_string() }
        };
        let verdict = match target {
            Some(target) if ratio < target => {
                missed += 1;
                format!("{ratio:.2}, MISSED: at least {target:.2}")
            }
            Some(target) => format!("{ratio:.2}, at least {target:.2}"),
            None => format!("{ratio:.2}"),
        };
        table.row([what.into(), show(direct), show(efa), verdict]);
    };

    let (mut raw, mut plain, mut slices) = (Raw::new(), Eager::new(false), Eager::new(true));
    let mut rates = [const { Rates(Vec::new()) }; 3];
    for run in &mut rates {
        run.0.reserve(runs);
    }
    plain.run(Duration::from_millis(20)); // warm up
    slices.run(Duration::from_millis(20));
    let (allocations, ()) = allocations_in(|| {
        for _ in 0..runs {
            let time = Duration::from_millis(time);
            rates[0].0.push(raw.run(time));
            rates[1].0.push(plain.run(time));
            rates[2].0.push(slices.run(time));
        }
    });
    let [direct, plain, slices] = rates;
    held("64-byte messages, plain", direct.clone(), plain, Some(EAGER_TARGET), false);
    held("64-byte messages, registered", direct, slices, Some(EAGER_TARGET), false);

    let mut rates = [const { Rates(Vec::new()) }; 4];
    let (mut raw, mut read, mut written, mut copied) =
        (RawWrites::new(), Long::read(), Long::written(), Long::copied());
    for _ in 0..longs {
        rates[0].0.push(raw.run());
        rates[1].0.push(read.run());
        rates[2].0.push(written.run());
        rates[3].0.push(copied.run());
    }
    let [direct, by_read, by_write, by_copy] = rates;
    held("64 MiB, source exposed", direct.clone(), by_read, Some(LONG_TARGET), true);
    held("64 MiB, target exposed", direct.clone(), by_write, Some(LONG_TARGET), true);
    held("64 MiB, neither", direct, by_copy, None, true);
    println!("{table}");
    let copies = [&read, &written].map(|long| long.a.layer.counters().copied + long.b.layer.counters().copied);
    println!("payload bytes that the CPU copied where one side is exposed: {}", copies.iter().sum::<u64>());
    println!("allocations after set-up in all short messages: {allocations}");
    for packet in [512, 4096, 8192] {
        let peer = Bytes(Layer::memory_per_peer(packet) as u64);
        println!("memory for each peer with packets of {packet} bytes: {peer}, however long messages are");
    }
    println!("size of the layer for 4 peers and 32 operations: {}", Bytes(size_of::<Layer>() as u64));
    missed += u32::from(copies != [0; 2]) + u32::from(allocations != 0);
    match missed {
        0 => println!("all targets met"),
        missed => println!("{missed} targets missed"),
    }
    if has("--check") && missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What this thread has run for.
struct Cpu(Duration);

impl Cpu {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0 - self.0
    }
}

/// So many for each second, of several runs.
#[derive(Clone)]
struct Rates(Vec<f64>);

impl Rates {
    fn median(&self) -> f64 {
        let mut rates: Vec<_> = self.0.iter().map(|rate| *rate as u64).collect();
        Summary::of(&mut rates).map_or(0.0, |summary| summary.p50 as f64)
    }
}

/// SENDs as they are.
struct Raw {
    a: Side,
    b: Side,
    sources: Pool<WINDOW>,
    targets: Pool<WINDOW>,
}

impl Raw {
    fn new() -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(64, 64)).unwrap();
        let pool = |side: &Side| {
            let (_, slice) = side.pd.register(vec![7; MESSAGE * WINDOW]).unwrap();
            Pool::new(slice, MESSAGE).unwrap().0
        };
        let (sources, targets) = (pool(&a), pool(&b));
        Self { a, b, sources, targets }
    }

    /// As many under way as there is room for: for each second, for about so long.
    fn run(&mut self, time: Duration) -> f64 {
        let start = Cpu::now();
        let mut received = 0_u64;
        while !received.is_multiple_of(512) || start.elapsed() < time {
            while let Some(target) = self.targets.take() {
                self.b.endpoint.post_recv(target, Token(0)).unwrap();
            }
            while let Some(source) = self.sources.take() {
                self.a.endpoint.post(self.a.peer.send(source), Token(0)).unwrap();
            }
            match self.a.endpoint.poll() {
                Some(work::Event::Sent(done)) => self.sources.put(done.buffers.into_slice().unwrap()).unwrap(),
                Some(event) => panic!("{event:?}"),
                None => {}
            }
            match self.b.endpoint.poll() {
                Some(work::Event::Received(message)) => {
                    self.targets.put(message.buffers.into_slice().unwrap()).unwrap();
                    received += 1;
                }
                Some(event) => panic!("{event:?}"),
                None => {}
            }
        }
        received as f64 / start.elapsed().as_secs_f64()
    }
}

struct End {
    layer: Layer,
    peer: PeerId,
    side: efa_core::ProtectionDomain<SoftDevice>,
    ctx: efa_core::Context<SoftDevice>,
}

fn ends() -> (End, End) {
    let (a, b) = pair_of(Profile::RDMA, Depth::new(64, Layer::receives())).unwrap();
    let end = |side: Side| {
        let memory = side.pd.register(vec![0; Layer::memory(PACKET, 64)]).unwrap().1;
        let mut layer = Layer::new(side.endpoint, memory, Options::new(PACKET)).unwrap();
        let peer = layer.add(side.peer).unwrap();
        End { layer, peer, side: side.pd, ctx: side.ctx }
    };
    (end(a), end(b))
}

/// Short messages over the layer.
struct Eager {
    a: End,
    b: End,
    sources: Vec<Memory<Box<[u8]>>>,
    targets: Vec<Memory<Box<[u8]>>>,
}

impl Eager {
    fn new(registered: bool) -> Self {
        let (a, b) = ends();
        let buffers = |end: &End| -> Vec<Memory<_>> {
            (0..WINDOW)
                .map(|_| match registered {
                    true => end.side.register(vec![7; MESSAGE]).unwrap().1.into(),
                    false => Memory::Plain(vec![7; MESSAGE].into()),
                })
                .collect()
        };
        let (sources, targets) = (buffers(&a), buffers(&b));
        Self { a, b, sources, targets }
    }

    fn run(&mut self, time: Duration) -> f64 {
        let start = Cpu::now();
        let mut received = 0_u64;
        while !received.is_multiple_of(512) || start.elapsed() < time {
            while let Some(target) = self.targets.pop() {
                self.b.layer.recv(target, Token(0)).unwrap();
            }
            while let Some(source) = self.sources.pop() {
                self.a.layer.send(self.a.peer, source, Token(0)).unwrap();
            }
            match self.a.layer.poll(0) {
                Some(Event::Sent { source, .. }) => self.sources.push(source),
                Some(Event::Up(_)) | None => {}
                Some(event) => panic!("{event:?}"),
            }
            match self.b.layer.poll(0) {
                Some(Event::Received { target, .. }) => {
                    self.targets.push(target);
                    received += 1;
                }
                Some(Event::Up(_)) | None => {}
                Some(event) => panic!("{event:?}"),
            }
        }
        received as f64 / start.elapsed().as_secs_f64()
    }
}

fn pages() -> Pages {
    let mut pages = Pages::new(LONG, PageSize::Base).unwrap();
    pages.fill(7);
    pages
}

/// RDMA writes as they are.
struct RawWrites {
    a: Side,
    _b: Side,
    _shared: efa_core::memory::Exposed<Pages, RemoteWrite>,
    window: efa_core::peer::RemoteWindow<RemoteWrite>,
    source: Option<Slice>,
}

impl RawWrites {
    fn new() -> Self {
        let (a, b) = pair_of(Profile::RDMA, Depth::new(64, 64)).unwrap();
        let shared = b.pd.expose(pages(), b.ctx.require::<RemoteWrite>().unwrap()).unwrap();
        let window = a.peer.window(shared.grant(&b.endpoint).unwrap().as_bytes()).unwrap();
        let source = Some(a.pd.register(pages()).unwrap().1);
        Self { a, _b: b, _shared: shared, window, source }
    }

    /// Bytes for each second, of one.
    fn run(&mut self) -> f64 {
        let start = Cpu::now();
        let source = self.source.take().unwrap();
        self.a.endpoint.post(self.a.peer.write(source, self.window), Token(1)).unwrap();
        while self.source.is_none() {
            if let Some(event) = self.a.endpoint.poll() {
                self.source = event.into_buffers().into_slice();
            }
        }
        LONG as f64 / start.elapsed().as_secs_f64()
    }
}

/// Long messages over the layer, the same again and again.
struct Long {
    a: End,
    b: End,
    source: Option<Memory<Box<[u8]>>>,
    target: Option<Memory<Box<[u8]>>>,
}

impl Long {
    fn read() -> Self {
        let (a, b) = ends();
        let exposed = a.side.expose(pages(), a.ctx.require::<RemoteRead>().unwrap()).unwrap();
        let (source, target) = (exposed.part(0..LONG).unwrap().into(), b.side.register(pages()).unwrap().1.into());
        Self { a, b, source: Some(source), target: Some(target) }
    }

    fn written() -> Self {
        let (a, b) = ends();
        let exposed = b.side.expose(pages(), b.ctx.require::<RemoteWrite>().unwrap()).unwrap();
        let (source, target) = (a.side.register(pages()).unwrap().1.into(), exposed.part(0..LONG).unwrap().into());
        Self { a, b, source: Some(source), target: Some(target) }
    }

    fn copied() -> Self {
        let (a, b) = ends();
        let (source, target) = (a.side.register(pages()).unwrap().1.into(), b.side.register(pages()).unwrap().1.into());
        Self { a, b, source: Some(source), target: Some(target) }
    }

    fn run(&mut self) -> f64 {
        let start = Cpu::now();
        self.b.layer.recv(self.target.take().unwrap(), Token(1)).unwrap();
        self.a.layer.send(self.a.peer, self.source.take().unwrap(), Token(2)).unwrap();
        while self.source.is_none() || self.target.is_none() {
            match self.a.layer.poll(0) {
                Some(Event::Sent { source, .. }) => self.source = Some(source),
                Some(Event::Up(_)) | None => {}
                Some(event) => panic!("{event:?}"),
            }
            match self.b.layer.poll(0) {
                Some(Event::Received { target, .. }) => self.target = Some(target),
                Some(Event::Up(_)) | None => {}
                Some(event) => panic!("{event:?}"),
            }
        }
        LONG as f64 / start.elapsed().as_secs_f64()
    }
}
