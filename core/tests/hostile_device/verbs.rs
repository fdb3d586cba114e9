//! Verbs that fail on their n-th call: what they took comes back, or is kept and counted (R34).

use efa_core::memory::RemoteWrite;
use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::{Context, Error, ProtectionDomain, Provider, Token, Verb};

use crate::common::{LIMITS, config, page, required, zeros};
use crate::pair;

fn open(config: Config) -> (Context<SoftDevice>, ProtectionDomain<SoftDevice>) {
    let ctx = Context::open(SoftDevice::new(config));
    let pd = ctx.alloc_pd().unwrap();
    (ctx, pd)
}

fn device(verb: Verb, errno: i32) -> Error {
    Error::Device { verb, errno }
}

fn rdma() -> Config {
    config(Profile::RDMA)
}

#[test]
fn a_registration_that_fails_gives_the_memory_back_and_the_next_succeeds() {
    let (_ctx, pd) = open(rdma().fail_verb(Verb::RegMr, 2, 12));
    let _first = pd.register(vec![1; 8]).unwrap();
    let refused = pd.register(vec![2; 8]).unwrap_err();
    assert_eq!(refused.error(), device(Verb::RegMr, 12));
    assert!(refused.to_string().contains("RLIMIT_MEMLOCK"), "{refused}");
    let (region, slice) = pd.register(refused.into_inner()).unwrap();
    assert_eq!(region.close(slice).unwrap(), [2; 8]);
}

#[test]
fn r34_a_deregistration_that_fails_keeps_what_peers_can_reach_and_can_be_tried_again() {
    let (ctx, pd) = open(rdma().fail_verb(Verb::DeregMr, 1, 5));
    let exposed = page::<_, RemoteWrite>(&ctx, &pd);
    let refused = exposed.revoke().unwrap_err();
    assert_eq!(refused.error(), device(Verb::DeregMr, 5));
    assert_eq!(ctx.provider().leaks().regions(), 0, "whoever has it decides");
    assert_eq!(refused.into_inner().revoke().unwrap().len(), 4096);
}

#[test]
fn an_address_handle_that_fails_leaves_the_peer_unresolved_until_the_next_try() {
    for (errno, says) in [(22, "another availability zone"), (12, "table of address handles is full")] {
        let (ctx, pd) = open(rdma().fail_verb(Verb::CreateAh, 1, errno));
        let make = || pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
        let (a, b) = (make(), make());
        let hello = b.hello();
        let error = a.resolve(hello.as_bytes()).unwrap_err();
        assert_eq!(error, device(Verb::CreateAh, errno));
        assert!(error.to_string().contains(says), "{error}");
        assert!(a.resolve(hello.as_bytes()).is_ok());
    }
}

#[test]
fn a_queue_pair_that_fails_at_any_step_of_its_making_leaves_nothing_behind() {
    // Of each there is room for one queue pair, so that a leak would be seen.
    let limits = efa_core::Limits { max_qp: 1, max_cq: 2, max_pd: 1, ..LIMITS };
    let steps =
        [(Verb::CreateCq, 1), (Verb::CreateCq, 2), (Verb::CreateQp, 1), (Verb::ModifyQp, 1), (Verb::ModifyQp, 3)];
    for (verb, nth) in steps {
        let (ctx, pd) = open(rdma().limits(limits).fail_verb(verb, nth, 12));
        for _ in 0..2 {
            let made = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4));
            match made {
                Ok(endpoint) => endpoint.close().unwrap(),
                Err(error) => assert_eq!(error, device(verb, 12)),
            }
        }
        assert!(pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).is_ok(), "{verb} {nth}");
        assert_eq!((ctx.provider().leaks().queue_pairs(), ctx.provider().leaks().regions()), (0, 0));
    }
    let ctx = Context::open(SoftDevice::new(rdma().limits(limits).fail_verb(Verb::AllocPd, 1, 12)));
    assert_eq!(ctx.alloc_pd().err(), Some(device(Verb::AllocPd, 12)));
    assert!(ctx.alloc_pd().is_ok());
}

#[test]
fn r34_a_queue_pair_that_fails_to_be_destroyed_comes_back_with_what_is_in_flight() {
    let (a, mut b) = pair(rdma().fail_verb(Verb::DestroyQp, 1, 5));
    // Each device counts for itself; that of a queue pair dropped at the first call would be leaked.
    drop(a.endpoint.close().unwrap_err());
    assert_eq!(a.ctx.provider().leaks().queue_pairs(), 0);
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    let refused = b.endpoint.close().unwrap_err();
    assert_eq!(refused.error(), device(Verb::DestroyQp, 5));
    assert!(refused.to_string().contains("kept"), "{refused}");
    let qp = refused.into_inner();
    assert_eq!(qp.in_flight(), 1);
    let mut resolved = 0;
    qp.shut_down(|| false, |_| resolved += 1).unwrap();
    assert_eq!((resolved, b.ctx.provider().leaks().queue_pairs()), (1, 0));
}
