//! What a device says: arbitrary completion entries, against a model of what each must come to.

use std::collections::{BTreeMap, VecDeque};

use efa_core::entry::{completion_flags as flags, control1};
use efa_core::memory::{Buffer, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow, Sender};
use efa_core::qp::{Depth, Endpoint, Shutdown, Srd};
use efa_core::status::CompletionStatus;
use efa_core::wire::{EndpointInfo, Features, Grant, Hello};
use efa_core::work::{Cause, Event, Failure, Kind};
use efa_core::{
    Ahn, Caps, Context, Error, Gid, Incarnation, ProtectionDomain, Provider, Qkey, Qpn, RKey, Refused, Token,
};

use crate::Reached;
use crate::input::Input;
use crate::puppet::{GENERATION, Puppet, QPN};

const CAPS: Caps = Caps::RDMA_READ.union(Caps::RDMA_WRITE);
const DEPTH: usize = 4;
/// Entries of the send and the receive completion queue.
const ROOM: [usize; 2] = [DEPTH, 2 * DEPTH];
/// One that says: in flight, without a completion.
const FLUSHED: u8 = 1;

/// A buffer by its address and length.
type Bytes = (usize, usize);

/// An event, to be compared.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    token: Option<u64>,
    what: What,
    buffers: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Debug)]
enum What {
    Done(u8),
    Received { len: usize, imm: Option<u32>, from: Sender },
    Arrived { imm: u32, len: Option<u32>, from: Sender },
    Failed(Cause, Kind),
    Reclaimed,
}

fn seen(event: Event) -> Seen {
    let what = match &event {
        Event::Sent(_) => What::Done(control1::OP_SEND),
        Event::Written(_) => What::Done(control1::OP_RDMA_WRITE),
        Event::Read(_) => What::Done(control1::OP_RDMA_READ),
        Event::Received(message) => What::Received { len: message.len, imm: message.imm, from: message.from },
        Event::WriteArrived(write) => What::Arrived { imm: write.imm, len: write.len, from: write.from },
        Event::UnsolicitedWrite(write) => What::Arrived { imm: write.imm, len: write.len, from: write.from },
        Event::Failed { failure, .. } => What::Failed(failure.cause, failure.kind),
        Event::Reclaimed { .. } => What::Reclaimed,
    };
    Seen { token: event.token().map(|token| token.0), what, buffers: bytes(event.into_buffers()) }
}

fn bytes(buffers: impl Iterator<Item = Buffer>) -> Vec<Bytes> {
    let bytes = |buffer| match buffer {
        Buffer::Slice(slice) => address(&slice),
        other => panic!("{other:?} was not posted"),
    };
    buffers.map(bytes).collect()
}

fn address(slice: &Slice) -> Bytes {
    (slice.as_ptr().addr(), slice.len())
}

struct Request {
    token: u64,
    op: u8,
    buffers: Vec<Bytes>,
}

/// What the queue pair must say, told from the entries alone.
#[derive(Default)]
struct Model {
    wide: bool,
    /// Where request ids of sends have 64 bits, the upper 48 of those of this life.
    life: Option<u64>,
    /// By request id: operations, receives.
    in_flight: [BTreeMap<u16, Request>; 2],
    /// Entries that were not polled.
    pending: [VecDeque<[u8; 32]>; 2],
    /// Entries that were polled.
    consumed: [usize; 2],
    sends_first: bool,
    stale: u32,
    flushed: u32,
    failed: bool,
    cause: Option<Failure>,
}

impl Model {
    fn count(&self) -> u32 {
        self.in_flight.iter().map(|requests| requests.len() as u32).sum()
    }

    fn poll(&mut self) -> Option<Seen> {
        // The queue that had something last goes first, until it was read once around. After an entry of nothing, receives
        // go before.
        let has = self.pending.each_ref().map(|entries| !entries.is_empty());
        let first = usize::from(!self.sends_first);
        let mut queue = if has[first] || !has[1 - first] { first } else { 1 - first };
        let mut is_first = true;
        while let Some(entry) = self.pending[queue].pop_front() {
            self.consumed[queue] += 1;
            if std::mem::take(&mut is_first) {
                let is_around = self.consumed[queue].is_multiple_of(ROOM[queue]);
                self.sends_first = (queue == 0) != is_around;
            }
            match self.completed(queue, &entry) {
                None => self.stale += 1,
                seen => return seen,
            }
            queue = usize::from(!self.pending[1].is_empty());
        }
        None
    }

