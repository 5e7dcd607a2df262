//! The logs of an attempt: what it has read and what it intends to write.
//!
//! Both logs grow without limit (the runtime of NFOS overwrites memory at the 1025th read). A savepoint is a set of lengths.
//! Rolling back truncates the logs to them and restores the values of writes that have been replaced since.

use std::panic::Location;

use crate::conflict::Op;
use crate::header::Header;
use crate::raw::object::{LINE, ObjectRef, span};

/// A logged read: half a cache line.
#[derive(Clone, Copy)]
pub(crate) struct ReadEntry {
    pub(crate) object: ObjectRef,
    pub(crate) seen: Header,
    pub(crate) source: &'static Source,
    pub(crate) op: Op,
}

/// The source line in the network function that reads or writes.
pub(crate) type Source = Location<'static>;

/// A buffered write. A value of up to a cache line is stored in the entry, a longer one in the log's `long` words.
#[derive(Clone, Copy)]
pub(crate) struct WriteEntry {
    pub(crate) object: ObjectRef,
    /// The header under which the object was read when this entry was made, or `Header::NONE` if it was not read. It serves
    /// as an entry of the read log: the lock succeeds only on this very header. While the object is locked: the header that
    /// the lock replaced.
    pub(crate) seen: Header,
    pub(crate) source: &'static Source,
    /// Operation and worker in the format of a header, plus `BLIND`.
    signed: u16,
    words: u16,
    /// The savepoint after which the value was written.
    since: u32,
    /// The value, or in its first word the start of the value in `long`.
    value: [u64; LINE],
}

/// Flag beside the signature of a header: the object was not read when the entry was made, so any header may be locked.
const BLIND: u16 = 1 << 15;

impl WriteEntry {
    const VACANT: WriteEntry = WriteEntry {
        object: ObjectRef::NOWHERE,
        seen: Header::NONE,
        source: Location::caller(),
        signed: 0,
        words: 0,
        since: 0,
        value: [0; LINE],
    };

    #[inline(always)]
    pub(crate) fn signature(&self) -> u16 {
        self.signed & !BLIND
    }

    pub(crate) fn op(&self) -> Op {
        Header::settled(0, self.signature()).op()
    }

    pub(crate) fn is_blind(&self) -> bool {
        self.signed & BLIND != 0
    }
}

/// The writer: operation and worker in the format of a header, and the source line.
#[derive(Clone, Copy)]
pub(crate) struct Author {
    pub(crate) signature: u16,
    pub(crate) source: &'static Source,
}

/// A point of an attempt to which it can be rolled back; the default is the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Savepoint {
    pub(crate) active: bool,
    /// Whether a conflict happened before it and was swallowed.
    pub(crate) poisoned: bool,
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    pub(crate) long: usize,
    pub(crate) replaced: usize,
    pub(crate) deferred: usize,
    pub(crate) choices: usize,
}

/// Buffered writes, with an index by object.
pub(crate) struct WriteLog {
    /// The first `len` entries are in use; there is always room for one more.
    entries: Vec<WriteEntry>,
    len: usize,
    /// Values longer than a line; the first `len_long` words are in use.
    long: Vec<u64>,
    len_long: usize,
    /// Original entries whose values were replaced after a savepoint: (position, earlier entry).
    replaced: Vec<(u32, WriteEntry)>,
    /// Index by hash of the object: epoch << 32 | position; a slot with another epoch is vacant.
    slots: Vec<u64>,
    epoch: u32,
    /// Number of savepoints; a value written since the latest one may be changed in place.
    savepoint: u32,
}

