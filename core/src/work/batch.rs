//! Several operations with one doorbell, all or none.

#![forbid(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use super::Operation;
use crate::memory::Buffers;
use crate::provider::Provider;
use crate::qp::{Inner, QpKind};
use crate::{Error, Refused, Token};

/// Operations that go out together: of any kind, to any peers of the queue pair.
///
/// The device sees nothing of it until [`Batch::submit`]. Dropped, it is as if it never was, except that the
/// slices in it are dropped too; [`Batch::abort`] gives them back. Forgotten, it goes out with the next operation, batch,
/// move or arming, or a poll that finds nothing; polls that find something leave it, as many as there are.
#[must_use = "a batch does nothing until it is submitted, and dropping it drops its slices"]
pub struct Batch<'q, P: Provider, K> {
    inner: &'q mut Inner<P>,
    kind: PhantomData<fn() -> K>,
}

impl<'q, P: Provider, K: QpKind> Batch<'q, P, K> {
    /// What was staged before is announced.
    pub(super) fn new(inner: &'q mut Inner<P>) -> Self {
        inner.announce_forgotten();
        inner.send.begin_batch();
        Self { inner, kind: PhantomData }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// [`Error::BatchFull`] if one doorbell cannot announce more (R18), or as for
    /// [`QueuePair::post`](crate::qp::QueuePair::post); with the operation's buffers, the batch as it was.
    #[inline]
    pub fn push<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>> {
        if self.inner.send.batch_is_full() {
            let error = Error::BatchFull { limit: self.inner.send.max_batch().into() };
            return Err(Refused::new(operation.into_source(), error));
        }
        if self.inner.send.is_full() {
            return Err(Refused::new(operation.into_source(), self.inner.why_full()));
        }
        if let Err(error) = operation.check(&self.inner.identity) {
            return Err(Refused::new(operation.into_source(), error));
        }
        self.inner.write::<K, O>(operation, token);
        Ok(())
    }

    /// Operations in it.
    pub fn len(&self) -> usize {
        self.inner.send.staged().into()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends them all out; gives how many.
    #[inline]
    pub fn submit(self) -> usize {
        let count = self.len();
        if count > 0 {
            self.inner.announce_staged();
        }
        count
    }

    /// Takes them all back, in the order in which they were pushed.
    pub fn abort(self, mut sink: impl FnMut(Token, Buffers)) {
        self.inner.send.unstage().for_each(|(token, buffers)| sink(Token(token), buffers));
    }
}

impl<P: Provider, K> Drop for Batch<'_, P, K> {
    fn drop(&mut self) {
        // After `submit` or `abort` it is open no more.
        if self.inner.send.batch_is_open() {
            drop(self.inner.send.unstage());
        }
    }
}

impl<P: Provider, K> fmt::Debug for Batch<'_, P, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("staged", &self.inner.send.staged()).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "alloc", feature = "soft"))]
mod tests {
    use crate::Token;
    use crate::soft::{Profile, pair};

    #[test]
    fn r18_a_forgotten_batch_is_announced_before_the_next_operation_which_one_doorbell_might_not_announce_with_it() {
        let (mut side, _other) = pair(Profile::RDMA).unwrap();
        let mut batch = side.endpoint.batch();
        batch.push(side.peer.send_empty(), Token(1)).unwrap();
        core::mem::forget(batch);
        assert!(side.endpoint.inner.send.batch_is_open());
        side.endpoint.post(side.peer.send_empty(), Token(2)).unwrap();
        assert!(!side.endpoint.inner.send.batch_is_open());
    }
}
