//! Two sides of one connection in one program: a device, a domain and an endpoint each, and the other as its peer.
//!
//! A program with one side does the same with the frames over a channel of its own; then it also posts receives
//! before it publishes its hello, because a peer may use it at once.

use core::fmt;

use efa_core::peer::{Mutual, Peer};
use efa_core::qp::{Depth, Endpoint, Srd};
use efa_core::{Context, Error, ProtectionDomain, Provider};

/// One side, ready to send and to be reached.
#[derive(Debug)]
pub struct Side<P: Provider> {
    /// Its endpoint.
    pub endpoint: Endpoint<P>,
    /// The other side.
    pub peer: Peer<Mutual>,
    /// Where its memory is registered.
    pub pd: ProtectionDomain<P>,
    /// Its device.
    pub ctx: Context<P>,
}

/// An endpoint on each of two devices that reach each other (twice the same one will do), introduced to each other.
///
/// # Errors
/// [`Error::Unsupported`] if a device has not all five operations, or what the devices answered.
pub fn connect<P: Provider>([a, b]: [Context<P>; 2], depth: Depth) -> Result<[Side<P>; 2], Error> {
    let (a_pd, b_pd) = (a.alloc_pd()?, b.alloc_pd()?);
    let a_endpoint = a_pd.endpoint(a.require::<Srd>()?, depth)?;
    let b_endpoint = b_pd.endpoint(b.require::<Srd>()?, depth)?;
    let (to_b, a_ready) = a_endpoint.resolve(b_endpoint.hello().as_bytes())?;
    let (to_a, b_ready) = b_endpoint.resolve(a_endpoint.hello().as_bytes())?;
    let to_b = to_b.confirm(b_ready.as_bytes())?;
    let to_a = to_a.confirm(a_ready.as_bytes())?;
    Ok([
        Side { endpoint: a_endpoint, peer: to_b, pd: a_pd, ctx: a },
        Side { endpoint: b_endpoint, peer: to_a, pd: b_pd, ctx: b },
    ])
}

/// Which device runs, as a line of text: name, address, capabilities and data path.
#[derive(Debug)]
pub struct Description<'c, P>(pub &'c Context<P>);

impl<P: Provider> fmt::Display for Description<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(context) = self;
        write!(f, "device {} at {}, data path direct, capabilities", context.name(), context.gid())?;
        let caps = context.caps();
        if caps.is_empty() {
            return f.write_str(" none");
        }
        caps.iter_names().try_for_each(|(name, _)| write!(f, " {name}"))
    }
}
