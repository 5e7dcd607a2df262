//! Incremental migration of sets from former tables to the tables that replace them, while packets continue.
//!
//! When tables get another size, or another layout because functions were added or removed, packets do not wait until
//! the new tables are filled. A worker starts with empty new tables and keeps the former ones alongside. From then on:
//! - A set that becomes live gets its record in the new tables.
//! - Before a batch is looked up, those sets of its packets that are still in the former tables are moved. Handlers,
//!   undo and handler loops therefore deal with one pair of tables only. The cost is one branch per look-up, and one
//!   per packet without a set.
//! - Between two batches a few more sets are moved ([`SetTables::move_some`]), until the former tables are empty
//!   ([`SetTables::take_emptied`]).
//!
//! Each set is in exactly one of the two, and the capacity counts both. Code that walks over all sets (the expiry scan,
//! a listing) sees only those in the new tables; if it needs all sets, it moves them first ([`SetTables::settle`], or
//! [`SetTables::move_some`] a few at a time). A set past its timeout is noticed by its next packet wherever the set is,
//! and by the scan once it has been moved.

use std::ops::Range;

use braid_packet::key::{Keys, SetKey};
use braid_state::{Plain, SetMeta};

use super::pair::{Pair, hash_of};
use super::{SetSlot, SetTables};
use crate::Place;

/// Maximum number of sets that one call of [`SetTables::move_some`] moves.
pub const MOVED_MAX: usize = 32;
/// Maximum number of slots of the former tables that one call scans: 2 bytes each.
const LOOKED_AT_MAX: usize = 1024;

/// How the states and live bits of a former record map to a new record. Anything not listed is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carry(Vec<(Place, Place, usize)>);

impl Carry {
    /// Creates the mapping from functions present in both chains: former place, new place, and size of the state in
    /// bytes.
    pub fn of(functions: impl IntoIterator<Item = (Place, Place, usize)>) -> Carry {
        Carry(functions.into_iter().collect())
    }

    /// Translates a live mask to the new layout.
    fn live(&self, former: u16) -> u16 {
        let bit = |(from, to, _): &(Place, Place, usize)| if former & from.bit != 0 { to.bit } else { 0 };
        self.0.iter().map(bit).fold(0, |live, bit| live | bit)
    }

    /// Returns the former place of the function that is at `place` in a new record.
    fn former_place(&self, place: Place) -> Option<Place> {
        self.0.iter().find(|(_, to, _)| *to == place).map(|(from, ..)| *from)
    }

    fn states(&self, former: &[u8], new: &mut [u8]) {
        for (from, to, bytes) in &self.0 {
            new[to.offset..][..*bytes].copy_from_slice(&former[from.offset..][..*bytes]);
        }
    }
}

/// Former tables whose sets are being moved to new ones.
#[derive(Debug)]
pub struct Former {
    pair: Pair,
    carry: Carry,
    cursor: usize,
}

impl Former {
    pub(super) fn lens(&self) -> [usize; 2] {
        self.pair.lens()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.pair.memory_bytes()
    }
}

impl SetTables {
    /// Replaces `former`, tables with the same keys: continues its counters, and moves its sets over time. If `former`
    /// still has former tables of its own, their sets are moved to it first. The capacity may be smaller than before if
    /// the sets fit.
    pub fn succeed(&mut self, mut former: SetTables, carry: Carry) {
        former.settle();
        (self.created, self.ended, self.refused) = (former.created, former.ended, former.refused);
        self.room = self.capacity.saturating_sub(former.pair.len());
        self.former = Some(Box::new(Former { pair: former.pair, carry, cursor: 0 }));
    }

    /// Returns whether there are still former tables, even if empty.
    #[inline(always)]
    pub fn is_moving(&self) -> bool {
        self.former.is_some()
    }

    /// Returns the number of sets still to be moved.
    pub fn to_move(&self) -> usize {
        self.former.as_ref().map_or(0, |former| former.pair.len())
    }

    /// Returns the former tables once they are empty, so that they can be dropped where nobody waits for the unmapping.
    pub fn take_emptied(&mut self) -> Option<Box<Former>> {
        self.former.take_if(|former| former.pair.len() == 0)
    }

    /// Moves at most `most` sets, and never more than [`MOVED_MAX`]. Returns how many left the former tables, including
    /// those that no function keeps.
    pub fn move_some(&mut self, most: usize) -> usize {
        let Some(former) = &mut self.former else { return 0 };
        let mut found: [(SetSlot, SetKey, u64); MOVED_MAX] = [(SetSlot::MISS, SetKey::NONE, 0); MOVED_MAX];
        let (mut count, mut looked_at, most) = (0, 0, most.min(MOVED_MAX));
        while count < most && looked_at < LOOKED_AT_MAX {
            let span = most - count;
            let pair = &former.pair;
            pair.scan(former.cursor, span, |at, _| {
                let key = pair.key(at);
                let hash = hash_of(&key);
                self.pair.prefetch(key.class(), hash);
                found[count] = (at, key, hash);
                count += 1;
            });
            looked_at += span;
            former.cursor += span;
            if former.cursor >= former.pair.slots() {
                // A set for which there is no room stays where it is until there is.
                former.cursor = 0;
                break;
            }
        }
        let before = former.pair.len();
        for (at, key, hash) in &found[..count] {
            self.bring(*at, key, *hash);
        }
        before - self.to_move()
    }

