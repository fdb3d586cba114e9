//! The fabric `efa` against a peer that sends whatever the input says: packets that are none, packets out of turn, and
//! answers to what is under way. Whatever it does, each operation of the layer's program is resolved once, with its buffer.

use std::collections::BTreeMap;

use efa_core::connect::{Side, connect};
use efa_core::fabric::efa::packet::inspect;
use efa_core::fabric::{Denied, Efa, Event, Memory, Messages, Options, PeerId, RemoteRange, Returned, Violation, Why};
use efa_core::flags::Access;
use efa_core::memory::{Exposed, ExposedPart, PageSize, Pages, RemoteReadWrite};
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work;
use efa_core::{Context, Limits, ProtectionDomain, Token, wire};

use crate::Reached;
use crate::input::Input;

type Layer = Efa<SoftDevice, Srd, Vec<u8>, Vec<u8>, 2, 4>;

const LIMITS: Limits = Limits { max_qp: 4, max_cq: 8, max_mr: 128, max_pd: 4, max_ah: 8, ..Config::LIMITS };
const PACKET: usize = 256;
const WINDOW: usize = 4096;

struct World {
    layer: Layer,
    peer: PeerId,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
    window: ExposedPart,
    range: RemoteRange,
    /// The peer, which is not held to anything.
    other: Side<SoftDevice>,
    exposed: Exposed<Pages, RemoteReadWrite>,
    lives: [u64; 2],
    /// The last packets that it got.
    heard: Vec<Vec<u8>>,
    now: u64,
    next: u64,
    /// Bytes of the buffers of what is not resolved.
    open: BTreeMap<u64, usize>,
    reached: Reached,
}

impl World {
    fn new() -> Self {
        let device = SoftDevice::new(Config::new(Profile::RDMA).limits(LIMITS).packets(64));
        let contexts = [Context::open(device.clone()), Context::open(device.neighbour().expect("a neighbour"))];
        let [side, other] = connect(contexts, Depth::new(32, Layer::receives())).expect("two sides");
        let life = |side: &Side<SoftDevice>| wire::Hello::parse(side.endpoint.hello().as_bytes()).expect("a hello");
        let lives = [life(&side), life(&other)].map(|hello| hello.incarnation.0);
        let memory = side.pd.register(vec![0; Layer::memory(PACKET, 8)]).expect("memory").1;
        let expose = |side: &Side<SoftDevice>| {
            let pages = Pages::new(WINDOW, PageSize::Base).expect("pages");
            side.pd.expose(pages, side.ctx.require::<RemoteReadWrite>().expect("RDMA")).expect("exposed")
        };
        let (own, exposed) = (expose(&side), expose(&other));
        let mut layer = Layer::new(side.endpoint, memory, Options::new(PACKET)).expect("a layer");
        let peer = layer.add(side.peer).expect("a peer");
        let window = own.part(0..WINDOW).expect("all of it");
        layer.open(window.clone(), Access::REMOTE_READ | Access::REMOTE_WRITE).expect("a window");
        let grant = wire::Grant::parse(exposed.grant(&other.endpoint).expect("a grant").as_bytes()).expect("a grant");
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let theirs = wire::Window { id: 0, access, length: WINDOW as u64, incarnation: grant.incarnation, grant: None };
        let range = layer.remote(peer, theirs.to_frame().as_bytes()).expect("a window");
        let (pd, ctx) = (side.pd, side.ctx);
        let (heard, open, reached) = (Vec::new(), BTreeMap::new(), Reached::new());
        let (now, next) = (0, 1);
        Self { layer, peer, pd, ctx, window, range, other, exposed, lives, heard, now, next, open, reached }
    }

