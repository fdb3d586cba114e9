//! What a program does: arbitrary calls on endpoints of software devices, against a model of what must come of them.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::Range;

use efa_core::connect::introduce;
use efa_core::flow::{Split, Step};
use efa_core::memory::{Buffer, Buffers, Exposed, Frozen, PageSize, Pages, Pool, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, RemoteWindow};
use efa_core::qp::{
    Depth, Endpoint, HasRead, HasRnrRetry, HasSend, HasSendImm, HasWrite, HasWriteImm, InitAttr, RnrRetry, RtsAttr,
    Solicited, Srd, Wide, ops,
};
use efa_core::ring::Word;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work::{Event, Operation, RecvTarget};
use efa_core::{Context, Error, Limits, ProtectionDomain, Provider, Qkey, SetRnrRetry, Token};

use crate::Reached;
use crate::input::Input;

const NODES: usize = 3;
const REGIONS: u32 = 40;
const LIMITS: Limits = Limits { max_qp: 8, max_cq: 16, max_mr: REGIONS, max_pd: 8, max_ah: 15, ..Config::LIMITS };
/// Bytes of exposed memory that are used.
const SHARED: usize = 256;
/// Polls after which whatever can complete has.
const LONG: usize = 2000;

type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;
type Window = RemoteWindow<RemoteReadWrite>;
type Shared = Exposed<Pages, RemoteReadWrite>;

/// A kind of the endpoints: all of a run have one.
trait Kind: HasRnrRetry<Features = Solicited> + HasSend + HasSendImm + HasWrite + HasWriteImm + HasRead {
    /// Of an inline SEND.
    const INLINE: usize;

    /// Posts an inline write, if the kind has any.
    fn write_inline(
        qp: &mut Endpoint<SoftDevice, Self>,
        peer: &Peer<Mutual>,
        bytes: &[u8],
        window: Window,
        imm: Option<u32>,
        token: u64,
    ) -> Option<Result<(), ()>>
    where
        Self: Sized;
}

impl Kind for Srd {
    const INLINE: usize = 32;

    fn write_inline(
        _: &mut Endpoint<SoftDevice>,
        _: &Peer<Mutual>,
        _: &[u8],
        _: Window,
        _: Option<u32>,
        _: u64,
    ) -> Option<Result<(), ()>> {
        None
    }
}

impl Kind for WideSrd {
    const INLINE: usize = 80;

    fn write_inline(
        qp: &mut Endpoint<SoftDevice, Self>,
        peer: &Peer<Mutual>,
        bytes: &[u8],
        window: Window,
        imm: Option<u32>,
        token: u64,
    ) -> Option<Result<(), ()>> {
        let operation = peer.write_inline(bytes, window);
        Some(match imm {
            Some(imm) => post(qp, operation.imm(imm), token),
            None => post(qp, operation, token),
        })
    }
}

/// An endpoint with whom it knows and what it holds.
struct Node<K> {
    device: SoftDevice,
    ctx: Context<SoftDevice>,
    pd: ProtectionDomain<SoftDevice>,
    qp: Option<Endpoint<SoftDevice, K>>,
    peers: [Option<Peer<Mutual>>; NODES],
    /// By node: which exposed memory, and what it granted.
    windows: [Option<(usize, Window)>; NODES],
    exposed: Option<(usize, Shared)>,
    free: Vec<Slice>,
    frozen: Vec<Frozen>,
}

/// What is in flight, by its token.
struct Posted {
    node: usize,
    what: What,
    /// Addresses and lengths of its buffers.
    buffers: Vec<(usize, usize)>,
}

#[derive(Clone, PartialEq, Debug)]
enum What {
    Send(u32),
    /// Into which memory, where; alone on it as its n-th operation, if so; what.
    Write(usize, Range<usize>, Option<u64>, Vec<u8>),
    /// From which memory and where, if the window was good.
    Read(Option<(usize, usize)>),
    Recv,
}

/// A message or a notification, by its number.
struct Message {
    /// What must arrive; none if it was in exposed memory.
    bytes: Option<Vec<u8>>,
    len: usize,
    /// To whom, if the peer was not corrupted.
    to: Option<usize>,
    sent: bool,
    arrived: bool,
    /// The receiver ended before it polled.
    excused: bool,
}

/// Exposed memory: what each byte may be.
struct Memory {
    may_be: Vec<Vec<u8>>,
    /// Operations of peers in flight on it, and of all so far.
    in_flight: usize,
    count: u64,
}

struct World<K> {
    nodes: Vec<Node<K>>,
    in_flight: BTreeMap<u64, Posted>,
    messages: BTreeMap<u32, Message>,
    memory: Vec<Memory>,
    /// Peers by corrupted hellos, kept until all is done.
    strangers: Vec<Peer<OneWay>>,
    peers: Vec<Peer<Mutual>>,
    /// What was forgotten as far as core can tell, and how many buffers that may be.
    forgotten: Vec<Box<dyn Any>>,
    forgotten_buffers: u32,
    tokens: u64,
    reached: Reached,
}

/// Calls on three endpoints of two devices. Each operation is resolved once, by an event, by destroying the queue
/// pair or by being forgotten; what arrives is what was sent, once; and all memory comes back but what was forgotten.
///
/// Gives what it came to do.
pub fn calls(data: &[u8]) -> Reached {
    if data.first().is_some_and(|flags| flags & 2 != 0) { run::<WideSrd>(data) } else { run::<Srd>(data) }
}

