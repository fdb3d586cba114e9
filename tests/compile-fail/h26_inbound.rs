//! H26: what was not flushed is not read, and what has not arrived is not flushed.

use std::time::Duration;

use efa_core::{Provider, Token};
use efa_core::memory::{Opaque, Ordered, Slice};
use efa_core::qp::{Endpoint, Srd};
use efa_cuda::{BorrowedDevice, Completed, Current, Device, GpuRegion, Inbound, Loopback, Owner, ReadOnly, Scope};
use efa_cuda::WritesOrdered;
use efa_cuda::dlpack::Tensor;

fn read_completed(arrived: Inbound<Completed>, launch: fn(u64)) {
    launch(arrived.address());
}

fn flushed_before_its_completion(
    b: &mut Endpoint<efa_os::Device, Srd>,
    region: &GpuRegion<BorrowedDevice>,
    slice: Slice<Ordered>,
    current: &Current,
) {
    b.post_recv(slice, Token(1)).unwrap();
    region.completed(slice.unposted()).unwrap().flush(current, Scope::Owner).unwrap();
}

fn read_after_a_flush_that_failed(arrived: Inbound<Completed>, current: &Current, launch: fn(u64)) {
    if let Err(refused) = arrived.flush(current, Scope::Owner) {
        launch(refused.into_inner().address());
    }
}

fn read_after_a_loopback_that_failed<P: Provider, O: Owner>(
    loopback: &mut Loopback<P, O>,
    arrived: Inbound<Completed>,
    launch: fn(u64),
) {
    if let Err(refused) = loopback.flush(arrived, Duration::ZERO) {
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
