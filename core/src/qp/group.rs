//! Queue pairs that share a completion queue.
//!
//! The group owns them, since what ends one, or takes one out, concerns the queue: its completions may still be in
//! it, and the device may give its number to the next (R21). So a member is borrowed, and never as a whole.

#![allow(unsafe_code)]

use core::fmt;
use core::ops::Deref;

use super::inner::by_calls;
use super::{
    AnyQueuePair, Depth, Endpoint, InitAttr, Inner, QpAttr, QpKind, QpState, QueuePair, Retries, RtsAttr, Shutdown,
};
use crate::error::Limit;
use crate::flags::QpAttrMask;
use crate::provider::{CqInit, Provider};
use crate::ring::{CompletionQueue, Consumed, Serves, Taken};
use crate::work::{Batch, Event, Operation, RecvTarget};
use crate::{Arms, Caps, Error, Qkey, Refused, Token};

/// Up to `N` queue pairs of kind `K` with one completion queue for all of them.
///
/// One poll looks after all, and a completion is routed by its queue pair number. The queue cannot overrun: a queue
/// pair that it has no room for is refused when it is made (R17). After one was shut down no other is made until what
/// it left in the queue was read (R21).
///
/// ```
/// # #[cfg(feature = "alloc")] {
/// use efa_core::qp::{Depth, Group, Srd};
/// use efa_core::{Context, Token, soft};
///
/// let ctx = Context::open(soft::SoftDevice::new(soft::Profile::RDMA));
/// let pd = ctx.alloc_pd()?;
/// let mut group: Group<_, Srd, 8> = pd.group(ctx.require()?, 256)?;
/// let a = group.endpoint(Depth::new(16, 16))?;
/// let b = group.endpoint(Depth::new(16, 16))?;
///
/// let (to_b, _) = group.queue_pair(a)?.resolve(group.queue_pair(b)?.hello().as_bytes())?;
/// group.member(b)?.post_recv(pd.register(vec![0; 64])?.1, Token(1))?;
/// group.member(a)?.post(to_b.one_way().send_inline(b"hello"), Token(2))?;
/// let mut done = vec![];
/// while done.len() < 2 {
///     done.extend(group.poll().map(|(member, event)| (member, event.token())));
/// }
/// done.sort_by_key(|(_, token)| *token);
/// assert_eq!(done, [(b, Some(Token(1))), (a, Some(Token(2)))]);
/// # }
/// # Ok::<(), efa_core::Error>(())
/// ```
pub struct Group<P: Provider, K: QpKind, const N: usize> {
    members: [Option<Place<P, K>>; N],
    queue: CompletionQueue,
    provider: P,
    pd: P::Pd,
    capacity: u32,
    reserved: u32,
    /// Completions of queue pairs that left which may still be in the queue.
    left_over: u32,
    stale: u32,
    by_calls: bool,
    /// After the members, which name it, and the ring over it.
    cq: P::Cq,
}

struct Place<P: Provider, K: QpKind> {
    qp: AnyQueuePair<P, K>,
    room: u32,
}

/// A queue pair of a group: its name, which no other queue pair of the process has or had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemberId {
    index: u16,
    id: u32,
}

/// A queue pair of a group, to post on. It can be looked at as the [`QueuePair`] that it is, and is polled, moved
/// and ended by its group.
#[derive(Debug)]
pub struct Member<'g, P: Provider, K: QpKind> {
    qp: &'g mut Endpoint<P, K>,
}

