//! Random programs over the fabric `efa`, on hostile devices, against a map of queues: what each node sent to each other and
//! has not been received.
//!
//! Every send, receive, write and read is resolved exactly once, with its buffer; messages arrive whole, once and in order;
//! between nodes that live all arrive. `PROPTEST_CASES` says how many programs: each takes some milliseconds. Not under Miri,
//! which takes too long: the fabric forbids unsafe code.
#![cfg(not(miri))]

use std::collections::{BTreeMap, HashMap, VecDeque};

use efa_core::connect::introduce;
use efa_core::fabric::{Carries, Efa, Event, Memory, Messages, Options, PeerId, RemoteRange, Returned, Why};
use efa_core::flags::Access;
use efa_core::memory::{ByMessages, ExposedPart, PageSize, Pages, RemoteRead, RemoteReadWrite};
use efa_core::qp::{Depth, SendOnly, Srd, ops};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::status::CompletionStatus;
use efa_core::{Caps, Context, ProtectionDomain, Token};
use proptest::prelude::*;

type WithReads = Srd<{ ops::SEND | ops::SEND_WITH_IMM | ops::RDMA_READ }>;
type Layer<K> = Efa<SoftDevice, K, Vec<u8>, Vec<u8>, 4, 8>;

const NODES: usize = 3;
/// Bytes of each node's window.
const WINDOW: usize = 65_536;

#[derive(Clone, Debug)]
struct Setup {
    profile: usize,
    seed: u64,
    packet: usize,
    slots: usize,
    loss: u16,
    delay: u16,
    /// Which SEND of each device finds no receive; none if it is 0.
    not_ready: u32,
    near_wrap: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Slice,
    Exposed,
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: usize, to: usize, len: usize, kind: Kind },
    Recv { at: usize, len: usize, kind: Kind },
    Write { from: usize, to: usize, len: usize, kind: Kind },
    Read { from: usize, to: usize, len: usize, kind: Kind },
    Poll { at: usize, times: usize },
    Wait { microseconds: u64 },
    Remove { at: usize, peer: usize },
    Die { at: usize },
}

