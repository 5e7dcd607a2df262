//! Two flow tables and the records of both: keys of IPv4 size in one table, longer ones in another, so that the long ones do not
//! slow the short ones.

use std::ops::Range;

use braid_packet::key::{DEFAULT_SEED, KeyClass, KeyHash, KeyShape, Keys, SetKey};
use braid_state::{FlowTable, HugePages, MemoryError, NO_SLOT, Records, SetMeta, Slot};

use super::SetSlot;

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

/// Places of sets by key. It counts nothing and keeps no limit but that of its room.
#[derive(Debug)]
pub(super) struct Pair {
    narrow: FlowTable<2>,
    wide: FlowTable<5>,
    pub(super) records: Records,
    shape: KeyShape,
}

impl Pair {
    /// Room for `capacity` sets of either kind.
    pub(super) fn new(
        capacity: usize,
        state_bytes: usize,
        shape: KeyShape,
        pages: HugePages,
    ) -> Result<Pair, MemoryError> {
        let narrow = FlowTable::new(capacity, state_bytes, 0)?;
        let wide = FlowTable::<5>::new(capacity, state_bytes, narrow.end())?;
        let records = Records::new(wide.end(), state_bytes, 5, pages)?;
        Ok(Pair { narrow, wide, records, shape })
    }

    pub(super) fn shape(&self) -> KeyShape {
        self.shape
    }

    /// Records with short keys, and with long ones.
    #[inline(always)]
    pub(super) fn lens(&self) -> [usize; 2] {
        [self.narrow.len(), self.wide.len()]
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.bytes()
    }

    /// The part of it that sets with long keys alone touch: theirs are the last records.
    pub(super) fn wide_bytes(&self) -> usize {
        let halves = self.wide.end().max(1) as u128;
        (self.records.bytes() as u128 * (halves - self.narrow.end() as u128) / halves) as usize
    }

    /// Touches the pages for sets with short keys, and with long ones, as asked.
    pub(super) fn touch(&self, [narrow, wide]: [bool; 2]) {
        if narrow {
            self.narrow.touch(&self.records);
        }
        if wide {
            self.wide.touch(&self.records);
        }
    }

    /// Looks up the keys of the packets in `todo`, misses overlapped. `found` is called for each that has a key; for equal ones
    /// in order.
    #[inline]
    pub(super) fn look_up(
        &mut self,
        keys: &Keys,
        todo: &[u16],
        mut found: impl FnMut(usize, SetSlot, Option<&mut SetMeta>),
    ) {
        let (records, narrow, wide) = (&mut self.records, (&keys.narrow, &keys.hash), (&keys.wide, &keys.hash));
        let mut found = |i, slot, meta: Option<&mut SetMeta>| found(i, SetSlot(slot), meta);
        match keys.of_all {
            KeyClass::Narrow => self.narrow.look_up(records, todo, narrow, found),
            KeyClass::Wide => self.wide.look_up(records, todo, wide, found),
            KeyClass::None => {
                let split = Split::new(keys, todo);
                self.narrow.look_up(records, split.narrow(), narrow, &mut found);
                self.wide.look_up(records, split.wide(), wide, &mut found);
            }
        }
    }

    /// The record of packet `i`'s set.
    #[inline]
    pub(super) fn find(&self, keys: &Keys, i: usize) -> SetSlot {
        let found = match keys.class[i] {
            KeyClass::Narrow => self.narrow.find(&self.records, &keys.narrow[i], keys.hash[i]),
            KeyClass::Wide => self.wide.find(&self.records, &keys.wide[i], keys.hash[i]),
            KeyClass::None => None,
        };
        SetSlot(found.unwrap_or(NO_SLOT))
    }

    /// The record of a key.
    pub(super) fn find_key(&self, key: &SetKey) -> SetSlot {
        let hash = hash_of(key);
        let found = match key.class() {
            KeyClass::Narrow => self.narrow.find(&self.records, &key.narrow_words(), hash),
            KeyClass::Wide => self.wide.find(&self.records, &key.wide_words(), hash),
            KeyClass::None => None,
        };
        SetSlot(found.unwrap_or(NO_SLOT))
    }

    /// Makes a record for the set of packet `i`, which has none; none if there is no room.
    pub(super) fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &keys.narrow[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &keys.wide[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::None => None,
        }
    }

    /// The same for a key that has none.
    pub(super) fn insert_key(&mut self, key: &SetKey, hash: u64) -> Option<SetSlot> {
        match key.class() {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &key.narrow_words(), hash).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &key.wide_words(), hash).ok().map(SetSlot),
            KeyClass::None => None,
        }
    }

    /// Asks for what an insertion of a key of a class looks at first.
    pub(super) fn prefetch(&self, class: KeyClass, hash: u64) {
        match class {
            KeyClass::Narrow => self.narrow.prefetch(&self.records, hash),
            KeyClass::Wide => self.wide.prefetch(&self.records, hash),
            KeyClass::None => {}
        }
    }

    /// Whether a record has a long key.
    #[inline(always)]
    fn is_wide(&self, at: SetSlot) -> bool {
        at.0 as usize >= self.narrow.end()
    }

    /// Has some of those that found no place but the stash leave it ([`FlowTable::bring_home`]).
    pub(super) fn bring_home(&mut self, turn: usize) {
        let (shape, records) = (self.shape, &mut self.records);
        self.narrow.bring_home(records, turn, |key| hash_of(&SetKey::narrow(shape, *key)));
        self.wide.bring_home(records, turn, |key| hash_of(&SetKey::wide(shape, *key)));
    }

    /// Ends a record's life.
    pub(super) fn remove(&mut self, at: SetSlot) {
        if self.is_wide(at) {
            self.wide.remove(&mut self.records, at.0);
        } else {
            self.narrow.remove(&mut self.records, at.0);
        }
    }

    /// Whether a record is there.
    pub(super) fn holds(&self, at: SetSlot) -> bool {
        if self.is_wide(at) { self.wide.holds(&self.records, at.0) } else { self.narrow.holds(&self.records, at.0) }
    }

    /// The key of a record, to print and compare.
    #[inline(always)]
    pub(super) fn key(&self, at: SetSlot) -> SetKey {
        if self.is_wide(at) {
            SetKey::wide(self.shape, self.wide.key(&self.records, at.0))
        } else {
            SetKey::narrow(self.shape, self.narrow.key(&self.records, at.0))
        }
    }

    /// Slots of both tables, the range of [`scan`](Self::scan).
    pub(super) fn slots(&self) -> usize {
        self.narrow.slots() + self.wide.slots()
    }

    /// Those of the table with more records.
    pub(super) fn denser_slots(&self) -> Range<usize> {
        let narrow = self.narrow.slots();
        if self.narrow.len() >= self.wide.len() { 0..narrow } else { narrow..self.slots() }
    }

    /// Visits the live records among `count` slots from `from`.
    #[inline]
    pub(super) fn scan(&self, from: usize, count: usize, mut visit: impl FnMut(SetSlot, SetMeta)) {
        let (narrow, records) = (self.narrow.slots(), &self.records);
        let mut visit = |slot: Slot| visit(SetSlot(slot), records.meta(slot));
        self.narrow.scan(records, from, count, &mut visit);
        let end = from + count;
        if end > narrow && !self.wide.is_empty() {
            let from = from.max(narrow) - narrow;
            self.wide.scan(records, from, end - narrow - from, visit);
        }
    }
}

/// The hash under which a key's record is found: that of packets with the key.
pub(super) fn hash_of(key: &SetKey) -> u64 {
    key.hash_with(KeyHash::new(DEFAULT_SEED))
}
