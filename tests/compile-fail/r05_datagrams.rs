//! R05: SRD and UD queue pairs do not post to each other's peers.

use efa_core::memory::Slice;
use efa_core::peer::{Mutual, OneWay, Peer, PeerTable};
use efa_core::qp::{Datagram, Endpoint, Ud};
use efa_core::{Provider, Token};

fn an_srd_peer_on_ud<P: Provider>(qp: &mut Endpoint<P, Ud>, peer: &Peer<Mutual>, slice: Slice) {
    let _ = qp.post(peer.send(slice), Token(0));
}

fn a_ud_peer_on_srd<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<OneWay, Datagram>) {
    let _ = qp.post(peer.one_way().send_empty(), Token(0));
}

fn both_in_a_table(table: &mut PeerTable<4, Mutual, Datagram>, peer: Peer<Mutual>) {
    let _ = table.insert(peer);
}

fn main() {}
