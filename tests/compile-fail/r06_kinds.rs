//! R06, H06: an operation that the queue pair was not made for cannot be posted on it.

use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Endpoint, SendOnly, Srd, ops};
use efa_core::{Provider, Token};

type Window = RemoteWindow<RemoteReadWrite>;

fn write_on_send_only<P: Provider>(qp: &mut Endpoint<P, SendOnly>, peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = qp.post(peer.write(slice, window), Token(0));
}

fn write_with_immediate_without_it<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::SEND | ops::RDMA_WRITE }>>,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: Window,
) {
    let _ = qp.post(peer.write(slice, window).imm(1), Token(0));
}

fn read_without_it<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::RDMA_WRITE | ops::RDMA_WRITE_WITH_IMM }>>,
    peer: &Peer<Mutual>,
    slice: Slice,
    window: Window,
) {
    let _ = qp.post(peer.read(slice, window), Token(0));
}

fn send_without_it<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::SEND_WITH_IMM }>>,
    peer: &Peer<Mutual>,
    slice: Slice,
) {
    let _ = qp.post(peer.send(slice), Token(0));
}

fn send_with_immediate_without_it<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::SEND }>>,
    peer: &Peer<Mutual>,
    slice: Slice,
) {
    let _ = qp.post(peer.send(slice).imm(1), Token(0));
}

fn inline_without_send<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::RDMA_READ }>>,
    peer: &Peer<Mutual>,
) {
    let _ = qp.post(peer.send_empty(), Token(0));
}

fn in_a_batch<P: Provider>(qp: &mut Endpoint<P, SendOnly>, peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = qp.batch().push(peer.write(slice, window), Token(0));
}

fn main() {}
