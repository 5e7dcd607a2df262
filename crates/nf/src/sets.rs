//! Packet-set state of one worker: the flow tables of one group of functions, and how a handler makes a set live.

use std::marker::PhantomData;

use braid_packet::key::{DEFAULT_SEED, KeyClass, KeyHash, KeyShape, Keys, SetKey};
use braid_state::{FlowTable, HugePages, MemoryError, NO_SLOT, Plain, RecordMut, SetMeta, Slot, States, Tx};

use crate::shared::SharedPlace;

/// A set's place: which table, which slot; or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetSlot(u32);

const WIDE: u32 = 1 << 31;

impl SetSlot {
    /// No record.
    pub const MISS: SetSlot = SetSlot(NO_SLOT);

    #[inline(always)]
    fn wide(slot: Slot) -> SetSlot {
        SetSlot(slot | WIDE)
    }

    #[inline(always)]
    fn is_wide(self) -> bool {
        self.0 & WIDE != 0
    }

    #[inline(always)]
    fn slot(self) -> Slot {
        self.0 & !WIDE
    }
}

/// The sets of one group (functions with the same packet-set definition) on one worker: IPv4-sized keys in one table, longer
/// ones in another, so that the long ones do not slow the short ones.
#[derive(Debug)]
pub struct SetTables {
    narrow: FlowTable<2>,
    wide: FlowTable<5>,
    capacity: usize,
    shape: KeyShape,
    created: u64,
    ended: u64,
    refused: u64,
}