impl<P: Provider, K: QpKind, const N: usize> Group<P, K, N> {
    pub(crate) fn create(provider: &P, pd: &P::Pd, entries: u32) -> Result<Self, Error> {
        const { assert!(0 < N && N <= u16::MAX as usize, "a group has at least one queue pair, and fewer than 65536") };
        let init = CqInit {
            entries,
            sgid: provider.caps().contains(Caps::CQ_WITH_SGID),
            unsolicited: K::NEEDS.contains(Caps::UNSOLICITED_WRITE_RECV),
        };
        let cq = provider.create_cq(&init)?;
        let ring = provider.completions(&cq);
        Ok(Self {
            members: [const { None }; N],
            // SAFETY: by the provider's contract the ring is this queue's alone and valid while its handle lives,
            // which is here, after the members; they do not touch it.
            queue: unsafe { CompletionQueue::new(&ring, Serves::Any) },
            provider: provider.clone(),
            pd: pd.clone(),
            capacity: ring.entries,
            reserved: 0,
            left_over: 0,
            stale: 0,
            by_calls: by_calls(provider),
            cq,
        })
    }

    /// Makes a queue pair and brings it all the way up, with a random queue key and the defaults.
    ///
    /// # Errors
    /// As [`Group::endpoint_with`].
    pub fn endpoint(&mut self, depth: Depth) -> Result<MemberId, Error> {
        let qkey = Qkey::from_random(self.provider.entropy());
        self.endpoint_with(depth, InitAttr::new(qkey), RtsAttr::new())
    }

    /// Makes a queue pair and brings it all the way up.
    ///
    /// # Errors
    /// [`Error::AboveLimit`] if the completion queue has no room for its depths and its unsolicited arrivals beside
    /// those of the others (R17), [`Error::UnreadCompletions`] if another left and the queue was not polled empty
    /// since (R21), [`Error::Exhausted`] if there are `N`, or what the device answered.
    pub fn endpoint_with<R: Retries<K>>(
        &mut self,
        depth: Depth,
        init: InitAttr,
        rts: RtsAttr<R>,
    ) -> Result<MemberId, Error> {
        let room = Inner::room::<K>(&self.provider, depth)?;
        let asked = self.reserved.saturating_add(room);
        if asked > self.capacity {
            let (asked, limit) = (asked.into(), self.capacity.into());
            return Err(Error::AboveLimit { what: Limit::CompletionEntries, asked, limit });
        }
        self.collect();
        if self.left_over > 0 && !self.queue.is_empty() {
            return Err(Error::UnreadCompletions { at_most: self.left_over });
        }
        if self.members.iter().all(Option::is_some) {
            return Err(Error::Exhausted { what: Limit::Members, limit: N as u64 });
        }
        let inner = Inner::new::<K>(&self.provider, &self.pd, depth, Some(&self.cq))?;
        // Should it come to nothing from here on, it was in the queue's sight all the same.
        self.left_over = self.capacity;
        let qp = QueuePair::<P, super::Reset, K>::of(inner).init(init)?.rtr()?.rts(rts)?;
        self.left_over = 0;

        let inner = &qp.inner;
        let (qpn, id) = (usize::from(inner.identity.qpn.0), inner.identity.id);
        let Some(index) = self.places(qpn).find(|&index| self.members.get(index).is_some_and(Option::is_none)) else {
            return Err(Error::Exhausted { what: Limit::Members, limit: N as u64 });
        };
        if let Some(place) = self.members.get_mut(index) {
            *place = Some(Place { qp: qp.into(), room });
            self.reserved = asked;
        }
        Ok(MemberId { index: index as u16, id })
    }

