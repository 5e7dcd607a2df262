//! Images of structures: what outlives a process.
//!
//! Little-endian words, no pointers, no places that depend on memory. An image may come from a file that somebody has
//! touched: every length, number and generation is checked before it is used.

use braid_stm::Tx;

/// A structure that can be saved and put back.
pub trait Image {
    /// Everything that is needed to put it back as it is, numbers and generations of elements included; while no
    /// transaction runs.
    fn save(&self) -> Vec<u8>;
    /// Puts back what [`save`](Self::save) gave, perhaps in another process with other capacities or numbers of workers,
    /// into an object that was just made. Whatever the bytes are, the structure stays sound; after an error its content is
    /// a part of them. `tx` must be alone.
    fn restore(&self, tx: &mut Tx, image: &[u8]) -> Result<(), ImageError>;
}

/// An image that cannot be put back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {what}")]
pub struct ImageError {
    /// The structure.
    pub object: String,
    /// What is wrong.
    pub what: String,
}

/// An image from the front to the back.
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

    /// A size that has to be the structure's own.
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

/// Words of an object as bytes of an image and back.
pub(crate) fn put(into: &mut Vec<u8>, word: u64) {
    into.extend_from_slice(&word.to_le_bytes());
}
