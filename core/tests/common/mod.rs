//! What the tests of core share: small software devices, endpoints on them, memory and waiting.

#![allow(dead_code)] // each test uses a part of it

pub(crate) mod puppet;

use efa_core::memory::{Exposed, PageSize, Pages, Region, RemoteAccess, Slice};
use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, QpKind, QueuePair, State};
use efa_core::soft::{Config, Profile, Side, SoftDevice, pair_of};
use efa_core::work::{Event, Failure};
use efa_core::{Context, Granted, Limits, ProtectionDomain, Provider, Requirement};

/// Tables so small that Miri fills them in no time.
pub(crate) const LIMITS: Limits = Limits { max_qp: 8, max_cq: 16, max_mr: 32, max_pd: 8, max_ah: 15, ..Config::LIMITS };

/// A small device that delivers in order.
pub(crate) fn config(profile: Profile) -> Config {
    Config::new(profile).limits(LIMITS).packets(64).shuffle(false)
}

/// A context on a small device.
pub(crate) fn context(profile: Profile) -> Context<SoftDevice> {
    Context::open(SoftDevice::new(config(profile)))
}

/// Two connected endpoints on two small devices, which deliver in order.
pub(crate) fn pair() -> (Side, Side) {
    pair_of(config(Profile::RDMA), Depth::new(8, 8)).unwrap()
}

/// Two endpoints of one domain, each resolved by the other.
#[allow(clippy::type_complexity)] // four things
pub(crate) fn connect<P: Provider, K: QpKind>(
    a: &Endpoint<P, K>,
    b: &Endpoint<P, K>,
) -> (Peer<Mutual, K::Features>, Peer<Mutual, K::Features>) {
    efa_core::connect::introduce(a, b).unwrap()
}

/// Registered memory with this content.
pub(crate) fn slice<P: Provider>(pd: &ProtectionDomain<P>, bytes: &[u8]) -> (Region<Vec<u8>>, Slice) {
    pd.register(bytes.to_vec()).unwrap()
}

/// Registered zeros.
pub(crate) fn zeros<P: Provider>(pd: &ProtectionDomain<P>, len: usize) -> Slice {
    pd.register(vec![0; len]).unwrap().1
}

/// A page of exposed zeros.
pub(crate) fn page<P: Provider, A: RemoteAccess>(ctx: &Context<P>, pd: &ProtectionDomain<P>) -> Exposed<Pages, A> {
    let token: Granted<A> = required(ctx);
    pd.expose(Pages::new(1, PageSize::Base).unwrap(), token).unwrap()
}

/// A token that the device must have.
pub(crate) fn required<P: Provider, T: Requirement>(ctx: &Context<P>) -> Granted<T> {
    ctx.require().unwrap()
}

/// The next event, which must come.
#[track_caller]
pub(crate) fn wait<P: Provider, S: State, K: QpKind>(qp: &mut QueuePair<P, S, K>) -> Event {
    (0..10_000).find_map(|_| qp.poll()).expect("an event")
}

/// The next event, which must be a failure.
#[track_caller]
pub(crate) fn wait_failed<P: Provider, S: State, K: QpKind>(qp: &mut QueuePair<P, S, K>) -> Failure {
    match wait(qp) {
        Event::Failed { failure, .. } => failure,
        event => panic!("{event:?} is no failure"),
    }
}

/// No event comes.
#[track_caller]
pub(crate) fn assert_idle<P: Provider, S: State, K: QpKind>(qp: &mut QueuePair<P, S, K>) {
    for _ in 0..20 {
        let event = qp.poll();
        assert!(event.is_none(), "{event:?}");
    }
}

/// The one slice of an event, whichever it is.
#[track_caller]
pub(crate) fn slice_of(event: Event) -> Slice {
    let mut buffers = match event {
        Event::Sent(done) | Event::Written(done) | Event::Read(done) => done.buffers,
        Event::Received(message) => message.buffers,
        Event::WriteArrived(arrived) => arrived.buffers,
        Event::Failed { buffers, .. } | Event::Reclaimed { buffers, .. } => buffers,
        Event::UnsolicitedWrite(_) => panic!("an unsolicited write has no buffer"),
    };
    let slice = buffers.take_slice().expect("a slice");
    assert!(buffers.is_empty());
    slice
}
