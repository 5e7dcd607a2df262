//! Records of packet sets in one region, each in whole halves of cache lines: `| meta, 8 bytes | states … | key, K words |`.
//!
//! The tags of a group of records stand in the place of one of them ([`Tags`](super::tags::Tags)). Tables with keys of different lengths share a region. A record's place is its first half line, and where its states lie does not
//! depend on its key: a loop over packets does not ask whose record it is. Two records of a half share a line, and one of whole
//! lines begins with a line if its table does.
//!
//! Safe to use: every access is checked against the region, and borrows the whole. Records are plain data, so a place
//! that is none of a record's (the middle of one) is an error of the caller, but never undefined behaviour.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use braid_memory::{Error, HugePages, Region, prefetch_second_level};

use crate::Plain;
use crate::flow_table::{SetMeta, Slot};
use crate::raw::tags;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Bytes of half of one.
pub(crate) const HALF: usize = LINE / 2;

/// Where states begin in a record.
const STATES: usize = size_of::<SetMeta>();

/// Half lines of one record with `state_bytes` of state and a key of `words` words.
pub(crate) const fn halves_of(state_bytes: usize, words: usize) -> usize {
    (STATES + state_bytes.next_multiple_of(8) + words * 8).div_ceil(HALF)
}

/// All records of some tables.
#[derive(Debug)]
pub struct Records {
    region: Region,
    /// Half lines with which a record may begin.
    halves: usize,
    /// Half lines of the longest record: so many follow wherever one begins.
    longest: usize,
    state_bytes: usize,
}

/// The states of one kind at one offset in all records: checked once, so a loop need not.
#[derive(Debug)]
pub struct States<'a, S> {
    base: *mut u8,
    halves: usize,
    state: usize,
    kind: PhantomData<&'a mut S>,
}

impl<S: Plain> States<'_, S> {
    /// Whether there is such a place.
    #[inline(always)]
    pub fn has(&self, record: Slot) -> bool {
        (record as usize) < self.halves
    }

    /// Meta and state of a record. Panics if there is no such place: who has [asked](Self::has) pays for it once.
    #[inline(always)]
    pub fn get(&mut self, record: Slot) -> (&mut SetMeta, &mut S) {
        assert!(self.has(record));
        // SAFETY: the record lies inside the region, meta and state inside the record, apart from each other, each aligned to
        // eight (`Records::states`); initialised memory of which every pattern is valid, borrowed through `self`.
        unsafe {
            let record = self.base.add(record as usize * HALF);
            (&mut *record.cast(), &mut *record.add(self.state).cast())
        }
    }
}

impl Records {
    /// Room for records that begin with one of `halves` half lines, with `state_bytes` of state and keys of at most `words` words.
    pub fn new(halves: usize, state_bytes: usize, words: usize, pages: HugePages) -> Result<Records, Error> {
        let longest = halves_of(state_bytes, words);
        // So that a record may begin with any of them, and tags.
        let region = Region::new((halves + longest.max(LINE / HALF)) * HALF, pages)?;
        Ok(Records { region, halves, longest, state_bytes })
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.region.len()
    }

    /// Touches the pages of records that begin with one of these half lines.
    pub(crate) fn touch(&self, halves: Range<usize>) {
        self.region.touch(halves.start * HALF..(halves.end + self.longest) * HALF);
    }

