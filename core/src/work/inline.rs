//! Bytes that travel in the entry itself.

#![forbid(unsafe_code)]

use crate::caps::sealed::Sealed;
use crate::qp::{Narrow, Wide};

/// Bytes of host memory that are copied into the entry when the operation is posted, and need not be registered (R10):
/// a slice, or an array, by value or by reference.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be inline (R10)",
    label = "neither a byte slice nor a byte array",
    note = "pass a slice, `&bytes[..]`, or an array of bytes"
)]
pub trait InlineBytes: Sealed {
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
}

/// [`InlineBytes`] that are not known to be too many for entries of size `E`: any slice, whose length is checked when
/// it is posted, and arrays of up to [`EntrySize::INLINE`](crate::qp::EntrySize::INLINE) bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fit inline into a `{E}` entry (R10)",
    label = "does not fit into the queue pair's entries",
    note = "inline bytes are up to 32 in 64-byte entries, up to 80 in those of a kind `Srd<{{ ops::ALL }}, Solicited, Wide>`",
    note = "longer ones are registered, and sent or written as a slice: `peer.send(slice)`",
    note = "where the length is a const parameter, pass a slice, `&bytes[..]`: its length is checked when it is posted"
)]
pub trait FitsInline<E>: InlineBytes {}

impl Sealed for &[u8] {}
impl<const N: usize> Sealed for [u8; N] {}
impl<const N: usize> Sealed for &[u8; N] {}

impl InlineBytes for &[u8] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> InlineBytes for [u8; N] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> InlineBytes for &[u8; N] {
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        *self
    }
}

impl<E> FitsInline<E> for &[u8] {}
#[diagnostic::do_not_recommend]
impl<E> FitsInline<E> for [u8; 0] {}
#[diagnostic::do_not_recommend]
impl<E> FitsInline<E> for &[u8; 0] {}

macro_rules! fits {
    ($($entries:ty: $($len:literal)*;)*) => {
        $($(
            #[diagnostic::do_not_recommend]
            impl FitsInline<$entries> for [u8; $len] {}
            #[diagnostic::do_not_recommend]
            impl FitsInline<$entries> for &[u8; $len] {}
        )*)*
    };
}

fits!(
    Narrow: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32;
    Wide: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
        78 79 80;
);
