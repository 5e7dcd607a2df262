//! The extension records of a batch: what its chain carries beside packets and [`Record`](crate::Record)s.
//!
//! One object with everything that a packet needs of it, so a [`Packet`](crate::Packet) holds one reference and a loop that
//! makes one packet after another writes little. Places of fields come from the [`Layout`]; rows are as wide as it says.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::batch::BATCH_MAX;
use crate::fields::{Field, Layout};

/// Rows of [`BATCH_MAX`] packets, one behind another.
#[derive(Debug)]
pub(crate) struct Metas {
    rows: Box<[u8]>,
    width: u32,
    wire_len: Field<u32>,
    /// Some packet had more bytes on the wire than are present: only then do the rows say how many.
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

    /// Whether the chain carries nothing.
    #[inline(always)]
    pub(crate) fn is_bare(&self) -> bool {
        self.width == 0
    }

    /// Whether some packet had more bytes on the wire than are present, and the chain minds.
    #[inline(always)]
    pub(crate) fn has_cuts(&self) -> bool {
        self.cut
    }

    /// Where packets find their length on the wire, if any of them was cut; none if their own length is what they had.
    #[inline(always)]
    pub(crate) fn wire_lens(&self) -> Option<Field<u32>> {
        self.cut.then_some(self.wire_len)
    }

    /// Whether a packet that had more bytes on the wire than are present makes a difference to the chain.
    #[inline(always)]
    pub(crate) fn minds_cuts(&self) -> bool {
        self.wire_len.is_carried()
    }

    /// From now on rows say how many bytes were on the wire; `present` are those of the packets so far.
    #[cold]
    pub(crate) fn begin_cut(&mut self, present: impl Iterator<Item = u32>) {
        let field = self.wire_len;
        self.rows_from_mut(0).zip(present).for_each(|(row, len)| field.write(row, len));
        self.cut = true;
    }

    /// No packet is left.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.cut = false;
    }

    #[inline(always)]
    fn range(&self, i: u16) -> Range<usize> {
        // No overflow, and the compiler knows: 16 bits times 32.
        let from = usize::from(i) * self.width as usize;
        from..from + self.width as usize
    }

    /// Row of packet `i`; empty if there is none.
    #[inline(always)]
    pub(crate) fn row(&self, i: u16) -> &[u8] {
        self.rows.get(self.range(i)).unwrap_or_default()
    }

    /// The same, to change.
    #[inline(always)]
    pub(crate) fn row_mut(&mut self, i: u16) -> &mut [u8] {
        self.rows.get_mut(self.range(i)).unwrap_or_default()
    }

    /// All rows from packet `first` on; none if the chain carries nothing.
    #[inline(always)]
    pub(crate) fn rows_from(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        self.rows.chunks_exact(self.width.max(1) as usize).skip(first)
    }

    /// The same, to change.
    #[inline(always)]
    pub(crate) fn rows_from_mut(&mut self, first: usize) -> impl Iterator<Item = &mut [u8]> {
        self.rows.chunks_exact_mut(self.width.max(1) as usize).skip(first)
    }

    /// A field of packet `i`; zero if it is not carried.
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
