//! The table of live packet sets of one worker: no synchronisation, one look-up for every function of a chain.
//!
//! Tags stand apart from records: groups of eight 16-bit tags (16 bytes), two candidate groups per key, and the record's
//! position is its tag's position, so no index is followed. A record is a whole number of cache lines,
//!
//! ```text
//! | key, 8·K bytes | last seen, 4 | live mask, 2 | generation, 2 | states of the chain's functions … |
//! ```
//!
//! and never moves while it lives. At a load of at most 0.6 the second choice leaves about one key in a hundred thousand
//! without a place, also when sets have come and gone for long (at 0.72 it would then be one in three hundred, and the stash
//! full); those few go to a stash, so the declared capacity is always reached.
//!
//! [`FlowTable::lookup_batch`] overlaps the misses of a batch in three stages: tags, records, keys.

use braid_memory::{Error, HugePages};
use zerocopy::{FromBytes, IntoBytes};

use crate::Plain;
use crate::raw::records::Records;
pub use crate::raw::records::{RecordMut, States};
use crate::raw::tags::{GROUP, Tags};

/// Position of a live record.
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

/// Packet sets with keys of `K` words.
#[derive(Debug)]
pub struct FlowTable<const K: usize> {
    tags: Tags,
    records: Records<K>,
    capacity: usize,
    len: usize,
    stashed: usize,
}

impl<const K: usize> FlowTable<K> {
    /// A table for `capacity` sets with `state_bytes` bytes of state each.
    pub fn new(capacity: usize, state_bytes: usize, pages: HugePages) -> Result<FlowTable<K>, Error> {
        // 0.6: the load up to which two choices leave no more keys than the stash holds.
        let groups = (capacity * 10).div_ceil(6 * GROUP).max(2);
        let tags = Tags::new(groups, STASH / GROUP, pages)?;
        let records = Records::new(groups * GROUP + STASH, state_bytes, pages)?;
        Ok(FlowTable { tags, records, capacity, len: 0, stashed: 0 })
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

    /// Slots, live or not: the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.tags.homes() * GROUP + STASH
    }

    /// Bytes mapped for it.
    pub fn memory_bytes(&self) -> usize {
        self.tags.bytes() + self.records.bytes()
    }

    /// Bytes of one record.
    pub fn record_bytes(&self) -> usize {
        self.records.stride()
    }

    /// Bytes that a record with so many bytes of state would have.
    pub const fn record_bytes_of(state_bytes: usize) -> usize {
        Records::<K>::stride_of(state_bytes)
    }

