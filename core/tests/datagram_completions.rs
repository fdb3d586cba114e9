//! UD queue pairs of a device that does only what the test says: what it is asked, and what its completions come to.

mod common;

use common::puppet::{Puppet, QPN, recv_entry};
use common::{required, zeros};
use efa_core::entry::{RecvCompletion, completion_flags as flags, control1};
use efa_core::flags::QpAttrMask as Mask;
use efa_core::qp::{Depth, Endpoint, QpState, QpType, Ud};
use efa_core::work::{Cause, Event, Kind};
use efa_core::{Caps, Context, ProtectionDomain, Qpn, Token};
use proptest::prelude::*;

/// The routing header's bytes, from the device's description.
const HEADER: usize = 40;

struct Stage {
    qp: Endpoint<Puppet, Ud>,
    device: Puppet,
    pd: ProtectionDomain<Puppet>,
}

fn stage() -> Stage {
    let device = Puppet::new(Caps::RDMA_WRITE);
    let ctx = Context::open(device.clone());
    let pd = ctx.alloc_pd().unwrap();
    let qp = pd.endpoint(required::<_, Ud>(&ctx), Depth::new(4, 4)).unwrap();
    Stage { qp, device, pd }
}

#[test]
fn r01_a_ud_queue_pair_is_made_and_moved_with_exactly_its_attributes() {
    let Stage { qp, device, .. } = stage();
    let init = device.last_init();
    assert_eq!((init.qp_type, init.ops.bits(), init.unsolicited), (QpType::Ud, 0b1100, false));
    assert_eq!((device.last_move().state, device.last_move().mask), (QpState::Rts, Mask::STATE | Mask::SQ_PSN));
    let err = qp.reset().unwrap().prepare().unwrap().error().unwrap();
    assert_eq!((device.last_move().state, device.last_move().mask), (QpState::Err, Mask::STATE));
    device.refuse_modify(22);
    assert_eq!(err.reset().unwrap_err().into_inner().qpn(), Qpn(QPN));
}

impl Stage {
    /// What a completion comes to that the device makes up for a receive of 64 bytes.
    #[track_caller]
    fn told(&mut self, change: impl FnOnce(&mut RecvCompletion)) -> Event {
        let place = self.device.doorbells().1 as usize % 4;
        self.qp.post_recv(zeros(&self.pd, 64), Token(9)).unwrap();
        let mut entry = recv_entry(self.device.recv_id(place), 64);
        change(&mut entry);
        self.device.recv_done(entry);
        self.qp.poll().unwrap()
    }
}

#[test]
fn a_length_below_the_header_is_a_cause_and_gives_the_receive_back() {
    let mut stage = stage();
    for reported in [0, 1, 39] {
        let Event::Failed { failure, mut buffers } = stage.told(|entry| entry.length = reported.into()) else {
            panic!()
        };
        let cause = Cause::LengthBelowHeader { reported: reported.into(), header: 40 };
        assert_eq!((failure.cause, failure.kind, failure.token), (cause, Kind::Recv, Some(Token(9))));
        let text = failure.to_string();
        assert!(
            text.contains(&format!("{reported} bytes")) && text.contains("40") && text.contains("defect"),
            "{text}"
        );
        assert_eq!(buffers.take_slice().unwrap().len(), 64);
    }
    for (reported, payload) in [(40, 40..40), (41, 40..41), (64, 40..64)] {
        let Event::Received(message) = stage.told(|entry| entry.length = reported.into()) else { panic!() };
        assert_eq!(message.payload(), payload);
    }
    let Event::Failed { failure, .. } = stage.told(|entry| entry.length = 65.into()) else { panic!() };
    assert_eq!(failure.cause, Cause::LengthBeyondBuffers { reported: 65, room: 64 });
}

#[test]
fn an_rdma_write_makes_no_sense_on_ud_and_gives_the_receive_back() {
    let mut stage = stage();
    let write = |entry: &mut RecvCompletion| {
        entry.common.flags |= control1::OP_RDMA_WRITE << flags::OP_SHIFT | flags::HAS_IMM;
    };
    let Event::Failed { failure, mut buffers } = stage.told(write) else { panic!() };
    assert_eq!(failure.cause, Cause::Malformed { op: control1::OP_RDMA_WRITE });
    assert_eq!(buffers.take_slice().unwrap().len(), 64);
    let unsolicited = |entry: &mut RecvCompletion| {
        write(entry);
        entry.common.flags |= flags::UNSOLICITED;
    };
    let Event::Failed { failure, buffers } = stage.told(unsolicited) else { panic!() };
    assert_eq!((failure.cause, failure.token), (Cause::Malformed { op: control1::OP_RDMA_WRITE }, None));
    assert!(buffers.is_empty());
    assert_eq!(stage.qp.in_flight(), 1, "it consumed no receive");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_a_device_writes_each_receive_is_resolved_once_and_a_payload_is_within_it(
        entries in proptest::collection::vec((any::<[u8; 32]>(), 0..96u16, 0..4u8), 1..24),
    ) {
        let mut stage = stage();
        for token in 0..4 {
            stage.qp.post_recv(zeros(&stage.pd, 64), Token(token)).unwrap();
        }
        let mut resolved = [0; 4];
        for (mut entry, len, true_parts) in entries {
            // Random but for some parts, without which all would be stale.
            if true_parts > 0 {
                let id = stage.device.recv_id(usize::from(entry[0] % 4));
                entry[..2].copy_from_slice(&id.to_le_bytes());
                entry[3] = entry[3] & !flags::QUEUE_MASK | flags::QUEUE_RECV;
                entry[4..6].copy_from_slice(&QPN.to_le_bytes());
                entry[6..8].copy_from_slice(&len.to_le_bytes());
            }
            if true_parts > 1 {
                entry[2] = 0;
            }
            if true_parts > 2 {
                entry[3] &= !(flags::OP_MASK | flags::UNSOLICITED);
            }
            stage.device.complete(1, &entry);
            let token = match stage.qp.poll() {
                None => continue,
                Some(Event::Received(mut message)) => {
                    let bytes = message.buffers.take_slice().unwrap();
                    let payload = message.payload();
                    prop_assert_eq!((payload.start, bytes[payload].len()), (HEADER, message.len - HEADER));
                    message.token
                }
                Some(Event::Failed { failure, .. }) => match failure.token {
                    Some(token) => token,
                    None => continue,
                },
                Some(event) => panic!("{event:?} on UD"),
            };
            resolved[token.0 as usize] += 1;
        }
        stage.qp.shut_down(|| true, |event| match event {
            Event::Reclaimed { token, .. } => resolved[token.0 as usize] += 1,
            event => panic!("{event:?}"),
        }).unwrap();
        prop_assert_eq!(resolved, [1; 4]);
    }
}
