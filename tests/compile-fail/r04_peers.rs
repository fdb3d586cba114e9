//! R04: RDMA goes to peers that have resolved us; to others a SEND, by the road that says so.

use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{OneWay, Peer, RemoteWindow};

fn write_to_a_one_way_peer(peer: &Peer<OneWay>, slice: Slice, window: RemoteWindow<RemoteReadWrite>) {
    let _ = peer.write(slice, window);
}

fn read_from_a_one_way_peer(peer: &Peer<OneWay>, slice: Slice, window: RemoteWindow<RemoteReadWrite>) {
    let _ = peer.read(slice, window);
}

fn send_to_a_one_way_peer(peer: &Peer<OneWay>, slice: Slice) {
    let _ = peer.send(slice);
}

fn send_inline_to_a_one_way_peer(peer: &Peer<OneWay>) {
    let _ = peer.send_inline(b"hello");
}

fn send_nothing_to_a_one_way_peer(peer: &Peer<OneWay>) {
    let _ = peer.send_empty();
}

fn main() {}
