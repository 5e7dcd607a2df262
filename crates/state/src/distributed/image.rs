//! A distributed object's image: the parts of all workers.

use braid_stm::Tx;
use zerocopy::IntoBytes;

use super::Shared;
use crate::image::{Image, ImageError, Reader, put};

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut words = vec![0; 1 + self.value_words];
        let mut image = Vec::new();
        put(&mut image, self.value_bytes as u64);
        for worker in 0..self.parts.objects() {
            self.parts.snapshot(worker, &mut words);
            image.extend_from_slice(&words[1..].as_bytes()[..self.value_bytes]);
        }
        image
    }

    /// The first workers get the saved parts; further workers keep their initial value. Parts of workers that no longer exist are added to those
    /// of the first ones, as 64-bit words: parts must be sums of such words, or they cannot be restored on fewer workers.
    fn restore(&self, _: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        reader.same("a value", self.value_bytes)?;
        let workers = self.parts.objects() as usize;
        let mut parts = vec![vec![0u64; 1 + self.value_words]; workers];
        let mut saved = 0;
        while !reader.is_empty() {
            let bytes = reader.bytes(self.value_bytes.max(1))?;
            if saved >= workers && !self.value_bytes.is_multiple_of(8) {
                let what =
                    format!("parts of more than {workers} workers were saved, which cannot be added; run as many");
                return Err(reader.wrong(what));
            }
            let mut value = vec![0u64; self.value_words];
            value.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
            let part = &mut parts[saved % workers][1..];
            part.iter_mut().zip(value).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
            saved += 1;
        }
        let restored = parts.iter().take(saved).enumerate();
        restored.for_each(|(worker, words)| self.parts.initialise(worker as u32, words));
        Ok(())
    }
}
