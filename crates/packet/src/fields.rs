//! The field definition table: which metadata a chain carries beside its packets, and where.
//!
//! The 16-byte [`Record`](crate::Record) is always there. Everything else is a *field* that somebody declares: a source
//! (time stamp, length on the wire), the parser, a network function. [`Layout`] says where each lies in a dense record of the
//! batch, apart from packet and [`Record`](crate::Record).

use std::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

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
}

impl Layout {
    /// No extension at all.
    pub fn bare() -> Layout {
        Layout { record_bytes: 0, timestamp: Field::ABSENT, wire_len: Field::ABSENT, sequence: Field::ABSENT }
    }

    /// Everything that a capture gives: time stamp, sequence number, length on the wire.
    pub fn capture() -> Layout {
        Layout { record_bytes: 24, timestamp: Field::at(0), sequence: Field::at(8), wire_len: Field::at(16) }
    }
}
