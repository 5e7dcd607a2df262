//! Entries of a map in transactions of their own, for a caller that changes one value per packet and nothing else.
//!
//! There are three steps, each done for a whole batch before the next so that cache misses overlap: prefetch a key's
//! [buckets](Map::prefetch_hashed), [guess](Map::guess) where its entry is, [hold](Map::hold) the entry. Only the last one matters for
//! correctness: an entry describes itself, so once it is held it is certain whether it belongs to the key, however old the guess. A key
//! that is not found this way may still exist and has to be looked up in an ordinary transaction.

use braid_stm::{Committed, Holding, Tx};

use super::{Map, entry};
use crate::causes::MapOp;
use crate::plain::{self, Plain};

/// Maximum number of words of a key that can be held.
const KEY_WORDS_MAX: usize = 8;
/// Words of a cache line; the line with an entry's header has one word less for the entry.
const LINE: usize = 8;

/// An entry that this worker has locked, until it is [given back](Map::give_back) changed or dropped unchanged.
#[derive(Debug)]
pub struct Held<'a> {
    holding: Holding<'a>,
    key: usize,
    value: usize,
}

impl Held<'_> {
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

    /// Holds the entry with this number if it belongs to the key. Panics inside a transaction that has accessed something.
    #[inline(always)]
    pub fn hold(&self, tx: &mut Tx, index: u32, key: &K) -> Option<Held<'_>> {
        const { assert!(plain::words::<K>() <= KEY_WORDS_MAX, "too long a key to be held") };
        self.hold_if(tx, index, |held| {
            let mut wanted = [0; KEY_WORDS_MAX];
            plain::store(&mut wanted, key);
            held.holding.equals(Self::KEY / 8, &wanted[..plain::words::<K>()])
        })
    }

    /// Like [`hold`](Self::hold), for a caller that recognises a [key](Held::key_word) itself.
    #[inline(always)]
    pub fn hold_if(&self, tx: &mut Tx, index: u32, is_key: impl FnOnce(&Held<'_>) -> bool) -> Option<Held<'_>> {
        const { assert!(Self::KEY.is_multiple_of(8) && Self::VALUE.is_multiple_of(8), "key and value within words") };
        if index >= self.shared.entries.objects() {
            return None;
        }
        let holding = tx.begin_holding(&self.shared.entries, index, MapOp::Update.op());
        let held = Held { holding, key: Self::KEY / 8, value: Self::VALUE / 8 };
        (is_key(&held) && entry::is_live(&[held.holding.word(0)])).then_some(held)
    }

    /// Gives an entry back with new first words of its value, which ends the transaction.
    #[inline(always)]
    pub fn give_back(&self, tx: &mut Tx, held: Held<'_>, words: &[u64]) -> Committed {
        tx.commit_holding(held.holding, held.value, words)
    }
}
