//! R04: the road to one-way peers leads to SENDs only, and a mutual peer needs no such road.

use efa_core::memory::{RemoteWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, RemoteWindow};

fn rdma_on_the_one_way_road(peer: &Peer<OneWay>, slice: Slice, window: RemoteWindow<RemoteWrite>) {
    let _ = peer.one_way().write(slice, window);
}

fn the_one_way_road_to_a_mutual_peer(peer: &Peer<Mutual>) {
    let _ = peer.one_way();
}

fn a_mutual_peer_confirmed_again(peer: Peer<Mutual>) {
    let _ = peer.confirm(b"");
}

fn main() {}
