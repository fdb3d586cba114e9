//! One operation or receive, with its doorbell.

#![forbid(unsafe_code)]

use super::source::Raw;
use super::{Batch, Operation, RecvTarget};
use crate::caps::sealed::Sealed;
use crate::error::Limit;
use crate::provider::Provider;
use crate::qp::{CanReceive, CanSend, Inner, Member, QpKind, QueuePair, State};
use crate::ring::{RecvPlace, Written};
use crate::{Error, PdId, Refused, Token};

/// A receive descriptor's length has 16 bits (R12).
const MAX_RECV: usize = 65_535;

/// What operations are posted on: a queue pair in RTS, or a [`Member`](crate::qp::Member) of a group.
pub trait Posts<K: QpKind>: Sealed {
    /// As [`QueuePair::post`].
    ///
    /// # Errors
    /// As there.
    fn post<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>>;

    /// As [`QueuePair::can_post`].
    fn can_post(&self) -> bool;
}

impl<P: Provider, S, K> Sealed for QueuePair<P, S, K> {}
impl<P: Provider, K: QpKind> Sealed for Member<'_, P, K> {}

impl<P: Provider, S: CanSend, K: QpKind> Posts<K> for QueuePair<P, S, K> {
    #[inline]
    fn post<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>> {
        QueuePair::post(self, operation, token)
    }

    fn can_post(&self) -> bool {
        QueuePair::can_post(self)
    }
}

impl<P: Provider, K: QpKind> Posts<K> for Member<'_, P, K> {
    #[inline]
    fn post<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>> {
        Member::post(self, operation, token)
    }

    fn can_post(&self) -> bool {
        QueuePair::can_post(self)
    }
}

impl<P: Provider, S: State, K: QpKind> QueuePair<P, S, K> {
    /// Posts an operation. Its completion is an event with this token.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if as many operations are in flight as were granted: poll, then post it again.
    /// [`Error::ForeignDomain`], [`Error::ForeignPeer`], [`Error::AboveLimit`], [`Error::OutOfBounds`],
    /// [`Error::WindowOfAnotherPeer`] for what the device would refuse later; [`Error::QueueFailed`] after the
    /// device failed the queue pair. With the operation's buffers.
    #[inline(always)]
    pub fn post<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>>
    where
        S: CanSend,
    {
        if self.inner.send.is_full() {
            return Err(Refused::new(operation.into_source(), self.inner.why_full()));
        }
        if let Err(error) = operation.check(&self.inner.identity) {
            return Err(Refused::new(operation.into_source(), error));
        }
        self.inner.write::<K, O>(operation, token);
        self.inner.announce_one();
        Ok(())
    }

    /// Several operations that go out together, with one doorbell, or not at all.
    pub fn batch(&mut self) -> Batch<'_, P, K>
    where
        S: CanSend,
    {
        Batch::new(&mut self.inner)
    }

    /// Whether there is room for another operation.
    pub fn can_post(&self) -> bool
    where
        S: CanSend,
    {
        !self.inner.send.is_full()
    }

    /// Posts a receive: a slice, a part of exposed memory, or an array of two of them.
    ///
    /// It stays posted until something arrives or the queue pair ends: EFA has no way to take it back.
    ///
    /// # Errors
    /// [`Error::RecvQueueFull`], [`Error::ForeignDomain`], or [`Error::AboveLimit`] if a buffer has more than
    /// 65,535 bytes (R12) or there are more buffers than was asked for, [`Error::BelowLimit`] if it has no room for the
    /// header that precedes each datagram on UD; with the target.
    #[inline(always)]
    pub fn post_recv<T: RecvTarget>(&mut self, target: T, token: Token) -> Result<(), Refused<T>>
    where
        S: CanReceive,
    {
        let (max_buffers, domain) = (self.inner.recv.max_buffers(), self.inner.identity.pd);
        match self.inner.recv.place() {
            Some(place) => stage::<K, T>(place, max_buffers, domain, target, token)?,
            None => {
                let in_flight = self.inner.recv.slots().occupied().into();
                return Err(Refused::new(target, Error::RecvQueueFull { in_flight }));
            }
        }
        self.inner.recv.announce();
        self.inner.hand_on();
        Ok(())
    }

    /// Posts receives while there is room, with one doorbell; gives how many. What there was no room for
    /// stays in the iterator: pass `&mut iterator` to keep it.
    ///
    /// # Errors
    /// As [`QueuePair::post_recv`] for the first that is wrong, with it; those before are posted, those after
    /// stay in the iterator.
    pub fn post_recv_list<T: RecvTarget>(
        &mut self,
        list: &mut impl Iterator<Item = (T, Token)>,
    ) -> Result<usize, Refused<(T, Token)>>
    where
        S: CanReceive,
    {
        let (max_buffers, domain) = (self.inner.recv.max_buffers(), self.inner.identity.pd);
        let mut staged = StagedRecvs { written: self.inner.recv.written(), inner: &mut self.inner, count: 0 };
        while let Some(place) = staged.inner.recv.place_after(&mut staged.written) {
            let Some((target, token)) = list.next() else { break };
            if let Err(refused) = stage::<K, T>(place, max_buffers, domain, target, token) {
                return Err(refused.map(|target| (target, token)));
            }
            staged.count += 1;
        }
        Ok(staged.count)
    }
}

/// Receives that the doorbell has yet to announce. It does when this goes, even if the caller's iterator panics:
/// the device completes only what it was told of.
struct StagedRecvs<'q, P: Provider> {
    inner: &'q mut Inner<P>,
    written: Written,
    count: usize,
}

impl<P: Provider> Drop for StagedRecvs<'_, P> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.inner.recv.announce_to(self.written);
            self.inner.hand_on();
        }
    }
}

impl<P: Provider> Inner<P> {
    /// Writes an operation for which there is room.
    #[inline(always)]
    pub(super) fn write<K: QpKind, O: Operation<K>>(&mut self, operation: O, token: Token) {
        let written = self.send.write(token.0, operation.into_parts());
        debug_assert!(written, "there was room");
    }

    #[cold]
    pub(super) fn why_full(&self) -> Error {
        if self.send.has_failed() {
            return Error::QueueFailed;
        }
        Error::QueueFull { in_flight: self.send.slots().occupied().into() }
    }
}

/// Writes a receive to a place of its queue, if it is one that the device takes.
#[inline(always)]
fn stage<K: QpKind, T: RecvTarget>(
    place: RecvPlace<'_>,
    max_buffers: u8,
    domain: PdId,
    target: T,
    token: Token,
) -> Result<(), Refused<T>> {
    if target.differs(domain) != 0 || target.longest() > MAX_RECV {
        let (asked, limit) = (target.longest() as u64, MAX_RECV as u64);
        let error = match target.foreign_to(domain) {
            Some(of) => Error::ForeignDomain { of, domain },
            None => Error::AboveLimit { what: Limit::RecvBytes, asked, limit },
        };
        return Err(Refused::new(target, error));
    }
    if T::BUFFERS > 1 && T::BUFFERS > max_buffers {
        let (asked, limit) = (T::BUFFERS.into(), max_buffers.into());
        return Err(Refused::new(target, Error::AboveLimit { what: Limit::RecvBuffers, asked, limit }));
    }
    let (asked, limit) = (target.total(), u64::from(K::TYPE.header()));
    if asked < limit {
        return Err(Refused::new(target, Error::BelowLimit { what: Limit::DatagramBytes, asked, limit }));
    }
    let Raw { count, tag, buffers } = target.into_buffers();
    place.stage(token.0, tag, count.into(), buffers);
    Ok(())
}
