//! Two programs introduced to each other, over a channel of their own: what travels before there are endpoints to send to.
//!
//! ```text
//!   listener                                    connector
//!   hello ──────────────────────────────────▶   resolves it: an address handle, and a ready
//!         ◀──────────────────────────────────   hello
//!   ready ──────────────────────────────────▶   confirms: both hold handles, so RDMA may begin
//!         ◀──────────────────────────────────   ready
//! ```
//!
//! [`introduce`] is that, over any [`Channel`]; [`Tcp`] is one, whose every call ends in time, but for the system's own look-up
//! of a host's name. Frames have fixed lengths, and
//! nothing longer than what is expected is read. Receives are to be posted before: the other side may send as soon as it has
//! the ready.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use efa_core::Context;
//! use efa_core::qp::{Depth, Srd};
//! use efa_examples::exchange::{Tcp, introduce};
//! use efa_os::{AnyDevice, Choice, soft};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut chosen = AnyDevice::choose(Choice::from_environment()?, &soft::Options::from_environment())?;
//! let ctx = Context::open(chosen.devices.swap_remove(0));
//! let pd = ctx.alloc_pd()?;
//! let endpoint = pd.endpoint(ctx.require::<Srd>()?, Depth::new(16, 16))?;
//! let mut channel = Tcp::connect("server:18515", Duration::from_secs(10))?;
//! let peer = introduce(&endpoint, &mut channel)?;
//! # Ok(())
//! # }
//! ```

mod error;
mod tcp;
mod verdict;

use efa_core::Provider;
use efa_core::memory::{Exposed, RemoteAccess};
use efa_core::peer::{Mutual, Peer, RemoteWindow};
use efa_core::qp::{Endpoint, QpKind};
use efa_core::wire::{GrantFrame, HelloFrame, ReadyFrame};

pub use error::ExchangeError;
pub use tcp::{Listener, Tcp};
pub use verdict::{conclude, expect, hear};

/// Bytes in and bytes out, in order: between two programs, before they have anything else.
pub trait Channel {
    /// Sends them all.
    ///
    /// # Errors
    /// That it cannot, or not in time.
    fn send(&mut self, bytes: &[u8]) -> Result<(), ExchangeError>;

    /// Waits until there are as many.
    ///
    /// # Errors
    /// That they do not come, or not in time.
    fn recv(&mut self, bytes: &mut [u8]) -> Result<(), ExchangeError>;
}

/// Introduces an endpoint to that of the other side, which does the same.
///
/// # Errors
/// What the channel says, what is wrong with the other side's frames, or that the endpoints do not match.
pub fn introduce<P: Provider, K: QpKind>(
    endpoint: &Endpoint<P, K>,
    channel: &mut impl Channel,
) -> Result<Peer<Mutual, K::Features>, ExchangeError> {
    channel.send(endpoint.hello().as_bytes())?;
    let mut hello = [0; HelloFrame::LEN];
    channel.recv(&mut hello)?;
    let (peer, ready) = endpoint.resolve(&hello)?;
    channel.send(ready.as_bytes())?;
    let mut ready = [0; ReadyFrame::LEN];
    channel.recv(&mut ready)?;
    Ok(peer.confirm(&ready)?)
}

/// Grants this memory to the other side, which grants some of its own for the same: the window on that.
///
/// # Errors
/// What the channel says, or what is wrong with the other side's grant.
pub fn swap_grants<P: Provider, K: QpKind, M: efa_core::memory::DmaBuf, A: RemoteAccess>(
    endpoint: &Endpoint<P, K>,
    peer: &Peer<Mutual, K::Features>,
    memory: &Exposed<M, A>,
    channel: &mut impl Channel,
) -> Result<RemoteWindow<A>, ExchangeError> {
    channel.send(memory.grant(endpoint)?.as_bytes())?;
    let mut grant = [0; GrantFrame::LEN];
    channel.recv(&mut grant)?;
    Ok(peer.window(&grant)?)
}

/// Bytes of a text, at most.
const TEXT: usize = 4096;

/// Sends a text, of which at most 4096 bytes arrive.
///
/// # Errors
/// What the channel says.
pub fn send_text(channel: &mut impl Channel, text: &str) -> Result<(), ExchangeError> {
    let bytes = text.as_bytes();
    let bytes = bytes.get(..TEXT).unwrap_or(bytes);
    channel.send(&(bytes.len() as u32).to_le_bytes())?;
    channel.send(bytes)
}

/// Waits for a text, which may be printed: whoever sent it, it has no control characters.
///
/// # Errors
/// What the channel says, or that it is longer than a text may be.
pub fn recv_text(channel: &mut impl Channel) -> Result<String, ExchangeError> {
    let mut len = [0; 4];
    channel.recv(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len as usize > TEXT {
        return Err(ExchangeError::TooLong { bytes: len, most: TEXT as u32 });
    }
    let mut bytes = vec![0; len as usize];
    channel.recv(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).replace(char::is_control, "\u{FFFD}"))
}

#[cfg(test)]
mod tests;
