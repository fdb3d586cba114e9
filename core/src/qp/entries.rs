//! Sizes of send queue entries: 64 bytes, or 128 for more inline bytes.

#![forbid(unsafe_code)]

use core::fmt;

use crate::caps::sealed::Sealed;
use crate::entry::{Quad, quads};
use crate::{Caps, Limits};

/// The size of a queue pair's send entries, which says how many bytes one can carry itself (R10).
///
/// | | [`Narrow`] | [`Wide`] |
/// |---|---|---|
/// | bytes of an entry | 64 | 128 |
/// | inline bytes of a SEND | up to 32 | up to 80 |
/// | inline bytes of an RDMA write | none | up to 80 |
/// | depth, and operations of a batch | as the device has | half of that |
///
/// Peers need not have the same.
///
/// ```
/// # #[cfg(feature = "alloc")] {
/// use efa_core::qp::{Depth, Solicited, Srd, Wide, ops};
/// use efa_core::{Token, soft, work::Event};
///
/// type Kind = Srd<{ ops::ALL }, Solicited, Wide>;
/// let (mut a, mut b) = soft::pair_of::<Kind>(soft::Profile::RDMA.wide(), Depth::new(8, 8))?;
/// assert_eq!(a.endpoint.granted().inline, 80);
/// b.endpoint.post_recv(b.pd.register(vec![0; 80])?.1, Token(1))?;
/// a.endpoint.post(a.peer.send_inline([7; 80]), Token(2))?;
/// assert!(matches!(b.wait(), Some(Event::Received(message)) if message.len == 80));
/// # }
/// # Ok::<(), efa_core::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no size of send entries (R10)",
    label = "not a size of entries",
    note = "`Narrow`, which is the default, or `Wide`: `Srd<{{ ops::ALL }}, Solicited, Wide>`"
)]
pub trait EntrySize: Sealed + Copy + Send + Sync + 'static {
    /// Bytes of an entry.
    const BYTES: u16;
    /// Inline bytes that it has room for; how many the device takes is in [`Limits`].
    const INLINE: u16;
    /// What the device must be able to do.
    const NEEDS: Caps;
    /// What follows the first 32 bytes of an entry.
    #[doc(hidden)]
    type Data: AsRef<[Quad]> + Copy + fmt::Debug;

    /// The inline bytes that a device takes.
    #[doc(hidden)]
    fn max_inline(limits: &Limits) -> u16;
    /// Buffers.
    #[doc(hidden)]
    fn buffers(buffers: [Quad; 4]) -> Self::Data;
    /// Inline bytes of a SEND, as many as there is room for.
    #[doc(hidden)]
    fn inline(bytes: &[u8]) -> Self::Data;
}

/// 64-byte entries.
#[derive(Clone, Copy, Debug)]
pub struct Narrow(());

/// 128-byte entries: more inline bytes, at half the depth.
#[derive(Clone, Copy, Debug)]
pub struct Wide(());

impl Sealed for Narrow {}
impl Sealed for Wide {}

impl EntrySize for Narrow {
    const BYTES: u16 = 64;
    const INLINE: u16 = 32;
    const NEEDS: Caps = Caps::empty();
    type Data = [Quad; 4];

    fn max_inline(limits: &Limits) -> u16 {
        limits.max_inline.min(Self::INLINE)
    }

    #[inline(always)]
    fn buffers(buffers: [Quad; 4]) -> [Quad; 4] {
        buffers
    }

    #[inline(always)]
    fn inline(bytes: &[u8]) -> [Quad; 4] {
        quads(&padded::<32>(bytes))
    }
}

impl EntrySize for Wide {
    const BYTES: u16 = 128;
    const INLINE: u16 = 80;
    const NEEDS: Caps = Caps::WIDE_ENTRIES;
    type Data = [Quad; 12];

    fn max_inline(limits: &Limits) -> u16 {
        limits.max_inline_wide.min(Self::INLINE)
    }

    #[inline(always)]
    fn buffers([first, second, third, fourth]: [Quad; 4]) -> [Quad; 12] {
        [first, second, third, fourth, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    #[inline(always)]
    fn inline(bytes: &[u8]) -> [Quad; 12] {
        let [a, b, c, d, e, f, g, h, i, j] = quads(&padded::<80>(bytes));
        [a, b, c, d, e, f, g, h, i, j, 0, 0]
    }
}

impl Wide {
    /// The remote buffer and the inline bytes of an RDMA write, which follow it.
    #[inline(always)]
    pub(crate) fn inline_write([length_and_key, addr]: [Quad; 2], bytes: &[u8]) -> [Quad; 12] {
        let [a, b, c, d, e, f, g, h, i, j] = quads(&padded::<80>(bytes));
        [length_and_key, addr, a, b, c, d, e, f, g, h, i, j]
    }
}

#[inline(always)]
fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    for (to, from) in padded.iter_mut().zip(bytes) {
        *to = *from;
    }
    padded
}
