//! Access to entries by their number instead of their key, without reading a bucket.

use std::ops::Range;

use braid_stm::{Alone, Conflict, Tx};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Map, entry};
use crate::buckets::BUCKET_WORDS;
use crate::causes::MapOp;
use crate::plain::Plain;

/// The position of an entry: plain data that may be stored, and finds the entry without its key until the key is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Handle {
    /// The number of the entry.
    pub index: u32,
    /// How often the entry had been freed before.
    pub generation: u32,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// The value at a handle; `None` if its key has been removed since.
    #[inline]
    #[track_caller]
    pub fn value_at(&self, tx: &mut Tx, handle: Handle) -> Result<Option<V>, Conflict> {
        if handle.index >= self.capacity() {
            return Ok(None);
        }
        let words = tx.read_ref(&self.shared.entries, handle.index, MapOp::ValueAt.op())?;
        Ok(entry::is_at(words, handle).then(|| entry::load(words, Self::VALUE)))
    }

    /// The entry with this number, if it is live: for structures that store the number of a [`Handle`] without its generation.
    #[inline]
    #[track_caller]
    pub fn entry_at(&self, tx: &mut Tx, index: u32) -> Result<Option<(Handle, K, V)>, Conflict> {
        if index >= self.capacity() {
            return Ok(None);
        }
        Ok(Self::entry_in(tx.read_ref(&self.shared.entries, index, MapOp::ValueAt.op())?, index))
    }

    /// Like [`entry_at`](Map::entry_at), [alone](Alone); also `None` while another worker is writing the entry.
    #[inline(always)]
    pub fn entry_alone(&self, alone: Alone<'_>, index: u32) -> Option<(Handle, K, V)> {
        const { assert!(Self::ENTRY <= BUCKET_WORDS, "an entry of at most a line") };
        if index >= self.capacity() {
            return None;
        }
        let mut words = [0; BUCKET_WORDS];
        let words = &mut words[..Self::ENTRY];
        if alone.read(&self.shared.entries, index, words) { Self::entry_in(words, index) } else { None }
    }

    /// The content of the words of entry `index`, if it is live.
    #[inline(always)]
    fn entry_in(words: &[u64], index: u32) -> Option<(Handle, K, V)> {
        let handle = Handle { index, generation: entry::generation(words) };
        entry::is_live(words).then(|| (handle, entry::load(words, Self::KEY), entry::load(words, Self::VALUE)))
    }

    /// Changes the value at a handle in place and returns the result of `change`; `None` if its key has been removed since.
    #[inline]
    #[track_caller]
    pub fn update_at<R>(
        &self,
        tx: &mut Tx,
        handle: Handle,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, Conflict> {
        let op = MapOp::UpdateAt.op();
        if handle.index >= self.capacity()
            || !entry::is_at(tx.read_ref(&self.shared.entries, handle.index, op)?, handle)
        {
            return Ok(None);
        }
        let words = tx.update_words(&self.shared.entries, handle.index, Self::ENTRY, op)?;
        Ok(Some(entry::change(words, Self::VALUE, change)))
    }

    /// Glances at up to 64 entries; bit *n* of the result says whether entry *n* of the range, from 0, is live and satisfies `is_it`. The
    /// commit does not depend on what was seen, so it may have changed by then; a replay sees nothing. For [`pick`](Self::pick).
    #[track_caller]
    pub fn glance(
        &self,
        tx: &mut Tx,
        entries: Range<u32>,
        mut is_it: impl FnMut(&K, &V) -> bool,
    ) -> Result<u64, Conflict> {
        let mut seen = 0;
        if !tx.is_replaying() {
            let end = entries.end.min(self.capacity()).min(entries.start.saturating_add(u64::BITS));
            for index in entries.start..end {
                let words = tx.read_unlogged(&self.shared.entries, index, MapOp::Scan.op())?;
                let is_it =
                    entry::is_live(words) && is_it(&entry::load(words, Self::KEY), &entry::load(words, Self::VALUE));
                seen |= u64::from(is_it) << (index - entries.start);
            }
        }
        Ok(seen)
    }

    /// Chooses the entry to inspect next, if any, from those seen at a glance. Glancing a moment later, or at more entries, could yield others, so a
    /// recorded run notes the choice. For [`remove_if`](Self::remove_if).
    #[inline(always)]
    pub fn pick(&self, tx: &mut Tx, seen: Option<u32>) -> Option<u32> {
        u32::try_from(tx.choice(|| seen.map_or(u64::MAX, u64::from))).ok()
    }

    /// Removes the entry with this number, if it is live and satisfies `is_it`; returns its key and value.
    #[track_caller]
    pub fn remove_if(
        &self,
        tx: &mut Tx,
        index: u32,
        is_it: impl FnOnce(&K, &V) -> bool,
    ) -> Result<Option<(K, V)>, Conflict> {
        let op = MapOp::Remove.op();
        if index >= self.capacity() {
            return Ok(None);
        }
        let words = tx.read_ref(&self.shared.entries, index, op)?;
        let (key, value) = (entry::load(words, Self::KEY), entry::load(words, Self::VALUE));
        if !entry::is_live(words) || !is_it(&key, &value) {
            return Ok(None);
        }
        self.remove_entry(tx, self.home(&key), index, op)?;
        Ok(Some((key, value)))
    }

    /// Prefetches the entry at a handle that will be used soon.
    #[inline(always)]
    pub fn prefetch_at(&self, handle: Handle) {
        self.shared.entries.prefetch_write(handle.index);
    }
}
