//! Packet-set state of one worker: the flow tables of one group of functions, and how a handler makes a set live.

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

/// The place of a set's record, whichever table it belongs to; or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetSlot(Slot);

impl SetSlot {
    /// No record.
    pub const MISS: SetSlot = SetSlot(NO_SLOT);
}

/// The sets of one group (functions with the same packet-set definition) on one worker.
#[derive(Debug)]
pub struct SetTables {
    pair: Pair,
    capacity: usize,
    /// Most records of the pair: the capacity without the sets that are still to come over.
    room: usize,
    created: u64,
    ended: u64,
    refused: u64,
    /// Where sets have become live since somebody last asked, at most as many as are asked for.
    begun: Vec<SetSlot>,
    begun_max: usize,
    former: Option<Box<Former>>,
}

impl SetTables {
    /// Tables for `capacity` sets in all, of either kind, with `state_bytes` bytes of state each;
    /// `shape` is that of the keys.
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

    /// Bytes of the record of a set with a short key (IPv4) and with a long one (IPv6), in whole halves of cache lines.
    pub const fn record_bytes(state_bytes: usize) -> [usize; 2] {
        [FlowTable::<2>::record_bytes_of(state_bytes), FlowTable::<5>::record_bytes_of(state_bytes)]
    }

    /// Touches the pages for sets with short keys, and with long ones, as asked: then no packet waits for one.
    pub fn touch(&self, kinds: [bool; 2]) {
        self.pair.touch(kinds);
    }

    /// Packet sets that became live, and those that ended.
    pub fn lives(&self) -> (u64, u64) {
        (self.created, self.ended)
    }

    /// How often a set did not become live because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// From now on at most so many places are kept of sets that become live for the first of their functions.
    pub fn keep_begun(&mut self, most: usize) {
        self.begun_max = most;
    }

    /// Takes these places, in the place of what is in `into`: there may be other sets by now, or none.
    pub fn take_begun(&mut self, into: &mut Vec<SetSlot>) {
        into.clear();
        std::mem::swap(&mut self.begun, into);
    }

    /// A set has become live.
    #[inline(always)]
    fn note_begun(&mut self, at: SetSlot) {
        if self.begun.len() < self.begun_max {
            self.begun.push(at);
        }
    }

    /// Changes for which functions a set is live.
    #[inline(always)]
    pub fn set_live(&mut self, at: SetSlot, live: u16) {
        let meta = self.meta_mut(at);
        let before = std::mem::replace(&mut meta.live, live);
        self.created += u64::from(before == 0 && live != 0);
        self.ended += u64::from(before != 0 && live == 0);
    }

    /// Puts an earlier meta back, as if what came after had not been.
    fn restore_meta(&mut self, at: SetSlot, earlier: SetMeta) {
        let now = std::mem::replace(self.meta_mut(at), earlier).live;
        self.created -= u64::from(earlier.live == 0 && now != 0);
        self.ended -= u64::from(earlier.live != 0 && now == 0);
    }

    /// Records, live for some function or about to be removed; those that are still to come over too.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.pair.len() + self.to_move()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there are sets with short keys, and with long ones.
    pub fn kinds(&self) -> [bool; 2] {
        let former = self.former.as_ref().map_or([0; 2], |former| former.lens());
        let [narrow, wide] = self.pair.lens();
        [narrow + former[0] > 0, wide + former[1] > 0]
    }

