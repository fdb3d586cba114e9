//! All that a wire and its devices know, behind one lock.
//!
//! | table | found by |
//! |---|---|
//! | queue pairs | index; number through `numbers`, which each device has of its own |
//! | regions | low bits of either key, the remote one mixed with a secret |
//! | address handles | low bits of their number; the upper ones change at each reuse |
//! | packets | `order`, a permutation: positions from `head` on are in flight, the others name free packets |

#![forbid(unsafe_code)]

use super::channel::Channel;
use super::completion::Arrival;
use super::faults::{Overruns, VERBS};
use super::hostile::Trial;
use super::memory::{Registered, Span};
use super::queue::Cq;
use super::ring::{Doorbell, Ring};
use super::slab::Slab;
use super::tally::{Attached, Tally};
use super::{Config, Counters};
use crate::entry::Quad;
use crate::flags::{Access, SendOps};
use crate::qp::{QpState, QpType};
use crate::status::CompletionStatus as Status;
use crate::{Ahn, Gid, PdId, Registrations};

/// Devices on one wire.
pub(super) const NICS: usize = 8;

const MR_BITS: u32 = 14;
const AH_BITS: u32 = 10;
const MR_GENERATIONS: u16 = (1 << (24 - MR_BITS)) - 1;
const AH_GENERATIONS: u16 = 1 << (16 - AH_BITS);
/// Regions that keys can tell apart.
pub(super) const MAX_MR: usize = 1 << MR_BITS;
/// Address handles that numbers can tell apart; the last is left out, so that none is 0xFFFF.
pub(super) const MAX_AH: usize = (1 << AH_BITS) - 1;
/// Queue pairs.
pub(super) const MAX_QP: usize = 1 << 14;

/// The tables, empty, as storage or heap provide them.
#[derive(Debug)]
pub(super) struct Slabs {
    pub(super) pds: Slab<Option<Pd>>,
    pub(super) cqs: Slab<Option<Cq>>,
    pub(super) qps: Slab<QpEntry>,
    pub(super) numbers: Slab<Number>,
    pub(super) live: Slab<Option<Live>>,
    pub(super) mrs: Slab<MrEntry>,
    pub(super) ahs: Slab<AhEntry>,
    pub(super) packets: Slab<Packet>,
    pub(super) order: Slab<u16>,
    pub(super) tallies: Slab<Option<Tally>>,
    pub(super) channels: Slab<Option<Channel>>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) tables: Slabs,
    pub(super) config: Config,
    pub(super) nics: [Nic; NICS],
    pub(super) nic_count: usize,
    pub(super) live_count: usize,
    pub(super) head: usize,
    pub(super) in_flight: usize,
    pub(super) round: u32,
    /// Counts whatever the device does.
    pub(super) steps: u32,
    /// Whether messages need more than to be delivered, and completions more than to be written.
    pub(super) hostile: bool,
    pub(super) watching: bool,
    /// Somebody is to be woken when the lock is free.
    pub(super) wakes: bool,
    /// For messages to devices that are not on this wire.
    #[cfg(feature = "alloc")]
    pub(super) link: Option<alloc::boxed::Box<super::link::Link>>,
    rng: u64,
    rkey_secret: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Nic {
    pub(super) gid: Gid,
    pub(super) up: bool,
    /// The devices of the wire that ever answered this one, as bits.
    pub(super) heard: u8,
    pub(super) counters: Counters,
    /// Operations taken in by a hostile wire, and calls of each verb.
    pub(super) operations: u32,
    pub(super) calls: [u32; VERBS],
    /// The number after the last one given.
    pub(super) next_number: u16,
}

#[derive(Debug)]
pub(super) struct Pd {
    pub(super) nic: u8,
    pub(super) id: PdId,
    pub(super) handles: usize,
    /// The address handle that resolves each device of the wire here (R04).
    pub(super) resolves: [Ahn; NICS],
    pub(super) registrations: Registrations,
}

