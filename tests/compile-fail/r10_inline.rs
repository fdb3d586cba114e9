//! R10: inline bytes beyond what an entry has room for, inline writes without wide entries, and what is no bytes.

use efa_core::memory::{RemoteRead, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, RemoteWindow};
use efa_core::qp::{Endpoint, SendOnly, Solicited, Srd, Wide, ops};
use efa_core::{Provider, Token};

type Window = RemoteWindow<RemoteReadWrite>;
type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;

fn an_inline_write_on_a_narrow_queue_pair<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, window: Window) {
    let _ = qp.post(peer.write_inline(b"bytes", window), Token(0));
}

fn an_inline_write_in_a_narrow_batch<P: Provider>(
    qp: &mut Endpoint<P, SendOnly>,
    peer: &Peer<Mutual>,
    window: Window,
) {
    let _ = qp.batch().push(peer.write_inline(b"bytes", window), Token(0));
}

fn an_inline_write_on_a_wide_queue_pair_without_write<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::SEND | ops::RDMA_READ }, Solicited, Wide>>,
    peer: &Peer<Mutual>,
    window: Window,
) {
    let _ = qp.post(peer.write_inline(b"bytes", window), Token(0));
}

fn an_immediate_on_an_inline_write_without_it<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::RDMA_WRITE }, Solicited, Wide>>,
    peer: &Peer<Mutual>,
    window: Window,
) {
    let _ = qp.post(peer.write_inline(b"bytes", window).imm(1), Token(0));
}

fn an_inline_write_to_who_has_not_resolved_us(peer: &Peer<OneWay>, window: Window) {
    let _ = peer.write_inline(b"bytes", window);
}

fn an_inline_write_to_memory_that_is_granted_to_be_read(peer: &Peer<Mutual>, window: RemoteWindow<RemoteRead>) {
    let _ = peer.write_inline(b"bytes", window);
}

fn an_array_of_33_bytes_in_a_narrow_entry<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>) {
    let _ = qp.post(peer.send_inline([0; 33]), Token(0));
}

fn an_array_of_81_bytes_in_a_wide_entry<P: Provider>(qp: &mut Endpoint<P, WideSrd>, peer: &Peer<Mutual>) {
    let _ = qp.post(peer.send_inline(&[0; 81]), Token(0));
}

fn an_array_of_81_bytes_in_an_inline_write<P: Provider>(
    qp: &mut Endpoint<P, WideSrd>,
    peer: &Peer<Mutual>,
    window: Window,
) {
    let _ = qp.post(peer.write_inline([0; 81], window), Token(0));
}

fn a_registered_slice_inline(peer: &Peer<Mutual>, slice: Slice) {
    let _ = peer.send_inline(slice);
}

fn entries_of_a_size_of_ones_own(ctx: &efa_core::Context<efa_core::soft::SoftDevice>) {
    let _ = ctx.require::<Srd<{ ops::ALL }, Solicited, [u8; 96]>>();
}

fn main() {}
