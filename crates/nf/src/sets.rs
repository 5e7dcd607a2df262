//! Packet-set state of one worker: the flow tables of one group of functions, and how a handler makes a set live.

use std::marker::PhantomData;

use braid_packet::key::{DEFAULT_SEED, KeyClass, KeyHash, KeyShape, Keys, SetKey};
use braid_state::{FlowTable, HugePages, MemoryError, NO_SLOT, Plain, Records, SetMeta, Slot, States, Tx};

use crate::shared::SharedPlace;

/// The place of a set's record, whichever table it belongs to; or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSlot(Slot);

impl SetSlot {
    /// No record.
    pub const MISS: SetSlot = SetSlot(NO_SLOT);
}

/// Packets by the length of their keys; those without one are in neither list.
struct Split {
    narrow: [u16; 256],
    wide: [u16; 256],
    narrows: usize,
    wides: usize,
}

impl Split {
    #[inline]
    fn new(keys: &Keys, todo: &[u16]) -> Split {
        let mut split = Split { narrow: [0; 256], wide: [0; 256], narrows: 0, wides: 0 };
        for &i in todo {
            // Both are written and one is kept: cheaper than a branch that packets of both kinds would mislead.
            split.narrow[split.narrows & 255] = i;
            split.wide[split.wides & 255] = i;
            split.narrows += usize::from(keys.class[i as usize & 255] == KeyClass::Narrow);
            split.wides += usize::from(keys.class[i as usize & 255] == KeyClass::Wide);
        }
        split
    }

    fn narrow(&self) -> &[u16] {
        &self.narrow[..self.narrows.min(256)]
    }

    fn wide(&self) -> &[u16] {
        &self.wide[..self.wides.min(256)]
    }
}

