//! Frames between two wires: a program that sends, and a carrier that does whatever the input says to its frames.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use efa_core::connect::{Side, connect};
use efa_core::memory::{Exposed, PageSize, Pages, RemoteReadWrite};
use efa_core::peer::RemoteWindow;
use efa_core::qp::Depth;
use efa_core::soft::link::{Body, FRAME, Frame, PAYLOAD};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work::Event;
use efa_core::{Context, Gid, Limits, Provider, Token};

use crate::Reached;
use crate::input::Input;

const LIMITS: Limits = Limits { max_qp: 4, max_cq: 8, max_mr: 64, max_pd: 4, max_ah: 8, ..Config::LIMITS };
const PATIENCE: u64 = 1_000_000;
/// Bytes of exposed memory that are used.
const SHARED: usize = 2 * PAYLOAD - 1;

/// The carrier: frames that were sent, and to which wire.
struct Carrier {
    now: u64,
    wires: [SoftDevice; 2],
    held: Vec<(usize, Vec<u8>)>,
    /// Somebody other than the wires had a say.
    forged: bool,
}

impl Carrier {
    fn deliver(&mut self, to: usize, frame: &[u8]) {
        round_trip(frame);
        if let Err(error) = self.wires[to].receive(self.now, frame) {
            said(error);
            assert!(self.forged, "a wire refuses what another sent: {error}");
        }
    }

    /// Takes up to so many frames from a wire.
    fn collect(&mut self, from: usize, most: usize) {
        // Some messages are held back for a few turns.
        (0..8).for_each(|_| self.wires[from].progress());
        let mut frame = [0; FRAME];
        for _ in 0..most {
            let Some((to, len)) = self.wires[from].transmit(self.now, &mut frame) else { return };
            let parsed = Frame::parse(&frame[..len]).expect("what is sent is a frame");
            assert_eq!((parsed.to, parsed.from.interface_id() as usize), (to, 1 + from));
            // A forged frame may have had another sender: what answers it is lost.
            if to == gid(1 - from) && self.held.len() < 256 {
                self.held.push((1 - from, frame[..len].to_vec()));
            }
        }
    }

    fn take(&mut self, which: usize) -> Option<(usize, Vec<u8>)> {
        if self.held.is_empty() { None } else { Some(self.held.swap_remove(which % self.held.len())) }
    }
}

fn gid(wire: usize) -> Gid {
    Gid::from_parts(0xFE80_0000_0000_0000, 1 + wire as u64)
}

fn said(error: impl Display) {
    assert!(error.to_string().contains(';'), "{error}");
}

/// What is accepted is written as it came.
fn round_trip(bytes: &[u8]) {
    match Frame::parse(bytes) {
        Ok(frame) => {
            let mut written = [0; FRAME];
            let len = frame.write(&mut written).expect("what was parsed can be written");
            assert_eq!(&written[..len], bytes);
        }
        Err(error) => said(error),
    }
}

/// What a side posted and what it was told.
#[derive(Default)]
struct Account {
    posted: u64,
    /// What each operation that is not resolved must come to.
    open: BTreeMap<u64, What>,
    /// Messages that arrived, by the token of the other side.
    arrived: BTreeSet<u32>,
}

enum What {
    Send,
    /// How much, and the byte that it writes.
    Write(usize, u8),
    Read(usize),
    Recv,
}

struct World {
    sides: [Side<SoftDevice>; 2],
    accounts: [Account; 2],
    memory: Exposed<Pages, RemoteReadWrite>,
    window: RemoteWindow<RemoteReadWrite>,
    /// It has the same rights and was never granted.
    guard: Exposed<Pages, RemoteReadWrite>,
    carrier: Carrier,
    /// Operations on the exposed memory in flight: only one of them at a time is looked at.
    writing: bool,
}

impl World {
    fn new() -> Self {
        let config = |wire: usize| {
            let config = Config::new(Profile::RDMA).limits(LIMITS).packets(16).seed(wire as u64);
            config.gid(gid(wire)).linked(10 + wire as u64).patience(PATIENCE)
        };
        let wires = [0, 1].map(|wire| SoftDevice::new(config(wire)));
        let contexts = wires.clone().map(Context::open);
        let sides = connect(contexts, Depth::new(4, 4)).expect("two sides");
        let exposed = || {
            let pages = Pages::new(SHARED, PageSize::Base).expect("memory");
            sides[1].pd.expose(pages, sides[1].ctx.require().expect("RDMA")).expect("exposed memory")
        };
        let (memory, guard) = (exposed(), exposed());
        let grant = memory.grant(&sides[1].endpoint).expect("a grant");
        let window = sides[0].peer.window(grant.as_bytes()).expect("a window");
        let carrier = Carrier { now: 1, wires, held: Vec::new(), forged: false };
        let accounts = [Account::default(), Account::default()];
        Self { sides, accounts, memory, window, guard, carrier, writing: false }
    }

