//! A map's image: of each entry that was ever used its number and generation, and key and value if it is.
//!
//! Entries keep their numbers where the map is large enough, so handles that functions remember stay right; generations of
//! free entries are kept for the same reason.

use std::collections::HashSet;

use braid_stm::Tx;
use zerocopy::IntoBytes;

use super::{Shared, entry};
use crate::buckets::Home;
use crate::causes::MapOp;
use crate::image::{Image, ImageError, Reader, put};

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut words = vec![0; self.entries.payload_words()];
        let mut image = Vec::new();
        put(&mut image, self.key_bytes as u64);
        put(&mut image, self.value_bytes as u64);
        for index in 0..self.entries.objects() {
            self.entries.snapshot(index, &mut words);
            let head = entry::head(&words);
            if head == 0 {
                continue;
            }
            put(&mut image, u64::from(index));
            put(&mut image, u64::from(head));
            if entry::is_live(&words) {
                image.extend(self.content(&words).concat());
            }
        }
        image
    }

    /// A smaller map must have room for all keys.
    fn restore(&self, tx: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        reader.same("keys", self.key_bytes)?;
        reader.same("values", self.value_bytes)?;
        let (mut keys, mut homeless) = (HashSet::new(), Vec::new());
        let mut words = vec![0; self.entries.payload_words()];
        while !reader.is_empty() {
            let (index, word) = (reader.word()?, reader.word()?);
            let Ok(head) = u32::try_from(word) else {
                return Err(reader.wrong(format!("entry {index} has no possible generation")));
            };
            let place = u32::try_from(index).ok().filter(|index| *index < self.free.numbers());
            if head & 1 == 0 {
                if let Some(index) = place {
                    self.initialise(index, head, &[], &[]);
                }
                continue;
            }
            let (key, value) = (reader.bytes(self.key_bytes)?, reader.bytes(self.value_bytes)?);
            if !keys.insert(key) {
                return Err(reader.wrong("a key stands in it twice"));
            }
            match place {
                Some(index) if self.free.remove(tx.worker(), index) => self.occupy(tx, index, head, key, value)?,
                Some(index) => return Err(reader.wrong(format!("entry {index} stands in it twice"))),
                None => homeless.push((key, value)),
            }
        }
        for (key, value) in homeless {
            let Some(index) = self.free.remove_any(tx.worker()) else {
                return Err(reader.wrong(format!(
                    "{} keys were saved, there is room for {}",
                    keys.len(),
                    self.free.numbers()
                )));
            };
            // The next life of the entry that they get: what is remembered of its earlier ones must not find them.
            self.entries.snapshot(index, &mut words);
            self.occupy(tx, index, entry::head(&words) | 1, key, value)?;
        }
        Ok(())
    }
}

impl Shared {
    fn initialise(&self, index: u32, head: u32, key: &[u8], value: &[u8]) {
        let mut words = vec![0; self.entries.payload_words()];
        for (at, part) in [(0, &head.to_ne_bytes()[..]), (self.layout.key, key), (self.layout.value, value)] {
            words.as_mut_bytes()[at..at + part.len()].copy_from_slice(part);
        }
        self.entries.initialise(index, &words);
    }

    /// Fills a free entry and lets its buckets know.
    fn occupy(&self, tx: &mut Tx, index: u32, head: u32, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        self.initialise(index, head, key, value);
        let home = Home::new((self.hash)(key, self.seed), self.buckets.main.objects());
        let inserted = self.buckets.insert(tx, home, None, index, MapOp::Insert.op()).is_ok() && tx.commit().is_ok();
        if !inserted {
            tx.abort();
            return Err(ImageError { object: self.named.name.clone(), what: "another transaction runs".to_owned() });
        }
        Ok(())
    }
}
