//! Whether the CPU sees memory that a device reaches, and whether it may be posted.

#![forbid(unsafe_code)]

use super::buffer::BufferKind;
use crate::caps::sealed::Sealed;
use crate::ring::Word;

/// Whether the CPU sees memory, and others are to be waited for: [`Visible`], [`Opaque`] or [`Coherent`].
pub trait View: Sealed + Send + Sync + 'static {
    /// Whether it does.
    const VISIBLE: bool;
    /// What memory that peers may reach is aligned to and a whole number of: words, where the CPU uses atomics on it.
    const SHARED_ALIGN: usize;
    /// What a slice of it is in flight.
    #[doc(hidden)]
    #[allow(private_interfaces)] // sealed: nobody else implements or reads it
    const SLICE: BufferKind;
    /// What a part of it is in flight, where peers reach it.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    const EXPOSED: BufferKind;
}

/// Slices and parts that can be posted: those of memory that is [`Visible`] or [`Coherent`], and those that are
/// [`Ordered`].
#[diagnostic::on_unimplemented(
    message = "memory that is `{Self}` is not posted: who else reaches it may not be done with it (GPUDirect, H26)",
    label = "nobody waited for those who reach this memory",
    note = "a GPU's: `region.outbound(slice)?` takes it back, `.synchronize(&mut stream)?.into_slice()` waits",
    note = "where something else guarantees it: `unsafe slice.assume_ordered()`, which says what must hold",
    note = "where nobody ever is to be waited for, its owner says so once: `unsafe file.assume_coherent()` of a file"
)]
pub trait Postable: Sealed + Send + Sync + 'static {
    /// What a completion gives back.
    type Done: View;
}

/// Memory whose bytes this program reads and writes.
#[derive(Clone, Copy, Debug)]
pub enum Visible {}

/// Memory that only devices reach: a GPU's, or whatever else is behind a file that is not mapped here. It is
/// registered, cut and granted as any other, and has no bytes here. It is posted as [`Ordered`], and comes back as what
/// it was: those who reach it are to be waited for each time.
#[derive(Clone, Copy, Debug)]
pub enum Opaque {}

/// Memory that only devices reach, and whose owner said that nobody who does is ever to be waited for. It has no bytes
/// here, and is posted as it is.
#[derive(Clone, Copy, Debug)]
pub enum Coherent {}

/// [`Opaque`] memory that is to be posted: whoever else reaches it was waited for.
// Not `Clone`: a copy of a part could be posted again.
#[derive(Debug)]
pub enum Ordered {}

impl Sealed for Visible {}
impl Sealed for Opaque {}
impl Sealed for Coherent {}
impl Sealed for Ordered {}

impl Postable for Visible {
    type Done = Self;
}

impl Postable for Coherent {
    type Done = Self;
}

impl Postable for Ordered {
    type Done = Opaque;
}

impl View for Visible {
    const VISIBLE: bool = true;
    const SHARED_ALIGN: usize = size_of::<Word>();
    #[allow(private_interfaces)]
    const SLICE: BufferKind = BufferKind::SLICE;
    #[allow(private_interfaces)]
    const EXPOSED: BufferKind = BufferKind::EXPOSED;
}

impl View for Opaque {
    const VISIBLE: bool = false;
    const SHARED_ALIGN: usize = 1;
    #[allow(private_interfaces)]
    const SLICE: BufferKind = BufferKind::OPAQUE;
    #[allow(private_interfaces)]
    const EXPOSED: BufferKind = BufferKind::OPAQUE_EXPOSED;
}

impl View for Coherent {
    const VISIBLE: bool = false;
    const SHARED_ALIGN: usize = 1;
    #[allow(private_interfaces)]
    const SLICE: BufferKind = BufferKind::COHERENT;
    #[allow(private_interfaces)]
    const EXPOSED: BufferKind = BufferKind::COHERENT_EXPOSED;
}