/// A queue pair number of one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// Index and one; 0 if free.
    pub(super) qp: u16,
    pub(super) generation: u16,
    /// A queue pair had it before.
    pub(super) used: bool,
    /// The fourth quad of the last entry that this one posted: the upper bits of its request id.
    pub(super) last: Quad,
}

/// What is looked at in each round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) doorbell: Doorbell,
    pub(super) qp: u16,
    /// The doorbell up to which entries were fetched.
    pub(super) seen: u16,
    /// In ERR: receives are flushed too.
    pub(super) flushing: bool,
}

/// A queue pair's place: busy until the handle is gone, which may still read its slots after the queue pair ended.
#[derive(Debug)]
pub(super) struct QpEntry {
    pub(super) qp: Option<Qp>,
    pub(super) busy: bool,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) nic: u8,
    pub(super) qp_type: QpType,
    pub(super) qpn: u16,
    pub(super) pd: u16,
    pub(super) send_cq: u16,
    pub(super) recv_cq: u16,
    /// Which of their rings its sends and receives complete in.
    pub(super) sub_cqs: [u8; 2],
    pub(super) state: QpState,
    pub(super) qkey: u32,
    pub(super) ops: SendOps,
    pub(super) unsolicited: bool,
    /// Unsolicited arrivals not known to be read: counted only if overruns are.
    pub(super) arrivals: u32,
    pub(super) inline: u16,
    pub(super) inline_write: bool,
    /// Completions of sends repeat request ids of 64 bits.
    pub(super) req_id_64: bool,
    pub(super) rnr_retry: u8,
    pub(super) send: Ring,
    pub(super) send_doorbell: Doorbell,
    /// Send entries taken from the ring, and those completed; both free-running.
    pub(super) fetched: u16,
    /// It was reset: what phase the driver writes from then on is not known, since libefa goes on with the one it had.
    pub(super) restarted: bool,
    pub(super) completed: u16,
    /// The fourth quad of the last one taken: the upper bits of its request id.
    pub(super) last: Quad,
    pub(super) recv: Ring,
    pub(super) recv_doorbell: Doorbell,
    pub(super) send_sge: u8,
    pub(super) recv_sge: u8,
    /// Receive descriptors taken from the ring, free-running.
    pub(super) taken: u16,
    /// Arrivals still to come whose sender is not told.
    pub(super) strangers: u16,
    /// It died with its device's program: its number is not its own any more.
    pub(super) dead: bool,
    pub(super) counters: Attached,
}

#[derive(Debug)]
pub(super) struct MrEntry {
    pub(super) generation: u16,
    pub(super) mr: Option<Mr>,
    pub(super) busy: bool,
}

#[derive(Debug)]
pub(super) struct Mr {
    pub(super) nic: u8,
    pub(super) pd: u16,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
    pub(super) access: Access,
    pub(super) memory: Registered,
}

#[derive(Debug)]
pub(super) struct AhEntry {
    pub(super) generation: u8,
    pub(super) ah: Option<Ah>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ah {
    pub(super) nic: u8,
    pub(super) pd: u16,
    pub(super) gid: Gid,
}

/// How a send entry begins: its first 32 bytes.
pub(super) type Meta = [Quad; 4];

/// A send entry between its queue and its completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// The second half of those of 64 bytes is zero.
    pub(super) entry: [Quad; 16],
    pub(super) qp: u16,
    /// Times that it found no receive.
    pub(super) attempts: u8,
    pub(super) waiting: bool,
    /// The round in which a waiting one is tried again.
    pub(super) retry_at: u32,
    /// How far an RDMA is: bytes moved, or moves if it goes in pieces.
    pub(super) done: u32,
    /// Of a hostile wire only.
    pub(super) trial: Trial,
}

impl Number {
    pub(super) const FREE: Self = Self { qp: 0, generation: 0, used: false, last: 0 };
}

impl QpEntry {
    pub(super) const FREE: Self = Self { qp: None, busy: false };
}

impl MrEntry {
    pub(super) const FREE: Self = Self { generation: 0, mr: None, busy: false };
}

