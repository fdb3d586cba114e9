//! What a context says of its device, and what a domain makes of what is asked.

mod common;

use common::puppet::Puppet;
use common::{LIMITS, config, required, zeros};
use efa_core::qp::Srd;
use efa_core::soft::{Profile, SoftDevice, pair};
use efa_core::work::Event;
use efa_core::{Caps, Context, DataPath, Error, Limit, Limits, Token};

#[test]
fn a_context_says_what_its_device_says() {
    let ctx = Context::open(SoftDevice::new(config(Profile::READ)));
    assert_eq!(ctx.name(), "software0");
    assert_eq!(ctx.caps(), Profile::READ.caps());
    assert!(ctx.caps().contains(Caps::RDMA_READ) && !ctx.caps().contains(Caps::RDMA_WRITE));
    assert_eq!(ctx.limits(), LIMITS);
    assert_eq!((ctx.data_path(), ctx.data_path().to_string()), (DataPath::Direct, "direct".into()));
    assert_eq!(DataPath::Verbs.to_string(), "verbs");
}

#[test]
fn r35_what_registrations_cost_is_told_by_devices_that_count_it() {
    let pd = Context::open(SoftDevice::new(config(Profile::RDMA))).alloc_pd().unwrap();
    let _slices = [zeros(&pd, 8), zeros(&pd, 100)];
    assert_eq!(pd.registrations().unwrap().to_string(), "2 registrations of 108 bytes");
    let another = Context::open(SoftDevice::new(config(Profile::RDMA))).alloc_pd().unwrap();
    let _slice = zeros(&another, 8);
    assert_eq!(another.registrations().unwrap().to_string(), "1 registration of 8 bytes");
    let silent = Context::open(Puppet::new(Profile::RDMA.caps())).alloc_pd().unwrap();
    assert!(silent.registrations().is_none());
}

#[test]
fn r17_a_group_may_have_all_entries_that_a_queue_can_and_not_one_more() {
    // Few: each is made, which takes Miri long.
    const ENTRIES: u32 = 256;
    let config = config(Profile::RDMA).limits(Limits { max_cqe: ENTRIES, ..LIMITS });
    let ctx = Context::open(SoftDevice::new(config));
    let pd = ctx.alloc_pd().unwrap();
    assert!(pd.group::<Srd, 2>(required(&ctx), ENTRIES).is_ok());
    let asked = ENTRIES + 1;
    let refused = pd.group::<Srd, 2>(required(&ctx), asked).map(drop);
    let (asked, limit) = (asked.into(), ENTRIES.into());
    assert_eq!(refused, Err(Error::AboveLimit { what: Limit::CompletionEntries, asked, limit }));
}

#[test]
fn a_side_of_a_pair_waits_for_its_next_event() {
    let (mut a, mut b) = pair(Profile::RDMA).unwrap();
    b.endpoint.post_recv(zeros(&b.pd, 8), Token(1)).unwrap();
    a.endpoint.post(a.peer.send(zeros(&a.pd, 8)), Token(2)).unwrap();
    assert_eq!(a.wait().map(|event| event.token()), Some(Some(Token(2))));
    assert!(matches!(b.wait(), Some(Event::Received(message)) if message.len == 8));
    // A hundred thousand polls take Miri some minutes.
    assert!(cfg!(miri) || b.wait().is_none(), "nothing more comes");
}
