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

/// A buffered write.
#[derive(Clone, Copy)]
pub(crate) struct WriteEntry {
    pub(crate) object: ObjectRef,
    /// The header that the lock replaced, while committing.
    pub(crate) old: Header,
    pub(crate) payload: Payload,
}

/// Where the buffered value lies and who wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    offset: u32,
    words: u32,
    pub(crate) op: Op,
    pub(crate) source: &'static Source,
}

/// A place in an attempt to which it can go back.
#[derive(Clone, Copy, Debug)]
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
    values: Vec<u64>,
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
            values: Vec::with_capacity(2048),
            replaced: Vec::new(),
            slots: vec![Slot::default(); 512],
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
        // Fibonacci hashing of the line number; the top bits are the best mixed.
        ((key >> 6).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & (self.slots.len() - 1)
    }

    /// Position of the entry for an object.
    #[inline(always)]
    pub(crate) fn find(&self, object: ObjectRef) -> Option<usize> {
        let key = object.address();
        let mut at = self.home(key);
        loop {
            // Never full: `push` keeps at least half of the slots free.
            let slot = &self.slots[at];
            if slot.epoch != self.epoch {
                return None;
            }
            if slot.key == key {
                return Some(slot.entry as usize);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The value to be written to an object, to be changed in place. A new one is a copy of what was buffered, else zeroes;
    /// the second part says whether it was buffered.
    #[inline(always)]
    pub(crate) fn put(
        &mut self,
        object: ObjectRef,
        words: usize,
        op: Op,
        source: &'static Source,
    ) -> (&mut [u64], bool) {
        if !self.entries.is_empty()
            && let Some(position) = self.find(object)
        {
            return (self.put_again(position, op, source), true);
        }
        let payload = Payload { offset: self.values.len() as u32, words: words as u32, op, source };
        let start = self.values.len();
        self.values.resize(start + words, 0);
        self.push(WriteEntry { object, old: Header(0), payload });
        (&mut self.values[start..], false)
    }

    fn put_again(&mut self, position: usize, op: Op, source: &'static Source) -> &mut [u64] {
        let before = self.entries[position].payload;
        let words = before.words as usize;
        let mut start = before.offset as usize;
        if start < self.mark {
            self.replaced.push((position as u32, before));
            let moved = self.values.len();
            self.values.extend_from_within(start..start + words);
            start = moved;
        }
        self.entries[position].payload = Payload { offset: start as u32, words: before.words, op, source };
        &mut self.values[start..start + words]
    }

    #[inline(always)]
    fn push(&mut self, entry: WriteEntry) {
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.slots = vec![Slot::default(); self.slots.len() * 2];
            self.reindex();
        }
        let position = self.entries.len();
        self.entries.push(entry);
        self.place(position);
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
            self.values.clear();
            self.replaced.clear();
            self.forget_slots();
        }
        self.mark = 0;
    }

    /// (entries, values, replaced), for a savepoint.
    pub(crate) fn mark(&mut self) -> (usize, usize, usize) {
        self.mark = self.values.len();
        (self.entries.len(), self.values.len(), self.replaced.len())
    }

    pub(crate) fn truncate(&mut self, to: &Savepoint) {
        for (position, before) in self.replaced.drain(to.replaced..).rev() {
            self.entries[position as usize].payload = before;
        }
        self.values.truncate(to.values);
        self.mark = to.values;
        if self.entries.len() > to.writes {
            self.entries.truncate(to.writes);
            self.reindex();
        }
    }
}