    /// Asks for one record of many, of so many half lines, which begins with that one; any number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, first: usize, halves: usize) {
        self.prefetch_head(first);
        // An odd number lies on the same number of lines with whichever half it begins.
        (1..halves.div_ceil(2)).for_each(|line| self.prefetch_head(first.wrapping_add(line * LINE / HALF)));
    }

    /// Asks for where a record or tags begin.
    #[inline(always)]
    pub(crate) fn prefetch_head(&self, half: usize) {
        prefetch_second_level(self.region.base().wrapping_add(half * HALF));
    }

    /// The first of some half lines. Panics unless with each of them records or tags may begin.
    #[inline(always)]
    pub(crate) fn lines(&self, halves: Range<usize>) -> *const u8 {
        assert!(halves.start <= halves.end && halves.end <= self.halves);
        // SAFETY: at most the end of the half lines with which records may begin, which lies inside the region.
        unsafe { self.region.base().add(halves.start * HALF) }
    }

    #[inline(always)]
    fn address(&self, record: Slot) -> *mut u8 {
        assert!((record as usize) < self.halves);
        // SAFETY: the half line lies inside the region.
        unsafe { self.region.base().add(record as usize * HALF) }
    }

    /// The tags that begin with a half line.
    #[inline(always)]
    pub(crate) fn tags(&self, half: Slot) -> &tags::Line {
        // SAFETY: behind any half line that `address` knows the region has room for a whole line, aligned to half of one; initialised
        // memory of which every pattern is valid, and only `&mut self` writes to it.
        unsafe { &*self.address(half).cast() }
    }

    /// The same, to change.
    #[inline(always)]
    pub(crate) fn tags_mut(&mut self, half: Slot) -> &mut tags::Line {
        // SAFETY: as in `tags`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(half).cast() }
    }

    /// Where the key of a record of so many half lines begins. Panics if they are not what a record with such a key has here.
    #[inline(always)]
    fn key_offset<const K: usize>(&self, halves: usize) -> usize {
        assert!(halves == halves_of(self.state_bytes, K) && halves <= self.longest);
        halves * HALF - K * 8
    }

    #[inline(always)]
    fn key_address<const K: usize>(&self, record: Slot, halves: usize) -> *mut [u64; K] {
        // SAFETY: behind the last half line with which a record may begin the region has room for a whole one; its end is
        // aligned to eight, and so is what begins whole words before it.
        unsafe { self.address(record).add(self.key_offset::<K>(halves)).cast() }
    }

    /// The key at the end of a record of so many half lines.
    #[inline(always)]
    pub(crate) fn key<const K: usize>(&self, record: Slot, halves: usize) -> [u64; K] {
        // SAFETY: inside the region and aligned (`key_address`), initialised memory that only `&mut self` writes to.
        unsafe { self.key_address(record, halves).read() }
    }

    /// Last seen, live mask, generation.
    #[inline(always)]
    pub fn meta(&self, record: Slot) -> SetMeta {
        // SAFETY: a record begins with its meta, aligned to half a line, plain data that only `&mut self` writes to.
        unsafe { self.address(record).cast::<SetMeta>().read() }
    }

    /// The same, to change.
    #[inline(always)]
    pub fn meta_mut(&mut self, record: Slot) -> &mut SetMeta {
        // SAFETY: as in `meta`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(record).cast::<SetMeta>() }
    }

    /// State at a byte offset. Panics if it does not lie inside or is not aligned to eight: offsets come from the plan, not
    /// from packets.
    #[inline(always)]
    pub fn state<S: Plain>(&mut self, record: Slot, offset: usize) -> &mut S {
        const { assert!(align_of::<S>() <= 8) };
        assert!(offset + size_of::<S>() <= self.state_bytes && offset.is_multiple_of(8));
        // SAFETY: inside the record's states (just checked), which are aligned to eight as is the offset; initialised memory
        // of which every pattern is an `S`; `&mut self` is borrowed for as long as the result lives.
        unsafe { &mut *self.address(record).add(STATES + offset).cast::<S>() }
    }

    /// All states of a record.
    #[inline(always)]
    pub fn state_bytes_mut(&mut self, record: Slot) -> &mut [u8] {
        // SAFETY: `state_bytes` bytes of initialised memory behind the meta, borrowed through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.address(record).add(STATES), self.state_bytes) }
    }

    /// The states at one offset in all records, for a loop over packets. Panics as [`state`](Self::state) does.
    #[inline(always)]
    pub fn states<S: Plain>(&mut self, offset: usize) -> States<'_, S> {
        const { assert!(align_of::<S>() <= 8) };
        assert!(offset + size_of::<S>() <= self.state_bytes && offset.is_multiple_of(8));
        States { base: self.region.base(), halves: self.halves, state: STATES + offset, kind: PhantomData }
    }

    /// Keys of `K` words and metas of records of so many half lines, for a loop over packets.
    #[inline(always)]
    pub(crate) fn heads<const K: usize>(&mut self, halves: usize) -> Heads<'_, K> {
        Heads { base: self.region.base(), halves: self.halves, key: self.key_offset::<K>(halves), records: PhantomData }
    }

    /// Gives a record of so many half lines a new key and zeroes the rest, but for the generation, which goes on by one.
    pub(crate) fn begin<const K: usize>(&mut self, record: Slot, halves: usize, key: &[u64; K]) {
        let generation = self.meta(record).generation.wrapping_add(1);
        self.zero(record, halves);
        // SAFETY: as in `key`; `&mut self` makes the access unique.
        unsafe { self.key_address(record, halves).write(*key) };
        *self.meta_mut(record) = SetMeta { generation, ..SetMeta::default() };
    }

    /// Zeroes half lines. Not by `memset`: with AVX-512 glibc's stores less than a line as a masked one, which waits for the next line if its
    /// mask reaches there, and nobody has asked for that.
    #[inline(always)]
    fn zero(&mut self, record: Slot, halves: usize) {
        assert!(halves <= self.longest);
        let first = self.address(record).cast::<[u64; 4]>();
        for half in 0..halves {
            // SAFETY: behind any half line with which a record may begin the region has room for a whole one of the longest; half lines
            // are aligned to 32, and `&mut self` makes the access unique.
            unsafe { first.add(half).write([0; 4]) };
            // Or the compiler makes a call of `memset` of the loop.
            compiler_fence(Ordering::Release);
        }
    }

    /// Makes a record of so many half lines what another one is, but for the generation, which goes on by one.
    pub(crate) fn copy(&mut self, from: Slot, to: Slot, halves: usize) {
        assert!(halves <= self.longest);
        let generation = self.meta(to).generation.wrapping_add(1);
        // SAFETY: behind any half line with which a record may begin the region has room for a whole one of the longest;
        // `&mut self` makes the access unique, and `copy` allows places that overlap.
        unsafe { std::ptr::copy(self.address(from), self.address(to), halves * HALF) };
        self.meta_mut(to).generation = generation;
    }
}

/// Keys and metas of records of one kind.
#[derive(Debug)]
pub(crate) struct Heads<'a, const K: usize> {
    base: *mut u8,
    halves: usize,
    key: usize,
    records: PhantomData<&'a mut SetMeta>,
}

impl<const K: usize> Heads<'_, K> {
    /// Key and meta of a record; none if there is no such place.
    #[inline(always)]
    pub(crate) fn get(&mut self, record: Slot) -> Option<(&[u64; K], &mut SetMeta)> {
        let half = record as usize;
        if half >= self.halves {
            return None;
        }
        // SAFETY: the record lies inside the region with its key at its end (`Records::heads`), behind the meta (`lines_of`);
        // both are aligned to eight and plain, borrowed through `self`.
        unsafe {
            let record = self.base.add(half * HALF);
            Some((&*record.add(self.key).cast(), &mut *record.cast()))
        }
    }
}