/// Runs `$body` with `$table` bound to the table of `$at`.
macro_rules! on_table {
    ($self:ident, $at:ident, $table:ident => $body:expr) => {
        if $at.is_wide() {
            let $table = &mut $self.wide;
            $body
        } else {
            let $table = &mut $self.narrow;
            $body
        }
    };
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
        let narrow = FlowTable::new(capacity, state_bytes, pages)?;
        let wide = FlowTable::new(capacity, state_bytes, pages)?;
        Ok(SetTables { narrow, wide, capacity, shape, created: 0, ended: 0, refused: 0 })
    }

    /// Bytes of the record of a set with a short key (IPv4) and with a long one (IPv6), in whole cache lines.
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
        self.narrow.memory_bytes() + self.wide.memory_bytes()
    }

    /// Looks up the keys of the packets in `todo`, misses overlapped. `found` is called for each that has a key: in order
    /// among the short keys, and in order among the long ones.
    #[inline]
    pub fn lookup_batch(
        &mut self,
        keys: &Keys,
        todo: &[u16],
        mut found: impl FnMut(usize, SetSlot, Option<&mut SetMeta>),
    ) {
        if keys.all_narrow {
            let found = |i, slot, meta: Option<&mut SetMeta>| found(i, SetSlot(slot), meta);
            return self.narrow.lookup_batch(todo, &keys.narrow, &keys.hash, found);
        }
        let (mut narrow, mut wide) = ([0u16; 256], [0u16; 256]);
        let (mut narrows, mut wides) = (0, 0);
        for &i in todo {
            // Both are written and one is kept: cheaper than a branch that packets of both kinds would mislead.
            narrow[narrows & 255] = i;
            wide[wides & 255] = i;
            narrows += usize::from(keys.class[i as usize & 255] == KeyClass::Narrow);
            wides += usize::from(keys.class[i as usize & 255] == KeyClass::Wide);
        }
        let (narrow, wide) = (&narrow[..narrows.min(256)], &wide[..wides.min(256)]);
        self.narrow.lookup_batch(narrow, &keys.narrow, &keys.hash, |i, slot, meta| found(i, SetSlot(slot), meta));
        if !wide.is_empty() {
            let mut found = |i, slot: Slot, meta: Option<&mut SetMeta>| {
                found(i, if slot == NO_SLOT { SetSlot::MISS } else { SetSlot::wide(slot) }, meta);
            };
            self.wide.lookup_batch(wide, &keys.wide, &keys.hash, &mut found);
        }
    }

    /// The record of packet `i`'s set.
    #[inline]
    pub fn find(&self, keys: &Keys, i: usize) -> SetSlot {
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.find(&keys.narrow[i], keys.hash[i]).map(SetSlot),
            KeyClass::Wide => self.wide.find(&keys.wide[i], keys.hash[i]).map(SetSlot::wide),
            KeyClass::None => None,
        }
        .unwrap_or(SetSlot::MISS)
    }

    /// The record of a key.
    pub fn find_key(&self, key: &SetKey) -> SetSlot {
        let hash = key.hash_with(KeyHash::new(DEFAULT_SEED));
        let found = match key.class() {
            KeyClass::Narrow => self.narrow.find(&key.narrow_words(), hash).map(SetSlot),
            KeyClass::Wide => self.wide.find(&key.wide_words(), hash).map(SetSlot::wide),
            KeyClass::None => None,
        };
        found.unwrap_or(SetSlot::MISS)
    }

    fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        if self.len() >= self.capacity {
            return None;
        }
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.insert(&keys.narrow[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&keys.wide[i], keys.hash[i]).ok().map(SetSlot::wide),
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
            KeyClass::Narrow => self.narrow.insert(&key.narrow_words(), hash).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&key.wide_words(), hash).ok().map(SetSlot::wide),
            KeyClass::None => None,
        }?;
        self.meta_mut(at).last_seen_ms = meta.last_seen_ms;
        self.set_live(at, meta.live);
        Some(at)
    }

    /// The states of all functions of the group, to change.
    pub fn states_mut(&mut self, at: SetSlot, change: impl FnOnce(&mut [u8])) {
        change(self.record_mut(at).states());
    }

    /// Removes a record whose set goes on in another worker's table: it counts there.
    pub fn give_away(&mut self, at: SetSlot) {
        self.created -= u64::from(self.meta_mut(at).live != 0);
        self.remove(at);
    }

    /// Ends a record's life.
    pub fn remove(&mut self, at: SetSlot) {
        on_table!(self, at, table => table.remove(at.slot()));
    }

    /// A record, to read and change.
    #[inline(always)]
    pub(crate) fn record_mut(&mut self, at: SetSlot) -> RecordMut<'_> {
        on_table!(self, at, table => table.record_mut(at.slot()))
    }

    /// State of one function, at its offset.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, at: SetSlot, offset: usize) -> &mut S {
        on_table!(self, at, table => table.state(at.slot(), offset))
    }

    /// The states of one function in all records of IPv4-sized keys, for a loop over packets.
    #[inline(always)]
    pub(crate) fn narrow_states<S: Plain>(&mut self, offset: usize) -> NarrowStates<'_, S> {
        NarrowStates(self.narrow.states(offset))
    }

    /// Copies the states of all functions of the group.
    pub fn state_bytes(&mut self, at: SetSlot) -> Vec<u8> {
        self.record_mut(at).states().to_vec()
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta_mut(&mut self, at: SetSlot) -> &mut SetMeta {
        on_table!(self, at, table => table.meta_mut(at.slot()))
    }

    /// The key of a record, to print and compare.
    pub fn key(&self, at: SetSlot) -> SetKey {
        if at.is_wide() {
            SetKey::wide(self.shape, self.wide.key(at.slot()))
        } else {
            SetKey::narrow(self.shape, self.narrow.key(at.slot()))
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
        self.narrow.scan(from, count, |table, slot| visit(SetSlot(slot), table.meta(slot)));
        let end = from + count;
        if end > narrow && !self.wide.is_empty() {
            let from = from.max(narrow) - narrow;
            self.wide.scan(from, end - narrow - from, |table, slot| visit(SetSlot::wide(slot), table.meta(slot)));
        }
    }
}

/// States of one function, to reach by place.
#[derive(Debug)]
pub(crate) struct NarrowStates<'a, S>(States<'a, S>);

impl<S: Plain> NarrowStates<'_, S> {
    /// Meta and state; none if there is no record, or it has a longer key: both numbers are greater than any slot's.
    #[inline(always)]
    pub(crate) fn get(&mut self, at: SetSlot) -> Option<(&mut SetMeta, &mut S)> {
        self.0.get(at.0 as usize)
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
                    tables.record_mut(at).states()[place].copy_from_slice(&self.bytes[from..]);
                    self.bytes.truncate(from);
                }
                Change::Meta(meta) => tables.restore_meta(at, meta),
                Change::Inserted => tables.remove(at),
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
        self.undo.save_meta(slot, meta);
        self.undo.save_state(slot, self.offset, self.tables.state::<S>(slot, self.offset));
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
