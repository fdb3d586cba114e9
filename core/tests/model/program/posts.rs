//! One operation or receive at a time.

use efa_core::flow::{self, Split};
use efa_core::memory::Slice;
use efa_core::work::{Operation, RecvTarget};
use efa_core::{Error, Token};

use super::srd::{Kind, Life, Request};
use super::{DEPTH, Fate, Granted, Known, Lent, Node, Piece, Qp, SHARED, World, pattern};

/// Polls after which whatever can complete has.
pub(super) const LONG: usize = 2000;

impl Piece {
    pub(super) fn lent(&self) -> Lent {
        lent(&self.slice, self.owner)
    }
}

pub(super) fn lent(slice: &[u8], owner: usize) -> Lent {
    Lent { at: Some(slice.as_ptr().addr()), len: slice.len(), owner, frozen: false }
}

impl<K: super::kind::Kind> World<K> {
    /// A peer of a node, taken out of its place meanwhile.
    pub(super) fn with_peer(&mut self, node: usize, other: usize, call: impl FnOnce(&mut Self, &Known)) {
        self.exorcise(node, self.srd.sends(self.nodes[node].life) + 1);
        if !matches!(self.nodes[node].qp, Qp::Up(_)) {
            return;
        }
        if let Some(known) = self.nodes[node].peers[other].take() {
            call(self, &known);
            self.nodes[node].peers[other] = Some(known);
        }
    }

    /// Reads what haunts a queue before it takes the room of what is posted.
    pub(super) fn exorcise(&mut self, node: usize, in_flight: usize) {
        let is_full = self.setup.one_queue || in_flight + usize::from(self.setup.stale) > DEPTH as usize;
        while is_full && self.nodes[node].haunted && !matches!(self.nodes[node].qp, Qp::None) {
            self.poll(node, 1, Fate::Keep);
        }
    }

    /// A peer of a node, and a slice with a message in it.
    fn with_message(&mut self, node: usize, other: usize, call: impl FnOnce(&mut Self, &Known, u64, Piece)) {
        self.with_peer(node, other, |world, known| {
            let token = world.token();
            let Some(mut piece) = world.piece(node) else { return };
            let bytes = pattern(token, piece.slice.len());
            piece.slice.copy_from_slice(&bytes);
            call(world, known, token, piece);
        });
    }

    /// What core must answer to a post.
    pub(super) fn refusal(&self, node: usize, known: &Known, granted: Option<Granted>) -> Option<Error> {
        let Node { qp: Qp::Up(qp), life, .. } = &self.nodes[node] else { return None };
        let sends = self.srd.sends(*life) as u32;
        if self.srd.has_failed(*life) {
            Some(Error::QueueFailed)
        } else if sends == qp.granted().send {
            Some(Error::QueueFull { in_flight: sends })
        } else if known.own != *life {
            Some(Error::ForeignPeer)
        } else if granted.is_some_and(|granted| granted.by != known.to || granted.ahn != known.peer.ahn()) {
            Some(Error::WindowOfAnotherPeer)
        } else {
            None
        }
    }

    pub(super) fn posted(&mut self, token: u64, request: Request, lent: Vec<Lent>) {
        self.lent.insert(token, (request.from, lent));
        self.srd.post(token, request);
    }

    /// In flight for its queue pair, and never seen by the device.
    pub(super) fn withheld(&mut self, token: u64, life: Life, lent: Vec<Lent>) {
        self.lent.insert(token, (life, lent));
        self.srd.withhold(token, life);
    }

    /// Posts, and holds what core answers against what it must.
    fn post<O: Operation<K>>(
        &mut self,
        node: usize,
        token: u64,
        operation: O,
        request: Request,
        lent: Vec<Lent>,
        expected: Option<Error>,
    ) -> Result<(), O::Source> {
        let Qp::Up(qp) = &mut self.nodes[node].qp else { unreachable!() };
        let result = qp.post(operation, Token(token));
        assert_eq!(result.as_ref().err().map(|refused| refused.error()), expected);
        self.reached.extend(expected.map(|_| "an operation refused"));
        result.map_err(|refused| refused.into_inner())?;
        self.posted(token, request, lent);
        Ok(())
    }

