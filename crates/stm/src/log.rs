//! What an attempt has read and intends to write.
//!
//! Both logs grow without limit (NFOS overwrites memory at the 1025th read). A savepoint is a set of lengths; going back to it
//! truncates, and restores the values of writes that were replaced since.

use std::panic::Location;

use crate::conflict::Op;
use crate::header::Header;
use crate::raw::object::ObjectRef;

/// One logged read: half a cache line.
#[derive(Clone, Copy)]
pub(crate) struct ReadEntry {
    pub(crate) object: ObjectRef,
    pub(crate) seen: Header,
    pub(crate) source: &'static Source,
    pub(crate) op: Op,
}

/// The line of the network function that reads or writes.
pub(crate) type Source = Location<'static>;

/// A buffered write: half a cache line.
#[derive(Clone, Copy)]
pub(crate) struct WriteEntry {
    pub(crate) object: ObjectRef,
    /// The header under which the object was read when this entry was made, or `Header::NONE` if it was not read then. Stands
    /// for an entry of the read log: the lock succeeds only on this very header. While locked: what the lock replaced.
    pub(crate) seen: Header,
    pub(crate) payload: Payload,
}

/// Where the buffered value lies and who wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    offset: u32,
    words: u16,
    pub(crate) op: Op,
    /// The object was not read when the entry was made: any header may be locked.
    pub(crate) blind: bool,
    pub(crate) source: &'static Source,
}

/// A place in an attempt to which it can go back; by default the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Savepoint {
    pub(crate) active: bool,
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    pub(crate) values: usize,
    pub(crate) replaced: usize,
    pub(crate) deferred: usize,
    pub(crate) choices: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    key: usize,
    epoch: u32,
    entry: u32,
}

/// Buffered writes with an index by object.
pub(crate) struct WriteLog {
    entries: Vec<WriteEntry>,
    /// Values, of which the first `len_values` words are in use.
    values: Vec<u64>,
    len_values: usize,
    /// Payloads that were replaced after a savepoint: (entry, payload before).
    replaced: Vec<(u32, Payload)>,
    slots: Vec<Slot>,
    epoch: u32,
    /// Values from here on were written after the last savepoint and may be changed in place.
    mark: usize,
}

impl WriteLog {
    pub(crate) fn new() -> WriteLog {
        WriteLog {
            entries: Vec::with_capacity(256),
            values: vec![0; 2048],
            len_values: 0,
            replaced: Vec::new(),
            slots: vec![Slot::default(); 128],
            epoch: 1,
            mark: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    pub(crate) fn entry(&self, position: usize) -> &WriteEntry {
        &self.entries[position]
    }

    #[inline(always)]
    pub(crate) fn entries(&self) -> &[WriteEntry] {
        &self.entries
    }

    #[inline(always)]
    pub(crate) fn entries_mut(&mut self) -> &mut [WriteEntry] {
        &mut self.entries
    }

    #[inline(always)]
    pub(crate) fn value(&self, entry: &WriteEntry) -> &[u64] {
        let offset = entry.payload.offset as usize;
        &self.values[offset..offset + entry.payload.words as usize]
    }

    #[inline(always)]
    fn home(&self, key: usize) -> usize {
        // Fibonacci hashing of the number of the half line; the top bits are the best mixed.
        ((key >> 5).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & (self.slots.len() - 1)
    }

    /// Position of the entry for an object.
    #[inline(always)]
    pub(crate) fn find(&self, object: ObjectRef) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        self.probe(object).ok()
    }

    /// Position of the entry for an object, or the slot where it would be noted.
    #[inline(always)]
    pub(crate) fn probe(&self, object: ObjectRef) -> Result<usize, usize> {
        let key = object.address();
        let mut at = self.home(key);
        loop {
            // Never full: `push_new` keeps at least half of the slots free.
            let slot = &self.slots[at];
            if slot.epoch != self.epoch {
                return Err(at);
            }
            if slot.key == key {
                return Ok(slot.entry as usize);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Room for the value of an object that is not in the log; nothing is entered before `push_new`.
    #[inline(always)]
    pub(crate) fn room(&mut self, words: usize) -> &mut [u64] {
        let start = self.len_values;
        if start + words > self.values.len() {
            self.grow(words);
        }
        &mut self.values[start..start + words]
    }

    #[cold]
    fn grow(&mut self, words: usize) {
        let most = (self.values.len() * 2).max(self.len_values + words);
        self.values.resize(most, 0);
    }

    /// Enters an object whose value is in the `room` and whose slot `probe` found vacant, and returns that value.
    #[inline(always)]
    pub(crate) fn push_new(
        &mut self,
        object: ObjectRef,
        vacant: usize,
        words: usize,
        seen: Header,
        op: Op,
        source: &'static Source,
    ) -> &mut [u64] {
        let start = self.len_values;
        self.len_values += words;
        let blind = seen == Header::NONE;
        let payload = Payload { offset: start as u32, words: words as u16, op, blind, source };
        let position = self.entries.len();
        self.entries.push(WriteEntry { object, seen, payload });
        self.slots[vacant] = Slot { key: object.address(), epoch: self.epoch, entry: position as u32 };
        if self.entries.len() * 2 > self.slots.len() {
            self.widen();
        }
        &mut self.values[start..start + words]
    }

    /// The buffered value at a position, to be changed in place; a savepoint in between keeps what it was.
    #[inline(always)]
    pub(crate) fn put_again(&mut self, position: usize, op: Op, source: &'static Source) -> &mut [u64] {
        let before = self.entries[position].payload;
        let words = before.words as usize;
        let mut start = before.offset as usize;
        if start < self.mark {
            self.replaced.push((position as u32, before));
            self.room(words);
            self.values.copy_within(start..start + words, self.len_values);
            start = self.len_values;
            self.len_values += words;
        }
        self.entries[position].payload = Payload { offset: start as u32, op, source, ..before };
        &mut self.values[start..start + words]
    }

    #[cold]
    fn widen(&mut self) {
        self.slots = vec![Slot::default(); self.slots.len() * 2];
        self.reindex();
    }

    #[inline(always)]
    fn place(&mut self, position: usize) {
        let key = self.entries[position].object.address();
        let mut at = self.home(key);
        while self.slots[at].epoch == self.epoch {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { key, epoch: self.epoch, entry: position as u32 };
    }

    #[cold]
    fn reindex(&mut self) {
        self.forget_slots();
        for position in 0..self.entries.len() {
            self.place(position);
        }
    }

    #[inline(always)]
    fn forget_slots(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // Every 2^32 transactions an old slot could look new.
            self.slots.fill(Slot::default());
            self.epoch = 1;
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.len_values = 0;
            self.replaced.clear();
            self.forget_slots();
        }
        self.mark = 0;
    }

    /// (entries, values, replaced), for a savepoint.
    pub(crate) fn mark(&mut self) -> (usize, usize, usize) {
        self.mark = self.len_values;
        (self.entries.len(), self.len_values, self.replaced.len())
    }

    pub(crate) fn truncate(&mut self, to: &Savepoint) {
        for (position, before) in self.replaced.drain(to.replaced..).rev() {
            self.entries[position as usize].payload = before;
        }
        self.len_values = to.values;
        self.mark = to.values;
        if self.entries.len() > to.writes {
            self.entries.truncate(to.writes);
            self.reindex();
        }
    }
}
