//! The table of one worker's live packet sets: without synchronisation, and one look-up serves every function of a group.
//!
//! Records are stored in groups of 31, with the 16-bit tags of a group in a cache line among its records, so the address translation for the tags
//! serves the record as well ([decision](../../../docs/decisions/0016-tags-lie-among-their-records.md)). The lane of a tag determines the
//! place of its record; no index is followed. Each key has one home group. If that is full, the key strays: its tag goes to another group,
//! which follows from home and tag alone, and the home group counts its strays. A look-up goes beyond the home group only if some keys have
//! strayed from there, so it normally touches one line of tags. The tag of a stray is even and that of a key at home is odd, so the
//! home group whose count must be lowered can be found when a stray ends. A record occupies a whole number of half cache lines of
//! [`Records`] (a group of records of one half line has only 30, because its tags take the place of two),
//!
//! ```text
//! | last seen, 4 | live mask, 2 | generation, 2 | states of the chain's functions … | key, 8·K bytes |
//! ```
//!
//! and never moves while it is live, except out of the stash. States are at the same offset whatever the length of the key, so tables with long
//! and with short keys share one region of records, and a record can be accessed without knowing its table. At a load of 0.64 about one key
//! in a thousand strays, and one in a hundred thousand finds both groups full, even after long churn. Those few keys go to a stash, so the
//! declared capacity is always reached. They leave it as soon as there is room elsewhere ([`FlowTable::bring_home`]), so a table that is
//! temporarily fuller in one part than in the rest does not fill the stash up.
//!
//! [`FlowTable::look_up`] overlaps the cache misses of a batch in three steps: it prefetches tags, then compares tags and prefetches records, then
//! compares keys.

use braid_memory::Error;

use crate::raw::records::{HALF, LINE, halves_of};
pub use crate::raw::records::{Records, States};
use crate::raw::tags::{GROUP, Homes, STRAYS_MAX, TAGGED, Tags, room_of};

pub use meta::SetMeta;

/// The start of a record, counted in half cache lines from the beginning of its region.
pub type Slot = u32;

/// No record.
pub const NO_SLOT: Slot = u32::MAX;

/// Tags of up to this many bytes stay in the second-level cache, where prefetching them costs more than it gains.
const NEAR_BYTES: usize = 256 << 10;

/// Number of groups beyond the home groups, for keys that find both their groups full.
const STASH: usize = 8;

/// How many groups ahead a scan prefetches; most of one visit has been prefetched by the visit before.
const AHEAD: usize = 4;

/// Set in the tag of a key at home, clear in that of a stray. [`TAGGED`] is set in every tag, because 0 marks an empty place.
const AT_HOME: u16 = 1;

/// The capacity is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {capacity} packet sets of this worker are in use")]
pub struct TableFull {
    /// The number of sets that fit.
    pub capacity: usize,
}

/// The index of the records of packet sets with keys of `K` words. Operations on records take the [`Records`] as an argument.
#[derive(Debug)]
pub struct FlowTable<const K: usize> {
    tags: Tags,
    capacity: usize,
    len: usize,
    stashed: usize,
}

/// The number of home groups, with `room` records each, for `capacity` sets. They are filled only so far that the stash can hold the keys that
/// find both their groups full, however long sets come and go: 64 % for up to four million sets, and 2 % less for each doubling.
fn homes_for(capacity: usize, room: usize) -> usize {
    let doublings = capacity.div_ceil(4 << 20).next_power_of_two().ilog2() as usize;
    (capacity * 100).div_ceil((64 - 2 * doublings) * room).max(2)
}

impl<const K: usize> FlowTable<K> {
    /// Creates a table for `capacity` sets with `state_bytes` bytes of state each, whose records begin at half line `first`, an even number.
    pub fn new(capacity: usize, state_bytes: usize, first: usize) -> Result<FlowTable<K>, Error> {
        let halves = halves_of(state_bytes, K);
        let tags = Tags::new((homes_for(capacity, room_of(halves)), STASH), first, halves);
        let end = tags.range().end;
        if end >= NO_SLOT as usize {
            return Err(Error::too_large(end * HALF));
        }
        Ok(FlowTable { tags, capacity, len: 0, stashed: 0 })
    }

