//! Devices in other processes or on other hosts: the link of a wire, as frames in and frames out.
//!
//! A message whose address no device of this wire has goes to the link, if the wire was made with
//! [`Config::linked`](super::Config::linked). The link makes frames of it; a *carrier*, which is the caller's, takes
//! them to the wire that has the address, whose devices execute them and answer. The carrier may lose, repeat, delay
//! and reorder frames, as UDP does, but keeps each whole. Sockets, clocks and threads are not here: bytes and time go
//! in, bytes come out.
//!
//! ```text
//!   send queue            link                     carrier                link            receive queue, memory
//!   ----------  turn  ------------  transmit                receive  ------------  execute
//!    entries   ----->  operations  ---------->  request  ---------->   serving    --------->   completions
//!                        flights                                        slots
//!   completions <-----  settle     <----------  answer   <----------  answers due
//!                         receive                          transmit
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `frame`, `error` | the frames, field by field, and why one is refused |
//! | `channel` | each request once: the windows |
//! | `node`, `session` | two devices: their session, and what each is to send |
//! | `operations` | what waits for another wire |
//! | `datagrams` | UD: a frame each, in no session |
//! | `requester`, `service` | the two sides: from operations to frames, from frames to the responder |
//!
//! # What a carrier does
//!
//! It calls [`SoftDevice::receive`] with each frame that comes, [`SoftDevice::transmit`] until there is none to send,
//! and both again no later than [`SoftDevice::next_timeout`]. `now` is in microseconds of any clock that does not run
//! backwards. One device of a wire is enough for all of them. Where the carrier learns that nobody is at an address,
//! [`SoftDevice::unreachable`] ends what waits for it; where somebody takes no more for now,
//! [`SoftDevice::transmit_except`] gives what is for others.
//!
//! ```
//! use efa_core::connect::connect;
//! use efa_core::qp::Depth;
//! use efa_core::soft::link::FRAME;
//! use efa_core::soft::{Config, Profile, SoftDevice};
//! use efa_core::work::Event;
//! use efa_core::{Context, Gid, Token};
//!
//! # fn main() -> Result<(), efa_core::Error> {
//! // Two wires, as in two processes: each has an address, and random bits of its own.
//! let wire = |n: u64| {
//!     let gid = Gid::from_parts(0xFE80_0000_0000_0000, n);
//!     SoftDevice::new(Config::new(Profile::RDMA).gid(gid).linked(0x1234_5678 + n))
//! };
//! let wires = [wire(1), wire(2)];
//! let [mut a, mut b] = connect(wires.clone().map(Context::open), Depth::new(8, 8))?;
//! b.endpoint.post_recv(b.pd.register(vec![0; 64])?.1, Token(1))?;
//! a.endpoint.post(a.peer.send_inline(b"hello"), Token(2))?;
//!
//! let mut frame = [0; FRAME];
//! let (mut sent, mut received) = (false, false);
//! for now in (0..).step_by(100).take(1000) {
//!     sent |= matches!(a.endpoint.poll(), Some(Event::Sent(_)));
//!     received |= matches!(b.endpoint.poll(), Some(Event::Received(message)) if message.len == 5);
//!     // The carrier: here, a loop.
//!     for (from, to) in [(&wires[0], &wires[1]), (&wires[1], &wires[0])] {
//!         while let Some((_gid, len)) = from.transmit(now, &mut frame) {
//!             to.receive(now, &frame[..len]).expect("a frame");
//!         }
//!     }
//! }
//! assert!(sent && received);
//! # Ok(())
//! # }
//! ```
//!
//! # How a message travels
//!
//! A SEND is one frame. A write is a train of parts of up to [`PAYLOAD`] bytes, as packets are; the responder checks
//! the whole range before each. Its immediate comes with the last part, which goes when all others are answered. A read
//! is a train of requests, each answered by one frame of data. Local memory is read when a frame is made, also when it
//! is made again, and written when data arrives. An operation that is flushed is forgotten: what comes for it later
//! finds nothing; what went out before may still be executed, as a packet of hardware may be.
//!
//! Each request is executed once, however often it comes, so that no late part touches memory after its write's
//! completion (R16) and no SEND takes two receives. A read is executed whenever its request comes, since only data
//! that arrives counts.
//!
//! A datagram of a UD queue pair is one frame, sent once; it is done when it was copied. Who has no receive for it, or
//! no such queue pair, drops it.
//!
//! # Nobody waits for somebody who waits
//!
//! Requests wait for room in the requester's window, which answers make. Answers wait for nothing: there is a place for
//! each from the moment that its request is admitted, and `transmit` sends them before requests. So two wires with full
//! windows both answer, and both go on. A message that finds no receive is answered too (its window place is free
//! again) and tried later, as often as its queue pair's retry count says.
//!
//! # Times and limits
//!
//! | what | how much |
//! |---|---|
//! | a request without an answer is sent again | after 20 ms, then twice as long each time, at most 320 ms |
//! | a message that found no receive is tried again | after 0.5 ms, then twice as long each time, at most 32 ms |
//! | who says nothing for [`Config::patience`](super::Config::patience) | ends what waits with 13 if it was heard before, else 15 |
//! | unanswered requests to one device | up to 64, none 64 behind the oldest; half as many when one is lost, down to 2, and one more with each answer |
//! | operations on their way | as many as the wire has packets, local ones included |
//! | devices elsewhere | 256, counted once for each device here that talks to them; beyond, the one silent for the longest is forgotten, and the first message of one that was just told its session may end with 13; where operations to all of them wait for an answer, those to the next one wait for one of these to end |
//! | datagrams waiting to be sent | 64; more wait in their send queues |
//! | hellos and resets waiting to be sent | 32; beyond, the oldest is dropped as if lost |
//!
//! # Who is believed
//!
//! Frames are parsed whole or refused, and touch only memory that their keys open. To be acted on, a frame must name
//! the session that this wire told to the address that the frame is of: who cannot read what is sent to an address
//! cannot speak for it; a datagram alone needs none, but its queue key, as on any network. Nothing is kept of who only says
//! hello. Who can read the carrier can do anything that the
//! addresses there may do: nothing is encrypted or signed.

