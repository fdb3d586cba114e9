//! Without an allocator there is no link: all messages are for devices of this wire.

#![forbid(unsafe_code)]

use super::tables::State;
use crate::Gid;

impl State {
    #[inline(always)]
    pub(super) fn is_linked(&self) -> bool {
        false
    }

    #[inline(always)]
    pub(super) fn departed(&self) -> usize {
        0
    }

    /// Nothing departs: see [`State::is_linked`].
    pub(super) fn depart(&mut self, _: Gid) {
        self.requeue();
    }

    /// As [`State::depart`].
    pub(super) fn depart_datagram(&mut self, _: Gid) {
        self.requeue();
    }

    #[inline(always)]
    pub(super) fn recall(&mut self, _: u16, _: bool) {}
}
