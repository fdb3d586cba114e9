//! Wires in different processes, connected by frames: see `soft::link`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../soft_queues/driver.rs"]
#[allow(dead_code)]
mod driver;

mod bytes;
mod counters;
mod datagrams;
mod frames;
mod hostile;
mod lives;
mod lossy;
mod net;
mod statuses;

use common::{LIMITS, slice};
use efa_core::connect::{Side, connect_of};
use efa_core::memory::{Exposed, PageSize, Pages, RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, RemoteWindow, Sender};
use efa_core::qp::{Depth, Endpoint, QpKind, Srd};
use efa_core::soft::link::PAYLOAD;
use efa_core::soft::{Config, Profile, SoftDevice};
use efa_core::work::{Event, Failure};
use efa_core::{Context, Limits, Token};
use net::{Net, gid};

type Link<K = Srd> = Side<SoftDevice, K>;

/// The `n`-th wire, in the first of its lives.
fn config(n: u64) -> Config {
    let limits = Limits { max_msg_size: PAYLOAD as u32, ..LIMITS };
    Config::new(Profile::RDMA).limits(limits).packets(64).shuffle(false).gid(gid(n)).linked(100 + n)
}

/// Two connected endpoints on wires of their own, 8 operations deep.
fn pair_with(a: Config, b: Config) -> (Link, Link, Net) {
    pair_of::<Srd>(a, b, Depth::new(8, 8))
}

fn pair_of<K: QpKind>(a: Config, b: Config, depth: Depth) -> (Link<K>, Link<K>, Net) {
    let devices = [SoftDevice::new(a), SoftDevice::new(b)];
    let net = Net::new(7, &[&devices[0], &devices[1]]);
    let [a, b] = connect_of::<_, K>(devices.map(Context::open), depth).unwrap();
    (a, b, net)
}

fn pair() -> (Link, Link, Net) {
    pair_with(config(1), config(2))
}

/// The next event, which must come before long.
#[track_caller]
fn wait<K: QpKind>(net: &mut Net, qp: &mut Endpoint<SoftDevice, K>) -> Event {
    for _ in 0..20_000 {
        if let Some(event) = qp.poll() {
            return event;
        }
        net.step();
    }
    panic!("no event")
}

#[track_caller]
fn failed<K: QpKind>(net: &mut Net, qp: &mut Endpoint<SoftDevice, K>) -> Failure {
    match wait(net, qp) {
        Event::Failed { failure, .. } => failure,
        event => panic!("{event:?} is no failure"),
    }
}

/// The number of the status that the next event has.
#[track_caller]
fn status<K: QpKind>(net: &mut Net, qp: &mut Endpoint<SoftDevice, K>) -> u8 {
    failed(net, qp).status().unwrap().number()
}

fn known<F: efa_core::qp::FeatureSet>(peer: &Peer<Mutual, F>) -> Sender {
    Sender::Known { ahn: peer.ahn(), qpn: peer.qpn() }
}

#[track_caller]
fn nothing<K: QpKind>(qp: &mut Endpoint<SoftDevice, K>) {
    let event = qp.poll();
    assert!(event.is_none(), "{event:?}");
}

/// Registered bytes of one side; also none.
fn bytes<K: QpKind>(of: &Link<K>, bytes: &[u8]) -> Slice {
    match bytes {
        [] => slice(&of.pd, &[0]).1.split_at(0).unwrap().0,
        bytes => slice(&of.pd, bytes).1,
    }
}

fn recv<K: QpKind>(of: &mut Link<K>, len: usize, token: u64) {
    let target = slice(&of.pd, &vec![0; len]).1;
    of.endpoint.post_recv(target, Token(token)).unwrap();
}

/// A page of one side as the other sees it.
fn window<K: QpKind>(of: &Link<K>, to: &Link<K>) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    pages(of, to, 1)
}

fn pages<K: QpKind>(
    of: &Link<K>,
    to: &Link<K>,
    count: usize,
) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    let memory = of.pd.expose(Pages::new(count * 4096, PageSize::Base).unwrap(), of.ctx.require().unwrap()).unwrap();
    let window = to.peer.window(memory.grant(&of.endpoint).unwrap().as_bytes()).unwrap();
    (memory, window)
}

/// The first bytes of exposed memory.
fn look(memory: &Exposed<Pages, RemoteReadWrite>, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    memory.copy_out(0, &mut found).unwrap();
    found
}

/// Bytes that differ from their neighbours.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) + at / 251 + seed) as u8).collect()
}
