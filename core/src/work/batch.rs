//! Several operations with one doorbell, all or none.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use super::Operation;
use crate::memory::Buffers;
use crate::provider::Provider;
use crate::qp::{Inner, QpKind};
use crate::ring::{Place, TakenBack};
use crate::{Error, Refused, Token};

/// Operations that go out together: of any kind, to any peers of the queue pair.
///
/// The device sees nothing of it until [`Batch::submit`]. Dropped, it is as if it never was, except that the
/// slices in it are dropped too; [`Batch::abort`] gives them back. Forgotten, it never goes out: its operations count as in
/// flight, and come back when the queue pair is [shut down](crate::qp::QueuePair::shut_down).
#[must_use = "a batch does nothing until it is submitted, and dropping it drops its slices"]
pub struct Batch<'q, P: Provider, K> {
    inner: &'q mut Inner<P>,
    /// Behind its last entry.
    place: Place,
    /// Operations that there is room for behind one doorbell.
    left: u16,
    /// The slot of the first one.
    first: u16,
    kind: PhantomData<fn() -> K>,
}

impl<'q, P: Provider, K: QpKind> Batch<'q, P, K> {
    #[inline]
    pub(super) fn new(inner: &'q mut Inner<P>) -> Self {
        let (place, first) = inner.send.place();
        Self { left: inner.send.max_batch(), inner, place, first, kind: PhantomData }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// [`Error::BatchFull`] if one doorbell cannot announce more (R18), or as for
    /// [`QueuePair::post`](crate::qp::QueuePair::post); with the operation's buffers, the batch as it was.
    #[inline]
    pub fn push<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>> {
        if self.left == 0 {
            let error = Error::BatchFull { limit: self.inner.send.max_batch().into() };
            return Err(Refused::new(operation.into_source(), error));
        }
        if self.inner.send.is_full() {
            return Err(Refused::new(operation.into_source(), self.inner.why_full()));
        }
        if let Err(error) = operation.check(&self.inner.identity) {
            return Err(Refused::new(operation.into_source(), error));
        }
        let written = self.inner.send.write_at(&mut self.place, token.0, operation.into_parts());
        debug_assert!(written, "there was room");
        self.left -= 1;
        Ok(())
    }

    /// Operations in it.
    pub fn len(&self) -> usize {
        self.count().into()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Sends them all out; gives how many.
    #[inline]
    pub fn submit(self) -> usize {
        let mut this = ManuallyDrop::new(self);
        let (place, count) = (this.place, this.count());
        if count > 0 {
            this.inner.announce_to(place, count);
        }
        count.into()
    }

    /// Takes them all back, in the order in which they were pushed.
    pub fn abort(self, mut sink: impl FnMut(Token, Buffers)) {
        let mut this = ManuallyDrop::new(self);
        this.take_back().for_each(|(token, buffers)| sink(Token(token), buffers));
    }
}

impl<P: Provider, K> Batch<'_, P, K> {
    #[inline(always)]
    fn count(&self) -> u16 {
        self.inner.send.max_batch() - self.left
    }

    fn take_back(&mut self) -> TakenBack<'_> {
        let count = self.count();
        self.inner.send.take_back(self.first, count)
    }
}

impl<P: Provider, K> Drop for Batch<'_, P, K> {
    fn drop(&mut self) {
        drop(self.take_back());
    }
}

impl<P: Provider, K> fmt::Debug for Batch<'_, P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("operations", &self.count()).finish_non_exhaustive()
    }
}
