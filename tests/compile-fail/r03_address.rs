//! R03: nothing that makes peers come leaves a queue pair that cannot receive, and none is resolved by it.

use efa_core::Provider;
use efa_core::memory::{Exposed, RemoteWrite};
use efa_core::qp::{Err, Init, QueuePair, Reset, Sqd, Sqe, Srd};
use efa_core::wire::EndpointInfo;

fn hello_in_reset<P: Provider>(qp: &QueuePair<P, Reset, Srd>) {
    let _ = qp.hello();
}

fn hello_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>) {
    let _ = qp.hello();
}

fn hello_in_sqd<P: Provider>(qp: &QueuePair<P, Sqd, Srd>) {
    let _ = qp.hello();
}

fn hello_in_sqe<P: Provider>(qp: &QueuePair<P, Sqe, Srd>) {
    let _ = qp.hello();
}

fn hello_in_err<P: Provider>(qp: &QueuePair<P, Err, Srd>) {
    let _ = qp.hello();
}

fn address_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>) {
    let _ = qp.address();
}

fn resolve_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>, hello: &[u8]) {
    let _ = qp.resolve(hello);
}

fn resolve_address_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>, address: EndpointInfo) {
    let _ = qp.resolve_address(address);
}

fn grant_in_init<P: Provider>(qp: &QueuePair<P, Init, Srd>, memory: &Exposed<Vec<u8>, RemoteWrite>) {
    let _ = memory.grant(qp);
}

fn main() {}
