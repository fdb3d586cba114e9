//! A hostile device, which keeps to its rules and to nothing more: messages in pieces, lost, late and refused,
//! peers that die and come back, completions of the dead, queues that overrun, counters that wrap.

#[path = "../common/mod.rs"]
mod common;

mod death;
mod overrun;
mod pieces;
mod senders;
mod sqe;
mod stale;
mod statuses;
mod verbs;
mod wire;
mod wrap;

use common::{page, slice};
use efa_core::memory::{Exposed, Pages, RemoteReadWrite, Slice};
use efa_core::peer::RemoteWindow;
use efa_core::qp::{Depth, QpKind};
use efa_core::soft::{Config, Side, pair_of};

/// Two connected endpoints on two devices, 8 operations deep.
fn pair(config: Config) -> (Side, Side) {
    pair_of(config, Depth::new(8, 8)).unwrap()
}

/// A page of one side as the other sees it.
fn window<K: QpKind>(of: &Side<K>, to: &Side<K>) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    let memory = page(&of.ctx, &of.pd);
    let window = to.peer.window(memory.grant(&of.endpoint).unwrap().as_bytes()).unwrap();
    (memory, window)
}

/// Registered bytes of one side.
fn bytes<K: QpKind>(of: &Side<K>, bytes: &[u8]) -> Slice {
    slice(&of.pd, bytes).1
}

/// The first bytes of exposed memory.
fn look(memory: &Exposed<Pages, RemoteReadWrite>, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    memory.copy_out(0, &mut found).unwrap();
    found
}