    /// The half line after its last record.
    pub fn end(&self) -> usize {
        self.tags.range().end
    }

    /// The number of live sets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no live sets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of sets that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of places, free or taken, for records and tags: the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.tags.groups() * GROUP
    }

    /// Touches the pages of the table's records so that no packet has to wait for a page fault.
    pub fn touch(&self, records: &Records) {
        records.touch(self.tags.range());
    }

    /// Prefetches the tags for a hash that will soon be looked up or inserted.
    #[inline(always)]
    pub fn prefetch(&self, records: &Records, hash: u64) {
        self.tags.prefetch(records, self.tags.home(hash));
    }

    /// Whether a record is live.
    pub fn holds(&self, records: &Records, slot: Slot) -> bool {
        self.tags.tag(records, self.tags.place(slot)) != 0
    }

    /// Size in bytes of a record with `state_bytes` bytes of state.
    pub const fn record_bytes_of(state_bytes: usize) -> usize {
        halves_of(state_bytes, K) * HALF
    }

    /// The tag of a hash in its home group.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | TAGGED | AT_HOME
    }

    /// The group to which a key with this home group and tag strays.
    #[inline(always)]
    fn abroad(&self, home: usize, tag: u16) -> usize {
        let group = home + self.tags.way(tag & !AT_HOME);
        if group < self.tags.homes() { group } else { group - self.tags.homes() }
    }

    /// The home group of the stray with this tag in `group`.
    fn home_of_stray(&self, group: usize, tag: u16) -> usize {
        (group + self.tags.homes() - self.tags.way(tag)) % self.tags.homes()
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, records: &Records, slot: Slot) -> [u64; K] {
        records.key(slot, self.tags.halves())
    }

    #[inline(always)]
    fn in_group(&self, records: &Records, group: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let places = self.tags.places(group, self.tags.lanes(records, group, tag));
        places.map(|place| self.tags.slot(place)).find(|&slot| self.key(records, slot) == *key)
    }

    /// The live record of a key.
    #[inline]
    pub fn find(&self, records: &Records, key: &[u64; K], hash: u64) -> Option<Slot> {
        let (home, tag) = (self.tags.home(hash), Self::tag(hash));
        self.in_group(records, home, tag, key).or_else(|| self.find_stray(records, home, tag, key))
    }

    /// The record of a key that is not in its home group: in the group it strays to, if the home group has strays, or in the stash.
    fn find_stray(&self, records: &Records, home: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let abroad = (self.tags.strays(records, home) != 0).then(|| self.abroad(home, tag));
        let stash = self.tags.homes()..self.tags.homes() + if self.stashed == 0 { 0 } else { STASH };
        abroad.into_iter().chain(stash).find_map(|group| self.in_group(records, group, tag & !AT_HOME, key))
    }

    /// Inserts a key that has no record: the state is zeroed and no function is live.
    pub fn insert(&mut self, records: &mut Records, key: &[u64; K], hash: u64) -> Result<Slot, TableFull> {
        if self.len >= self.capacity {
            return Err(TableFull { capacity: self.capacity });
        }
        let (home, tag) = (self.tags.home(hash), Self::tag(hash));
        let (place, tag) = match self.tags.first(records, home, 0) {
            Some(place) => (place, tag),
            None => (self.place_elsewhere(records, home, tag)?, tag & !AT_HOME),
        };
        let slot = self.tags.slot(place);
        self.tags.set(records, place, tag);
        records.begin(slot, self.tags.halves(), key);
        self.len += 1;
        Ok(slot)
    }

    /// Finds a place in the other group for a key whose home group is full, and counts the stray.
    #[cold]
    fn place_abroad(&mut self, records: &mut Records, home: usize, tag: u16) -> Option<usize> {
        let strays = self.tags.strays(records, home);
        let place = self.tags.first(records, self.abroad(home, tag), 0).filter(|_| strays < STRAYS_MAX)?;
        self.tags.set_strays(records, home, strays + 1);
        Some(place)
    }

    /// Finds a place for a key whose home group is full: in the other group or the stash.
    #[cold]
    fn place_elsewhere(&mut self, records: &mut Records, home: usize, tag: u16) -> Result<usize, TableFull> {
        if let Some(place) = self.place_abroad(records, home, tag) {
            return Ok(place);
        }
        let free = (self.tags.homes()..self.tags.groups()).find_map(|group| self.tags.first(records, group, 0));
        self.stashed += usize::from(free.is_some());
        free.ok_or(TableFull { capacity: self.capacity })
    }

    /// Moves sets out of one group of the stash, selected by `turn`, if a place has become free in one of their groups; `hash` computes the hash of
    /// a key. The moved sets have other records afterwards.
    #[cold]
    pub fn bring_home(&mut self, records: &mut Records, turn: usize, hash: impl Fn(&[u64; K]) -> u64) {
        if self.stashed == 0 {
            return;
        }
        let group = self.tags.homes() + turn % STASH;
        for from in self.tags.places(group, self.tags.taken(records, group)) {
            let hash = hash(&self.key(records, self.tags.slot(from)));
            let (home, tag) = (self.tags.home(hash), Self::tag(hash));
            let at_home = self.tags.first(records, home, 0).map(|place| (place, tag));
            let place = at_home.or_else(|| Some((self.place_abroad(records, home, tag)?, tag & !AT_HOME)));
            let Some((to, tag)) = place else { continue };
            records.copy(self.tags.slot(from), self.tags.slot(to), self.tags.halves());
            self.tags.set(records, to, tag);
            self.tags.set(records, from, 0);
            self.stashed -= 1;
        }
    }

    /// Ends a record.
    pub fn remove(&mut self, records: &mut Records, slot: Slot) {
        let place = self.tags.place(slot);
        let tag = self.tags.tag(records, place);
        if tag == 0 {
            return;
        }
        self.tags.set(records, place, 0);
        self.len -= 1;
        let group = Tags::group(place);
        if group >= self.tags.homes() {
            self.stashed -= 1;
        } else if tag & AT_HOME == 0 {
            let home = self.home_of_stray(group, tag);
            self.tags.set_strays(records, home, self.tags.strays(records, home) - 1);
        }
    }

    /// Looks up the keys at the indices in `wanted`, in steps that overlap the cache misses of the batch. Calls `found` for each, with
    /// [`NO_SLOT`] for a key without a record; equal keys are reported in the order of `wanted`.
    #[inline]
    pub fn look_up(
        &self,
        records: &mut Records,
        wanted: &[u16],
        (keys, hashes): (&[[u64; K]; 256], &[u64; 256]),
        found: impl FnMut(usize, Slot, Option<&mut SetMeta>),
    ) {
        let count = wanted.iter().fold(0, |last, &i| last.max(i)) as usize % 256 + 1;
        let homes = Homes::new(&self.tags, records, (hashes, count), Self::tag);
        if self.tags.groups() * LINE > NEAR_BYTES {
            for_each_of(wanted, |i| homes.prefetch(i));
        }
        let mut candidates = [NO_SLOT; 256];
        // Prefetched as soon as found rather than all after the loop: a line that needs an address translation delays those after it.
        for_each_of(wanted, |i| match homes.find(i) {
            Some(place) => {
                records.prefetch(self.tags.half(place), self.tags.halves());
                candidates[i] = self.tags.slot(place);
            }
            None => candidates[i] = self.candidate_abroad(records, hashes[i]),
        });
        self.compare(records, wanted, (keys, hashes), &candidates, found);
    }

    /// Prefetches the record that inserting this hash would take now.
    #[inline]
    fn expect(&self, records: &Records, hash: u64) {
        if let Some(place) = self.tags.first(records, self.tags.home(hash), 0) {
            records.prefetch(self.tags.half(place), self.tags.halves());
        }
    }

    /// Finds a candidate for a key whose tag is not in its home group: the record of the first equal tag in the other group. Prefetches it.
    #[inline(never)]
    fn candidate_abroad(&self, records: &Records, hash: u64) -> Slot {
        let (home, tag) = (self.tags.home(hash), Self::tag(hash));
        if self.tags.strays(records, home) == 0 {
            return NO_SLOT;
        }
        let (group, tag) = (self.abroad(home, tag), tag & !AT_HOME);
        let Some(place) = self.tags.first(records, group, tag) else { return NO_SLOT };
        records.prefetch(self.tags.half(place), self.tags.halves());
        self.tags.slot(place)
    }

    /// The last step of [`look_up`](Self::look_up): compares the keys of `wanted` with those of their candidates, which are indexed by packet.
    #[inline(always)]
    fn compare(
        &self,
        records: &mut Records,
        wanted: &[u16],
        (keys, hashes): (&[[u64; K]; 256], &[u64; 256]),
        candidates: &[Slot; 256],
        mut found: impl FnMut(usize, Slot, Option<&mut SetMeta>),
    ) {
        let mut heads = records.heads(self.tags.halves());
        let (mut others, mut count) = ([0; 256], 0);
        for_each_of(wanted, |i| match heads.get(candidates[i]) {
            Some((key, meta)) if *key == keys[i] => found(i, candidates[i], Some(meta)),
            _ => {
                others[count & 255] = i as u8;
                count += 1;
            }
        });
        for &i in &others[..count.min(256)] {
            let i = usize::from(i);
            match self.find_again(records, candidates[i], &keys[i], hashes[i]) {
                NO_SLOT => found(i, NO_SLOT, None),
                slot => found(i, slot, Some(records.meta_mut(slot))),
            }
        }
    }

    /// Finds the record of a key whose candidate was wrong or missing. If there is none, prefetches the record that the key would get; this is done
    /// for all such keys of a batch before any is inserted, so that their address translations overlap.
    #[inline(never)]
    fn find_again(&self, records: &Records, candidate: Slot, key: &[u64; K], hash: u64) -> Slot {
        let may_be_elsewhere = candidate != NO_SLOT || self.stashed != 0;
        let found = if may_be_elsewhere { self.find(records, key, hash) } else { None };
        if found.is_none() {
            self.expect(records, hash);
        }
        found.unwrap_or(NO_SLOT)
    }

    /// Calls `visit` for the live records among `count` places starting at `from`, group by group; prefetches groups ahead.
    #[inline]
    pub fn scan(&self, records: &Records, from: usize, count: usize, mut visit: impl FnMut(Slot)) {
        let end = (from + count).min(self.slots());
        let mut at = from;
        while at < end {
            let group = at / GROUP;
            self.prefetch_group(records, group + AHEAD);
            let mut lanes = self.tags.taken(records, group) & u32::MAX << (at % GROUP);
            at = (group + 1) * GROUP;
            if at > end {
                lanes &= u32::MAX >> (at - end);
            }
            self.tags.places(group, lanes).for_each(|place| visit(self.tags.slot(place)));
        }
    }

    /// Prefetches the beginning of the live records of a group, if it exists, and the tags of a later one.
    #[inline(always)]
    fn prefetch_group(&self, records: &Records, group: usize) {
        if group < self.tags.groups() {
            self.tags.prefetch(records, group + AHEAD / 2);
            let live = self.tags.places(group, self.tags.taken(records, group));
            live.for_each(|place| records.prefetch_head(self.tags.half(place)));
        }
    }
}

/// Calls `each` for the packet indices in `wanted`, four per iteration.
#[inline(always)]
fn for_each_of(wanted: &[u16], mut each: impl FnMut(usize)) {
    let (fours, rest) = wanted.as_chunks::<4>();
    for four in fours {
        four.iter().for_each(|&i| each(i as usize & 255));
    }
    rest.iter().for_each(|&i| each(i as usize & 255));
}

mod meta;
#[cfg(test)]
mod tests;
