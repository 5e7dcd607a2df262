//! Records of one size in one region, each in whole cache lines: `| key, K words | meta, 8 bytes | states |`.
//!
//! Safe to use: every access is checked against the number of records and the size of one, and borrows the whole.

use std::marker::PhantomData;

use braid_memory::{Error, HugePages, Region, prefetch_write};

use crate::Plain;
use crate::flow_table::SetMeta;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

#[derive(Debug)]
pub(crate) struct Records<const K: usize> {
    region: Region,
    stride: usize,
    count: usize,
}

/// One record, to read and change.
#[derive(Debug)]
pub struct RecordMut<'a> {
    /// Last seen, live mask, generation.
    pub meta: &'a mut SetMeta,
    states: *mut u8,
    bytes: usize,
}

/// The states of one kind at one offset in all records: checked once, so a loop need not.
#[derive(Debug)]
pub struct States<'a, S> {
    base: *mut u8,
    stride: usize,
    count: usize,
    meta: usize,
    state: usize,
    kind: PhantomData<&'a mut S>,
}

impl<S: Plain> States<'_, S> {
    /// Meta and state of a record; none if there is no such record.
    #[inline(always)]
    pub fn get(&mut self, record: usize) -> Option<(&mut SetMeta, &mut S)> {
        if record >= self.count {
            return None;
        }
        // SAFETY: the record lies inside the region, meta and state inside the record, apart from each other, each aligned to
        // eight (`Records::states`); initialised memory of which every pattern is valid, borrowed through `self`.
        unsafe {
            let record = self.base.add(record * self.stride);
            Some((&mut *record.add(self.meta).cast(), &mut *record.add(self.state).cast()))
        }
    }
}

impl<const K: usize> Records<K> {
    const META: usize = K * 8;
    const STATES: usize = K * 8 + size_of::<SetMeta>();

    pub(crate) fn new(count: usize, state_bytes: usize, pages: HugePages) -> Result<Records<K>, Error> {
        let stride = Self::stride_of(state_bytes);
        Ok(Records { region: Region::new(count * stride, pages)?, stride, count })
    }

    pub(crate) const fn stride_of(state_bytes: usize) -> usize {
        (Self::STATES + state_bytes).next_multiple_of(LINE)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.region.len()
    }

    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Asks for the lines of a record; any number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: usize) {
        let first = self.region.base().wrapping_add(record * self.stride);
        prefetch_write(first);
        if self.stride > LINE {
            (LINE..self.stride).step_by(LINE).for_each(|line| prefetch_write(first.wrapping_add(line)));
        }
    }

    #[inline(always)]
    fn address(&self, record: usize) -> *mut u8 {
        assert!(record < self.count);
        // SAFETY: the record lies inside the region.
        unsafe { self.region.base().add(record * self.stride) }
    }

    #[inline(always)]
    pub(crate) fn key(&self, record: usize) -> [u64; K] {
        // SAFETY: a record begins with its key, aligned to a line, in initialised memory that only `&mut self` writes to.
        unsafe { self.address(record).cast::<[u64; K]>().read() }
    }

    #[inline(always)]
    pub(crate) fn meta(&self, record: usize) -> SetMeta {
        // SAFETY: as in `key`; the meta follows the key, aligned to eight, and is plain data.
        unsafe { self.address(record).add(Self::META).cast::<SetMeta>().read() }
    }

    /// Key and meta of a record; none if there is no such record.
    #[inline(always)]
    pub(crate) fn head_mut(&mut self, record: usize) -> Option<(&[u64; K], &mut SetMeta)> {
        if record >= self.count {
            return None;
        }
        // SAFETY: as in `key` and `meta`; they are apart, and `&mut self` is borrowed for as long as the result lives.
        unsafe {
            let address = self.region.base().add(record * self.stride);
            Some((&*address.cast(), &mut *address.add(Self::META).cast()))
        }
    }

    #[inline(always)]
    pub(crate) fn record_mut(&mut self, record: usize) -> RecordMut<'_> {
        let address = self.address(record);
        // SAFETY: as in `meta`; `&mut self` is borrowed for as long as the result lives, and meta and states are apart.
        let (meta, states) = unsafe { (&mut *address.add(Self::META).cast::<SetMeta>(), address.add(Self::STATES)) };
        RecordMut { meta, states, bytes: self.stride - Self::STATES }
    }

    /// Panics if the state does not lie inside a record or is not aligned to eight, as [`RecordMut::state`] does.
    #[inline(always)]
    pub(crate) fn states<S: Plain>(&mut self, offset: usize) -> States<'_, S> {
        const { assert!(align_of::<S>() <= 8) };
        assert!(Self::STATES + offset + size_of::<S>() <= self.stride && offset.is_multiple_of(8));
        let (base, stride, count) = (self.region.base(), self.stride, self.count);
        States { base, stride, count, meta: Self::META, state: Self::STATES + offset, kind: PhantomData }
    }

    /// Gives a record a new key and zeroes the rest, but for the generation, which goes on by one.
    pub(crate) fn begin(&mut self, record: usize, key: &[u64; K]) {
        let address = self.address(record);
        // SAFETY: as in `key`; `&mut self` makes the access unique.
        unsafe { address.cast::<[u64; K]>().write(*key) };
        let mut fresh = self.record_mut(record);
        *fresh.meta = SetMeta { generation: fresh.meta.generation.wrapping_add(1), ..SetMeta::default() };
        fresh.states().fill(0);
    }
}

impl<'a> RecordMut<'a> {
    /// State at a byte offset. Panics if it does not lie inside or is not aligned to eight: offsets come from the plan, not
    /// from packets.
    #[inline(always)]
    pub fn state<S: Plain>(self, offset: usize) -> &'a mut S {
        const { assert!(align_of::<S>() <= 8) };
        assert!(offset + size_of::<S>() <= self.bytes && offset.is_multiple_of(8));
        // SAFETY: inside the record's states (just checked), which are aligned to eight as is the offset; initialised memory
        // of which every pattern is an `S`; borrowed from the table for `'a`.
        unsafe { &mut *self.states.add(offset).cast::<S>() }
    }

    /// All states.
    #[inline(always)]
    pub fn states(&mut self) -> &mut [u8] {
        // SAFETY: `bytes` bytes of initialised memory behind the meta, borrowed through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.states, self.bytes) }
    }
}
