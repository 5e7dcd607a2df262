//! A map from outside its operations: pools at the end of a transaction, and content for reports and snapshots.

use braid_stm::{Boosted, Part};
use zerocopy::IntoBytes;

use super::{Shared, entry};
use crate::buckets::{BUCKET_WORDS, Bucket, PLACES};
use crate::causes::{MAP_BUCKETS, MAP_ENTRIES};
use crate::object::{Named, StateObject};

impl Shared {
    /// The bytes of an entry's key and of its value.
    pub(super) fn content<'a>(&self, words: &'a [u64]) -> [&'a [u8]; 2] {
        let bytes = words.as_bytes();
        [&bytes[self.layout.key..][..self.key_bytes], &bytes[self.layout.value..][..self.value_bytes]]
    }
}

impl Boosted for Shared {
    fn apply(&self, worker: usize, action: u32, argument: u64, sequence: u64) {
        self.free.apply(worker, action, argument, sequence);
    }

    fn undo(&self, worker: usize, action: u32, argument: u64) {
        self.free.undo(worker, action, argument);
    }
}

impl StateObject for Shared {
    fn named(&self) -> &Named {
        &self.named
    }

    fn capacity(&self) -> usize {
        self.free.numbers() as usize
    }

    fn len(&self) -> usize {
        self.capacity() - self.free.free()
    }

    fn element(&self, part: Part, index: u32) -> Option<String> {
        let key_of = |entry: u32| {
            let mut words = vec![0; self.entries.payload_words()];
            self.entries.snapshot(entry, &mut words);
            // An entry that has been freed since still has its key; one that was never used has none.
            (entry::head(&words) != 0).then(|| (self.show)(&words))
        };
        match part {
            MAP_ENTRIES if index < self.entries.objects() => key_of(index),
            MAP_BUCKETS if index < self.buckets.main.objects() => {
                let mut words = [0; BUCKET_WORDS];
                self.buckets.main.snapshot(index, &mut words);
                let bucket = Bucket(words);
                let keys: Vec<_> =
                    (0..PLACES).filter_map(|place| bucket.entry(place)).filter_map(key_of).take(3).collect();
                Some(format!("the bucket of {}", if keys.is_empty() { "no key".to_owned() } else { keys.join(", ") }))
            }
            _ => None,
        }
    }

    fn memory_bytes(&self) -> usize {
        let buckets = self.buckets.main.bytes() + self.buckets.overflow.bytes() + self.buckets.spare.memory_bytes();
        buckets + self.entries.bytes() + self.free.memory_bytes()
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut words = vec![0; self.entries.payload_words()];
        let mut rows = Vec::new();
        for index in 0..self.entries.objects() {
            self.entries.snapshot(index, &mut words);
            if entry::is_live(&words) {
                rows.push(self.content(&words).concat());
            }
        }
        rows.sort_unstable();
        rows.concat()
    }
}
