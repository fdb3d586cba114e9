//! The fabric `efa`: messages of any size and from any buffer, in order, and RDMA wherever the peer is.
//!
//! It is a layer over one endpoint, and does no more than its calls do: no thread, no allocation, no clock but the `now` that
//! [`Messages::poll`] is told.
//!
//! # How a message travels
//!
//! | bytes | way |
//! |---|---|
//! | up to a packet | eager: one packet |
//! | up to four | segments, each of which says where it belongs |
//! | more | long: announced, then fetched when its turn has come and a receive is there: read by RDMA from an exposed source, written by RDMA to an exposed target, or in data packets as far as the receiver cleared |
//!
//! Messages carry a sequence number for each peer, and are given to receives in its order, whatever order SRD delivers in.
//!
//! # Flow
//!
//! Each peer has 64 slots here, and is told so: it sends a packet only if one is free, so that neither receives nor
//! completions run over. Messages and data leave an eighth of them to what must not wait: clearing, and saying that
//! something is done. Every packet says how many are free again, and one of its own does once the peer has no more left than
//! it could be given. What finds no receive posted stays in its slot, and its sender has a credit less. At the sender a
//! message that has no credit, slot or place in the send queue waits in its peer's queue; when as many are under way as there
//! is room for, `send` gives the buffer back with [`Why::Full`].
//!
//! A peer that has no receive posted all the same (status 10, if the queue pair's retries are finite) is tried again at once,
//! then after 40 µs, then after twice the last wait, up to a second, for as long as it is not [removed](Efa::remove).
//!
//! # Peers
//!
//! First contact is a hello each way: version, what RDMA there is, sizes, credits, incarnation, where the numbers start. It is
//! repeated after 10 ms, then after twice the last wait, up to a second, until it is answered. A hello with another
//! incarnation is a restart: all that was under way with the former life fails with [`Why::Restarted`]. So it is if the peer
//! is resolved and added anew. What a device reports of a packet ends the peer as well, [`Event::Lost`].
//! A peer that something is awaited from, and that was silent for a second, is asked whether it is there, and again after
//! twice the last wait, up to a minute. One that is
//! removed, or was closed, or broke the protocol, is told so, and ends it with [`Why::Left`]. Beyond that a peer whose device
//! takes everything while its program does nothing is the application's to remove.
//!
//! | file | holds |
//! |---|---|
//! | `packet` | the packets, byte by byte |
//! | `slab` | entries by index and generation |
//! | `slots` | slots that packets go out from |
//! | `peer`, `held` | credits and order of each peer, and its packets that wait |
//! | `tables` | messages, writes and reads under way |
//! | `arrive`, `transfer` | what comes in: packets, and the bytes of what is long |
//! | `serve`, `emit` | what goes out, and how |
//! | `complete` | what the device says |
//! | `end` | how operations and peers end |
//! | `remote` | writes and reads of windows |

mod arrive;
mod complete;
mod emit;
mod end;
mod held;
pub mod packet;
mod peer;
mod remote;
mod serve;
mod slab;
mod slots;
mod tables;
mod transfer;

use core::fmt;

use heapless::Deque;

pub use packet::{BadPacket, PeerFeatures};
use peer::{PeerState, Standing};
pub use remote::{RemoteRange, WindowFrame, WindowId};
pub(super) use slab::{Id, Slab};
use slots::Slots;
use tables::{Inbound, Outbound, Sends, Source, Stage, Window};

use super::{Carries, Event, Fabric, Memory, Messages, PeerId, Why};
use crate::error::Limit;
use crate::memory::Slice;
use crate::peer::{Mutual, Peer};
use crate::provider::Provider;
use crate::qp::{Endpoint, Srd};
use crate::work;
use crate::{Error, Refused, Token};

/// Slots that each peer has here.
pub(super) const CREDITS: u32 = 64;
/// The least that a peer may have: an eighth of them is kept from data.
const LEAST_CREDITS: u16 = 8;
/// Credit packets under way to one peer at a time.
const CREDIT_PACKETS: u16 = 2;
/// Slots for what is not counted: credit packets, and hellos.
const UNCOUNTED: usize = CREDIT_PACKETS as usize + 2;
/// Packets of the longest message in segments.
const SEGMENTS: usize = 4;
/// Completions read in one poll at most, unless one has an event.
const POLLS: usize = 64;

