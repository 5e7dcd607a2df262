//! Packet-set state of one worker: the flow tables of one group of functions, and how a handler makes a set live
//! ([`NewSet`]). For the runtime, except for [`NewSet`].

use std::ops::Range;

use braid_packet::key::{KeyShape, Keys, SetKey};
use braid_state::{FlowTable, HugePages, MemoryError, NO_SLOT, Plain, SetMeta, Slot, States};

mod candidate;
mod moving;
mod new;
mod pair;
mod undo;

pub use candidate::{Candidate, Whereabouts};
pub use moving::{Carry, Former, FormerSlot, MOVED_MAX};
pub use new::NewSet;
pub(crate) use new::{NewPlace, Place};
pub use undo::SetUndo;

use pair::{Pair, hash_of};

/// The place of a set's record in either table, or [`MISS`](Self::MISS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetSlot(Slot);

impl SetSlot {
    /// There is no record.
    pub const MISS: SetSlot = SetSlot(NO_SLOT);
}

/// The sets of one group (functions with the same packet-set definition) on one worker.
#[derive(Debug)]
pub struct SetTables {
    pair: Pair,
    capacity: usize,
    /// Maximum number of records in `pair`: the capacity minus the sets still in the former tables.
    room: usize,
    created: u64,
    ended: u64,
    refused: u64,
    /// Places where sets have become live since the last `take_begun`, at most `begun_max` of them.
    begun: Vec<SetSlot>,
    begun_max: usize,
    former: Option<Box<Former>>,
}

impl SetTables {
    /// Creates tables for `capacity` sets in total, short and long keys together, with `state_bytes` bytes of state
    /// each and keys of the given `shape`.
    pub fn new(
        capacity: usize,
        state_bytes: usize,
        shape: KeyShape,
        pages: HugePages,
    ) -> Result<SetTables, MemoryError> {
        let pair = Pair::new(capacity, state_bytes, shape, pages)?;
        let (created, ended, refused) = (0, 0, 0);
        let (begun, begun_max, former) = (Vec::new(), 0, None);
        Ok(SetTables { pair, capacity, room: capacity, created, ended, refused, begun, begun_max, former })
    }

    /// Returns the record sizes in bytes of a set with a short key (IPv4) and with a long key (IPv6), both multiples of
    /// half a cache line.
    pub const fn record_bytes(state_bytes: usize) -> [usize; 2] {
        [FlowTable::<2>::record_bytes_of(state_bytes), FlowTable::<5>::record_bytes_of(state_bytes)]
    }

    /// Touches the pages for sets with short keys and with long keys, as requested, so that no packet causes a page
    /// fault.
    pub fn touch(&self, kinds: [bool; 2]) {
        self.pair.touch(kinds);
    }

    /// Returns the numbers of sets that became live and that ended.
    pub fn lives(&self) -> (u64, u64) {
        (self.created, self.ended)
    }

    /// Returns how often a set did not become live because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Sets how many places of newly live sets are kept at most, for [`take_begun`](Self::take_begun).
    pub fn keep_begun(&mut self, most: usize) {
        self.begun_max = most;
    }

    /// Replaces the contents of `into` with the places of sets that became live. By now, a place may hold another set
    /// or none.
    pub fn take_begun(&mut self, into: &mut Vec<SetSlot>) {
        into.clear();
        std::mem::swap(&mut self.begun, into);
    }

    /// Records that a set has become live.
    #[inline(always)]
    fn note_begun(&mut self, at: SetSlot) {
        if self.begun.len() < self.begun_max {
            self.begun.push(at);
        }
    }

    /// Sets the functions for which a set is live.
    #[inline(always)]
    pub fn set_live(&mut self, at: SetSlot, live: u16) {
        let meta = self.meta_mut(at);
        let before = std::mem::replace(&mut meta.live, live);
        self.created += u64::from(before == 0 && live != 0);
        self.ended += u64::from(before != 0 && live == 0);
    }

    /// Restores an earlier meta as part of a rollback, including the counts of lives.
    fn restore_meta(&mut self, at: SetSlot, earlier: SetMeta) {
        let now = std::mem::replace(self.meta_mut(at), earlier).live;
        self.created -= u64::from(earlier.live == 0 && now != 0);
        self.ended -= u64::from(earlier.live != 0 && now == 0);
    }

    /// Returns the number of records, live for some function or about to be removed, including those still in the
    /// former tables.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.pair.len() + self.to_move()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there are sets with short keys, and with long keys.
    pub fn kinds(&self) -> [bool; 2] {
        let former = self.former.as_ref().map_or([0; 2], |former| former.lens());
        let [narrow, wide] = self.pair.lens();
        [narrow + former[0] > 0, wide + former[1] > 0]
    }

