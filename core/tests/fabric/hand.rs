//! A side that speaks for itself: packets that are made by hand, and what the layer makes of them.

use std::mem::swap;

use efa_core::connect::{Side, connect_of, introduce};
use efa_core::fabric::{Carries, Event, Memory, Messages, Options, PeerId, Violation, Why};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, SendOnly};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::wire;
use efa_core::work;
use efa_core::{Context, ProtectionDomain, Token};

use super::two::{Happened, Layer, PACKET};

pub(super) const HELLO: u8 = 1;
pub(super) const CREDIT: u8 = 2;
pub(super) const EAGER: u8 = 3;
pub(super) const SEGMENT: u8 = 4;
pub(super) const LONG: u8 = 5;
pub(super) const PUT: u8 = 6;
pub(super) const GET: u8 = 7;
pub(super) const CLEAR: u8 = 8;
pub(super) const DATA: u8 = 9;
pub(super) const DONE: u8 = 10;
pub(super) const FINISH: u8 = 11;
pub(super) const BYE: u8 = 12;

/// Slots of a peer: 64 that are counted and four that are not.
pub(super) const SLOTS: u32 = 68;

pub(super) struct ByHand<K: Carries = SendOnly> {
    pub(super) layer: Layer<K>,
    pub(super) peer: PeerId,
    pub(super) ctx: Context<SoftDevice>,
    pub(super) pd: ProtectionDomain<SoftDevice>,
    pub(super) side: Side<SoftDevice, K>,
    /// This side's life, and the layer's.
    pub(super) own: u64,
    pub(super) life: u64,
    pub(super) now: u64,
    /// Where this side's numbers start, what it can do, and the bytes of its packets.
    pub(super) start: u32,
    pub(super) features: u32,
    pub(super) packet: u32,
    /// What headers say: the place that the layer gave, counted packets that it may have sent, and its credit packets
    /// that were taken.
    pub(super) place: u16,
    pub(super) limit: u32,
    pub(super) heard: u16,
    /// The packet that arrived last.
    pub(super) last: Vec<u8>,
}

/// Of the side that does not speak at present, what is its own.
pub(super) struct Other<K: Carries = SendOnly> {
    pub(super) peer: PeerId,
    side: Side<SoftDevice, K>,
    own: u64,
    place: u16,
    limit: u32,
    heard: u16,
}

impl<K: Carries> ByHand<K> {
    /// Neither has answered the other.
    pub(super) fn new(config: Config) -> Self {
        let device = SoftDevice::new(config.shuffle(false));
        let contexts = [Context::open(device.clone()), Context::open(device.neighbour().unwrap())];
        let [a, mut side] = connect_of::<_, K>(contexts, Depth::new(64, Layer::<K>::receives())).unwrap();
        let memory = a.pd.register(vec![0; Layer::<K>::memory(PACKET, 16)]).unwrap().1;
        let mut layer = Layer::<K>::new(a.endpoint, memory, Options::new(PACKET)).unwrap();
        let (peer, life) = (layer.add(a.peer).unwrap(), side.peer.incarnation().unwrap().0);
        let own = wire::Hello::parse(side.endpoint.hello().as_bytes()).unwrap().incarnation.0;
        for _ in 0..64 {
            side.endpoint.post_recv(side.pd.register(vec![0; PACKET]).unwrap().1, Token(9)).unwrap();
        }
        let (start, features, packet, limit) = (0, 0, PACKET as u32, 32);
        Self {
            layer,
            peer,
            ctx: a.ctx,
            pd: a.pd,
            side,
            own,
            life,
            now: 0,
            start,
            features,
            packet,
            place: 0,
            limit,
            heard: 0,
            last: Vec::new(),
        }
    }

    /// Each has answered the other.
    pub(super) fn up_on(config: Config) -> Self {
        let mut this = Self::new(config);
        this.come_up();
        this
    }

    pub(super) fn come_up(&mut self) {
        assert_eq!(self.turns().1, [HELLO], "it greets first");
        let (events, kinds) = self.send(&self.hello());
        assert!(matches!(&events[..], [Event::Up(peer)] if *peer == self.peer), "{events:?}");
        assert_eq!(kinds, [HELLO], "the peer is to know that it is known");
        assert_eq!(self.last[44..46], self.place.to_be_bytes());
    }