impl AhEntry {
    pub(super) const FREE: Self = Self { generation: 0, ah: None };
}

impl Packet {
    pub(super) const FREE: Self =
        Self { entry: [0; 16], qp: 0, attempts: 0, waiting: false, retry_at: 0, done: 0, trial: Trial::NONE };

    #[inline(always)]
    pub(super) fn meta(&self) -> Meta {
        let [first, second, third, fourth, ..] = self.entry;
        [first, second, third, fourth]
    }

    /// What stands in the entry from a quad on.
    pub(super) fn inline_bytes(&self, from: usize) -> [u8; 96] {
        let mut bytes = [0; 96];
        for (chunk, quad) in bytes.chunks_exact_mut(8).zip(self.entry.iter().skip(from)) {
            chunk.copy_from_slice(&quad.to_le_bytes());
        }
        bytes
    }
}

/// Begins what is counted up so many steps before it wraps.
fn near_wrap(tables: &mut Slabs, steps: u16) {
    for number in tables.numbers.all_mut() {
        number.generation = 0u16.wrapping_sub(steps);
    }
    for entry in tables.mrs.all_mut() {
        entry.generation = MR_GENERATIONS - steps.min(MR_GENERATIONS);
    }
    for entry in tables.ahs.all_mut() {
        entry.generation = (AH_GENERATIONS - steps.clamp(1, AH_GENERATIONS)) as u8;
    }
}

impl State {
    pub(super) fn new(mut tables: Slabs, config: Config) -> Self {
        for (index, place) in tables.order.all_mut().iter_mut().enumerate() {
            *place = index as u16;
        }
        let nic = Nic {
            gid: Gid([0; 16]),
            up: false,
            heard: 0,
            counters: Counters::default(),
            operations: 0,
            calls: [0; VERBS],
            next_number: 0,
        };
        if let Some(steps) = config.faults.near_wrap {
            near_wrap(&mut tables, steps);
        }
        let mut state = Self {
            tables,
            config,
            nics: [nic; NICS],
            nic_count: 0,
            live_count: 0,
            head: 0,
            in_flight: 0,
            round: 0u32.wrapping_sub(config.faults.near_wrap.unwrap_or(0).into()),
            steps: 0,
            hostile: config.faults.on_wire(),
            watching: config.faults.overruns != Overruns::Unseen,
            wakes: false,
            #[cfg(feature = "alloc")]
            link: None,
            rng: config.seed,
            rkey_secret: 0,
        };
        #[cfg(feature = "alloc")]
        state.open_link();
        state.rkey_secret = state.random() as u32;
        state
    }

    /// Makes the link, if there is to be one. What is random comes from its life too: two lives of a program differ.
    #[cfg(feature = "alloc")]
    fn open_link(&mut self) {
        let Some(life) = self.config.life else { return };
        let secret = super::link::Secret::new(life, self.config.seed);
        let near_wrap = self.config.faults.near_wrap.unwrap_or(0);
        self.link = Some(alloc::boxed::Box::new(super::link::Link::new(secret, self.config.patience, near_wrap)));
        self.rng = secret.bits();
    }

    /// The next random bits (splitmix64).
    #[inline(always)]
    pub(super) fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.rng;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    #[inline(always)]
    pub(super) fn qp(&self, index: u16) -> Option<&Qp> {
        self.tables.qps.get(usize::from(index))?.qp.as_ref()
    }

    #[inline(always)]
    pub(super) fn qp_mut(&mut self, index: u16) -> Option<&mut Qp> {
        self.tables.qps.get_mut(usize::from(index))?.qp.as_mut()
    }

    #[inline(always)]
    pub(super) fn pd(&self, index: u16) -> Option<&Pd> {
        self.tables.pds.get(usize::from(index))?.as_ref()
    }

    pub(super) fn pd_mut(&mut self, index: u16) -> Option<&mut Pd> {
        self.tables.pds.get_mut(usize::from(index))?.as_mut()
    }

