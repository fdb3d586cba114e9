//! R15, H30: what is in flight cannot be touched, posted again, or released.

use efa_core::memory::{ExposedPart, Frozen, Region, Slice};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::Endpoint;
use efa_core::{Provider, Token};

fn read_while_in_flight<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slice: Slice) -> u8 {
    let _ = qp.post(peer.send(slice), Token(0));
    slice[0]
}

fn written_while_in_flight<P: Provider>(qp: &mut Endpoint<P>, mut slice: Slice) {
    let _ = qp.post_recv(slice, Token(0));
    slice[0] = 1;
}

fn posted_twice<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slice: Slice) {
    let _ = qp.post_recv(slice, Token(0));
    let _ = qp.post(peer.send(slice), Token(1));
}

fn h30_closed_while_in_flight<P: Provider>(qp: &mut Endpoint<P>, region: Region<Vec<u8>>, slice: Slice) {
    let _ = qp.post_recv(slice, Token(0));
    let _ = region.close(slice);
}

fn borrowed_beyond_the_post<P: Provider>(qp: &mut Endpoint<P>, slice: Slice) {
    let bytes: &[u8] = &slice;
    let _ = qp.post_recv(slice, Token(0));
    let _ = bytes[0];
}

fn an_operation_posted_twice<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slice: Slice) {
    let operation = peer.send(slice);
    let _ = qp.post(operation, Token(0));
    let _ = qp.post(operation, Token(1));
}

fn frozen_written(mut frozen: Frozen) {
    frozen[0] = 1;
}

fn split_and_kept(slice: Slice) {
    let _ = slice.split_at(1);
    let _ = slice.len();
}

fn a_part_posted_twice<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, part: ExposedPart) {
    let _ = qp.post_recv(part, Token(0));
    let _ = qp.post(peer.send(part), Token(1));
}

fn a_peer_dropped_before_its_operation<P: Provider>(qp: &mut Endpoint<P>, peer: Peer<Mutual>, slice: Slice) {
    let operation = peer.send(slice);
    drop(peer);
    let _ = qp.post(operation, Token(0));
}

fn a_token_of_a_move<P: Provider>(qp: Endpoint<P>) {
    let _ = qp.error();
    let _ = qp.in_flight();
}

fn main() {}