    fn completed(&mut self, queue: usize, entry: &[u8; 32]) -> Option<Seen> {
        let short = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let (id, status, flag, op) = (short(0), entry[2], entry[3], entry[3] >> 4 & 7);
        let kind = [flags::QUEUE_SEND, flags::QUEUE_RECV][queue];
        let unsolicited = flag & flags::UNSOLICITED != 0;
        if short(4) != QPN || flag & flags::QUEUE_MASK != kind || unsolicited && queue == 0 {
            return None;
        }
        let wide = self.wide && queue == 1;
        let imm = (flag & flags::HAS_IMM != 0).then(|| u32::from(short(14)) << 16 | u32::from(short(12)));
        let (ahn, qpn) = (Ahn(short(8)), Qpn(short(10)));
        let gid = Gid(std::array::from_fn(|at| entry[16 + at]));
        let gid = (wide && op == control1::OP_SEND && !gid.is_zero()).then_some(gid);
        let from = if ahn == Ahn::UNKNOWN { Sender::Unknown { gid, qpn } } else { Sender::Known { ahn, qpn } };
        let written = wide.then(|| u32::from(short(16)) << 16 | u32::from(short(6)));

        let request = if unsolicited {
            None
        } else {
            let upper = u64::from(short(6)) | u64::from(short(8)) << 16 | u64::from(short(10)) << 32;
            if queue == 0 && self.life.is_some_and(|life| life != upper) {
                return None;
            }
            let wanted = self.in_flight[queue].get(&id)?;
            if queue == 0 && status == 0 && wanted.op != op {
                return None;
            }
            self.in_flight[queue].remove(&id)
        };
        let (token, posted) = request.as_ref().map(|request| (request.token, request.op)).unzip();
        let buffers = request.map_or(Vec::new(), |request| request.buffers);
        let cause = CompletionStatus::from_number(status);
        if queue == 0 && cause == CompletionStatus::LocalQpInternalError && !self.failed {
            // Whatever failed before left it usable: this is why it is no more.
            (self.failed, self.cause) = (true, None);
        }
        let room: usize = buffers.iter().map(|(_, len)| len).sum();
        let asked = match (queue, posted) {
            (1, _) => Kind::Recv,
            (_, Some(control1::OP_RDMA_READ)) => Kind::Read,
            (_, Some(control1::OP_RDMA_WRITE)) => Kind::Write,
            _ => Kind::Send,
        };
        let what = match (status, queue, op, imm) {
            (1.., ..) => What::Failed(Cause::Status(cause), asked),
            (0, 0, ..) => What::Done(op),
            (0, _, control1::OP_SEND, _) if !unsolicited => match usize::from(short(6)) {
                len if len <= room => What::Received { len, imm, from },
                reported => What::Failed(Cause::LengthBeyondBuffers { reported, room }, asked),
            },
            (0, _, control1::OP_RDMA_WRITE, Some(imm)) => What::Arrived { imm, len: written, from },
            _ => What::Failed(Cause::Malformed { op }, asked),
        };
        if let What::Failed(cause, kind) = what {
            if cause == Cause::Status(CompletionStatus::Flushed) {
                self.flushed += 1;
            } else if self.cause.is_none() {
                self.cause = Some(Failure { cause, kind, token: token.map(Token), qpn: Qpn(QPN) });
            }
        }
        Some(Seen { token, what, buffers })
    }
}

struct Stage {
    device: Puppet,
    pd: ProtectionDomain<Puppet>,
    peer: Peer<Mutual>,
    window: RemoteWindow<RemoteReadWrite>,
    model: Model,
    /// Entries that were staged, descriptors that were posted, in this life.
    produced: [usize; 2],
    /// What the send doorbell was told last.
    rung: u32,
    tokens: u64,
    resolved: u64,
    reached: Reached,
}

