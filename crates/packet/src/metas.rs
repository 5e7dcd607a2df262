//! The extension records of a batch: the metadata that its chain carries in addition to packets and
//! [`Record`](crate::Record)s.
//!
//! Everything that a packet needs of the metadata is in one object, so a [`Packet`](crate::Packet) holds one reference and a
//! loop over packets writes little. The [`Layout`] determines the offsets of fields and the width of rows.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::batch::BATCH_MAX;
use crate::fields::{Field, Layout};

/// Rows for [`BATCH_MAX`] packets, one after another.
#[derive(Debug)]
pub(crate) struct Metas {
    rows: Box<[u8]>,
    width: u32,
    wire_len: Field<u32>,
    /// Whether a packet had more bytes on the wire than are present; only then are the wire lengths in the rows valid.
    cut: bool,
    layout: Arc<Layout>,
}

impl Metas {
    pub(crate) fn new(layout: &Arc<Layout>) -> Metas {
        let rows = vec![0; BATCH_MAX * layout.record_bytes].into_boxed_slice();
        Metas {
            rows,
            width: layout.record_bytes as u32,
            wire_len: layout.wire_len,
            cut: false,
            layout: Arc::clone(layout),
        }
    }

    #[inline(always)]
    pub(crate) fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns whether the chain carries no metadata.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        self.width == 0
    }

    /// Returns whether a packet had more bytes on the wire than are present and the chain carries wire lengths.
    #[inline(always)]
    pub(crate) fn has_cuts(&self) -> bool {
        self.cut
    }

    /// Returns the field with the wire lengths if a packet was cut; `None` if every packet's wire length is its own length.
    #[inline(always)]
    pub(crate) fn wire_lens(&self) -> Option<Field<u32>> {
        self.cut.then_some(self.wire_len)
    }

    /// Returns whether the chain carries wire lengths, so that cut packets matter.
    #[inline(always)]
    pub(crate) fn minds_cuts(&self) -> bool {
        self.wire_len.is_carried()
    }

    /// Starts keeping wire lengths in the rows; `present` gives the lengths of the packets so far.
    #[cold]
    pub(crate) fn begin_cut(&mut self, present: impl Iterator<Item = u32>) {
        let field = self.wire_len;
        self.rows_from_mut(0).zip(present).for_each(|(row, len)| field.write(row, len));
        self.cut = true;
    }

    /// Forgets cut packets, because the batch has been emptied.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.cut = false;
    }

    #[inline(always)]
    fn range(&self, i: u16) -> Range<usize> {
        // 16 bits times 32 bits cannot overflow, which the compiler can see.
        let from = usize::from(i) * self.width as usize;
        from..from + self.width as usize
    }

    /// Returns the row of packet `i`; empty if there is none.
    #[inline(always)]
    pub(crate) fn row(&self, i: u16) -> &[u8] {
        self.rows.get(self.range(i)).unwrap_or_default()
    }

    /// Returns the row of packet `i` for modification.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, i: u16) -> &mut [u8] {
        self.rows.get_mut(self.range(i)).unwrap_or_default()
    }

    /// Returns all rows from packet `first` on; none if the chain carries no metadata.
    #[inline(always)]
    pub(crate) fn rows_from(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        self.rows.chunks_exact(self.width.max(1) as usize).skip(first)
    }

    /// Returns all rows from packet `first` on for modification.
    #[inline(always)]
    pub(crate) fn rows_from_mut(&mut self, first: usize) -> impl Iterator<Item = &mut [u8]> {
        self.rows.chunks_exact_mut(self.width.max(1) as usize).skip(first)
    }

    /// Returns a field of packet `i`; zero if it is not carried.
    #[inline(always)]
    pub(crate) fn read<T: FromBytes + IntoBytes + Immutable>(&self, i: u16, field: Field<T>) -> T {
        if !field.is_carried() {
            return T::new_zeroed();
        }
        let from = usize::from(i) * self.width as usize + field.offset();
        let bytes = self.rows.get(from..from + size_of::<T>());
        bytes.and_then(|bytes| T::read_from_bytes(bytes).ok()).unwrap_or_else(T::new_zeroed)
    }
}
