//! Exposed memory: what each byte may be. Writes in flight are there or not, in part or in whole.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct Memory {
    may_be: Vec<Vec<u8>>,
    accesses: BTreeMap<u64, Access>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// Dropped: it is gone unless a part of it is in flight.
    Dropped,
    Revoked,
}

/// An operation of a peer in flight.
#[derive(Debug)]
struct Access {
    range: Range<usize>,
    /// What it writes; none for a read.
    bytes: Option<Vec<u8>>,
    /// Another one was at the same bytes meanwhile, of which one at least writes.
    disturbed: bool,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Memory {
    pub(super) fn new(len: usize) -> Self {
        Self { may_be: vec![vec![0]; len], accesses: BTreeMap::new(), state: State::Open }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.state == State::Revoked
    }

    pub(super) fn revoke(&mut self) {
        self.state = State::Revoked;
    }

    pub(super) fn drop(&mut self) {
        self.state = State::Dropped;
    }

    pub(super) fn begin(&mut self, token: u64, at: usize, len: usize, bytes: Option<&[u8]>) {
        let range = at..at + len;
        let mut disturbed = false;
        for other in self.accesses.values_mut().filter(|other| overlap(&other.range, &range)) {
            // Of a read beside a write it is the write whose end then tells less.
            (other.disturbed, disturbed) = (true, true);
        }
        for (may_be, byte) in self.may_be[range.clone()].iter_mut().zip(bytes.into_iter().flatten()) {
            may_be.push(*byte);
        }
        self.accesses.insert(token, Access { range, bytes: bytes.map(<[u8]>::to_vec), disturbed });
    }

    pub(super) fn end(&mut self, token: u64, good: bool) {
        let access = self.accesses.remove(&token).expect("an access in flight");
        if good && !access.disturbed && self.state != State::Revoked {
            for (at, byte) in access.range.zip(access.bytes.into_iter().flatten()) {
                self.may_be[at] = vec![byte];
            }
        }
    }

    /// Its owner writes.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        let mut shared = false;
        for other in self.accesses.values_mut().filter(|other| overlap(&other.range, &range)) {
            (other.disturbed, shared) = (true, true);
        }
        for (may_be, byte) in self.may_be[range].iter_mut().zip(bytes) {
            if !shared {
                may_be.clear();
            }
            may_be.push(*byte);
        }
    }

    pub(super) fn check(&self, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            assert!(self.may_be[at].contains(byte), "{byte:#x} at {at} is none of {:x?}", self.may_be[at]);
        }
    }
}