    pub(super) fn cq_mut(&mut self, index: u16) -> Option<&mut Cq> {
        self.tables.cqs.get_mut(usize::from(index))?.as_mut()
    }

    /// The device's counters; of the first for a device that is not there.
    #[inline(always)]
    pub(super) fn counters(&mut self, nic: u8) -> &mut Counters {
        &mut self.nics[usize::from(nic) % NICS].counters
    }

    /// The device at an address, if it is on the wire.
    #[inline(always)]
    pub(super) fn nic_at(&self, gid: &Gid) -> Option<u8> {
        self.nics.iter().take(self.nic_count).position(|nic| nic.gid == *gid).map(|index| index as u8)
    }

    #[inline(always)]
    pub(super) fn number_index(&self, nic: u8, qpn: u16) -> usize {
        usize::from(nic) * self.tables.qps.len() + usize::from(qpn)
    }

    /// The queue pair of a number.
    #[inline(always)]
    pub(super) fn qp_of(&self, nic: u8, qpn: u16) -> Option<u16> {
        if usize::from(qpn) >= self.tables.qps.len() {
            return None;
        }
        self.tables.numbers.get(self.number_index(nic, qpn))?.qp.checked_sub(1)
    }

    /// The address handle of a number, if it is this device's and domain's.
    #[inline(always)]
    pub(super) fn ah(&self, nic: u8, pd: u16, number: u16) -> Option<&Ah> {
        let entry = self.tables.ahs.get(usize::from(number) & MAX_AH)?;
        let ah = entry.ah.as_ref()?;
        (u16::from(entry.generation) == number >> AH_BITS && ah.nic == nic && ah.pd == pd).then_some(ah)
    }

