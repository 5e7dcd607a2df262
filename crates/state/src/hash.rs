//! Hashing of keys.

use std::sync::OnceLock;

/// A seeded hash of some bytes. All 64 bits are used: the upper half selects buckets, the lower half tags.
pub type HashFn = fn(&[u8], u64) -> u64;

/// The seed of maps in runs that must be repeatable.
const DEFAULT_SEED: u64 = 0x5EED;

static SEED: OnceLock<u64> = OnceLock::new();

/// Chooses the seed of all maps of this process, at random for runs on interfaces, where senders might choose keys that collide. Returns
/// false, and changes nothing, if a seed has been chosen or used.
pub fn choose_seed(seed: u64) -> bool {
    SEED.set(seed).is_ok()
}

/// The seed of this process: the same for all repeatable runs, unless another one was chosen before its first use.
pub(crate) fn seed() -> u64 {
    *SEED.get_or_init(|| DEFAULT_SEED)
}

const K0: u64 = 0x2d35_8dcc_aa6c_78a5;
const K1: u64 = 0x8bb8_4b93_962e_acc9;

/// The two halves of a 128-bit product, combined with XOR.
#[inline(always)]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The default hash: 128-bit multiplications folded to 64 bits (the mixing step of wyhash and foldhash), 16 bytes per step.
#[inline(always)]
pub fn mixed(bytes: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ K0;
    let mut chunks = bytes.chunks_exact(16);
    for chunk in &mut chunks {
        state = fold(word(&chunk[..8]) ^ state, word(&chunk[8..]) ^ K1);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() || bytes.is_empty() {
        let cut = rest.len().min(8);
        state = fold(word(&rest[..cut]) ^ state, word(&rest[cut..]) ^ K1);
    }
    fold(state ^ bytes.len() as u64, K1)
}

/// At most eight bytes as a number, the first one lowest. Fewer are read in two or three units that may overlap: a copy of so few is a call.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    if let Some(whole) = bytes.first_chunk() {
        return u64::from_le_bytes(*whole);
    }
    let up_to = |unit: u64, len: usize| unit << (8 * (bytes.len() - len));
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => u64::from(u32::from_le_bytes(*first)) | up_to(u32::from_le_bytes(*last).into(), 4),
        _ => match *bytes {
            [] => 0,
            [only] => only.into(),
            [first, .., last] => u64::from(first) | u64::from(bytes[1]) << 8 | up_to(last.into(), 1),
        },
    }
}

/// Maps the upper half of a hash to `0..n` without a division.
#[inline(always)]
pub(crate) fn spread(hash: u64, n: u32) -> u32 {
    (((hash >> 32) * u64::from(n)) >> 32) as u32
}

/// A second, independent hash derived from the first.
#[inline(always)]
pub(crate) fn second(hash: u64) -> u64 {
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_key_counts_whatever_its_length() {
        for len in 0..48 {
            let bytes = vec![7u8; len];
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert_ne!(mixed(&bytes, 1), mixed(&other, 1), "byte {at} of {len}");
            }
            assert_ne!(mixed(&bytes, 1), mixed(&bytes, 2));
        }
    }

    #[test]
    fn a_word_is_what_a_copy_into_zeros_is() {
        for len in 0..=8 {
            let bytes: Vec<u8> = (0..len).map(|at| 0xe1 ^ (17 * at as u8)).collect();
            let mut copy = [0; 8];
            copy[..len].copy_from_slice(&bytes);
            assert_eq!(word(&bytes), u64::from_le_bytes(copy), "{len} bytes");
        }
    }

    #[test]
    fn sequential_keys_spread_evenly() {
        let mut buckets = [0u32; 64];
        for key in 0u32..64_000 {
            buckets[spread(mixed(&key.to_be_bytes(), 9), 64) as usize] += 1;
        }
        assert!(buckets.iter().all(|n| (800..1200).contains(n)), "{buckets:?}");
    }
}