/// The sets of one group (functions with the same packet-set definition) on one worker: IPv4-sized keys in one table, longer
/// ones in another, so that the long ones do not slow the short ones. The records of both are of one kind.
#[derive(Debug)]
pub struct SetTables {
    narrow: FlowTable<2>,
    wide: FlowTable<5>,
    records: Records,
    capacity: usize,
    shape: KeyShape,
    created: u64,
    ended: u64,
    refused: u64,
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
        let narrow = FlowTable::new(capacity, state_bytes, 0, pages)?;
        let wide = FlowTable::<5>::new(capacity, state_bytes, narrow.end(), pages)?;
        let records = Records::new(wide.end(), state_bytes, 5, pages)?;
        Ok(SetTables { narrow, wide, records, capacity, shape, created: 0, ended: 0, refused: 0 })
    }

    /// Bytes of the record of a set with a short key (IPv4) and with a long one (IPv6), in whole halves of cache lines.
    pub const fn record_bytes(state_bytes: usize) -> [usize; 2] {
        [FlowTable::<2>::record_bytes_of(state_bytes), FlowTable::<5>::record_bytes_of(state_bytes)]
    }

    /// Packet sets that became live, and those that ended.
    pub fn lives(&self) -> (u64, u64) {
        (self.created, self.ended)
    }

    /// How often a set did not become live because the table was full.
    pub fn refused(&self) -> u64 {
        self.refused
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

    /// Records, live for some function or about to be removed.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most records.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes mapped for the tables.
    pub fn memory_bytes(&self) -> usize {
        self.narrow.memory_bytes() + self.wide.memory_bytes() + self.records.bytes()
    }

    /// Looks up the keys of the packets in `todo`, misses overlapped. `found` is called for each that has a key; for equal ones
    /// in order.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        keys: &Keys,
        todo: &[u16],
        mut found: impl FnMut(usize, SetSlot, Option<&mut SetMeta>),
    ) {
        let (records, narrow, wide) = (&mut self.records, (&keys.narrow, &keys.hash), (&keys.wide, &keys.hash));
        let mut found = |i, slot, meta: Option<&mut SetMeta>| found(i, SetSlot(slot), meta);
        if keys.all_narrow {
            return self.narrow.look_up(records, todo, narrow, found);
        }
        let split = Split::new(keys, todo);
        self.narrow.look_up(records, split.narrow(), narrow, &mut found);
        self.wide.look_up(records, split.wide(), wide, &mut found);
    }

    /// The record of packet `i`'s set.
    #[inline]
    pub fn find(&self, keys: &Keys, i: usize) -> SetSlot {
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.find(&self.records, &keys.narrow[i], keys.hash[i]).map(SetSlot),
            KeyClass::Wide => self.wide.find(&self.records, &keys.wide[i], keys.hash[i]).map(SetSlot),
            KeyClass::None => None,
        }
        .unwrap_or(SetSlot::MISS)
    }

    /// The record of a key.
    pub fn find_key(&self, key: &SetKey) -> SetSlot {
        let hash = key.hash_with(KeyHash::new(DEFAULT_SEED));
        let found = match key.class() {
            KeyClass::Narrow => self.narrow.find(&self.records, &key.narrow_words(), hash).map(SetSlot),
            KeyClass::Wide => self.wide.find(&self.records, &key.wide_words(), hash).map(SetSlot),
            KeyClass::None => None,
        };
        found.unwrap_or(SetSlot::MISS)
    }

    fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        if self.len() >= self.capacity {
            return None;
        }
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &keys.narrow[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &keys.wide[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::None => None,
        }
    }

    /// Makes a record for a key from outside: from another table or a file. None if the key is of another shape, is there
    /// already, or there is no room.
    pub fn put(&mut self, key: &SetKey, meta: SetMeta) -> Option<SetSlot> {
        if key.shape() != self.shape || self.len() >= self.capacity || self.find_key(key) != SetSlot::MISS {
            return None;
        }
        let hash = key.hash_with(KeyHash::new(DEFAULT_SEED));
        let at = match key.class() {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &key.narrow_words(), hash).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &key.wide_words(), hash).ok().map(SetSlot),
            KeyClass::None => None,
        }?;
        self.meta_mut(at).last_seen_ms = meta.last_seen_ms;
        self.set_live(at, meta.live);
        Some(at)
    }

    /// The states of all functions of the group, to change.
    pub fn states_mut(&mut self, at: SetSlot, change: impl FnOnce(&mut [u8])) {
        change(self.records.state_bytes_mut(at.0));
    }

    /// Removes a record that is not counted here: its set goes on in another worker's table, or never was.
    pub fn give_away(&mut self, at: SetSlot) {
        self.created -= u64::from(self.meta_mut(at).live != 0);
        self.remove(at);
    }

    /// Ends a record's life.
    pub fn remove(&mut self, at: SetSlot) {
        if self.is_wide(at) {
            self.wide.remove(at.0);
        } else {
            self.narrow.remove(at.0);
        }
    }

    /// Whether a record has a long key.
    #[inline(always)]
    fn is_wide(&self, at: SetSlot) -> bool {
        at.0 as usize >= self.narrow.end()
    }

    /// State of one function, at its offset.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, at: SetSlot, offset: usize) -> &mut S {
        self.records.state(at.0, offset)
    }

    /// The states of one function in all records, for a loop over packets.
    #[inline(always)]
    pub(crate) fn states_at<S: Plain>(&mut self, offset: usize) -> StatesAt<'_, S> {
        StatesAt(self.records.states(offset))
    }

    /// Copies the states of all functions of the group.
    pub fn state_bytes(&mut self, at: SetSlot) -> Vec<u8> {
        self.records.state_bytes_mut(at.0).to_vec()
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta_mut(&mut self, at: SetSlot) -> &mut SetMeta {
        self.records.meta_mut(at.0)
    }

    /// The key of a record, to print and compare.
    pub fn key(&self, at: SetSlot) -> SetKey {
        if self.is_wide(at) {
            SetKey::wide(self.shape, self.wide.key(&self.records, at.0))
        } else {
            SetKey::narrow(self.shape, self.narrow.key(&self.records, at.0))
        }
    }

    /// Slots of both tables, the range of [`scan`](Self::scan).
    pub fn slots(&self) -> usize {
        self.narrow.slots() + self.wide.slots()
    }

    /// Visits the live records among `count` slots from `from`.
    #[inline]
    pub fn scan(&mut self, from: usize, count: usize, mut visit: impl FnMut(SetSlot, SetMeta)) {
        let narrow = self.narrow.slots();
        let records = &self.records;
        self.narrow.scan(from, count, |slot| visit(SetSlot(slot), records.meta(slot)));
        let end = from + count;
        if end > narrow && !self.wide.is_empty() {
            let from = from.max(narrow) - narrow;
            self.wide.scan(from, end - narrow - from, |slot| visit(SetSlot(slot), records.meta(slot)));
        }
    }
}

/// States of one function, to reach by place.
#[derive(Debug)]
pub(crate) struct StatesAt<'a, S>(States<'a, S>);

impl<S: Plain> StatesAt<'_, S> {
    /// Meta and state; none if there is no record.
    #[inline(always)]
    pub(crate) fn get(&mut self, at: SetSlot) -> Option<(&mut SetMeta, &mut S)> {
        self.0.get(at.0)
    }
}