    /// A queue pair, to post on.
    ///
    /// # Errors
    /// [`Error::NotAMember`], or [`Error::WrongState`] if it is not in RTS.
    #[inline]
    pub fn member(&mut self, member: MemberId) -> Result<Member<'_, P, K>, Error> {
        match &mut self.place_mut(member)?.qp {
            AnyQueuePair::Rts(qp) => Ok(Member { qp }),
            other => Err(Error::WrongState { state: other.state() }),
        }
    }

    /// A queue pair, to look at.
    ///
    /// # Errors
    /// [`Error::NotAMember`], or [`Error::WrongState`] if it is not in RTS.
    pub fn queue_pair(&self, member: MemberId) -> Result<&Endpoint<P, K>, Error> {
        match &self.place(member)?.qp {
            AnyQueuePair::Rts(qp) => Ok(qp),
            other => Err(Error::WrongState { state: other.state() }),
        }
    }

    /// The next completion, and whose it is. `None` if there is none yet.
    ///
    /// A software device advances here.
    #[inline]
    pub fn poll(&mut self) -> Option<(MemberId, Event)> {
        self.provider.progress();
        if !P::HAS_CQ_DOORBELL {
            return self.poll_ready();
        }
        let event = self.poll_ready();
        self.tell_consumed();
        event
    }

    #[inline(always)]
    fn tell_consumed(&mut self) {
        if P::HAS_CQ_DOORBELL {
            self.provider.consumed(&self.cq, self.queue.consumed());
        }
    }

    #[inline(always)]
    fn poll_ready(&mut self) -> Option<(MemberId, Event)> {
        let Some(seen) = self.queue.peek() else { return self.nothing() };
        let taken = self.queue.consume(seen, || {});
        if let Some(entry) = self.queue.plain(taken).filter(|_| self.left_over == 0) {
            let (index, qpn) = (usize::from(entry.qpn()) % N, entry.qpn());
            if let Some(Some(place)) = self.members.get_mut(index) {
                let inner = place.qp.inner_mut();
                let member = MemberId { index: index as u16, id: inner.identity.id };
                if inner.identity.qpn.0 == qpn {
                    // Made within the pair: an event is large, and would be moved into it.
                    if let Some(found) = inner.plain::<K, _>(&entry, |event| (member, event)) {
                        return Some(found);
                    }
                }
            }
        }
        self.any_or_next(taken)
    }

    /// Has its completion queue filled, where that takes calls.
    fn collect(&mut self) {
        if P::BY_CALLS && self.by_calls {
            self.provider.collect(&self.cq);
        }
    }

    #[inline(always)]
    fn nothing(&mut self) -> Option<(MemberId, Event)> {
        if P::BY_CALLS && self.by_calls {
            return self.look_again();
        }
        self.left_over = 0;
        None
    }

    /// After a poll that found nothing, where completions are to be asked for.
    #[cold]
    #[inline(never)]
    fn look_again(&mut self) -> Option<(MemberId, Event)> {
        let next = self.collected()?;
        self.route_or_next(next)
    }

    /// What is in its completion queue now that it seemed to be empty.
    fn collected(&mut self) -> Option<Consumed> {
        self.collect();
        let next = self.queue.next();
        if next.is_none() {
            self.left_over = 0;
        }
        next
    }

    /// What is no plain completion of a member that is where it is looked for first; if it is nothing, what comes next.
    #[inline(never)]
    fn any_or_next(&mut self, taken: Taken) -> Option<(MemberId, Event)> {
        self.route_or_next(self.queue.decoded(taken))
    }

    /// What was consumed, or what comes next.
    fn route_or_next(&mut self, mut next: Consumed) -> Option<(MemberId, Event)> {
        loop {
            self.left_over = self.left_over.saturating_sub(1);
            match self.route(next.entry.qpn()).map(|index| (index, self.members.get_mut(index))) {
                Some((index, Some(Some(place)))) => {
                    let inner = place.qp.inner_mut();
                    let member = MemberId { index: index as u16, id: inner.identity.id };
                    if let Some(event) = inner.any(next, &self.queue) {
                        return Some((member, event));
                    }
                }
                _ => self.stale = self.stale.saturating_add(1),
            }
            next = match self.queue.next() {
                Some(consumed) => consumed,
                None => self.collected()?,
            };
        }
    }

    /// Arms its completion queue, for an event on its channel at the next completion of any of its queue pairs, and polls
    /// once more (R30): `None` says that one may sleep until the channel has an event. As [`QueuePair::arm`].
    ///
    /// # Errors
    /// What the device answered; it may then not be armed.
    pub fn arm(&mut self) -> Result<Option<(MemberId, Event)>, Error>
    where
        P: Arms,
    {
        // As a queue pair of its own does.
        self.provider.arm_cq(&self.cq, self.queue.consumed())?;
        Ok(self.poll())
    }

    /// Ends a queue pair in R34's order: to ERR, poll until nothing of it is in flight or `expired` says so, destroy.
    /// `sink` gets what is polled meanwhile, that of the others too, and what had not completed as
    /// [`Event::Reclaimed`].
    ///
    /// # Errors
    /// [`Error::NotAMember`], or what the device answered; it is then still in the group, in the state that it reached.
    pub fn shut_down(
        &mut self,
        member: MemberId,
        mut expired: impl FnMut() -> bool,
        mut sink: impl FnMut(MemberId, Event),
    ) -> Result<Shutdown, Error> {
        self.move_to(member, QpState::Err)?;
        let before = self.place(member)?.qp.inner().in_flight();
        while self.place(member)?.qp.inner().in_flight() > 0 && !expired() {
            match self.poll() {
                Some((whose, event)) => sink(whose, event),
                None => core::hint::spin_loop(),
            }
        }
        // The deadline ends the waiting, not what is here already; as much as the queue holds, for others may go on.
        for _ in 0..self.capacity {
            let Some((whose, event)) = self.poll_ready() else { break };
            sink(whose, event);
        }
        self.tell_consumed();
        let mut ended = self.end(member)?;
        let reclaimed = ended.in_flight();
        while let Some(event) = ended.reclaim() {
            sink(member, event);
        }
        Ok(Shutdown { completed: before.saturating_sub(reclaimed), reclaimed })
    }

    /// Destroys a queue pair now. Its buffers in flight return to their regions; [`Group::shut_down`] hands them over.
    ///
    /// # Errors
    /// [`Error::NotAMember`], or what the device answered; it is then still in the group.
    pub fn close(&mut self, member: MemberId) -> Result<(), Error> {
        self.end(member).map(drop)
    }

    /// Destroys a queue pair and takes it out.
    fn end(&mut self, member: MemberId) -> Result<Inner<P>, Error> {
        self.place_mut(member)?.qp.inner_mut().destroy()?;
        let place = self.members.get_mut(usize::from(member.index)).and_then(Option::take).ok_or(Error::NotAMember)?;
        self.reserved = self.reserved.saturating_sub(place.room);
        self.left_over = self.capacity;
        Ok(place.qp.into_inner())
    }

    /// The state that the device says a queue pair is in: from SQE, [`Group::resume`] leads back.
    ///
    /// # Errors
    /// [`Error::NotAMember`], [`Error::WrongState`] for a state that no device moves it to by itself (R01), or what the
    /// device answered.
    pub fn query(&mut self, member: MemberId) -> Result<QpState, Error> {
        let qp = &mut self.place_mut(member)?.qp;
        let from = qp.state();
        let state = qp.inner_mut().query(from)?;
        self.relabel(member, state)?;
        Ok(state)
    }

    /// Takes a queue pair from SQE back to RTS.
    ///
    /// # Errors
    /// [`Error::NotAMember`], [`Error::WrongState`] if [`Group::query`] did not find it there, or what the device
    /// answered.
    pub fn resume(&mut self, member: MemberId) -> Result<(), Error> {
        match self.place(member)?.qp.state() {
            QpState::Sqe => {}
            state => return Err(Error::WrongState { state }),
        }
        self.move_to(member, QpState::Rts)?;
        self.place_mut(member)?.qp.inner_mut().send.reopen();
        Ok(())
    }

    fn move_to(&mut self, member: MemberId, state: QpState) -> Result<(), Error> {
        self.place_mut(member)?.qp.inner_mut().modify(&QpAttr::to(state, QpAttrMask::STATE))?;
        self.relabel(member, state)
    }

    /// The typed state follows the device's.
    fn relabel(&mut self, member: MemberId, state: QpState) -> Result<(), Error> {
        let place = self.members.get_mut(usize::from(member.index)).ok_or(Error::NotAMember)?;
        let Some(Place { qp, room }) = place.take() else { return Err(Error::NotAMember) };
        let old = qp.state();
        let (qp, result) = match AnyQueuePair::of(qp.into_inner(), state) {
            Ok(qp) => (Ok(qp), Ok(())),
            Err(inner) => (AnyQueuePair::of(inner, old), Err(Error::WrongState { state })),
        };
        *place = qp.ok().map(|qp| Place { qp, room });
        result
    }

    /// The queue pairs.
    pub fn members(&self) -> impl Iterator<Item = MemberId> {
        let ids = self.members.iter().map(|place| Some(place.as_ref()?.qp.inner().identity.id));
        ids.enumerate().filter_map(|(index, id)| Some(MemberId { index: index as u16, id: id? }))
    }

    /// Completion queue entries.
    pub fn entries(&self) -> u32 {
        self.capacity
    }

    /// Completion queue entries that no queue pair of the group may fill: what another may ask for (R17).
    pub fn room(&self) -> u32 {
        self.capacity.saturating_sub(self.reserved)
    }

    /// Completions of no queue pair of the group (R20); those of none of its requests are counted by each itself.
    pub fn stale(&self) -> u32 {
        self.stale
    }

    /// Places in the order in which the queue pair of a number is looked for.
    fn places(&self, qpn: usize) -> impl Iterator<Item = usize> + use<P, K, N> {
        let first = qpn % N;
        (first..N).chain(0..first)
    }

    #[inline]
    fn route(&self, qpn: u16) -> Option<usize> {
        self.places(qpn.into()).find(
            |&index| matches!(self.members.get(index), Some(Some(place)) if place.qp.inner().identity.qpn.0 == qpn),
        )
    }

    fn place(&self, member: MemberId) -> Result<&Place<P, K>, Error> {
        let place = self.members.get(usize::from(member.index)).and_then(Option::as_ref);
        place.filter(|place| place.qp.inner().identity.id == member.id).ok_or(Error::NotAMember)
    }

    fn place_mut(&mut self, member: MemberId) -> Result<&mut Place<P, K>, Error> {
        let place = self.members.get_mut(usize::from(member.index)).and_then(Option::as_mut);
        place.filter(|place| place.qp.inner().identity.id == member.id).ok_or(Error::NotAMember)
    }
}

