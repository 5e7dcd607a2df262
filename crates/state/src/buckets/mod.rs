//! A map's buckets: where the entry of a key is searched.
//!
//! A bucket is one object of seven words: eight entry numbers (plus one; 0 is an empty place), eight 16-bit tags, and the first bucket of its
//! overflow chain. A key has two buckets; if both are full, its number goes to the chain of the first. All buckets of a chain
//! after its first are full, and there is no chain unless the main bucket is full (removal moves a number from the chain into the
//! hole), so `capacity / 8 + 1` overflow buckets always suffice.

use std::sync::Arc;

use braid_stm::{Arena, Conflict, Glance, Op, Tx};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::hash::{second, spread};
use crate::plain;
use crate::pool::Pool;

use self::change::{Transacted, Unused};

mod change;

/// Words of a bucket.
pub(crate) const BUCKET_WORDS: usize = 7;
/// Places in a bucket.
pub(crate) const PLACES: usize = 8;

/// Both buckets of a key are within so many neighbours, a page of memory, so accessing both takes one address translation instead of two.
const NEAR: u32 = 64;

const TAGS: usize = 4;
const CHAIN: usize = 6;

/// A hash, split up for a table with a certain number of buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) first: u32,
    pub(crate) second: u32,
    pub(crate) tag: u16,
}

impl Home {
    #[inline(always)]
    pub(crate) fn new(hash: u64, buckets: u32) -> Home {
        let first = spread(hash, buckets);
        // The first bucket's page; for an incomplete last page, a whole page's worth of buckets that ends with the last bucket.
        let near = (first - first % NEAR).min(buckets.saturating_sub(NEAR));
        Home { first, second: near + spread(second(hash), buckets.min(NEAR)), tag: hash as u16 }
    }
}

/// The words of a bucket.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Bucket(pub(crate) [u64; BUCKET_WORDS]);

impl Bucket {
    /// The bucket in a glance.
    #[inline(always)]
    pub(crate) fn of<'a>(glance: &'a Glance<'_, BUCKET_WORDS>) -> &'a Bucket {
        zerocopy::transmute_ref!(glance.words())
    }

    /// The entry number at a place.
    #[inline(always)]
    pub(crate) fn entry(&self, place: usize) -> Option<u32> {
        ((self.0[place / 2] >> (32 * (place % 2))) as u32).checked_sub(1)
    }

    #[inline(always)]
    fn tag(&self, place: usize) -> u16 {
        (self.0[TAGS + place / 4] >> (16 * (place % 4))) as u16
    }

    /// The overflow bucket after this one.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<u32> {
        (self.0[CHAIN] as u32).checked_sub(1)
    }

    /// Entries whose keys may match this tag, with their places.
    #[inline(always)]
    pub(crate) fn candidates(&self, tag: u16) -> impl Iterator<Item = (usize, u32)> {
        let mut places = self.matching(tag);
        std::iter::from_fn(move || {
            while let Some(place) = place_of(places) {
                places &= places - 1;
                if let Some(entry) = self.entry(place) {
                    return Some((place, entry));
                }
            }
            None
        })
    }

    /// One bit for each place with an equal tag, in the form that [`candidates`](Self::candidates) uses.
    #[inline(always)]
    fn matching(&self, tag: u16) -> u64 {
        equal_lanes(self.0[TAGS], tag) | equal_lanes(self.0[TAGS + 1], tag) << 4
    }

    /// The first place without an entry.
    #[inline(always)]
    pub(crate) fn empty_place(&self) -> Option<usize> {
        let word = self.0[..TAGS].iter().position(|word| *word as u32 == 0 || word >> 32 == 0)?;
        Some(2 * word + usize::from(self.0[word] as u32 != 0))
    }

    /// The number of places with an entry.
    #[inline(always)]
    pub(crate) fn used(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        let numbers: [u32; PLACES] = zerocopy::transmute!([a, b, c, d]);
        numbers.iter().map(|number| u32::from(*number != 0)).sum()
    }

    pub(crate) fn set(&mut self, place: usize, entry: Option<u32>, tag: u16) {
        let number = entry.map_or(0, |entry| u64::from(entry) + 1);
        let shift = 32 * (place % 2);
        let word = &mut self.0[place / 2];
        *word = *word & !(u64::from(u32::MAX) << shift) | number << shift;
        let shift = 16 * (place % 4);
        let word = &mut self.0[TAGS + place / 4];
        *word = *word & !(u64::from(u16::MAX) << shift) | u64::from(tag) << shift;
    }

    fn set_next(&mut self, next: Option<u32>) {
        self.0[CHAIN] = next.map_or(0, |next| u64::from(next) + 1);
    }
}

