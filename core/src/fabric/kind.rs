//! Kinds of queue pair that can carry messages, with RDMA as far as they have it.

use crate::memory::{RemoteRead, RemoteWrite};
use crate::peer::{Mutual, Peer, RemoteWindow};
use crate::provider::Provider;
use crate::qp::{Endpoint, EntrySize, FeatureSet, HasSend, Srd};
use crate::work::{OneBuffer, WritableBuffer};
use crate::{Caps, Error, Refused, Token};

/// SRD kinds with SEND: what RDMA a kind lacks, the fabric `efa` carries as messages.
///
/// A device without RDMA has `SendOnly`, one that has reads `Srd<{ ops::SEND | ops::RDMA_READ }>`, one that has both
/// `Srd`; with immediates or without, for the layer uses none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry messages: that takes an SRD queue pair with SEND (R06)",
    label = "not an SRD kind with SEND and, of RDMA, write, read, both or none",
    note = "`Srd` has all; `SendOnly` is for devices without RDMA"
)]
pub trait Carries: HasSend {
    /// Whether it posts RDMA reads.
    const READS: bool;
    /// Whether it posts RDMA writes.
    const WRITES: bool;

    #[doc(hidden)]
    fn read<P: Provider, B: WritableBuffer>(
        qp: &mut Endpoint<P, Self>,
        peer: &Peer<Mutual, Self::Features>,
        target: B,
        window: RemoteWindow<RemoteRead>,
        token: Token,
    ) -> Result<(), Refused<B>>
    where
        Self: Sized;

    #[doc(hidden)]
    fn write<P: Provider, B: OneBuffer>(
        qp: &mut Endpoint<P, Self>,
        peer: &Peer<Mutual, Self::Features>,
        source: B,
        window: RemoteWindow<RemoteWrite>,
        token: Token,
    ) -> Result<(), Refused<B>>
    where
        Self: Sized;
}

macro_rules! carries {
    ($read:ident $write:ident: $($mask:literal)*) => {
        $(
            #[diagnostic::do_not_recommend]
            impl<F: FeatureSet, E: EntrySize> Carries for Srd<$mask, F, E> {
                const READS: bool = carries!(has $read);
                const WRITES: bool = carries!(has $write);

                fn read<P: Provider, B: WritableBuffer>(
                    qp: &mut Endpoint<P, Self>,
                    peer: &Peer<Mutual, F>,
                    target: B,
                    window: RemoteWindow<RemoteRead>,
                    token: Token,
                ) -> Result<(), Refused<B>> {
                    carries!($read qp peer target window token)
                }

                fn write<P: Provider, B: OneBuffer>(
                    qp: &mut Endpoint<P, Self>,
                    peer: &Peer<Mutual, F>,
                    source: B,
                    window: RemoteWindow<RemoteWrite>,
                    token: Token,
                ) -> Result<(), Refused<B>> {
                    carries!($write qp peer source window token)
                }
            }
        )*
    };
    (has read) => { true };
    (has write) => { true };
    (has no_read) => { false };
    (has no_write) => { false };
    (read $qp:ident $peer:ident $buffer:ident $window:ident $token:ident) => {
        $qp.post($peer.read($buffer, $window), $token)
    };
    (write $qp:ident $peer:ident $buffer:ident $window:ident $token:ident) => {
        $qp.post($peer.write($buffer, $window), $token)
    };
    (no_read $qp:ident $peer:ident $buffer:ident $window:ident $token:ident) => {{
        let _ = ($peer, $window, $token);
        Err(Refused::new($buffer, Error::Unsupported { needs: Caps::RDMA_READ, has: $qp.provider().caps() }))
    }};
    (no_write $qp:ident $peer:ident $buffer:ident $window:ident $token:ident) => {{
        let _ = ($peer, $window, $token);
        Err(Refused::new($buffer, Error::Unsupported { needs: Caps::RDMA_WRITE, has: $qp.provider().caps() }))
    }};
}

carries!(no_read no_write: 4 12);
carries!(no_read write: 5 7 13 15);
carries!(read no_write: 20 28);
carries!(read write: 21 23 29 31);