fn setups() -> impl Strategy<Value = Setup> {
    let hostile = (prop_oneof![3 => Just(0), 1 => 0..200_u16], prop_oneof![2 => Just(0), 1 => 0..8_u16]);
    let packet = prop_oneof![Just(256), Just(512), Just(4096), Just(8192)];
    let not_ready = prop_oneof![3 => Just(0_u32), 1 => 1..60_u32];
    (0..3_usize, any::<u64>(), packet, 4..64_usize, hostile, not_ready, any::<bool>()).prop_map(
        |(profile, seed, packet, slots, (loss, delay), not_ready, near_wrap)| Setup {
            profile,
            seed,
            packet,
            slots,
            loss,
            delay,
            not_ready,
            near_wrap,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = || prop_oneof![2 => 0..300_usize, 4 => 0..5000_usize, 2 => 0..100_000_usize, 1 => 0..400_000_usize];
    let kind = || prop_oneof![Just(Kind::Plain), Just(Kind::Slice), Just(Kind::Exposed)];
    let pair = || (0..NODES, 1..NODES).prop_map(|(from, by)| (from, (from + by) % NODES));
    let step = prop_oneof![
        8 => (pair(), len(), kind()).prop_map(|((from, to), len, kind)| Step::Send { from, to, len, kind }),
        8 => (0..NODES, len(), kind()).prop_map(|(at, len, kind)| Step::Recv { at, len, kind }),
        2 => (pair(), 0..WINDOW, kind()).prop_map(|((from, to), len, kind)| Step::Write { from, to, len, kind }),
        2 => (pair(), 0..WINDOW, kind()).prop_map(|((from, to), len, kind)| Step::Read { from, to, len, kind }),
        12 => (0..NODES, 1..60_usize).prop_map(|(at, times)| Step::Poll { at, times }),
        1 => (0..2_000_000_u64).prop_map(|microseconds| Step::Wait { microseconds }),
    ];
    let rare = prop_oneof![
        30 => Just(None),
        1 => pair().prop_map(|(at, peer)| Some(Step::Remove { at, peer })),
        1 => (0..NODES).prop_map(|at| Some(Step::Die { at })),
    ];
    prop::collection::vec((step, rare), 1..80)
        .prop_map(|steps| steps.into_iter().flat_map(|(step, rare)| [Some(step), rare]).flatten().collect())
}

struct Node<K: Carries> {
    layer: Layer<K>,
    peers: BTreeMap<usize, PeerId>,
    ranges: BTreeMap<usize, RemoteRange>,
    window: ExposedPart,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

/// What a program waits for.
#[derive(Debug)]
struct Awaited {
    len: usize,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Send,
    Recv,
    Write,
    Read,
}

struct World<K: Carries> {
    nodes: Vec<Node<K>>,
    now: u64,
    next: u64,
    awaited: Vec<HashMap<u64, Awaited>>,
    /// What was sent and has not been received, by from and to: lengths and seeds.
    sent: BTreeMap<(usize, usize), VecDeque<(usize, u64)>>,
    /// Pairs that lost each other, at one side at least.
    apart: Vec<(usize, usize)>,
    delivered: usize,
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed as usize * 37 + at + (at >> 8) * 3) as u8).collect()
}

fn exposed(node: (&ProtectionDomain<SoftDevice>, &Context<SoftDevice>), bytes: &[u8]) -> ExposedPart {
    let (pd, ctx) = node;
    let mut pages = Pages::new(bytes.len().next_multiple_of(8).max(8), PageSize::Base).unwrap();
    pages[..bytes.len()].copy_from_slice(bytes);
    let (caps, all) = (ctx.caps(), 0..bytes.len());
    if caps.contains(Caps::RDMA_WRITE) {
        pd.expose(pages, ctx.require::<RemoteReadWrite>().unwrap()).unwrap().part(all).unwrap()
    } else if caps.contains(Caps::RDMA_READ) {
        pd.expose(pages, ctx.require::<RemoteRead>().unwrap()).unwrap().part(all).unwrap()
    } else {
        pd.expose(pages, ctx.require::<ByMessages>().unwrap()).unwrap().part(all).unwrap()
    }
}

impl<K: Carries> World<K> {
    fn new(setup: Setup, profile: Profile) -> Self {
        let mut config = Config::new(profile).seed(setup.seed).lose(setup.loss, 100).delay(setup.delay);
        // Where all operations are SENDs.
        if profile == Profile::NONE && setup.not_ready > 0 {
            config = config.fail_nth(setup.not_ready, CompletionStatus::RemoteRnr);
        }
        let device = SoftDevice::new(config);
        let mut devices = vec![device.clone()];
        devices.extend((1..NODES).map(|_| device.neighbour().unwrap()));
        let ends: Vec<_> = devices
            .into_iter()
            .map(|device| {
                let ctx = Context::open(device);
                let pd = ctx.alloc_pd().unwrap();
                let depth = Depth::new(32, Layer::<K>::receives());
                let qp = pd.create_qp(ctx.require::<K>().unwrap(), depth).unwrap();
                (ctx, pd, qp.prepare().unwrap())
            })
            .collect();
        let mut introduced = Vec::new();
        for a in 0..NODES {
            for b in a + 1..NODES {
                let (to_b, to_a) = introduce(&ends[a].2, &ends[b].2).unwrap();
                introduced.extend([(a, b, to_b), (b, a, to_a)]);
            }
        }
        let mut nodes: Vec<_> = ends
            .into_iter()
            .map(|(ctx, pd, qp)| {
                let memory = pd.register(vec![0; Layer::<K>::memory(setup.packet, setup.slots)]).unwrap().1;
                let options = Options::new(setup.packet);
                let options = if setup.near_wrap { options.near_wrap() } else { options };
                let layer = Layer::new(qp, memory, options).unwrap();
                let window = exposed((&pd, &ctx), &[0; WINDOW]);
                Node { layer, peers: BTreeMap::new(), ranges: BTreeMap::new(), window, pd, ctx }
            })
            .collect();
        for (at, other, peer) in introduced {
            let id = nodes[at].layer.add(peer).unwrap();
            nodes[at].peers.insert(other, id);
        }
        let frames: Vec<_> = nodes
            .iter_mut()
            .map(|node| {
                let both = Access::REMOTE_READ | Access::REMOTE_WRITE;
                let window = node.layer.open(node.window.clone(), both).unwrap();
                node.layer.describe(window).unwrap()
            })
            .collect();
        for node in &mut nodes {
            for (&other, &id) in &node.peers {
                node.ranges.insert(other, node.layer.remote(id, frames[other].as_bytes()).unwrap());
            }
        }
        let awaited = (0..NODES).map(|_| HashMap::new()).collect();
        Self { nodes, now: 0, next: 1, awaited, sent: BTreeMap::new(), apart: Vec::new(), delivered: 0 }
    }

    fn memory(&self, at: usize, kind: Kind, bytes: Vec<u8>) -> Memory<Vec<u8>> {
        let node = &self.nodes[at];
        match kind {
            _ if bytes.is_empty() => Memory::Plain(bytes),
            Kind::Plain => Memory::Plain(bytes),
            Kind::Slice => node.pd.register(bytes).unwrap().1.into(),
            Kind::Exposed => exposed((&node.pd, &node.ctx), &bytes).into(),
        }
    }

    fn awaits(&mut self, at: usize, what: What, len: usize) -> Token {
        let token = self.next;
        self.next += 1;
        self.awaited[at].insert(token, Awaited { len, what });
        Token(token)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { from, to, len, kind } => {
                let token = self.awaits(from, What::Send, len);
                let source = self.memory(from, kind, bytes(token.0, len));
                let node = &mut self.nodes[from];
                match node.layer.send(node.peers[&to], source, token) {
                    Ok(()) => self.sent.entry((from, to)).or_default().push_back((len, token.0)),
                    Err(refused) => self.refused(from, token, refused.into_parts()),
                }
            }
            Step::Recv { at, len, kind } => {
                let token = self.awaits(at, What::Recv, len);
                let target = self.memory(at, kind, vec![0; len]);
                if let Err(refused) = self.nodes[at].layer.recv(target, token) {
                    self.refused(at, token, refused.into_parts());
                }
            }
            Step::Write { from, to, len, kind } => {
                let token = self.awaits(from, What::Write, len);
                let source = self.memory(from, kind, bytes(token.0, len));
                let node = &mut self.nodes[from];
                let range = node.ranges[&to].range(0..len as u64).unwrap();
                if let Err(refused) = node.layer.write(node.peers[&to], source, range, token) {
                    self.refused(from, token, refused.into_parts());
                }
            }
            Step::Read { from, to, len, kind } => {
                let token = self.awaits(from, What::Read, len);
                let target = self.memory(from, kind, vec![0; len]);
                let node = &mut self.nodes[from];
                let range = node.ranges[&to].range(0..len as u64).unwrap();
                if let Err(refused) = node.layer.read(node.peers[&to], target, range, token) {
                    self.refused(from, token, refused.into_parts());
                }
            }
            Step::Poll { at, times } => (0..times).for_each(|_| {
                self.poll(at);
            }),
            Step::Wait { microseconds } => self.now += microseconds,
            Step::Remove { at, peer } => {
                let id = self.nodes[at].peers[&peer];
                self.nodes[at].layer.remove(id);
                self.lost(at, peer);
            }
            Step::Die { at } => {
                self.nodes[at].ctx.provider().die();
                (0..NODES).for_each(|other| self.lost(at, other));
            }
        }
    }

    fn lost(&mut self, a: usize, b: usize) {
        self.apart.extend([(a, b), (b, a)]);
    }

    fn refused(&mut self, at: usize, token: Token, (memory, why): (Memory<Vec<u8>>, Why)) {
        let awaited = self.awaited[at].remove(&token.0).unwrap();
        assert_eq!(memory.len(), awaited.len);
        match why {
            Why::Full { limit: 8 } => {}
            // A peer that is lost, or all of them.
            why => assert!(self.apart.iter().any(|pair| pair.0 == at), "{why}"),
        }
    }

    /// Whether a node had an event.
    fn poll(&mut self, at: usize) -> bool {
        self.now += 3;
        match self.nodes[at].layer.poll(self.now) {
            Some(event) => {
                self.happened(at, event);
                true
            }
            None => false,
        }
    }

    fn node(&self, at: usize, peer: PeerId) -> usize {
        self.nodes[at].peers.iter().find(|(_, id)| **id == peer).map(|(node, _)| *node).unwrap()
    }

    fn happened(&mut self, at: usize, event: Event<Memory<Vec<u8>>, Memory<Vec<u8>>>) {
        let resolved = event.token().map(|token| {
            self.awaited[at].remove(&token.0).unwrap_or_else(|| panic!("node {at} knows nothing of {event:?}"))
        });
        match event {
            Event::Sent { source, .. } => check(&resolved.unwrap(), What::Send, source.len()),
            Event::Written { source, .. } => check(&resolved.unwrap(), What::Write, source.len()),
            Event::Read { target, .. } => check(&resolved.unwrap(), What::Read, target.len()),
            Event::Received { from, len, target, .. } => {
                check(&resolved.unwrap(), What::Recv, target.len());
                let from = self.node(at, from.unwrap());
                let (expected, seed) = self.sent.get_mut(&(from, at)).and_then(VecDeque::pop_front).unwrap();
                assert_eq!(len, expected, "from {from} to {at}");
                let mut found = vec![0; len];
                match &target {
                    Memory::Plain(bytes) => found.copy_from_slice(&bytes[..len]),
                    Memory::Slice(slice) => found.copy_from_slice(&slice[..len]),
                    Memory::Exposed(bytes) => bytes.copy_out(0, &mut found).unwrap(),
                }
                assert!(found == bytes(seed, len), "message {seed} of {len} bytes from {from} to {at} is another");
                self.delivered += 1;
            }
            Event::Failed { peer, why, buffer, .. } => {
                let awaited = resolved.unwrap();
                match buffer {
                    Returned::Source(memory) => {
                        assert!(matches!(awaited.what, What::Send | What::Write));
                        assert_eq!(memory.len(), awaited.len);
                    }
                    Returned::Target(memory) => {
                        assert!(matches!(awaited.what, What::Recv | What::Read));
                        assert_eq!(memory.len(), awaited.len);
                    }
                }
                match (why, peer) {
                    (Why::Truncated { len, room }, Some(peer)) => {
                        let from = self.node(at, peer);
                        let (expected, _) = self.sent.get_mut(&(from, at)).and_then(VecDeque::pop_front).unwrap();
                        assert!(len == expected as u64 && room == awaited.len as u64 && len > room);
                        self.delivered += 1;
                    }
                    (Why::Closed, _) => {}
                    (why, Some(peer)) => {
                        let other = self.node(at, peer);
                        assert!(self.apart.contains(&(at, other)), "{why}");
                    }
                    (why, None) => assert!(self.apart.iter().any(|pair| pair.0 == at), "{why}"),
                }
            }
            Event::Up(peer) => {
                self.node(at, peer);
            }
            Event::Lost { peer, why } => {
                let other = self.node(at, peer);
                assert!(matches!(why, Why::Closed) || self.apart.contains(&(at, other)), "{why}");
            }
        }
    }

    /// All that can arrive arrives; then each node is closed, and nothing is left.
    fn finish(mut self) -> usize {
        let due = |world: &Self, at: usize| {
            let waiting = |from: usize| world.sent.get(&(from, at)).map_or(0, VecDeque::len);
            (0..NODES).filter(|from| !world.apart.contains(&(*from, at))).map(waiting).sum::<usize>()
        };
        let mut idle = 0;
        while idle < 2000 {
            let mut moved = false;
            for at in 0..NODES {
                let waiting = self.awaited[at].values().filter(|awaited| awaited.what == What::Recv).count();
                if waiting < due(&self, at) && waiting < 8 {
                    self.step(Step::Recv { at, len: 400_000, kind: Kind::Plain });
                }
                for _ in 0..4 {
                    moved |= self.poll(at);
                }
            }
            // Whatever waits for a time finds it passed.
            self.now += 2_000;
            let busy = (0..NODES).any(|at| due(&self, at) > 0);
            idle = if moved { 0 } else { idle + 1 };
            if !busy && idle > 300 {
                break;
            }
        }
        let apart = self.apart.clone();
        for (pair, queue) in &self.sent {
            assert!(queue.is_empty() || apart.contains(pair), "{queue:?} never arrived from {} at {}", pair.0, pair.1);
        }
        for (at, awaited) in self.awaited.iter().enumerate() {
            let alone = apart.iter().any(|pair| pair.0 == at);
            let stuck = awaited.values().find(|awaited| awaited.what != What::Recv);
            assert!(stuck.is_none() || alone, "node {at} still waits for {stuck:?}: {:#?}", self.nodes[at].layer);
        }
        let nodes = std::mem::take(&mut self.nodes);
        for (at, node) in nodes.into_iter().enumerate() {
            let Node { layer, peers, .. } = node;
            let mut events = Vec::new();
            let mut polls = 0;
            let ended = layer.close(
                || {
                    polls += 1;
                    polls > 10_000
                },
                |event| events.push(event),
            );
            assert!(ended.is_ok(), "{ended:?}");
            for event in events {
                match event {
                    Event::Lost { peer, .. } => assert!(peers.values().any(|id| *id == peer)),
                    Event::Up(_) => {}
                    event => {
                        let token = event.token().unwrap();
                        let awaited = self.awaited[at].remove(&token.0);
                        assert!(awaited.is_some(), "node {at} knows nothing of {event:?}");
                        let len = match event {
                            Event::Failed { buffer: Returned::Source(memory), .. }
                            | Event::Failed { buffer: Returned::Target(memory), .. }
                            | Event::Sent { source: memory, .. }
                            | Event::Received { target: memory, .. }
                            | Event::Written { source: memory, .. }
                            | Event::Read { target: memory, .. } => memory.len(),
                            Event::Up(_) | Event::Lost { .. } => unreachable!(),
                        };
                        assert_eq!(len, awaited.unwrap().len);
                    }
                }
            }
            assert!(self.awaited[at].is_empty(), "node {at} was never told of {:?}", self.awaited[at]);
        }
        self.delivered
    }
}

