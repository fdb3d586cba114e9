//! R08, R29, R30, H17: what EFA does not have has no name here.

use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::Endpoint;
use efa_core::{Context, ProtectionDomain, Provider};

type Window = RemoteWindow<RemoteReadWrite>;

fn h17_unsignaled(peer: &Peer<Mutual>, slice: Slice) {
    let _ = peer.send(slice).unsignaled();
}

fn h17_signaled_by_choice(peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = peer.write(slice, window).signaled(false);
}

fn r30_solicited(peer: &Peer<Mutual>, slice: Slice) {
    let _ = peer.send(slice).solicited();
}

fn fenced(peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = peer.read(slice, window).fence();
}

fn r29_fetch_and_add(peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = peer.fetch_add(slice, window, 1);
}

fn r29_compare_and_swap(peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = peer.compare_swap(slice, window, 0, 1);
}

fn r29_a_shared_receive_queue<P: Provider>(pd: &ProtectionDomain<P>) {
    let _ = pd.create_srq();
}

fn r29_a_memory_window<P: Provider>(pd: &ProtectionDomain<P>) {
    let _ = pd.alloc_mw();
}

fn r29_a_connection<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>) {
    let _ = qp.connect(peer);
}

fn r15_a_remote_key_of_a_slice(slice: &Slice) {
    let _ = slice.rkey();
}

fn r10_an_inline_read(peer: &Peer<Mutual>, window: Window) {
    let _ = peer.read_inline(b"", window);
}

fn r31_a_completion_by_hand<P: Provider>(ctx: &Context<P>) {
    let _ = ctx.create_cq(16);
}

fn r14_an_immediate_on_a_read(peer: &Peer<Mutual>, slice: Slice, window: Window) {
    let _ = peer.read(slice, window).imm(1);
}

fn a_second_immediate(peer: &Peer<Mutual>) {
    let _ = peer.send_empty().imm(1).imm(2);
}

fn main() {}
