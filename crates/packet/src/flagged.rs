//! A bit set over the packets of a batch, in which few members are found without visiting all packets.

use std::ops::Range;

use crate::batch::BATCH_MAX;

const WORD: usize = u64::BITS as usize;

/// A set of packet numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flagged([u64; BATCH_MAX / WORD]);

impl Flagged {
    /// Adds packet `i`, modulo the size of a batch.
    #[inline(always)]
    pub fn set(&mut self, i: usize) {
        self.0[i % BATCH_MAX / WORD] |= 1 << (i % WORD);
    }

    /// Returns whether packet `i`, modulo the size of a batch, is in the set.
    #[inline(always)]
    pub fn has(&self, i: usize) -> bool {
        self.0[i % BATCH_MAX / WORD] >> (i % WORD) & 1 != 0
    }

    /// Calls `see` for the members within `range`, in ascending order.
    #[inline(always)]
    pub fn each(&self, range: Range<usize>, mut see: impl FnMut(usize)) {
        for (word, bits) in self.0.into_iter().enumerate() {
            let before = |end: usize| (1u128 << end.saturating_sub(word * WORD).min(WORD)) - 1;
            let mut bits = bits & before(range.end) as u64 & !before(range.start) as u64;
            while bits != 0 {
                see(word * WORD + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_range_are_seen_in_their_order() {
        let all = [0, 1, 63, 64, 100, 127, 128, 200, 255];
        let mut flagged = Flagged::default();
        all.iter().rev().for_each(|&i| flagged.set(i));
        for range in [0..256, 1..255, 0..0, 64..64, 63..65, 128..201, 201..256, 7..63, 255..256] {
            let mut seen = Vec::new();
            flagged.each(range.clone(), |i| seen.push(i));
            assert_eq!(seen, all.into_iter().filter(|i| range.contains(i)).collect::<Vec<_>>(), "{range:?}");
        }
        assert!((0..256).all(|i| flagged.has(i) == all.contains(&i)));
    }
}