    pub(super) fn send(&mut self, node: usize, other: usize, imm: bool, halves: bool) {
        self.with_message(node, other, |world, known, token, piece| {
            let expected = world.refusal(node, known, None);
            let imm = imm.then_some(token as u32);
            let request = message(known, imm, &piece.slice);
            let owner = piece.owner;
            let back = if halves {
                let third = piece.slice.len() / 3;
                let (head, tail) = piece.slice.split_at(third).unwrap();
                let buffers = vec![lent(&head, owner), lent(&tail, owner)];
                let send = known.peer.send([head, tail]);
                let result = match imm {
                    Some(imm) => world.post(node, token, send.imm(imm), request, buffers, expected),
                    None => world.post(node, token, send, request, buffers, expected),
                };
                world.reached.insert("two buffers sent");
                result.map_err(Vec::from)
            } else {
                let buffers = vec![piece.lent()];
                let send = known.peer.send(piece.slice);
                let result = match imm {
                    Some(imm) => world.post(node, token, send.imm(imm), request, buffers, expected),
                    None => world.post(node, token, send, request, buffers, expected),
                };
                result.map_err(|slice| vec![slice])
            };
            world.give_all(node, back.err(), owner);
        });
    }

    pub(super) fn send_frozen(&mut self, node: usize, other: usize, len: usize) {
        self.with_peer(node, other, |world, known| {
            let token = world.token();
            let Some((frozen, owner)) = world.nodes[node].frozen.last() else { return };
            let part = frozen.part(0..1 + len % frozen.len()).unwrap();
            let buffers = vec![Lent { frozen: true, ..lent(&part, *owner) }];
            let (expected, imm) = (world.refusal(node, known, None), token as u32);
            let request = message(known, Some(imm), &part);
            if world.post(node, token, known.peer.send(part).imm(imm), request, buffers, expected).is_ok() {
                world.reached.insert("a frozen slice sent");
            }
        });
    }

    /// Two buffers of two kinds.
    pub(super) fn send_mixed(&mut self, node: usize, other: usize) {
        self.with_message(node, other, |world, known, token, piece| {
            let Some((frozen, frozen_owner)) = world.nodes[node].frozen.last() else { return world.give(node, piece) };
            let part = frozen.part(0..frozen.len() / 2).unwrap();
            let lent_part = Lent { frozen: true, ..lent(&part, *frozen_owner) };
            let (expected, lent_piece, owner) = (world.refusal(node, known, None), piece.lent(), piece.owner);
            let back = if token % 2 == 0 {
                let request = message(known, None, &[&piece.slice[..], &part].concat());
                let send = known.peer.send((piece.slice, part));
                let result = world.post(node, token, send, request, vec![lent_piece, lent_part], expected);
                result.map_err(|(slice, _)| slice)
            } else {
                let imm = token as u32;
                let request = message(known, Some(imm), &[&part[..], &piece.slice].concat());
                let send = known.peer.send((part, piece.slice)).imm(imm);
                let result = world.post(node, token, send, request, vec![lent_part, lent_piece], expected);
                result.map_err(|(_, slice)| slice)
            };
            world.reached.insert("buffers of two kinds sent");
            world.give_all(node, back.err().map(|slice| vec![slice]), owner);
        });
    }

    pub(super) fn send_exposed(&mut self, node: usize, other: usize, at: usize) {
        self.with_peer(node, other, |world, known| {
            let token = world.token();
            let Some(shared) = &world.nodes[node].exposed else { return };
            let at = at % (SHARED - 16);
            let part = shared.exposed.part(at..at + 16).unwrap();
            let buffers = vec![Lent { at: None, len: 16, owner: shared.owner, frozen: false }];
            let (expected, imm) = (world.refusal(node, known, None), token as u32);
            let request = Request { len: 16, bytes: None, ..message(known, Some(imm), &[]) };
            if world.post(node, token, known.peer.send(part).imm(imm), request, buffers, expected).is_ok() {
                world.reached.insert("a part of exposed memory sent");
            }
        });
    }

    pub(super) fn send_inline(&mut self, node: usize, other: usize, len: usize, imm: bool) {
        self.with_peer(node, other, |world, known| {
            let token = world.token();
            let bytes = pattern(token, len % (K::INLINE + 1));
            let imm = imm.then_some(token as u32);
            let (expected, request) = (world.refusal(node, known, None), message(known, imm, &bytes));
            let peer = &known.peer;
            let result = match (bytes.is_empty(), imm) {
                (true, Some(imm)) => {
                    world.post(node, token, peer.send_empty().imm(imm), request, vec![], expected).is_ok()
                }
                (true, None) => world.post(node, token, peer.send_empty(), request, vec![], expected).is_ok(),
                (false, Some(imm)) => {
                    world.post(node, token, peer.send_inline(&bytes[..]).imm(imm), request, vec![], expected).is_ok()
                }
                (false, None) => {
                    world.post(node, token, peer.send_inline(&bytes[..]), request, vec![], expected).is_ok()
                }
            };
            if result {
                world.reached.insert(match bytes.len() {
                    0 => "an empty SEND",
                    1..=32 => "an inline SEND",
                    _ => "a long inline SEND",
                });
            }
        });
    }

