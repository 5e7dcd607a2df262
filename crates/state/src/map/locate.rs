//! Finds the entry of a key.

use braid_stm::{Conflict, Op, Tx};
use zerocopy::IntoBytes;

use super::{Map, Vacancy, entry};
use crate::buckets::{At, Bucket, Home, PLACES};
use crate::plain::Plain;

impl<K: Plain, V: Plain> Map<K, V> {
    #[inline(always)]
    pub(super) fn home(&self, key: &K) -> Home {
        self.home_of((self.shared.hash)(key.as_bytes(), self.shared.seed))
    }

    #[inline(always)]
    pub(super) fn home_of(&self, hash: u64) -> Home {
        Home::new(hash, self.shared.buckets.main.objects())
    }

    /// Finds the entry of a key and adds the evidence to the read log: the entry if it exists, or all its buckets if not; then also returns
    /// where the key would be inserted.
    #[inline]
    #[track_caller]
    pub(super) fn locate(&self, tx: &mut Tx, key: &K, home: Home, op: Op) -> Result<Result<u32, Vacancy>, Conflict> {
        let first = self.shared.buckets.glance(tx, home.first, op)?;
        if let Some(index) = self.among(tx, Bucket::of(&first), home.tag, key, op)? {
            return Ok(Ok(index));
        }
        let second = self.shared.buckets.glance(tx, home.second, op)?;
        if let Some(index) = self.among(tx, Bucket::of(&second), home.tag, key, op)? {
            return Ok(Ok(index));
        }
        if Bucket::of(&first).next().is_none() && tx.hold(&first, op) && tx.hold(&second, op) {
            let used = [Bucket::of(&first).used(), Bucket::of(&second).used()];
            let (main, used) = if used[1] < used[0] { (home.second, used[1]) } else { (home.first, used[0]) };
            let main = (used < PLACES as u32).then_some(main);
            return Ok(Err(Vacancy { home, main, deferrals: tx.deferrals() }));
        }
        let found = self.locate_logged(tx, key, home, op)?;
        Ok(found.ok_or(Vacancy { home, main: None, deferrals: tx.deferrals() }))
    }

    /// The entry of a key, if it is in a bucket at which the attempt only glanced.
    #[inline(always)]
    #[track_caller]
    fn among(&self, tx: &mut Tx, bucket: &Bucket, tag: u16, key: &K, op: Op) -> Result<Option<u32>, Conflict> {
        for (_, index) in bucket.candidates(tag) {
            if Self::is_key(tx.read_ref(&self.shared.entries, index, op)?, key) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Searches again after the quick search found nothing, in the buckets and the chain of the first, on which the commit then depends.
    #[cold]
    #[track_caller]
    fn locate_logged(&self, tx: &mut Tx, key: &K, home: Home, op: Op) -> Result<Option<u32>, Conflict> {
        for main in [home.second, home.first] {
            let mut at = At::Main(main);
            loop {
                let bucket = self.shared.buckets.read(tx, at, op)?;
                for (_, index) in bucket.candidates(home.tag) {
                    // As long as the bucket does not change, the entry keeps its key, so entries of other keys need not be logged.
                    if Self::is_key(tx.read_unlogged(&self.shared.entries, index, op)?, key) {
                        tx.read_ref(&self.shared.entries, index, op)?;
                        return Ok(Some(index));
                    }
                }
                match bucket.next() {
                    Some(next) if main == home.first => at = At::Overflow(next),
                    _ => break,
                }
            }
        }
        Ok(None)
    }

    #[inline(always)]
    fn is_key(words: &[u64], key: &K) -> bool {
        entry::is_live(words) && &words.as_bytes()[Self::KEY..Self::KEY + size_of::<K>()] == key.as_bytes()
    }
}
