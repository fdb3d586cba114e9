//! Random bits of the system.

#![allow(unsafe_code)]

use std::hash::{BuildHasher, Hasher, RandomState};

/// That nobody can guess.
pub(crate) fn bits() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: as many bytes as there are, of ours.
    let written = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(written) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Seeded by the system as well, once, and different each time.
        _ => RandomState::new().build_hasher().finish(),
    }
}