#![forbid(unsafe_code)]

mod channel;
mod datagrams;
mod error;
mod frame;
mod node;
mod operations;
mod requester;
mod service;
mod session;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use error::{Field, FrameError};
pub use frame::{Answers, Body, FRAME, Frame, PAYLOAD, Request, UdMessage};
use node::Node;
use operations::{OpId, Operation, Operations};
pub(super) use session::Secret;

use super::SoftDevice;
use super::tables::{Packet, State};
use crate::Gid;

/// Devices elsewhere that are known at once, once for each device here that knows them; under Miri, as of other tables, a sixteenth.
const NODES: usize = if cfg!(miri) { 16 } else { 256 };
/// Short frames that wait to be sent.
const REPLIES: usize = 32;

/// Datagrams that wait to be sent.
const DATAGRAMS: usize = 64;

/// The link of a wire.
#[derive(Debug)]
pub(super) struct Link {
    secret: Secret,
    patience: u64,
    /// The first sequence number of each session.
    first: u64,
    nodes: Vec<Node>,
    /// Whose turn it is to send.
    turn: usize,
    operations: Operations,
    replies: VecDeque<Frame<'static>>,
    /// Each with the device that sends it.
    datagrams: VecDeque<(u8, Gid, Vec<u8>)>,
    /// Whether a datagram goes before a node's frame.
    datagram_first: bool,
    /// Sessions that ended; and when the last node was forgotten, which is the life of those that are not known.
    ended: u64,
    vacant: u64,
}