impl<P: Provider, K: QpKind> Member<'_, P, K> {
    /// As [`QueuePair::post`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn post<O: Operation<K>>(&mut self, operation: O, token: Token) -> Result<(), Refused<O::Source>> {
        self.qp.post(operation, token)
    }

    /// As [`QueuePair::batch`].
    pub fn batch(&mut self) -> Batch<'_, P, K> {
        self.qp.batch()
    }

    /// As [`QueuePair::post_recv`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn post_recv<T: RecvTarget>(&mut self, target: T, token: Token) -> Result<(), Refused<T>> {
        self.qp.post_recv(target, token)
    }

    /// As [`QueuePair::post_recv_list`].
    ///
    /// # Errors
    /// As there.
    pub fn post_recv_list<T: RecvTarget>(
        &mut self,
        list: &mut impl Iterator<Item = (T, Token)>,
    ) -> Result<usize, Refused<(T, Token)>> {
        self.qp.post_recv_list(list)
    }
}

impl<P: Provider, K: QpKind> Deref for Member<'_, P, K> {
    type Target = Endpoint<P, K>;

    fn deref(&self) -> &Self::Target {
        self.qp
    }
}

impl<P: Provider, K: QpKind, const N: usize> fmt::Debug for Group<P, K, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("device", &self.provider.name())
            .field("entries", &self.entries())
            .field("room", &self.room())
            .field("members", &self.members.iter().flatten().count())
            .finish_non_exhaustive()
    }
}
