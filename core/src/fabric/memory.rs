//! What the fabric `efa` sends from and receives into.

use core::fmt;

use crate::memory::{ExposedPart, Slice};

/// A buffer of the fabric `efa`: any bytes, or registered memory, which spares copies.
///
/// It is owned while a message has it, whatever it is: a `&'static [u8]`, a borrowed one that outlives the endpoint, a
/// `Vec`, an array. The event gives it back.
///
/// | source | to a receive of | copies by the CPU |
/// |---|---|---|
/// | exposed for reading | a slice, or exposed | none: the receiver reads it by RDMA |
/// | a slice, or exposed | exposed for writing | none: the sender writes it by RDMA |
/// | a slice, or exposed | any other | one, by the receiver |
/// | plain | any other | one by each |
///
/// That is of long messages, where both devices have that RDMA; short ones are copied twice, which is faster.
pub enum Memory<B> {
    /// Bytes that are not registered. They are copied through the endpoint's own slots.
    Plain(B),
    /// A registered slice.
    Slice(Slice),
    /// Exposed memory, of which there are no references, only copies.
    Exposed(ExposedPart),
}

/// Without the bytes, which may be many.
impl<B> fmt::Debug for Memory<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain"),
            Self::Slice(slice) => slice.fmt(f),
            Self::Exposed(bytes) => write!(f, "Exposed {{ len: {} }}", bytes.len()),
        }
    }
}

impl<B> From<Slice> for Memory<B> {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl<B> From<ExposedPart> for Memory<B> {
    fn from(bytes: ExposedPart) -> Self {
        Self::Exposed(bytes)
    }
}

impl<B> Memory<B> {
    /// The plain bytes, if it is that.
    pub fn into_plain(self) -> Option<B> {
        match self {
            Self::Plain(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The slice, if it is one.
    pub fn into_slice(self) -> Option<Slice> {
        match self {
            Self::Slice(slice) => Some(slice),
            _ => None,
        }
    }
}

impl<B: AsRef<[u8]>> Memory<B> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.as_ref().len(),
            Self::Slice(slice) => slice.len(),
            Self::Exposed(bytes) => bytes.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies out of it, from byte `offset`, as much as `target` has; `false` if it has not so many, which is only so if
    /// `as_ref` changes its mind.
    pub(super) fn copy_out(&self, offset: usize, target: &mut [u8]) -> bool {
        match self {
            Self::Plain(bytes) => copy(target, tail(bytes.as_ref(), offset)),
            Self::Slice(slice) => copy(target, tail(slice, offset)),
            Self::Exposed(bytes) => bytes.copy_out(offset, target).is_ok(),
        }
    }
}

impl<B: AsMut<[u8]>> Memory<B> {
    /// Copies into it, at byte `offset`; `false` if it has no room, which is only so if `as_mut` changes its mind.
    pub(super) fn copy_in(&mut self, offset: usize, source: &[u8]) -> bool {
        let target = match self {
            Self::Plain(bytes) => bytes.as_mut(),
            Self::Slice(slice) => slice,
            Self::Exposed(bytes) => return bytes.copy_in(offset, source).is_ok(),
        };
        match target.get_mut(offset..).and_then(|target| target.get_mut(..source.len())) {
            Some(target) => copy(target, source),
            None => false,
        }
    }
}

fn tail(bytes: &[u8], offset: usize) -> &[u8] {
    bytes.get(offset..).unwrap_or_default()
}

/// Fills `target` from the start of `source`, if that has so many.
fn copy(target: &mut [u8], source: &[u8]) -> bool {
    match source.get(..target.len()) {
        Some(source) => {
            target.copy_from_slice(source);
            true
        }
        None => false,
    }
}
