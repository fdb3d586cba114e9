//! R09, R15, H11, H14: operations take registered memory, one or two buffers of it, as the operation allows.

use efa_core::memory::{ExposedPart, Frozen, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::Endpoint;
use efa_core::{Provider, Token};

type Window = RemoteWindow<RemoteReadWrite>;

fn h11_plain_bytes_sent(peer: &Peer<Mutual>, bytes: &[u8]) {
    let _ = peer.send(bytes);
}

fn h11_a_vector_sent(peer: &Peer<Mutual>, bytes: Vec<u8>) {
    let _ = peer.send(bytes);
}

fn h11_an_array_sent(peer: &Peer<Mutual>) {
    let _ = peer.send([0u8; 64]);
}

fn h11_a_slice_by_reference_sent(peer: &Peer<Mutual>, slice: &Slice) {
    let _ = peer.send(slice);
}

fn h11_plain_bytes_written(peer: &Peer<Mutual>, bytes: &[u8], window: Window) {
    let _ = peer.write(bytes, window);
}

fn h11_a_vector_received_into<P: Provider>(qp: &mut Endpoint<P>, bytes: Vec<u8>) {
    let _ = qp.post_recv(bytes, Token(0));
}

fn h11_plain_bytes_read_into(peer: &Peer<Mutual>, bytes: &mut [u8], window: Window) {
    let _ = peer.read(bytes, window);
}

fn r09_three_buffers_sent(peer: &Peer<Mutual>, slices: [Slice; 3]) {
    let _ = peer.send(slices);
}

fn r09_three_buffers_received_into<P: Provider>(qp: &mut Endpoint<P>, slices: [Slice; 3]) {
    let _ = qp.post_recv(slices, Token(0));
}

fn h14_two_buffers_written(peer: &Peer<Mutual>, slices: [Slice; 2], window: Window) {
    let _ = peer.write(slices, window);
}

fn h14_two_buffers_read_into(peer: &Peer<Mutual>, slices: (Slice, ExposedPart), window: Window) {
    let _ = peer.read(slices, window);
}

fn r15_frozen_received_into<P: Provider>(qp: &mut Endpoint<P>, frozen: Frozen) {
    let _ = qp.post_recv(frozen, Token(0));
}

fn r15_frozen_received_into_as_one_of_two<P: Provider>(qp: &mut Endpoint<P>, frozen: [Frozen; 2]) {
    let _ = qp.post_recv(frozen, Token(0));
}

fn r15_frozen_read_into(peer: &Peer<Mutual>, frozen: Frozen, window: Window) {
    let _ = peer.read(frozen, window);
}

fn r12_a_receive_of_no_buffer<P: Provider>(qp: &mut Endpoint<P>) {
    let _ = qp.post_recv((), Token(0));
}

fn main() {}
