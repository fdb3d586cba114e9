//! R15: a window is used for what it grants, and memory is registered by what owns it.

use efa_core::memory::{RemoteRead, RemoteWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::{Granted, ProtectionDomain, Provider};

fn write_to_a_window_that_grants_reading(peer: &Peer<Mutual>, slice: Slice, window: RemoteWindow<RemoteRead>) {
    let _ = peer.write(slice, window);
}

fn read_from_a_window_that_grants_writing(peer: &Peer<Mutual>, slice: Slice, window: RemoteWindow<RemoteWrite>) {
    let _ = peer.read(slice, window);
}

fn an_array_registered<P: Provider>(pd: &ProtectionDomain<P>) {
    let _ = pd.register([0u8; 8]);
}

fn borrowed_bytes_registered<P: Provider>(pd: &ProtectionDomain<P>, bytes: &'static [u8]) {
    let _ = pd.register(bytes);
}

fn an_array_exposed<P: Provider>(pd: &ProtectionDomain<P>, write: Granted<RemoteWrite>) {
    let _ = pd.expose([0u64; 8], write);
}

fn main() {}
