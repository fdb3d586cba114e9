//! R15: memory that the CPU does not see has no bytes here, whatever its slices and regions are used for; and H26: it
//! is not posted until somebody said that those who reach it were waited for, each time.

use efa_core::flow::Split;
use efa_core::memory::{DmaBuf, Exposed, ExposedPart, Opaque, Ordered, Pool, Region, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::Endpoint;
use efa_core::work::Event;
use efa_core::{Provider, Token};

trait Gpu: DmaBuf<View = Opaque> {}

fn read(slice: &Slice<Opaque>) -> u8 {
    slice[0]
}

fn seen_as_bytes(slice: &Slice<Opaque>) -> &[u8] {
    slice
}

fn frozen(slice: Slice<Opaque>) {
    let _ = slice.freeze();
}

fn taken_for_memory_that_is_seen(slice: Slice<Opaque>) -> Slice {
    slice
}

fn pooled(slice: Slice<Opaque>) {
    let _ = Pool::<4>::new(slice, 64);
}

fn closed_with_other_memory<M: Gpu>(region: Region<M>, whole: Slice) {
    let _ = region.close(whole);
}

fn joined(first: Slice, second: Slice<Opaque>) {
    let _ = first.unsplit(second);
}

fn copied_out<M: Gpu>(exposed: &Exposed<M, RemoteReadWrite>, target: &mut [u8]) {
    let _ = exposed.copy_out(0, target);
}

fn loaded<M: Gpu>(exposed: &Exposed<M, RemoteReadWrite>) {
    let _ = exposed.load(0);
}

fn a_received_message_read(event: Event) {
    if let Event::Received(mut message) = event {
        let slice = message.buffers.take_opaque();
        println!("{:?}", slice.map(|slice| slice.to_vec()));
    }
}

fn posted_as_it_is<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual>, slice: Slice<Opaque>) {
    let _ = qp.post(peer.send(slice), Token(1));
}

fn received_into_as_it_is<P: Provider>(qp: &mut Endpoint<P>, slice: Slice<Opaque>) {
    let _ = qp.post_recv(slice, Token(1));
}

fn a_part_posted_as_it_is<P: Provider, M: Gpu>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    exposed: &Exposed<M, RemoteReadWrite>,
) {
    let _ = qp.post(peer.send(exposed.part(0..1).unwrap()), Token(1));
}

fn posted_again_by_a_copy_of_a_part(part: &ExposedPart<Ordered>) -> ExposedPart<Ordered> {
    part.clone()
}

fn read_into_in_parts_as_it_is(slice: Slice<Opaque>, window: RemoteWindow<RemoteReadWrite>) {
    let _ = Split::<_, 4, _>::new(slice, window, 4096, Token(1));
}

fn ordered_without_a_word(slice: Slice<Opaque>) -> Slice<Ordered> {
    slice.assume_ordered()
}

fn main() {}
