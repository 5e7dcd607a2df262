//! A vector's image: element size and length, then index and bytes of each element that is not all zero.

use braid_stm::Tx;
use zerocopy::IntoBytes;

use super::Shared;
use crate::image::{Image, ImageError, Reader, put};
use crate::plain::Plain;

/// One element of an image; `None` if the index is beyond its end or its elements have another size.
pub(super) fn element<T: Plain>(image: &[u8], index: u32) -> Option<T> {
    let mut reader = Reader::new("", image);
    reader.same("elements", size_of::<T>()).ok()?;
    let len = reader.word().ok()?;
    while !reader.is_empty() {
        let (at, bytes) = (reader.word().ok()?, reader.bytes(size_of::<T>()).ok()?);
        if at == u64::from(index) {
            return T::read_from_bytes(bytes).ok();
        }
    }
    (u64::from(index) < len).then(T::new_zeroed)
}

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut words = vec![0; self.elements.payload_words()];
        let mut image = Vec::new();
        put(&mut image, self.bytes as u64);
        put(&mut image, u64::from(self.elements.objects()));
        for index in 0..self.elements.objects() {
            self.elements.snapshot(index, &mut words);
            if words.iter().any(|word| *word != 0) {
                put(&mut image, u64::from(index));
                image.extend_from_slice(&words.as_bytes()[..self.bytes]);
            }
        }
        image
    }

    /// A shorter vector takes the elements that fit; elements beyond the saved ones keep their initial value.
    fn restore(&self, _: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        reader.same("elements", self.bytes)?;
        let saved = reader.word()?;
        let mut words = vec![0; self.elements.payload_words()];
        for index in 0..self.elements.objects().min(u32::try_from(saved).unwrap_or(u32::MAX)) {
            self.elements.initialise(index, &words);
        }
        while !reader.is_empty() {
            let (index, bytes) = (reader.word()?, reader.bytes(self.bytes)?);
            if index >= saved {
                return Err(reader.wrong(format!("element {index} of {saved}")));
            }
            if index < u64::from(self.elements.objects()) {
                words.fill(0);
                words.as_mut_bytes()[..self.bytes].copy_from_slice(bytes);
                self.elements.initialise(index as u32, &words);
            }
        }
        Ok(())
    }
}
