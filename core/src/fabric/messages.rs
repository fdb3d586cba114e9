//! The one interface for applications over both fabrics.

use super::{Fabric, Why};
use crate::memory::Slice;
use crate::{Refused, Token};

/// One of an endpoint's peers, as [`Messages`] names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerId(pub(super) super::efa::Id);

/// What sends and receives messages: [`EfaDirect`](super::EfaDirect) and [`Efa`](super::Efa).
///
/// Buffers go in, and come back with the event. A program that registers its memory is written once over both: a source
/// and a target are made of a slice by `into()`. It must then bear what `efa-direct` does: messages of at most
/// [`Messages::max_message`] bytes, in no order.
///
/// ```
/// use efa_core::fabric::{Event, Messages, PeerId, Why};
/// use efa_core::memory::Slice;
/// use efa_core::Token;
///
/// /// Sends `source`, and waits for an answer in `target`: gives both back, and how long the answer is.
/// fn ask<M: Messages>(m: &mut M, to: PeerId, source: Slice, target: Slice) -> Result<(M::Source, M::Target, usize), Why> {
///     m.recv(target.into(), Token(1))?;
///     m.send(to, source.into(), Token(2))?;
///     let (mut sent, mut answer) = (None, None);
///     for now in (0..).step_by(10) {
///         match m.poll(now) {
///             Some(Event::Sent { source, .. }) => sent = Some(source),
///             Some(Event::Received { target, len, .. }) => answer = Some((target, len)),
///             Some(Event::Failed { why, .. }) => return Err(why),
///             _ => {}
///         }
///         if let (Some(_), Some(_)) = (&sent, &answer) {
///             break;
///         }
///     }
///     let (source, (target, len)) = sent.zip(answer).expect("both are here");
///     Ok((source, target, len))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` sends no messages",
    label = "neither `EfaDirect` nor `Efa`",
    note = "an endpoint alone is neither: `EfaDirect::new(endpoint)`, or `Efa::new(endpoint, memory, options)`"
)]
pub trait Messages {
    /// What is sent.
    type Source: From<Slice>;
    /// What is received into.
    type Target: From<Slice>;

    /// Sends a message: its event is [`Event::Sent`] or [`Event::Failed`], once.
    ///
    /// # Errors
    /// [`Why::UnknownPeer`], [`Why::Full`], [`Why::TooLong`] or [`Why::Refused`], or why the peer was lost; with the source.
    fn send(&mut self, to: PeerId, source: Self::Source, token: Token) -> Result<(), Refused<Self::Source, Why>>;

    /// Takes a message from whomever, once one arrives: [`Event::Received`], or [`Event::Failed`].
    ///
    /// # Errors
    /// [`Why::Full`] or [`Why::Refused`]; with the target.
    fn recv(&mut self, target: Self::Target, token: Token) -> Result<(), Refused<Self::Target, Why>>;

    /// Goes on with everything, and gives what became of something; `None` if nothing did. `now` is in microseconds of any
    /// clock that does not run backwards.
    fn poll(&mut self, now: u64) -> Option<Event<Self::Source, Self::Target>>;

    /// Which fabric it is.
    fn fabric(&self) -> Fabric;

    /// Bytes of the longest message.
    fn max_message(&self) -> u64;
}

/// What became of something.
#[must_use = "it holds a buffer"]
#[derive(Debug)]
pub enum Event<S, T> {
    /// A message is with the peer: a long one in its receive, a short one at least in its endpoint.
    Sent {
        /// Which.
        token: Token,
        /// To whom: over `efa` always, over `efa-direct` never, since the device does not say.
        to: Option<PeerId>,
        /// Its source.
        source: S,
    },
    /// A message arrived.
    Received {
        /// Which receive it is in.
        token: Token,
        /// From whom, as far as the device knew (R23); over `efa` always.
        from: Option<PeerId>,
        /// Its bytes, from the start of the target on.
        len: usize,
        /// The target.
        target: T,
    },
    /// A [write](super::Efa::write) is in the peer's memory.
    Written {
        /// Which.
        token: Token,
        /// At whom.
        to: PeerId,
        /// Its source.
        source: S,
    },
    /// A [read](super::Efa::read) is here.
    Read {
        /// Which.
        token: Token,
        /// From whom.
        from: PeerId,
        /// Its target, full.
        target: T,
    },
    /// Something failed.
    Failed {
        /// What.
        token: Token,
        /// With whom, if it was with somebody.
        peer: Option<PeerId>,
        /// Why.
        why: Why,
        /// Its buffer. A target may have been written in part.
        buffer: Returned<S, T>,
    },
    /// A peer answered: over `efa`, messages go out from here on.
    Up(PeerId),
    /// A peer is lost: whatever was under way with it fails by this, each by an event of its own.
    Lost {
        /// Who.
        peer: PeerId,
        /// Why.
        why: Why,
    },
}

/// What something that failed was given.
#[derive(Debug)]
pub enum Returned<S, T> {
    /// A source.
    Source(S),
    /// A target.
    Target(T),
}

impl<S, T> Event<S, T> {
    /// Which operation it ends.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Sent { token, .. }
            | Self::Received { token, .. }
            | Self::Written { token, .. }
            | Self::Read { token, .. }
            | Self::Failed { token, .. } => Some(*token),
            Self::Up(_) | Self::Lost { .. } => None,
        }
    }
}
