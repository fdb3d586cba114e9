//! One RDMA operation larger than the device takes, or than one wants to wait for: in parts, with one end.

#![forbid(unsafe_code)]

use crate::error::Limit;
use crate::memory::{Postable, RemoteAccess, Slice, Visible};
use crate::peer::RemoteWindow;
use crate::qp::QpKind;
use crate::work::{Event, Failure, Operation, Posts};
use crate::{Error, Refused, Token};

/// An RDMA read or write of a slice of any length, of memory that the CPU sees or not, in parts of at most a chunk, up
/// to `N` of them in flight.
///
/// Parts complete in any order, and the whole ends once: with the slice, in one piece again, and the part that
/// failed if one did. A signal to the peer belongs after the end: until then some parts may not be there (R16).
///
/// ```
/// use efa_core::flow::{Split, Step};
/// use efa_core::memory::{PageSize, Pages, RemoteWrite};
/// use efa_core::{Token, soft};
///
/// # fn main() -> Result<(), efa_core::Error> {
/// # let (mut a, b) = soft::pair(soft::Profile::RDMA)?;
/// # let exposed = b.pd.expose(Pages::new(10_000, PageSize::Base)?, b.ctx.require::<RemoteWrite>()?)?;
/// # let window = a.peer.window::<RemoteWrite>(exposed.grant(&b.endpoint)?.as_bytes())?;
/// # let (_, slice) = a.pd.register(vec![7; 10_000])?;
/// let mut write = Split::<_, 8>::new(slice, window, 4096, Token(1 << 32))?;
/// let slice = loop {
///     write.post(&mut a.endpoint, |part, window| a.peer.write(part, window))?;
///     match a.endpoint.poll().map(|event| write.step(event)) {
///         Some(Step::Done { slice, failed: None }) => break slice,
///         Some(Step::Done { failed: Some(part), .. }) => panic!("{part:?}"),
///         Some(Step::Other(event)) => println!("{event:?}"),
///         Some(Step::More) | None => {}
///     }
/// };
/// assert_eq!(slice.len(), 10_000);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is posted until `post` is called"]
#[derive(Debug)]
pub struct Split<A, const N: usize, V: Postable = Visible> {
    window: RemoteWindow<A>,
    chunk: usize,
    token: Token,
    /// What is done, from the start on, in one piece.
    done: Option<Slice<V::Done>>,
    /// Parts that are done, or failed, before their turn; by index modulo `N`.
    early: [Option<Slice<V::Done>>; N],
    /// What was not posted yet.
    rest: Option<Slice<V>>,
    /// Parts rejoined in `done`, and parts posted.
    joined: u64,
    posted: u64,
    parts: u64,
    in_flight: u64,
    failed: Option<FailedPart>,
}

/// The first part of a [`Split`] that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedPart {
    /// Which part, from 0 on.
    pub index: u64,
    /// Where it starts, in bytes from the start of the whole.
    pub offset: u64,
    /// Why it failed; `None` if the queue pair was destroyed before the part completed.
    pub failure: Option<Failure>,
}

/// What an event meant for a [`Split`].
#[must_use = "it may hold the slice"]
#[derive(Debug)]
pub enum Step<V = Visible> {
    /// A part ended; others are to come.
    More,
    /// All parts ended that were posted. If one failed, those after it may not have been posted.
    Done {
        /// The whole slice.
        slice: Slice<V>,
        /// The first part that failed.
        failed: Option<FailedPart>,
    },
    /// It was of another operation.
    Other(Event),
}

impl<A: RemoteAccess, const N: usize, V: Postable> Split<A, N, V> {
    /// Parts of `chunk` bytes of `slice`, to or from the start of `window`; their tokens count up from `token`,
    /// one for each part, so nothing else may have those.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the window is shorter than the slice, [`Error::BelowLimit`] if `chunk` is 0,
    /// [`Error::AboveLimit`] if the tokens would wrap; with the slice.
    pub fn new(
        slice: Slice<V>,
        window: RemoteWindow<A>,
        chunk: usize,
        token: Token,
    ) -> Result<Self, Refused<Slice<V>>> {
        const { assert!(N > 0, "at least one part must be in flight") };
        if chunk == 0 {
            return Err(Refused::new(slice, Error::BelowLimit { what: Limit::RdmaBytes, asked: 0, limit: 1 }));
        }
        let len = slice.len() as u64;
        if len > window.len() {
            return Err(Refused::new(slice, Error::OutOfBounds { offset: 0, len, within: window.len() }));
        }
        // An empty operation has one part, too: of no bytes (R14).
        let parts = len.div_ceil(chunk as u64).max(1);
        if token.0.checked_add(parts).is_none() {
            let (asked, limit) = (parts, u64::MAX - token.0);
            return Err(Refused::new(slice, Error::AboveLimit { what: Limit::Parts, asked, limit }));
        }
        Ok(Self {
            window,
            chunk,
            token,
            done: None,
            early: [const { None }; N],
            rest: Some(slice),
            joined: 0,
            posted: 0,
            parts,
            in_flight: 0,
            failed: None,
        })
    }

