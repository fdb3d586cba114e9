//! Memory that a program holds: slices, frozen ones, regions, exposed memory.

use efa_core::memory::{ExposedPart, Frozen, Pool, RemoteReadWrite, Slice};
use efa_core::ring::Word;
use efa_core::{Error, Granted};

use super::memory::Memory;
use super::owner::Counted;
use super::posts::lent;
use super::{Lent, Node, Piece, SHARED, Shared, World, pattern};

/// A buffer that came back.
pub(super) enum Kept {
    Piece(Piece),
    Frozen(Frozen),
    Part(ExposedPart),
}

impl Kept {
    pub(super) fn lent(&self, owner: usize) -> Lent {
        match self {
            Self::Piece(piece) => piece.lent(),
            Self::Frozen(frozen) => Lent { frozen: true, ..lent(frozen, owner) },
            Self::Part(part) => Lent { at: None, len: part.len(), owner, frozen: false },
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Piece(piece) => &piece.slice,
            _ => &[],
        }
    }
}

impl<K: super::kind::Kind> World<K> {
    /// A slice that is free, or a new region.
    pub(super) fn piece(&mut self, node: usize) -> Option<Piece> {
        if let Some(piece) = self.nodes[node].free.pop() {
            return Some(piece);
        }
        let (memory, owner) = Counted::new(16 + self.tokens as usize % 49);
        self.owners.push(owner);
        match self.nodes[node].pd.register(memory) {
            Ok((region, slice)) => {
                self.nodes[node].regions.push((region, owner));
                Some(Piece { slice, owner })
            }
            Err(refused) => {
                let (memory, error) = refused.into_parts();
                assert_eq!(memory.number(), owner);
                self.expect_device(&error);
                None
            }
        }
    }

    pub(super) fn give(&mut self, node: usize, piece: Piece) {
        let free = &mut self.nodes[node].free;
        // Halves of one are made whole again.
        match free.pop() {
            Some(last) if last.slice.is_followed_by(&piece.slice) => {
                assert_eq!(last.owner, piece.owner);
                let slice = last.slice.unsplit(piece.slice).unwrap();
                free.push(Piece { slice, owner: piece.owner });
            }
            last => free.extend(last.into_iter().chain([piece])),
        }
        free.truncate(8);
    }

    pub(super) fn give_all(&mut self, node: usize, slices: Option<Vec<Slice>>, owner: usize) {
        for slice in slices.into_iter().flatten() {
            self.give(node, Piece { slice, owner });
        }
    }

    pub(super) fn keep(&mut self, node: usize, kept: Kept) {
        if let Kept::Piece(piece) = kept {
            self.give(node, piece);
        }
    }

    /// With the region's last slice, if it is all of it.
    pub(super) fn close_region(&mut self, node: usize) {
        let Some(Piece { slice, owner }) = self.nodes[node].free.pop() else { return };
        let regions = &mut self.nodes[node].regions;
        let Some(index) = regions.iter().position(|(_, of)| *of == owner) else {
            return self.give(node, Piece { slice, owner });
        };
        let (region, _) = regions.swap_remove(index);
        let is_whole = region.len() == slice.len();
        match region.close(slice) {
            Ok(memory) => {
                assert!(is_whole && memory.number() == owner);
                self.reached.insert("a region closed");
            }
            Err(refused) => {
                let ((region, slice), error) = refused.into_parts();
                if is_whole {
                    self.expect_device(&error);
                } else {
                    assert!(matches!(error, Error::NotWhole { .. }), "{error}");
                }
                self.nodes[node].regions.push((region, owner));
                self.give(node, Piece { slice, owner });
            }
        }
    }

    pub(super) fn freeze(&mut self, node: usize) {
        let id = self.token();
        if self.nodes[node].frozen.len() == 4 {
            return;
        }
        let Some(Piece { mut slice, owner }) = self.piece(node) else { return };
        let bytes = pattern(id, slice.len());
        slice.copy_from_slice(&bytes);
        let frozen = slice.freeze().unwrap();
        assert_eq!(frozen[..], bytes);
        self.nodes[node].frozen.push((frozen, owner));
    }

    pub(super) fn thaw(&mut self, node: usize, copy: bool) {
        let Some((frozen, owner)) = self.nodes[node].frozen.pop() else { return };
        let copy = copy.then(|| frozen.clone());
        let is_lent = self.lent.values().flat_map(|(_, lent)| lent).any(|lent| lent.frozen && lent.owner == owner);
        let before = lent(&frozen, owner);
        match frozen.thaw() {
            Ok(slice) => {
                assert!(copy.is_none() && !is_lent);
                assert_eq!(lent(&slice, owner), before);
                self.reached.insert("a slice thawed");
                self.give(node, Piece { slice, owner });
            }
            Err(refused) => {
                assert!(matches!(refused.error(), Error::RegionInUse { .. }), "{refused}");
                assert!(copy.is_some() || is_lent || self.leaked.contains(&owner), "nobody sends it");
                self.nodes[node].frozen.push((refused.into_inner(), owner));
                self.reached.insert("a slice in use not thawed");
            }
        }
    }

