//! The field definition table: which metadata a chain carries with its packets, and at which offsets.
//!
//! The 16-byte [`Record`](crate::Record) is always there. Everything else is a *field* that a stage declares: a source (time
//! stamp, length on the wire), a network function, a sink. [`Layout::compose`] assigns each field an offset in a dense
//! extension record, stored apart from the packet and its [`Record`](crate::Record). Fields that are not alive at the same
//! time share bytes. A field that no stage reads is not carried, and writes to it have no effect; a field that is read but
//! never written is an error.

mod compose;

pub use compose::{CacheLines, FieldDecl, FieldError, FieldRow, StageUse};

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Time stamp in nanoseconds since the epoch of the capture; eight bytes, written by the source.
pub const TIMESTAMP_NS: &str = "timestamp_ns";
/// Length of the frame on the wire in bytes; four bytes, written by the source.
pub const WIRE_LEN: &str = "wire_len";
/// Number of the packet in its source, from 0; eight bytes, written by the source.
pub const SEQUENCE: &str = "sequence";

/// The offset of a field of type `T` in the extension record, or [`ABSENT`](Self::ABSENT) if no stage reads it.
#[derive(Debug)]
pub struct Field<T> {
    offset: u16,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Field<T> {}

impl<T: FromBytes + IntoBytes + Immutable> Default for Field<T> {
    fn default() -> Self {
        Field::ABSENT
    }
}

impl<T: FromBytes + IntoBytes + Immutable> Field<T> {
    /// A field that is not carried: writes have no effect, reads yield zeroes.
    pub const ABSENT: Field<T> = Field { offset: u16::MAX, kind: PhantomData };

    /// Creates a field at a byte offset of the extension record.
    pub(crate) const fn at(offset: u16) -> Field<T> {
        Field { offset, kind: PhantomData }
    }

    /// Returns whether the layout carries the field.
    #[inline(always)]
    pub fn is_carried(self) -> bool {
        self.offset != u16::MAX
    }

    /// Reads the field from an extension record.
    #[inline(always)]
    pub fn read(self, record: &[u8]) -> T {
        let at = self.offset as usize;
        match record.get(at..).map(T::read_from_prefix) {
            Some(Ok((value, _))) => value,
            _ => T::new_zeroed(),
        }
    }

    /// Returns the offset of the field in an extension record; valid only if it is carried.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset as usize
    }

    /// Writes the field into an extension record.
    #[inline(always)]
    pub fn write(self, record: &mut [u8], value: T) {
        let at = self.offset as usize;
        if let Some(place) = record.get_mut(at..) {
            let _ = value.write_to_prefix(place);
        }
    }
}

/// The layout of a chain's extension records.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Length of an extension record in bytes; 0 if the chain needs none.
    pub record_bytes: usize,
    /// Time stamp in nanoseconds since the epoch of the capture, written by the source.
    pub timestamp: Field<u64>,
    /// Length on the wire in bytes, written by the source (more than is present if a snap length cut the frame).
    pub wire_len: Field<u32>,
    /// Number of the packet in its source, from 0, written by the source.
    pub sequence: Field<u64>,
    rows: Vec<FieldRow>,
}

impl Layout {
    /// Creates a layout without extension records.
    pub fn bare() -> Layout {
        Layout {
            record_bytes: 0,
            timestamp: Field::ABSENT,
            wire_len: Field::ABSENT,
            sequence: Field::ABSENT,
            rows: Vec::new(),
        }
    }

    /// Creates the layout for a sink that writes captures: time stamp, sequence number, length on the wire.
    pub fn capture() -> Layout {
        let row = |name: &str, bytes, offset| FieldRow {
            name: name.to_owned(),
            bytes,
            offset: Some(offset),
            written_by: vec!["source".to_owned()],
            read_by: vec!["sink".to_owned()],
        };
        Layout {
            record_bytes: 24,
            timestamp: Field::at(0),
            sequence: Field::at(8),
            wire_len: Field::at(16),
            rows: vec![row(TIMESTAMP_NS, 8, 0), row(SEQUENCE, 8, 8), row(WIRE_LEN, 4, 16)],
        }
    }

    /// Returns a declared field; [`Field::ABSENT`] if no stage reads it. Returns an error if no stage declared it, or if it
    /// was declared with another width than that of `T`.
    pub fn field<T: FromBytes + IntoBytes + Immutable>(&self, name: &str) -> Result<Field<T>, FieldError> {
        let Some(row) = self.rows.iter().find(|row| row.name == name) else {
            return Err(FieldError::Undeclared(name.to_owned()));
        };
        if usize::from(row.bytes) != size_of::<T>() {
            return Err(FieldError::OtherType { field: name.to_owned(), bytes: row.bytes, asked: size_of::<T>() });
        }
        Ok(row.offset.map_or(Field::ABSENT, Field::at))
    }

    /// Returns one row per declared field, carried fields first, by offset.
    pub fn describe(&self) -> &[FieldRow] {
        &self.rows
    }

    /// Returns the number of cache lines of 64 bytes that a batch of `packets` touches.
    pub fn cache_lines(&self, packets: usize) -> CacheLines {
        let lines = |bytes: usize| (packets * bytes).div_ceil(64);
        CacheLines { headers: packets, records: lines(size_of::<crate::Record>()), extension: lines(self.record_bytes) }
    }
}

#[cfg(test)]
mod tests;
