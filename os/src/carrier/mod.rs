//! The link of a software device over sockets: processes of one machine on one fabric.
//!
//! [`efa_core::soft::link`] makes frames and takes them; this carries them, in datagrams between sockets of the Unix
//! domain with abstract names, of which nothing is left when a process is killed.
//!
//! ```
//! use efa_core::Gid;
//! use efa_core::soft::{Config, Profile};
//! use efa_os::carrier::{self, Fabric, Look};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Each process: an address that is its alone, a device that has it, and what carries its frames.
//! let fabric = Fabric::new("doc", std::process::id())?;
//! let claim = fabric.claim(Gid::from_parts(0xFE80_0000_0000_0000, 1))?;
//! let random_bits = 0x1234_5678;
//! let (devices, mut carrier) = carrier::linked(Config::new(Profile::RDMA), vec![claim], random_bits)?;
//! // Whoever drives it: again and again, and no later than it says.
//! let worked = carrier.pass(Look::Frames);
//! assert!(!worked && carrier.wakes_in().is_none());
//! # Ok(())
//! # }
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `mod` | the carrier: frames from sockets to the device, and back |
//! | [`linked`] | the devices of a process, with their carrier |
//! | [`Fabric`], [`Claim`] | names, and who has which address |
//! | `peer` | one device elsewhere: its socket, and the frame that waits for room there |
//! | [`files`] | the sockets of the process, and closing them in a forked child |
//!
//! # Who drives it
//!
//! The caller, from one thread: [`Carrier::pass`] after each turn of the device, and while there is nothing to do it
//! waits until one of [`Carrier::sockets`] is ready, or for [`Carrier::wakes_in`], whichever comes first. A pass moves a
//! bounded number of frames and never waits.
//!
//! # An address has one owner
//!
//! [`Fabric::claim`] binds the address's name: while a process lives that did, nobody else can, and what is sent to an
//! address that nobody has is refused at once, so that [`SoftDevice::unreachable`] ends what waits for it. That is how a
//! killed process is seen.
//!
//! # Whoever takes no frames
//!
//! A socket's queue is short: ten datagrams or so. A frame that finds no room is kept, one for each such peer, and the
//! link is asked for frames to others only: they do not wait, and their sockets are their own. Room that comes
//! makes the peer's socket ready; besides, it is tried again after 50 µs, then later and later, up to 10 ms. Who took
//! none for a second gets none of the new ones: they are lost, as on a network, and sent again by the link.
//!
//! # What protects whom from whom
//!
//! Names hold a user's number, so that programs of different users do not meet by accident. Nothing more: any program
//! in the same network namespace, whoever runs it, can send frames to an address, claim one that is free, and so do what
//! any host of the fabric could do. What that is, [`efa_core::soft::link`] says: it takes an address that it cannot read
//! to speak for another, and a key to reach memory, but nothing is encrypted or signed. Programs in different network
//! namespaces, as most containers are, do not reach each other at all.

#![forbid(unsafe_code)]

mod fabric;
pub mod files;
mod linked;
mod peer;

use std::fmt;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use efa_core::Gid;
use efa_core::soft::SoftDevice;
use efa_core::soft::link::FRAME;

pub use fabric::{Claim, ClaimError, Fabric, FabricError};
pub use linked::{LinkedError, linked};
use peer::{Peer, Sent};

/// Frames that a pass takes from each socket, and that it sends.
const BATCH: usize = 32;
/// Devices elsewhere whose sockets are kept.
const PEERS: usize = 256;
/// Passes after a frame in which it looks for the next one each time, and after how many it looks otherwise.
const HOT: u32 = 64;
const COLD: u32 = 32;

/// What a socket is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// That there is something to read.
    Frames,
    /// That there is room.
    Room,
}

/// What a pass looks at, beside what the device has to send: each is a system call or more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Look {
    /// As when there is time for it: at the sockets that frames come to, each time while some come, and now and then besides.
    Sometimes,
    /// At the sockets that frames come to.
    Frames,
    /// At those that were full, too: one of the sockets is ready.
    Everywhere,
}

/// What became of frames, since the carrier was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Given to the system.
    pub sent: u64,
    /// Taken by the device.
    pub received: u64,
    /// Refused by the device: of strangers, or damaged.
    pub refused: u64,
    /// That found no room at first.
    pub held: u64,
    /// That could not be sent. The link sends again what matters.
    pub lost: u64,
    /// For an address that nobody had.
    pub unreachable: u64,
}

/// Carries the frames of one wire: see [`carrier`](crate::carrier).
pub struct Carrier {
    device: SoftDevice,
    claims: Vec<Claim>,
    fabric: Fabric,
    peers: Vec<Peer>,
    /// Addresses that the link is not asked for frames to.
    busy: Vec<Gid>,
    begun: Instant,
    /// Passes, for a measure of which peer was used last.
    passes: u64,
    /// Passes since there was a frame.
    since: u32,
    out: Box<[u8; FRAME]>,
    /// One byte longer than any frame: the system cuts what is longer.
    room: Vec<u8>,
    counts: Counts,
}

impl Carrier {
    /// Carries the frames of a device's wire, whose addresses these are, all on one fabric.
    ///
    /// # Panics
    /// If there is none.
    pub fn new(device: &SoftDevice, claims: Vec<Claim>) -> Self {
        let fabric = claims.first().expect("a carrier has an address: claim one").fabric().clone();
        Self {
            device: device.clone(),
            claims,
            fabric,
            peers: Vec::new(),
            busy: Vec::new(),
            begun: Instant::now(),
            passes: 0,
            since: COLD,
            out: Box::new([0; FRAME]),
            room: vec![0; FRAME + 1],
            counts: Counts::default(),
        }
    }

