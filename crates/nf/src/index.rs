//! Where the sets of a function that workers share are, as one worker knows: the *indexed* placement.
//!
//! A set's first packet on a worker finds its entry by way of the shared map, and the worker keeps the entry's number under the set's hash. From
//! then on its packets come to the entry by way of one word of this worker alone; only a set that has ended, or another one in
//! its place here, sends them by way of the map again. A number is a guess and no more: an entry describes itself, so whether it is the
//! set's is certain once it is held (`pass/held.rs`), whatever happened since, and no count of its lives need be kept.

use std::cell::Cell;

/// Most sets that a worker knows the entries of; a word for each.
const SPOTS_MAX: usize = 1 << 20;

/// Numbers of entries by hash, each under the one place that its hash has.
#[derive(Debug)]
pub struct Index {
    /// `| lower half of the hash | number of the entry |`, or 0; as many as a power of two.
    spots: Box<[Cell<u64>]>,
}

/// One that hardly knows anything.
impl Default for Index {
    fn default() -> Index {
        Index::new(1)
    }
}

impl Index {
    /// For a map of so many sets. Nothing of its memory is used until sets are known.
    pub fn new(capacity: usize) -> Index {
        Index { spots: vec![0; spots(capacity)].into_iter().map(Cell::new).collect() }
    }

    /// Bytes of one for so many sets.
    pub fn bytes_of(capacity: usize) -> usize {
        spots(capacity) * size_of::<u64>()
    }

    #[inline(always)]
    fn spot(&self, hash: u64) -> &Cell<u64> {
        // The upper half: the lower one stands in the spot.
        &self.spots[(hash >> 32) as usize & (self.spots.len() - 1)]
    }

    /// The number of the entry that the set with this hash had when it was last seen; none if that is not known.
    #[inline(always)]
    pub(crate) fn entry(&self, hash: u64) -> Option<u32> {
        let known = self.spot(hash).get();
        ((known >> 32) as u32 == hash as u32 && known != 0).then_some(known as u32)
    }

    /// The set with this hash has that entry.
    #[inline(always)]
    pub(crate) fn note(&self, hash: u64, entry: u32) {
        self.spot(hash).set(hash << 32 | u64::from(entry));
    }

    /// It has not.
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
