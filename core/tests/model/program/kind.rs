//! The kinds of queue pairs that a program has: all of one.

use efa_core::peer::Peer;
use efa_core::qp::{HasRead, HasRnrRetry, HasSend, HasSendImm, HasWrite, HasWriteImm, Solicited, Srd, Wide, ops};
use efa_core::soft::SoftDevice;
use efa_core::{Error, Token};

use super::{Endpoint, Window};

pub(super) type WideSrd = Srd<{ ops::ALL }, Solicited, Wide>;

/// All operations, with inline bytes as there is room for.
pub(super) trait Kind:
    HasRnrRetry<Features = Solicited> + HasSend + HasSendImm + HasWrite + HasWriteImm + HasRead
{
    /// Bytes of an inline SEND.
    const INLINE: usize;

    /// Posts an inline write, if the kind has any.
    fn write_inline(
        qp: &mut Endpoint<SoftDevice, Self>,
        peer: &Peer<efa_core::peer::Mutual>,
        bytes: &[u8],
        window: Window,
        imm: Option<u32>,
        token: u64,
    ) -> Option<Result<(), Error>>
    where
        Self: Sized;
}

impl Kind for Srd {
    const INLINE: usize = 32;

    fn write_inline(
        _: &mut Endpoint<SoftDevice>,
        _: &Peer<efa_core::peer::Mutual>,
        _: &[u8],
        _: Window,
        _: Option<u32>,
        _: u64,
    ) -> Option<Result<(), Error>> {
        None
    }
}

impl Kind for WideSrd {
    const INLINE: usize = 80;

    fn write_inline(
        qp: &mut Endpoint<SoftDevice, Self>,
        peer: &Peer<efa_core::peer::Mutual>,
        bytes: &[u8],
        window: Window,
        imm: Option<u32>,
        token: u64,
    ) -> Option<Result<(), Error>> {
        let write = peer.write_inline(bytes, window);
        let result = match imm {
            Some(imm) => qp.post(write.imm(imm), Token(token)),
            None => qp.post(write, Token(token)),
        };
        Some(result.map_err(|refused| refused.error()))
    }
}
