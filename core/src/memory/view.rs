//! Whether the CPU sees memory that a device reaches.

#![forbid(unsafe_code)]

use super::buffer::BufferKind;
use crate::caps::sealed::Sealed;
use crate::ring::Word;

/// Whether the CPU sees memory: [`Visible`] or [`Opaque`].
pub trait View: Sealed + Send + Sync + 'static {
    /// Whether it does.
    const VISIBLE: bool;
    /// What memory that peers may reach is aligned to and a whole number of: words, where the CPU uses atomics on it.
    const SHARED_ALIGN: usize;
    #[doc(hidden)]
    #[allow(private_interfaces)] // sealed: nobody else implements or reads it
    const KIND: BufferKind;
}

/// Memory whose bytes this program reads and writes.
#[derive(Clone, Copy, Debug)]
pub enum Visible {}

/// Memory that only devices reach: a GPU's, or whatever else is behind a file that is not mapped here. It is registered,
/// cut, posted and granted as any other, and has no bytes here.
#[derive(Clone, Copy, Debug)]
pub enum Opaque {}

impl Sealed for Visible {}
impl Sealed for Opaque {}

impl View for Visible {
    const VISIBLE: bool = true;
    const SHARED_ALIGN: usize = size_of::<Word>();
    #[allow(private_interfaces)]
    const KIND: BufferKind = BufferKind::SLICE;
}

impl View for Opaque {
    const VISIBLE: bool = false;
    const SHARED_ALIGN: usize = 1;
    #[allow(private_interfaces)]
    const KIND: BufferKind = BufferKind::OPAQUE;
}