fn check(awaited: &Awaited, what: What, len: usize) {
    assert!(awaited.what == what && awaited.len == len, "{awaited:?} came back as {what:?} of {len} bytes");
}

fn run(setup: Setup, steps: Vec<Step>) -> usize {
    fn run_on<K: Carries>(setup: Setup, steps: Vec<Step>, profile: Profile) -> usize {
        let mut world = World::<K>::new(setup, profile);
        for step in steps {
            world.step(step);
        }
        world.finish()
    }
    match setup.profile {
        0 => run_on::<SendOnly>(setup, steps, Profile::NONE),
        1 => run_on::<WithReads>(setup, steps, Profile::READ),
        _ => run_on::<Srd>(setup, steps, Profile::RDMA),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_time: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_programs_do_messages_arrive_whole_once_and_in_order_and_everything_is_resolved_once(
        setup in setups(), steps in steps()
    ) {
        run(setup, steps);
    }
}

/// The longest, by each way that there is.
#[test]
fn messages_of_64_mib_arrive() {
    for profile in 0..3 {
        for kind in [Kind::Plain, Kind::Slice, Kind::Exposed] {
            let len = 64 << 20;
            let setup =
                Setup { profile, seed: 1, packet: 8192, slots: 64, loss: 0, delay: 0, not_ready: 0, near_wrap: true };
            let steps = vec![Step::Send { from: 0, to: 1, len, kind }, Step::Recv { at: 1, len, kind }];
            assert_eq!(run(setup, steps), 1);
        }
    }
}