impl WriteLog {
    pub(crate) fn new() -> WriteLog {
        WriteLog {
            entries: vec![WriteEntry::VACANT; 257],
            len: 0,
            long: Vec::new(),
            len_long: 0,
            replaced: Vec::new(),
            slots: vec![0; 512],
            epoch: 1,
            savepoint: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn entries(&self) -> &[WriteEntry] {
        &self.entries[..self.len]
    }

    #[inline(always)]
    pub(crate) fn entries_mut(&mut self) -> &mut [WriteEntry] {
        &mut self.entries[..self.len]
    }

    #[inline(always)]
    pub(crate) fn entry(&self, position: usize) -> &WriteEntry {
        &self.entries()[position]
    }

    /// Returns the buffered value of an entry.
    #[inline(always)]
    pub(crate) fn value<'a>(&'a self, entry: &'a WriteEntry) -> &'a [u64] {
        let words = usize::from(entry.words);
        if words <= LINE { &entry.value[..words] } else { self.long_value(entry) }
    }

    /// Returns the buffered value of an entry, and the words up to the end of the line that are stored with it.
    #[inline(always)]
    pub(crate) fn value_to_store<'a>(&'a self, entry: &'a WriteEntry) -> &'a [u64] {
        let words = span(usize::from(entry.words));
        if words <= LINE { &entry.value[..words] } else { self.long_value(entry) }
    }

    #[inline(never)]
    fn long_value(&self, entry: &WriteEntry) -> &[u64] {
        let start = entry.value[0] as usize;
        &self.long[start..start + usize::from(entry.words)]
    }

    #[inline(always)]
    fn home(&self, object: ObjectRef) -> usize {
        // Fibonacci hashing of the half-line number; the top bits are mixed best.
        ((object.address() >> 5).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) & (self.slots.len() - 1)
    }

    /// Returns the position of the entry for an object.
    #[inline(always)]
    pub(crate) fn find(&self, object: ObjectRef) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.probe(object).ok()
    }

    /// Returns the position of the entry for an object, or the vacant slot for it.
    #[inline(always)]
    pub(crate) fn probe(&self, object: ObjectRef) -> Result<usize, usize> {
        let mut at = self.home(object);
        loop {
            // The index is never full: `push` keeps at least half of the slots vacant.
            let slot = self.slots[at];
            if (slot >> 32) as u32 != self.epoch {
                return Err(at);
            }
            let position = slot as u32 as usize;
            if self.entries[position].object == object {
                return Ok(position);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Returns room for the value of an object that is not in the log, up to the stored length; nothing is entered before `push`.
    #[inline(always)]
    pub(crate) fn room(&mut self, words: usize) -> &mut [u64] {
        let words = span(words);
        if words <= LINE { &mut self.entries[self.len].value[..words] } else { self.long_room(words) }
    }

    #[inline(never)]
    fn long_room(&mut self, words: usize) -> &mut [u64] {
        let start = self.len_long;
        if start + words > self.long.len() {
            self.long.resize((self.long.len() * 2).max(start + words), 0);
        }
        &mut self.long[start..start + words]
    }

    /// Enters an object whose value is in the `room` and for which `probe` returned a vacant slot, and returns its value.
    #[inline(always)]
    pub(crate) fn push<const IS_BLIND: bool>(
        &mut self,
        object: ObjectRef,
        vacant: usize,
        words: usize,
        seen: Header,
        author: Author,
    ) -> &mut [u64] {
        let position = self.len;
        self.len += 1;
        self.slots[vacant] = u64::from(self.epoch) << 32 | position as u64;
        self.entries[position].object = object;
        // After that, because the index is rebuilt from the entries, including this one.
        if self.len * 2 > self.slots.len() {
            self.widen();
        }
        let entry = &mut self.entries[position];
        entry.seen = if IS_BLIND { Header::NONE } else { seen };
        entry.source = author.source;
        entry.signed = if IS_BLIND { author.signature | BLIND } else { author.signature };
        entry.words = words as u16;
        entry.since = self.savepoint;
        if words <= LINE {
            return &mut entry.value[..words];
        }
        let start = self.len_long;
        entry.value[0] = start as u64;
        self.len_long += words;
        &mut self.long[start..start + words]
    }

    /// Returns the buffered value at a position, of an object with `words` words, to be changed in place. If there has been a
    /// savepoint since, the earlier value is kept.
    #[inline(always)]
    pub(crate) fn put_again(&mut self, position: usize, words: usize, author: Author) -> &mut [u64] {
        if self.entries[position].since != self.savepoint {
            self.keep(position);
        }
        let entry = &mut self.entries[position];
        entry.signed = author.signature | entry.signed & BLIND;
        entry.source = author.source;
        if words <= LINE {
            return &mut entry.value[..words];
        }
        let start = entry.value[0] as usize;
        &mut self.long[start..start + words]
    }

    /// Keeps a copy of an entry before its value is replaced.
    #[inline(never)]
    fn keep(&mut self, position: usize) {
        let before = self.entries[position];
        self.replaced.push((position as u32, before));
        let words = usize::from(before.words);
        if words > LINE {
            let (start, again) = (before.value[0] as usize, self.len_long);
            self.long_room(words);
            self.long.copy_within(start..start + words, again);
            self.entries[position].value[0] = again as u64;
            self.len_long += words;
        }
        self.entries[position].since = self.savepoint;
    }

    /// Doubles the slots, half of which stay vacant, and adds entries for the other half.
    #[cold]
    #[inline(never)]
    fn widen(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        self.entries.resize(self.slots.len() / 2 + 1, WriteEntry::VACANT);
        self.reindex();
    }

    #[cold]
    fn reindex(&mut self) {
        self.forget_slots();
        for position in 0..self.len {
            let mut at = self.home(self.entries[position].object);
            while (self.slots[at] >> 32) as u32 == self.epoch {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = u64::from(self.epoch) << 32 | position as u64;
        }
    }

    #[inline(always)]
    fn forget_slots(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            // After 2^32 epochs, an old slot would look valid.
            self.slots.fill(0);
            self.epoch = 1;
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        if self.len != 0 {
            self.len = 0;
            self.len_long = 0;
            self.replaced.clear();
            self.forget_slots();
        }
    }

    /// Returns the lengths (entries, long values, replaced) for a savepoint.
    #[inline(always)]
    pub(crate) fn mark(&mut self) -> (usize, usize, usize) {
        self.savepoint = self.savepoint.wrapping_add(1);
        (self.len, self.len_long, self.replaced.len())
    }

    pub(crate) fn truncate(&mut self, to: &Savepoint) {
        for (position, before) in self.replaced.drain(to.replaced..).rev() {
            self.entries[position as usize] = before;
        }
        self.len_long = to.long;
        // What is left was written before that savepoint.
        self.savepoint = self.savepoint.wrapping_add(1);
        if self.len > to.writes {
            self.len = to.writes;
            self.reindex();
        }
    }
}
