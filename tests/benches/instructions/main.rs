//! Instructions of the data path, counted by callgrind: what does not vary from run to run.
//!
//! ```text
//! cargo bench -p efa-tests --bench instructions
//! ```
//!
//! The provider is a stub: queues in memory, and completions that the benchmark writes, so that only this side is
//! counted, with its return. Each line has an operation, its instructions, and those that are committed here. More
//! than a twentieth above them fails; what is lower is to be committed.
//!
//! Of a completion two things are counted: the event, made where the caller wants it, and the event with its slice taken
//! out of it. In batches slices are drained out of a vector, and in runs events are handed to a function.
#![allow(missing_docs)]

mod stub;

use std::process::{Command, ExitCode};

use efa_core::entry::control1;
use efa_core::memory::{PageSize, Pages, Pool, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Depth, Endpoint, Group, MemberId, Srd};
use efa_core::work::Event;
use efa_core::{Context, Token};
use efa_examples::table::Table;

use stub::{Forge, Side, Stub};

/// Operations of a case, batches counted as one.
const ROUNDS: u64 = 1024;
const BATCH: usize = 16;
const MANY: u64 = BATCH as u64;

/// A case, the function that is counted as the linker knows it, what is done and where it completes, operations of one
/// call, and instructions of an operation.
const CASES: [(&str, &str, Work, Queue, u64, f64); 26] = [
    ("SEND", "count_send", Work::Send, Queue::Own, 1, 57.7),
    ("SEND, batches of 16", "count_sends", Work::Send, Queue::Own, MANY, 58.6),
    ("RDMA write", "count_write", Work::Write, Queue::Own, 1, 76.7),
    ("RDMA write, batches of 16", "count_writes", Work::Write, Queue::Own, MANY, 69.2),
    ("RDMA read", "count_read", Work::Read, Queue::Own, 1, 76.7),
    ("RDMA read, batches of 16", "count_reads", Work::Read, Queue::Own, MANY, 69.2),
    ("receive", "count_recv", Work::Recv, Queue::Own, 1, 45.0),
    ("receive, lists of 16", "count_recvs", Work::Recv, Queue::Own, MANY, 57.6),
    ("completion of a SEND", "count_event", Work::Send, Queue::Own, 1, 48.6),
    ("completion of a SEND, runs of 16", "count_events", Work::Send, Queue::Own, MANY, 51.8),
    ("completion of a SEND, its slice taken", "count_sent", Work::Send, Queue::Own, 1, 85.6),
    ("completion of an RDMA write", "count_event", Work::Write, Queue::Own, 1, 63.6),
    ("completion of an RDMA read", "count_event", Work::Read, Queue::Own, 1, 66.6),
    ("completion of a receive", "count_event", Work::Recv, Queue::Own, 1, 64.6),
    ("completion of a receive, runs of 16", "count_events", Work::Recv, Queue::Own, MANY, 67.7),
    ("completion of a receive, its slice taken", "count_received", Work::Recv, Queue::Own, 1, 98.6),
    ("empty poll", "count_empty", Work::Send, Queue::Own, 1, 19.0),
    ("one queue for both: completion of a SEND", "count_event", Work::Send, Queue::One, 1, 80.3),
    ("one queue for both: completion of a receive", "count_event", Work::Recv, Queue::One, 1, 92.3),
    ("one queue for both: empty poll", "count_empty", Work::Send, Queue::One, 1, 19.0),
    ("group: completion of a SEND", "count_group_event", Work::Send, Queue::Group, 1, 82.0),
    ("group: completion of a SEND, runs of 16", "count_group_events", Work::Send, Queue::Group, MANY, 82.8),
    ("group: completion of a SEND, its slice taken", "count_group_sent", Work::Send, Queue::Group, 1, 125.0),
    ("group: completion of a receive", "count_group_event", Work::Recv, Queue::Group, 1, 93.0),
    ("group: completion of a receive, runs of 16", "count_group_events", Work::Recv, Queue::Group, MANY, 93.8),
    ("group: empty poll", "count_group_empty", Work::Send, Queue::Group, 1, 35.0),
];

