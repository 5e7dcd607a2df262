//! Entries of a map in transactions of their own, for a caller that changes one value per packet and nothing else.
//!
//! Three steps, each for a whole batch before the next, so that misses overlap: ask for a key's [buckets](Map::prefetch_hashed),
//! [guess](Map::guess) where its entry is, [hold](Map::hold_if) the entry. Only the last one counts: an entry describes itself, so
//! whether it still is the key's is certain once it is held, however old the guess. Whoever is not found this way may be there
//! nevertheless and is looked for in an ordinary transaction.

use braid_stm::{Committed, Holding, Tx};

use super::{Map, entry};
use crate::causes::MapOp;
use crate::plain::Plain;

/// Words of a cache line: that of an entry's header has one word less for the entry.
const LINE: usize = 8;

/// An entry that this worker has locked, until it is [given back](Map::give_back) changed or dropped unchanged.
#[derive(Debug)]
pub struct Locked<'a> {
    holding: Holding<'a>,
    key: usize,
    value: usize,
}

impl Locked<'_> {
    /// Word `k` of the key.
    #[inline(always)]
    pub fn key_word(&self, k: usize) -> u64 {
        self.holding.word(self.key + k)
    }

    /// Copies the first words of the value.
    #[inline(always)]
    pub fn copy_to(&self, words: &mut [u64]) {
        self.holding.copy_to(self.value, words);
    }
}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Like [`prefetch`](Map::prefetch), for a key with this hash, which must be the map's own hash of the key.
    #[inline(always)]
    pub fn prefetch_hashed(&self, hash: u64) {
        self.shared.buckets.prefetch(self.home_of(hash));
    }

    /// The number of the entry that a key with this hash probably has, or `None` if no entry looks like it. Prefetches the entry, for a change of the
    /// first `words` words of its value.
    #[inline(always)]
    pub fn guess(&self, hash: u64, words: usize) -> Option<u32> {
        let (home, buckets) = (self.home_of(hash), &self.shared.buckets);
        let index = match buckets.hint(home.first, home.tag) {
            Some(index) => index,
            None => buckets.hint(home.second, home.tag)?,
        };
        self.ask(index, words);
        Some(index)
    }

    /// Prefetches the entry with a number, for a change of the first `words` words of its value.
    #[inline(always)]
    pub fn ask(&self, index: u32, words: usize) {
        self.shared.entries.prefetch_write(index);
        let written = (1 + Self::VALUE / 8 + words).div_ceil(LINE);
        for line in 1..(1 + Self::LAYOUT.words).div_ceil(LINE) {
            match line < written {
                true => self.shared.entries.prefetch_line::<true>(index, line),
                false => self.shared.entries.prefetch_line::<false>(index, line),
            }
        }
    }

    /// Holds the entry of that number if its [key](Locked::key_word) is the one that the caller means (panics inside of a transaction
    /// that has touched something).
    #[inline(always)]
    pub fn hold_if(&self, tx: &mut Tx, index: u32, is_key: impl FnOnce(&Locked<'_>) -> bool) -> Option<Locked<'_>> {
        const { assert!(Self::KEY.is_multiple_of(8) && Self::VALUE.is_multiple_of(8), "key and value within words") };
        if index >= self.shared.entries.objects() {
            return None;
        }
        let holding = tx.begin_holding(&self.shared.entries, index, MapOp::Update.op());
        let held = Locked { holding, key: Self::KEY / 8, value: Self::VALUE / 8 };
        (is_key(&held) && entry::is_live(&[held.holding.word(0)])).then_some(held)
    }

    /// Gives an entry back with new first words of its value, which ends the transaction.
    #[inline(always)]
    pub fn give_back(&self, tx: &mut Tx, held: Locked<'_>, words: &[u64]) -> Committed {
        tx.commit_holding(held.holding, held.value, words)
    }
}