    /// Takes frames in, if it is to look for some, and sends those that are due; whether there were any. Where nothing
    /// is linked, a pass costs nearly nothing, but for that look.
    pub fn pass(&mut self, look: Look) -> bool {
        self.passes += 1;
        self.since = self.since.wrapping_add(1);
        let worked = self.moved(look);
        if worked {
            self.since = 0;
        }
        worked
    }

    #[inline]
    fn moved(&mut self, look: Look) -> bool {
        let looks = look >= Look::Frames || self.since < HOT || self.since.is_multiple_of(COLD);
        let mut worked = looks && self.receive();
        let due = self.device.next_timeout();
        let waits = self.is_waiting();
        if due.is_none() && !waits {
            return worked;
        }
        let now = self.now();
        if waits {
            worked |= self.retry(now, look == Look::Everywhere);
        }
        if due.is_some_and(|due| due <= now) {
            worked |= self.transmit(now);
        }
        worked
    }

    /// How long nothing is to be done, if no frame and no message comes before; none for as long as that.
    pub fn wakes_in(&self) -> Option<Duration> {
        let now = self.now();
        let retry = self.peers.iter().filter_map(Peer::retries_at).min();
        // What is due for somebody who is busy waits for room.
        let due = self.device.next_timeout().filter(|due| self.busy.is_empty() || *due > now);
        let next = [due, retry].into_iter().flatten().min()?;
        Some(Duration::from_micros(next.saturating_sub(now)))
    }

    /// Whether a frame waits for room at whom it is for.
    pub fn is_waiting(&self) -> bool {
        self.peers.iter().any(Peer::is_waiting)
    }

    /// What to wait for, beside the time: those from which frames come, and those that are full.
    pub fn sockets(&self) -> impl Iterator<Item = (BorrowedFd<'_>, Interest)> {
        let claims = self.frames().map(|socket| (socket, Interest::Frames));
        let full = self.peers.iter().filter(|peer| peer.is_waiting()).filter_map(Peer::socket);
        claims.chain(full.map(|socket| (socket, Interest::Room)))
    }

    /// Those from which frames come, which do not change.
    pub fn frames(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.claims.iter().map(|claim| claim.socket().as_fd())
    }

    /// What became of frames so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Microseconds.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn receive(&mut self) -> bool {
        let before = (self.counts.received, self.counts.refused);
        for claim in &self.claims {
            for _ in 0..BATCH {
                let len = match claim.socket().recv(&mut self.room) {
                    Ok(len) => len,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let now = self.begun.elapsed().as_micros() as u64;
                match self.device.receive(now, &self.room[..len]) {
                    Ok(()) => self.counts.received += 1,
                    Err(_) => self.counts.refused += 1,
                }
            }
        }
        before != (self.counts.received, self.counts.refused)
    }

    /// Tries again what found no room.
    fn retry(&mut self, now: u64, has_room: bool) -> bool {
        let mut worked = false;
        for nth in (0..self.peers.len()).rev() {
            let peer = &mut self.peers[nth];
            if !peer.is_waiting() {
                continue;
            }
            if let Some(sent) = peer.retry(&self.fabric, now, has_room) {
                worked = true;
                self.account(nth, sent);
            }
        }
        self.busy.clear();
        self.busy.extend(self.peers.iter().filter(|peer| peer.is_busy(now)).map(Peer::gid));
        worked
    }

    fn transmit(&mut self, now: u64) -> bool {
        for nth in 0..BATCH {
            let Some((gid, len)) = self.device.transmit_except(now, &mut self.out, &self.busy) else {
                return nth > 0;
            };
            let peer = self.peer(gid);
            let sent = self.peers[peer].send(&self.fabric, now, &self.out[..len], self.passes);
            if sent == Sent::Full {
                self.busy.push(gid);
            }
            self.account(peer, sent);
        }
        true
    }

    fn account(&mut self, nth: usize, sent: Sent) {
        match sent {
            Sent::Yes => self.counts.sent += 1,
            Sent::Full => self.counts.held += 1,
            Sent::Lost => self.counts.lost += 1,
            Sent::Nobody => {
                self.counts.unreachable += 1;
                let gid = self.forget(nth);
                self.device.unreachable(gid);
            }
        }
    }

    /// The place of a device elsewhere.
    fn peer(&mut self, gid: Gid) -> usize {
        if let Some(nth) = self.peers.iter().position(|peer| peer.gid() == gid) {
            return nth;
        }
        if self.peers.len() >= PEERS {
            // One that waits for room, too, with its frame: else whoever takes none could have all places.
            let oldest = self.peers.iter().enumerate().min_by_key(|(_, peer)| (peer.is_waiting(), peer.used()));
            if let Some((nth, _)) = oldest {
                self.forget(nth);
            }
        }
        self.peers.push(Peer::new(gid));
        self.peers.len() - 1
    }

    fn forget(&mut self, nth: usize) -> Gid {
        let gid = self.peers.swap_remove(nth).gid();
        self.busy.retain(|busy| *busy != gid);
        gid
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("fabric", &self.fabric)
            .field("claims", &self.claims)
            .field("peers", &self.peers.len())
            .field("busy", &self.busy)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
