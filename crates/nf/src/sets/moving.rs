//! Sets on their way from former tables to those that took their place, while packets go on.
//!
//! Tables of another size, or of another layout because functions came or went, are not filled while packets wait. They are empty
//! when a worker takes them, and the former ones stay behind them. From then on:
//! - A set that becomes live gets its record in the new tables.
//! - Before a batch is looked up, the sets of its packets that are still in the former tables come over. So handlers, their undo and
//!   their loops know one pair of tables; what it costs is one branch per look-up, and one per packet that has no set.
//! - Between two batches a few more come over ([`SetTables::move_some`]), until the former tables are empty
//!   ([`SetTables::take_emptied`]).
//!
//! A set is in one of both, and the capacity counts both. What walks over all
//! sets (the expiry scan, a listing) sees those in the new tables: who needs all of them has them come first
//! ([`SetTables::settle`], or [`SetTables::move_some`] a few at a time). A set past its timeout is found so by its next packet
//! wherever it is, and by the scan when it has come over.

use std::ops::Range;

use braid_packet::key::{Keys, SetKey};
use braid_state::{Plain, SetMeta};

use super::pair::{Pair, hash_of};
use super::{SetSlot, SetTables};
use crate::Place;

/// Most sets that [`SetTables::move_some`] moves at once.
pub const MOVED_MAX: usize = 32;
/// Most slots of the former tables that it looks at: 2 bytes each.
const LOOKED_AT_MAX: usize = 1024;

/// Where the functions' states and bits of a former record are in a new one. What is not named is left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carry(Vec<(Place, Place, usize)>);

impl Carry {
    /// Of functions that are in both: their former places, their new ones, and the bytes of their states.
    pub fn of(functions: impl IntoIterator<Item = (Place, Place, usize)>) -> Carry {
        Carry(functions.into_iter().collect())
    }

    /// For which functions a set is live.
    fn live(&self, former: u16) -> u16 {
        let bit = |(from, to, _): &(Place, Place, usize)| if former & from.bit != 0 { to.bit } else { 0 };
        self.0.iter().map(bit).fold(0, |live, bit| live | bit)
    }

    /// Where it was in a former record what the function at `place` has in a new one.
    fn former_place(&self, place: Place) -> Option<Place> {
        self.0.iter().find(|(_, to, _)| *to == place).map(|(from, ..)| *from)
    }

    fn states(&self, former: &[u8], new: &mut [u8]) {
        for (from, to, bytes) in &self.0 {
            new[to.offset..][..*bytes].copy_from_slice(&former[from.offset..][..*bytes]);
        }
    }
}

/// Tables whose sets go over to others.
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
    /// Takes the place of other tables of the same keys: counts on where they stopped, and has their sets come over. All that those had
    /// behind them comes over to them first. Their capacity may be smaller if their sets fit.
    pub fn succeed(&mut self, mut former: SetTables, carry: Carry) {
        former.settle();
        (self.created, self.ended, self.refused) = (former.created, former.ended, former.refused);
        self.room = self.capacity.saturating_sub(former.pair.len());
        self.former = Some(Box::new(Former { pair: former.pair, carry, cursor: 0 }));
    }

    /// Whether there are former tables still, with sets or emptied.
    #[inline(always)]
    pub fn is_moving(&self) -> bool {
        self.former.is_some()
    }

    /// Sets that are still to come over.
    pub fn to_move(&self) -> usize {
        self.former.as_ref().map_or(0, |former| former.pair.len())
    }

    /// The former tables, if none of their sets is left: to be dropped where nobody waits until they are unmapped.
    pub fn take_emptied(&mut self) -> Option<Box<Former>> {
        self.former.take_if(|former| former.pair.len() == 0)
    }

    /// Moves at most `most` sets, and never more than [`MOVED_MAX`]; says how many, those included that no function goes on with.
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
                // A set that found no place stays where it is until there is one.
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

    /// Has all sets come over, however long it takes; the memory of the former tables is given back.
    pub fn settle(&mut self) {
        let Some(former) = &self.former else { return };
        let mut all = Vec::with_capacity(former.pair.len());
        former.pair.scan(0, former.pair.slots(), |at, _| all.push(FormerSlot(at)));
        for at in all {
            self.bring_one(at);
        }
        // Chance may leave a set without a place (`FlowTable`); it cannot wait for one here.
        self.ended += self.to_move() as u64;
        (self.former, self.room) = (None, self.capacity);
    }

    /// The record of a former one's set, which has come over; none if no function goes on with it, or there is no place.
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

    /// Has the sets of some packets come over.
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
            // Another packet of the batch may be of the same set.
            if self.former.as_ref().is_some_and(|former| former.pair.holds(at)) {
                self.bring(at, &keys.key(i), keys.hash[i]);
            }
        }
    }

    /// The record of a key's set, if that has only now come over.
    #[cold]
    #[inline(never)]
    pub(super) fn bring_key(&mut self, key: &SetKey) -> SetSlot {
        let Some(former) = &self.former else { return SetSlot::MISS };
        match former.pair.find_key(key) {
            SetSlot::MISS => SetSlot::MISS,
            at => self.bring(at, key, hash_of(key)).unwrap_or(SetSlot::MISS),
        }
    }

    /// Visits the sets among `count` slots of the former tables from `from`, wherever there are former ones.
    pub fn scan_former(&self, from: usize, count: usize, mut visit: impl FnMut(FormerSlot, SetMeta)) {
        if let Some(former) = &self.former {
            former.pair.scan(from, count, |at, meta| visit(FormerSlot(at), meta));
        }
    }

    /// Slots of the former tables.
    pub fn former_slots(&self) -> usize {
        self.former.as_ref().map_or(0, |former| former.pair.slots())
    }

    /// Those of them that belong to the table with more sets.
    pub fn denser_former_slots(&self) -> Range<usize> {
        self.former.as_ref().map_or(0..0, |former| former.pair.denser_slots())
    }

    /// What the function at a place among the new ones keeps of a set of the former tables; none if the set is not live for it.
    pub(super) fn former_state<S: Plain>(&mut self, FormerSlot(at): FormerSlot, place: Place) -> Option<&S> {
        let former = self.former.as_mut()?;
        let from = former.carry.former_place(place)?;
        if former.pair.records.meta(at.0).live & from.bit == 0 {
            return None;
        }
        Some(former.pair.records.state::<S>(at.0, from.offset))
    }

    /// Has one set come over; none if no function goes on with it.
    pub fn bring_one(&mut self, FormerSlot(at): FormerSlot) -> Option<SetSlot> {
        let former = self.former.as_ref().filter(|former| former.pair.holds(at))?;
        let key = former.pair.key(at);
        self.bring(at, &key, hash_of(&key))
    }
}

/// The place of a set's record in former tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerSlot(SetSlot);

#[cfg(test)]
mod tests;
