//! Queue pairs and devices: how they begin and end.

use std::collections::BTreeMap;

use efa_core::qp::{AnyQueuePair, Depth, InitAttr, RnrRetry, RtsAttr};
use efa_core::soft::SoftDevice;
use efa_core::work::Event;
use efa_core::{Context, Error, Provider, Qkey, SetRnrRetry};

use super::owner::Counted;
use super::posts::LONG;
use super::setup::LIMITS;
use super::srd::Srd;
use super::{DEPTH, Fate, NODES, Node, Qp, Reached, Setup, Thing, World};

impl<K: super::kind::Kind> World<K> {
    /// Nodes that know each other; none if the device refuses their domains.
    pub(super) fn start(setup: Setup) -> Option<Self> {
        let first = SoftDevice::new(setup.config());
        let devices = [first.clone(), first.neighbour().unwrap()];
        let mut world = Self {
            setup,
            devices,
            nodes: Vec::new(),
            srd: Srd::new(setup.wrongs()),
            lent: BTreeMap::new(),
            addresses: BTreeMap::new(),
            handles: Default::default(),
            strangers: Vec::new(),
            kept: Vec::new(),
            forgotten: Vec::new(),
            leaked: Default::default(),
            owners: Vec::new(),
            tokens: 0,
            reached: Reached::new(),
        };
        for nic in [0, 1, 0] {
            let ctx = Context::open(world.devices[nic].clone());
            let pd = ctx.alloc_pd().or_else(|error| {
                world.expect_device(&error);
                ctx.alloc_pd()
            });
            world.nodes.push(Node {
                nic,
                pd: pd.ok()?,
                ctx,
                qp: Qp::None,
                life: usize::MAX,
                haunted: false,
                peers: [const { None }; NODES],
                windows: [None; NODES],
                exposed: None,
                free: Vec::new(),
                frozen: Vec::new(),
                regions: Vec::new(),
            });
        }
        (0..NODES).for_each(|node| world.up(node));
        Some(world)
    }

    /// A new queue pair, unless the device refuses, that knows and is known by all others. The last node's gives up
    /// after it found no receive for some times.
    pub(super) fn up(&mut self, node: usize) {
        if !matches!(self.nodes[node].qp, Qp::None) {
            return;
        }
        let retries = (node + 1 == NODES).then_some(2);
        let Node { ctx, pd, nic, .. } = &self.nodes[node];
        let (nic, kind) = (*nic, ctx.require::<K>().unwrap());
        let key = Qkey::from_random(ctx.provider().entropy());
        let depth = Depth::new(DEPTH, DEPTH).recv_buffers(2);
        let depth = if self.setup.one_queue { depth.one_completion_queue() } else { depth };
        let endpoint = pd.create_qp(kind, depth).and_then(|reset| {
            let init = reset.init(InitAttr::new(key)).map_err(|refused| refused.error())?;
            let rtr = init.rtr().map_err(|refused| refused.error())?;
            let rts = match retries {
                Some(times) => {
                    let token = ctx.require::<SetRnrRetry>().unwrap();
                    rtr.rts(RtsAttr::new().rnr_retry(token, RnrRetry::times(times).unwrap()))
                }
                None => rtr.rts(RtsAttr::new()),
            };
            rts.map_err(|refused| refused.error())
        });
        match endpoint {
            Ok(qp) => {
                self.nodes[node].qp = Qp::Up(qp);
                self.alive(node, nic, retries);
            }
            Err(error) => self.expect_device(&error),
        }
    }

    /// A life begins.
    fn alive(&mut self, node: usize, nic: usize, retries: Option<u8>) {
        let Qp::Up(qp) = &self.nodes[node].qp else { return };
        assert!(qp.cause().is_none());
        let address = qp.address();
        let life = self.srd.begin(node, nic, retries);
        self.addresses.insert(life, (address.gid, address.qpn));
        self.nodes[node].life = life;
        self.nodes[node].haunted = self.setup.stale > 0;
        (0..NODES).for_each(|other| self.introduce(node, other));
    }