    fn post(&mut self, from: usize, what: u8, len: usize) -> bool {
        let (side, account) = (&mut self.sides[from], &mut self.accounts[from]);
        let token = account.posted;
        let fill = token as u8 | 1;
        let bytes = |len: usize| side.pd.register(vec![fill; len.max(1)]).ok().map(|(_, slice)| slice);
        let posted = match what {
            0 => {
                let len = len % 8929;
                let Some((slice, _)) = bytes(len).and_then(|slice| slice.split_at(len).ok()) else { return false };
                let done = side.endpoint.post(side.peer.send(slice).imm(token as u32), Token(token)).is_ok();
                done.then_some(What::Send)
            }
            1 | 2 if from == 0 && !self.writing => {
                let len = len % (SHARED + 1);
                let Some((slice, _)) = bytes(len).and_then(|slice| slice.split_at(len).ok()) else { return false };
                let range = self.window.range(0..len as u64).expect("a part");
                let done = if what == 1 {
                    side.endpoint.post(side.peer.write(slice, range), Token(token)).is_ok()
                } else {
                    side.endpoint.post(side.peer.read(slice, range), Token(token)).is_ok()
                };
                self.writing |= done;
                done.then_some(if what == 1 { What::Write(len, fill) } else { What::Read(len) })
            }
            _ => {
                let Some(slice) = bytes(8928) else { return false };
                let done = side.endpoint.post_recv(slice, Token(token)).is_ok();
                done.then_some(What::Recv)
            }
        };
        let Some(what) = posted else { return false };
        account.open.insert(token, what);
        account.posted += 1;
        true
    }

    fn poll(&mut self, which: usize, reached: &mut Reached) {
        while let Some(event) = self.sides[which].endpoint.poll() {
            let token = event.token().expect("only what was posted ends").0;
            let what = self.accounts[which].open.remove(&token).expect("it ends once");
            let honest = !self.carrier.forged;
            match (event, what) {
                (Event::Sent(_), What::Send) => {
                    reached.insert("a SEND done");
                }
                (Event::Written(_), What::Write(len, fill)) => {
                    self.writing = false;
                    let mut found = vec![0; len];
                    self.memory.copy_out(0, &mut found).expect("inside");
                    assert!(!honest || found.iter().all(|byte| *byte == fill), "a write done has its bytes there");
                    reached.insert(if len > PAYLOAD { "a write in parts done" } else { "a write done" });
                }
                (Event::Read(mut done), What::Read(len)) => {
                    self.writing = false;
                    let slice = done.buffers.take_slice().expect("a slice");
                    let mut found = vec![0; len];
                    self.memory.copy_out(0, &mut found).expect("inside");
                    assert!(!honest || slice[..] == found[..], "a read done has the bytes");
                    reached.insert("a read done");
                }
                (Event::Received(mut message), What::Recv) => {
                    let once = message.imm.is_some_and(|imm| self.accounts[which].arrived.insert(imm));
                    assert!(!honest || once, "a message arrives once");
                    let slice = message.buffers.take_slice().expect("a slice");
                    let fill = message.imm.map(|imm| imm as u8 | 1);
                    let good = slice[..message.len].iter().all(|byte| Some(*byte) == fill);
                    assert!(!honest || good, "a message has the bytes that were sent");
                    reached.insert("a message received");
                }
                (Event::WriteArrived(_), What::Recv) => assert!(!honest, "nobody writes with an immediate"),
                (Event::Failed { failure, .. }, what) => {
                    if matches!(what, What::Write(..) | What::Read(_)) {
                        self.writing = false;
                    }
                    said(failure);
                    reached.insert("a failure");
                }
                (event, _) => panic!("{event:?} is not what was posted"),
            }
        }
    }

    /// What holds at all times.
    fn check(&self) {
        let mut guarded = vec![0; SHARED];
        self.guard.copy_out(0, &mut guarded).expect("inside");
        assert!(guarded.iter().all(|byte| *byte == 0), "memory that was not granted was written");
        for (side, account) in self.sides.iter().zip(&self.accounts) {
            assert_eq!(side.endpoint.in_flight() as usize, account.open.len());
            assert_eq!(side.endpoint.stats().stale, 0, "a completion of nothing");
        }
    }
}

