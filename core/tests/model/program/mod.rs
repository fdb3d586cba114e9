//! Programs on the public API, over a hostile device, and what must come of each call by the model of SRD in `srd`.
//!
//! `core/tests/model` makes programs at random and shrinks them; `fuzz/` makes them of bytes.
//!
//! | file | holds |
//! |---|---|
//! | `step`, `setup` | what a program does, and what the device does to it |
//! | `srd`, `memory` | the model: outcomes, arrivals, bytes of exposed memory |
//! | `kind`, `owner` | kinds of queue pairs; memory that counts its owners |
//! | `posts`, `batches`, `polls`, `holds`, `lives`, `frames` | the steps, on core |

mod batches;
mod frames;
mod holds;
mod kind;
mod lives;
mod memory;
#[allow(unsafe_code)] // a `DmaBuf`
mod owner;
mod polls;
mod posts;
mod setup;
mod srd;
mod step;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

use efa_core::memory::{Exposed, Frozen, Region, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, RemoteWindow};
use efa_core::qp::{self, Endpoint, QueuePair, Srd};
use efa_core::soft::SoftDevice;
use efa_core::{Ahn, Context, Error, Gid, ProtectionDomain, Qpn};

use kind::{Kind, WideSrd};
use owner::Counted;
pub(crate) use setup::Setup;
use srd::Life;
pub(crate) use step::{End, Fate, Step, Thing};

/// Programs, the first and last of which share a device.
pub(crate) const NODES: usize = 3;
pub(crate) const NICS: usize = 2;
/// Operations and receives of a queue pair in flight.
const DEPTH: u32 = 4;
/// Bytes of exposed memory.
pub(crate) const SHARED: usize = 256;

/// What a program came to do: that some do all of it is tested.
pub(crate) type Reached = BTreeSet<&'static str>;

type Window = RemoteWindow<RemoteReadWrite>;

/// An endpoint with whom it knows and what it holds.
struct Node<K> {
    nic: usize,
    ctx: Context<SoftDevice>,
    pd: ProtectionDomain<SoftDevice>,
    qp: Qp<K>,
    life: Life,
    /// What haunts its queues was not read yet.
    haunted: bool,
    peers: [Option<Known>; NODES],
    /// By node: what it granted.
    windows: [Option<Granted>; NODES],
    exposed: Option<Shared>,
    free: Vec<Piece>,
    frozen: Vec<(Frozen, usize)>,
    regions: Vec<(Region<Counted>, usize)>,
}

enum Qp<K> {
    None,
    Up(Endpoint<SoftDevice, K>),
    Err(QueuePair<SoftDevice, qp::Err, K>),
}

/// A peer as one life of this side resolved one life of the other.
struct Known {
    peer: Peer<Mutual>,
    own: Life,
    to: Life,
}

#[derive(Clone, Copy)]
struct Granted {
    memory: usize,
    window: Window,
    by: Life,
    /// The peer's address handle then.
    ahn: Ahn,
}

struct Shared {
    memory: usize,
    exposed: Exposed<Counted, RemoteReadWrite>,
    owner: usize,
}

/// A slice, and the number of its memory's owner.
struct Piece {
    slice: Slice,
    owner: usize,
}

/// A buffer that an operation or a receive was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lent {
    /// Where, unless it is in exposed memory.
    at: Option<usize>,
    len: usize,
    owner: usize,
    frozen: bool,
}

/// Programs, and the model beside them.
struct World<K> {
    setup: Setup,
    devices: [SoftDevice; NICS],
    nodes: Vec<Node<K>>,
    srd: srd::Srd,
    lent: BTreeMap<u64, (Life, Vec<Lent>)>,
    /// Who each life is to others.
    addresses: BTreeMap<Life, (Gid, Qpn)>,
    /// Address handles that each node ever had.
    handles: BTreeSet<(usize, Ahn)>,
    /// Peers kept until all is done.
    strangers: Vec<Peer<OneWay>>,
    kept: Vec<Peer<Mutual>>,
    /// What was forgotten as far as core can tell, and the owners of the memory that it keeps.
    forgotten: Vec<Box<dyn Any>>,
    leaked: BTreeSet<usize>,
    owners: Vec<usize>,
    tokens: u64,
    reached: Reached,
}

/// Runs a program to its end; what it came to do.
///
/// # Panics
/// If anything comes of it that the model does not allow.
pub(crate) fn run(setup: Setup, steps: impl IntoIterator<Item = Step>) -> Reached {
    if setup.wide { World::<WideSrd>::run_all(setup, steps) } else { World::<Srd>::run_all(setup, steps) }
}

