//! A seeded hash of keys: two or four wide multiplications, folded. The last one scatters consecutive keys (neighbouring
//! addresses, ascending ports). After a single product, their hashes would be equally spaced too, and some seeds would put
//! most of them into few places.

use std::sync::OnceLock;

use super::KeyClass;

/// Seed for runs that must be repeatable.
pub const DEFAULT_SEED: u64 = 0x2d35_8dcc_aa6c_78a5;

static SEED: OnceLock<u64> = OnceLock::new();

/// Chooses the seed of all keys of this process, at random for runs on interfaces, where senders might choose keys that collide. Returns
/// false, and changes nothing, if a seed has been chosen or used.
pub fn choose_seed(seed: u64) -> bool {
    SEED.set(seed).is_ok()
}

/// Returns the seed of this process: [`DEFAULT_SEED`] unless another one was chosen before its first use.
#[inline]
pub fn seed() -> u64 {
    *SEED.get_or_init(|| DEFAULT_SEED)
}

/// Factor of the last product.
const LAST: u64 = 0xd6e8_feb8_6659_fd93;

/// The hash function for one seed. All 64 bits are usable; different seeds give unrelated values.
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
    /// Creates the hash function for a seed; choose the seed at random if senders might try to make keys collide.
    pub const fn new(seed: u64) -> KeyHash {
        // Odd constants without structure, so that a seed of zero is as good as any other.
        KeyHash { first: seed ^ 0x9e37_79b9_7f4a_7c15, second: seed.rotate_left(32) ^ 0x8bb8_4b93_962e_acc9 }
    }

    /// Hashes a key of either class; 0 if there is none.
    #[inline(always)]
    pub(super) fn of(&self, class: KeyClass, words: &[u64; 5]) -> u64 {
        match class {
            KeyClass::Narrow => self.narrow(&[words[0], words[1]]),
            KeyClass::Wide => self.wide(words),
            KeyClass::None => 0,
        }
    }

    /// Hashes a narrow key.
    #[inline(always)]
    pub fn narrow(&self, key: &[u64; 2]) -> u64 {
        fold(fold(key[0] ^ self.first, key[1] ^ self.second), LAST)
    }

    /// Hashes a wide key.
    #[inline(always)]
    pub fn wide(&self, key: &[u64; 5]) -> u64 {
        let hash = fold(key[0] ^ self.first, key[1] ^ self.second);
        let hash = fold(key[2] ^ hash, key[3] ^ self.second);
        fold(fold(key[4] ^ self.first, hash ^ self.second), LAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the keys that find their group full, with groups of 31 places for 20 keys each on average.
    fn strays(keys: u64, hash: impl Fn(u64) -> u64) -> u64 {
        let mut groups = vec![0; keys.div_ceil(20) as usize];
        (0..keys)
            .map(|i| {
                let keys = &mut groups[(((hash(i) >> 32) * keys.div_ceil(20)) >> 32) as usize];
                *keys += 1;
                u64::from(*keys > 31)
            })
            .sum()
    }

    #[test]
    fn keys_in_a_row_fall_as_if_by_chance_with_every_seed() {
        const KEYS: u64 = 4000;
        let rows: [fn(u64) -> [u64; 2]; 6] = [
            |i| [i, 0x0a00_0001_0050_0011],
            |i| [i << 32 | 0x0a00_0001, 0x50_0011],
            |i| [u64::from((i as u32).swap_bytes()) << 32, 0x50_0011],
            |i| [0x0a00_0001_0b00_0001, i << 16 | 17],
            |i| [0x0a00_0001_0b00_0001, i << 48 | 17],
            |i| [(i & 63) << 32 | i >> 6, 0x50_0006],
        ];
        let mut seed = DEFAULT_SEED;
        for _ in 0..300 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let hash = KeyHash::new(seed);
            for (row, key) in rows.iter().enumerate() {
                let narrow = strays(KEYS, |i| hash.narrow(&key(i)));
                let wide = strays(KEYS, |i| hash.wide(&[1, 2, 3, key(i)[0], key(i)[1]]));
                assert!(narrow.max(wide) < KEYS / 50, "seed {seed:x}, row {row}: {narrow} and {wide} of {KEYS}");
            }
        }
    }
}
