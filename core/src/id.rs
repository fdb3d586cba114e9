//! Numbers that name things on the device: newtypes, so that none is mistaken for another.

#![forbid(unsafe_code)]

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

number!(
    /// A queue pair number; EFA's are 16 bits wide (R13) and are reused (R20).
    Qpn(u16), "{}"
);
number!(
    /// A queue key: the sender uses the receiver's (R26).
    Qkey(u32), "{:#010x}"
);
number!(
    /// An address handle number; 0xFFFF means that the device knew none (R23).
    Ahn(u16), "{}"
);
number!(
    /// A local key: 24 bits (R13).
    LKey(u32), "{:#x}"
);
number!(
    /// A remote key: 32 bits (R13).
    RKey(u32), "{:#x}"
);
number!(
    /// A protection domain, unique in the process.
    PdId(u32), "{}"
);
number!(
    /// A device, unique in the process.
    DeviceId(u32), "{}"
);
number!(
    /// One life of a queue pair: random, so that a restarted peer is told from its predecessor.
    Incarnation(u64), "{:#018x}"
);
number!(
    /// What the application calls one of its operations: it comes back with the completion.
    Token(u64), "{}"
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
