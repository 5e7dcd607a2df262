//! Images of structures, which outlive a process.
//!
//! An image consists of little-endian words, without pointers or positions that depend on memory. It may come from a file that was tampered
//! with, so every length, number and generation is checked before it is used.

use braid_stm::Tx;

/// A structure that can be saved and restored.
pub trait Image {
    /// Saves everything that is needed to restore the structure as it is, including numbers and generations of elements; to be called while no
    /// transaction runs.
    fn save(&self) -> Vec<u8>;
    /// Restores the result of [`save`](Self::save), perhaps in another process with other capacities or another number of workers, into an
    /// object that was just created. Whatever the bytes are, the structure stays sound; after an error it contains a part of the
    /// image. No other transaction than `tx` may be active.
    fn restore(&self, tx: &mut Tx, image: &[u8]) -> Result<(), ImageError>;
}

/// Why an image cannot be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {what}")]
pub struct ImageError {
    /// The structure.
    pub object: String,
    /// What is wrong.
    pub what: String,
}

/// Reads an image from front to back.
pub(crate) struct Reader<'a> {
    object: &'a str,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(object: &'a str, image: &'a [u8]) -> Reader<'a> {
        Reader { object, rest: image }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], ImageError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.wrong("the image is cut off"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn word(&mut self) -> Result<u64, ImageError> {
        let bytes = self.bytes(8)?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Reads a size, which must equal the structure's own.
    pub(crate) fn same(&mut self, what: &str, own: usize) -> Result<(), ImageError> {
        let saved = self.word()?;
        if saved == own as u64 {
            return Ok(());
        }
        Err(self.wrong(format!("{what} of {saved} bytes were saved, {own} are wanted")))
    }

    pub(crate) fn wrong(&self, what: impl Into<String>) -> ImageError {
        ImageError { object: self.object.to_owned(), what: what.into() }
    }
}

/// Appends a word to an image.
pub(crate) fn put(into: &mut Vec<u8>, word: u64) {
    into.extend_from_slice(&word.to_le_bytes());
}
