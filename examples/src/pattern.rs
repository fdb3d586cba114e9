//! Content that a receiver can check without having seen it: a stream of bytes for each seed and sequence number.
//!
//! The words of a message are the outputs of SplitMix64 from a start value that is one-to-one in the sequence number,
//! stored little-endian. So two messages of one seed differ in their first eight bytes, and one that arrived in
//! another's place, or shifted, does not verify. A prefix does: the length is the receiver's to check.
//! It is no protection against a peer that forges content.

use core::fmt;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = size_of::<u64>();
/// Words that a loop takes at once: who checks content spends most of its time here, also where little is optimised.
const BLOCK: usize = 8;

/// The content of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    sequence: u64,
    start: u64,
}

impl Pattern {
    /// The content of the message with this number in the run with this seed.
    pub const fn new(seed: u64, sequence: u64) -> Self {
        Self { sequence, start: mix(mix(seed.wrapping_add(GOLDEN)) ^ sequence) }
    }

    /// Writes the content: as much of it as the buffer holds, from its beginning.
    pub fn fill(&self, buf: &mut [u8]) {
        let (words, tail) = buf.as_chunks_mut();
        let (blocks, rest) = words.as_chunks_mut::<BLOCK>();
        let mut at = self.start;
        for block in blocks {
            for to in block {
                *to = next(&mut at);
            }
        }
        for to in rest {
            *to = next(&mut at);
        }
        for (to, byte) in tail.iter_mut().zip(next(&mut at)) {
            *to = byte;
        }
    }

    /// Compares the buffer with the content.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn verify(&self, buf: &[u8]) -> Result<(), Mismatch> {
        let (blocks, rest) = buf.as_chunks::<{ BLOCK * WORD }>();
        let mut at = self.start;
        for (index, block) in blocks.iter().enumerate() {
            let (first, mut differ) = (at, 0);
            for found in block.as_chunks().0 {
                differ |= u64::from_le_bytes(*found) ^ u64::from_le_bytes(next(&mut at));
            }
            if differ != 0 {
                self.compare(index * BLOCK * WORD, block, first)?;
            }
        }
        self.compare(blocks.len() * BLOCK * WORD, rest, at)
    }

    fn compare(&self, offset: usize, found: &[u8], mut at: u64) -> Result<(), Mismatch> {
        for (word, found) in found.chunks(WORD).enumerate() {
            for (byte, (&found, expected)) in found.iter().zip(next(&mut at)).enumerate() {
                if found != expected {
                    let offset = offset + word * WORD + byte;
                    return Err(Mismatch { sequence: self.sequence, offset, expected, found });
                }
            }
        }
        Ok(())
    }
}

/// The next word.
fn next(at: &mut u64) -> [u8; WORD] {
    *at = at.wrapping_add(GOLDEN);
    mix(*at).to_le_bytes()
}

/// The first byte of a message that is not what its sender wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mismatch {
    /// The message's sequence number.
    pub sequence: u64,
    /// Where in the message.
    pub offset: usize,
    /// The byte that belongs there.
    pub expected: u8,
    /// The byte that is there.
    pub found: u8,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, offset, expected, found } = self;
        write!(f, "message {sequence}, byte {offset}: expected {expected:#04x}, found {found:#04x}")
    }
}

impl core::error::Error for Mismatch {}

/// SplitMix64's output function (Steele, Lea, Flood 2014): one-to-one on 64 bits.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content<const N: usize>(seed: u64, sequence: u64) -> [u8; N] {
        let mut buf = [0; N];
        Pattern::new(seed, sequence).fill(&mut buf);
        buf
    }

    #[test]
    fn what_is_filled_verifies_at_every_length() {
        let pattern = Pattern::new(1, 2);
        for len in 0..=40 {
            let mut buf = vec![0; len];
            pattern.fill(&mut buf);
            assert_eq!(pattern.verify(&buf), Ok(()), "{len}");
        }
    }

    #[test]
    fn any_changed_byte_is_found_where_it_is() {
        let intact = content::<21>(3, 4);
        for offset in 0..intact.len() {
            let mut buf = intact;
            buf[offset] ^= 0x10;
            let expected = Mismatch { sequence: 4, offset, expected: intact[offset], found: intact[offset] ^ 0x10 };
            assert_eq!(Pattern::new(3, 4).verify(&buf), Err(expected));
        }
    }

    #[test]
    fn the_first_of_several_changed_bytes_is_named() {
        let mut buf = content::<32>(3, 4);
        buf[19] ^= 1;
        buf[12] ^= 1;
        assert_eq!(Pattern::new(3, 4).verify(&buf).map_err(|m| m.offset), Err(12));
    }

    #[test]
    fn another_message_another_seed_and_a_shift_by_a_word_do_not_verify() {
        let buf = content::<64>(5, 6);
        assert!(Pattern::new(5, 7).verify(&buf).is_err());
        assert!(Pattern::new(6, 6).verify(&buf).is_err());
        assert!(Pattern::new(5, 6).verify(&buf[8..]).is_err());
        assert!(Pattern::new(6, 5).verify(&buf).is_err());
    }

    #[test]
    fn messages_of_one_seed_differ_in_their_first_eight_bytes() {
        let mut firsts: Vec<[u8; 8]> = (0..10_000).map(|sequence| content(9, sequence)).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 10_000);
    }

    #[test]
    fn a_shorter_message_is_the_beginning_of_a_longer_one() {
        assert_eq!(content::<5>(1, 1), content::<64>(1, 1)[..5]);
    }

    #[test]
    fn the_output_function_is_splitmix64() {
        let first_of_seed_0 = mix(GOLDEN);
        assert_eq!(first_of_seed_0, 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn a_mismatch_says_where_and_what() {
        let mismatch = Mismatch { sequence: 3, offset: 17, expected: 0x0a, found: 0xff };
        assert_eq!(mismatch.to_string(), "message 3, byte 17: expected 0x0a, found 0xff");
    }
}