    pub(super) fn drain(&mut self, node: usize) {
        let qp = match std::mem::replace(&mut self.nodes[node].qp, Qp::None) {
            Qp::Up(qp) => qp,
            qp => {
                self.nodes[node].qp = qp;
                return self.up(node);
            }
        };
        let life = self.nodes[node].life;
        let mut qp = match qp.drain() {
            Ok(qp) => qp,
            Err(refused) => {
                let (qp, error) = refused.into_parts();
                self.nodes[node].qp = Qp::Up(qp);
                return self.refused_move(node, &error);
            }
        };
        for _ in 0..4 {
            self.srd.observe();
            if let Some(event) = qp.poll() {
                self.resolve(node, life, event, Fate::Keep);
            }
        }
        let qp = match qp.resume() {
            Ok(qp) => qp,
            Err(refused) => {
                let (qp, error) = refused.into_parts();
                self.expect_device(&error);
                qp.resume().expect("refused once")
            }
        };
        self.nodes[node].qp = Qp::Up(qp);
        self.srd.resumed(life);
        self.reached.insert("a drain");
    }

    fn refused_move(&mut self, node: usize, error: &Error) {
        if !self.srd.is_dead(self.nodes[node].life) {
            self.expect_device(error);
        }
    }

    /// To ERR.
    pub(super) fn error(&mut self, node: usize) {
        match std::mem::replace(&mut self.nodes[node].qp, Qp::None) {
            Qp::None => self.up(node),
            Qp::Err(qp) => self.nodes[node].qp = Qp::Err(qp),
            Qp::Up(qp) => match qp.error() {
                Ok(qp) => {
                    self.nodes[node].qp = Qp::Err(qp);
                    self.srd.error(self.nodes[node].life);
                    self.reached.insert("a move to ERR");
                }
                Err(refused) => {
                    let (qp, error) = refused.into_parts();
                    self.nodes[node].qp = Qp::Up(qp);
                    self.expect_device(&error);
                }
            },
        }
    }

    /// To RESET, once nothing is in flight, and up again: another life.
    pub(super) fn reset(&mut self, node: usize) {
        self.error(node);
        let life = self.nodes[node].life;
        for _ in 0..LONG {
            if self.srd.in_flight(life) == 0 || self.srd.is_dead(life) {
                break;
            }
            self.poll(node, 1, Fate::Keep);
        }
        let qp = match std::mem::replace(&mut self.nodes[node].qp, Qp::None) {
            Qp::Err(qp) => qp,
            qp => return self.nodes[node].qp = qp,
        };
        let in_flight = qp.in_flight();
        match qp.reset() {
            Ok(reset) => {
                assert_eq!((in_flight, self.srd.is_dead(life)), (0, false));
                self.srd.end(life);
                match reset.prepare() {
                    Ok(qp) => {
                        self.nodes[node].qp = Qp::Up(qp);
                        let nic = self.nodes[node].nic;
                        self.alive(node, nic, None);
                        self.reached.insert("a restart");
                    }
                    Err(refused) => self.expect_device(&refused.error()),
                }
            }
            Err(refused) => {
                let (qp, error) = refused.into_parts();
                if in_flight > 0 {
                    assert_eq!(error, Error::InFlight { operations: in_flight });
                } else {
                    self.refused_move(node, &error);
                }
                self.nodes[node].qp = Qp::Err(qp);
            }
        }
    }