    pub(super) fn pool(&mut self, node: usize, size: usize, backwards: bool) {
        let Some(Piece { slice, owner }) = self.piece(node) else { return };
        let before = lent(&slice, owner);
        let size = 1 + size % slice.len().min(16);
        let (mut pool, rest) = Pool::<8>::new(slice, size).unwrap();
        let mut out: Vec<Slice> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(out.len(), pool.slots());
        if backwards {
            out.reverse();
        }
        for slot in out {
            pool.put(slot).unwrap();
        }
        let slot = pool.take().unwrap();
        let mut pool = pool.into_slice().map_err(|refused| refused.into_inner()).unwrap_err();
        pool.put(slot).unwrap();
        let whole = pool.into_slice().unwrap();
        let slice = match rest {
            Some(rest) => whole.unsplit(rest).unwrap(),
            None => whole,
        };
        assert_eq!(lent(&slice, owner), before);
        self.reached.insert("a pool");
        self.give(node, Piece { slice, owner });
    }

    pub(super) fn expose(&mut self, node: usize) {
        let Node { ctx, pd, exposed, .. } = &mut self.nodes[node];
        if exposed.is_some() {
            return;
        }
        let token: Granted<RemoteReadWrite> = ctx.require().unwrap();
        let (memory, owner) = Counted::new(SHARED);
        self.owners.push(owner);
        match pd.expose(memory, token) {
            Ok(memory) => {
                *exposed = Some(Shared { memory: self.srd.memory.len(), exposed: memory, owner });
                self.srd.memory.push(Memory::new(SHARED));
                (0..super::NODES).for_each(|other| self.grant(node, other));
            }
            Err(refused) => {
                let (memory, error) = refused.into_parts();
                assert_eq!(memory.number(), owner);
                self.expect_device(&error);
            }
        }
    }

    pub(super) fn revoke(&mut self, node: usize) {
        let Some(Shared { memory, exposed, owner }) = self.nodes[node].exposed.take() else { return };
        let is_lent = self.lent.values().flat_map(|(_, lent)| lent).any(|lent| lent.owner == owner);
        let before = self.srd.memory.get(memory).map(Memory::is_open);
        assert_eq!(before, Some(true));
        match exposed.revoke() {
            Ok(owned) => {
                assert!(!is_lent && owned.number() == owner);
                self.srd.memory[memory].check(0, &owned.bytes());
                self.srd.memory[memory].revoke();
                self.reached.insert("memory revoked");
            }
            Err(refused) => {
                let (exposed, error) = refused.into_parts();
                if is_lent || self.leaked.contains(&owner) {
                    // A part of it is being sent, or was forgotten so.
                    assert!(matches!(error, Error::RegionInUse { .. }), "{error}");
                    self.reached.insert("memory in use not revoked");
                } else {
                    self.expect_device(&error);
                }
                self.nodes[node].exposed = Some(Shared { memory, exposed, owner });
            }
        }
        self.srd.observe();
    }

    pub(super) fn copy_in(&mut self, node: usize, at: usize, len: usize) {
        let id = self.token();
        let Some(Shared { memory, exposed, .. }) = &self.nodes[node].exposed else { return };
        let at = at % SHARED;
        let bytes = pattern(id, len % (SHARED - at));
        exposed.copy_in(at, &bytes).unwrap();
        assert!(exposed.copy_in(SHARED - bytes.len() + 1, &bytes).is_err() || bytes.is_empty());
        self.srd.memory[*memory].put(at, &bytes);
        self.reached.insert("bytes copied in");
    }

    pub(super) fn copy_out(&mut self, node: usize) {
        let Some(Shared { memory, exposed, .. }) = &self.nodes[node].exposed else { return };
        let mut bytes = [0; SHARED];
        exposed.copy_out(0, &mut bytes).unwrap();
        self.srd.memory[*memory].check(0, &bytes);
        self.reached.insert("bytes copied out");
    }

    pub(super) fn word(&mut self, node: usize, at: usize) {
        let value = self.token() as Word;
        let Some(Shared { memory, exposed, .. }) = &self.nodes[node].exposed else { return };
        let at = at % (SHARED / 8) * 8;
        exposed.store(at, value).unwrap();
        self.srd.memory[*memory].put(at, &value.to_ne_bytes());
        self.srd.memory[*memory].check(at, &exposed.load(at).unwrap().to_ne_bytes());
        assert!(matches!(exposed.load(at + 1), Err(Error::Misaligned { .. } | Error::OutOfBounds { .. })));
        self.reached.insert("a word stored and loaded");
    }
}