    /// The layer's events of a millisecond, and the kinds of the packets that came of it.
    pub(super) fn turns(&mut self) -> (Vec<Happened>, Vec<u8>) {
        self.turns_until(self.now + 1000, 1)
    }

    /// Likewise, of the time until then.
    pub(super) fn turns_until(&mut self, until: u64, step: usize) -> (Vec<Happened>, Vec<u8>) {
        let (mut events, mut kinds) = (Vec::new(), Vec::new());
        for now in (self.now + 1..=until).step_by(step) {
            self.now = now;
            events.extend(self.layer.poll(now));
            kinds.extend(self.arrived());
        }
        (events, kinds)
    }

    /// The kind of a packet that arrived.
    pub(super) fn arrived(&mut self) -> Option<u8> {
        let work::Event::Received(message) = self.side.endpoint.poll()? else { return None };
        let slot = message.buffers.into_slice().unwrap();
        self.last = slot[..message.len].to_vec();
        self.side.endpoint.post_recv(slot, Token(9)).unwrap();
        Some(self.last[2])
    }

    /// Posts a packet, and no more.
    pub(super) fn post(&mut self, packet: &[u8]) {
        let packet = self.side.pd.register(packet.to_vec()).unwrap().1;
        self.side.endpoint.post(self.side.peer.send(packet), Token(1)).unwrap();
    }

    pub(super) fn send(&mut self, packet: &[u8]) -> (Vec<Happened>, Vec<u8>) {
        self.post(packet);
        self.turns()
    }

