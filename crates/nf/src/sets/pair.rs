//! The two flow tables of a group and their records: one for keys of IPv4 size, one for longer keys, so that long keys
//! do not slow down short ones.

use std::ops::Range;

use braid_packet::key::{KeyClass, KeyHash, KeyShape, Keys, SetKey, seed};
use braid_state::{FlowTable, HugePages, MemoryError, NO_SLOT, Records, SetMeta, Slot};

use super::SetSlot;

/// Packets grouped by the length of their keys; packets without a key are in neither list.
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
            // Both lists are written and one index advances; this is cheaper than a branch that mixed traffic would mispredict.
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

/// Records of sets by key. It keeps no counters and no limit except the room of its tables.
#[derive(Debug)]
pub(super) struct Pair {
    narrow: FlowTable<2>,
    wide: FlowTable<5>,
    pub(super) records: Records,
    shape: KeyShape,
}

impl Pair {
    /// Creates room for `capacity` sets of each kind.
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

    /// Returns the numbers of records with short keys and with long keys.
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

    /// Returns how many bytes are touched only by sets with long keys; their records come last.
    pub(super) fn wide_bytes(&self) -> usize {
        let halves = self.wide.end().max(1) as u128;
        (self.records.bytes() as u128 * (halves - self.narrow.end() as u128) / halves) as usize
    }

    /// Touches the pages for sets with short keys and with long keys, as requested.
    pub(super) fn touch(&self, [narrow, wide]: [bool; 2]) {
        if narrow {
            self.narrow.touch(&self.records);
        }
        if wide {
            self.wide.touch(&self.records);
        }
    }

    /// Looks up the keys of the packets in `todo`, with overlapping cache misses. `found` is called once for each
    /// packet that has a key; packets with equal keys come in order.
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

    /// Returns the record of packet `i`'s set.
    #[inline]
    pub(super) fn find(&self, keys: &Keys, i: usize) -> SetSlot {
        let found = match keys.class[i] {
            KeyClass::Narrow => self.narrow.find(&self.records, &keys.narrow[i], keys.hash[i]),
            KeyClass::Wide => self.wide.find(&self.records, &keys.wide[i], keys.hash[i]),
            KeyClass::None => None,
        };
        SetSlot(found.unwrap_or(NO_SLOT))
    }

    /// Returns the record of a key.
    pub(super) fn find_key(&self, key: &SetKey) -> SetSlot {
        let hash = hash_of(key);
        let found = match key.class() {
            KeyClass::Narrow => self.narrow.find(&self.records, &key.narrow_words(), hash),
            KeyClass::Wide => self.wide.find(&self.records, &key.wide_words(), hash),
            KeyClass::None => None,
        };
        SetSlot(found.unwrap_or(NO_SLOT))
    }

    /// Creates a record for the set of packet `i`, which must not have one; `None` if there is no room.
    pub(super) fn insert(&mut self, keys: &Keys, i: usize) -> Option<SetSlot> {
        match keys.class[i] {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &keys.narrow[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &keys.wide[i], keys.hash[i]).ok().map(SetSlot),
            KeyClass::None => None,
        }
    }

    /// Creates a record for a key, which must not have one; `None` if there is no room.
    pub(super) fn insert_key(&mut self, key: &SetKey, hash: u64) -> Option<SetSlot> {
        match key.class() {
            KeyClass::Narrow => self.narrow.insert(&mut self.records, &key.narrow_words(), hash).ok().map(SetSlot),
            KeyClass::Wide => self.wide.insert(&mut self.records, &key.wide_words(), hash).ok().map(SetSlot),
            KeyClass::None => None,
        }
    }

    /// Prefetches what inserting a key of this class accesses first.
    pub(super) fn prefetch(&self, class: KeyClass, hash: u64) {
        match class {
            KeyClass::Narrow => self.narrow.prefetch(&self.records, hash),
            KeyClass::Wide => self.wide.prefetch(&self.records, hash),
            KeyClass::None => {}
        }
    }

    /// Returns whether a record has a long key.
    #[inline(always)]
    fn is_wide(&self, at: SetSlot) -> bool {
        at.0 as usize >= self.narrow.end()
    }

    /// Moves some sets from the overflow stash to regular places ([`FlowTable::bring_home`]).
    pub(super) fn bring_home(&mut self, turn: usize) {
        let (shape, records) = (self.shape, &mut self.records);
        self.narrow.bring_home(records, turn, |key| hash_of(&SetKey::narrow(shape, *key)));
        self.wide.bring_home(records, turn, |key| hash_of(&SetKey::wide(shape, *key)));
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, at: SetSlot) {
        if self.is_wide(at) {
            self.wide.remove(&mut self.records, at.0);
        } else {
            self.narrow.remove(&mut self.records, at.0);
        }
    }

    /// Returns whether there is a record at this place.
    pub(super) fn holds(&self, at: SetSlot) -> bool {
        if self.is_wide(at) { self.wide.holds(&self.records, at.0) } else { self.narrow.holds(&self.records, at.0) }
    }

    /// Returns the key of a record, to print and compare.
    #[inline(always)]
    pub(super) fn key(&self, at: SetSlot) -> SetKey {
        if self.is_wide(at) {
            SetKey::wide(self.shape, self.wide.key(&self.records, at.0))
        } else {
            SetKey::narrow(self.shape, self.narrow.key(&self.records, at.0))
        }
    }

    /// Returns the number of slots of both tables, the range of [`scan`](Self::scan).
    pub(super) fn slots(&self) -> usize {
        self.narrow.slots() + self.wide.slots()
    }

    /// Returns the slots of the table that holds more records.
    pub(super) fn denser_slots(&self) -> Range<usize> {
        let narrow = self.narrow.slots();
        if self.narrow.len() >= self.wide.len() { 0..narrow } else { narrow..self.slots() }
    }

    /// Visits the records among `count` slots from `from`.
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

/// Returns the hash under which a key's record is found; it equals the hash of packets with the key.
pub(super) fn hash_of(key: &SetKey) -> u64 {
    key.hash_with(KeyHash::new(seed()))
}
