//! Two connected endpoints in one line: for tests.

#![forbid(unsafe_code)]

use super::{Config, SoftDevice};
use crate::peer::{Mutual, Peer};
use crate::qp::{Depth, Endpoint, QpKind, Srd};
use crate::work::Event;
use crate::{Context, Error, ProtectionDomain};

/// One end of a [`pair`], on a device of its own.
#[derive(Debug)]
pub struct Side<K: QpKind = Srd> {
    /// The endpoint.
    pub endpoint: Endpoint<SoftDevice, K>,
    /// The other side.
    pub peer: Peer<Mutual, K::Features>,
    /// The protection domain of both.
    pub pd: ProtectionDomain<SoftDevice>,
    /// The device.
    pub ctx: Context<SoftDevice>,
}

/// Two endpoints on two software devices of one wire, each resolved by the other, 64 operations deep.
///
/// ```
/// use efa_core::work::Event;
/// use efa_core::{Token, soft};
///
/// # fn main() -> Result<(), efa_core::Error> {
/// let (mut a, mut b) = soft::pair(soft::Profile::RDMA)?;
/// let (_, target) = b.pd.register(vec![0; 64])?;
/// b.endpoint.post_recv(target, Token(1))?;
/// a.endpoint.post(a.peer.send_inline(b"hello")?, Token(2))?;
/// assert!(matches!(b.wait(), Some(Event::Received(message)) if message.len == 5));
/// assert!(matches!(a.wait(), Some(Event::Sent(_))));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Unsupported`] if the profile lacks what [`Srd`] needs.
pub fn pair(config: impl Into<Config>) -> Result<(Side, Side), Error> {
    pair_of::<Srd>(config, Depth::new(64, 64))
}

/// As [`pair`], of another kind and depth.
///
/// # Errors
/// [`Error::Unsupported`] if the profile lacks what `K` needs, [`Error::AboveLimit`] for the depth.
pub fn pair_of<K: QpKind>(config: impl Into<Config>, depth: Depth) -> Result<(Side<K>, Side<K>), Error> {
    let device = SoftDevice::new(config);
    let a = Half::<K>::new(device.clone(), depth)?;
    let b = Half::<K>::new(device.neighbour()?, depth)?;
    let (to_b, a_ready) = a.endpoint.resolve(b.endpoint.hello().as_bytes())?;
    let (to_a, b_ready) = b.endpoint.resolve(a.endpoint.hello().as_bytes())?;
    let (to_b, to_a) = (to_b.confirm(b_ready.as_bytes())?, to_a.confirm(a_ready.as_bytes())?);
    Ok((a.with(to_b), b.with(to_a)))
}

struct Half<K: QpKind> {
    endpoint: Endpoint<SoftDevice, K>,
    pd: ProtectionDomain<SoftDevice>,
    ctx: Context<SoftDevice>,
}

impl<K: QpKind> Half<K> {
    fn new(device: SoftDevice, depth: Depth) -> Result<Self, Error> {
        let ctx = Context::open(device);
        let pd = ctx.alloc_pd()?;
        let endpoint = pd.endpoint(ctx.require::<K>()?, depth)?;
        Ok(Self { endpoint, pd, ctx })
    }

    fn with(self, peer: Peer<Mutual, K::Features>) -> Side<K> {
        let Self { endpoint, pd, ctx } = self;
        Side { endpoint, peer, pd, ctx }
    }
}

impl<K: QpKind> Side<K> {
    /// Polls for the next event, at most 100,000 times: `None` if none comes in so many turns of the device.
    pub fn wait(&mut self) -> Option<Event> {
        (0..100_000).find_map(|_| self.endpoint.poll())
    }
}
