//! A length cut into chunks that are numbered for a 32-bit immediate, and a ledger of those that arrived.
//!
//! SRD delivers in any order: the receiver knows a chunk by the number in its immediate, and is done when every
//! number has come once. A number that is out of range or comes again is a peer's mistake and is refused by value.

use core::fmt;
use core::num::NonZeroU32;

/// One piece of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its number, from 0.
    pub index: u32,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its length in bytes: the chunk size, but for a shorter last one; never 0.
    pub len: u32,
}

/// A length cut into chunks of one size; an empty whole has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    len: u64,
    size: NonZeroU32,
    count: u32,
}

impl Chunks {
    /// Cuts `len` bytes into chunks of `size`.
    ///
    /// # Errors
    /// If there were more chunks than 32 bits can number: take a larger size.
    pub fn new(len: u64, size: NonZeroU32) -> Result<Self, TooMany> {
        let count = len.div_ceil(u64::from(size.get()));
        match u32::try_from(count) {
            Ok(count) => Ok(Self { len, size, count }),
            Err(_) => Err(TooMany { len, size, count }),
        }
    }

    /// The bytes of the whole.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the whole has no bytes, and so no chunks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many chunks there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The chunk with this number, if there is one.
    pub fn get(&self, index: u32) -> Option<Chunk> {
        if index >= self.count {
            return None;
        }
        let size = self.size.get();
        let offset = u64::from(index) * u64::from(size);
        let rest = self.len - offset;
        Some(Chunk { index, offset, len: u32::try_from(rest).map_or(size, |rest| rest.min(size)) })
    }

    /// Every chunk, by number.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + use<> {
        let chunks = *self;
        (0..self.count).map_while(move |index| chunks.get(index))
    }
}

/// More chunks than 32 bits can number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    /// The bytes of the whole.
    pub len: u64,
    /// The chunk size that was asked for.
    pub size: NonZeroU32,
    /// How many chunks that makes.
    pub count: u64,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, size, count } = self;
        write!(f, "{len} bytes in chunks of {size} are {count} chunks, and {} can be numbered: ", u32::MAX)?;
        write!(f, "take chunks of at least {} bytes", len.div_ceil(u64::from(u32::MAX)))
    }
}

impl core::error::Error for TooMany {}

/// Which chunks have arrived.
#[derive(Debug, Clone)]
pub struct Ledger {
    chunks: Chunks,
    arrived: u32,
    bits: Vec<u64>,
}

impl Ledger {
    /// A ledger with nothing arrived. It takes one bit for each chunk and allocates only here.
    pub fn new(chunks: Chunks) -> Self {
        Self { chunks, arrived: 0, bits: vec![0; chunks.count().div_ceil(u64::BITS) as usize] }
    }

    /// Notes the arrival of the chunk with this number.
    ///
    /// # Errors
    /// If no chunk has it, or it arrived before; the ledger is as it was.
    pub fn arrive(&mut self, index: u32) -> Result<Chunk, NotExpected> {
        let count = self.chunks.count();
        let chunk = self.chunks.get(index).ok_or(NotExpected::Unknown { index, count })?;
        let (word, bit) = place(index);
        let word = self.bits.get_mut(word).ok_or(NotExpected::Unknown { index, count })?;
        if *word & bit != 0 {
            return Err(NotExpected::Again(chunk));
        }
        *word |= bit;
        self.arrived += 1;
        Ok(chunk)
    }

    /// How many chunks have arrived.
    pub const fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Whether every chunk has.
    pub const fn is_complete(&self) -> bool {
        self.arrived == self.chunks.count()
    }

    /// The chunks that have not, by number.
    pub fn missing(&self) -> impl Iterator<Item = Chunk> {
        self.chunks.iter().filter(|chunk| {
            let (word, bit) = place(chunk.index);
            self.bits.get(word).is_none_or(|word| word & bit == 0)
        })
    }
}

/// An arrival that the ledger refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotExpected {
    /// No chunk has this number.
    Unknown {
        /// The number that came.
        index: u32,
        /// How many chunks there are, numbered from 0.
        count: u32,
    },
    /// This chunk arrived before.
    Again(Chunk),
}