    /// Never 0, which marks an empty slot.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | 1
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, slot: Slot) -> [u64; K] {
        self.records.key(slot as usize)
    }

    #[inline(always)]
    fn in_group(&self, group: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let mut lanes = self.tags.lanes(group, tag);
        while lanes != 0 {
            let lane = lanes.trailing_zeros() / 2;
            let slot = (group * GROUP) as Slot + lane;
            if self.key(slot) == *key {
                return Some(slot);
            }
            lanes &= !(3 << (2 * lane));
        }
        None
    }

    /// The live record of a key.
    #[inline]
    pub fn find(&self, key: &[u64; K], hash: u64) -> Option<Slot> {
        let (first, second) = self.tags.home(hash);
        let tag = Self::tag(hash);
        self.in_group(first, tag, key).or_else(|| self.in_group(second, tag, key)).or_else(|| self.in_stash(tag, key))
    }

    #[inline(always)]
    fn in_stash(&self, tag: u16, key: &[u64; K]) -> Option<Slot> {
        if self.stashed == 0 {
            return None;
        }
        let first = self.tags.homes();
        (first..first + STASH / GROUP).find_map(|group| self.in_group(group, tag, key))
    }

    /// Makes a record for a key that has none: state zeroed, no function live.
    pub fn insert(&mut self, key: &[u64; K], hash: u64) -> Result<Slot, TableFull> {
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
        let slot = match free {
            0 => self.stash_slot()?,
            free => (group * GROUP) as Slot + free.trailing_zeros() / 2,
        };
        self.tags.set(slot as usize, Self::tag(hash));
        self.records.begin(slot as usize, key);
        self.len += 1;
        Ok(slot)
    }

    #[cold]
    fn stash_slot(&mut self) -> Result<Slot, TableFull> {
        let first = self.tags.homes();
        let free = (first..first + STASH / GROUP).find_map(|group| {
            let free = self.tags.lanes(group, 0);
            (free != 0).then(|| (group * GROUP) as Slot + free.trailing_zeros() / 2)
        });
        self.stashed += usize::from(free.is_some());
        free.ok_or(TableFull { capacity: self.capacity })
    }

    /// Ends the life of a record.
    pub fn remove(&mut self, slot: Slot) {
        if !self.is_live(slot) {
            return;
        }
        self.tags.set(slot as usize, 0);
        self.len -= 1;
        if slot as usize >= self.tags.homes() * GROUP {
            self.stashed -= 1;
        }
    }

    /// Whether a slot holds a live record.
    #[inline(always)]
    pub fn is_live(&self, slot: Slot) -> bool {
        self.tags.tag(slot as usize) != 0
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, slot: Slot) -> SetMeta {
        self.records.meta(slot as usize)
    }

    /// A record, to read and change.
    #[inline(always)]
    pub fn record_mut(&mut self, slot: Slot) -> RecordMut<'_> {
        self.records.record_mut(slot as usize)
    }

    /// Last seen, live mask, generation, to change.
    #[inline(always)]
    pub fn meta_mut(&mut self, slot: Slot) -> &mut SetMeta {
        self.record_mut(slot).meta
    }

    /// State at a byte offset of the record's state area.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, slot: Slot, offset: usize) -> &mut S {
        self.record_mut(slot).state(offset)
    }

    /// The states at one offset in all records, for a loop over packets.
    #[inline(always)]
    pub fn states<S: Plain>(&mut self, offset: usize) -> States<'_, S> {
        self.records.states(offset)
    }

    /// Looks up the keys that `wanted` names, stage by stage, so that the misses of a batch overlap; `found` is called in
    /// that order, with [`NO_SLOT`] for a key that has no record.
    #[inline]
    pub fn lookup_batch(
        &mut self,
        wanted: &[u16],
        keys: &[[u64; K]; 256],
        hashes: &[u64; 256],
        mut found: impl FnMut(usize, Slot, Option<&mut SetMeta>),
    ) {
        if self.tags.bytes() > NEAR_BYTES {
            for &i in wanted {
                let (first, second) = self.tags.home(hashes[i as usize & 255]);
                self.tags.prefetch(first);
                self.tags.prefetch(second);
            }
        }
        let mut candidates = [NO_SLOT; 256];
        for (candidate, &i) in candidates.iter_mut().zip(wanted) {
            let hash = hashes[i as usize & 255];
            if let Some(slot) = self.tags.find(hash, Self::tag(hash)) {
                self.records.prefetch(slot);
                *candidate = slot as Slot;
            }
        }
        for (&candidate, &i) in candidates.iter().zip(wanted) {
            let i = i as usize & 255;
            if let Some((key, meta)) = self.records.head_mut(candidate as usize)
                && *key == keys[i]
            {
                found(i, candidate, Some(meta));
                continue;
            }
            let slot = self.find_again(candidate, &keys[i], hashes[i]);
            let meta = if slot == NO_SLOT { None } else { Some(self.meta_mut(slot)) };
            found(i, slot, meta);
        }
    }

    /// The record of a key that is not where its tag was seen first, or was not seen at all.
    #[inline(never)]
    fn find_again(&self, candidate: Slot, key: &[u64; K], hash: u64) -> Slot {
        let may_be_elsewhere = candidate != NO_SLOT || self.stashed != 0;
        if may_be_elsewhere { self.find(key, hash).unwrap_or(NO_SLOT) } else { NO_SLOT }
    }

    /// Calls `visit` for the live slots among `count` slots from `from`; touches records of live slots only if `visit` does.
    #[inline]
    pub fn scan(&mut self, from: usize, count: usize, mut visit: impl FnMut(&mut Self, Slot)) {
        for slot in from..(from + count).min(self.slots()) {
            if self.is_live(slot as Slot) {
                visit(self, slot as Slot);
            }
        }
    }
}

#[cfg(test)]
mod tests;
