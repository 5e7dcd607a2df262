//! A distributed vector's image: size and number of elements, then worker, index and bytes of each element that is not all zero.

use braid_stm::Tx;
use zerocopy::IntoBytes;

use super::Shared;
use crate::image::{Image, ImageError, Reader, put};

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut image = Vec::new();
        put(&mut image, self.bytes as u64);
        put(&mut image, u64::from(self.len));
        for at in 0..self.elements.objects() {
            let words = self.value(at);
            if words.iter().any(|word| *word != 0) {
                put(&mut image, u64::from(at / self.len));
                put(&mut image, u64::from(at % self.len));
                image.extend_from_slice(&words.as_bytes()[..self.bytes]);
            }
        }
        image
    }

    /// Parts of workers that no longer exist are merged into those of the first ones. Another number of elements is refused, because the
    /// meaning of an index would change.
    fn restore(&self, _: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        reader.same("an element", self.bytes)?;
        let saved = reader.word()?;
        if saved != u64::from(self.len) {
            return Err(reader.wrong(format!("{saved} elements were saved, {} are wanted", self.len)));
        }
        while !reader.is_empty() {
            let (worker, index) = (reader.word()?, reader.word()?);
            let mut words = vec![0u64; self.elements.payload_words()];
            words.as_mut_bytes()[..self.bytes].copy_from_slice(reader.bytes(self.bytes)?);
            if index >= saved {
                return Err(reader.wrong(format!("element {index} of {saved}")));
            }
            let at = (worker % u64::from(self.workers())) as u32 * self.len + index as u32;
            let mut sum = self.value(at);
            (self.merge)(&mut sum, &words);
            self.elements.initialise(at, &sum);
        }
        Ok(())
    }
}
