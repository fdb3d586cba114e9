//! R05: a peer is posted to by queue pairs of its own feature set.

use efa_core::memory::{RemoteReadWrite, Slice};
use efa_core::peer::{Mutual, Peer, PeerTable, RemoteWindow};
use efa_core::qp::{Endpoint, Solicited, Srd, Unsolicited, ops};
use efa_core::{Provider, Token};

type UnsolicitedSrd = Srd<{ ops::ALL }, Unsolicited>;

fn send<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<Mutual, Unsolicited>, slice: Slice) {
    let _ = qp.post(peer.send(slice), Token(0));
}

fn write<P: Provider>(
    qp: &mut Endpoint<P, UnsolicitedSrd>,
    peer: &Peer<Mutual, Solicited>,
    slice: Slice,
    window: RemoteWindow<RemoteReadWrite>,
) {
    let _ = qp.post(peer.write(slice, window).imm(1), Token(0));
}

fn batch<P: Provider>(qp: &mut Endpoint<P, UnsolicitedSrd>, peer: &Peer<Mutual, Solicited>) {
    let _ = qp.batch().push(peer.send_empty(), Token(0));
}

fn table(table: &mut PeerTable<4, Mutual, Unsolicited>, peer: Peer<Mutual, Solicited>) {
    let _ = table.insert(peer);
}

fn main() {}