    /// The peer's packet: a header that is right, then whatever.
    fn packet(&self, kind: u8, flags: u8, limit: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xEF, 1, kind, flags, 0, 0, 0, 0];
        bytes.extend((self.lives[1] as u32).to_be_bytes());
        bytes.extend(limit.to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn send(&mut self, packet: Vec<u8>) {
        if packet.is_empty() || packet.len() > PACKET {
            return;
        }
        let what = inspect(&packet);
        self.reached.insert(if what.is_ok() { "a packet" } else { "no packet" });
        let slice = self.other.pd.register(packet).expect("memory").1;
        let _full = self.other.endpoint.post(self.other.peer.send(slice), Token(1));
    }

    fn hello(&mut self, input: &mut Input<'_>) {
        let echo = if input.byte().is_multiple_of(4) { 0 } else { self.lives[0] };
        let life = if input.byte() == 7 { 9 } else { self.lives[1] };
        let mut body = Vec::new();
        body.extend(life.to_be_bytes());
        body.extend(echo.to_be_bytes());
        body.extend(0_u32.to_be_bytes());
        body.extend((256 + u32::from(input.byte())).to_be_bytes());
        body.extend(u32::from(input.byte() % 4).to_be_bytes());
        body.extend([0, input.byte(), 0, 8 + input.byte() % 64]);
        let mut packet = self.packet(1, 0, 0, &body);
        if life == 9 {
            packet[8..12].copy_from_slice(&9_u32.to_be_bytes());
        }
        self.send(packet);
    }

    /// A packet of any kind, of small numbers.
    fn message(&mut self, input: &mut Input<'_>) {
        let kind = 2 + input.byte() % 11;
        let number = |input: &mut Input<'_>| u32::from(input.byte() % 16);
        let mut body = Vec::new();
        // Fields of four bytes, and those of them that are the upper halves of one of eight, or spare.
        let (words, upper) = match kind {
            3 => (1, 0),
            4 => (3, 0),
            5 | 8 => (4, 0b0100),
            6 | 7 => (6, 0b01_0100),
            9 => (4, 0b0110),
            10 | 11 => (2, 0),
            _ => (0, 0),
        };
        for word in 0..words {
            let times = if input.byte().is_multiple_of(8) { 100 } else { 1 };
            let zero = upper >> word & 1 == 1 && !input.byte().is_multiple_of(16);
            let number = if zero { 0 } else { number(input) * times };
            body.extend(number.to_be_bytes());
        }
        let granting = matches!(kind, 5 | 6 | 8);
        if granting && input.byte().is_multiple_of(8) {
            body.extend([0; 40]);
        } else if granting {
            body.extend(self.exposed.grant(&self.other.endpoint).expect("a grant").as_bytes());
        }
        let payload = if matches!(kind, 3 | 4 | 9) { usize::from(input.byte()) % 200 } else { 0 };
        body.extend(vec![7; payload]);
        let flags = u8::from(granting && input.byte().is_multiple_of(2));
        let limit = 32 + u32::from(input.byte());
        let packet = self.packet(kind, flags, limit, &body);
        self.send(packet);
    }

    /// An answer to something that the layer asked for.
    fn answer(&mut self, input: &mut Input<'_>) {
        let Some(asked) = self.heard.get(input.below(self.heard.len())).cloned() else { return };
        let (Some(&kind), Some(name)) = (asked.get(2), asked.get(20..24)) else { return };
        let status = u32::from(input.byte() % 6).to_be_bytes();
        let offset = if input.byte().is_multiple_of(2) { 0 } else { u64::from(input.short() % 2048) }.to_be_bytes();
        // As much as was asked for, or not.
        let total = asked.get(39).copied().filter(|_| kind == 7 && input.byte().is_multiple_of(2));
        let payload = vec![8; usize::from(total.unwrap_or_else(|| input.byte())) % 220];
        let grant = self.exposed.grant(&self.other.endpoint).expect("a grant");
        let choice = input.byte();
        let (kind, flags, body) = match (kind, choice % 4) {
            // Of a message or a write: cleared, to be written, or done.
            (5 | 6, 0) => (8, 0, [name, &5_u32.to_be_bytes(), &offset, &[0; 40]].concat()),
            (5 | 6, 1) => (8, 1, [name, &5_u32.to_be_bytes(), &offset, grant.as_bytes()].concat()),
            (5 | 6, _) => (10, 0, [name, &status].concat()),
            // Of what was cleared, or got: bytes, or the end.
            (7 | 8, 0 | 1) => {
                let name = if kind == 8 { &asked[20..24] } else { name };
                (9, 0, [name, &[0; 4], &offset, &payload].concat())
            }
            (7 | 8, _) => (11, 0, [name, &status].concat()),
            _ => return,
        };
        let packet = self.packet(kind, flags, 64, &body);
        self.send(packet);
    }

    fn token(&mut self, len: usize) -> Token {
        self.next += 1;
        self.open.insert(self.next, len);
        Token(self.next)
    }

    fn memory(&self, kind: u8, len: usize) -> Memory<Vec<u8>> {
        match kind % 3 {
            1 if len > 0 => {
                self.pd.register(vec![1; len]).map_or(Memory::Plain(vec![1; len]), |(_, slice)| slice.into())
            }
            2 if len > 0 => {
                let pages = Pages::new(WINDOW, PageSize::Base).expect("pages");
                let access = self.ctx.require::<RemoteReadWrite>().expect("RDMA");
                match self.pd.expose(pages, access) {
                    Ok(exposed) => exposed.part(0..len).expect("not all of it").into(),
                    Err(_) => Memory::Plain(vec![1; len]),
                }
            }
            _ => Memory::Plain(vec![1; len]),
        }
    }

    /// The program's own call.
    fn call(&mut self, which: u8, input: &mut Input<'_>) {
        let len = usize::from(input.short() % 3000);
        let memory = self.memory(input.byte(), len);
        let token = self.token(len);
        let (peer, range) = (self.peer, self.range);
        let refused = match which {
            0 => self.layer.send(peer, memory, token).err(),
            1 => self.layer.recv(memory, token).err(),
            2 => self.layer.write(peer, memory, range, token).err(),
            _ => self.layer.read(peer, memory, range, token).err(),
        };
        if let Some(refused) = refused {
            let (memory, why) = refused.into_parts();
            assert_eq!(self.open.remove(&token.0), Some(memory.len()));
            assert!(!why.to_string().is_empty());
            self.reached.insert("a call refused");
        }
    }

    fn poll(&mut self, times: u8) {
        for _ in 0..times {
            self.now += 7;
            if let Some(event) = self.layer.poll(self.now) {
                resolve(&mut self.open, &mut self.reached, event);
            }
            while let Some(event) = self.other.endpoint.poll() {
                if let work::Event::Received(mut message) = event
                    && let Some(slot) = message.buffers.take_slice()
                {
                    assert!(inspect(&slot[..message.len]).is_ok(), "what the layer sends is a packet");
                    if self.heard.len() == 16 {
                        self.heard.remove(0);
                    }
                    self.heard.push(slot[..message.len].to_vec());
                    let _posted = self.other.endpoint.post_recv(slot, Token(0));
                }
            }
        }
    }
}

/// Each once, with its buffer.
fn resolve(open: &mut BTreeMap<u64, usize>, reached: &mut Reached, event: Event<Memory<Vec<u8>>, Memory<Vec<u8>>>) {
    let expected = event.token().map(|token| open.remove(&token.0).expect("resolved once"));
    let (what, len) = match event {
        Event::Sent { source, .. } => ("a message sent", source.len()),
        Event::Received { target, len, .. } => {
            assert!(len <= target.len());
            ("a message received", target.len())
        }
        Event::Written { source, .. } => ("a write done", source.len()),
        Event::Read { target, .. } => ("a read done", target.len()),
        Event::Failed { why, buffer, .. } => {
            let memory = match buffer {
                Returned::Source(memory) | Returned::Target(memory) => memory,
            };
            assert!(!why.to_string().is_empty());
            (said(why), memory.len())
        }
        Event::Up(_) => {
            reached.insert("a peer up");
            return;
        }
        Event::Lost { why, .. } => {
            reached.insert(said(why));
            return;
        }
    };
    assert_eq!(expected, Some(len));
    reached.insert(what);
}

fn said(why: Why) -> &'static str {
    match why {
        Why::Truncated { .. } => "a message too long",
        Why::Restarted { .. } => "a restart",
        Why::Denied(Denied::Unknown(_)) => "a denial that nobody knows",
        Why::Denied(_) => "a denial",
        Why::Left => "a bye",
        Why::Closed => "the end",
        Why::Violation(Violation::Packet(_)) => "a violation: no packet",
        Why::Violation(Violation::Credits) => "a violation: no credit",
        Why::Violation(Violation::Sequence { .. }) => "a violation: out of turn",
        Why::Violation(Violation::UnknownOperation(_)) => "a violation: an unknown operation",
        Why::Violation(Violation::Beyond { .. }) => "a violation: too many bytes",
        Why::Violation(Violation::Grant(_)) => "a violation: a grant",
        Why::Device(_) => "a failure",
        _ => "another failure",
    }
}

