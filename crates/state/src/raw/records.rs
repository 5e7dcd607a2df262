//! Records of packet sets in one region, each a whole number of half cache lines: `| meta, 8 bytes | states … | key, K words |`.
//!
//! The tags of a group of records take the place of one of its records ([`Tags`](super::tags::Tags)). Tables with keys of different lengths share a
//! region. A record is identified by its first half line, and the offset of its states does not depend on its key, so a loop over packets need
//! not know to which table a record belongs. Two records of one half line share a line; a record of whole lines begins at a line if its table
//! does.
//!
//! The interface is safe: every access is checked against the region and borrows the whole of it. Records are plain data, so a position that
//! is not the beginning of a record (but its middle) is an error of the caller, but never undefined behaviour.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use braid_memory::{Error, HugePages, Region, prefetch_second_level};

use crate::Plain;
use crate::flow_table::{SetMeta, Slot};
use crate::raw::tags;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Bytes of half a cache line.
pub(crate) const HALF: usize = LINE / 2;

/// Byte offset of the states in a record.
const STATES: usize = size_of::<SetMeta>();

/// Number of half lines of a record with `state_bytes` of state and a key of `words` words.
pub(crate) const fn halves_of(state_bytes: usize, words: usize) -> usize {
    (STATES + state_bytes.next_multiple_of(8) + words * 8).div_ceil(HALF)
}

/// All records of some tables.
#[derive(Debug)]
pub struct Records {
    region: Region,
    /// Number of half lines at which a record may begin.
    halves: usize,
    /// Half lines of the longest record; this many follow each position at which a record may begin.
    longest: usize,
    state_bytes: usize,
}

/// The states of one type at one offset in all records; the offset is checked once, so that a loop need not check it.
#[derive(Debug)]
pub struct States<'a, S> {
    base: *mut u8,
    halves: usize,
    state: usize,
    kind: PhantomData<&'a mut S>,
}

impl<S: Plain> States<'_, S> {
    /// Whether a record may begin at this position.
    #[inline(always)]
    pub fn has(&self, record: Slot) -> bool {
        (record as usize) < self.halves
    }

    /// The metadata and state of a record. Panics if no record may begin there; a caller that has [asked](Self::has) pays for the check only once.
    #[inline(always)]
    pub fn get(&mut self, record: Slot) -> (&mut SetMeta, &mut S) {
        assert!(self.has(record));
        // SAFETY: the record lies inside the region, metadata and state lie inside the record without overlapping, and each is aligned to
        // eight (`Records::states`); the memory is initialised, every bit pattern is valid, and it is borrowed through `self`.
        unsafe {
            let record = self.base.add(record as usize * HALF);
            (&mut *record.cast(), &mut *record.add(self.state).cast())
        }
    }
}