fn run<K: Kind>(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let flags = input.byte();
    let config = Config::new(Profile::RDMA.wide()).limits(LIMITS).packets(64);
    let config = config.shuffle(flags & 1 == 1).req_id_64(flags & 4 != 0).seed(flags.into());
    let first = SoftDevice::new(config);
    let devices = [first.clone(), first.neighbour().unwrap(), first.clone()];
    let mut world = World::<K>::new();
    for device in devices {
        let ctx = Context::open(device.clone());
        let pd = ctx.alloc_pd().unwrap();
        let (free, frozen, exposed) = (Vec::new(), Vec::new(), None);
        let (peers, windows) = ([const { None }; NODES], [const { None }; NODES]);
        world.nodes.push(Node { device, ctx, pd, qp: None, peers, windows, exposed, free, frozen });
    }
    for node in 0..NODES {
        world.start(node, node == 2);
    }
    while let Some(step) = input.step() {
        world.step(step, &mut input);
    }
    world.end(&first, data.len())
}

fn pattern(id: u32, len: usize) -> Vec<u8> {
    let rest = (4..len).map(|at| (id.wrapping_mul(31) as u8).wrapping_add(at as u8));
    id.to_le_bytes().into_iter().chain(rest).take(len).collect()
}

fn address(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

/// Posts, or gives the buffers back for a reason that is good.
fn post<K: HasRnrRetry, O: Operation<K>>(
    qp: &mut Endpoint<SoftDevice, K>,
    operation: O,
    token: u64,
) -> Result<(), O::Source> {
    qp.post(operation, Token(token)).map_err(|refused| {
        let (source, error) = refused.into_parts();
        assert!(expected(&error), "{error}");
        source
    })
}

fn expected(error: &Error) -> bool {
    matches!(
        error,
        Error::QueueFull { .. }
            | Error::QueueFailed
            | Error::RecvQueueFull { .. }
            | Error::BatchFull { .. }
            | Error::ForeignPeer
            | Error::WindowOfAnotherPeer
            | Error::OutOfBounds { .. }
    )
}

impl<K: Kind> World<K> {
    fn new() -> Self {
        Self {
            nodes: Vec::new(),
            in_flight: BTreeMap::new(),
            messages: BTreeMap::new(),
            memory: Vec::new(),
            strangers: Vec::new(),
            peers: Vec::new(),
            forgotten: Vec::new(),
            forgotten_buffers: 0,
            tokens: 0,
            reached: Reached::new(),
        }
    }

    fn step(&mut self, step: u8, input: &mut Input<'_>) {
        let (node, other) = match input.byte() {
            byte if byte & 4 == 0 => (usize::from(byte) % NODES, usize::from(byte / 8) % NODES),
            byte => (usize::from(byte) % NODES, (usize::from(byte) + 1) % NODES),
        };
        match step % 36 {
            0 => self.send(node, other, false, false),
            1 => self.send(node, other, true, false),
            2 => self.send(node, other, input.byte() & 1 == 1, true),
            3 => self.send_frozen(node, other, input),
            4 => self.send_inline(node, other, 4 + input.below(K::INLINE - 3)),
            5 => self.send_empty(node, other),
            6 => self.write(node, other, false, input),
            7 => self.write(node, other, true, input),
            8 => self.read(node, other, input),
            9 => self.recv(node),
            10 => self.recv_two(node),
            11 => self.recv_list(node, 1 + input.below(6)),
            12 => self.batch(node, other, 1 + input.below(6), input.byte() % 4),
            13 => self.poll(node, 1),
            14 => (0..NODES).for_each(|node| self.poll(node, 8)),
            15 => self.expose(node),
            16 => self.revoke(node),
            17 => self.copy_in(node, input),
            18 => self.copy_out(node),
            19 => self.word(node, input),
            20 => self.freeze(node),
            21 => self.thaw(node, input),
            22 => self.send_exposed(node, other, input),
            23 => drop(self.nodes[node].free.pop()),
            24 => {
                if let Some(slice) = self.nodes[node].free.pop().filter(|_| self.forgotten_buffers < 8) {
                    self.forget(slice, 1);
                    self.reached.insert("a slice forgotten");
                }
            }
            25 => self.introduce(node, other),
            26 => self.corrupted(node, other, input),
            27 => self.restart(node),
            28 => self.drain(node),
            29 => self.shut_down(node, input.below(64)),
            30 => self.drop_qp(node, input.byte() & 1 == 1),
            31 => self.nodes[node].peers[other] = None,
            32 => {
                self.nodes[node].device.link(input.byte() & 3 != 0);
                self.reached.insert("a device plugged");
            }
            33 => self.pool(node, input),
            34 => self.send_mixed(node, other),
            _ => self.split(node, other, input),
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let in_flight = self.in_flight.values().filter(|posted| posted.node == index).count();
            assert_eq!(node.qp.as_ref().map_or(0, |qp| qp.in_flight() as usize), in_flight);
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// A new queue pair, unless the device has no more, that knows and is known by all others.
    fn start(&mut self, node: usize, retries: bool) {
        let Node { ctx, pd, qp, windows, .. } = &mut self.nodes[node];
        assert!(qp.is_none());
        let depth = Depth::new(4, 4).recv_buffers(2);
        let kind = ctx.require::<K>().unwrap();
        match pd.create_qp(kind, depth) {
            Ok(reset) if retries => {
                let times = (ctx.require::<SetRnrRetry>().unwrap(), RnrRetry::times(2).unwrap());
                let ready = reset.init(InitAttr::new(Qkey(7))).unwrap().rtr().unwrap();
                *qp = Some(ready.rts(RtsAttr::new().rnr_retry(times.0, times.1)).unwrap());
            }
            Ok(reset) => *qp = Some(reset.prepare().unwrap()),
            Err(error) => assert!(matches!(error, Error::Exhausted { .. }), "{error}"),
        }
        *windows = [const { None }; NODES];
        for other in 0..NODES {
            self.introduce(node, other);
        }
    }

    fn introduce(&mut self, node: usize, other: usize) {
        let (Some(a), Some(b)) = (&self.nodes[node].qp, &self.nodes[other].qp) else { return };
        let (to_b, to_a) = introduce(a, b).unwrap();
        self.nodes[node].peers[other] = Some(to_b);
        self.nodes[other].peers[node] = Some(to_a);
        self.grant(node, other);
        self.grant(other, node);
    }

    /// Lets `other` reach what `node` exposes.
    fn grant(&mut self, node: usize, other: usize) {
        let Node { qp: Some(qp), exposed: Some((memory, exposed)), .. } = &self.nodes[node] else { return };
        let (memory, grant) = (*memory, exposed.grant(qp).unwrap());
        let Some(peer) = &self.nodes[other].peers[node] else { return };
        match peer.window(grant.as_bytes()) {
            Ok(window) => self.nodes[other].windows[node] = Some((memory, window)),
            Err(error) => assert!(matches!(error, Error::StaleGrant { .. }), "{error}"),
        }
    }

    /// A frame with a bit changed: what cannot be told is a stranger, what can be is refused.
    fn corrupted(&mut self, node: usize, other: usize, input: &mut Input<'_>) {
        let (at, bit) = (usize::from(input.byte()), 1u8 << (input.byte() % 8));
        let change = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let len = bytes.len();
            bytes[at % len] ^= bit;
            bytes
        };
        let (id, token) = (self.token() as u32, self.token());
        let (Some(a), Some(b)) = (&self.nodes[node].qp, &self.nodes[other].qp) else { return };
        let (to_b, _) = a.resolve(b.hello().as_bytes()).unwrap();
        let (_to_a, ready) = b.resolve(a.hello().as_bytes()).unwrap();
        let refused = to_b.confirm(&change(ready.as_bytes())).unwrap_err();
        let error = refused.error();
        let right = matches!(error, Error::Parse(_) | Error::NotThisPeer { .. } | Error::StaleReady { .. });
        assert!(right, "{error}");
        let to_b = refused.into_inner().confirm(ready.as_bytes()).unwrap();
        if let Some((_, exposed)) = &self.nodes[other].exposed {
            // Of a window that is nowhere: the read fails, or reads something of what is exposed.
            let grant = change(exposed.grant(b).unwrap().as_bytes());
            if let (Ok(window), Some(slice)) = (to_b.window::<RemoteReadWrite>(&grant), self.slice(node)) {
                let (buffers, token) = (vec![address(&slice)], self.token());
                let qp = self.nodes[node].qp.as_mut().unwrap();
                match post(qp, to_b.read(slice, window), token) {
                    Ok(()) => {
                        self.in_flight.insert(token, Posted { node, what: What::Read(None), buffers });
                        self.reached.insert("a read of a corrupted window");
                    }
                    Err(slice) => self.give(node, [slice]),
                }
            }
        }
        // Until all that was posted to it is done.
        self.peers.push(to_b);
        let (Some(a), Some(b)) = (&self.nodes[node].qp, &self.nodes[other].qp) else { return };
        let resolved = a.resolve(&change(b.hello().as_bytes()));
        let (Ok((stranger, _)), true) = (resolved, self.strangers.len() < 4) else { return };
        let bytes = pattern(id, 12);
        let inline = stranger.one_way().send_inline(&bytes[..]);
        let qp = self.nodes[node].qp.as_mut().unwrap();
        if post(qp, inline, token).is_ok() {
            self.sending(node, None, id, token, Some(bytes), 12, vec![]);
        }
        self.strangers.push(stranger);
        self.reached.insert("a stranger resolved");
    }

    fn slice(&mut self, node: usize) -> Option<Slice> {
        let Node { free, pd, .. } = &mut self.nodes[node];
        if let Some(slice) = free.pop() {
            return Some(slice);
        }
        let len = 16 + self.tokens as usize % 49;
        match pd.register(vec![0; len]) {
            Ok((_, slice)) => Some(slice),
            Err(refused) => {
                assert!(matches!(refused.error(), Error::Exhausted { .. }), "{refused}");
                None
            }
        }
    }

    fn give(&mut self, node: usize, slices: impl IntoIterator<Item = Slice>) {
        let free = &mut self.nodes[node].free;
        for slice in slices {
            // Halves of one are made whole again.
            match free.pop() {
                Some(last) if last.is_followed_by(&slice) => free.push(last.unsplit(slice).unwrap()),
                Some(last) => free.extend([last, slice]),
                None => free.push(slice),
            }
        }
        free.truncate(8);
    }

    fn forget<T: Any>(&mut self, what: T, buffers: u32) {
        self.forgotten.push(Box::new(what));
        self.forgotten_buffers += buffers;
    }

    #[allow(clippy::too_many_arguments)] // a record
    fn sending(
        &mut self,
        node: usize,
        to: Option<usize>,
        id: u32,
        token: u64,
        bytes: Option<Vec<u8>>,
        len: usize,
        buffers: Vec<(usize, usize)>,
    ) {
        self.messages.insert(id, Message { bytes, len, to, sent: false, arrived: false, excused: false });
        self.in_flight.insert(token, Posted { node, what: What::Send(id), buffers });
    }

    fn send(&mut self, node: usize, other: usize, imm: bool, halves: bool) {
        let (id, token) = (self.token() as u32, self.token());
        let Some(mut slice) = self.slice(node) else { return };
        let bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        let len = slice.len();
        let Node { qp: Some(qp), peers, .. } = &mut self.nodes[node] else { return self.give(node, [slice]) };
        let Some(peer) = &peers[other] else { return self.give(node, [slice]) };
        let (addresses, result) = if halves && len > 16 {
            let (head, tail) = slice.split_at(len / 3).unwrap();
            let addresses = vec![address(&head), address(&tail)];
            let operation = peer.send([head, tail]);
            self.reached.insert("two buffers sent");
            let result = if imm { post(qp, operation.imm(id), token) } else { post(qp, operation, token) };
            (addresses, result.map_err(Vec::from))
        } else {
            let addresses = vec![address(&slice)];
            let operation = peer.send(slice);
            let result = if imm { post(qp, operation.imm(id), token) } else { post(qp, operation, token) };
            (addresses, result.map_err(|slice| vec![slice]))
        };
        match result {
            Ok(()) => self.sending(node, Some(other), id, token, Some(bytes), len, addresses),
            Err(slices) => self.give(node, slices),
        }
    }

    fn send_frozen(&mut self, node: usize, other: usize, input: &mut Input<'_>) {
        let (id, token) = (self.token() as u32, self.token());
        let Node { qp: Some(qp), peers, frozen, .. } = &mut self.nodes[node] else { return };
        let (Some(frozen), Some(peer)) = (frozen.last(), &peers[other]) else { return };
        let part = frozen.part(0..1 + input.below(frozen.len())).unwrap();
        let (bytes, buffer) = (part.to_vec(), address(&part));
        if post(qp, peer.send(part).imm(id), token).is_ok() {
            self.sending(node, Some(other), id, token, Some(bytes), buffer.1, vec![buffer]);
            self.reached.insert("a frozen slice sent");
        }
    }

    /// Two buffers of two kinds.
    fn send_mixed(&mut self, node: usize, other: usize) {
        let (id, token) = (self.token() as u32, self.token());
        let Some(mut slice) = self.slice(node) else { return };
        let mut bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        let Node { qp: Some(qp), peers, frozen, .. } = &mut self.nodes[node] else { return self.give(node, [slice]) };
        let (Some(frozen), Some(peer)) = (frozen.last(), &peers[other]) else { return self.give(node, [slice]) };
        let part = frozen.part(0..frozen.len() / 2).unwrap();
        let mut buffers = vec![address(&slice), address(&part)];
        let result = if id.is_multiple_of(2) {
            bytes.extend_from_slice(&part);
            post(qp, peer.send((slice, part)), token).map_err(|(slice, _)| slice)
        } else {
            bytes.splice(0..0, part.iter().copied());
            buffers.reverse();
            post(qp, peer.send((part, slice)).imm(id), token).map_err(|(_, slice)| slice)
        };
        match result {
            Ok(()) => {
                let len = bytes.len();
                self.sending(node, Some(other), id, token, Some(bytes), len, buffers);
                self.reached.insert("buffers of two kinds sent");
            }
            Err(slice) => self.give(node, [slice]),
        }
    }

    fn send_exposed(&mut self, node: usize, other: usize, input: &mut Input<'_>) {
        let (id, token) = (self.token() as u32, self.token());
        let Node { qp: Some(qp), peers, exposed, .. } = &mut self.nodes[node] else { return };
        let (Some((_, exposed)), Some(peer)) = (exposed, &peers[other]) else { return };
        let start = input.below(200);
        let part = exposed.part(start..start + 16).unwrap();
        if post(qp, peer.send(part).imm(id), token).is_ok() {
            self.sending(node, Some(other), id, token, None, 16, vec![(0, 16)]);
            self.reached.insert("a part of exposed memory sent");
        }
    }

    fn send_inline(&mut self, node: usize, other: usize, len: usize) {
        let (id, token) = (self.token() as u32, self.token());
        let Node { qp: Some(qp), peers, .. } = &mut self.nodes[node] else { return };
        let Some(peer) = &peers[other] else { return };
        let bytes = pattern(id, len);
        if post(qp, peer.send_inline(&bytes[..]), token).is_ok() {
            if len > 32 {
                self.reached.insert("a long inline SEND");
            }
            self.sending(node, Some(other), id, token, Some(bytes), len, vec![]);
            self.reached.insert("an inline SEND");
        }
    }

    fn send_empty(&mut self, node: usize, other: usize) {
        let (id, token) = (self.token() as u32, self.token());
        let Node { qp: Some(qp), peers, .. } = &mut self.nodes[node] else { return };
        let Some(peer) = &peers[other] else { return };
        if post(qp, peer.send_empty().imm(id), token).is_ok() {
            self.sending(node, Some(other), id, token, Some(vec![]), 0, vec![]);
            self.reached.insert("an empty SEND");
        }
    }

    fn write(&mut self, node: usize, other: usize, imm: bool, input: &mut Input<'_>) {
        let (id, token) = (self.token() as u32, self.token());
        let Some(mut slice) = self.slice(node) else { return };
        let bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        let (start, buffer) = (input.below(SHARED - slice.len()), address(&slice));
        let range = start..start + slice.len();
        let Node { qp: Some(qp), peers, windows, .. } = &mut self.nodes[node] else { return self.give(node, [slice]) };
        let (Some(peer), Some((memory, window))) = (&peers[other], windows[other]) else {
            return self.give(node, [slice]);
        };
        let there = window.range(start as u64..range.end as u64).unwrap();
        let inline = match id.is_multiple_of(3) {
            true => K::write_inline(qp, peer, &bytes, there, imm.then_some(id), token),
            false => None,
        };
        let result = if inline.is_some() {
            Err(slice)
        } else {
            let operation = peer.write(slice, there);
            if imm { post(qp, operation.imm(id), token) } else { post(qp, operation, token) }
        };
        let mut buffers = vec![buffer];
        if let Err(slice) = result {
            self.give(node, [slice]);
            let Some(Ok(())) = inline else { return };
            buffers.clear();
            self.reached.insert("an inline write");
        }
        let alone = self.memory[memory].begun();
        for (at, byte) in range.clone().zip(&bytes) {
            self.memory[memory].may_be[at].push(*byte);
        }
        if imm {
            let (sent, arrived, excused) = (false, false, false);
            let message = Message { bytes: None, len: bytes.len(), to: Some(other), sent, arrived, excused };
            self.messages.insert(id, message);
        }
        let what = What::Write(memory, range, alone, bytes);
        self.in_flight.insert(token, Posted { node, what, buffers });
    }

    fn read(&mut self, node: usize, other: usize, input: &mut Input<'_>) {
        let token = self.token();
        let Some(slice) = self.slice(node) else { return };
        let (start, buffer) = (input.below(SHARED - slice.len()), address(&slice));
        let Node { qp: Some(qp), peers, windows, .. } = &mut self.nodes[node] else { return self.give(node, [slice]) };
        let (Some(peer), Some((memory, window))) = (&peers[other], windows[other]) else {
            return self.give(node, [slice]);
        };
        let window = window.range(start as u64..SHARED as u64).unwrap();
        if let Err(slice) = post(qp, peer.read(slice, window), token) {
            return self.give(node, [slice]);
        }
        self.memory[memory].begun();
        let what = What::Read(Some((memory, start)));
        self.in_flight.insert(token, Posted { node, what, buffers: vec![buffer] });
    }

    fn receiving<T: RecvTarget>(&mut self, node: usize, target: T, buffers: Vec<(usize, usize)>) -> Option<T> {
        let token = self.token();
        let Some(qp) = &mut self.nodes[node].qp else { return Some(target) };
        if let Err(refused) = qp.post_recv(target, Token(token)) {
            assert!(expected(&refused.error()), "{refused}");
            return Some(refused.into_inner());
        }
        self.in_flight.insert(token, Posted { node, what: What::Recv, buffers });
        None
    }

    fn recv(&mut self, node: usize) {
        let Some(slice) = self.slice(node) else { return };
        let buffers = vec![address(&slice)];
        let back = self.receiving(node, slice, buffers);
        self.give(node, back);
    }

    fn recv_two(&mut self, node: usize) {
        let Some(slice) = self.slice(node) else { return };
        let half = slice.len() / 2;
        let (head, tail) = slice.split_at(half).unwrap();
        let buffers = vec![address(&head), address(&tail)];
        let back = self.receiving(node, [head, tail], buffers);
        if back.is_none() {
            self.reached.insert("a receive of two buffers");
        }
        self.give(node, back.into_iter().flatten());
    }

    fn recv_list(&mut self, node: usize, count: usize) {
        let slices: Vec<Slice> = (0..count).map_while(|_| self.slice(node)).collect();
        let list: Vec<(Slice, Token)> = slices.into_iter().map(|slice| (slice, Token(self.token()))).collect();
        let addresses: Vec<_> = list.iter().map(|(slice, token)| (token.0, address(slice))).collect();
        let mut rest = list.into_iter();
        if let Some(qp) = &mut self.nodes[node].qp {
            let posted = qp.post_recv_list(&mut rest).unwrap();
            if posted > 1 {
                self.reached.insert("a list of receives");
            }
            for (token, buffer) in addresses.into_iter().take(posted) {
                self.in_flight.insert(token, Posted { node, what: What::Recv, buffers: vec![buffer] });
            }
        }
        self.give(node, rest.map(|(slice, _)| slice));
    }

    /// A batch that is submitted, aborted, dropped or forgotten.
    fn batch(&mut self, node: usize, other: usize, count: usize, end: u8) {
        let mut slices: Vec<(u64, Slice)> = Vec::new();
        for _ in 0..count {
            let token = self.token();
            let Some(mut slice) = self.slice(node) else { break };
            let bytes = pattern(token as u32, slice.len());
            slice.copy_from_slice(&bytes);
            slices.push((token, slice));
        }
        let (mut back, mut staged) = (Vec::new(), Vec::new());
        let Node { qp: Some(qp), peers, .. } = &mut self.nodes[node] else { return };
        let Some(peer) = &peers[other] else { return };
        let mut batch = qp.batch();
        for (token, slice) in slices {
            let buffer = address(&slice);
            match batch.push(peer.send(slice), Token(token)) {
                Ok(()) => staged.push((token, buffer)),
                Err(refused) => {
                    assert!(expected(&refused.error()), "{refused}");
                    back.push(refused.into_inner());
                }
            }
        }
        assert_eq!(batch.len(), staged.len());
        if !staged.is_empty() {
            let ends = ["a batch submitted", "a batch aborted", "a batch dropped", "a batch forgotten"];
            self.reached.insert(ends[usize::from(end)]);
        }
        match end {
            0 => assert_eq!(batch.submit(), staged.len()),
            1 => batch.abort(|token, buffers| {
                let (expected, buffer) = staged.pop().unwrap();
                assert_eq!(token.0, expected);
                let slice = buffers.into_slice().unwrap();
                assert_eq!(address(&slice), buffer);
                assert_eq!(slice[..], pattern(expected as u32, slice.len()));
                back.push(slice);
            }),
            2 => {
                drop(batch);
                staged.clear();
            }
            _ => std::mem::forget(batch),
        }
        for (token, buffer) in staged {
            let bytes = pattern(token as u32, buffer.1);
            self.sending(node, Some(other), token as u32, token, Some(bytes), buffer.1, vec![buffer]);
        }
        self.give(node, back);
    }

    fn poll(&mut self, node: usize, polls: usize) {
        for _ in 0..polls {
            let Some(qp) = &mut self.nodes[node].qp else { return };
            let event = qp.poll();
            assert_eq!(qp.stats().stale, 0);
            if let Some(event) = event {
                self.resolve(node, event);
            }
        }
    }

    /// An event: of something that is in flight, and now is no more.
    fn resolve(&mut self, node: usize, event: Event) {
        let token = event.token().expect("arrivals consume receives here").0;
        let posted = self.in_flight.remove(&token).unwrap_or_else(|| panic!("{event:?} of nothing in flight"));
        assert_eq!(posted.node, node);
        if let What::Write(memory, ..) | What::Read(Some((memory, _))) = &posted.what {
            self.memory[*memory].in_flight -= 1;
        }
        let failed = matches!(event, Event::Failed { .. } | Event::Reclaimed { .. });
        match (&event, &posted.what) {
            (Event::Sent(_), What::Send(id)) => self.messages.get_mut(id).unwrap().sent = true,
            (Event::Written(_), What::Write(memory, range, alone, bytes)) => {
                if *alone == Some(self.memory[*memory].count) {
                    // Nothing else was there meanwhile: now it is known what there is.
                    for (at, byte) in range.clone().zip(bytes) {
                        self.memory[*memory].may_be[at] = vec![*byte];
                    }
                }
            }
            (Event::Read(_), What::Read(_)) | (Event::Received(_) | Event::WriteArrived(_), What::Recv) => {}
            (_, what) => assert!(failed, "{event:?} of {what:?}"),
        }
        self.reached.insert(match &event {
            Event::Sent(_) => "a SEND done",
            Event::Written(_) => "a write done",
            Event::Read(_) => "a read done",
            Event::Received(_) => "a message received",
            Event::WriteArrived(_) => "a write with immediate received",
            Event::UnsolicitedWrite(_) => "an unsolicited write",
            Event::Failed { .. } => "a failure",
            Event::Reclaimed { .. } => "a request reclaimed",
        });
        let arrived = match &event {
            Event::Received(message) => Some((message.imm, message.len)),
            Event::WriteArrived(write) => Some((Some(write.imm), usize::MAX)),
            _ => None,
        };
        let slices = self.back(event.into_buffers(), &posted.buffers);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        match posted.what {
            What::Read(Some((memory, start))) if !failed => self.memory[memory].check(start, &bytes),
            What::Recv => {
                if let Some((imm, len)) = arrived {
                    self.arrived(node, imm, len, &bytes);
                }
            }
            _ => {}
        }
        self.give(node, slices);
    }

    /// The very buffers that were posted.
    fn back(&self, buffers: Buffers, posted: &[(usize, usize)]) -> Vec<Slice> {
        assert_eq!(buffers.len(), posted.len());
        let mut slices = Vec::new();
        for (buffer, expected) in buffers.zip(posted) {
            match buffer {
                Buffer::Slice(slice) => {
                    assert_eq!((address(&slice), self.is_frozen(&slice)), (*expected, false));
                    slices.push(slice);
                }
                Buffer::Frozen(frozen) => {
                    assert_eq!((address(&frozen), self.is_frozen(&frozen)), (*expected, true));
                }
                Buffer::Exposed(part) => assert_eq!((0, part.len()), *expected),
            }
        }
        slices
    }

    /// Whether they are of a slice that is frozen: it is while a part of it is in flight.
    fn is_frozen(&self, bytes: &[u8]) -> bool {
        let mut frozen = self.nodes.iter().flat_map(|node| &node.frozen);
        frozen.any(|frozen| frozen.as_ptr_range().contains(&bytes.as_ptr()))
    }

    fn arrived(&mut self, node: usize, imm: Option<u32>, len: usize, bytes: &[u8]) {
        let id = imm.unwrap_or_else(|| u32::from_le_bytes(bytes[..4].try_into().unwrap()));
        let message = self.messages.get_mut(&id).unwrap_or_else(|| panic!("{id} arrived and was not sent"));
        assert!(!std::mem::replace(&mut message.arrived, true), "{id} arrived twice");
        assert!(message.to.is_none_or(|to| to == node));
        if len != usize::MAX {
            assert_eq!(len, message.len);
            if let Some(sent) = &message.bytes {
                assert_eq!(&bytes[..len], &sent[..], "what arrived of {id}");
            }
        }
    }

    fn expose(&mut self, node: usize) {
        let Node { ctx, pd, exposed, .. } = &mut self.nodes[node];
        if exposed.is_some() {
            return;
        }
        let token = ctx.require::<RemoteReadWrite>().unwrap();
        match pd.expose(Pages::new(1, PageSize::Base).unwrap(), token) {
            Ok(pages) => {
                *exposed = Some((self.memory.len(), pages));
                self.memory.push(Memory { may_be: vec![vec![0]; SHARED], in_flight: 0, count: 0 });
                (0..NODES).for_each(|other| self.grant(node, other));
            }
            Err(refused) => assert!(matches!(refused.error(), Error::Exhausted { .. }), "{refused}"),
        }
    }

    fn revoke(&mut self, node: usize) {
        let Some((memory, exposed)) = self.nodes[node].exposed.take() else { return };
        match exposed.revoke() {
            Ok(pages) => {
                self.memory[memory].check(0, &pages[..SHARED]);
                self.reached.insert("memory revoked");
            }
            Err(refused) => {
                // A part of it is being sent, or was forgotten so.
                assert!(matches!(refused.error(), Error::RegionInUse { .. }), "{refused}");
                self.nodes[node].exposed = Some((memory, refused.into_inner()));
                self.reached.insert("memory in use not revoked");
            }
        }
    }

    fn copy_in(&mut self, node: usize, input: &mut Input<'_>) {
        let id = self.token() as u32;
        let Some((memory, exposed)) = &self.nodes[node].exposed else { return };
        let start = input.below(SHARED);
        let bytes = pattern(id, input.below(SHARED - start));
        exposed.copy_in(start, &bytes).unwrap();
        assert!(exposed.copy_in(4096 - bytes.len() + 1, &bytes).is_err() || bytes.is_empty());
        self.memory[*memory].put(start, &bytes);
        self.reached.insert("bytes copied in");
    }

    fn copy_out(&mut self, node: usize) {
        let Some((memory, exposed)) = &self.nodes[node].exposed else { return };
        let mut bytes = [0; SHARED];
        exposed.copy_out(0, &mut bytes).unwrap();
        self.memory[*memory].check(0, &bytes);
        self.reached.insert("bytes copied out");
    }

    fn word(&mut self, node: usize, input: &mut Input<'_>) {
        let value = self.token() as Word;
        let Some((memory, exposed)) = &self.nodes[node].exposed else { return };
        let start = input.below(SHARED / 8) * 8;
        exposed.store(start, value).unwrap();
        self.memory[*memory].put(start, &value.to_ne_bytes());
        self.memory[*memory].check(start, &exposed.load(start).unwrap().to_ne_bytes());
        assert!(matches!(exposed.load(start + 1), Err(Error::Misaligned { .. })));
        self.reached.insert("a word stored and loaded");
    }

    fn freeze(&mut self, node: usize) {
        let id = self.token() as u32;
        let Some(mut slice) = self.slice(node) else { return };
        let bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        if self.nodes[node].frozen.len() == 4 {
            return self.give(node, [slice]);
        }
        let frozen = slice.freeze().unwrap();
        assert_eq!(frozen[..], bytes);
        self.nodes[node].frozen.push(frozen);
    }

    fn thaw(&mut self, node: usize, input: &mut Input<'_>) {
        let Some(frozen) = self.nodes[node].frozen.pop() else { return };
        let copy = (input.byte() & 1 == 1).then(|| frozen.clone());
        let buffer = address(&frozen);
        match frozen.thaw() {
            Ok(slice) => {
                assert!(copy.is_none());
                assert_eq!(address(&slice), buffer);
                // Nobody sends it any more.
                let sends = |posted: &Posted| posted.buffers.iter().any(|(first, _)| *first == buffer.0);
                assert!(!self.in_flight.values().any(sends));
                self.reached.insert("a slice thawed");
                self.give(node, [slice]);
            }
            Err(refused) => {
                assert!(matches!(refused.error(), Error::RegionInUse { .. }), "{refused}");
                self.nodes[node].frozen.push(refused.into_inner());
                self.reached.insert("a slice in use not thawed");
            }
        }
    }

    fn pool(&mut self, node: usize, input: &mut Input<'_>) {
        let Some(slice) = self.slice(node) else { return };
        let before = address(&slice);
        let (mut pool, rest) = Pool::<8>::new(slice, 1 + input.below(16)).unwrap();
        let mut out: Vec<Slice> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(out.len(), pool.slots());
        if input.byte() & 1 == 1 {
            out.reverse();
        }
        let mut pool = out.into_iter().fold(pool, |mut pool, slot| {
            pool.put(slot).unwrap();
            pool
        });
        let slot = pool.take().unwrap();
        let mut pool = pool.into_slice().map_err(|refused| refused.into_inner()).unwrap_err();
        pool.put(slot).unwrap();
        let whole = pool.into_slice().unwrap();
        let whole = match rest {
            Some(rest) => whole.unsplit(rest).unwrap(),
            None => whole,
        };
        assert_eq!(address(&whole), before);
        self.reached.insert("a pool");
        self.give(node, [whole]);
    }

    /// A write in parts: while it goes on nothing else is in flight here.
    fn split(&mut self, node: usize, other: usize, input: &mut Input<'_>) {
        let id = self.token() as u32;
        if self.in_flight.values().any(|posted| posted.node == node) {
            return;
        }
        let Some(mut slice) = self.slice(node) else { return };
        let bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        let (chunk, before) = (1 + input.below(20), address(&slice));
        let Node { qp: Some(qp), peers, windows, .. } = &mut self.nodes[node] else { return self.give(node, [slice]) };
        let (Some(peer), Some((memory, window))) = (&peers[other], windows[other]) else {
            return self.give(node, [slice]);
        };
        for (at, byte) in bytes.iter().enumerate() {
            self.memory[memory].may_be[at].push(*byte);
        }
        let alone = self.memory[memory].begun();
        let first = self.tokens + 1;
        let mut parts = Split::<_, 4>::new(slice, window, chunk, Token(first)).unwrap();
        self.tokens += parts.parts();
        let mut refused = None;
        let mut done = None;
        for _ in 0..LONG {
            if let Err(error) = parts.post(qp, |part, window| peer.write(part, window)) {
                assert!(expected(&error), "{error}");
                refused = Some(error);
            }
            if refused.is_some() && qp.in_flight() == 0 {
                break;
            }
            match qp.poll().map(|event| parts.step(event)) {
                Some(Step::Done { slice, failed }) => {
                    done = Some((slice, failed));
                    break;
                }
                Some(Step::Other(event)) => panic!("{event:?} of nothing in flight"),
                Some(Step::More) | None => {}
            }
        }
        assert_eq!((qp.stats().stale, qp.in_flight()), (0, 0));
        self.memory[memory].in_flight -= 1;
        let slice = match done {
            Some((slice, None)) => {
                if alone == Some(self.memory[memory].count) {
                    for (at, byte) in bytes.iter().enumerate() {
                        self.memory[memory].may_be[at] = vec![*byte];
                    }
                }
                self.reached.insert("a write in parts");
                slice
            }
            Some((slice, Some(_))) => slice,
            None => parts.into_slice().unwrap(),
        };
        assert_eq!(address(&slice), before);
        self.give(node, [slice]);
    }

    /// To ERR, until all is flushed, and up again.
    fn restart(&mut self, node: usize) {
        let Some(qp) = self.nodes[node].qp.take() else { return };
        let mut qp = qp.error().unwrap();
        for _ in 0..LONG {
            if let Some(event) = qp.poll() {
                self.resolve(node, event);
            }
            if qp.in_flight() == 0 {
                break;
            }
        }
        assert_eq!(qp.in_flight(), 0, "the device flushes what is in flight");
        let qp = qp.reset().unwrap().prepare().unwrap();
        assert!(qp.cause().is_none());
        self.reached.insert("a restart");
        self.nodes[node].qp = Some(qp);
        // Those who were introduced before are strangers now, until they are again.
    }

    fn drain(&mut self, node: usize) {
        let Some(qp) = self.nodes[node].qp.take() else { return };
        let mut qp = qp.drain().unwrap();
        for _ in 0..4 {
            if let Some(event) = qp.poll() {
                self.resolve(node, event);
            }
        }
        self.nodes[node].qp = Some(qp.resume().unwrap());
        self.reached.insert("a drain");
    }

    fn shut_down(&mut self, node: usize, polls: usize) {
        let Some(qp) = self.nodes[node].qp.take() else { return };
        let (mut events, mut left) = (Vec::new(), polls);
        let expired = || left.checked_sub(1).map(|rest| left = rest).is_none();
        let before = qp.in_flight();
        let ended = qp.shut_down(expired, |event| events.push(event)).unwrap();
        assert_eq!(ended.completed + ended.reclaimed, before);
        assert_eq!(events.len() as u32, before);
        for event in events {
            self.resolve(node, event);
        }
        assert!(!self.in_flight.values().any(|posted| posted.node == node));
        if ended.reclaimed > 0 {
            self.excuse(node);
        }
        self.start(node, polls & 1 == 1);
    }

    fn drop_qp(&mut self, node: usize, forget: bool) {
        let Some(qp) = self.nodes[node].qp.take() else { return };
        self.excuse(node);
        if forget && self.forgotten_buffers < 8 {
            self.forget(qp, 16);
            self.reached.insert("a queue pair forgotten");
        } else {
            drop(qp);
            self.reached.insert("a queue pair dropped");
        }
        let memory = &mut self.memory;
        self.in_flight.retain(|_, posted| {
            if let (true, What::Write(at, ..) | What::Read(Some((at, _)))) = (posted.node == node, &posted.what) {
                // It may yet be there or not: for ever.
                memory[*at].in_flight += 1;
            }
            posted.node != node
        });
        self.start(node, false);
    }

    /// What comes to it now, or came and was not polled, nobody will see.
    fn excuse(&mut self, node: usize) {
        for message in self.messages.values_mut().filter(|message| message.to.is_none_or(|to| to == node)) {
            message.excused = true;
        }
    }

    fn end(mut self, device: &SoftDevice, choice: usize) -> Reached {
        (0..NODES).for_each(|node| self.nodes[node].device.link(true));
        for _ in 0..64 {
            (0..NODES).for_each(|node| self.poll(node, 1));
        }
        for node in 0..NODES {
            self.shut_down(node, if choice & 1 << node == 0 { LONG } else { 0 });
        }
        assert!(self.in_flight.is_empty());
        for (id, message) in &self.messages {
            assert!(!message.sent || message.arrived || message.excused, "{id} was sent and did not arrive");
        }
        (0..NODES).for_each(|node| self.copy_out(node));
        (0..NODES).for_each(|node| self.revoke(node));
        assert!(self.forgotten_buffers > 0 || self.nodes.iter().all(|node| node.exposed.is_none()));
        drop((self.nodes, self.strangers, self.peers));
        let rooms = regions(device);
        assert!(rooms <= REGIONS && rooms + self.forgotten_buffers >= REGIONS, "{rooms} of {REGIONS}");
        drop(self.forgotten);
        assert_eq!(regions(device), REGIONS);
        let leaks = device.leaks();
        assert_eq!((leaks.queue_pairs(), leaks.regions()), (0, 0));
        let ctx = Context::open(device.clone());
        let pd = ctx.alloc_pd().unwrap();
        let endpoint = || pd.endpoint(ctx.require::<K>().unwrap(), Depth::new(1, 1)).ok();
        let qps: Vec<_> = std::iter::from_fn(endpoint).collect();
        assert_eq!(qps.len() as u32, LIMITS.max_qp);
        self.reached
    }
}

/// How many regions can be registered now.
fn regions(device: &SoftDevice) -> u32 {
    let pd = Context::open(device.clone()).alloc_pd().unwrap();
    let regions: Vec<_> = std::iter::from_fn(|| pd.register(vec![0; 1]).ok()).collect();
    regions.len() as u32
}

impl Memory {
    /// An operation of a peer; its number, if it is alone.
    fn begun(&mut self) -> Option<u64> {
        self.in_flight += 1;
        self.count += 1;
        (self.in_flight == 1).then_some(self.count)
    }

    /// Its owner writes.
    fn put(&mut self, start: usize, bytes: &[u8]) {
        self.count += 1;
        for (may_be, byte) in self.may_be[start..].iter_mut().zip(bytes) {
            if self.in_flight == 0 {
                may_be.clear();
            }
            may_be.push(*byte);
        }
    }

    fn check(&self, start: usize, bytes: &[u8]) {
        for (at, byte) in (start..).zip(bytes) {
            assert!(self.may_be[at].contains(byte), "{byte:#x} at {at} is none of {:x?}", self.may_be[at]);
        }
    }
}