impl Link {
    pub(super) fn new(secret: Secret, patience: u64, near_wrap: u16) -> Self {
        Self {
            secret,
            patience,
            first: 0u64.wrapping_sub(near_wrap.into()),
            nodes: Vec::new(),
            turn: 0,
            operations: Operations::default(),
            replies: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagram_first: false,
            ended: 0,
            vacant: 0,
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn find(&self, nic: u8, gid: &Gid) -> Option<usize> {
        self.nodes.iter().position(|node| node.nic == nic && node.gid == *gid)
    }

    /// Our number for a device elsewhere that is not known.
    fn stranger(&self, nic: u8, gid: &Gid) -> u64 {
        self.secret.session(nic, gid, self.vacant)
    }

    /// The node of a device elsewhere; `None` if all are busy.
    fn enter(&mut self, nic: u8, ours: Gid, gid: Gid) -> Option<usize> {
        if let Some(index) = self.find(nic, &gid) {
            return Some(index);
        }
        // Before another is forgotten, which changes it: it was told this number.
        let session = self.stranger(nic, &gid);
        let index = if self.nodes.len() < NODES { self.nodes.len() } else { self.evict()? };
        let node = Node::new(nic, ours, gid, session, self.first);
        match self.nodes.get_mut(index) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        Some(index)
    }

    /// Forgets the node that was silent for the longest and has nothing of ours; its place.
    fn evict(&mut self) -> Option<usize> {
        let idle = self.nodes.iter().enumerate().filter(|(_, node)| node.operations == 0);
        let (index, _) = idle.min_by_key(|(_, node)| node.heard_at)?;
        self.say_reset(index);
        self.end(index);
        // The numbers of all that are not known change, so that no late frame begins that session again.
        self.vacant = self.ended;
        Some(index)
    }

    /// Tells the other side that its session is about to end here, lest it begins something in it.
    fn say_reset(&mut self, index: usize) {
        let open = self.nodes.get(index).filter(|node| node.theirs.is_some());
        if let Some(frame) = open.map(|node| node.frame(Body::Reset)) {
            self.reply(frame);
        }
    }

    /// Ends a session. The next has another number.
    fn end(&mut self, index: usize) {
        self.ended += 1;
        let (secret, life, first) = (self.secret, self.ended, self.first);
        let Some(node) = self.nodes.get_mut(index) else { return };
        let session = secret.session(node.nic, &node.gid, life);
        node.close(session, first);
    }

    /// Queues a short frame. The oldest goes if there are too many: it may be for somebody who takes none.
    fn reply(&mut self, frame: Frame<'static>) {
        if self.replies.contains(&frame) {
            return;
        }
        if self.replies.len() == REPLIES {
            self.replies.pop_front();
        }
        self.replies.push_back(frame);
    }

    /// Takes an operation out, with all that is queued of it.
    fn remove(&mut self, id: OpId) -> Option<Operation> {
        let operation = self.operations.remove(id)?;
        if let Some(node) = self.nodes.get_mut(usize::from(operation.node)) {
            node.left(id);
        }
        Some(operation)
    }

    /// Takes in a message; gives it back if there is no place for its node.
    fn depart(&mut self, nic: u8, ours: Gid, gid: Gid, packet: Packet) -> Result<(), Packet> {
        let Some(index) = self.enter(nic, ours, gid) else { return Err(packet) };
        let packet = Packet { done: 0, waiting: false, ..packet };
        let operation = Operation {
            packet,
            node: index as u16,
            op: 0,
            length: 0,
            needs_receive: false,
            pending: 0,
            all_sent: false,
            gated: false,
        };
        let id = self.operations.insert(operation);
        if let Some(node) = self.nodes.get_mut(index) {
            node.joined(id, &mut self.operations);
        }
        Ok(())
    }

    /// Takes out the first operation from a place on that `which` picks; moves the place behind it.
    fn take(&mut self, from: &mut usize, which: impl Fn(&Operation) -> bool) -> Option<Packet> {
        let (index, id) = self.operations.find(*from, which)?;
        *from = index + 1;
        self.remove(id).map(|operation| operation.packet)
    }
}

/// The link: frames in, frames out. See [`link`](crate::soft::link).
impl SoftDevice {
    /// Takes in a frame that the carrier brought for a device of this wire.
    ///
    /// # Errors
    /// [`FrameError`]: nothing was done. That a frame is late or came before is no error.
    pub fn receive(&self, now: u64, frame: &[u8]) -> Result<(), FrameError> {
        self.wire().lock().link_receive(now, frame)
    }

    /// Writes the next frame to send, of any device of this wire; gives its addressee and its length. `None` if there
    /// is none for now.
    ///
    /// The frame may be dropped: it is as if it was lost. [`Provider::progress`](crate::Provider::progress), which
    /// every poll calls, is what brings messages to the link.
    pub fn transmit(&self, now: u64, frame: &mut [u8; FRAME]) -> Option<(Gid, usize)> {
        self.transmit_except(now, frame, &[])
    }

    /// [`SoftDevice::transmit`] of what is not for `busy` addresses: those that the carrier cannot give more to for now.
    /// Nothing of theirs is lost, and nobody else waits for them.
    pub fn transmit_except(&self, now: u64, frame: &mut [u8; FRAME], busy: &[Gid]) -> Option<(Gid, usize)> {
        self.wire().lock().link_transmit(now, frame, busy)
    }

    /// When to call [`SoftDevice::transmit`] if no frame comes before; a time that is past says at once. `None` if
    /// nothing waits.
    pub fn next_timeout(&self) -> Option<u64> {
        self.wire().lock().link_timeout()
    }

    /// Nobody is at an address, by the carrier's word: what waits for it ends, with status 13 if it was heard before,
    /// else 15 (H19).
    pub fn unreachable(&self, gid: Gid) {
        self.wire().lock().link_unreachable(gid);
    }
}

/// Takes out the first that is for nobody who is busy.
fn take_ready<T>(queue: &mut VecDeque<T>, busy: &[Gid], to: impl Fn(&T) -> Gid) -> Option<T> {
    let nth = queue.iter().position(|one| !busy.contains(&to(one)))?;
    queue.remove(nth)
}

impl State {
    /// Whether what is for nobody here goes to the link.
    #[inline]
    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Messages in the link.
    #[inline(always)]
    pub(super) fn departed(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.in_flight())
    }

    fn link_timeout(&self) -> Option<u64> {
        let link = self.link.as_ref()?;
        if !link.replies.is_empty() || !link.datagrams.is_empty() {
            return Some(0);
        }
        // What is unplugged sends nothing; what it is to send for operations of ours ends instead.
        let awake = link.nodes.iter().filter(|node| node.operations > 0 || self.is_up(node.nic));
        awake.filter_map(Node::wakes_at).min()
    }
}
