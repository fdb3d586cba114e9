//! A device that lies: what its completions say is checked, and what does not fit is a value or is counted.

#[path = "../common/mod.rs"]
mod common;

mod completions;
mod control;

use common::puppet::{GENERATION, Puppet, QPN, recv_entry, send_entry};
use common::{page, required, slice, slice_of, zeros};
use efa_core::entry::{Completion, RecvCompletion, completion_flags as flags, control1};
use efa_core::flags::QpAttrMask;
use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, Sender};
use efa_core::qp::{Depth, Endpoint, InitAttr, QpState, QueuePair, RtsAttr, Shutdown, Srd};
use efa_core::status::CompletionStatus;
use efa_core::wire::{EndpointInfo, Features, Hello};
use efa_core::work::{Cause, Event, Failure, Kind};
use efa_core::{Caps, Context, Error, Gid, Incarnation, Limit, ProtectionDomain, Qkey, Qpn, Token};
use proptest::prelude::*;

const CAPS: Caps = Caps::RDMA_READ.union(Caps::RDMA_WRITE).union(Caps::CQ_WITH_SGID);
const DEPTH: u32 = 4;

struct Stage {
    qp: Endpoint<Puppet>,
    peer: Peer<Mutual>,
    pd: ProtectionDomain<Puppet>,
    ctx: Context<Puppet>,
    device: Puppet,
}

fn stage(caps: Caps) -> Stage {
    stage_of(caps, Depth::new(DEPTH, DEPTH))
}

/// With a completion queue for each queue, and with one for both.
fn stages(caps: Caps) -> [Stage; 2] {
    let depth = Depth::new(DEPTH, DEPTH);
    [depth, depth.one_completion_queue()].map(|depth| stage_of(caps, depth))
}

fn stage_of(caps: Caps, depth: Depth) -> Stage {
    let device = Puppet::new(caps);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.endpoint(required::<_, Srd>(&ctx), depth).unwrap();
    let hello = Hello {
        endpoint: EndpointInfo { gid: Gid([1; 16]), qpn: Qpn(9), qkey: Qkey(7) },
        features: Features::empty(),
        ops: efa_core::flags::SendOps::all(),
        caps,
        max_message: 1000,
        max_rdma: 1000,
        incarnation: Incarnation(1),
    };
    let peer = qp.resolve(hello.to_frame().as_bytes()).unwrap().0.assert_mutual();
    Stage { qp, peer, pd, ctx, device }
}

impl Stage {
    /// Posts a SEND; gives its request id.
    fn send(&mut self, token: u64) -> u16 {
        let place = self.device.doorbells().0 as usize % DEPTH as usize;
        self.qp.post(self.peer.send(zeros(&self.pd, 8)), Token(token)).unwrap();
        self.device.send_id(place)
    }

    /// Posts a receive of 8 bytes; gives its request id.
    fn recv(&mut self, token: u64) -> u16 {
        let place = self.device.doorbells().1 as usize % DEPTH as usize;
        self.qp.post_recv(zeros(&self.pd, 8), Token(token)).unwrap();
        self.device.recv_id(place)
    }

    /// No event; so many stale completions more.
    #[track_caller]
    fn stale(&mut self, more: u32) {
        let before = self.qp.stats().stale;
        for _ in 0..3 {
            let event = self.qp.poll();
            assert!(event.is_none(), "{event:?}");
        }
        assert_eq!(self.qp.stats().stale - before, more);
    }

    #[track_caller]
    fn failed(&mut self) -> (Failure, Option<Slice>) {
        match self.qp.poll() {
            Some(Event::Failed { failure, mut buffers }) => (failure, buffers.take_slice()),
            event => panic!("{event:?} is no failure"),
        }
    }

    /// It sends and receives.
    #[track_caller]
    fn usable(&mut self) {
        let (send, recv) = (self.send(100), self.recv(101));
        self.device.send_done(send, 0, control1::OP_SEND);
        self.device.recv_done(recv_entry(recv, 3));
        let mut events = [self.qp.poll().unwrap(), self.qp.poll().unwrap()];
        if matches!(events[0], Event::Received(_)) {
            events.swap(0, 1);
        }
        assert!(matches!(&events[0], Event::Sent(done) if done.token == Token(100)), "{events:?}");
        assert!(matches!(&events[1], Event::Received(message) if message.len == 3), "{events:?}");
        self.stale(0);
    }
}

fn common(req_id: u16, flags: u8) -> Completion {
    Completion { req_id: req_id.into(), status: 0, flags, qp_num: QPN.into() }
}