/// A queue pair whose device completes whatever the bytes say. Each request is resolved once, as its entry says;
/// what resolves none is counted; and afterwards the queue pair is as good as new.
///
/// Gives what it came to do.
pub fn completions(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let flags = input.byte();
    let (mut stage, mut qp) = stage(flags & 1 == 1, flags & 2 == 2);
    while let Some(step) = input.step() {
        stage.step(&mut qp, step, &mut input);
        assert_eq!(qp.in_flight(), stage.model.count());
        assert_eq!(qp.cause(), stage.model.cause.as_ref());
    }
    if stage.tokens.is_multiple_of(2) {
        qp = stage.restart(qp);
        stage.usable(&mut qp);
    }
    stage.end(qp, data.len() % 7)
}

fn stage(wide: bool, req_id_64: bool) -> (Stage, Endpoint<Puppet>) {
    let device = Puppet::with(if wide { CAPS | Caps::CQ_WITH_SGID } else { CAPS }, req_id_64, None);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let depth = Depth::new(DEPTH as u32, DEPTH as u32).recv_buffers(2).unsolicited(DEPTH as u32);
    let qp = pd.endpoint(ctx.require::<Srd>().unwrap(), depth).unwrap();
    let peer = peer(&qp);
    let model = Model { wide, life: req_id_64.then_some(0), ..Model::default() };
    let window = window(&peer);
    let (produced, rung, tokens, resolved, reached) = ([0; 2], 0, 0, 0, Reached::new());
    (Stage { device, pd, peer, window, model, produced, rung, tokens, resolved, reached }, qp)
}

fn peer(qp: &Endpoint<Puppet>) -> Peer<Mutual> {
    let hello = Hello {
        endpoint: EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) },
        features: Features::empty(),
        ops: efa_core::flags::SendOps::all(),
        caps: CAPS,
        max_message: 1000,
        max_rdma: 1000,
        incarnation: Incarnation(1),
    };
    qp.resolve(hello.to_frame().as_bytes()).unwrap().0.assert_mutual()
}

fn window(peer: &Peer<Mutual>) -> RemoteWindow<RemoteReadWrite> {
    let access = efa_core::flags::Access::REMOTE_READ | efa_core::flags::Access::REMOTE_WRITE;
    let grant = Grant { address: 0x1000, length: 4096, rkey: RKey(5), access, incarnation: Incarnation(1) };
    peer.window(grant.to_frame().as_bytes()).unwrap()
}

impl Stage {
    fn step(&mut self, qp: &mut Endpoint<Puppet>, step: u8, input: &mut Input<'_>) {
        let step = step % 13;
        let before = self.tokens;
        match step {
            0 => {
                let slice = self.slice(input);
                self.post(vec![address(&slice)], control1::OP_SEND, |stage, token| {
                    qp.post(stage.peer.send(slice), token).map_err(Refused::into)
                });
            }
            1 => {
                let (a, b) = (self.slice(input), self.slice(input));
                self.post(vec![address(&a), address(&b)], control1::OP_SEND, |stage, token| {
                    qp.post(stage.peer.send([a, b]).imm(1), token).map_err(Refused::into)
                });
            }
            2 => self.post(vec![], control1::OP_SEND, |stage, token| {
                let inline = stage.peer.send_inline(b"inline");
                qp.post(inline, token).map_err(Refused::into)
            }),
            3 => {
                let slice = self.slice(input);
                let window = self.window;
                self.post(vec![address(&slice)], control1::OP_RDMA_WRITE, |stage, token| {
                    qp.post(stage.peer.write(slice, window), token).map_err(Refused::into)
                });
            }
            4 => {
                let slice = self.slice(input);
                let window = self.window;
                self.post(vec![address(&slice)], control1::OP_RDMA_WRITE, |stage, token| {
                    qp.post(stage.peer.write(slice, window).imm(9), token).map_err(Refused::into)
                });
            }
            5 => {
                let slice = self.slice(input);
                let window = self.window;
                self.post(vec![address(&slice)], control1::OP_RDMA_READ, |stage, token| {
                    qp.post(stage.peer.read(slice, window), token).map_err(Refused::into)
                });
            }
            6 => {
                let slice = self.slice(input);
                self.recv(vec![address(&slice)], |token| qp.post_recv(slice, token).map_err(Refused::into));
            }
            7 => {
                let (a, b) = (self.slice(input), self.slice(input));
                self.recv(vec![address(&a), address(&b)], |token| qp.post_recv([a, b], token).map_err(Refused::into));
            }
            8 => self.batch(qp, input),
            9 => {
                let queue = input.below(2);
                let entry = input.bytes();
                self.complete(queue, entry);
            }
            10 => self.aimed(input),
            11 => self.poll(qp),
            _ => (0..4).for_each(|_| self.poll(qp)),
        }
        if step <= 5 && self.tokens != before {
            self.rung = self.produced[0] as u32 & 0xFFFF;
        }
        assert_eq!(self.device.doorbells().0, self.rung);
    }

