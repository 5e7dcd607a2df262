//! Entries by their place instead of their key: no bucket is looked at.

use std::ops::Range;

use braid_stm::{Alone, Conflict, Tx};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Map, entry};
use crate::buckets::BUCKET_WORDS;
use crate::causes::MapOp;
use crate::plain::Plain;

/// Where an entry lies: plain data that may be kept and finds the entry without its key, until the key is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Handle {
    /// Number of the entry.
    pub index: u32,
    /// How often the entry was freed before.
    pub generation: u32,
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// The value at a handle; none if its key has been removed since.
    #[inline]
    #[track_caller]
    pub fn value_at(&self, tx: &mut Tx, handle: Handle) -> Result<Option<V>, Conflict> {
        if handle.index >= self.capacity() {
            return Ok(None);
        }
        let words = tx.read_ref(&self.shared.entries, handle.index, MapOp::ValueAt.op())?;
        Ok(entry::is_at(words, handle).then(|| entry::load(words, Self::VALUE)))
    }

    /// The entry of that number, if one lives: for a structure that keeps numbers of [`Handle`]s, to save the generation.
    #[inline]
    #[track_caller]
    pub fn entry_at(&self, tx: &mut Tx, index: u32) -> Result<Option<(Handle, K, V)>, Conflict> {
        if index >= self.capacity() {
            return Ok(None);
        }
        Ok(Self::entry_in(tx.read_ref(&self.shared.entries, index, MapOp::ValueAt.op())?, index))
    }

    /// As [`entry_at`](Map::entry_at), [alone](Alone); none also if somebody is just writing it.
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

    /// What the words of entry `index` hold, if it lives.
    #[inline(always)]
    fn entry_in(words: &[u64], index: u32) -> Option<(Handle, K, V)> {
        let handle = Handle { index, generation: entry::generation(words) };
        entry::is_live(words).then(|| (handle, entry::load(words, Self::KEY), entry::load(words, Self::VALUE)))
    }

    /// Changes the value at a handle in place and returns what `change` returns; none if its key has been removed since.
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

    /// Which of at most 64 entries live and are it, at a glance: bit 0 is the first. Nothing depends on what is seen, so others may be it when
    /// this commits, and a replay sees none. For [`pick`](Self::pick).
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

    /// The entry to be looked at next of those that were seen, if there is another: whoever looks a moment later, or has more entries, may see
    /// others, so a recorded run notes it. For [`remove_if`](Self::remove_if).
    #[inline(always)]
    pub fn pick(&self, tx: &mut Tx, seen: Option<u32>) -> Option<u32> {
        u32::try_from(tx.choice(|| seen.map_or(u64::MAX, u64::from))).ok()
    }

    /// Removes the entry of that number, if one lives and `is_it`; what it was.
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

    /// Asks for the entry at a handle that will be used soon.
    #[inline(always)]
    pub fn prefetch_at(&self, handle: Handle) {
        self.shared.entries.prefetch_write(handle.index);
    }
}