/// A layer against whatever the input makes of its peer.
pub fn fabric(data: &[u8]) -> Reached {
    let mut reached = Reached::new();
    // The bytes as they are: any give a packet, or a reason.
    if let Err(bad) = inspect(data) {
        assert!(!bad.to_string().is_empty());
    }
    let mut input = Input::new(data);
    let mut world = World::new();
    for _ in 0..64 {
        let slot = world.other.pd.register(vec![0; PACKET]).expect("memory").1;
        world.other.endpoint.post_recv(slot, Token(0)).expect("room");
    }
    for _ in 0..200 {
        let Some(step) = input.step() else { break };
        match step % 12 {
            0 => world.hello(&mut input),
            1 => {
                let mut packet = [0; 64];
                packet.fill_with(|| input.byte());
                world.send(packet.to_vec());
            }
            2..=4 => world.message(&mut input),
            5 | 6 => world.answer(&mut input),
            7 => world.call(input.byte() % 4, &mut input),
            8 => world.call(1, &mut input),
            9 => world.now += 1 << (input.byte() % 24),
            _ => world.poll(1 + step / 12),
        }
    }
    world.poll(40);
    let World { layer, window, mut open, other, reached: found, .. } = world;
    reached.extend(found);
    let mut turns = 0;
    let ended = layer.close(
        || {
            turns += 1;
            turns > 2000
        },
        |event| resolve(&mut open, &mut reached, event),
    );
    assert!(ended.is_ok() && open.is_empty(), "{open:?} were never resolved");
    drop((window, other));
    reached
}
