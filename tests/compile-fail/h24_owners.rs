//! The tensor is the region's until it was deregistered, and is exposed only if it may be written.

use efa_core::memory::RemoteWrite;
use efa_core::{Granted, ProtectionDomain};
use efa_cuda::dlpack::Tensor;
use efa_cuda::{Driver, GpuRegion, ReadOnly};

fn moved_while_it_is_registered(driver: Driver, pd: &ProtectionDomain<efa_os::Device>, tensor: Tensor) {
    let registered = driver.register(pd, tensor).unwrap();
    drop(tensor);
    drop(registered);
}

fn taken_out(region: GpuRegion<Tensor>) -> Tensor {
    region.owner
}

fn exposed_although_read_only(
    driver: Driver,
    pd: &ProtectionDomain<efa_os::Device>,
    tensor: Tensor<ReadOnly>,
    access: Granted<RemoteWrite>,
) {
    driver.expose(pd, tensor, access).unwrap();
}

fn host_memory_as_a_gpus(driver: Driver, pd: &ProtectionDomain<efa_os::Device>) {
    driver.register(pd, vec![0u8; 64]).unwrap();
}

fn main() {}
