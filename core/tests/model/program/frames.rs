//! Who knows whom, and what damaged frames do.

use efa_core::connect::introduce;
use efa_core::memory::RemoteReadWrite;
use efa_core::{Error, Token};

use super::srd::{Kind, Request};
use super::{DEPTH, Granted, Known, NODES, Node, Piece, Qp, World, pattern};

impl<K: super::kind::Kind> World<K> {
    pub(super) fn introduce(&mut self, node: usize, other: usize) {
        let (Node { qp: Qp::Up(a), life: a_life, .. }, Node { qp: Qp::Up(b), life: b_life, .. }) =
            (&self.nodes[node], &self.nodes[other])
        else {
            return;
        };
        let (a_life, b_life) = (*a_life, *b_life);
        match introduce(a, b) {
            Ok((to_b, to_a)) => {
                self.meet(node, other, Known { peer: to_b, own: a_life, to: b_life });
                self.meet(other, node, Known { peer: to_a, own: b_life, to: a_life });
                self.grant(node, other);
                self.grant(other, node);
            }
            Err(error) => self.expect_device(&error),
        }
    }

    fn meet(&mut self, node: usize, other: usize, known: Known) {
        let nic = self.nodes[other].nic;
        self.handles.insert((node, known.peer.ahn()));
        self.srd.resolves(node, nic, true);
        if let Some(before) = self.nodes[node].peers[other].replace(known) {
            drop(before);
            self.srd.resolves(node, nic, false);
        }
    }

    /// Lets `other` reach what `node` exposes.
    pub(super) fn grant(&mut self, node: usize, other: usize) {
        let Node { qp: Qp::Up(qp), exposed: Some(shared), life, .. } = &self.nodes[node] else { return };
        let (memory, by, grant) = (shared.memory, *life, shared.exposed.grant(qp).unwrap());
        let Some(Known { peer, to, .. }) = &self.nodes[other].peers[node] else { return };
        match peer.window(grant.as_bytes()) {
            Ok(window) => {
                assert_eq!(*to, by);
                let granted = Granted { memory, window, by, ahn: peer.ahn() };
                self.nodes[other].windows[node] = Some(granted);
            }
            Err(error) => assert!(matches!(error, Error::StaleGrant { .. }) && *to != by, "{error}"),
        }
    }

    /// A frame with a bit changed: what cannot be told is a stranger, what can be is refused.
    pub(super) fn corrupt(&mut self, node: usize, other: usize, at: usize, bit: u8) {
        self.exorcise(node, DEPTH as usize);
        let change = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            let len = bytes.len();
            bytes[at % len] ^= 1 << (bit % 8);
            bytes
        };
        let (Node { qp: Qp::Up(a), life, .. }, Node { qp: Qp::Up(b), life: b_life, exposed, .. }) =
            (&self.nodes[node], &self.nodes[other])
        else {
            return;
        };
        let (own, to, nic) = (*life, *b_life, self.nodes[other].nic);
        let (Ok((to_b, _)), Ok((_to_a, ready))) = (a.resolve(b.hello().as_bytes()), b.resolve(a.hello().as_bytes()))
        else {
            return;
        };
        let refused = to_b.confirm(&change(ready.as_bytes())).unwrap_err();
        let error = refused.error();
        let right = matches!(error, Error::Parse(_) | Error::NotThisPeer { .. } | Error::StaleReady { .. });
        assert!(right, "{error}");
        let to_b = refused.into_inner().confirm(ready.as_bytes()).unwrap();
        let grant = exposed.as_ref().map(|shared| change(shared.exposed.grant(b).unwrap().as_bytes()));
        self.handles.insert((node, to_b.ahn()));
        let stranger = a.resolve(&change(b.hello().as_bytes()));
        if self.kept.len() < 8 {
            self.srd.resolves(node, nic, true);
            // Of a window that is nowhere: the read fails, or reads something of what is exposed.
            if let Some(window) = grant.and_then(|grant| to_b.window::<RemoteReadWrite>(&grant).ok()) {
                let (request, token) = (Request { kind: Kind::Read, ..request(own, Some(to)) }, self.token());
                if let Some(Piece { slice, owner }) = self.piece(node) {
                    let (lent, len) = (super::posts::lent(&slice, owner), slice.len());
                    let Qp::Up(qp) = &mut self.nodes[node].qp else { unreachable!() };
                    match qp.post(to_b.read(slice, window), Token(token)) {
                        Ok(()) => {
                            self.posted(token, Request { len, ..request }, vec![lent]);
                            self.reached.insert("a read of a corrupted window");
                        }
                        Err(refused) => self.give(node, Piece { slice: refused.into_inner(), owner }),
                    }
                }
            }
            self.kept.push(to_b);
        }
        let (Ok((stranger, _)), true) = (stranger, self.strangers.len() < 4) else { return };
        self.handles.insert((node, stranger.ahn()));
        let token = self.token();
        let bytes = pattern(token, 12);
        let Qp::Up(qp) = &mut self.nodes[node].qp else { unreachable!() };
        if qp.post(stranger.one_way().send_inline(&bytes[..]), Token(token)).is_ok() {
            self.posted(token, Request { len: 12, bytes: Some(bytes), ..request(own, None) }, vec![]);
        }
        self.strangers.push(stranger);
        self.reached.insert("a stranger resolved");
        debug_assert!(self.nodes.len() == NODES);
    }
}

fn request(from: usize, to: Option<usize>) -> Request {
    Request { kind: Kind::Send, from, to, imm: None, len: 0, bytes: None, remote: None }
}
