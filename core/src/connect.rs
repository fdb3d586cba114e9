//! Two endpoints in one program, introduced to each other: for tests, benchmarks and first programs.
//!
//! A program with one side does the same with the frames over a channel of its own, and posts receives before
//! it sends its hello, since a peer may use it at once.

#![forbid(unsafe_code)]

use crate::peer::{Mutual, Peer};
use crate::provider::Provider;
use crate::qp::{Depth, Endpoint, QpKind, QueuePair, Reachable, Srd};
use crate::work::Event;
use crate::{Context, Error, ProtectionDomain};

/// One side, ready to send and to be reached.
#[derive(Debug)]
pub struct Side<P: Provider, K: QpKind = Srd> {
    /// Its endpoint.
    pub endpoint: Endpoint<P, K>,
    /// The other side.
    pub peer: Peer<Mutual, K::Features>,
    /// The protection domain of both.
    pub pd: ProtectionDomain<P>,
    /// Its device.
    pub ctx: Context<P>,
}

/// An endpoint on each of two devices that reach each other; twice the same one will do.
///
/// # Errors
/// [`Error::Unsupported`] if a device lacks what [`Srd`] needs, [`Error::AboveLimit`] for the depth, or what the
/// devices answered.
pub fn connect<P: Provider>(contexts: [Context<P>; 2], depth: Depth) -> Result<[Side<P>; 2], Error> {
    connect_of::<P, Srd>(contexts, depth)
}

/// As [`connect`], of another kind.
///
/// # Errors
/// As [`connect`].
pub fn connect_of<P: Provider, K: QpKind>([a, b]: [Context<P>; 2], depth: Depth) -> Result<[Side<P, K>; 2], Error> {
    let (a_pd, b_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    let a_endpoint = a_pd.endpoint(a.require::<K>()?, depth)?;
    let b_endpoint = b_pd.endpoint(b.require::<K>()?, depth)?;
    let (to_b, to_a) = introduce(&a_endpoint, &b_endpoint)?;
    Ok([
        Side { endpoint: a_endpoint, peer: to_b, pd: a_pd, ctx: a },
        Side { endpoint: b_endpoint, peer: to_a, pd: b_pd, ctx: b },
    ])
}

/// The exchange between two queue pairs of one program: the peer that each is to the other, `b` first.
///
/// # Errors
/// [`Error::FeatureMismatch`], or what the devices answered.
#[allow(clippy::type_complexity)] // two peers
pub fn introduce<P: Provider, S: Reachable, K: QpKind, Q: Provider, T: Reachable, L: QpKind>(
    a: &QueuePair<P, S, K>,
    b: &QueuePair<Q, T, L>,
) -> Result<(Peer<Mutual, K::Features>, Peer<Mutual, L::Features>), Error> {
    let (to_b, a_ready) = a.resolve(b.hello().as_bytes())?;
    let (to_a, b_ready) = b.resolve(a.hello().as_bytes())?;
    Ok((to_b.confirm(b_ready.as_bytes())?, to_a.confirm(a_ready.as_bytes())?))
}

impl<P: Provider, K: QpKind> Side<P, K> {
    /// Polls for the next event, at most 100,000 times: `None` if none comes in so many turns of the device.
    pub fn wait(&mut self) -> Option<Event> {
        (0..100_000).find_map(|_| self.endpoint.poll())
    }
}