    fn slice(&self, input: &mut Input<'_>) -> Slice {
        self.pd.register(vec![0; 1 + input.below(64)]).unwrap().1
    }

    fn token(&mut self) -> Token {
        self.tokens += 1;
        Token(self.tokens)
    }

    /// Posts an operation, or is refused for the reason that the model has.
    fn post(&mut self, buffers: Vec<Bytes>, op: u8, post: impl FnOnce(&Self, Token) -> Result<(), Error>) {
        let token = self.token();
        let refusal = match self.model.in_flight[0].len() {
            _ if self.model.failed => Some(Error::QueueFailed),
            in_flight if in_flight == DEPTH => Some(Error::QueueFull { in_flight: DEPTH as u32 }),
            _ => None,
        };
        assert_eq!(post(self, token).err(), refusal);
        if let Some(error) = refusal {
            self.reached.insert(if error == Error::QueueFailed { "a failed queue" } else { "a full queue" });
        }
        if refusal.is_some() {
            self.tokens -= 1;
            return;
        }
        let (id, upper) =
            (self.device.send_id(self.produced[0] % DEPTH), self.device.send_quad(self.produced[0] % DEPTH, 3) >> 16);
        match &mut self.model.life {
            None => assert_eq!(upper, 0),
            Some(life) => {
                assert!(upper != 0 && (self.produced[0] == 0 || *life == upper), "{upper:#x} in the life of {life:#x}");
                *life = upper;
            }
        }
        self.produced[0] += 1;
        self.begun(0, id, Request { token: token.0, op, buffers });
    }

    fn recv(&mut self, buffers: Vec<Bytes>, post: impl FnOnce(Token) -> Result<(), Error>) {
        let token = self.token();
        let full = self.model.in_flight[1].len() == DEPTH;
        let refusal = full.then_some(Error::RecvQueueFull { in_flight: DEPTH as u32 });
        assert_eq!(post(token).err(), refusal);
        if refusal.is_some() {
            self.tokens -= 1;
            return;
        }
        let id = self.device.recv_id(self.produced[1] % (2 * DEPTH));
        self.produced[1] += buffers.len();
        assert_eq!(self.device.doorbells().1, self.produced[1] as u32 & 0xFFFF);
        self.begun(1, id, Request { token: token.0, op: 0, buffers });
    }

    fn begun(&mut self, queue: usize, id: u16, request: Request) {
        assert_eq!(id / DEPTH as u16, GENERATION);
        assert!(self.model.in_flight[queue].insert(id, request).is_none(), "{id:#x} is in flight twice");
    }

    /// A batch that is submitted, aborted, dropped or forgotten.
    fn batch(&mut self, qp: &mut Endpoint<Puppet>, input: &mut Input<'_>) {
        let (count, end) = (1 + input.below(5), input.below(4));
        let slices: Vec<Slice> = (0..count).map(|_| self.slice(input)).collect();
        let mut batch = qp.batch();
        let mut staged = Vec::new();
        for slice in slices {
            let before = self.tokens;
            self.post(vec![address(&slice)], control1::OP_SEND, |stage, token| {
                match batch.push(stage.peer.send(slice), token).map_err(Refused::into) {
                    // The batch is full only where the queue is, here; which of the two it says first is its own.
                    Err(Error::BatchFull { limit: 4 }) => Err(Error::QueueFull { in_flight: DEPTH as u32 }),
                    result => result,
                }
            });
            if self.tokens != before {
                staged.push(self.tokens);
            }
        }
        assert_eq!(batch.len(), staged.len());
        if !staged.is_empty() {
            let ends = ["a batch submitted", "a batch aborted", "a batch dropped", "a batch forgotten"];
            self.reached.insert(ends[end]);
        }
        match end {
            0 => {
                assert_eq!(batch.submit(), staged.len());
                if !staged.is_empty() {
                    self.rung = self.produced[0] as u32 & 0xFFFF;
                }
            }
            1 => {
                let mut back = Vec::new();
                batch.abort(|token, buffers| back.push((token.0, bytes(buffers))));
                let mut expected: Vec<_> = staged.iter().rev().map(|token| (*token, self.unpost(*token))).collect();
                expected.reverse();
                assert_eq!(back, expected);
            }
            2 => {
                drop(batch);
                staged.iter().rev().for_each(|token| drop(self.unpost(*token)));
            }
            _ => {
                std::mem::forget(batch);
                // In flight as far as the queue pair knows, and none of it in the ring.
                self.produced[0] -= staged.len();
            }
        }
    }

