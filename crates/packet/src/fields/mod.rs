//! The field definition table: which metadata a chain carries beside its packets, and where.
//!
//! The 16-byte [`Record`](crate::Record) is always there. Everything else is a *field* that somebody declares: a source
//! (time stamp, length on the wire), a network function, a sink. [`Layout::compose`] says where each lies in a dense record of
//! the batch, apart from packet and [`Record`](crate::Record): fields that are not alive at the same time share bytes, a field
//! that nobody reads is not carried and writes to it do nothing, one that is read but never written is an error.

mod compose;

pub use compose::{CacheLines, FieldDecl, FieldError, FieldRow, StageUse};

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Nanoseconds since the epoch of the capture; eight bytes, written by the source.
pub const TIMESTAMP_NS: &str = "timestamp_ns";
/// Bytes that the frame had on the wire; four bytes, written by the source.
pub const WIRE_LEN: &str = "wire_len";
/// Number of the packet in its source, from 0; eight bytes, written by the source.
pub const SEQUENCE: &str = "sequence";

/// Where a field of type `T` lies in the extension record, or that nobody reads it and writes are skipped.
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
    /// The field that is not carried: writes do nothing, reads give zeroes.
    pub const ABSENT: Field<T> = Field { offset: u16::MAX, kind: PhantomData };

    /// A field at a byte offset of the extension record.
    pub(crate) const fn at(offset: u16) -> Field<T> {
        Field { offset, kind: PhantomData }
    }

    /// Whether the layout carries it.
    #[inline(always)]
    pub fn is_carried(self) -> bool {
        self.offset != u16::MAX
    }

    /// Reads it from an extension record.
    #[inline(always)]
    pub fn read(self, record: &[u8]) -> T {
        let at = self.offset as usize;
        match record.get(at..).map(T::read_from_prefix) {
            Some(Ok((value, _))) => value,
            _ => T::new_zeroed(),
        }
    }

    /// Its first byte in an extension record, if it is carried.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.offset as usize
    }

    /// Writes it into an extension record.
    #[inline(always)]
    pub fn write(self, record: &mut [u8], value: T) {
        let at = self.offset as usize;
        if let Some(place) = record.get_mut(at..) {
            let _ = value.write_to_prefix(place);
        }
    }
}

/// The layout of one chain's extension records.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bytes of an extension record; 0 if the chain needs none.
    pub record_bytes: usize,
    /// Nanoseconds since the epoch of the capture, written by the source.
    pub timestamp: Field<u64>,
    /// Bytes that the frame had on the wire, written by the source (more than are present if a snap length cut it).
    pub wire_len: Field<u32>,
    /// Number of the packet in its source, from 0, written by the source.
    pub sequence: Field<u64>,
    rows: Vec<FieldRow>,
}

impl Layout {
    /// No extension at all.
    pub fn bare() -> Layout {
        Layout {
            record_bytes: 0,
            timestamp: Field::ABSENT,
            wire_len: Field::ABSENT,
            sequence: Field::ABSENT,
            rows: Vec::new(),
        }
    }

    /// Everything that a capture gives, for a sink that writes one: time stamp, sequence number, length on the wire.
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

    /// Where a declared field lies; [`Field::ABSENT`] if nobody reads it. Errors: no stage declared it, or with another width
    /// than `T` has.
    pub fn field<T: FromBytes + IntoBytes + Immutable>(&self, name: &str) -> Result<Field<T>, FieldError> {
        let Some(row) = self.rows.iter().find(|row| row.name == name) else {
            return Err(FieldError::Undeclared(name.to_owned()));
        };
        if usize::from(row.bytes) != size_of::<T>() {
            return Err(FieldError::OtherType { field: name.to_owned(), bytes: row.bytes, asked: size_of::<T>() });
        }
        Ok(row.offset.map_or(Field::ABSENT, Field::at))
    }

    /// One row for each declared field, carried ones first by their place.
    pub fn describe(&self) -> &[FieldRow] {
        &self.rows
    }

    /// First-level cache lines that a batch of `packets` touches.
    pub fn cache_lines(&self, packets: usize) -> CacheLines {
        let lines = |bytes: usize| (packets * bytes).div_ceil(64);
        CacheLines { headers: packets, records: lines(size_of::<crate::Record>()), extension: lines(self.record_bytes) }
    }
}

#[cfg(test)]
mod tests;
