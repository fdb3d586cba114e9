//! R06, R29: a UD queue pair has SEND only.

use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Datagram, Endpoint, Ud};
use efa_core::{Provider, Token};

type Qp<P> = Endpoint<P, Ud>;
type To = Peer<Mutual, Datagram>;
type Window = RemoteWindow<RemoteReadWrite>;

fn write<P: Provider>(qp: &mut Qp<P>, peer: &To, slice: Slice, window: Window) {
    let _ = qp.post(peer.write(slice, window), Token(0));
}

fn write_with_imm<P: Provider>(qp: &mut Qp<P>, peer: &To, slice: Slice, window: Window) {
    let _ = qp.post(peer.write(slice, window).imm(1), Token(0));
}

fn read<P: Provider>(qp: &mut Qp<P>, peer: &To, slice: Slice, window: Window) {
    let _ = qp.post(peer.read(slice, window), Token(0));
}

fn write_in_a_batch<P: Provider>(qp: &mut Qp<P>, peer: &To, slice: Slice, window: Window) {
    let _ = qp.batch().push(peer.write(slice, window), Token(0));
}

fn main() {}