/// Where the queue pair's completions arrive.
#[derive(Clone, Copy, PartialEq)]
enum Queue {
    Own,
    One,
    Group,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--case") {
        let case = arguments[at + 1].parse().ok().and_then(|case: usize| CASES.get(case)).expect("a case");
        let (_, function, work, queue, ..) = *case;
        match queue {
            Queue::Own => on_a_pair(function, work, Depth::new(16, 16), 2),
            Queue::One => on_a_pair(function, work, Depth::new(16, 16).one_completion_queue(), 1),
            Queue::Group => on_a_group(function, work),
        }
        return ExitCode::SUCCESS;
    }
    let mut table = Table::new(["instructions", "counted", "committed", ""]);
    let mut above = 0;
    for (case, (name, function, _, _, operations, committed)) in CASES.into_iter().enumerate() {
        let counted = match counted(case, function) {
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
fn counted(case: usize, function: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(format!("--toggle-collect={function}"));
    if function.contains("events") {
        command.args(["--toggle-collect=uncounted", "--toggle-collect=uncounted_of"]);
    }
    let output = command
        .arg(program)
        .args(["--case", &case.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}: install the package valgrind"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.filter(|_| output.status.success()).ok_or_else(|| format!("{}: {text}", output.status))
}

type Qp = Endpoint<Stub>;
type Window = RemoteWindow<RemoteReadWrite>;
type Slices = Vec<Slice>;
type Pairs = Group<Stub, Srd, 8>;

#[unsafe(no_mangle)]
#[inline(never)]
fn count_send(qp: &mut Qp, peer: &Peer<Mutual>, slice: Slice, token: Token) -> bool {
    qp.post(peer.send(slice), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_sends(qp: &mut Qp, peer: &Peer<Mutual>, slices: &mut Slices, token: Token) -> bool {
    let mut batch = qp.batch();
    for slice in slices.drain(..) {
        if batch.push(peer.send(slice), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_write(qp: &mut Qp, peer: &Peer<Mutual>, slice: Slice, window: &Window, token: Token) -> bool {
    qp.post(peer.write(slice, *window), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_writes(qp: &mut Qp, peer: &Peer<Mutual>, slices: &mut Slices, window: &Window, token: Token) -> bool {
    let mut batch = qp.batch();
    for slice in slices.drain(..) {
        if batch.push(peer.write(slice, *window), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_read(qp: &mut Qp, peer: &Peer<Mutual>, slice: Slice, window: &Window, token: Token) -> bool {
    qp.post(peer.read(slice, *window), token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_reads(qp: &mut Qp, peer: &Peer<Mutual>, slices: &mut Slices, window: &Window, token: Token) -> bool {
    let mut batch = qp.batch();
    for slice in slices.drain(..) {
        if batch.push(peer.read(slice, *window), token).is_err() {
            return false;
        }
    }
    batch.submit() == BATCH
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_recv(qp: &mut Qp, slice: Slice, token: Token) -> bool {
    qp.post_recv(slice, token).is_ok()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_recvs(qp: &mut Qp, slices: &mut Slices, token: Token) -> bool {
    let mut list = slices.drain(..).map(|slice| (slice, token));
    qp.post_recv_list(&mut list).is_ok_and(|count| count == BATCH)
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_event(qp: &mut Qp) -> Option<Event> {
    qp.poll()
}

/// What is done with the events of a run. It toggles the counting too, and so is left out.
#[unsafe(no_mangle)]
#[inline(never)]
fn uncounted(events: &mut Vec<Event>, polled: Option<Event>) {
    events.extend(polled);
}

/// Likewise, of a group.
#[unsafe(no_mangle)]
#[inline(never)]
fn uncounted_of(events: &mut Vec<Event>, polled: Option<(MemberId, Event)>) {
    events.extend(polled.map(|(_, event)| event));
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_events(qp: &mut Qp, events: &mut Vec<Event>) {
    for _ in 0..BATCH {
        uncounted(events, qp.poll());
    }
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

#[unsafe(no_mangle)]
#[inline(never)]
fn count_group_event(group: &mut Pairs) -> Option<(MemberId, Event)> {
    group.poll()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_group_events(group: &mut Pairs, events: &mut Vec<Event>) {
    for _ in 0..BATCH {
        uncounted_of(events, group.poll());
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_group_sent(group: &mut Pairs) -> Option<(MemberId, Token, Slice)> {
    match group.poll() {
        Some((member, Event::Sent(done))) => Some((member, done.token, done.buffers.into_slice()?)),
        _ => None,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn count_group_empty(group: &mut Pairs) -> bool {
    group.poll().is_none()
}

/// What is posted in a case, and so what completes.
#[derive(Clone, Copy)]
enum Work {
    Send,
    Write,
    Read,
    Recv,
}

impl Work {
    /// Whose completion it is, and its operation.
    fn completion(self) -> (Side, u8) {
        match self {
            Self::Send => (Side::Send, control1::OP_SEND),
            Self::Write => (Side::Send, control1::OP_RDMA_WRITE),
            Self::Read => (Side::Send, control1::OP_RDMA_READ),
            Self::Recv => (Side::Recv, control1::OP_SEND),
        }
    }
}

fn sixteen(pool: &mut Pool<32>) -> Slices {
    std::iter::from_fn(|| pool.take()).take(BATCH).collect()
}

fn give_back(pool: &mut Pool<32>, event: Event) {
    pool.put(event.into_buffers().into_slice().unwrap()).unwrap();
}

fn on_a_pair(function: &str, work: Work, depth: Depth, queues: usize) {
    let ctx = Context::open(Stub::new());
    let pd = ctx.alloc_pd().unwrap();
    let srd = ctx.require::<Srd>().unwrap();
    let mut a = pd.endpoint(srd, depth).unwrap();
    let b = pd.endpoint(srd, depth).unwrap();
    let peer = a.resolve(b.hello().as_bytes()).unwrap().0.assert_mutual();
    let (_region, memory) = pd.register(vec![0u8; 64 * 32]).unwrap();
    let (mut pool, _) = Pool::<32>::new(memory, 64).unwrap();
    let access = ctx.require::<RemoteReadWrite>().unwrap();
    let exposed = pd.expose(Pages::new(4096, PageSize::Base).unwrap(), access).unwrap();
    let window = peer.window::<RemoteReadWrite>(exposed.grant(&b).unwrap().as_bytes()).unwrap();

    let mut forge = Forge::new(queues);
    let (side, op) = work.completion();
    let (a, pool) = (&mut a, &mut pool);
    let mut events = Vec::with_capacity(BATCH);
    for round in 0..ROUNDS {
        let token = Token(round);
        match function {
            "count_empty" => assert!(count_empty(a)),
            "count_sends" | "count_writes" | "count_reads" | "count_recvs" | "count_events" => {
                let mut slices = sixteen(pool);
                assert!(match work {
                    Work::Send => count_sends(a, &peer, &mut slices, token),
                    Work::Write => count_writes(a, &peer, &mut slices, &window, token),
                    Work::Read => count_reads(a, &peer, &mut slices, &window, token),
                    Work::Recv => count_recvs(a, &mut slices, token),
                });
                // In the order that leaves the slots as they were: the one that is freed last is taken first.
                for slot in (0..BATCH as u16).rev() {
                    forge.completion(side, slot, op);
                }
                count_events(a, &mut events);
                assert_eq!(events.len(), BATCH);
                events.drain(..).for_each(|event| give_back(pool, event));
            }
            _ => {
                let slice = pool.take().unwrap();
                assert!(match work {
                    Work::Send => count_send(a, &peer, slice, token),
                    Work::Write => count_write(a, &peer, slice, &window, token),
                    Work::Read => count_read(a, &peer, slice, &window, token),
                    Work::Recv => count_recv(a, slice, token),
                });
                forge.completion(side, 0, op);
                match function {
                    "count_sent" => {
                        let (back, slice) = count_sent(a).unwrap();
                        assert_eq!(back, token);
                        pool.put(slice).unwrap();
                    }
                    "count_received" => {
                        let (back, len, slice) = count_received(a).unwrap();
                        assert_eq!((back, len), (token, 8));
                        pool.put(slice).unwrap();
                    }
                    _ => {
                        let event = count_event(a).unwrap();
                        assert_eq!(event.token(), Some(token));
                        give_back(pool, event);
                    }
                }
            }
        }
    }
}

fn on_a_group(function: &str, work: Work) {
    let ctx = Context::open(Stub::new());
    let pd = ctx.alloc_pd().unwrap();
    let mut group: Pairs = pd.group(ctx.require().unwrap(), 256).unwrap();
    let [a, b] = [(); 2].map(|()| group.endpoint(Depth::new(16, 16)).unwrap());
    let hello = group.queue_pair(b).unwrap().hello();
    let peer = group.queue_pair(a).unwrap().resolve(hello.as_bytes()).unwrap().0.assert_mutual();
    let (_region, memory) = pd.register(vec![0u8; 64 * 32]).unwrap();
    let (mut pool, _) = Pool::<32>::new(memory, 64).unwrap();

    let mut forge = Forge::new(1);
    let (side, op) = work.completion();
    let in_one = if function.contains("events") { BATCH as u16 } else { 1 };
    let mut events = Vec::with_capacity(BATCH);
    for round in 0..ROUNDS {
        if function == "count_group_empty" {
            assert!(count_group_empty(&mut group));
            continue;
        }
        for _ in 0..in_one {
            let (mut member, slice) = (group.member(a).unwrap(), pool.take().unwrap());
            match side {
                Side::Send => member.post(peer.send(slice), Token(round)).unwrap(),
                Side::Recv => member.post_recv(slice, Token(round)).unwrap(),
            }
        }
        for slot in (0..in_one).rev() {
            forge.completion(side, slot, op);
        }
        if in_one > 1 {
            count_group_events(&mut group, &mut events);
            assert_eq!(events.len(), BATCH);
            events.drain(..).for_each(|event| give_back(&mut pool, event));
        } else if function == "count_group_sent" {
            let (whose, back, slice) = count_group_sent(&mut group).unwrap();
            assert_eq!((whose, back), (a, Token(round)));
            pool.put(slice).unwrap();
        } else {
            let (whose, event) = count_group_event(&mut group).unwrap();
            assert_eq!((whose, event.token()), (a, Some(Token(round))));
            give_back(&mut pool, event);
        }
    }
}
