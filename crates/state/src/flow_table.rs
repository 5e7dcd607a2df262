//! The table of live packet sets of one worker: no synchronisation, one look-up for every function of a chain.
//!
//! Tags stand apart from records: groups of eight 16-bit tags (16 bytes), two candidate groups per key, and the record's
//! position is its tag's position, so no index is followed. A record is a whole number of cache lines,
//!
//! ```text
//! | key, 8·K bytes | last seen, 4 | live mask, 2 | generation, 2 | states of the chain's functions … |
//! ```
//!
//! and never moves while it lives. At a load of at most 0.72 the second choice leaves about one key in a million without a
//! place; those few go to a stash, so the declared capacity is always reached.
//!
//! [`FlowTable::lookup_batch`] overlaps the misses of a batch in three stages: tags, records, keys.

use braid_memory::{Bytes, Error, HugePages, prefetch_read, prefetch_write};
use zerocopy::{FromBytes, IntoBytes};

use crate::Plain;
use crate::raw::tags::equal_lanes;

/// Position of a live record.
pub type Slot = u32;

/// No record.
pub const NO_SLOT: Slot = u32::MAX;

const GROUP: usize = 8;
const LINE: usize = 64;
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
    tags: Bytes,
    records: Bytes,
    groups: u64,
    stride: usize,
    capacity: usize,
    len: usize,
    stashed: usize,
}

impl<const K: usize> FlowTable<K> {
    const META: usize = K * 8;
    const STATE: usize = K * 8 + size_of::<SetMeta>();

    /// A table for `capacity` sets with `state_bytes` bytes of state each.
    pub fn new(capacity: usize, state_bytes: usize, pages: HugePages) -> Result<FlowTable<K>, Error> {
        // 0.72: the load up to which two choices leave no more keys than the stash holds.
        let groups = (capacity * 100).div_ceil(72 * GROUP).max(2);
        let stride = (Self::STATE + state_bytes).next_multiple_of(LINE);
        let slots = groups * GROUP + STASH;
        Ok(FlowTable {
            tags: Bytes::new(slots * 2, pages)?,
            records: Bytes::new(slots * stride, pages)?,
            groups: groups as u64,
            stride,
            capacity,
            len: 0,
            stashed: 0,
        })
    }