/// The first of the places found by [`Bucket::matching`].
#[inline(always)]
fn place_of(places: u64) -> Option<usize> {
    // Bit 16·n stands for place n, bit 16·n + 4 for place n + 4.
    let bit = places.trailing_zeros() as usize;
    (places != 0).then_some(bit / 16 + (bit & 4))
}

/// Sets bit 16·n for each of a word's four 16-bit lanes that equals `tag`.
#[inline(always)]
fn equal_lanes(word: u64, tag: u16) -> u64 {
    const LANES: u64 = 0x0001_0001_0001_0001;
    const LOW: u64 = 0x7fff * LANES;
    let differs = word ^ (u64::from(tag) * LANES);
    // The top bit of a lane is set unless the whole lane is zero; no carry leaves a lane.
    !(((differs & LOW) + LOW) | differs) >> 15 & LANES
}

/// The position of a bucket: a main bucket or one of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Main(u32),
    Overflow(u32),
}

/// The main and overflow buckets of a map.
pub(crate) struct Buckets {
    pub(crate) main: Arena,
    pub(crate) overflow: Arena,
    /// Free overflow buckets; the pool is registered as an object of its own.
    pub(crate) spare: Arc<Pool>,
}

impl Buckets {
    #[inline(always)]
    fn place(&self, at: At) -> (&Arena, u32) {
        match at {
            At::Main(index) => (&self.main, index),
            At::Overflow(index) => (&self.overflow, index),
        }
    }

