//! The table of live packet sets of one worker: no synchronisation, one look-up for every function of a chain.
//!
//! Records lie in groups of 31, and each group's 16-bit tags in a cache line among them: whose page has been found for the tags finds it for the
//! record as well ([decision](../../../docs/decisions/0016-tags-lie-among-their-records.md)). A record's place follows from its tag's lane, so no index is followed. A key is at home in one group. If that is full it strays: its tag goes to another group, which follows
//! from home and tag alone, and home counts its strays. Who looks for a key goes further than home only if some strayed from there, so a look-up
//! touches one line of tags. A stray's tag is even and one at home is odd, so that each finds the home whose count it lowers when it ends.
//! A record is a whole number of halves of cache lines of [`Records`] (those of one half are 30 in a group, beside their tags),
//!
//! ```text
//! | last seen, 4 | live mask, 2 | generation, 2 | states of the chain's functions … | key, 8·K bytes |
//! ```
//!
//! and never moves while it lives, but out of the stash. States lie at the same place whatever the length of the key, so tables with long keys and
//! with short ones have their records in one region, and who has a record's place need not know its table. At the load of 0.64 about one key in a
//! thousand strays and one in a hundred thousand finds both groups full, also when sets have come and gone for long; those few go to a stash, so the
//! declared capacity is always reached. They leave it as soon as there is a place for them elsewhere ([`FlowTable::bring_home`]), so that a table
//! a part of which is fuller than the rest for a while does not fill it up.
//!
//! [`FlowTable::look_up`] overlaps the misses of a batch in three steps: it asks for tags, compares them and asks for records,
//! compares keys.

use braid_memory::Error;

use crate::raw::records::{HALF, LINE, halves_of};
pub use crate::raw::records::{Records, States};
use crate::raw::tags::{GROUP, Homes, STRAYS_MAX, TAGGED, Tags, room_of};

pub use meta::SetMeta;

/// Where a record begins: so many halves of cache lines behind the first of its region.
pub type Slot = u32;

/// No record.
pub const NO_SLOT: Slot = u32::MAX;

/// Tags of so many bytes stay in the second-level cache: asking for them beforehand costs more than it gains.
const NEAR_BYTES: usize = 256 << 10;

/// Groups beyond the homes, for keys that find both their groups full.
const STASH: usize = 8;

/// Groups by which a scan is behind what it asks for: most of a go has been asked for in the go before.
const AHEAD: usize = 4;

/// Marks the tag of a set at home; a stray has none. Besides each tag is [`TAGGED`]: 0 is an empty place.
const AT_HOME: u16 = 1;

/// The capacity is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all {capacity} packet sets of this worker are in use")]
pub struct TableFull {
    /// Sets that fit.
    pub capacity: usize,
}

/// Where the records of packet sets with keys of `K` words lie. Operations that touch records are given them.
#[derive(Debug)]
pub struct FlowTable<const K: usize> {
    tags: Tags,
    capacity: usize,
    len: usize,
    stashed: usize,
}

/// Groups with room for so many each that are homes of `capacity` sets: filled to such a part that those who find both their home and the group abroad full, as sets come
/// and go for ever, are no more than the stash holds. Up to four million sets these are 64 %, and 2 % less for each doubling.
fn homes_for(capacity: usize, room: usize) -> usize {
    let doublings = capacity.div_ceil(4 << 20).next_power_of_two().ilog2() as usize;
    (capacity * 100).div_ceil((64 - 2 * doublings) * room).max(2)
}

impl<const K: usize> FlowTable<K> {
    /// A table for `capacity` sets with `state_bytes` bytes of state each, whose records begin with half line `first`, an even number.
    pub fn new(capacity: usize, state_bytes: usize, first: usize) -> Result<FlowTable<K>, Error> {
        let halves = halves_of(state_bytes, K);
        let tags = Tags::new((homes_for(capacity, room_of(halves)), STASH), first, halves);
        let end = tags.range().end;
        if end >= NO_SLOT as usize {
            return Err(Error::too_large(end * HALF));
        }
        Ok(FlowTable { tags, capacity, len: 0, stashed: 0 })
    }

    /// The half line behind its last record.
    pub fn end(&self) -> usize {
        self.tags.range().end
    }

