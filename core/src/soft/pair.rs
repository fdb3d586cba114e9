//! Two connected endpoints in one line: for tests.

#![forbid(unsafe_code)]

use super::{Config, SoftDevice};
use crate::qp::{Depth, QpKind, Srd};
use crate::{Context, Error, connect};

/// One end of a [`pair`], on a device of its own.
pub type Side<K = Srd> = connect::Side<SoftDevice, K>;

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
/// a.endpoint.post(a.peer.send_inline(b"hello"), Token(2))?;
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
    let contexts = [Context::open(device.clone()), Context::open(device.neighbour()?)];
    let [a, b] = connect::connect_of(contexts, depth)?;
    Ok((a, b))
}