    /// Posts as many parts as there is room for, each made by `make`; gives how many. After a part failed it posts
    /// no more.
    ///
    /// # Errors
    /// What [`Posts::post`] refuses a part for, except a full queue; the part stays here, and
    /// [`Split::into_slice`] gives it all back.
    pub fn post<K: QpKind, O: Operation<K, Source = Slice<V>>>(
        &mut self,
        qp: &mut impl Posts<K>,
        make: impl Fn(Slice<V>, RemoteWindow<A>) -> O,
    ) -> Result<usize, Error> {
        let mut count = 0;
        while self.failed.is_none() && self.posted - self.joined < N as u64 {
            let Some(rest) = self.rest.take() else { break };
            let offset = self.posted * self.chunk as u64;
            let (part, rest) = if rest.len() > self.chunk {
                let (part, rest) = rest.split_at(self.chunk)?;
                (part, Some(rest))
            } else {
                (rest, None)
            };
            let window = self.window.range(offset..offset + part.len() as u64);
            let token = Token(self.token.0 + self.posted);
            let refused = match window {
                Ok(window) => match qp.post(make(part, window), token) {
                    Ok(()) => {
                        self.rest = rest;
                        self.posted += 1;
                        self.in_flight += 1;
                        count += 1;
                        continue;
                    }
                    Err(refused) => refused,
                },
                Err(error) => Refused::new(part, error),
            };
            let (part, error) = refused.into_parts();
            self.rest = join(Some(part), rest);
            return match error {
                Error::QueueFull { .. } => Ok(count),
                // The ends of the parts in flight come first. A queue that failed has no room ever again.
                Error::QueueFailed if self.in_flight > 0 => Ok(count),
                error => Err(error),
            };
        }
        Ok(count)
    }

    /// Takes an event in.
    pub fn step(&mut self, event: Event) -> Step<V::Done> {
        let index = event.token().and_then(|token| token.0.checked_sub(self.token.0));
        let Some(index) = index.filter(|index| (self.joined..self.posted).contains(index)) else {
            return Step::Other(event);
        };
        let (failure, buffers) = match &event {
            Event::Written(done) | Event::Read(done) => (None, &done.buffers),
            Event::Failed { failure, buffers } => (Some(Some(*failure)), buffers),
            // Nobody knows whether it was moved.
            Event::Reclaimed { buffers, .. } => (Some(None), buffers),
            _ => return Step::Other(event),
        };
        let place = self.early.get_mut((index % N as u64) as usize);
        let Some(place) = place.filter(|place| place.is_none() && buffers.len() == 1) else {
            // With a part's token, but no part.
            return Step::Other(event);
        };
        if let Some(failure) = failure {
            let failed = FailedPart { index, offset: index * self.chunk as u64, failure };
            self.failed.get_or_insert(failed);
        }
        *place = event.into_buffers().into_slice_of();
        self.in_flight = self.in_flight.saturating_sub(1);
        while let Some(part) = self.early.get_mut((self.joined % N as u64) as usize).and_then(Option::take) {
            self.done = join(self.done.take(), Some(part));
            self.joined += 1;
        }
        if self.in_flight > 0 || (self.failed.is_none() && self.posted < self.parts) {
            return Step::More;
        }
        match self.whole() {
            Some(slice) => Step::Done { slice, failed: self.failed },
            None => Step::More,
        }
    }

    /// Gives up: the whole slice, of which some parts may have been moved.
    ///
    /// # Errors
    /// [`Error::InFlight`] while parts are in flight; with all of it.
    pub fn into_slice(mut self) -> Result<Slice<V::Done>, Refused<Self>> {
        let operations = self.in_flight.min(u32::MAX.into()) as u32;
        if operations > 0 {
            return Err(Refused::new(self, Error::InFlight { operations }));
        }
        match self.whole() {
            Some(slice) => Ok(slice),
            // It ended, and gave the slice away.
            None => Err(Refused::new(self, Error::NotWhole { has: 0, needs: 1 })),
        }
    }

    /// What is done, and what was not posted.
    fn whole(&mut self) -> Option<Slice<V::Done>> {
        join(self.done.take(), self.rest.take().map(Slice::unposted))
    }

    /// How many parts there are.
    pub fn parts(&self) -> u64 {
        self.parts
    }
}

/// Two neighbours, or the one that there is.
fn join<V>(first: Option<Slice<V>>, second: Option<Slice<V>>) -> Option<Slice<V>> {
    match (first, second) {
        // Cut from one slice and kept in order, so they are neighbours; were they not, the first is the longer loss.
        (Some(first), Some(second)) => Some(first.unsplit(second).unwrap_or_else(|refused| refused.into_inner().0)),
        (first, second) => first.or(second),
    }
}
