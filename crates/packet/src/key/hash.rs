//! A seeded hash of keys: one or three wide multiplications, folded.

use super::KeyClass;

/// Seed for runs that shall be repeatable.
pub const DEFAULT_SEED: u64 = 0x2d35_8dcc_aa6c_78a5;

/// The hash of one seed. All 64 bits are usable; different seeds give unrelated values.
#[derive(Clone, Copy, Debug)]
pub struct KeyHash {
    first: u64,
    second: u64,
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl KeyHash {
    /// The hash with a seed; draw it at random where senders may try to make keys collide.
    pub const fn new(seed: u64) -> KeyHash {
        // Odd constants without structure; a seed of zero is as good as any other.
        KeyHash { first: seed ^ 0x9e37_79b9_7f4a_7c15, second: seed.rotate_left(32) ^ 0x8bb8_4b93_962e_acc9 }
    }

    /// Hash of a key of either class; 0 for none.
    #[inline(always)]
    pub(super) fn of(&self, class: KeyClass, words: &[u64; 5]) -> u64 {
        match class {
            KeyClass::Narrow => self.narrow(&[words[0], words[1]]),
            KeyClass::Wide => self.wide(words),
            KeyClass::None => 0,
        }
    }

    /// Hash of a narrow key.
    #[inline(always)]
    pub fn narrow(&self, key: &[u64; 2]) -> u64 {
        fold(key[0] ^ self.first, key[1] ^ self.second)
    }

    /// Hash of a wide key.
    #[inline(always)]
    pub fn wide(&self, key: &[u64; 5]) -> u64 {
        let hash = fold(key[0] ^ self.first, key[1] ^ self.second);
        let hash = fold(key[2] ^ hash, key[3] ^ self.second);
        fold(key[4] ^ self.first, hash ^ self.second)
    }
}
