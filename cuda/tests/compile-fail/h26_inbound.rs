//! H26: what was not flushed is not read, and what has not arrived is not flushed.

use efa_core::Token;
use efa_core::memory::{Opaque, Slice};
use efa_core::qp::{Endpoint, Srd};
use efa_cuda::{BorrowedDevice, Completed, Current, Device, GpuRegion, Inbound, ReadOnly, Scope, WritesOrdered};
use efa_cuda::dlpack::Tensor;

fn read_completed(arrived: Inbound<Completed>, launch: fn(u64)) {
    launch(arrived.address());
}

fn flushed_before_its_completion(
    b: &mut Endpoint<efa_os::Device, Srd>,
    region: &GpuRegion<BorrowedDevice>,
    slice: Slice<Opaque>,
    current: &Current,
) {
    b.post_recv(slice, Token(1)).unwrap();
    region.completed(slice).unwrap().flush(current, Scope::Owner).unwrap();
}

fn read_after_a_flush_that_failed(arrived: Inbound<Completed>, current: &Current, launch: fn(u64)) {
    if let Err(refused) = arrived.flush(current, Scope::Owner) {
        launch(refused.into_inner().address());
    }
}

fn a_proof_made_up(arrived: Inbound<Completed>) {
    arrived.elide(WritesOrdered { device: 0 }).unwrap();
}

fn a_context_taken_to_another_thread(device: Device, arrived: Inbound<Completed>) {
    device
        .within(|current| std::thread::scope(|scope| scope.spawn(|| arrived.flush(current, Scope::Owner)).join()))
        .unwrap()
        .unwrap();
}

fn arrived_in_what_is_not_to_be_written(region: &GpuRegion<Tensor<ReadOnly>>, slice: Slice<Opaque>) {
    region.completed(slice).unwrap();
}

fn main() {}
