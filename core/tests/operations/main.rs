//! Operations: what arrives is what was sent, whole or not at all. Programs of many are in `model`.

#[path = "../common/mod.rs"]
mod common;

mod batches;
mod limits;
mod order;
mod rdma;
mod receives;
mod sends;

use common::{page, wait, zeros};
use efa_core::Token;
use efa_core::memory::{Buffers, Exposed, Pages, RemoteReadWrite};
use efa_core::peer::RemoteWindow;
use efa_core::soft::Side;
use efa_core::work::{Event, Received};

const IMMEDIATES: [u32; 4] = [0, 1, 0x8000_0001, u32::MAX];

/// Exposed memory of one side as the other sees it.
fn window(of: &Side, to: &Side) -> (Exposed<Pages, RemoteReadWrite>, RemoteWindow<RemoteReadWrite>) {
    let memory = page::<_, RemoteReadWrite>(&of.ctx, &of.pd);
    let window = to.peer.window(memory.grant(&of.endpoint).unwrap().as_bytes()).unwrap();
    (memory, window)
}

/// What arrives in a receive of 64 bytes.
fn received(side: &mut Side) -> (Vec<u8>, Option<u32>) {
    let Event::Received(Received { len, imm, mut buffers, .. }) = wait(&mut side.endpoint) else { panic!() };
    (buffers.take_slice().unwrap()[..len].to_vec(), imm)
}

fn recv(side: &mut Side, token: u64) {
    side.endpoint.post_recv(zeros(&side.pd, 64), Token(token)).unwrap();
}

fn sent(side: &mut Side, token: u64) -> Buffers {
    match wait(&mut side.endpoint) {
        Event::Sent(done) if done.token == Token(token) => done.buffers,
        event => panic!("{event:?}"),
    }
}