    pub(super) fn write(&mut self, node: usize, other: usize, at: usize, imm: bool) {
        self.with_message(node, other, |world, known, token, piece| {
            let Some(granted) = world.nodes[node].windows[other] else { return world.give(node, piece) };
            let expected = world.refusal(node, known, Some(granted));
            let (len, owner, imm) = (piece.slice.len(), piece.owner, imm.then_some(token as u32));
            let at = at % (SHARED - len);
            let target = granted.window.range(at as u64..(at + len) as u64).unwrap();
            let mut request = message(known, imm, &piece.slice);
            (request.kind, request.remote) = (Kind::Write, Some((granted.memory, at)));
            let buffers = vec![piece.lent()];
            let write = known.peer.write(piece.slice, target);
            let result = match imm {
                Some(imm) => world.post(node, token, write.imm(imm), request, buffers, expected),
                None => world.post(node, token, write, request, buffers, expected),
            };
            world.give_all(node, result.err().map(|slice| vec![slice]), owner);
        });
    }

    pub(super) fn write_inline(&mut self, node: usize, other: usize, len: usize, at: usize, imm: bool) {
        self.with_peer(node, other, |world, known| {
            let (token, len) = (world.token(), len % 33);
            let Some(granted) = world.nodes[node].windows[other] else { return };
            let expected = world.refusal(node, known, Some(granted));
            let (bytes, imm, at) = (pattern(token, len), imm.then_some(token as u32), at % (SHARED - len));
            let target = granted.window.range(at as u64..(at + len) as u64).unwrap();
            let Qp::Up(qp) = &mut world.nodes[node].qp else { unreachable!() };
            let Some(result) = K::write_inline(qp, &known.peer, &bytes, target, imm, token) else { return };
            assert_eq!(result.err(), expected);
            if expected.is_none() {
                let mut request = message(known, imm, &bytes);
                (request.kind, request.remote) = (Kind::Write, Some((granted.memory, at)));
                world.posted(token, request, vec![]);
                world.reached.insert("an inline write");
            }
        });
    }

    pub(super) fn read(&mut self, node: usize, other: usize, at: usize) {
        self.with_message(node, other, |world, known, token, piece| {
            let Some(granted) = world.nodes[node].windows[other] else { return world.give(node, piece) };
            let expected = world.refusal(node, known, Some(granted));
            let (len, owner) = (piece.slice.len(), piece.owner);
            let at = at % (SHARED - len);
            let source = granted.window.range(at as u64..SHARED as u64).unwrap();
            let mut request = Request { len, bytes: None, ..message(known, None, &[]) };
            (request.kind, request.remote) = (Kind::Read, Some((granted.memory, at)));
            let buffers = vec![piece.lent()];
            let result = world.post(node, token, known.peer.read(piece.slice, source), request, buffers, expected);
            world.give_all(node, result.err().map(|slice| vec![slice]), owner);
        });
    }

    fn receiving<T: RecvTarget>(&mut self, node: usize, target: T, lent: Vec<Lent>) -> Option<T> {
        let token = self.token();
        let Node { qp: Qp::Up(qp), life, .. } = &mut self.nodes[node] else { return Some(target) };
        let receives = (self.srd.in_flight(*life) - self.srd.sends(*life)) as u32;
        let full = Error::RecvQueueFull { in_flight: receives };
        let expected = (receives == qp.granted().recv).then_some(full);
        let result = qp.post_recv(target, Token(token));
        assert_eq!(result.as_ref().err().map(|refused| refused.error()), expected);
        match result {
            Ok(()) => {
                let life = *life;
                self.received(token, life, lent);
                None
            }
            Err(refused) => Some(refused.into_inner()),
        }
    }

    fn received(&mut self, token: u64, life: Life, lent: Vec<Lent>) {
        let room = lent.iter().map(|lent| lent.len).sum();
        self.lent.insert(token, (life, lent));
        self.srd.receive(token, life, room);
        self.srd.observe();
    }

    pub(super) fn recv(&mut self, node: usize, halves: bool) {
        self.exorcise(node, self.srd.in_flight(self.nodes[node].life) + 1);
        let Some(mut piece) = self.piece(node) else { return };
        piece.slice.fill(UNTOUCHED);
        let owner = piece.owner;
        let back = if halves {
            let half = piece.slice.len() / 2;
            let (head, tail) = piece.slice.split_at(half).unwrap();
            let buffers = vec![lent(&head, owner), lent(&tail, owner)];
            let back = self.receiving(node, [head, tail], buffers);
            self.reached.insert("a receive of two buffers");
            back.map(Vec::from)
        } else {
            let buffers = vec![piece.lent()];
            self.receiving(node, piece.slice, buffers).map(|slice| vec![slice])
        };
        self.give_all(node, back, owner);
    }

