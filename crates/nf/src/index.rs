//! A worker's index from set hashes to entries of a shared map: the *indexed* placement of shared sets.
//!
//! When the first packet of a set arrives at a worker, its entry is found through the shared map, and the worker stores
//! the entry's number under the set's hash. Later packets of the set need only this one word, which no other worker
//! uses, to reach the entry. They search the map again only after the set has ended or another set has taken its spot
//! in the index. A stored number is only a guess: an entry contains its key, so once the entry is held (`pass/locked.rs`)
//! it is certain whether it is the right one, whatever has happened since. Therefore no generation count is needed.

use std::cell::Cell;

/// Maximum number of spots, one 8-byte word per known set.
const SPOTS_MAX: usize = 1 << 20;

/// Entry numbers by hash; each hash maps to exactly one spot.
#[derive(Debug)]
pub struct Index {
    /// `| lower half of the hash | number of the entry |`, or 0 if empty; the length is a power of two.
    spots: Box<[Cell<u64>]>,
}

/// Creates an index with a single spot.
impl Default for Index {
    fn default() -> Index {
        Index::new(1)
    }
}

impl Index {
    /// Creates an index for a map of `capacity` sets. Its memory is not touched before sets are noted.
    pub fn new(capacity: usize) -> Index {
        Index { spots: vec![0; spots(capacity)].into_iter().map(Cell::new).collect() }
    }

    /// Returns the size in bytes of an index for `capacity` sets.
    pub fn bytes_of(capacity: usize) -> usize {
        spots(capacity) * size_of::<u64>()
    }

    #[inline(always)]
    fn spot(&self, hash: u64) -> &Cell<u64> {
        // The upper half selects the spot; the lower half is stored in it.
        &self.spots[(hash >> 32) as usize & (self.spots.len() - 1)]
    }

    /// Returns the number of the entry that the set with this hash had when it was last seen, if known.
    #[inline(always)]
    pub(crate) fn entry(&self, hash: u64) -> Option<u32> {
        let known = self.spot(hash).get();
        ((known >> 32) as u32 == hash as u32 && known != 0).then_some(known as u32)
    }

    /// Records that the set with this hash has that entry.
    #[inline(always)]
    pub(crate) fn note(&self, hash: u64, entry: u32) {
        self.spot(hash).set(hash << 32 | u64::from(entry));
    }

    /// Removes what is known for this hash.
    pub(crate) fn forget(&self, hash: u64) {
        self.spot(hash).set(0);
    }
}

fn spots(capacity: usize) -> usize {
    capacity.next_power_of_two().min(SPOTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_few_sets_is_known_until_another_one_takes_its_place() {
        let index = Index::new(3);
        assert_eq!(Index::bytes_of(3), 32);
        assert_eq!(index.entry(0), None, "a hash of nothing is one as well");
        let [one, same_place, elsewhere] = [0x1_0000_0007, 0x5_0000_0007 + 1, 0x2_0000_0007u64];
        index.note(one, 5);
        index.note(elsewhere, 9);
        assert_eq!([one, same_place, elsewhere].map(|hash| index.entry(hash)), [Some(5), None, Some(9)]);
        index.note(same_place, 0);
        assert_eq!([one, same_place, elsewhere].map(|hash| index.entry(hash)), [None, Some(0), Some(9)]);
        index.forget(elsewhere);
        assert_eq!(index.entry(elsewhere), None);
    }

    #[test]
    fn it_is_no_larger_than_eight_mebibytes() {
        assert_eq!(Index::bytes_of(usize::MAX / 4), 8 << 20);
        assert_eq!(Index::new(1 << 30).spots.len(), SPOTS_MAX);
    }
}