    /// A token that was staged last and taken back: as if it never was.
    fn unpost(&mut self, token: u64) -> Vec<Bytes> {
        let id = *self.model.in_flight[0].iter().find(|(_, request)| request.token == token).unwrap().0;
        assert_eq!(self.tokens, token);
        self.tokens -= 1;
        self.produced[0] -= 1;
        self.model.in_flight[0].remove(&id).unwrap().buffers
    }

    /// Writes an entry, unless the queue has no room: an overrun is the device's loss.
    fn complete(&mut self, queue: usize, entry: [u8; 32]) {
        if self.model.pending[queue].len() < ROOM[queue] {
            self.device.complete(queue, &entry);
            self.model.pending[queue].push_back(entry);
            if cfg!(feature = "planted") && queue == 0 && entry[2] == 0 && entry[3] >> 4 & 7 == control1::OP_RDMA_READ {
                // The planted bug: a device that completes RDMA reads twice.
                self.device.complete(queue, &entry);
            }
        }
    }

    /// An entry for a request in flight that is good but for what the bytes change in it.
    fn aimed(&mut self, input: &mut Input<'_>) {
        let queue = input.below(2);
        let ids: Vec<u16> = self.model.in_flight[queue].keys().copied().collect();
        let Some(id) = ids.get(input.below(ids.len())) else { return };
        let op = if queue == 0 { self.model.in_flight[0][id].op } else { input.byte() & 2 };
        let [status, twist, id_twist, qpn_twist] = input.bytes();
        let kind = [flags::QUEUE_SEND, flags::QUEUE_RECV][queue];
        let mut entry = [0; 32];
        entry[..2].copy_from_slice(&(id ^ u16::from(id_twist)).to_le_bytes());
        entry[2] = status;
        entry[3] = (kind | op << flags::OP_SHIFT | flags::HAS_IMM) ^ twist;
        entry[4..6].copy_from_slice(&(QPN ^ u16::from(qpn_twist)).to_le_bytes());
        let short = input.short();
        entry[6..8].copy_from_slice(&(short & 0xFF).to_le_bytes());
        entry[8..].copy_from_slice(&input.bytes::<24>());
        self.name_life(queue, &mut entry, if short >> 8 > 200 { u64::from(short) << (short % 33) } else { 0 });
        self.complete(queue, entry);
    }

    /// Enters the upper bits of the request id, with some changed, where there are any.
    fn name_life(&self, queue: usize, entry: &mut [u8; 32], twist: u64) {
        if let Some(life) = self.model.life.filter(|_| queue == 0) {
            entry[6..12].copy_from_slice(&(life ^ twist).to_le_bytes()[..6]);
        }
    }

    fn poll(&mut self, qp: &mut Endpoint<Puppet>) {
        let (event, expected) = (qp.poll().map(seen), self.model.poll());
        assert_eq!(event, expected);
        assert_eq!((qp.stats().stale, qp.stats().flushed), (self.model.stale, self.model.flushed));
        assert_eq!(self.device.doorbells().0, self.rung);
        self.count(event.as_ref());
    }

    fn count(&mut self, seen: Option<&Seen>) {
        if self.model.stale > 0 {
            self.reached.insert("a stale entry");
        }
        let Some(Seen { token, what, .. }) = seen else { return };
        self.resolved += u64::from(token.is_some());
        self.reached.insert(match what {
            What::Done(control1::OP_SEND) => "a SEND done",
            What::Done(control1::OP_RDMA_WRITE) => "a write done",
            What::Done(_) => "a read done",
            What::Received { .. } => "a message received",
            What::Arrived { .. } if token.is_some() => "a write with immediate received",
            What::Arrived { .. } => "an unsolicited write",
            What::Failed(Cause::Status(CompletionStatus::Flushed), _) => "a flush",
            What::Failed(Cause::Status(_), _) => "a status",
            What::Failed(Cause::LengthBeyondBuffers { .. }, _) => "too many bytes",
            What::Failed(Cause::LengthBelowHeader { .. }, _) => "a header cut short",
            What::Failed(Cause::Malformed { .. }, _) => "a malformed entry",
            What::Reclaimed => "a request reclaimed",
        });
    }