    /// Live sets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Places of records, taken or not, and of tags: the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.tags.groups() * GROUP
    }

    /// Touches the pages of its records, so that no packet waits for one.
    pub fn touch(&self, records: &Records) {
        records.touch(self.tags.range());
    }

    /// Asks for the tags of a hash, which is about to be looked for or put in.
    #[inline(always)]
    pub fn prefetch(&self, records: &Records, hash: u64) {
        self.tags.prefetch(records, self.tags.home(hash));
    }

    /// Whether a record is live.
    pub fn holds(&self, records: &Records, slot: Slot) -> bool {
        self.tags.tag(records, self.tags.place(slot)) != 0
    }

    /// Bytes that a record with so many bytes of state has.
    pub const fn record_bytes_of(state_bytes: usize) -> usize {
        halves_of(state_bytes, K) * HALF
    }

    /// The tag of a hash at home.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | TAGGED | AT_HOME
    }

    /// The group in which what is at home in `home` with this tag strays.
    #[inline(always)]
    fn abroad(&self, home: usize, tag: u16) -> usize {
        let group = home + self.tags.way(tag & !AT_HOME);
        if group < self.tags.homes() { group } else { group - self.tags.homes() }
    }

    /// The home of the stray with this tag in `group`.
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

    /// The record of a key that is not at home: abroad, if some are from there, or in the stash.
    fn find_stray(&self, records: &Records, home: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let abroad = (self.tags.strays(records, home) != 0).then(|| self.abroad(home, tag));
        let stash = self.tags.homes()..self.tags.homes() + if self.stashed == 0 { 0 } else { STASH };
        abroad.into_iter().chain(stash).find_map(|group| self.in_group(records, group, tag & !AT_HOME, key))
    }

    /// Makes a record for a key that has none: state zeroed, no function live.
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

    /// A place abroad for what finds its home full, which counts it.
    #[cold]
    fn place_abroad(&mut self, records: &mut Records, home: usize, tag: u16) -> Option<usize> {
        let strays = self.tags.strays(records, home);
        let place = self.tags.first(records, self.abroad(home, tag), 0).filter(|_| strays < STRAYS_MAX)?;
        self.tags.set_strays(records, home, strays + 1);
        Some(place)
    }

    /// A place for what finds its home full.
    #[cold]
    fn place_elsewhere(&mut self, records: &mut Records, home: usize, tag: u16) -> Result<usize, TableFull> {
        if let Some(place) = self.place_abroad(records, home, tag) {
            return Ok(place);
        }
        let free = (self.tags.homes()..self.tags.groups()).find_map(|group| self.tags.first(records, group, 0));
        self.stashed += usize::from(free.is_some());
        free.ok_or(TableFull { capacity: self.capacity })
    }

    /// Has sets leave the stash, those in one of its groups in `turn`, for which a place has come free at home or abroad; `hash` is that of
    /// a key. They have other records then.
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

    /// Ends the life of a record.
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

    /// Looks up the keys that `wanted` names, step by step, so that the misses of a batch overlap. `found` is called for each, with
    /// [`NO_SLOT`] for a key that has no record; for equal keys in the order of `wanted`.
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
        // Asked for at once, not all behind the loop: a line whose page has to be found holds up those behind it.
        for_each_of(wanted, |i| match homes.find(i) {
            Some(place) => {
                records.prefetch(self.tags.half(place), self.tags.halves());
                candidates[i] = self.tags.slot(place);
            }
            None => candidates[i] = self.candidate_abroad(records, hashes[i]),
        });
        self.compare(records, wanted, (keys, hashes), &candidates, found);
    }

    /// Asks for the record that an insertion of a hash would take now.
    #[inline]
    fn expect(&self, records: &Records, hash: u64) {
        if let Some(place) = self.tags.first(records, self.tags.home(hash), 0) {
            records.prefetch(self.tags.half(place), self.tags.halves());
        }
    }

    /// Of a key whose tag is not at home: the record abroad that it has if the first equal tag there is its own. The processor is asked for it.
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

    /// The last step: compares the keys of `wanted` with those of their candidates, which stand by packet. `found` is called as by [`look_up`](Self::look_up).
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

    /// The record of a key that is not where its tag was seen first, or was not seen at all. If there is none, the processor is asked for the one
    /// that the key would get: for all such keys of a batch before anything is put in, so that their pages are found together.
    #[inline(never)]
    fn find_again(&self, records: &Records, candidate: Slot, key: &[u64; K], hash: u64) -> Slot {
        let may_be_elsewhere = candidate != NO_SLOT || self.stashed != 0;
        let found = if may_be_elsewhere { self.find(records, key, hash) } else { None };
        if found.is_none() {
            self.expect(records, hash);
        }
        found.unwrap_or(NO_SLOT)
    }

    /// Calls `visit` for the live records among `count` places from the `from`th on, group by group; asks for those of a group that comes soon.
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

    /// Asks for where the live records of a group begin, if there is such a group, and for the tags of one behind it.
    #[inline(always)]
    fn prefetch_group(&self, records: &Records, group: usize) {
        if group < self.tags.groups() {
            self.tags.prefetch(records, group + AHEAD / 2);
            let live = self.tags.places(group, self.tags.taken(records, group));
            live.for_each(|place| records.prefetch_head(self.tags.half(place)));
        }
    }
}

/// Calls `each` for the numbers of packets in `wanted`, four of them in a turn of the loop.
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
