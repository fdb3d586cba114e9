//! R07: what needs a capability takes the token that proves it, and only the device's query makes tokens.

use efa_core::memory::{RemoteRead, RemoteWrite};
use efa_core::qp::{Depth, RnrRetry, RtsAttr, SendOnly, Srd};
use efa_core::{Granted, ProtectionDomain, Provider, SetRnrRetry};

fn no_token<P: Provider>(pd: &ProtectionDomain<P>) {
    let _ = pd.endpoint(Depth::new(1, 1));
}

fn a_token_of_another_access<P: Provider>(pd: &ProtectionDomain<P>, read: Granted<RemoteRead>) {
    let _: efa_core::memory::Exposed<Vec<u8>, RemoteWrite> = pd.expose(vec![0; 8], read).unwrap();
}

fn a_token_of_another_kind<P: Provider>(pd: &ProtectionDomain<P>, send_only: Granted<SendOnly>) {
    let _: efa_core::qp::Endpoint<P, Srd> = pd.endpoint(send_only, Depth::new(1, 1)).unwrap();
}

fn an_access_type_for_a_kind<P: Provider>(pd: &ProtectionDomain<P>, write: Granted<RemoteWrite>) {
    let _ = pd.endpoint(write, Depth::new(1, 1));
}

fn a_kind_for_an_access_type<P: Provider>(pd: &ProtectionDomain<P>, srd: Granted<Srd>) {
    let _ = pd.expose(vec![0; 8], srd);
}

fn retries_without_the_capability() {
    let _ = RtsAttr::new().rnr_retry(RnrRetry::FOREVER);
}

fn a_token_for_what_is_no_requirement<P: Provider>(ctx: &efa_core::Context<P>) {
    let _ = ctx.require::<u32>();
}

fn of_another_requirement(write: Granted<RemoteWrite>) -> Granted<SetRnrRetry> {
    write
}

fn main() {}