    /// Moves all sets, however long it takes, and frees the memory of the former tables.
    pub fn settle(&mut self) {
        let Some(former) = &self.former else { return };
        let mut all = Vec::with_capacity(former.pair.len());
        former.pair.scan(0, former.pair.slots(), |at, _| all.push(FormerSlot(at)));
        for at in all {
            self.bring_one(at);
        }
        // A set may by chance find no place in the new table (`FlowTable`); it cannot wait for one here.
        self.ended += self.to_move() as u64;
        (self.former, self.room) = (None, self.capacity);
    }

    /// Moves the set of a former record and returns its new record; `None` if no function keeps it or there is no room.
    pub(super) fn bring(&mut self, at: SetSlot, key: &SetKey, hash: u64) -> Option<SetSlot> {
        let former = self.former.as_mut()?;
        let before = former.pair.records.meta(at.0);
        let live = former.carry.live(before.live);
        let place = if live == 0 { None } else { Some(self.pair.insert_key(key, hash)?) };
        if let Some(place) = place {
            let meta = self.pair.records.meta_mut(place.0);
            *meta = SetMeta { last_seen_ms: before.last_seen_ms, live, ..*meta };
            let states = former.pair.records.state_bytes_mut(at.0);
            former.carry.states(states, self.pair.records.state_bytes_mut(place.0));
        }
        former.pair.remove(at);
        self.room = self.capacity.saturating_sub(former.pair.len());
        self.ended += u64::from(before.live != 0 && live == 0);
        place
    }

    /// Moves the sets of the packets in `todo`.
    #[cold]
    #[inline(never)]
    pub(super) fn bring_those_of(&mut self, keys: &Keys, todo: &[u16]) {
        let Some(former) = &mut self.former else { return };
        let (mut found, mut count) = ([(0, SetSlot::MISS); 256], 0);
        former.pair.look_up(keys, todo, |i, at, meta| {
            if meta.is_some() && count < found.len() {
                found[count] = (i, at);
                count += 1;
            }
        });
        found[..count].iter().for_each(|&(i, _)| self.pair.prefetch(keys.class[i], keys.hash[i]));
        for &(i, at) in &found[..count] {
            // Another packet of the batch may belong to the same set.
            if self.former.as_ref().is_some_and(|former| former.pair.holds(at)) {
                self.bring(at, &keys.key(i), keys.hash[i]);
            }
        }
    }

    /// Returns the record of a key's set if the set was still in the former tables, after moving it.
    #[cold]
    #[inline(never)]
    pub(super) fn bring_key(&mut self, key: &SetKey) -> SetSlot {
        let Some(former) = &self.former else { return SetSlot::MISS };
        match former.pair.find_key(key) {
            SetSlot::MISS => SetSlot::MISS,
            at => self.bring(at, key, hash_of(key)).unwrap_or(SetSlot::MISS),
        }
    }

    /// Visits the sets among `count` slots of the former tables from `from`, if there are former tables.
    pub fn scan_former(&self, from: usize, count: usize, mut visit: impl FnMut(FormerSlot, SetMeta)) {
        if let Some(former) = &self.former {
            former.pair.scan(from, count, |at, meta| visit(FormerSlot(at), meta));
        }
    }

    /// Returns the number of slots of the former tables.
    pub fn former_slots(&self) -> usize {
        self.former.as_ref().map_or(0, |former| former.pair.slots())
    }

    /// Returns the slots of the former table that holds more sets.
    pub fn denser_former_slots(&self) -> Range<usize> {
        self.former.as_ref().map_or(0..0, |former| former.pair.denser_slots())
    }

    /// Returns the state of a set in the former tables for the function at `place` in the new layout; `None` if the set
    /// is not live for it.
    pub(super) fn former_state<S: Plain>(&mut self, FormerSlot(at): FormerSlot, place: Place) -> Option<&S> {
        let former = self.former.as_mut()?;
        let from = former.carry.former_place(place)?;
        if former.pair.records.meta(at.0).live & from.bit == 0 {
            return None;
        }
        Some(former.pair.records.state::<S>(at.0, from.offset))
    }

    /// Moves one set; `None` if no function keeps it or there is no room.
    pub fn bring_one(&mut self, FormerSlot(at): FormerSlot) -> Option<SetSlot> {
        let former = self.former.as_ref().filter(|former| former.pair.holds(at))?;
        let key = former.pair.key(at);
        self.bring(at, &key, hash_of(&key))
    }
}

/// The place of a set's record in the former tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerSlot(SetSlot);

#[cfg(test)]
mod tests;