/// Messages of any size and from any buffer, in order, to and from up to `PEERS` peers, `OPERATIONS` sends and as many
/// receives at a time.
///
/// Plain sources are of type `S`, plain targets of type `T`; [`Memory`] holds either, or registered memory.
///
/// ```
/// use efa_core::connect::connect;
/// use efa_core::fabric::{Efa, Event, Memory, Messages, Options};
/// use efa_core::qp::Depth;
/// use efa_core::soft::{Profile, SoftDevice};
/// use efa_core::{Context, Token};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// type Fabric = Efa<SoftDevice, efa_core::qp::Srd, &'static [u8], Vec<u8>>;
/// let device = SoftDevice::new(Profile::RDMA);
/// let [a, b] = connect([Context::open(device.clone()), Context::open(device.neighbour()?)], Depth::new(64, Fabric::receives()))?;
/// let memory = || vec![0; Fabric::memory(4096, 16)];
/// let mut from = Fabric::new(a.endpoint, a.pd.register(memory())?.1, Options::new(4096))?;
/// let mut to = Fabric::new(b.endpoint, b.pd.register(memory())?.1, Options::new(4096))?;
/// let (peer, _) = (from.add(a.peer)?, to.add(b.peer)?);
///
/// // Neither buffer is registered, and the message is longer than any that the device takes.
/// static TEXT: [u8; 1_000_000] = [7; 1_000_000];
/// to.recv(Memory::Plain(vec![0; 1_000_000]), Token(1))?;
/// from.send(peer, Memory::Plain(&TEXT), Token(2))?;
/// for now in (0..).step_by(10) {
///     if let Some(Event::Received { target: Memory::Plain(bytes), len, .. }) = to.poll(now) {
///         assert!(len == 1_000_000 && bytes == TEXT);
///         break;
///     }
///     let _up_or_sent = from.poll(now);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Efa<P: Provider, K: Carries, S, T, const PEERS: usize = 4, const OPERATIONS: usize = 16> {
    endpoint: Endpoint<P, K>,
    packet: usize,
    start: u32,
    /// SENDs of a header and of what the application registered.
    gathers: bool,
    peers: Slab<PeerState<K::Features>, PEERS>,
    /// Slots of the peers that there were not yet: what is posted for nobody would only go round with the others.
    unposted: Option<Slice>,
    sends: Slab<Outbound<S>, OPERATIONS>,
    recvs: Deque<(Memory<T>, Token), OPERATIONS>,
    inbound: Slab<Inbound<T>, OPERATIONS>,
    windows: Slab<Window, OPERATIONS>,
    slots: Slots<S>,
    /// Peers that there is something to do for.
    attended: Deque<Id, PEERS>,
    /// Peers whose state is news.
    news: Deque<Id, PEERS>,
    ended_sends: Deque<Id, OPERATIONS>,
    ended_inbound: Deque<Id, OPERATIONS>,
    /// The peer whose next message is here already, and is taken first.
    next: Option<Id>,
    /// When there is something to do besides polling: at once if it is 0.
    wake_at: u64,
    /// When a hello is due again; never if it is the last of times.
    hello_at: u64,
    /// When those that are silent are looked for.
    probe_at: u64,
    /// Packets of peers wait for a receive, or for a place in a table.
    wants_receive: bool,
    wants_place: bool,
    counters: Counters,
    now: u64,
    /// Why nothing goes any more: the queue pair failed.
    dead: Option<Why>,
}

/// An event of this fabric.
pub type Told<S, T> = Event<Memory<S>, Memory<T>>;

/// `Efa` of the kind with all of RDMA.
pub type EfaRdma<P, S, T> = Efa<P, Srd, S, T>;

/// How an [`Efa`] is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    packet: usize,
    near_wrap: bool,
}

impl Options {
    /// Packets of so many bytes, header included: from 256 to the device's longest message. Both sides' least counts.
    pub const fn new(packet: usize) -> Self {
        Self { packet, near_wrap: false }
    }

    /// Has whatever is counted start a few steps before it wraps: for tests.
    pub const fn near_wrap(mut self) -> Self {
        self.near_wrap = true;
        self
    }
}

