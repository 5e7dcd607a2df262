//! A map's buckets: where the entry of a key is to be looked for.
//!
//! A bucket is one object of seven words: eight entry numbers (plus one; 0 is an empty place), eight 16-bit tags, and the
//! first bucket of its overflow chain. A key has two buckets; if both are full its number goes to the chain of the first. A
//! chain has only full buckets behind its first one, and none at all unless the main bucket is full (removal moves a number
//! from the chain into the hole), so `capacity / 8 + 1` overflow buckets are always enough.

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

/// Both buckets of a key lie among so many neighbours, a page of memory: who looks at both waits for one page to be found instead of two.
const NEAR: u32 = 64;

const TAGS: usize = 4;
const CHAIN: usize = 6;

/// A hash, taken apart for a table of a certain number of buckets.
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
        // Its page, or what of the last one there is with as much of the page before it as makes up a whole one.
        let near = (first - first % NEAR).min(buckets.saturating_sub(NEAR));
        Home { first, second: near + spread(second(hash), buckets.min(NEAR)), tag: hash as u16 }
    }
}

/// A bucket's words.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Bucket(pub(crate) [u64; BUCKET_WORDS]);

impl Bucket {
    /// What was glanced at.
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

    /// The overflow bucket behind this one.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<u32> {
        (self.0[CHAIN] as u32).checked_sub(1)
    }

    /// Entries whose keys may be the one with this tag.
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

    /// One bit for each place whose tag is equal, as [`candidates`](Self::candidates) reads them.
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

    /// Places with an entry.
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

/// The first of the places that [`Bucket::matching`] found.
#[inline(always)]
fn place_of(places: u64) -> Option<usize> {
    // Bit 16·n is place n, bit 16·n + 4 place n + 4.
    let bit = places.trailing_zeros() as usize;
    (places != 0).then_some(bit / 16 + (bit & 4))
}

/// Bit 16·n for each of a word's four 16-bit lanes that equals `tag`.
#[inline(always)]
fn equal_lanes(word: u64, tag: u16) -> u64 {
    const LANES: u64 = 0x0001_0001_0001_0001;
    const LOW: u64 = 0x7fff * LANES;
    let differs = word ^ (u64::from(tag) * LANES);
    // The top bit of a lane is set unless all of the lane is zero; no carry leaves a lane.
    !(((differs & LOW) + LOW) | differs) >> 15 & LANES
}

/// Which bucket: a main one or one of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Main(u32),
    Overflow(u32),
}

/// Main buckets and overflow buckets.
pub(crate) struct Buckets {
    pub(crate) main: Arena,
    pub(crate) overflow: Arena,
    /// Free overflow buckets, under a number of their own.
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

    /// A logged read: nothing may come into or leave the bucket before the commit.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn read(&self, tx: &mut Tx, at: At, op: Op) -> Result<Bucket, Conflict> {
        let (arena, index) = self.place(at);
        Ok(Bucket(tx.read(arena, index, op)?))
    }

    /// A bucket, outside any transaction.
    fn bucket(&self, at: At) -> Bucket {
        let (arena, index) = self.place(at);
        let mut words = [0; BUCKET_WORDS];
        arena.snapshot(index, &mut words);
        Bucket(words)
    }

    /// Entries whose keys may be the one of this home, outside any transaction.
    pub(crate) fn snapshot(&self, home: Home) -> impl Iterator<Item = u32> {
        let chain = std::iter::successors(Some(self.bucket(At::Main(home.first))), move |before| {
            before.next().map(|next| self.bucket(At::Overflow(next)))
        });
        let buckets = std::iter::once(self.bucket(At::Main(home.second))).chain(chain);
        buckets.flat_map(move |bucket| bucket.candidates(home.tag).map(|(_, entry)| entry).collect::<Vec<_>>())
    }

    /// A hint: a main bucket at some recent moment.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn glance(&self, tx: &mut Tx, main: u32, op: Op) -> Result<Glance<'_, BUCKET_WORDS>, Conflict> {
        tx.glance(&self.main, main, op)
    }

    /// The first entry of a main bucket whose key may be the one with this tag, as it looks at this moment.
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

    /// Enters an entry under its key's home. The caller has read both main buckets, knows that the key is not there, and may
    /// know which of them to try first.
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

    /// Enters an entry in a main bucket; false if that is full.
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

    /// Takes an entry out of the bucket where it is and fills the hole from the chain, if there is one.
    #[inline]
    #[track_caller]
    pub(crate) fn remove(&self, tx: &mut Tx, home: Home, entry: u32, op: Op) -> Result<(), Conflict> {
        // Mostly the tag alone tells which of the two it is, and there is no chain: then one look at one bucket is enough.
        let is_in_first = self.hint(home.first, home.tag) == Some(entry);
        let main = if is_in_first { home.first } else { home.second };
        if (is_in_first || self.hint(main, home.tag) == Some(entry))
            && self.remove_from(tx, main, home.tag, entry, op)?
        {
            return Ok(());
        }
        change::remove(&mut Transacted { buckets: self, tx, op }, home, entry)
    }

    /// Takes an entry out of a main bucket behind which nothing hangs; false if it is not in one.
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

    /// As [`insert`](Self::insert), before any transaction uses these buckets.
    pub(crate) fn place_entry(&self, home: Home, entry: u32) {
        let Ok(()) = change::insert(&mut Unused(self), home, entry);
    }

    /// As [`remove`](Self::remove), before any transaction uses these buckets.
    pub(crate) fn displace_entry(&self, home: Home, entry: u32) {
        let Ok(()) = change::remove(&mut Unused(self), home, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mixed;

    /// Of so many keys in as many buckets as a map has for them, how many find both of theirs full.
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
        // Whole pages, some more and some less than a page behind the last whole one, and less than a page in all.
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