    /// A number of the packet that arrived last.
    pub(super) fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.last[at..at + 4].try_into().unwrap())
    }

    pub(super) fn header(&self, kind: u8) -> Vec<u8> {
        let mut header = vec![0xEF, 1, kind, 0];
        header.extend(self.place.to_be_bytes());
        header.extend(self.heard.to_be_bytes());
        header.extend((self.own as u32).to_be_bytes());
        header.extend(self.limit.to_be_bytes());
        header
    }

    /// A good hello that answers.
    pub(super) fn hello(&self) -> Vec<u8> {
        let mut hello = changed(self.header(HELLO), 4, &[0xFF; 2]);
        hello.extend(self.own.to_be_bytes());
        hello.extend(self.life.to_be_bytes());
        hello.extend(self.start.to_be_bytes());
        hello.extend(self.packet.to_be_bytes());
        hello.extend(self.features.to_be_bytes());
        hello.extend(0_u16.to_be_bytes());
        hello.extend(32_u16.to_be_bytes());
        hello
    }

    pub(super) fn credit(&self) -> Vec<u8> {
        self.header(CREDIT)
    }

    pub(super) fn bye(&self) -> Vec<u8> {
        self.header(BYE)
    }

    pub(super) fn eager(&self, sequence: u32, payload: &[u8]) -> Vec<u8> {
        self.of(EAGER, sequence, payload)
    }

    /// A packet of that operation, or message.
    pub(super) fn of(&self, kind: u8, operation: u32, rest: &[u8]) -> Vec<u8> {
        let mut packet = self.header(kind);
        packet.extend(operation.to_be_bytes());
        packet.extend(rest);
        packet
    }

    pub(super) fn segment(&self, sequence: u32, total: u32, offset: u32, payload: &[u8]) -> Vec<u8> {
        self.of(SEGMENT, sequence, &[&total.to_be_bytes(), &offset.to_be_bytes(), payload].concat())
    }

    /// A long message, which is to be called 77.
    pub(super) fn long(&self, sequence: u32, total: u64) -> Vec<u8> {
        self.of(LONG, sequence, &[&77_u32.to_be_bytes(), &total.to_be_bytes()[..], &[0; 40]].concat())
    }

    /// A put or a get, which is to be called 77.
    pub(super) fn ask(&self, kind: u8, window: u32, offset: u64, total: u64) -> Vec<u8> {
        let grant: &[u8] = if kind == PUT { &[0; 40] } else { &[] };
        let rest = [&77_u32.to_be_bytes(), &offset.to_be_bytes()[..], &total.to_be_bytes(), grant].concat();
        self.of(kind, window, &rest)
    }

    pub(super) fn data(&self, to: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        self.of(DATA, to, &[&[0; 4], &offset.to_be_bytes()[..], payload].concat())
    }

    /// Clears up to there what this side calls 5.
    pub(super) fn clear(&self, id: u32, upto: u64) -> Vec<u8> {
        self.of(CLEAR, id, &[&5_u32.to_be_bytes(), &upto.to_be_bytes()[..], &[0; 40]].concat())
    }

    pub(super) fn recv(&mut self, token: u64, len: usize) {
        self.layer.recv(Memory::Plain(vec![0; len]), Token(token)).unwrap();
    }

    /// Breaks the protocol by a packet.
    #[track_caller]
    pub(super) fn breaks(&mut self, packet: &[u8]) -> Violation {
        let (events, _) = self.send(packet);
        let lost = events.iter().find_map(|event| match event {
            Event::Lost { why: Why::Violation(violation), .. } => Some(*violation),
            _ => None,
        });
        lost.unwrap_or_else(|| panic!("it holds: {events:?}"))
    }

    /// Has the layer add this side once more.
    pub(super) fn again(&mut self) {
        let (peer, _) = introduce(self.layer.endpoint(), &self.side.endpoint).unwrap();
        self.peer = self.layer.add(peer).unwrap();
        (self.limit, self.heard) = (32, 0);
    }

    /// Another side, of its own device, which the layer added.
    pub(super) fn another(&mut self) -> Other<K> {
        let (other, peer) = self.stranger();
        Other { peer: self.layer.add(peer).unwrap(), place: 1, ..other }
    }

    /// Another side, of its own device, and what would have to be added.
    pub(super) fn stranger(&self) -> (Other<K>, Peer<Mutual, K::Features>) {
        let ctx = Context::open(self.side.ctx.provider().neighbour().unwrap());
        let pd = ctx.alloc_pd().unwrap();
        let mut endpoint = pd.endpoint(ctx.require::<K>().unwrap(), Depth::new(64, 64)).unwrap();
        let (to_other, peer) = introduce(self.layer.endpoint(), &endpoint).unwrap();
        let own = wire::Hello::parse(endpoint.hello().as_bytes()).unwrap().incarnation.0;
        for _ in 0..64 {
            endpoint.post_recv(pd.register(vec![0; PACKET]).unwrap().1, Token(9)).unwrap();
        }
        let side = Side { endpoint, peer, pd, ctx };
        (Other { peer: self.peer, side, own, place: 0, limit: 32, heard: 0 }, to_other)
    }

    /// Speaks for the other from here on.
    pub(super) fn swap(&mut self, other: &mut Other<K>) {
        swap(&mut self.peer, &mut other.peer);
        swap(&mut self.side, &mut other.side);
        swap(&mut self.own, &mut other.own);
        swap(&mut self.place, &mut other.place);
        swap(&mut self.limit, &mut other.limit);
        swap(&mut self.heard, &mut other.heard);
    }
}

impl ByHand {
    pub(super) fn up() -> Self {
        Self::up_on(Config::new(Profile::NONE))
    }

    /// One that asks to send a message of so many bytes, for which there is a receive: what it is told to call it.
    pub(super) fn sending(len: usize) -> (Self, u32) {
        let mut this = Self::up();
        this.recv(1, len);
        let (events, kinds) = this.send(&this.long(0, len as u64));
        assert_eq!((events.len(), &kinds[..]), (0, &[CLEAR][..]));
        assert_eq!((this.number(16), &this.last[24..32]), (77, &(len as u64).to_be_bytes()[..]));
        let to = this.number(20);
        (this, to)
    }
}

/// What differs at a place.
pub(super) fn changed(mut packet: Vec<u8>, at: usize, to: &[u8]) -> Vec<u8> {
    packet[at..at + to.len()].copy_from_slice(to);
    packet
}
