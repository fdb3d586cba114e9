//! The unreliable datagram kind.

#![forbid(unsafe_code)]

use super::{FeatureSet, HasSend, HasSendImm, Narrow, QpKind, QpType};
use crate::caps::sealed::Sealed;
use crate::flags::SendOps;
use crate::wire::Features;
use crate::{Caps, Requirement};

/// An unreliable datagram queue pair: SENDs, with or without immediate, to UD queue pairs, on a best effort.
///
/// What [`Srd`](super::Srd) has besides, RDMA and retries, does not compile. What differs else:
///
/// | | UD | SRD |
/// |---|---|---|
/// | a SEND succeeds | when it has left | when the peer has it |
/// | it finds no receive, no such queue pair or no device | dropped, and nobody is told | waits, or fails with 9, 13 or 15 |
/// | the receive is too short | fails with 6 at the receiver | fails with 6 there, and with 11 here |
/// | a receive | at least 40 bytes, of which the header takes 40 | its bytes are the payload's |
///
/// The [payload](crate::work::Received::payload) of a receive lies behind a routing header of 40 bytes, whose content
/// is the device's own. Across two buffers the header lies as bytes do.
///
/// ```
/// use efa_core::memory::Arena;
/// use efa_core::qp::{Depth, Endpoint, Ud};
/// use efa_core::soft::{Profile, SoftDevice, Storage};
/// use efa_core::{Context, Error, Token, work::Event};
///
/// static DEVICE: Storage<2, 16, 8> = Storage::new();
/// static MEMORY: [Arena<104>; 2] = [const { Arena::new() }; 2];
///
/// /// What the datagram that arrives next says; none if none comes, which may happen.
/// fn received(endpoint: &mut Endpoint<SoftDevice, Ud>, said: &mut [u8; 4]) -> Option<()> {
///     let mut message = (0..1000).find_map(|_| match endpoint.poll()? {
///         Event::Received(message) => Some(message),
///         _ => None, // one that was sent
///     })?;
///     let bytes = message.buffers.take_slice()?;
///     said.copy_from_slice(&bytes[message.payload()]);
///     Some(())
/// }
///
/// # fn main() -> Result<(), Error> {
/// let ctx = Context::open(DEVICE.start(Profile::NONE)?);
/// let (pd, ud) = (ctx.alloc_pd()?, ctx.require::<Ud>()?);
/// let mut a = pd.endpoint(ud, Depth::new(4, 4))?;
/// let mut b = pd.endpoint(ud, Depth::new(4, 4))?;
/// let (to_b, to_a) = efa_core::connect::introduce(&a, &b)?; // between hosts: frames, as for SRD
///
/// a.post_recv(pd.register(MEMORY[0].take()?)?.1, Token(1))?; // 64 bytes of payload
/// b.post_recv(pd.register(MEMORY[1].take()?)?.1, Token(2))?;
/// let mut said = [0; 4];
/// a.post(to_b.send_inline(b"ping"), Token(3))?;
/// received(&mut b, &mut said).expect("a datagram, unless it was lost");
/// assert_eq!(&said, b"ping");
/// b.post(to_a.send_inline(b"pong"), Token(4))?;
/// received(&mut a, &mut said).expect("a datagram, unless it was lost");
/// assert_eq!(&said, b"pong");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ud(());

/// What UD queue pairs share with their peers: that they are UD. They reach no SRD queue pair, and none reaches them.
#[derive(Clone, Copy, Debug)]
pub struct Datagram(());

impl Sealed for Ud {}
impl Sealed for Datagram {}

impl Requirement for Ud {
    const NEEDS: Caps = Caps::empty();
}

impl QpKind for Ud {
    const TYPE: QpType = QpType::Ud;
    const OPS: SendOps = SendOps::SEND.union(SendOps::SEND_WITH_IMM);
    type Features = Datagram;
    type Entries = Narrow;
}

impl FeatureSet for Datagram {
    const FEATURES: Features = Features::DATAGRAM;
    const NEEDS: Caps = Caps::empty();
}

#[diagnostic::do_not_recommend]
impl HasSend for Ud {}

#[diagnostic::do_not_recommend]
impl HasSendImm for Ud {}