    pub(super) fn recv_list(&mut self, node: usize, count: u8) {
        self.exorcise(node, DEPTH as usize);
        let mut list = Vec::new();
        for _ in 0..count {
            let Some(mut piece) = self.piece(node) else { break };
            piece.slice.fill(UNTOUCHED);
            list.push((piece, Token(self.token())));
        }
        let about: Vec<_> = list.iter().map(|(piece, token)| (token.0, piece.lent())).collect();
        let mut rest = list.into_iter().map(|(piece, token)| (piece.slice, token));
        let Node { qp, life, .. } = &mut self.nodes[node];
        let (mut posted, life) = (0, *life);
        if let Qp::Up(qp) = qp {
            let room = qp.granted().recv as usize - (self.srd.in_flight(life) - self.srd.sends(life));
            posted = qp.post_recv_list(&mut rest).unwrap();
            assert_eq!(posted, room.min(about.len()));
        }
        if posted > 1 {
            self.reached.insert("a list of receives");
        }
        for (token, lent) in &about[..posted] {
            self.received(*token, life, vec![*lent]);
        }
        let rest: Vec<Slice> = rest.map(|(slice, _)| slice).collect();
        assert_eq!(rest.len(), about.len() - posted);
        for (slice, (_, lent)) in rest.into_iter().zip(&about[posted..]) {
            self.give(node, Piece { slice, owner: lent.owner });
        }
    }

    /// A write in parts: while it goes on nothing else is in flight here.
    pub(super) fn split(&mut self, node: usize, other: usize, chunk: usize) {
        self.exorcise(node, DEPTH as usize);
        if self.srd.in_flight(self.nodes[node].life) > 0 || self.srd.is_dead(self.nodes[node].life) {
            return;
        }
        self.with_message(node, other, |world, known, token, piece| {
            let Some(granted) = world.nodes[node].windows[other] else { return world.give(node, piece) };
            let expected = world.refusal(node, known, Some(granted));
            let Piece { slice, owner } = piece;
            let (before, bytes) = (lent(&slice, owner), slice.to_vec());
            let first = world.tokens + 1;
            let mut parts = Split::<_, 4>::new(slice, granted.window, 1 + chunk % 20, Token(first)).unwrap();
            world.tokens += parts.parts();
            world.srd.memory[granted.memory].begin(token, 0, bytes.len(), Some(&bytes));
            let Qp::Up(qp) = &mut world.nodes[node].qp else { unreachable!() };
            let (mut done, mut refused) = (None, None);
            for _ in 0..LONG {
                if refused.is_none() {
                    refused = parts.post(qp, |part, window| known.peer.write(part, window)).err();
                }
                if refused.is_some() && qp.in_flight() == 0 {
                    break;
                }
                world.srd.observe();
                match qp.poll().map(|event| parts.step(event)) {
                    Some(flow::Step::Done { slice, failed }) => {
                        done = Some((slice, failed.is_none()));
                        break;
                    }
                    Some(flow::Step::Other(event)) => panic!("{event:?} of nothing in flight"),
                    Some(flow::Step::More) | None => {}
                }
            }
            assert_eq!(qp.in_flight(), 0);
            let failed = refused == Some(Error::QueueFailed);
            assert!(refused == expected || failed && world.setup.fail_nth.is_some(), "{refused:?}");
            let (slice, good) = done.unwrap_or_else(|| (parts.into_slice().unwrap(), false));
            world.srd.memory[granted.memory].end(token, good);
            assert_eq!(lent(&slice, owner), before);
            if good {
                world.reached.insert("a write in parts");
            }
            if !good {
                let failed = matches!(&world.nodes[node].qp, Qp::Up(qp) if !qp.can_post());
                world.srd.part_failed(world.nodes[node].life, failed);
            }
            world.give(node, Piece { slice, owner });
        });
    }
}

/// What is in a receive's buffers before anything arrives.
pub(super) const UNTOUCHED: u8 = 0xA5;

/// A SEND of these bytes.
pub(super) fn message(known: &Known, imm: Option<u32>, bytes: &[u8]) -> Request {
    let (from, to) = (known.own, Some(known.to));
    Request { kind: Kind::Send, from, to, imm, len: bytes.len(), bytes: Some(bytes.to_vec()), remote: None }
}
