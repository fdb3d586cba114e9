//! R16, R25, R39: unique things are not copied, and memory that peers reach has no references.

use efa_core::memory::{Exposed, ExposedPart, Pool, Region, RemoteWrite, Slice};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::Endpoint;
use efa_core::Provider;

fn slice(slice: &Slice) -> Slice {
    slice.clone()
}

fn region(region: &Region<Vec<u8>>) -> Region<Vec<u8>> {
    region.clone()
}

fn pool(pool: &Pool<4>) -> Pool<4> {
    pool.clone()
}

fn queue_pair<P: Provider>(qp: &Endpoint<P>) -> Endpoint<P> {
    qp.clone()
}

fn peer(peer: &Peer<Mutual>) -> Peer<Mutual> {
    peer.clone()
}

fn exposed(memory: &Exposed<Vec<u8>, RemoteWrite>) -> Exposed<Vec<u8>, RemoteWrite> {
    memory.clone()
}

fn r16_a_view_of_exposed_memory(memory: &Exposed<Vec<u8>, RemoteWrite>) -> &[u8] {
    memory
}

fn r16_bytes_of_exposed_memory(memory: &Exposed<Vec<u8>, RemoteWrite>) -> u8 {
    memory[0]
}

fn r16_a_slice_of_exposed_memory(memory: &Exposed<Vec<u8>, RemoteWrite>) -> &[u8] {
    memory.as_slice()
}

fn r16_a_view_of_a_part(part: &ExposedPart) -> &[u8] {
    part
}

fn main() {}
