//! A device that lies to a group: members come and go while it writes whatever it likes into their one queue.

mod common;

use common::puppet::{GENERATION, Puppet, QPN};
use common::{required, zeros};
use efa_core::entry::completion_flags as flags;
use efa_core::flags::SendOps;
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Group, MemberId, Srd};
use efa_core::wire::{EndpointInfo, Features, Hello};
use efa_core::work::Event;
use efa_core::{Caps, Context, Error, Gid, Incarnation, ProtectionDomain, Qkey, Qpn, Token};
use proptest::prelude::*;

const DEPTH: u32 = 4;
const CAPS: Caps = Caps::RDMA_READ.union(Caps::RDMA_WRITE).union(Caps::CQ_WITH_SGID);

/// What is done next.
#[derive(Clone, Debug)]
enum Step {
    Send,
    Recv,
    /// Pushed and forgotten.
    Forget,
    Poll,
    /// The device writes an entry, of which so many parts are those of a request.
    Write([u8; 32], u8),
    /// The member is ended in order, and another is made of its number, if what it left was read.
    Renew,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Send),
        2 => Just(Step::Recv),
        1 => Just(Step::Forget),
        4 => Just(Step::Poll),
        6 => (any::<[u8; 32]>(), 0..4u8).prop_map(|(entry, parts)| Step::Write(entry, parts)),
        1 => Just(Step::Renew),
    ]
}

struct Stage {
    group: Group<Puppet, Srd, 3>,
    member: MemberId,
    peer: Peer<Mutual>,
    pd: ProtectionDomain<Puppet>,
    device: Puppet,
    /// By token: how often it was resolved; `None` if it was refused.
    resolved: Vec<Option<u32>>,
    /// Entries that may be unread: an honest overrun is not what is looked for here (R17).
    unread: u32,
}

fn peer_of(group: &Group<Puppet, Srd, 3>, member: MemberId) -> Peer<Mutual> {
    let hello = Hello {
        endpoint: EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) },
        features: Features::empty(),
        ops: SendOps::all(),
        caps: CAPS,
        max_message: 1000,
        max_rdma: 1000,
        incarnation: Incarnation(1),
    };
    group.queue_pair(member).unwrap().resolve(hello.to_frame().as_bytes()).unwrap().0.assert_mutual()
}

fn stage() -> Stage {
    let device = Puppet::new(CAPS);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let mut group = pd.group(required::<_, Srd>(&ctx), 2 * DEPTH).unwrap();
    let member = group.endpoint(Depth::new(DEPTH, DEPTH)).unwrap();
    let peer = peer_of(&group, member);
    Stage { group, member, peer, pd, device, resolved: Vec::new(), unread: 0 }
}

fn resolve(resolved: &mut [Option<u32>], event: &Event) {
    if let Event::Received(message) = event {
        assert!(message.len <= message.buffers.bytes());
    }
    if let Some(Token(token)) = event.token() {
        *resolved[token as usize].as_mut().expect("it was posted") += 1;
    }
}

impl Stage {
    fn take(&mut self, step: Step) {
        let token = Token(self.resolved.len() as u64);
        match step {
            Step::Send => {
                let operation = self.peer.send(zeros(&self.pd, 8));
                let posted = self.group.member(self.member).unwrap().post(operation, token);
                self.resolved.push(posted.is_ok().then_some(0));
            }
            Step::Recv => {
                let target = zeros(&self.pd, 8);
                let posted = self.group.member(self.member).unwrap().post_recv(target, token);
                self.resolved.push(posted.is_ok().then_some(0));
            }
            Step::Forget => {
                let mut member = self.group.member(self.member).unwrap();
                let mut batch = member.batch();
                let pushed = batch.push(self.peer.send(zeros(&self.pd, 8)), token);
                std::mem::forget(batch);
                self.resolved.push(pushed.is_ok().then_some(0));
            }
            Step::Poll => {
                let Some((whose, event)) = self.group.poll() else { return self.unread = 0 };
                assert_eq!(whose, self.member);
                resolve(&mut self.resolved, &event);
                self.unread -= 1;
            }
            Step::Write(mut entry, parts) => {
                if self.unread == 2 * DEPTH {
                    return;
                }
                self.unread += 1;
                // Random but for some parts, without which all would be stale.
                if parts > 0 {
                    entry[4..6].copy_from_slice(&QPN.to_le_bytes());
                    entry[3] = entry[3] & !flags::UNSOLICITED
                        | if entry[6] % 2 == 0 { flags::QUEUE_SEND } else { flags::QUEUE_RECV };
                }
                if parts > 1 {
                    let id = GENERATION * DEPTH as u16 + u16::from(entry[0] % 4);
                    entry[..2].copy_from_slice(&id.to_le_bytes());
                }
                if parts > 2 {
                    (entry[2], entry[3]) = (0, entry[3] & !flags::OP_MASK & 0xF);
                }
                self.device.complete(0, &entry);
            }
            Step::Renew => self.renew(),
        }
    }

    fn renew(&mut self) {
        let Self { group, member, resolved, .. } = self;
        self.unread = 0;
        group.shut_down(*member, || true, |_, event| resolve(resolved, &event)).unwrap();
        assert!(resolved.iter().flatten().all(|&times| times == 1), "{resolved:?}");
        // Written after the end, as to another's: it must be read first.
        self.device.complete(0, &[0xA5; 32]);
        let unread = Error::UnreadCompletions { at_most: 2 * DEPTH };
        assert_eq!(group.endpoint(Depth::new(DEPTH, DEPTH)), Err(unread));
        assert!(group.poll().is_none());
        *member = group.endpoint(Depth::new(DEPTH, DEPTH)).unwrap();
        self.peer = peer_of(group, *member);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn r20_r21_whatever_a_device_writes_into_a_groups_queue_each_operation_is_resolved_once(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 24 } else { 60 }),
    ) {
        let mut stage = stage();
        for step in steps {
            stage.take(step);
        }
        stage.renew();
    }
}