    /// Live sets.
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
        self.groups as usize * GROUP + STASH
    }

    /// Bytes mapped for it.
    pub fn memory_bytes(&self) -> usize {
        self.tags.len() + self.records.len()
    }

    /// Bytes of one record.
    pub fn record_bytes(&self) -> usize {
        self.stride
    }

    #[inline(always)]
    fn home(&self, hash: u64) -> (usize, usize) {
        let first = ((hash >> 32) * self.groups) >> 32;
        let second = ((hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) >> 32) * self.groups) >> 32;
        (first as usize, second as usize)
    }

    /// Never 0, which marks an empty slot.
    #[inline(always)]
    fn tag(hash: u64) -> u16 {
        hash as u16 | 1
    }

    /// A bit pair `11` at `2·lane` for each lane of the group that holds `tag`.
    #[inline(always)]
    fn lanes(&self, group: usize, tag: u16) -> u32 {
        match self.tags[group * GROUP * 2..].first_chunk() {
            Some(tags) => equal_lanes(tags, tag),
            None => unreachable!("groups are computed inside the table"),
        }
    }

    #[inline(always)]
    fn record(&self, slot: Slot) -> &[u8] {
        &self.records[slot as usize * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn record_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.records[slot as usize * self.stride..][..self.stride]
    }

    /// The key of a record.
    #[inline(always)]
    pub fn key(&self, slot: Slot) -> [u64; K] {
        let record = self.record(slot);
        std::array::from_fn(|i| u64::from_ne_bytes(std::array::from_fn(|j| record[i * 8 + j])))
    }

    #[inline(always)]
    fn in_group(&self, group: usize, tag: u16, key: &[u64; K]) -> Option<Slot> {
        let mut lanes = self.lanes(group, tag);
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
        let (first, second) = self.home(hash);
        let tag = Self::tag(hash);
        self.in_group(first, tag, key).or_else(|| self.in_group(second, tag, key)).or_else(|| self.in_stash(tag, key))
    }

    #[inline(always)]
    fn in_stash(&self, tag: u16, key: &[u64; K]) -> Option<Slot> {
        if self.stashed == 0 {
            return None;
        }
        let first = self.groups as usize;
        (first..first + STASH / GROUP).find_map(|group| self.in_group(group, tag, key))
    }

    /// Makes a record for a key that has none: state zeroed, no function live.
    pub fn insert(&mut self, key: &[u64; K], hash: u64) -> Result<Slot, TableFull> {
        if self.len >= self.capacity {
            return Err(TableFull { capacity: self.capacity });
        }
        let (first, second) = self.home(hash);
        let (free_first, free_second) = (self.lanes(first, 0), self.lanes(second, 0));
        let (group, free) = if free_second.count_ones() > free_first.count_ones() {
            (second, free_second)
        } else {
            (first, free_first)
        };
        let slot = match free {
            0 => self.stash_slot()?,
            free => (group * GROUP) as Slot + free.trailing_zeros() / 2,
        };
        self.set_tag(slot, Self::tag(hash));
        let generation = self.meta(slot).generation.wrapping_add(1);
        let record = self.record_mut(slot);
        for (i, word) in key.iter().enumerate() {
            record[i * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        record[Self::META..].fill(0);
        self.meta_mut(slot).generation = generation;
        self.len += 1;
        Ok(slot)
    }

    #[cold]
    fn stash_slot(&mut self) -> Result<Slot, TableFull> {
        let first = self.groups as usize;
        let free = (first..first + STASH / GROUP).find_map(|group| {
            let free = self.lanes(group, 0);
            (free != 0).then(|| (group * GROUP) as Slot + free.trailing_zeros() / 2)
        });
        self.stashed += usize::from(free.is_some());
        free.ok_or(TableFull { capacity: self.capacity })
    }

    #[inline(always)]
    fn set_tag(&mut self, slot: Slot, tag: u16) {
        self.tags[slot as usize * 2..][..2].copy_from_slice(&tag.to_ne_bytes());
    }

    /// Ends the life of a record.
    pub fn remove(&mut self, slot: Slot) {
        if !self.is_live(slot) {
            return;
        }
        self.set_tag(slot, 0);
        self.len -= 1;
        if slot as usize >= self.groups as usize * GROUP {
            self.stashed -= 1;
        }
    }

    /// Whether a slot holds a live record.
    #[inline(always)]
    pub fn is_live(&self, slot: Slot) -> bool {
        self.tags[slot as usize * 2..][..2] != [0, 0]
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, slot: Slot) -> SetMeta {
        let record = self.record(slot);
        SetMeta::read_from_prefix(&record[Self::META..])
            .map_or_else(|_| unreachable!("a record holds its meta"), |m| m.0)
    }

    /// Last seen, live mask, generation, to change.
    #[inline(always)]
    pub fn meta_mut(&mut self, slot: Slot) -> &mut SetMeta {
        match SetMeta::mut_from_prefix(&mut self.record_mut(slot)[Self::META..]) {
            Ok((meta, _)) => meta,
            Err(_) => unreachable!("records are line-aligned and hold their meta"),
        }
    }

    /// State at a byte offset of the record's state area. Panics if it does not lie inside or is not aligned: offsets come
    /// from the plan, not from packets.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, slot: Slot, offset: usize) -> &mut S {
        match S::mut_from_prefix(&mut self.record_mut(slot)[Self::STATE + offset..]) {
            Ok((state, _)) => state,
            Err(_) => unreachable!("the plan places states inside the record, aligned"),
        }
    }

    /// The whole state area, for undo and snapshots.
    #[inline(always)]
    pub fn state_bytes(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.record_mut(slot)[Self::STATE..]
    }

    /// Looks up `n` keys at once, those whose index `wanted` names: stage by stage, so that the batch's misses overlap.
    #[inline]
    pub fn lookup_batch(&self, wanted: &[u16], keys: &[[u64; K]], hashes: &[u64], mut found: impl FnMut(usize, Slot)) {
        for &i in wanted {
            let (first, second) = self.home(hashes[i as usize]);
            prefetch_read(&self.tags[first * GROUP * 2]);
            prefetch_read(&self.tags[second * GROUP * 2]);
        }
        let mut candidates = [0 as Slot; 256];
        for (candidate, &i) in candidates.iter_mut().zip(wanted) {
            let hash = hashes[i as usize];
            let (first, second) = self.home(hash);
            let (here, there) = (self.lanes(first, Self::tag(hash)), self.lanes(second, Self::tag(hash)));
            let (group, lanes) = if here != 0 { (first, here) } else { (second, there) };
            *candidate = if lanes == 0 { NO_SLOT } else { (group * GROUP) as Slot + lanes.trailing_zeros() / 2 };
            // A miss prefetches the last record: harmless, and cheaper than a branch.
            let record = (*candidate as usize).min(self.slots() - 1) * self.stride;
            for line in (0..self.stride).step_by(LINE) {
                prefetch_write(&self.records[record + line]);
            }
        }
        for (&candidate, &i) in candidates.iter().zip(wanted) {
            let (key, hash) = (&keys[i as usize], hashes[i as usize]);
            if candidate != NO_SLOT && self.key(candidate) == *key {
                found(i as usize, candidate);
            } else if candidate != NO_SLOT || self.stashed != 0 {
                found(i as usize, self.find(key, hash).unwrap_or(NO_SLOT));
            } else {
                found(i as usize, NO_SLOT);
            }
        }
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