    /// A logged read: until the commit, nothing may be added to or removed from the bucket.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read(&self, tx: &mut Tx, at: At, op: Op) -> Result<Bucket, Conflict> {
        let (arena, index) = self.place(at);
        Ok(Bucket(tx.read(arena, index, op)?))
    }

    /// A bucket as it is, outside any transaction.
    fn bucket(&self, at: At) -> Bucket {
        let (arena, index) = self.place(at);
        let mut words = [0; BUCKET_WORDS];
        arena.snapshot(index, &mut words);
        Bucket(words)
    }

    /// Entries whose keys may have this home, outside any transaction.
    pub(crate) fn snapshot(&self, home: Home) -> impl Iterator<Item = u32> {
        let chain = std::iter::successors(Some(self.bucket(At::Main(home.first))), move |before| {
            before.next().map(|next| self.bucket(At::Overflow(next)))
        });
        let buckets = std::iter::once(self.bucket(At::Main(home.second))).chain(chain);
        buckets.flat_map(move |bucket| bucket.candidates(home.tag).map(|(_, entry)| entry).collect::<Vec<_>>())
    }

    /// A hint: the content of a main bucket at some recent moment.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn glance(&self, tx: &mut Tx, main: u32, op: Op) -> Result<Glance<'_, BUCKET_WORDS>, Conflict> {
        tx.glance(&self.main, main, op)
    }

    /// The first entry of a main bucket whose key may match this tag, as seen at this moment.
    #[inline(always)]
    pub(crate) fn hint(&self, main: u32, tag: u16) -> Option<u32> {
        let mut bucket = Bucket([0; BUCKET_WORDS]);
        (bucket.0[TAGS], bucket.0[TAGS + 1]) = (self.main.hint(main, TAGS), self.main.hint(main, TAGS + 1));
        let place = place_of(bucket.matching(tag))?;
        bucket.0[place / 2] = self.main.hint(main, place / 2);
        bucket.entry(place)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, home: Home) {
        self.main.prefetch(home.first);
        self.main.prefetch(home.second);
    }

    /// Inserts an entry under its key's home. The caller has read both main buckets, knows that the key does not exist, and may know which of
    /// them to try first.
    #[inline]
    #[track_caller]
    pub(crate) fn insert(
        &self,
        tx: &mut Tx,
        home: Home,
        main: Option<u32>,
        entry: u32,
        op: Op,
    ) -> Result<(), Conflict> {
        if let Some(main) = main
            && self.insert_in(tx, main, home.tag, entry, op)?
        {
            return Ok(());
        }
        change::insert(&mut Transacted { buckets: self, tx, op }, home, entry)
    }

    /// Inserts an entry into a main bucket; returns false if it is full.
    #[inline]
    #[track_caller]
    fn insert_in(&self, tx: &mut Tx, main: u32, tag: u16, entry: u32, op: Op) -> Result<bool, Conflict> {
        let words = tx.update_words(&self.main, main, BUCKET_WORDS, op)?;
        Ok(plain::change(words, |bucket: &mut Bucket| {
            let place = bucket.empty_place();
            if let Some(place) = place {
                bucket.set(place, Some(entry), tag);
            }
            place.is_some()
        }))
    }

    /// Removes an entry from its bucket and fills the hole from the chain, if there is one.
    #[inline]
    #[track_caller]
    pub(crate) fn remove(&self, tx: &mut Tx, home: Home, entry: u32, op: Op) -> Result<(), Conflict> {
        // Usually the tag alone tells which bucket it is in, and there is no chain; then one access to one bucket suffices.
        let is_in_first = self.hint(home.first, home.tag) == Some(entry);
        let main = if is_in_first { home.first } else { home.second };
        if (is_in_first || self.hint(main, home.tag) == Some(entry))
            && self.remove_from(tx, main, home.tag, entry, op)?
        {
            return Ok(());
        }
        change::remove(&mut Transacted { buckets: self, tx, op }, home, entry)
    }

    /// Removes an entry from a main bucket without a chain; returns false if it is not in such a bucket.
    #[inline]
    #[track_caller]
    fn remove_from(&self, tx: &mut Tx, main: u32, tag: u16, entry: u32, op: Op) -> Result<bool, Conflict> {
        let words = tx.update_words(&self.main, main, BUCKET_WORDS, op)?;
        Ok(plain::change(words, |bucket: &mut Bucket| {
            let place = bucket.candidates(tag).find(|(_, found)| *found == entry).filter(|_| bucket.next().is_none());
            if let Some((place, _)) = place {
                bucket.set(place, None, 0);
            }
            place.is_some()
        }))
    }

    /// Like [`insert`](Self::insert), before any transaction uses these buckets.
    pub(crate) fn place_entry(&self, home: Home, entry: u32) {
        let Ok(()) = change::insert(&mut Unused(self), home, entry);
    }

    /// Like [`remove`](Self::remove), before any transaction uses these buckets.
    pub(crate) fn displace_entry(&self, home: Home, entry: u32) {
        let Ok(()) = change::remove(&mut Unused(self), home, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mixed;

    /// How many of `keys` keys find both their buckets full, in as many buckets as a map would have for them.
    fn overflowing(keys: u64, buckets: u32) -> usize {
        let mut used = vec![0usize; buckets as usize];
        let homes = (0..keys).map(|key| Home::new(mixed(&key.to_le_bytes(), 0x5EED), buckets));
        homes
            .filter(|home| {
                let emptier = [home.first, home.second].into_iter().min_by_key(|at| used[*at as usize]).unwrap_or(0);
                let is_full = used[emptier as usize] == PLACES;
                used[emptier as usize] += usize::from(!is_full);
                is_full
            })
            .count()
    }

    #[test]
    fn a_page_of_buckets_is_rarely_full_when_the_map_is() {
        // Whole pages; some more, and some less, than the last whole page; and less than one page in total.
        for buckets in [64 * 2048, 64 * 1000 + 3, 64 * 1000 + 60, 64, 65, 30] {
            let keys = u64::from(buckets) * PLACES as u64 * 3 / 4;
            let out = overflowing(keys, buckets);
            assert!(out as u64 * 1000 <= keys, "{out} of {keys} keys in {buckets} buckets");
        }
    }

    #[test]
    fn both_buckets_of_a_key_are_on_one_page_of_the_map() {
        for buckets in [1, 2, 63, 64, 65, 1000, 4096] {
            for key in 0..10_000u64 {
                let Home { first, second, .. } = Home::new(mixed(&key.to_le_bytes(), 1), buckets);
                assert!(
                    first < buckets && second < buckets && first.abs_diff(second) < NEAR,
                    "{key}: {first}, {second}"
                );
                let is_whole = (first / NEAR + 1) * NEAR <= buckets;
                assert!(!is_whole || first / NEAR == second / NEAR, "{key} of {buckets}: {first}, {second}");
            }
        }
    }
}