    /// Destroyed at once: what was in flight goes back to its regions.
    pub(super) fn close(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let closed = match std::mem::replace(&mut self.nodes[node].qp, Qp::None) {
            Qp::None => return self.up(node),
            Qp::Up(qp) => qp.close().map_err(|refused| refused.map(Qp::Up)),
            Qp::Err(qp) => qp.close().map_err(|refused| refused.map(Qp::Err)),
        };
        match closed {
            Ok(()) => {
                self.vanished(life);
                self.reached.insert("a queue pair closed");
                self.up(node);
            }
            Err(refused) => {
                let (qp, error) = refused.into_parts();
                self.nodes[node].qp = qp;
                self.expect_device(&error);
            }
        }
    }

    fn vanished(&mut self, life: usize) {
        self.lent.retain(|_, (of, _)| *of != life);
        self.srd.vanish(life);
    }

    pub(super) fn shut_down(&mut self, node: usize, polls: usize) {
        if self.setup.fail_verb.is_some() {
            // It may be refused ERR, and then is where it was.
            self.error(node);
            if matches!(self.nodes[node].qp, Qp::Up(_)) {
                return;
            }
        }
        let life = self.nodes[node].life;
        let (mut events, mut left) = (Vec::new(), polls);
        let expired = || left.checked_sub(1).map(|rest| left = rest).is_none();
        let before = self.srd.in_flight(life) as u32;
        let taken = std::mem::replace(&mut self.nodes[node].qp, Qp::None);
        if !matches!(taken, Qp::None) {
            self.srd.error(life);
        }
        let ended = match taken {
            Qp::None => return self.up(node),
            Qp::Up(qp) => qp.shut_down(expired, |event| events.push(event)),
            Qp::Err(qp) => qp.shut_down(expired, |event| events.push(event)),
        };
        let count = events.len() as u32;
        for event in events {
            let is_reclaimed = matches!(event, Event::Reclaimed { .. });
            assert!(!is_reclaimed || ended.is_ok());
            self.resolve(node, life, event, Fate::Keep);
        }
        match ended {
            Ok(ended) => {
                assert_eq!((ended.completed + ended.reclaimed, count), (before, before));
                self.srd.end(life);
                self.up(node);
            }
            Err(refused) => {
                let (qp, error) = refused.into_parts();
                self.expect_device(&error);
                self.nodes[node].qp = match qp {
                    AnyQueuePair::Rts(qp) => Qp::Up(qp),
                    AnyQueuePair::Err(qp) => Qp::Err(qp),
                    qp => panic!("{:?}", qp.state()),
                };
            }
        }
    }

    pub(super) fn lose(&mut self, node: usize, thing: Thing, forget: bool) {
        let forget = forget && self.forgotten.len() < 8;
        self.reached.insert(if forget { "something forgotten" } else { "something dropped" });
        match thing {
            Thing::Slice => {
                if let Some(piece) = self.nodes[node].free.pop().filter(|_| forget) {
                    let owner = piece.owner;
                    self.forget(piece, [owner]);
                    self.reached.insert("a slice forgotten");
                }
            }
            Thing::Frozen => {
                if let Some((frozen, owner)) = self.nodes[node].frozen.pop().filter(|_| forget) {
                    self.forget(frozen, [owner]);
                }
            }
            Thing::Region => {
                if let Some((region, owner)) = self.nodes[node].regions.pop().filter(|_| forget) {
                    self.forget(region, [owner]);
                }
            }
            Thing::Exposed => {
                let Some(shared) = self.nodes[node].exposed.take() else { return };
                if forget {
                    let owner = shared.owner;
                    self.forget(shared.exposed, [owner]);
                } else {
                    self.srd.memory[shared.memory].drop();
                    drop(shared.exposed);
                    self.srd.observe();
                }
            }
            Thing::Peer(other) => {
                let other = usize::from(other) % NODES;
                let Some(known) = self.nodes[node].peers[other].take() else { return };
                if forget {
                    self.forget(known.peer, []);
                } else {
                    drop(known);
                    self.srd.resolves(node, self.nodes[other].nic, false);
                }
            }
            Thing::QueuePair => self.lose_qp(node, forget),
        }
    }