/// Two wires, and a carrier that loses, repeats, keeps, damages and makes up frames.
pub fn link(data: &[u8]) -> Reached {
    round_trip(data);
    let mut reached = Reached::new();
    let mut input = Input::new(data);
    let mut world = World::new();
    while let Some(step) = input.step() {
        let which = usize::from(step >> 7);
        match step & 0x7F {
            0..4 => {
                world.post(which, step & 3, usize::from(input.short()));
            }
            4 => world.carrier.collect(which, 1 + input.below(100)),
            5 => {
                if let Some((to, frame)) = world.carrier.take(input.byte().into()) {
                    world.carrier.deliver(to, &frame);
                }
            }
            6 => {
                if world.carrier.take(input.byte().into()).is_some() {
                    reached.insert("a frame lost");
                }
            }
            7 => {
                if let Some((to, frame)) = world.carrier.take(input.byte().into()) {
                    world.carrier.deliver(to, &frame);
                    world.carrier.held.push((to, repeated(frame)));
                    reached.insert("a frame repeated");
                }
            }
            8 => {
                if let Some((to, mut frame)) = world.carrier.take(input.byte().into()) {
                    world.carrier.forged = true;
                    let at = usize::from(input.short()) % frame.len();
                    frame[at] = input.byte();
                    world.carrier.deliver(to, &frame);
                    reached.insert("a frame damaged");
                }
            }
            9 => {
                let Some((to, mut frame)) = world.carrier.take(input.byte().into()) else { continue };
                world.carrier.forged = true;
                // In its session, of any kind, with any body.
                frame.truncate(56);
                frame[5] = input.byte() % 9;
                if frame[5] == 7 {
                    frame[40..].fill(0);
                }
                let body: Vec<u8> = (0..input.below(100)).map(|_| input.byte()).collect();
                frame.extend(body);
                let len = (frame.len() as u16).to_be_bytes();
                frame[6..8].copy_from_slice(&len);
                if let Ok(Frame { body, .. }) = Frame::parse(&frame) {
                    reached.insert(match body {
                        Body::Hello => "a hello made up",
                        Body::Reset => "a reset made up",
                        Body::Alive => "an alive made up",
                        Body::Request(_) => "a request made up",
                        Body::Answers(_) => "answers made up",
                        Body::Data { .. } => "data made up",
                        Body::Ud(_) => "a datagram made up",
                    });
                }
                world.carrier.deliver(to, &frame);
            }
            10 => {
                world.carrier.now += u64::from(input.short()) * 8;
            }
            11 => {
                world.carrier.wires[which].unreachable(gid(1 - which));
                reached.insert("an address unreachable");
            }
            12 => {
                let plugged = input.byte() & 1 != 0;
                world.carrier.wires[which].link(plugged);
            }
            13 => world.poll(which, &mut reached),
            // All that is there, in order, for a while.
            _ => {
                for _ in 0..input.below(8) + 1 {
                    for from in [0, 1] {
                        world.carrier.collect(from, 100);
                    }
                    for (to, frame) in std::mem::take(&mut world.carrier.held) {
                        world.carrier.deliver(to, &frame);
                    }
                    world.carrier.now += 1_000;
                }
                world.poll(0, &mut reached);
                world.poll(1, &mut reached);
            }
        }
        world.check();
    }
    // Silence ends everything but receives, and what waits for them: that ends with the queue pair.
    for _ in 0..4 {
        world.carrier.now += 2 * PATIENCE;
        for which in [0, 1] {
            world.carrier.collect(which, 1000);
            world.poll(which, &mut reached);
        }
    }
    world.check();
    for (side, mut account) in world.sides.into_iter().zip(world.accounts) {
        let ended = side.endpoint.shut_down(
            || true,
            |event| {
                let token = event.token().expect("only what was posted ends").0;
                assert!(account.open.remove(&token).is_some(), "it ends once");
            },
        );
        assert!(ended.is_ok() && account.open.is_empty(), "all that was posted has ended");
    }
    reached
}

/// A frame as it comes again; planted is that a request then has another number.
fn repeated(mut frame: Vec<u8>) -> Vec<u8> {
    if cfg!(feature = "planted") && frame[5] == 4 {
        frame[63] = frame[63].wrapping_add(1);
    }
    frame
}