impl Records {
    /// Maps room for records that begin at one of `halves` half lines, with `state_bytes` of state and keys of at most `words` words.
    pub fn new(halves: usize, state_bytes: usize, words: usize, pages: HugePages) -> Result<Records, Error> {
        let longest = halves_of(state_bytes, words);
        // So that a record, or a line of tags, may begin at any of them.
        let region = Region::new(halves.saturating_add(longest.max(LINE / HALF)).saturating_mul(HALF), pages)?;
        Ok(Records { region, halves, longest, state_bytes })
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Touches the pages of records that begin at one of these half lines.
    pub(crate) fn touch(&self, halves: Range<usize>) {
        self.region.touch(halves.start * HALF..(halves.end + self.longest) * HALF);
    }

    /// Prefetches a record of `halves` half lines that begins at half line `first`, which may be any number.
    #[inline(always)]
    pub(crate) fn prefetch(&self, first: usize, halves: usize) {
        self.prefetch_head(first);
        // A record of an odd number of half lines spans the same number of lines, whichever half it begins with.
        (1..halves.div_ceil(2)).for_each(|line| self.prefetch_head(first.wrapping_add(line * LINE / HALF)));
    }

    /// Prefetches the beginning of a record or of tags.
    #[inline(always)]
    pub(crate) fn prefetch_head(&self, half: usize) {
        prefetch_second_level(self.region.base().wrapping_add(half * HALF));
    }

    /// The address of the first of some half lines. Panics unless records or tags may begin at each of them.
    #[inline(always)]
    pub(crate) fn lines(&self, halves: Range<usize>) -> *const u8 {
        assert!(halves.start <= halves.end && halves.end <= self.halves);
        // SAFETY: at most the end of the half lines at which records may begin, which lies inside the region.
        unsafe { self.region.base().add(halves.start * HALF) }
    }

    #[inline(always)]
    fn address(&self, record: Slot) -> *mut u8 {
        assert!((record as usize) < self.halves);
        // SAFETY: the half line lies inside the region.
        unsafe { self.region.base().add(record as usize * HALF) }
    }

    /// The line of tags that begins at a half line.
    #[inline(always)]
    pub(crate) fn tags(&self, half: Slot) -> &tags::Line {
        // SAFETY: after any half line that `address` accepts, the region has room for a whole line, aligned to half a line; the memory is
        // initialised, every bit pattern is valid, and only `&mut self` writes to it.
        unsafe { &*self.address(half).cast() }
    }

    /// Like [`tags`](Self::tags), mutable.
    #[inline(always)]
    pub(crate) fn tags_mut(&mut self, half: Slot) -> &mut tags::Line {
        // SAFETY: as in `tags`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(half).cast() }
    }

    /// Byte offset of the key in a record of `halves` half lines. Panics if records with such keys have another length here.
    #[inline(always)]
    fn key_offset<const K: usize>(&self, halves: usize) -> usize {
        assert!(halves == halves_of(self.state_bytes, K) && halves <= self.longest);
        halves * HALF - K * 8
    }

    #[inline(always)]
    fn key_address<const K: usize>(&self, record: Slot, halves: usize) -> *mut [u64; K] {
        // SAFETY: after the last half line at which a record may begin, the region has room for a whole record; the end of a record is
        // aligned to eight, and so is a key that begins whole words before it.
        unsafe { self.address(record).add(self.key_offset::<K>(halves)).cast() }
    }

    /// The key at the end of a record of `halves` half lines.
    #[inline(always)]
    pub(crate) fn key<const K: usize>(&self, record: Slot, halves: usize) -> [u64; K] {
        // SAFETY: inside the region and aligned (`key_address`); initialised memory that only `&mut self` writes to.
        unsafe { self.key_address(record, halves).read() }
    }

    /// The metadata of a record: last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, record: Slot) -> SetMeta {
        // SAFETY: a record begins with its metadata, aligned to half a line: plain data that only `&mut self` writes to.
        unsafe { self.address(record).cast::<SetMeta>().read() }
    }

    /// Like [`meta`](Self::meta), mutable.
    #[inline(always)]
    pub fn meta_mut(&mut self, record: Slot) -> &mut SetMeta {
        // SAFETY: as in `meta`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(record).cast::<SetMeta>() }
    }