    fn lose_qp(&mut self, node: usize, forget: bool) {
        let life = self.nodes[node].life;
        let qp = std::mem::replace(&mut self.nodes[node].qp, Qp::None);
        if matches!(qp, Qp::None) {
            return self.up(node);
        }
        let leaks = || self.nodes[node].ctx.leaks().queue_pairs();
        let before = leaks();
        let mut kept = None;
        if forget {
            kept = Some(qp);
        } else {
            drop(qp);
        }
        if leaks() > before || kept.is_some() {
            // It lives on at the device.
            let owners = self.lent.values().filter(|(of, _)| *of == life).flat_map(|(_, lent)| lent);
            let owners: Vec<usize> = owners.map(|lent| lent.owner).collect();
            self.forget(kept, owners);
            self.srd.forget(life);
            self.reached.insert("a queue pair forgotten");
        } else {
            self.vanished(life);
            self.reached.insert("a queue pair dropped");
        }
        self.up(node);
    }

    pub(super) fn die(&mut self, nic: usize) {
        self.srd.observe();
        self.devices[nic].die();
        self.srd.die(nic);
        self.reached.insert("a device died");
    }

    pub(super) fn link(&mut self, nic: usize, up: bool) {
        self.devices[nic].link(up);
        self.srd.link(nic, up);
        self.reached.insert("a device plugged");
    }

    /// The end: whatever can complete does, all else comes back, and all memory is freed but what was forgotten.
    pub(super) fn end(mut self) -> Reached {
        (0..super::NICS).for_each(|nic| self.link(nic, true));
        for _ in 0..LONG {
            if self.srd.overdue().is_empty() {
                break;
            }
            self.poll_all();
        }
        let overdue = self.srd.overdue();
        assert!(overdue.is_empty(), "{overdue:?} never completed");
        for node in 0..NODES {
            let polls = if self.setup.impatient & 1 << node == 0 { LONG } else { 0 };
            // Twice, as the device may refuse once.
            self.shut_down(node, polls);
            if !matches!(self.nodes[node].qp, Qp::None) {
                self.shut_down(node, polls);
            }
        }
        self.srd.check_arrivals();
        (0..NODES).for_each(|node| self.copy_out(node));
        (0..NODES).for_each(|node| self.revoke(node));
        let Self { setup, devices, nodes, srd: _, strangers, kept, forgotten, leaked, owners, mut reached, .. } = self;
        drop((nodes, strangers, kept));
        let regions: usize = devices.iter().map(|device| device.leaks().regions()).sum();
        let alive = |owner: &usize| Counted::is_alive(*owner);
        let left = owners.iter().filter(|owner| alive(owner)).count();
        assert!(owners.iter().filter(|owner| leaked.contains(owner)).all(alive), "what was forgotten was freed");
        // What the device does not deregister is kept, and counted.
        assert_eq!(left, leaked.len() + regions, "memory not freed");
        drop(forgotten);
        let (faults, queue_pairs) =
            (setup.fail_verb.is_some(), devices.iter().map(|device| device.leaks().queue_pairs()));
        if faults {
            if regions > 0 {
                reached.insert("a region leaked");
            }
            return reached;
        }
        assert_eq!((regions, queue_pairs.sum::<usize>()), (0, 0));
        assert!(!owners.iter().any(alive), "memory of what was forgotten is freed with it");
        for device in devices {
            let ctx = Context::open(device);
            assert!(!setup.strict_overruns || setup.stale > 0 || ctx.provider().counters().cq_overruns == 0);
            let pd = ctx.alloc_pd().unwrap();
            let endpoint = || pd.endpoint(ctx.require::<K>().unwrap(), Depth::new(1, 1)).ok();
            let qps: Vec<_> = std::iter::from_fn(endpoint).collect();
            assert_eq!(qps.len() as u32, LIMITS.max_qp, "each was destroyed");
        }
        reached
    }
}