    /// Returns the maximum number of records.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns whether another set fits.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.pair.len() < self.room
    }

    /// Returns the bytes mapped for the tables.
    pub fn memory_bytes(&self) -> usize {
        self.pair.memory_bytes() + self.former.as_ref().map_or(0, |former| former.memory_bytes())
    }

    /// Returns how many of those bytes are touched only by sets with long keys (IPv6).
    pub fn wide_bytes(&self) -> usize {
        self.pair.wide_bytes()
    }

    /// Looks up the keys of the packets in `todo`, with overlapping cache misses. `found` is called once for each
    /// packet that has a key; packets with equal keys come in order.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        keys: &Keys,
        todo: &[u16],
        found: impl FnMut(usize, SetSlot, Option<&mut SetMeta>),
    ) {
        if self.is_moving() {
            self.bring_those_of(keys, todo);
        }
        self.pair.look_up(keys, todo, found);
    }

    /// Returns the record of packet `i`'s set.
    #[inline]
    pub fn find(&mut self, keys: &Keys, i: usize) -> SetSlot {
        match self.pair.find(keys, i) {
            SetSlot::MISS if self.is_moving() => self.bring_key(&keys.key(i)),
            found => found,
        }
    }

    /// Returns the record of a key.
    pub fn find_key(&mut self, key: &SetKey) -> SetSlot {
        match self.pair.find_key(key) {
            SetSlot::MISS if self.is_moving() => self.bring_key(key),
            found => found,
        }
    }

    fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        if self.has_room() { self.pair.insert(keys, i) } else { None }
    }

    /// Creates a record for a key from another table or a file, and returns its place. Returns `None` if the key has
    /// another shape, already has a record, or there is no room.
    pub fn put(&mut self, key: &SetKey, meta: SetMeta) -> Option<SetSlot> {
        if key.shape() != self.pair.shape() || !self.has_room() || self.find_key(key) != SetSlot::MISS {
            return None;
        }
        let at = self.pair.insert_key(key, hash_of(key))?;
        self.meta_mut(at).last_seen_ms = meta.last_seen_ms;
        self.set_live(at, meta.live);
        Some(at)
    }

    /// Like [`put`](Self::put), but adds functions to a record that is there. Returns `None` if one of them is live in
    /// it already.
    pub fn join(&mut self, key: &SetKey, meta: SetMeta) -> Option<SetSlot> {
        if key.shape() != self.pair.shape() {
            return None;
        }
        match self.find_key(key) {
            SetSlot::MISS => self.put(key, meta),
            at => {
                let there = *self.meta_mut(at);
                if there.live & meta.live != 0 {
                    return None;
                }
                // Milliseconds wrap around.
                let is_later = (meta.last_seen_ms.wrapping_sub(there.last_seen_ms) as i32) > 0;
                self.meta_mut(at).last_seen_ms = if is_later { meta.last_seen_ms } else { there.last_seen_ms };
                self.set_live(at, there.live | meta.live);
                Some(at)
            }
        }
    }

    /// Changes the states of all functions of the group in a record.
    pub fn states_mut(&mut self, at: SetSlot, change: impl FnOnce(&mut [u8])) {
        change(self.pair.records.state_bytes_mut(at.0));
    }

    /// Removes a record without counting its set as created or ended here: the set moves to another worker's table, or
    /// its creation is rolled back.
    pub fn give_away(&mut self, at: SetSlot) {
        self.created -= u64::from(self.meta_mut(at).live != 0);
        self.remove(at);
    }

    /// Returns whether there is a record at this place.
    pub fn holds(&self, at: SetSlot) -> bool {
        self.pair.holds(at)
    }

    /// Removes a record.
    pub fn remove(&mut self, at: SetSlot) {
        self.pair.remove(at);
    }

    /// Moves some sets from the overflow stash to regular places, a different part of them each `turn`; their places
    /// change.
    pub fn bring_home(&mut self, turn: usize) {
        self.pair.bring_home(turn);
    }

    /// Returns the state of one function, at its offset in the record.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, at: SetSlot, offset: usize) -> &mut S {
        self.pair.records.state(at.0, offset)
    }

    /// Returns access to the states of one function in all records, for a loop over packets.
    #[inline(always)]
    pub(crate) fn states_at<S: Plain>(&mut self, offset: usize) -> StatesAt<'_, S> {
        StatesAt(self.pair.records.states(offset))
    }

    /// Returns the states of all functions of the group.
    pub fn state_bytes(&mut self, at: SetSlot) -> &[u8] {
        self.pair.records.state_bytes_mut(at.0)
    }

    /// Returns the meta of a record: last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, at: SetSlot) -> SetMeta {
        self.pair.records.meta(at.0)
    }

    /// Returns the meta of a record for modification.
    #[inline(always)]
    pub fn meta_mut(&mut self, at: SetSlot) -> &mut SetMeta {
        self.pair.records.meta_mut(at.0)
    }

    /// Returns the key of a record, to print and compare. It is always inlined, so that callers that do not use the key
    /// do not pay for it.
    #[inline(always)]
    pub fn key(&self, at: SetSlot) -> SetKey {
        self.pair.key(at)
    }

    /// Returns the number of slots of both tables, the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.pair.slots()
    }

    /// Returns the slots of the table that holds more sets.
    pub fn denser_slots(&self) -> Range<usize> {
        self.pair.denser_slots()
    }

    /// Visits the records among `count` slots from `from`; sets still in the former tables are not included.
    #[inline]
    pub fn scan(&self, from: usize, count: usize, visit: impl FnMut(SetSlot, SetMeta)) {
        self.pair.scan(from, count, visit);
    }
}

/// States of one function, accessed by place.
#[derive(Debug)]
pub(crate) struct StatesAt<'a, S>(States<'a, S>);

impl<S: Plain> StatesAt<'_, S> {
    /// Returns whether there is a record.
    #[inline(always)]
    pub(crate) fn has(&self, at: SetSlot) -> bool {
        self.0.has(at.0)
    }

    /// Returns the meta and the state of a record. Panics if there is none.
    #[inline(always)]
    pub(crate) fn get(&mut self, at: SetSlot) -> (&mut SetMeta, &mut S) {
        self.0.get(at.0)
    }
}