/// What an endpoint counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bytes of messages, writes and reads that the CPU copied, at this side.
    pub copied: u64,
    /// Bytes that came by RDMA reads of this side's.
    pub read: u64,
    /// Bytes that went by RDMA writes of this side's.
    pub written: u64,
    /// Packets that were sent.
    pub packets_sent: u64,
    /// Packets that arrived.
    pub packets_received: u64,
    /// Of these, those of nobody that is known here, or of a peer's former life.
    pub strangers: u64,
    /// Of these, those by which a peer broke the protocol.
    pub violations: u64,
    /// Packets that found no receive, and were tried again.
    pub not_ready: u64,
}

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Efa<P, K, S, T, PEERS, OPERATIONS>
{
    /// Slots for what arrives.
    const RECEIVES: usize = PEERS * (CREDITS as usize + UNCOUNTED);

    /// Bytes of registered memory that it works in, with packets of so many bytes and so many slots to send from, 4 to 64.
    pub const fn memory(packet: usize, sends: usize) -> usize {
        packet * (Self::RECEIVES + sends)
    }

    /// Bytes that each peer costs: slots, and what is kept of it. Messages, however long, cost no more.
    pub const fn memory_per_peer(packet: usize) -> usize {
        packet * (CREDITS as usize + UNCOUNTED) + size_of::<PeerState<K::Features>>()
    }

    /// Receives that the endpoint must have room for.
    pub const fn receives() -> u32 {
        Self::RECEIVES as u32
    }

    /// Over an endpoint that nothing was posted to, in registered memory of its domain: see [`Efa::memory`].
    ///
    /// # Errors
    /// [`Error::BelowLimit`] or [`Error::AboveLimit`] for the packets' size, the memory or the endpoint's receives,
    /// [`Error::ForeignDomain`]; with both.
    #[allow(clippy::type_complexity)] // what it took
    pub fn new(
        endpoint: Endpoint<P, K>,
        memory: Slice,
        options: Options,
    ) -> Result<Self, Refused<(Endpoint<P, K>, Slice)>> {
        let packet = options.packet;
        let max = endpoint.provider().limits().max_msg_size as usize;
        let granted = endpoint.granted();
        let below =
            |what, asked: usize, limit: usize| Error::BelowLimit { what, asked: asked as u64, limit: limit as u64 };
        let error = if packet < packet::MIN_PACKET {
            Some(below(Limit::MessageBytes, packet, packet::MIN_PACKET))
        } else if packet > max {
            Some(Error::AboveLimit { what: Limit::MessageBytes, asked: packet as u64, limit: max as u64 })
        } else if memory.len() < Self::memory(packet, 4) {
            Some(below(Limit::PoolBytes, memory.len(), Self::memory(packet, 4)))
        } else if granted.recv < Self::receives() {
            Some(below(Limit::RecvDepth, granted.recv as usize, Self::RECEIVES))
        } else if memory.pd() != endpoint.pd_id() {
            Some(Error::ForeignDomain { of: memory.pd(), domain: endpoint.pd_id() })
        } else {
            None
        };
        if let Some(error) = error {
            return Err(Refused::new((endpoint, memory), error));
        }
        let (start, generation) = if options.near_wrap { (u32::MAX - 2, u16::MAX - 1) } else { (0, 0) };
        let mut this = Self {
            packet,
            start,
            gathers: granted.send_buffers >= 2,
            endpoint,
            peers: Slab::new(generation),
            unposted: None,
            sends: Slab::new(generation),
            recvs: Deque::new(),
            inbound: Slab::new(generation),
            windows: Slab::new(generation),
            slots: Slots::new(),
            attended: Deque::new(),
            news: Deque::new(),
            ended_sends: Deque::new(),
            ended_inbound: Deque::new(),
            next: None,
            wake_at: 0,
            hello_at: u64::MAX,
            probe_at: 0,
            wants_receive: false,
            wants_place: false,
            counters: Counters::default(),
            now: 0,
            dead: None,
        };
        // Long enough.
        let Ok((receives, mut rest)) = memory.split_at(Self::RECEIVES * packet) else { return Ok(this) };
        this.unposted = Some(receives);
        while let Ok((slot, after)) = rest.split_at(packet) {
            rest = after;
            if this.slots.add(slot).is_err() {
                break;
            }
        }
        Ok(this)
    }

    /// Adds a peer, which the endpoint resolved, and greets it: [`Event::Up`] when it answered. Messages may be sent to it
    /// before. A peer at the same address is in its former life, and lost.
    ///
    /// # Errors
    /// [`Why::Full`], [`Why::Device`] after the queue pair failed; with the peer.
    #[allow(clippy::type_complexity)] // a peer and why
    pub fn add(&mut self, peer: Peer<Mutual, K::Features>) -> Result<PeerId, Refused<Peer<Mutual, K::Features>, Why>> {
        if let Some(why) = self.dead {
            return Err(Refused::new(peer, why));
        }
        let same = |state: &PeerState<K::Features>| state.peer.gid() == peer.gid() && state.peer.qpn() == peer.qpn();
        let old =
            self.peers.iter().find(|(_, state)| same(state) && !state.removed).map(|(id, state)| (id, state.life));
        if let (Some((id, old)), Some(new)) = (old, peer.incarnation()) {
            self.lose(id, Why::Restarted { old, new });
            self.forget(id);
        }
        let state = PeerState::new(peer, self.start);
        match self.peers.insert(state) {
            Ok(id) => {
                self.post_slots();
                self.attend(id);
                Ok(PeerId(id))
            }
            Err(state) => Err(Refused::new(state.peer, Why::Full { limit: PEERS })),
        }
    }

    /// Lets go of a peer: what is under way with it fails with [`Why::Removed`], and its name is good no more once that was
    /// told.
    pub fn remove(&mut self, peer: PeerId) {
        self.lose(peer.0, Why::Removed);
        self.forget(peer.0);
    }

    /// Whether a peer answered, or why it is lost.
    ///
    /// # Errors
    /// Why it is lost; [`Why::UnknownPeer`].
    pub fn is_up(&self, peer: PeerId) -> Result<bool, Why> {
        match self.peers.get(peer.0).map(|state| state.standing) {
            Some(Standing::Up) => Ok(true),
            Some(Standing::Greeting) => Ok(false),
            Some(Standing::Lost(why)) => Err(why),
            None => Err(Why::UnknownPeer),
        }
    }

    /// What RDMA both sides have, once the peer answered.
    pub fn features(&self, peer: PeerId) -> Option<PeerFeatures> {
        self.peers.get(peer.0).filter(|state| state.is_up()).map(|state| state.features)
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The endpoint: for grants, and what can be asked of it.
    pub fn endpoint(&self) -> &Endpoint<P, K> {
        &self.endpoint
    }

    /// Sends and writes under way, receives and reads under way, and receives that wait for a message.
    pub fn under_way(&self) -> [usize; 3] {
        [self.sends.len() + usize::from(self.slots.messages), self.inbound.len(), self.recvs.len()]
    }

    /// Whether there is no place for another send.
    fn is_full(&self) -> bool {
        self.sends.len() + usize::from(self.slots.messages) >= OPERATIONS
    }

    /// What this side can do by itself.
    fn own_features(&self) -> PeerFeatures {
        let caps = self.endpoint.provider().caps();
        let has = |kind, cap, feature| if kind && caps.contains(cap) { feature } else { PeerFeatures::empty() };
        has(K::READS, crate::Caps::RDMA_READ, PeerFeatures::READ)
            | has(K::WRITES, crate::Caps::RDMA_WRITE, PeerFeatures::WRITE)
    }

    fn life(&self) -> u32 {
        self.endpoint.incarnation().0 as u32
    }

    /// Has a peer served.
    fn attend(&mut self, id: Id) {
        if let Some(state) = self.peers.get_mut(id)
            && !state.attended
        {
            // As many as peers: names of those that are gone leave when they are served.
            state.attended = self.attended.push_back(id).is_ok();
            self.wake_at = 0;
        }
    }

    /// Puts a message, or a put, that there is room for at the end of its peer's queue, and sends what can be.
    fn enqueue(&mut self, send: Outbound<S>) {
        let peer = send.peer;
        let Some(id) = self.insert_send(send) else { return };
        let Some(state) = self.peers.get_mut(peer) else { return };
        match state.queue {
            [Some(head), Some(tail)] => {
                state.queue = [Some(head), Some(id)];
                if let Some(last) = self.sends.get_mut(tail) {
                    last.next = Some(id);
                }
            }
            _ => state.queue = [Some(id); 2],
        }
        // Else an answer, or credit, has it served.
        if self.peers.get(peer).is_some_and(|state| state.is_up()) && self.send_queued(peer) {
            self.attend(peer);
        }
    }

    /// Posts the slots of one more peer, if there are more peers than ever.
    fn post_slots(&mut self) {
        let of_one = (CREDITS as usize + UNCOUNTED) * self.packet;
        let Some(unposted) = self.unposted.take() else { return };
        let posted = Self::RECEIVES * self.packet - unposted.len();
        if self.peers.len() * of_one <= posted {
            self.unposted = Some(unposted);
            return;
        }
        let Ok((mut rest, unposted)) = unposted.split_at(of_one) else { return };
        self.unposted = Some(unposted);
        while let Ok((slot, after)) = rest.split_at(self.packet) {
            rest = after;
            self.repost(slot);
        }
    }

    fn lookup(&self, peer: PeerId) -> Result<&PeerState<K::Features>, Why> {
        let state = self.peers.get(peer.0).ok_or(Why::UnknownPeer)?;
        match state.standing {
            Standing::Lost(why) => Err(why),
            _ => Ok(state),
        }
    }
}

impl<P: Provider, K: Carries, S: AsRef<[u8]>, T: AsRef<[u8]> + AsMut<[u8]>, const PEERS: usize, const OPERATIONS: usize>
    Messages for Efa<P, K, S, T, PEERS, OPERATIONS>
{
    type Source = Memory<S>;
    type Target = Memory<T>;

    fn send(&mut self, to: PeerId, source: Memory<S>, token: Token) -> Result<(), Refused<Memory<S>, Why>> {
        if let Err(why) = self.lookup(to).and_then(|_| self.check_domain(&source)) {
            return Err(Refused::new(source, why));
        }
        if self.is_full() {
            return Err(Refused::new(source, Why::Full { limit: OPERATIONS }));
        }
        let Some(state) = self.peers.get_mut(to.0) else { return Err(Refused::new(source, Why::UnknownPeer)) };
        let sequence = state.next_sequence;
        state.next_sequence = sequence.wrapping_add(1);
        let total = source.len();
        let len = total.saturating_add(packet::before_payload::<packet::Eager>());
        // The shortest way, if nothing is in it.
        if state.queue[0].is_none()
            && len <= state.packet
            && state.is_up()
            && state.data_credits() > 0
            && self.endpoint.can_post()
            && let Some(slot) = self.slots.take(len)
        {
            self.emit_message(to.0, sequence, slot, source, token);
            return Ok(());
        }
        let (what, total) = (Sends::Message(sequence), total as u64);
        self.enqueue(Outbound::new(to.0, token, what, Source::Memory(source), total, Stage::Queued));
        Ok(())
    }

    fn recv(&mut self, target: Memory<T>, token: Token) -> Result<(), Refused<Memory<T>, Why>> {
        if let Some(why) = self.dead {
            return Err(Refused::new(target, why));
        }
        if let Err(why) = self.check_domain(&target) {
            return Err(Refused::new(target, why));
        }
        if let Err((target, _)) = self.recvs.push_back((target, token)) {
            return Err(Refused::new(target, Why::Full { limit: OPERATIONS }));
        }
        if core::mem::take(&mut self.wants_receive) {
            self.attend_held();
        }
        Ok(())
    }

    fn poll(&mut self, now: u64) -> Option<Told<S, T>> {
        self.now = self.now.max(now);
        if let Some(event) = self.do_due() {
            return Some(event);
        }
        if let Some(event) = self.go_on() {
            return Some(event);
        }
        for _ in 0..POLLS {
            match self.endpoint.poll() {
                None => break,
                Some(work::Event::Received(message)) => {
                    if let Some(event) = self.arrived(message) {
                        return Some(event);
                    }
                }
                Some(work::Event::Sent(done)) => {
                    if let Some(event) = self.sent(done) {
                        return Some(event);
                    }
                }
                Some(event) => self.completed(event),
            }
            if self.wake_at == 0
                && let Some(event) = self.next_ended()
            {
                return Some(event);
            }
        }
        self.go_on().or_else(|| self.do_due())
    }

    fn fabric(&self) -> Fabric {
        Fabric::Efa
    }

    fn max_message(&self) -> u64 {
        u64::MAX
    }
}

impl<P: Provider, K: Carries, S, T, const PEERS: usize, const OPERATIONS: usize> fmt::Debug
    for Efa<P, K, S, T, PEERS, OPERATIONS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Efa")
            .field("endpoint", &self.endpoint)
            .field("peers", &self.peers.len())
            .field("sends", &self.sends.len())
            .field("receives", &self.recvs.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
