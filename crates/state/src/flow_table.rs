//! The table of live packet sets of one worker: no synchronisation, one look-up for every function of a chain.
//!
//! Tags stand apart from records: groups of eight 16-bit tags (16 bytes), two candidate groups per key, and the record's
//! position follows from its tag's position, so no index is followed. A record is a whole number of halves of cache lines of [`Records`],
//!
//! ```text
//! | last seen, 4 | live mask, 2 | generation, 2 | states of the chain's functions … | key, 8·K bytes |
//! ```
//!
//! and never moves while it lives. States lie at the same place whatever the length of the key, so tables with long keys and
//! with short ones have their records in one region, and who has a record's place need not know its table. At a load of at most 0.6 the second choice leaves about one key in a hundred thousand
//! without a place, also when sets have come and gone for long (at 0.72 it would then be one in three hundred, and the stash
//! full); those few go to a stash, so the declared capacity is always reached.
//!
//! [`FlowTable::look_up`] overlaps the misses of a batch in three steps: it asks for tags, compares them and asks for records,
//! compares keys.

use braid_memory::{Error, HugePages};
use zerocopy::{FromBytes, IntoBytes};

use crate::raw::records::{HALF, halves_of};
pub use crate::raw::records::{Records, States};
use crate::raw::tags::{GROUP, Tags};

/// Where a record begins: so many halves of cache lines behind the first of its region.
pub type Slot = u32;

/// No record.
pub const NO_SLOT: Slot = u32::MAX;

/// Tags of so many bytes stay in the second-level cache: asking for them beforehand costs more than it gains.
const NEAR_BYTES: usize = 256 << 10;

/// Slots beyond the groups, for keys that find both their groups full.
const STASH: usize = 256;

/// What a record holds besides key and state.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
)]
#[repr(C)]
pub struct SetMeta {
    /// When a packet of the set last came, in milliseconds since the run's epoch; wraps after 49 days.
    pub last_seen_ms: u32,
    /// One bit for each function of the group for which the set is live.
    pub live: u16,
    /// Counts the lives of this slot.
    pub generation: u16,
}

impl SetMeta {
    /// Milliseconds without a packet at `now_ms`; none if time stamps went back, as on a capture that is not in order.
    #[inline(always)]
    pub fn idle_ms(&self, now_ms: u32) -> u32 {
        let idle = now_ms.wrapping_sub(self.last_seen_ms);
        if idle > u32::MAX / 2 { 0 } else { idle }
    }
}

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
    /// Where the first record begins.
    first: Slot,
    /// Of one record.
    halves: usize,
    capacity: usize,
    len: usize,
    stashed: usize,
}

impl<const K: usize> FlowTable<K> {
    /// A table for `capacity` sets with `state_bytes` bytes of state each, whose records begin with half line `first`, an even number.
    pub fn new(capacity: usize, state_bytes: usize, first: usize, pages: HugePages) -> Result<FlowTable<K>, Error> {
        let halves = halves_of(state_bytes, K);
        // 0.6: the load up to which two choices leave no more keys than the stash holds.
        let groups = (capacity * 10).div_ceil(6 * GROUP).max(2);
        let end = first + (groups * GROUP + STASH) * halves;
        if end >= NO_SLOT as usize {
            return Err(Error::too_large(end * HALF));
        }
        let tags = Tags::new(groups, STASH / GROUP, pages)?;
        Ok(FlowTable { tags, first: first as Slot, halves, capacity, len: 0, stashed: 0 })
    }

    /// The half line behind its last record.
    pub fn end(&self) -> usize {
        self.first as usize + self.slots() * self.halves
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

    /// Records that have a place, live or not: the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.tags.homes() * GROUP + STASH
    }

    /// Bytes mapped for it, without records.
    pub fn memory_bytes(&self) -> usize {
        self.tags.bytes()
    }

    /// Touches the pages of its tags and records, so that no packet waits for one.
    pub fn touch(&self, records: &Records) {
        self.tags.touch();
        records.touch(self.first as usize..self.end());
    }

