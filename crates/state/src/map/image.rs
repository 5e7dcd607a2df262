//! A map's image: for each entry that was ever used its number and generation and, if it is live, its key and value.
//!
//! Entries keep their numbers if the map is large enough, so handles that functions have stored stay valid; generations of free entries are
//! kept for the same reason.

use braid_stm::Tx;
use zerocopy::IntoBytes;

use super::{Shared, entry};
use crate::buckets::Home;
use crate::image::{Image, ImageError, Reader, put};

/// Number of entries whose buckets are prefetched before the first of them is restored, so that cache misses overlap.
const AHEAD: usize = 32;

/// The keys and values of a map's image; `None` if it is not an image of such keys and values or is truncated.
pub fn entries_of_image(image: &[u8], key_bytes: usize, value_bytes: usize) -> Option<Vec<(&[u8], &[u8])>> {
    let mut reader = Reader::new("", image);
    reader.same("keys", key_bytes).ok()?;
    reader.same("values", value_bytes).ok()?;
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let (_index, head) = (reader.word().ok()?, reader.word().ok()?);
        if head & 1 == 1 {
            entries.push((reader.bytes(key_bytes).ok()?, reader.bytes(value_bytes).ok()?));
        }
    }
    Some(entries)
}

/// The image of a map with these keys and values, none of which was ever freed.
pub fn image_of_entries<'a>(
    key_bytes: usize,
    value_bytes: usize,
    entries: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Vec<u8> {
    let mut image = Vec::new();
    put(&mut image, key_bytes as u64);
    put(&mut image, value_bytes as u64);
    for (index, (key, value)) in (0..).zip(entries) {
        put(&mut image, index);
        put(&mut image, 1);
        image.extend_from_slice(key);
        image.extend_from_slice(value);
    }
    image
}

/// A live entry of an image.
struct Saved<'a> {
    index: u64,
    head: u32,
    key: &'a [u8],
    value: &'a [u8],
    home: Home,
}

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut words = vec![0; self.entries.payload_words()];
        let live = self.numbers() - self.free.free();
        let mut image = Vec::with_capacity(16 + live * (16 + self.key_bytes + self.value_bytes));
        put(&mut image, self.key_bytes as u64);
        put(&mut image, self.value_bytes as u64);
        for index in 0..self.entries.objects() {
            // Nothing changes meanwhile, so one word tells whether the entry was ever used; most of a large map may not have been.
            if entry::head(&[self.entries.hint(index, 0)]) == 0 {
                continue;
            }
            self.entries.snapshot(index, &mut words);
            let head = entry::head(&words);
            put(&mut image, u64::from(index));
            put(&mut image, u64::from(head));
            if entry::is_live(&words) {
                self.content(&words).into_iter().for_each(|part| image.extend_from_slice(part));
            }
        }
        image
    }

    /// Restores the entries; a smaller map must have room for all keys.
    fn restore(&self, tx: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        reader.same("keys", self.key_bytes)?;
        reader.same("values", self.value_bytes)?;
        let (mut ahead, mut homeless, mut placed) = (Vec::with_capacity(AHEAD), Vec::new(), 0);
        let mut words = vec![0; self.entries.payload_words()];
        while !reader.is_empty() {
            while ahead.len() < AHEAD && !reader.is_empty() {
                ahead.extend(self.next_live(&mut reader, &mut words)?);
            }
            for saved in ahead.drain(..) {
                match u32::try_from(saved.index).ok().filter(|index| *index < self.free.numbers()) {
                    Some(index) if self.free.remove(tx.worker(), index) => {
                        self.occupy(index, &saved, &mut words)?;
                        placed += 1;
                    }
                    Some(index) => return Err(reader.wrong(format!("entry {index} stands in it twice"))),
                    None => homeless.push(saved),
                }
            }
        }
        let keys = placed + homeless.len();
        for mut saved in homeless {
            let Some(index) = self.free.remove_any(tx.worker()) else {
                return Err(reader.wrong(format!("{keys} keys were saved, there is room for {}", self.numbers())));
            };
            // They get the next generation of their new entries, so that stored handles to earlier ones do not find them.
            self.entries.snapshot(index, &mut words);
            saved.head = entry::head(&words) | 1;
            self.occupy(index, &saved, &mut words)?;
        }
        Ok(())
    }
}

impl Shared {
    fn numbers(&self) -> usize {
        self.free.numbers() as usize
    }

    /// Reads the next entry of an image: prefetches the buckets of a live one, and restores a free one at once.
    fn next_live<'a>(&self, reader: &mut Reader<'a>, words: &mut [u64]) -> Result<Option<Saved<'a>>, ImageError> {
        let (index, word) = (reader.word()?, reader.word()?);
        let Ok(head) = u32::try_from(word) else {
            return Err(reader.wrong(format!("entry {index} has no possible generation")));
        };
        if head & 1 == 0 {
            if let Some(index) = u32::try_from(index).ok().filter(|index| *index < self.free.numbers()) {
                self.initialise(index, head, [&[], &[]], words);
            }
            return Ok(None);
        }
        let (key, value) = (reader.bytes(self.key_bytes)?, reader.bytes(self.value_bytes)?);
        let home = Home::new((self.hash)(key, self.seed), self.buckets.main.objects());
        self.buckets.prefetch(home);
        Ok(Some(Saved { index, head, key, value, home }))
    }

    fn initialise(&self, index: u32, head: u32, [key, value]: [&[u8]; 2], words: &mut [u64]) {
        words.fill(0);
        for (at, part) in [(0, &head.to_ne_bytes()[..]), (self.layout.key, key), (self.layout.value, value)] {
            words.as_mut_bytes()[at..at + part.len()].copy_from_slice(part);
        }
        self.entries.initialise(index, words);
    }

    /// Fills a free entry and adds it to its buckets, unless another entry has its key.
    fn occupy(&self, index: u32, saved: &Saved<'_>, words: &mut [u64]) -> Result<(), ImageError> {
        let is_there = self.buckets.snapshot(saved.home).any(|other| {
            self.entries.snapshot(other, words);
            entry::is_live(words) && self.content(words)[0] == saved.key
        });
        if is_there {
            return Err(ImageError { object: self.named.name.clone(), what: "a key stands in it twice".to_owned() });
        }
        self.initialise(index, saved.head, [saved.key, saved.value], words);
        self.buckets.place_entry(saved.home, index);
        Ok(())
    }
}
