//! Numbers that only who was sent them knows: SipHash-1-3 of what they are for, under a key of this life.

use crate::Gid;

/// The key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::soft) struct Secret(u64, u64);

impl Secret {
    pub(in crate::soft) const fn new(life: u64, seed: u64) -> Self {
        Self(life, seed)
    }

    /// Random bits that tell nothing of the key.
    pub(in crate::soft) fn bits(self) -> u64 {
        self.hash([0; 4])
    }

    /// The session of a device with another, in one of its lives; never 0.
    pub(super) fn session(self, nic: u8, gid: &Gid, life: u64) -> u64 {
        self.hash([1 + u64::from(nic), gid.subnet_prefix(), gid.interface_id(), life]).max(1)
    }

    fn hash(self, words: [u64; 4]) -> u64 {
        let Self(k0, k1) = self;
        let mut v = [
            k0 ^ 0x736F_6D65_7073_6575,
            k1 ^ 0x646F_7261_6E64_6F6D,
            k0 ^ 0x6C79_6765_6E65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        for word in words.into_iter().chain([32 << 56]) {
            v[3] ^= word;
            round(&mut v);
            v[0] ^= word;
        }
        v[2] ^= 0xFF;
        (0..3).for_each(|_| round(&mut v));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn round(v: &mut [u64; 4]) {
    let [a, b, c, d] = *v;
    let a = a.wrapping_add(b);
    let b = b.rotate_left(13) ^ a;
    let a = a.rotate_left(32);
    let c = c.wrapping_add(d);
    let d = d.rotate_left(16) ^ c;
    let a = a.wrapping_add(d);
    let d = d.rotate_left(21) ^ a;
    let c = c.wrapping_add(b);
    let b = b.rotate_left(17) ^ c;
    *v = [a, b, c.rotate_left(32), d];
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn sessions_differ_by_device_peer_and_life_and_every_bit_counts() {
        let secret = Secret::new(0x0706_0504_0302_0100, 0x0F0E_0D0C_0B0A_0908);
        let gid = Gid::from_parts(0xFE80_0000_0000_0000, 7);
        let all = [
            secret.session(0, &gid, 0),
            secret.session(1, &gid, 0),
            secret.session(0, &gid, 1),
            secret.session(0, &Gid::from_parts(0xFE80_0000_0000_0000, 8), 0),
            Secret::new(1, 2).session(0, &gid, 0),
            secret.bits(),
        ];
        for (nth, one) in all.iter().enumerate() {
            assert!(!all[..nth].contains(one) && *one != 0);
        }
        // All words count, each bit of them.
        let words = [1, 2, 3, 4];
        for (word, bit) in (0..4).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            let mut other = words;
            other[word] ^= 1 << bit;
            let differ = (secret.hash(words) ^ secret.hash(other)).count_ones();
            assert!((8..=56).contains(&differ), "{word} {bit}: {differ}");
        }
    }
}
