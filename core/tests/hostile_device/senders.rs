//! R23, H03: who sent it is not always told by its address handle.

use efa_core::peer::{PeerTable, Sender};
use efa_core::soft::{Profile, Side};
use efa_core::work::Event;
use efa_core::{Caps, Provider, Token};

use crate::common::{config, wait, zeros};
use crate::pair;

fn next_sender(a: &mut Side, b: &mut Side) -> Sender {
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send_empty(), Token(2)).unwrap();
    assert!(matches!(wait(&mut a.endpoint), Event::Sent(_)));
    match wait(&mut b.endpoint) {
        Event::Received(message) => message.from,
        event => panic!("{event:?}"),
    }
}

#[test]
fn h03_r23_the_first_receives_of_a_known_peer_name_no_handle_and_its_gid_finds_it() {
    let (mut a, mut b) = pair(config(Profile::RDMA).unknown_senders(2));
    let (gid, qpn) = (a.ctx.provider().gid(), a.endpoint.qpn());
    let unknown = Sender::Unknown { gid: Some(gid), qpn };
    let senders = [(); 4].map(|()| next_sender(&mut a, &mut b));
    let known = Sender::Known { ahn: b.peer.ahn(), qpn };
    assert_eq!(senders, [unknown, unknown, known, known]);
    let mut table: PeerTable<4> = PeerTable::new();
    let peer = b.peer;
    assert!(table.insert(peer).unwrap().is_none());
    for sender in senders {
        assert!(table.find(&sender).is_some_and(|peer| peer.gid() == gid), "{sender}");
    }
}

#[test]
fn r23_where_the_device_reports_no_gid_an_unknown_sender_is_a_value_all_the_same() {
    let caps = Profile::RDMA.caps().difference(Caps::CQ_WITH_SGID);
    let (mut a, mut b) = pair(config(Profile::with_caps(caps)).unknown_senders(1));
    let qpn = a.endpoint.qpn();
    assert_eq!(next_sender(&mut a, &mut b), Sender::Unknown { gid: None, qpn });
    assert_eq!(next_sender(&mut a, &mut b), Sender::Known { ahn: b.peer.ahn(), qpn });
}

#[test]
fn r23_a_write_with_immediate_from_an_unknown_sender_has_no_gid() {
    let (mut a, mut b) = pair(config(Profile::RDMA).unknown_senders(1));
    let (_memory, window) = crate::window(&b, &a);
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    let source = zeros(&a.pd, 8);
    a.endpoint.post(a.peer.write(source, window.range(0..8).unwrap()).imm(1), Token(2)).unwrap();
    let Event::WriteArrived(arrived) = wait(&mut b.endpoint) else { panic!() };
    assert_eq!(arrived.from, Sender::Unknown { gid: None, qpn: a.endpoint.qpn() });
    assert_eq!(arrived.len, Some(8), "its place tells the length (R24)");
}