impl<K: Kind> World<K> {
    fn run_all(setup: Setup, steps: impl IntoIterator<Item = Step>) -> Reached {
        let Some(mut world) = Self::start(setup) else { return Reached::new() };
        for step in steps {
            world.step(step);
        }
        world.end()
    }

    fn step(&mut self, step: Step) {
        let nth = |node: u8| usize::from(node) % NODES;
        match step {
            Step::Send { node, other, imm, halves } => self.send(nth(node), nth(other), imm, halves),
            Step::SendFrozen { node, other, len } => self.send_frozen(nth(node), nth(other), len.into()),
            Step::SendMixed { node, other } => self.send_mixed(nth(node), nth(other)),
            Step::SendExposed { node, other, at } => self.send_exposed(nth(node), nth(other), at.into()),
            Step::SendInline { node, other, len, imm } => self.send_inline(nth(node), nth(other), len.into(), imm),
            Step::WriteInline { node, other, len, at, imm } => {
                self.write_inline(nth(node), nth(other), len.into(), at.into(), imm)
            }
            Step::Write { node, other, at, imm } => self.write(nth(node), nth(other), at.into(), imm),
            Step::Read { node, other, at } => self.read(nth(node), nth(other), at.into()),
            Step::Split { node, other, chunk } => self.split(nth(node), nth(other), chunk.into()),
            Step::Batch { node, other, count, end } => self.batch(nth(node), nth(other), count, end),
            Step::Recv { node, halves } => self.recv(nth(node), halves),
            Step::RecvList { node, count } => self.recv_list(nth(node), count),
            Step::Poll { node, count, fate } => self.poll(nth(node), count.into(), fate),
            Step::PollAll { count } => (0..count).for_each(|_| self.poll_all()),
            Step::Expose { node } => self.expose(nth(node)),
            Step::Revoke { node } => self.revoke(nth(node)),
            Step::CopyIn { node, at, len } => self.copy_in(nth(node), at.into(), len.into()),
            Step::CopyOut { node } => self.copy_out(nth(node)),
            Step::Word { node, at } => self.word(nth(node), at.into()),
            Step::Freeze { node } => self.freeze(nth(node)),
            Step::Thaw { node, copy } => self.thaw(nth(node), copy),
            Step::Pool { node, size, backwards } => self.pool(nth(node), size.into(), backwards),
            Step::CloseRegion { node } => self.close_region(nth(node)),
            Step::Lose { node, thing, forget } => self.lose(nth(node), thing, forget),
            Step::Introduce { node, other } => self.introduce(nth(node), nth(other)),
            Step::Corrupt { node, other, at, bit } => self.corrupt(nth(node), nth(other), at.into(), bit),
            Step::Drain { node } => self.drain(nth(node)),
            Step::Error { node } => self.error(nth(node)),
            Step::Reset { node } => self.reset(nth(node)),
            Step::Close { node } => self.close(nth(node)),
            Step::ShutDown { node, polls } => self.shut_down(nth(node), polls.into()),
            Step::Die { nic } => self.die(usize::from(nic) % NICS),
            Step::Link { nic, up } => self.link(usize::from(nic) % NICS, up),
        }
        for node in &self.nodes {
            let in_flight = match &node.qp {
                Qp::None => continue,
                Qp::Up(qp) => qp.in_flight(),
                Qp::Err(qp) => qp.in_flight(),
            };
            assert_eq!(in_flight as usize, self.srd.in_flight(node.life), "in flight on node {}", node.nic);
        }
    }

    fn token(&mut self) -> u64 {
        self.tokens += 1;
        self.tokens
    }

    /// Keeps something until all is done, and what memory it keeps in mind.
    fn forget<T: Any>(&mut self, thing: T, owners: impl IntoIterator<Item = usize>) {
        self.forgotten.push(Box::new(thing));
        self.leaked.extend(owners);
    }

    /// Whether a call failed because the device was told to let it fail.
    #[track_caller]
    fn expect_device(&mut self, error: &Error) {
        let expected = match error {
            Error::Device { verb, .. } => self.setup.fail_verb.is_some_and(|(failing, _)| failing == *verb),
            Error::Exhausted { .. } => true,
            _ => false,
        };
        assert!(expected, "{error}");
        self.reached.insert("a call that the device refused");
    }
}

/// What a message says: its number first.
fn pattern(id: u64, len: usize) -> Vec<u8> {
    let rest = (4..len).map(|at| (id.wrapping_mul(31) as u8).wrapping_add(at as u8));
    (id as u32).to_le_bytes().into_iter().chain(rest).take(len).collect()
}
