//! R32, R39: a queue pair has one user at a time, and an open batch is it.

use efa_core::peer::{Mutual, Peer};
use efa_core::qp::Endpoint;
use efa_core::{Provider, Token};

fn posted_through_a_shared_reference<P: Provider>(qp: &Endpoint<P>, peer: &Peer<Mutual>) {
    let _ = qp.post(peer.send_empty(), Token(0));
}

fn polled_through_a_shared_reference<P: Provider>(qp: &Endpoint<P>) {
    let _ = qp.poll();
}

fn posted_from_a_thread_and_here<P: Provider>(qp: Endpoint<P>, peer: Peer<Mutual>) {
    let thread = std::thread::spawn(move || qp.in_flight());
    let _ = qp.in_flight();
    let _ = (thread, peer);
}

fn posted_beside_an_open_batch<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>) {
    let mut batch = qp.batch();
    let _ = batch.push(peer.send_empty(), Token(0));
    let _ = qp.post(peer.send_empty(), Token(1));
    batch.submit();
}

fn polled_beside_an_open_batch<P: Provider>(qp: &mut Endpoint<P>) {
    let batch = qp.batch();
    let _ = qp.poll();
    batch.submit();
}

fn shut_down_beside_an_open_batch<P: Provider>(mut qp: Endpoint<P>) {
    let batch = qp.batch();
    let _ = qp.error();
    batch.submit();
}

fn submitted_and_used<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>) {
    let mut batch = qp.batch();
    batch.submit();
    let _ = batch.push(peer.send_empty(), Token(0));
}

fn main() {}