    /// Flushes what is in flight, and begins another life.
    fn restart(&mut self, mut qp: Endpoint<Puppet>) -> Endpoint<Puppet> {
        while self.model.count() > 0 {
            for queue in [0, 1] {
                let ids: Vec<u16> = self.model.in_flight[queue].keys().copied().collect();
                for id in ids {
                    let mut entry = [0; 32];
                    entry[..2].copy_from_slice(&id.to_le_bytes());
                    entry[2] = FLUSHED;
                    entry[3] = [flags::QUEUE_SEND, flags::QUEUE_RECV][queue];
                    entry[4..6].copy_from_slice(&QPN.to_le_bytes());
                    self.name_life(queue, &mut entry, 0);
                    self.complete(queue, entry);
                }
            }
            self.poll(&mut qp);
        }
        assert_eq!(self.tokens, self.resolved);
        for (entries, consumed) in self.model.pending.iter_mut().zip(&mut self.model.consumed) {
            self.model.stale += entries.len() as u32;
            *consumed += entries.len();
            entries.clear();
        }
        self.reached.insert(if self.model.failed { "a failed queue restarted" } else { "a restart" });
        (self.model.failed, self.model.cause, self.produced) = (false, None, [0; 2]);
        let mut qp = qp.error().unwrap().reset().unwrap().prepare().unwrap();
        self.poll(&mut qp);
        self.peer = peer(&qp);
        self.window = window(&self.peer);
        qp
    }

    /// It sends and receives.
    fn usable(&mut self, qp: &mut Endpoint<Puppet>) {
        for (queue, step) in [(0, 0), (1, 6)] {
            self.step(qp, step, &mut Input::new(&[7]));
            let id = *self.model.in_flight[queue].keys().next().unwrap();
            let mut entry = [0; 32];
            entry[..2].copy_from_slice(&id.to_le_bytes());
            entry[3] = [flags::QUEUE_SEND, flags::QUEUE_RECV][queue];
            entry[4..6].copy_from_slice(&QPN.to_le_bytes());
            entry[6] = 8;
            self.name_life(queue, &mut entry, 0);
            self.complete(queue, entry);
        }
        let before = self.resolved;
        (0..2).for_each(|_| self.poll(qp));
        assert_eq!(self.resolved - before, 2);
    }

    /// Ends it after so many polls: each request that is left is resolved now, once.
    fn end(mut self, qp: Endpoint<Puppet>, polls: usize) -> Reached {
        let before = self.model.count();
        let mut expected = Vec::new();
        let mut left = polls;
        while self.model.count() > 0 && left > 0 {
            left -= 1;
            expected.extend(self.model.poll());
        }
        // What is there already comes, however late, as much as the queues hold.
        let room = qp.granted().send + qp.granted().recv;
        expected.extend((0..room).map_while(|_| self.model.poll()));
        let reclaimed = self.model.count();
        let rest = self.model.in_flight.iter_mut().flat_map(std::mem::take);
        let mut rest: Vec<Seen> = rest
            .map(|(_, request)| Seen { token: Some(request.token), what: What::Reclaimed, buffers: request.buffers })
            .collect();
        rest.sort_by_key(|seen| seen.token);
        let (mut events, mut left) = (Vec::new(), polls);
        let expired = || left.checked_sub(1).map(|rest| left = rest).is_none();
        let ended = qp.shut_down(expired, |event| events.push(seen(event))).unwrap();
        assert_eq!(ended, Shutdown { completed: before - reclaimed, reclaimed });
        let mut last = events.split_off(expected.len());
        last.sort_by_key(|seen| seen.token);
        assert_eq!((&events, &last), (&expected, &rest));
        events.iter().chain(&last).for_each(|seen| self.count(Some(seen)));
        assert_eq!(self.tokens, self.resolved);
        assert_eq!((self.device.leaks().queue_pairs(), self.device.leaks().regions()), (0, 0));
        self.reached
    }
}