    /// Asks for the tags of a hash, which is about to be looked for or put in.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        let (first, second) = self.tags.home(hash);
        self.tags.prefetch(first);
        self.tags.prefetch(second);
    }

    /// Whether a record is live.
    pub fn holds(&self, slot: Slot) -> bool {
        self.tags.tag(self.position(slot)) != 0
    }

    /// Bytes that a record with so many bytes of state has.
    pub const fn record_bytes_of(state_bytes: usize) -> usize {
        halves_of(state_bytes, K) * HALF
    }

    /// Where the record of the tag at `position` begins.
    #[inline(always)]
    fn slot(&self, position: usize) -> Slot {
        self.first + (position * self.halves) as Slot
    }

    #[inline(always)]
    fn position(&self, slot: Slot) -> usize {
        (slot - self.first) as usize / self.halves
    }

    /// Never 0, which marks an empty slot.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | 1
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, records: &Records, slot: Slot) -> [u64; K] {
        records.key(slot, self.halves)
    }

    #[inline(always)]
    fn in_group(&self, records: &Records, group: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let mut lanes = self.tags.lanes(group, tag);
        while lanes != 0 {
            let lane = lanes.trailing_zeros() / 2;
            let slot = self.slot(group * GROUP + lane as usize);
            if self.key(records, slot) == *key {
                return Some(slot);
            }
            lanes &= !(3 << (2 * lane));
        }
        None
    }

    /// The live record of a key.
    #[inline]
    pub fn find(&self, records: &Records, key: &[u64; K], hash: u64) -> Option<Slot> {
        let (first, second) = self.tags.home(hash);
        let tag = Self::tag(hash);
        let at_home = self.in_group(records, first, tag, key).or_else(|| self.in_group(records, second, tag, key));
        at_home.or_else(|| self.in_stash(records, tag, key))
    }

    #[inline(always)]
    fn in_stash(&self, records: &Records, tag: u16, key: &[u64; K]) -> Option<Slot> {
        if self.stashed == 0 {
            return None;
        }
        let first = self.tags.homes();
        (first..first + STASH / GROUP).find_map(|group| self.in_group(records, group, tag, key))
    }

    /// Makes a record for a key that has none: state zeroed, no function live.
    pub fn insert(&mut self, records: &mut Records, key: &[u64; K], hash: u64) -> Result<Slot, TableFull> {
        if self.len >= self.capacity {
            return Err(TableFull { capacity: self.capacity });
        }
        let (first, second) = self.tags.home(hash);
        let (free_first, free_second) = (self.tags.lanes(first, 0), self.tags.lanes(second, 0));
        let (group, free) = if free_second.count_ones() > free_first.count_ones() {
            (second, free_second)
        } else {
            (first, free_first)
        };
        let position = match free {
            0 => self.stash_position()?,
            free => group * GROUP + free.trailing_zeros() as usize / 2,
        };
        let slot = self.slot(position);
        self.tags.set(position, Self::tag(hash));
        records.begin(slot, self.halves, key);
        self.len += 1;
        Ok(slot)
    }

    #[cold]
    fn stash_position(&mut self) -> Result<usize, TableFull> {
        let first = self.tags.homes();
        let free = (first..first + STASH / GROUP).find_map(|group| {
            let free = self.tags.lanes(group, 0);
            (free != 0).then(|| group * GROUP + free.trailing_zeros() as usize / 2)
        });
        self.stashed += usize::from(free.is_some());
        free.ok_or(TableFull { capacity: self.capacity })
    }

    /// Ends the life of a record.
    pub fn remove(&mut self, slot: Slot) {
        let position = self.position(slot);
        if self.tags.tag(position) == 0 {
            return;
        }
        self.tags.set(position, 0);
        self.len -= 1;
        if position >= self.tags.homes() * GROUP {
            self.stashed -= 1;
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
        if self.tags.bytes() > NEAR_BYTES {
            for &i in wanted {
                self.prefetch(hashes[i as usize & 255]);
            }
        }
        let mut candidates = [NO_SLOT; 256];
        for (candidate, &i) in candidates.iter_mut().zip(wanted) {
            let hash = hashes[i as usize & 255];
            if let Some(position) = self.tags.find(hash, Self::tag(hash)) {
                *candidate = self.slot(position);
                records.prefetch(*candidate, self.halves);
            }
        }
        self.compare(records, wanted, (keys, hashes), &candidates, found);
    }

    /// The last step: compares the keys of records that have arrived.
    #[inline(always)]
    fn compare(
        &self,
        records: &mut Records,
        wanted: &[u16],
        (keys, hashes): (&[[u64; K]; 256], &[u64; 256]),
        candidates: &[Slot; 256],
        mut found: impl FnMut(usize, Slot, Option<&mut SetMeta>),
    ) {
        let mut heads = records.heads(self.halves);
        let mut all = true;
        for (&candidate, &i) in candidates.iter().zip(wanted) {
            let i = i as usize & 255;
            match heads.get(candidate) {
                Some((key, meta)) if *key == keys[i] => found(i, candidate, Some(meta)),
                _ => all = false,
            }
        }
        if all {
            return;
        }
        for (&candidate, &i) in candidates.iter().zip(wanted) {
            let i = i as usize & 255;
            if records.heads(self.halves).get(candidate).is_some_and(|(key, _)| *key == keys[i]) {
                continue;
            }
            match self.find_again(records, candidate, &keys[i], hashes[i]) {
                NO_SLOT => found(i, NO_SLOT, None),
                slot => found(i, slot, Some(records.meta_mut(slot))),
            }
        }
    }

    /// The record of a key that is not where its tag was seen first, or was not seen at all.
    #[inline(never)]
    fn find_again(&self, records: &Records, candidate: Slot, key: &[u64; K], hash: u64) -> Slot {
        let may_be_elsewhere = candidate != NO_SLOT || self.stashed != 0;
        if may_be_elsewhere { self.find(records, key, hash).unwrap_or(NO_SLOT) } else { NO_SLOT }
    }

    /// Calls `visit` for the live records among `count` from the `from`th on; touches none of them.
    #[inline]
    pub fn scan(&self, from: usize, count: usize, mut visit: impl FnMut(Slot)) {
        for position in from..(from + count).min(self.slots()) {
            if self.tags.tag(position) != 0 {
                visit(self.slot(position));
            }
        }
    }
}

#[cfg(test)]
mod tests;
