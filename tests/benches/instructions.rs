//! Instructions of the data path, counted by callgrind: what does not vary from run to run.
//!
//! ```text
//! cargo bench -p efa-tests --bench instructions
//! ```
//!
//! The provider is a stub: queues in memory, and completions that the benchmark writes, so that only this side is
//! counted, with call and return. Each line has an operation, its instructions, and those that are committed here. More
//! than a twentieth above them fails; what is lower is to be committed.
#![allow(missing_docs)]

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use efa_core::entry::{completion_flags as flags, control1};
use efa_core::memory::{Mr, PageSize, Pages, Pool, RawMemory, RemoteReadWrite, Slice};
use efa_core::peer::{Ah, Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, QpAttr, QpState, Srd};
use efa_core::ring::WORDS_PER_QUAD;
use efa_core::soft::{Profile, SoftCq, SoftDevice, SoftPd, SoftQp};
use efa_core::work::Event;
use efa_core::{
    Caps, Context, CqInit, CqRing, DeviceId, Error, Gid, Leaks, Limits, MrInit, PdId, Provider, QpInit, Queues, Token,
};
use efa_examples::table::Table;

/// Operations of a case, batches counted as one.
const ROUNDS: u64 = 1024;
const BATCH: u64 = 16;

/// A case, its function as the linker knows it, operations of one call, and instructions of an operation.
const CASES: [(&str, &str, u64, f64); 8] = [
    ("SEND", "count_send", 1, 68.1),
    ("SEND, batches of 16", "count_sends", BATCH, 80.8),
    ("RDMA write", "count_write", 1, 95.1),
    ("RDMA read", "count_read", 1, 95.1),
    ("receive", "count_recv", 1, 50.0),
    ("completion of a SEND", "count_sent", 1, 128.3),
    ("completion of a receive", "count_received", 1, 134.3),
    ("empty poll", "count_empty", 1, 21.0),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--case") {
        run(arguments.get(at + 1).map_or("", String::as_str));
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new(["instructions", "counted", "committed", ""]);
    let mut above = 0;
    for (name, function, operations, committed) in CASES {
        let counted = match counted(function) {
            Ok(collected) => collected as f64 / (ROUNDS * operations) as f64,
            Err(error) => {
                eprintln!("error: {name}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let verdict = if counted > committed * 1.05 { "above" } else { "" };
        above += usize::from(!verdict.is_empty());
        println!("figure: instructions of {name}: {counted:.1}");
        table.row([name.to_owned(), format!("{counted:.1}"), format!("{committed:.1}"), verdict.to_owned()]);
    }
    println!("\n{table}");
    if above > 0 {
        eprintln!("error: {above} of them rose by more than 5 %");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What callgrind counts within a function of a run of this very program.
fn counted(function: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", &format!("--toggle-collect={function}")])
        .arg(program)
        .args(["--case", function])
        .output()
        .map_err(|error| format!("valgrind: {error}: install the package valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.filter(|_| output.status.success()).ok_or_else(|| format!("{}: {text}", output.status))
}

type Qp = Endpoint<Stub>;

#[unsafe(no_mangle)]
#[inline(never)]
fn count_send(qp: &mut Qp, peer: &Peer<Mutual>, slice: Slice, token: Token) -> bool {
    qp.post(peer.send(slice), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_sends(qp: &mut Qp, peer: &Peer<Mutual>, slices: [Slice; BATCH as usize]) -> bool {
    let mut batch = qp.batch();
    for (token, slice) in (0..).zip(slices) {
        if batch.push(peer.send(slice), Token(token)).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH as usize
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_write(
    qp: &mut Qp,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: &RemoteWindow<RemoteReadWrite>,
    token: Token,
) -> bool {
    qp.post(peer.write(slice, *window), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_read(
    qp: &mut Qp,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: &RemoteWindow<RemoteReadWrite>,
    token: Token,
) -> bool {
    qp.post(peer.read(slice, *window), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_recv(qp: &mut Qp, slice: Slice, token: Token) -> bool {
    qp.post_recv(slice, token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_sent(qp: &mut Qp) -> Option<(Token, Slice)> {
    match qp.poll() {
        Some(Event::Sent(done)) => Some((done.token, done.buffers.into_slice()?)),
        _ => None,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_received(qp: &mut Qp) -> Option<(Token, usize, Slice)> {
    match qp.poll() {
        Some(Event::Received(message)) => Some((message.token, message.len, message.buffers.into_slice()?)),
        _ => None,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_empty(qp: &mut Qp) -> bool {
    qp.poll().is_none()
}

fn run(case: &str) {
    let ctx = Context::open(Stub(SoftDevice::new(Profile::RDMA)));
    let pd = ctx.alloc_pd().unwrap();
    let srd = ctx.require::<Srd>().unwrap();
    let mut a = pd.endpoint(srd, Depth::new(16, 16)).unwrap();
    let b = pd.endpoint(srd, Depth::new(16, 16)).unwrap();
    let peer = a.resolve(b.hello().as_bytes()).unwrap().0.assert_mutual();
    let (_region, memory) = pd.register(vec![0u8; 64 * 32]).unwrap();
    let (mut pool, _) = Pool::<32>::new(memory, 64).unwrap();
    let access = ctx.require::<RemoteReadWrite>().unwrap();
    let exposed = pd.expose(Pages::new(4096, PageSize::Base).unwrap(), access).unwrap();
    let window = peer.window::<RemoteReadWrite>(exposed.grant(&b).unwrap().as_bytes()).unwrap();

    let made = MADE.lock().unwrap();
    let (send, recv, queues) = (made.cqs[0], made.cqs[1], made.qps[0]);
    drop(made);
    let mut forge = Forge { queues, queues_of: [(send, 0), (recv, 0)] };
    for round in 0..ROUNDS {
        let token = Token(round);
        match case {
            "count_send" | "count_sent" => {
                assert!(count_send(&mut a, &peer, pool.take().unwrap(), token));
                forge.completion(0, 0, control1::OP_SEND);
                let (back, slice) = count_sent(&mut a).unwrap();
                assert_eq!(back, token);
                pool.put(slice).unwrap();
            }
            "count_sends" => {
                let slices = [(); BATCH as usize].map(|()| pool.take().unwrap());
                assert!(count_sends(&mut a, &peer, slices));
                // In the order that leaves the slots as they were: the one that is freed last is taken first.
                for id in (0..BATCH as u16).rev() {
                    forge.completion(0, id, control1::OP_SEND);
                    pool.put(count_sent(&mut a).unwrap().1).unwrap();
                }
            }
            "count_write" | "count_read" => {
                let slice = pool.take().unwrap();
                let op = if case == "count_write" { control1::OP_RDMA_WRITE } else { control1::OP_RDMA_READ };
                let posted = if op == control1::OP_RDMA_WRITE { count_write } else { count_read };
                assert!(posted(&mut a, &peer, slice, &window, token));
                forge.completion(0, 0, op);
                pool.put(a.poll().unwrap().into_buffers().into_slice().unwrap()).unwrap();
            }
            "count_recv" | "count_received" => {
                assert!(count_recv(&mut a, pool.take().unwrap(), token));
                forge.completion(1, 0, control1::OP_SEND);
                let (back, len, slice) = count_received(&mut a).unwrap();
                assert_eq!((back, len), (token, 8));
                pool.put(slice).unwrap();
            }
            "count_empty" => assert!(count_empty(&mut a)),
            _ => panic!("no such case: {case}"),
        }
    }
}

/// Who writes completions in the device's stead.
struct Forge {
    queues: Queues,
    /// The completion queues, of sends and of receives, each with the entries written so far.
    queues_of: [(CqRing, u32); 2],
}

impl Forge {
    fn completion(&mut self, which: usize, slot: u16, op: u8) {
        let (ring, written) = &mut self.queues_of[which];
        let depth = [self.queues.send.depth, self.queues.recv.depth][which];
        let req_id = u64::from(slot) | (u64::from(self.queues.generation) << depth.trailing_zeros()) & 0xFFFF;
        let phase = if (*written / ring.entries).is_multiple_of(2) { flags::PHASE } else { 0 };
        let kind = [flags::QUEUE_SEND, flags::QUEUE_RECV][which];
        let bits = phase | kind | op << flags::OP_SHIFT;
        let head = req_id | u64::from(bits) << 24 | u64::from(self.queues.qpn.0) << 32 | 8 << 48;
        let at = (*written % ring.entries) as usize * usize::from(ring.entry_size) / 8 * WORDS_PER_QUAD;
        // SAFETY: an entry of the ring.
        let word = unsafe { ring.base.add(at) };
        // SAFETY: the ring's queue lives; words are atomic.
        let word = unsafe { word.as_ref() };
        word.store(head, Ordering::Release);
        *written += 1;
    }
}

/// A software device that takes no turn.
#[derive(Clone)]
struct Stub(SoftDevice);

#[derive(Default)]
struct Made {
    cqs: Vec<CqRing>,
    qps: Vec<Queues>,
}

// SAFETY: rings, of which this program's one thread uses the words.
unsafe impl Send for Made {}

static MADE: Mutex<Made> = Mutex::new(Made { cqs: Vec::new(), qps: Vec::new() });

// SAFETY: the software device's promises, less that it does anything: completions are written, once for each request,
// by this program, and no memory but the rings is touched.
unsafe impl Provider for Stub {
    type Pd = SoftPd;
    type Cq = SoftCq;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        self.0.name()
    }
    fn device_id(&self) -> DeviceId {
        self.0.device_id()
    }
    fn caps(&self) -> Caps {
        self.0.caps()
    }
    fn limits(&self) -> Limits {
        self.0.limits()
    }
    fn gid(&self) -> Gid {
        self.0.gid()
    }
    fn entropy(&self) -> u64 {
        self.0.entropy()
    }
    fn leaks(&self) -> &Leaks {
        self.0.leaks()
    }
    fn alloc_pd(&self) -> Result<SoftPd, Error> {
        self.0.alloc_pd()
    }
    fn pd_id(pd: &SoftPd) -> PdId {
        SoftDevice::pd_id(pd)
    }
    unsafe fn reg_mr(&self, pd: &SoftPd, memory: RawMemory, init: &MrInit) -> Result<Mr, (RawMemory, Error)> {
        // SAFETY: by the caller's word.
        unsafe { self.0.reg_mr(pd, memory, init) }
    }
    fn create_ah(&self, pd: &SoftPd, gid: Gid) -> Result<Ah, Error> {
        self.0.create_ah(pd, gid)
    }
    fn create_cq(&self, init: &CqInit) -> Result<SoftCq, Error> {
        let cq = self.0.create_cq(init)?;
        MADE.lock().unwrap().cqs.push(self.0.completions(&cq));
        Ok(cq)
    }
    fn create_qp(&self, pd: &SoftPd, send: &SoftCq, recv: &SoftCq, init: &QpInit) -> Result<SoftQp, Error> {
        let qp = self.0.create_qp(pd, send, recv, init)?;
        MADE.lock().unwrap().qps.push(self.0.queues(&qp));
        Ok(qp)
    }
    fn modify_qp(&self, qp: &mut SoftQp, attr: &QpAttr) -> Result<(), Error> {
        self.0.modify_qp(qp, attr)
    }
    fn query_qp(&self, qp: &SoftQp) -> Result<QpState, Error> {
        self.0.query_qp(qp)
    }
    fn destroy_qp(&self, qp: &mut SoftQp) -> Result<(), Error> {
        self.0.destroy_qp(qp)
    }
    fn queues(&self, qp: &SoftQp) -> Queues {
        self.0.queues(qp)
    }
    fn completions(&self, cq: &SoftCq) -> CqRing {
        self.0.completions(cq)
    }
}
