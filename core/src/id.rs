//! Numbers that name things on the device: newtypes, so that none is mistaken for another.

#![forbid(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::Error;
use crate::error::Limit;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($vis:vis $raw:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub struct $name($vis $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A queue pair number; EFA's are 16 bits wide (R13) and are reused (R20).
    Qpn(pub u16), "{}"
);
number!(
    /// A queue key: the sender uses the receiver's (R26).
    Qkey(pub u32), "{:#010x}"
);
number!(
    /// An address handle number; 0xFFFF means that the device knew none (R23).
    Ahn(pub u16), "{}"
);
number!(
    /// A local key: 24 bits (R13).
    LKey(pub u32), "{:#x}"
);
number!(
    /// A remote key: 32 bits (R13).
    RKey(pub u32), "{:#x}"
);
number!(
    /// A protection domain, unique in the process whatever its provider: what belongs together is told by it.
    PdId(u32), "{}"
);
number!(
    /// A device, unique in the process whatever its provider: its tokens are told by it.
    DeviceId(u32), "{}"
);
number!(
    /// One life of a queue pair: random, so that a restarted peer is told from its predecessor.
    Incarnation(pub u64), "{:#018x}"
);
number!(
    /// What the application calls one of its operations: it comes back with the completion.
    Token(pub u64), "{}"
);

impl Ahn {
    /// What a completion carries when the device knew no address handle for the sender (R23).
    pub const UNKNOWN: Self = Self(0xFFFF);
}

impl Qkey {
    /// Queue keys with the top bit set are privileged: this clears it (R26).
    pub const fn from_random(bits: u64) -> Self {
        Self((bits as u32) & 0x7FFF_FFFF)
    }
}

impl Incarnation {
    /// Zero means none and is refused on the wire: this avoids it.
    pub const fn from_random(bits: u64) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }
}

impl PdId {
    /// A number that no other domain of the process has or had: for providers.
    ///
    /// # Errors
    /// [`Error::Exhausted`] after four billion of them.
    pub fn unique() -> Result<Self, Error> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        next(&LAST, Limit::ProtectionDomains).map(Self)
    }

    /// As a number, to be compared together with others.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0.into()
    }

    /// What [`PdId::bits`] is in the lower half of.
    #[inline(always)]
    pub(crate) fn in_bits(bits: u64) -> Self {
        Self(bits as u32)
    }
}

impl DeviceId {
    /// A number that no other device of the process has or had: for providers.
    ///
    /// # Errors
    /// [`Error::Exhausted`] after four billion of them.
    pub fn unique() -> Result<Self, Error> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        next(&LAST, Limit::Devices).map(Self)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The next number of a count, which ends rather than wraps.
pub(crate) fn next(last: &AtomicU32, what: Limit) -> Result<u32, Error> {
    last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
        .map(|last| last + 1)
        .map_err(|limit| Error::Exhausted { what, limit: limit.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r26_a_queue_key_of_our_own_choice_is_never_privileged() {
        for bits in [0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, u64::MAX] {
            let Qkey(key) = Qkey::from_random(bits);
            assert_eq!((key >> 31, key), (0, (bits & 0x7FFF_FFFF) as u32), "{bits:#x}");
        }
    }

    #[test]
    fn numbers_end_rather_than_wrap() {
        let last = AtomicU32::new(u32::MAX - 1);
        assert_eq!(next(&last, Limit::Devices), Ok(u32::MAX));
        let error = Error::Exhausted { what: Limit::Devices, limit: u32::MAX.into() };
        assert_eq!(next(&last, Limit::Devices), Err(error));
    }
}
