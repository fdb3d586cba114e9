//! R15: memory that the CPU does not see has no bytes here, whatever its slices and regions are used for.

use efa_core::memory::{DmaBuf, Exposed, Opaque, Pool, Region, RemoteReadWrite, Slice};
use efa_core::work::Event;

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

fn main() {}