    /// Bytes that a local key names, if the domain has them with these rights.
    #[inline(always)]
    pub(super) fn local(&self, nic: u8, pd: u16, lkey: u32, addr: u64, len: u32, access: Access) -> Option<Span<'_>> {
        let mr = self.tables.mrs.get(lkey as usize % MAX_MR)?.mr.as_ref()?;
        let may = mr.lkey == lkey && mr.nic == nic && mr.pd == pd && mr.access.contains(access);
        if may { mr.memory.span(addr, len) } else { None }
    }

    /// Bytes that a remote key names, if the responder's domain gives them to peers.
    #[inline(always)]
    pub(super) fn remote(&self, nic: u8, pd: u16, rkey: u32, addr: u64, len: u32, access: Access) -> Option<Span<'_>> {
        let mr = self.tables.mrs.get((rkey ^ self.rkey_secret) as usize % MAX_MR)?.mr.as_ref()?;
        let may = mr.rkey == rkey && mr.nic == nic && mr.pd == pd && mr.access.contains(access);
        if may { mr.memory.span(addr, len) } else { None }
    }

    /// New keys for the region at `index`: a local one that no earlier region there had of late, a random remote one.
    pub(super) fn keys(&mut self, index: usize) -> (u32, u32) {
        let random = self.random() as u32;
        let rkey = (random << MR_BITS | index as u32) ^ self.rkey_secret;
        let Some(entry) = self.tables.mrs.get_mut(index) else { return (0, rkey) };
        entry.generation = entry.generation % MR_GENERATIONS + 1;
        (u32::from(entry.generation) << MR_BITS | index as u32, rkey)
    }

    /// The number of the address handle at `index`.
    pub(super) fn ahn(&self, index: usize) -> Ahn {
        let generation = self.tables.ahs.get(index).map_or(0, |entry| entry.generation);
        Ahn(u16::from(generation) << AH_BITS | index as u16)
    }

    /// Retires the number of the address handle at `index`.
    pub(super) fn next_ahn(&mut self, index: usize) {
        if let Some(entry) = self.tables.ahs.get_mut(index) {
            entry.generation = (entry.generation + 1) % AH_GENERATIONS as u8;
        }
    }

    /// Which address handle of a domain resolves a device of the wire: found anew.
    pub(super) fn resolve(&mut self, pd: u16, gid: Gid) {
        let Some(nic) = self.nic_at(&gid) else { return };
        let found =
            self.tables.ahs.all().iter().position(|entry| entry.ah.is_some_and(|ah| ah.pd == pd && ah.gid == gid));
        let ahn = found.map_or(Ahn::UNKNOWN, |index| self.ahn(index));
        if let Some(place) = self.pd_mut(pd).and_then(|pd| pd.resolves.get_mut(usize::from(nic))) {
            *place = ahn;
        }
    }

    /// The packet at a place of the order.
    #[inline(always)]
    pub(super) fn place(&self, nth: usize) -> usize {
        let place = self.head + nth;
        let all = self.tables.order.len();
        if place >= all { place - all } else { place }
    }

    #[inline(always)]
    pub(super) fn packet_at(&self, place: usize) -> Option<&Packet> {
        self.tables.packets.get(usize::from(*self.tables.order.get(place)?))
    }

    #[inline(always)]
    pub(super) fn packet_at_mut(&mut self, place: usize) -> Option<&mut Packet> {
        let index = usize::from(*self.tables.order.get(place)?);
        self.tables.packets.get_mut(index)
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight + self.departed() < self.tables.order.len()
    }

    /// Forgets the packets of a queue pair, flushing each if asked.
    pub(super) fn purge(&mut self, qp: u16, flush: bool) {
        let mut kept = 0;
        for nth in 0..self.in_flight {
            let place = self.place(nth);
            let Some(packet) = self.packet_at(place) else { continue };
            if packet.qp == qp {
                let meta = packet.meta();
                if flush {
                    self.send_done(qp, meta, Status::Flushed);
                }
            } else {
                self.tables.order.swap(self.place(kept), place);
                kept += 1;
            }
        }
        self.in_flight = kept;
        self.recall(qp, flush);
    }

    /// Puts a queue pair into ERR: everything in flight on it is flushed.
    pub(super) fn fail(&mut self, index: u16) {
        let Some(qp) = self.qp_mut(index) else { return };
        qp.state = QpState::Err;
        self.purge(index, true);
        self.flush(index);
        for live in self.tables.live.all_mut().iter_mut().flatten().filter(|live| live.qp == index) {
            live.flushing = true;
        }
    }

    /// Puts a queue pair's send queue into error: what is in flight in it is flushed.
    pub(super) fn stop_sends(&mut self, index: u16) {
        let Some(qp) = self.qp_mut(index).filter(|qp| qp.state == QpState::Rts) else { return };
        qp.state = QpState::Sqe;
        self.purge(index, true);
        self.flush_sends(index);
    }

    /// Flushes what was announced to a queue pair in ERR.
    pub(super) fn flush(&mut self, index: u16) {
        self.flush_sends(index);
        self.flush_receives(index);
    }

    /// Flushes what was announced to a send queue in error.
    pub(super) fn flush_sends(&mut self, index: u16) {
        let Some(qp) = self.qp_mut(index) else { return };
        let (rung, send) = (qp.send_doorbell.rung(), qp.send);
        let (from, count) = (qp.fetched, rung.wrapping_sub(qp.fetched));
        qp.fetched = rung;
        if u32::from(count) <= send.entries() {
            for nth in 0..count {
                let at = u32::from(from.wrapping_add(nth));
                self.send_done(index, [0, 1, 2, 3].map(|quad| send.load(at, quad)), Status::Flushed);
            }
        }
    }

    fn flush_receives(&mut self, index: u16) {
        let Some(qp) = self.qp_mut(index) else { return };
        let (rung, recv) = (qp.recv_doorbell.rung(), qp.recv);
        let (from, count) = (qp.taken, rung.wrapping_sub(qp.taken));
        qp.taken = rung;
        if u32::from(count) > recv.entries() {
            return;
        }
        for nth in 0..count {
            let tail = recv.load(u32::from(from.wrapping_add(nth)), 1);
            if (tail >> 32) as u32 & crate::entry::descriptor_flags::FIRST != 0 {
                self.recv_done(index, Arrival::flushed(tail as u16));
            }
        }
    }
}