impl fmt::Display for NotExpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { index, count } => write!(f, "chunk {index} arrived, and there are {count}, from 0"),
            Self::Again(Chunk { index, offset, len }) => {
                write!(f, "chunk {index} (bytes {offset} to {}) arrived twice", offset + u64::from(*len))
            }
        }
    }
}

impl core::error::Error for NotExpected {}

fn place(index: u32) -> (usize, u64) {
    ((index / u64::BITS) as usize, 1 << (index % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(len: u64, size: u32) -> Chunks {
        Chunks::new(len, NonZeroU32::new(size).unwrap()).unwrap()
    }

    #[test]
    fn chunks_cover_the_whole_once_and_in_order() {
        for len in 0..200 {
            for size in 1..20 {
                let mut end = 0;
                for (number, chunk) in chunks(len, size).iter().enumerate() {
                    assert_eq!((chunk.index as usize, chunk.offset), (number, end));
                    assert!(chunk.len == size || end + u64::from(chunk.len) == len);
                    assert_ne!(chunk.len, 0);
                    end += u64::from(chunk.len);
                }
                assert_eq!(end, len);
            }
        }
    }

    #[test]
    fn an_empty_whole_has_no_chunks_and_its_ledger_is_complete() {
        let empty = chunks(0, 4096);
        assert!(empty.is_empty());
        assert_eq!((empty.count(), empty.get(0)), (0, None));
        assert!(Ledger::new(empty).is_complete());
    }

    #[test]
    fn the_most_chunks_that_can_be_numbered_are_numbered_and_one_more_is_refused_with_the_remedy() {
        let most = u64::from(u32::MAX);
        let last = chunks(most * 4096, 4096).get(u32::MAX - 1).unwrap();
        assert_eq!((last.offset, last.len), ((most - 1) * 4096, 4096));
        let size = NonZeroU32::new(4096).unwrap();
        let refused = Chunks::new(most * 4096 + 1, size).unwrap_err();
        assert_eq!(refused, TooMany { len: most * 4096 + 1, size, count: most + 1 });
        assert!(refused.to_string().ends_with("take chunks of at least 4097 bytes"), "{refused}");
        Chunks::new(refused.len, NonZeroU32::new(4097).unwrap()).unwrap();
    }

    #[test]
    fn chunks_that_arrive_in_any_order_complete_the_ledger_with_the_last_one() {
        let chunks = chunks(1000, 7);
        let mut ledger = Ledger::new(chunks);
        let count = chunks.count();
        for step in 0..count {
            assert!(!ledger.is_complete());
            let index = step * 64 % count; // 64 and the 143 chunks have no common divisor
            assert_eq!(ledger.arrive(index), Ok(chunks.get(index).unwrap()));
        }
        assert!(ledger.is_complete());
        assert_eq!((ledger.arrived(), ledger.missing().next()), (count, None));
    }

    #[test]
    fn what_is_missing_is_what_did_not_arrive() {
        let mut ledger = Ledger::new(chunks(130, 1));
        for index in (0..130).filter(|index| ![0, 63, 64, 129].contains(index)) {
            ledger.arrive(index).unwrap();
        }
        assert_eq!(ledger.missing().map(|chunk| chunk.index).collect::<Vec<_>>(), [0, 63, 64, 129]);
    }

    #[test]
    fn a_second_arrival_and_a_number_beyond_the_last_are_refused_and_change_nothing() {
        let mut ledger = Ledger::new(chunks(10, 4));
        let last = ledger.arrive(2).unwrap();
        assert_eq!(last, Chunk { index: 2, offset: 8, len: 2 });
        assert_eq!(ledger.arrive(2), Err(NotExpected::Again(last)));
        assert_eq!(ledger.arrive(3), Err(NotExpected::Unknown { index: 3, count: 3 }));
        assert_eq!(ledger.arrive(u32::MAX), Err(NotExpected::Unknown { index: u32::MAX, count: 3 }));
        assert_eq!(ledger.arrived(), 1);
        assert_eq!(NotExpected::Again(last).to_string(), "chunk 2 (bytes 8 to 10) arrived twice");
    }
}