    /// The state at a byte offset. Panics if it does not lie inside the record's states or is not aligned to eight; offsets come from the plan, not
    /// from packets.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, record: Slot, offset: usize) -> &mut S {
        self.check_state::<S>(offset);
        // SAFETY: inside the record's states (just checked), which are aligned to eight, as is the offset; initialised memory of which
        // every bit pattern is an `S`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(record).add(STATES + offset).cast::<S>() }
    }

    /// Panics if a state at a byte offset is not inside a record's states or not aligned.
    #[inline(always)]
    fn check_state<S: Plain>(&self, offset: usize) {
        const { assert!(align_of::<S>() <= 8) };
        let end = offset.checked_add(size_of::<S>());
        assert!(end.is_some_and(|end| end <= self.state_bytes) && offset.is_multiple_of(8));
    }

    /// All states of a record.
    #[inline(always)]
    pub fn state_bytes_mut(&mut self, record: Slot) -> &mut [u8] {
        // SAFETY: `state_bytes` bytes of initialised memory after the metadata, borrowed through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.address(record).add(STATES), self.state_bytes) }
    }

    /// The states at one offset in all records, for a loop over packets. Panics as [`state`](Self::state) does.
    #[inline(always)]
    pub fn states<S: Plain>(&mut self, offset: usize) -> States<'_, S> {
        self.check_state::<S>(offset);
        States { base: self.region.base(), halves: self.halves, state: STATES + offset, kind: PhantomData }
    }

    /// Keys of `K` words and metadata of records of `halves` half lines, for a loop over packets.
    #[inline(always)]
    pub(crate) fn heads<const K: usize>(&mut self, halves: usize) -> Heads<'_, K> {
        Heads { base: self.region.base(), halves: self.halves, key: self.key_offset::<K>(halves), records: PhantomData }
    }

    /// Gives a record of `halves` half lines a new key and zeroes the rest, except for the generation, which is incremented.
    pub(crate) fn begin<const K: usize>(&mut self, record: Slot, halves: usize, key: &[u64; K]) {
        let generation = self.meta(record).generation.wrapping_add(1);
        self.zero(record, halves);
        // SAFETY: as in `key`; `&mut self` makes the access unique.
        unsafe { self.key_address(record, halves).write(*key) };
        *self.meta_mut(record) = SetMeta { generation, ..SetMeta::default() };
    }

    /// Zeroes half lines. Does not use `memset`: with AVX-512, glibc's version writes less than a line by a masked store, which waits for the next
    /// line if its mask reaches into it, although that line has not been prefetched.
    #[inline(always)]
    fn zero(&mut self, record: Slot, halves: usize) {
        assert!(halves <= self.longest);
        let first = self.address(record).cast::<[u64; 4]>();
        for half in 0..halves {
            // SAFETY: after any half line at which a record may begin, the region has room for a whole record of the longest kind; half
            // lines are aligned to 32, and `&mut self` makes the access unique.
            unsafe { first.add(half).write([0; 4]) };
            // Prevents the compiler from turning the loop into a call of `memset`.
            compiler_fence(Ordering::Release);
        }
    }

    /// Copies a record of `halves` half lines to another one, except for the generation, which is incremented.
    pub(crate) fn copy(&mut self, from: Slot, to: Slot, halves: usize) {
        assert!(halves <= self.longest);
        let generation = self.meta(to).generation.wrapping_add(1);
        // SAFETY: after any half line at which a record may begin, the region has room for a whole record of the longest kind; `&mut self`
        // makes the access unique, and `copy` allows overlapping ranges.
        unsafe { std::ptr::copy(self.address(from), self.address(to), halves * HALF) };
        self.meta_mut(to).generation = generation;
    }
}

/// Keys and metadata of records of one kind.
#[derive(Debug)]
pub(crate) struct Heads<'a, const K: usize> {
    base: *mut u8,
    halves: usize,
    key: usize,
    records: PhantomData<&'a mut SetMeta>,
}

impl<const K: usize> Heads<'_, K> {
    /// The key and metadata of a record; `None` if no record may begin there.
    #[inline(always)]
    pub(crate) fn get(&mut self, record: Slot) -> Option<(&[u64; K], &mut SetMeta)> {
        let half = record as usize;
        if half >= self.halves {
            return None;
        }
        // SAFETY: the record lies inside the region, with its key at its end (`Records::heads`), after the metadata (`halves_of`); both are
        // aligned to eight and plain data, borrowed through `self`.
        unsafe {
            let record = self.base.add(half * HALF);
            Some((&*record.add(self.key).cast(), &mut *record.cast()))
        }
    }
}