    /// Most records.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether one more set fits.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.pair.len() < self.room
    }

    /// Bytes mapped for the tables.
    pub fn memory_bytes(&self) -> usize {
        self.pair.memory_bytes() + self.former.as_ref().map_or(0, |former| former.memory_bytes())
    }

    /// The part of them that is touched by sets with long keys (IPv6) alone.
    pub fn wide_bytes(&self) -> usize {
        self.pair.wide_bytes()
    }

    /// Looks up the keys of the packets in `todo`, misses overlapped. `found` is called for each that has a key; for equal ones
    /// in order.
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

    /// The record of packet `i`'s set.
    #[inline]
    pub fn find(&mut self, keys: &Keys, i: usize) -> SetSlot {
        match self.pair.find(keys, i) {
            SetSlot::MISS if self.is_moving() => self.bring_key(&keys.key(i)),
            found => found,
        }
    }

    /// The record of a key.
    pub fn find_key(&mut self, key: &SetKey) -> SetSlot {
        match self.pair.find_key(key) {
            SetSlot::MISS if self.is_moving() => self.bring_key(key),
            found => found,
        }
    }

    fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        if self.has_room() { self.pair.insert(keys, i) } else { None }
    }

    /// Makes a record for a key from outside: from another table or a file. None if the key is of another shape, is there
    /// already, or there is no room.
    pub fn put(&mut self, key: &SetKey, meta: SetMeta) -> Option<SetSlot> {
        if key.shape() != self.pair.shape() || !self.has_room() || self.find_key(key) != SetSlot::MISS {
            return None;
        }
        let at = self.pair.insert_key(key, hash_of(key))?;
        self.meta_mut(at).last_seen_ms = meta.last_seen_ms;
        self.set_live(at, meta.live);
        Some(at)
    }

    /// The states of all functions of the group, to change.
    pub fn states_mut(&mut self, at: SetSlot, change: impl FnOnce(&mut [u8])) {
        change(self.pair.records.state_bytes_mut(at.0));
    }

    /// Removes a record that is not counted here: its set goes on in another worker's table, or never was.
    pub fn give_away(&mut self, at: SetSlot) {
        self.created -= u64::from(self.meta_mut(at).live != 0);
        self.remove(at);
    }

    /// Whether a record is there.
    pub fn holds(&self, at: SetSlot) -> bool {
        self.pair.holds(at)
    }

    /// Ends a record's life.
    pub fn remove(&mut self, at: SetSlot) {
        self.pair.remove(at);
    }

    /// Has some of the sets that found no place but the stash leave it, another part of them each `turn`: their records are others then.
    pub fn bring_home(&mut self, turn: usize) {
        self.pair.bring_home(turn);
    }

    /// State of one function, at its offset.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, at: SetSlot, offset: usize) -> &mut S {
        self.pair.records.state(at.0, offset)
    }

    /// The states of one function in all records, for a loop over packets.
    #[inline(always)]
    pub(crate) fn states_at<S: Plain>(&mut self, offset: usize) -> StatesAt<'_, S> {
        StatesAt(self.pair.records.states(offset))
    }

    /// Copies the states of all functions of the group.
    pub fn state_bytes(&mut self, at: SetSlot) -> Vec<u8> {
        self.pair.records.state_bytes_mut(at.0).to_vec()
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, at: SetSlot) -> SetMeta {
        self.pair.records.meta(at.0)
    }

    /// The same, to change.
    #[inline(always)]
    pub fn meta_mut(&mut self, at: SetSlot) -> &mut SetMeta {
        self.pair.records.meta_mut(at.0)
    }

    /// The key of a record, to print and compare. Always inline: most who get one do not look at it.
    #[inline(always)]
    pub fn key(&self, at: SetSlot) -> SetKey {
        self.pair.key(at)
    }

    /// Slots of both tables, the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.pair.slots()
    }

    /// Those of them that belong to the table with more sets.
    pub fn denser_slots(&self) -> Range<usize> {
        self.pair.denser_slots()
    }

    /// Visits the live records among `count` slots from `from`; none that is still to come over.
    #[inline]
    pub fn scan(&self, from: usize, count: usize, visit: impl FnMut(SetSlot, SetMeta)) {
        self.pair.scan(from, count, visit);
    }
}

/// States of one function, to reach by place.
#[derive(Debug)]
pub(crate) struct StatesAt<'a, S>(States<'a, S>);

impl<S: Plain> StatesAt<'_, S> {
    /// Whether there is a record.
    #[inline(always)]
    pub(crate) fn has(&self, at: SetSlot) -> bool {
        self.0.has(at.0)
    }

    /// Meta and state of a record. Panics if there is none.
    #[inline(always)]
    pub(crate) fn get(&mut self, at: SetSlot) -> (&mut SetMeta, &mut S) {
        self.0.get(at.0)
    }
}
