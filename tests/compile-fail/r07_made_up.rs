//! R07, R15: what tokens, peers, windows and slices are made of is out of reach.

use efa_core::memory::{Frozen, Slice};
use efa_core::peer::{OneWay, Peer};
use efa_core::qp::{Endpoint, Rts};
use efa_core::{Granted, Provider};

fn a_state() -> Rts {
    Rts(())
}

fn a_peer_taken_apart(peer: Peer<OneWay>) {
    let _ = peer.core;
}

fn the_address_of_a_frozen(frozen: Frozen) -> u64 {
    frozen.addr
}

fn the_key_of_a_slice(slice: Slice) {
    let _ = slice.length_and_key;
}

fn the_rings_of_a_queue_pair<P: Provider>(qp: Endpoint<P>) {
    let _ = qp.inner;
}

fn a_token_redirected(mut granted: Granted<Rts>, device: efa_core::DeviceId) {
    granted.device = device;
}

fn main() {}