/// What handlers changed in set tables since the last commit, to take back.
#[derive(Debug, Default)]
pub struct SetUndo {
    changes: Vec<(SetSlot, Change)>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Change {
    State { offset: u32, len: u32 },
    Meta(SetMeta),
    Inserted,
}

impl SetUndo {
    /// A place to return to.
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.changes.len()
    }

    /// The attempt is committed.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.changes.clear();
        self.bytes.clear();
    }

    #[inline(always)]
    pub(crate) fn save_state<S: Plain>(&mut self, at: SetSlot, offset: usize, state: &S) {
        if size_of::<S>() > 0 {
            self.changes.push((at, Change::State { offset: offset as u32, len: size_of::<S>() as u32 }));
            self.bytes.extend_from_slice(state.as_bytes());
        }
    }

    #[inline(always)]
    pub(crate) fn save_meta(&mut self, at: SetSlot, meta: SetMeta) {
        self.changes.push((at, Change::Meta(meta)));
    }

    /// Takes back everything after `mark`, newest first.
    pub fn restore(&mut self, tables: &mut SetTables, mark: usize) {
        while self.changes.len() > mark {
            let Some((at, change)) = self.changes.pop() else { break };
            match change {
                Change::State { offset, len } => {
                    let from = self.bytes.len() - len as usize;
                    let place = offset as usize..(offset + len) as usize;
                    tables.records.state_bytes_mut(at.0)[place].copy_from_slice(&self.bytes[from..]);
                    self.bytes.truncate(from);
                }
                Change::Meta(meta) => tables.restore_meta(at, meta),
                Change::Inserted => tables.give_away(at),
            }
        }
    }
}

/// A set that is not live yet, in a first-packet handler.
#[derive(Debug)]
pub struct NewSet<'a, S> {
    place: Place<'a>,
    /// Holds an `S` when registered; stays on the worker's thread.
    kind: PhantomData<(S, *const ())>,
}

/// Where it would go.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    Local(NewPlace<'a>),
    Shared(SharedPlace<'a>),
}

#[derive(Debug)]
pub(crate) struct NewPlace<'a> {
    pub(crate) tables: &'a mut SetTables,
    pub(crate) undo: &'a mut SetUndo,
    pub(crate) keys: &'a Keys,
    pub(crate) slot: &'a mut SetSlot,
    pub(crate) index: usize,
    pub(crate) now_ms: u32,
    pub(crate) bit: u16,
    pub(crate) offset: usize,
}

impl<'a, S: Plain> NewSet<'a, S> {
    #[inline(always)]
    pub(crate) fn new(place: Place<'a>) -> NewSet<'a, S> {
        NewSet { place, kind: PhantomData }
    }

    /// The set's key.
    pub fn key(&self) -> SetKey {
        match &self.place {
            Place::Local(place) => place.keys.key(place.index),
            Place::Shared(place) => place.key,
        }
    }

    /// Makes the set live with this state. False if the table is full: then the set's next packet is a first one again, and
    /// the function decides what becomes of packets it cannot remember.
    #[must_use = "the table may be full"]
    pub fn register(&mut self, tx: &mut Tx, state: S) -> bool {
        match &mut self.place {
            Place::Local(place) => place.register(tx, state),
            Place::Shared(place) => place.register(tx, &state),
        }
    }
}

impl NewPlace<'_> {
    fn register<S: Plain>(&mut self, tx: &mut Tx, state: S) -> bool {
        // A full table is this worker's affair, and so is when the record of a set that ended makes room: a certificate
        // replays the answer, and that is why it is asked for whether or not there is a record.
        let has_record = *self.slot != SetSlot::MISS;
        let has_room = tx.choice(|| u64::from(has_record || self.tables.len() < self.tables.capacity)) != 0;
        let slot = match has_room {
            true if has_record => Some(*self.slot),
            true => self.insert(),
            false => None,
        };
        let Some(slot) = slot else {
            self.tables.refused += 1;
            return false;
        };
        let meta = *self.tables.meta_mut(slot);
        // A record that is new goes as a whole.
        if has_record {
            self.undo.save_meta(slot, meta);
            self.undo.save_state(slot, self.offset, self.tables.state::<S>(slot, self.offset));
        }
        self.tables.set_live(slot, meta.live | self.bit);
        *self.tables.state::<S>(slot, self.offset) = state;
        true
    }

    /// Makes a record; none if there is no room after all.
    fn insert(&mut self) -> Option<SetSlot> {
        let slot = self.tables.insert(self.keys, self.index)?;
        *self.slot = slot;
        self.undo.changes.push((slot, Change::Inserted));
        self.tables.meta_mut(slot).last_seen_ms = self.now_ms;
        Some(slot)
    }
}
