//! A batch: the packets returned by one receive, stored side by side.

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::fields::{Field, Layout};
use crate::lines::{Line, LinedFrame};
use crate::metas::Metas;
use crate::packet::Packet;
use crate::pool::{Buffers, Pool};
use crate::raw::fours::VisitFours;
use crate::raw::order::Order;
use crate::raw::records::{Records, Seen};
use crate::raw::slab::Buffer;
use crate::raw::walk::Walk;
use crate::record::{Link, Port, Record};
use crate::undo::{Place, Undo};

/// Maximum number of packets in a batch.
pub const BATCH_MAX: usize = 256;

/// What a source knows about a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInfo {
    /// Arrival port.
    pub port: Port,
    /// Link type of the frame.
    pub link: Link,
    /// Time stamp in nanoseconds since the source's epoch.
    pub timestamp_ns: u64,
    /// Length on the wire in bytes; at least the bytes present.
    pub wire_len: u32,
    /// Number of the frame in its source.
    pub sequence: u64,
}

/// A packet outside of a batch, for rings and queues. It owns its buffer: push it back into a batch, or the pool loses the buffer.
#[derive(Debug)]
#[must_use = "a dropped frame loses its buffer"]
pub struct Frame {
    record: Record,
    pool: u32,
    info: FrameInfo,
}

impl Frame {
    /// Returns the number of the frame in its source.
    pub fn sequence(&self) -> u64 {
        self.info.sequence
    }

    /// Returns the time stamp in nanoseconds.
    pub fn timestamp_ns(&self) -> u64 {
        self.info.timestamp_ns
    }
}

/// Up to [`BATCH_MAX`] packets of one pool, with their records and metadata.
#[derive(Debug)]
pub struct Batch {
    held: Records,
    metas: Metas,
}

impl Batch {
    /// Creates an empty batch.
    pub fn new(pool: &Arc<Pool>, layout: &Arc<Layout>) -> Batch {
        Batch { held: Records::new(pool), metas: Metas::new(layout) }
    }

    /// Returns the number of packets.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Returns whether there are no packets.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.records().is_empty()
    }

    /// Returns how many more packets fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        BATCH_MAX - self.len()
    }

    /// Returns the metadata layout.
    pub fn layout(&self) -> &Arc<Layout> {
        self.metas.layout()
    }

    /// Returns the pool of the buffers.
    pub fn pool(&self) -> &Arc<Pool> {
        self.held.pool()
    }

    /// Copies a frame into the batch. Returns `false`, with no effect, if the batch is full or no buffer is free.
    #[inline]
    pub fn copy_in(&mut self, buffers: &mut Buffers, bytes: &[u8], info: &FrameInfo) -> bool {
        debug_assert!(Arc::ptr_eq(buffers.pool(), self.pool()));
        let record = Record::arrived(bytes.len() as u32, info.port, info.link);
        let done = self.held.copy_in(buffers, bytes, record);
        if done && !self.metas.is_bare() {
            self.note(self.len() - 1, info);
        }
        done
    }

    /// Copies in frames that are stored in `lines` one after another; frames of up to 64 bytes need no copy of variable
    /// length. `info` is called only if the layout carries a field that it provides. `whole` asserts that no frame had more
    /// bytes on the wire than are present. Returns how many frames and lines were consumed: fewer than given if the batch is
    /// full, no buffer is free, or a frame is too long for a buffer.
    #[inline]
    pub fn copy_lines_in(
        &mut self,
        buffers: &mut Buffers,
        lines: &[Line],
        frames: &[LinedFrame],
        whole: bool,
        info: impl Fn(usize) -> FrameInfo,
    ) -> (usize, usize) {
        let before = self.len();
        let (taken, lines) = self.held.copy_lines(buffers, lines, frames);
        if !self.metas.is_bare() {
            let layout = Arc::clone(self.layout());
            // Field by field, so that fields that are not carried are not computed.
            self.note_column(before, taken, layout.timestamp, |i| info(i).timestamp_ns);
            if !whole && self.metas.minds_cuts() {
                (0..taken).for_each(|i| self.note_wire_len(before + i, info(i).wire_len));
            } else if let Some(field) = self.metas.wire_lens() {
                self.note_column(before, taken, field, |i| info(i).wire_len);
            }
            self.note_column(before, taken, layout.sequence, |i| info(i).sequence);
        }
        (taken, lines)
    }

    /// Writes a field of `count` packets, starting with packet `first`.
    #[inline(always)]
    fn note_column<T>(&mut self, first: usize, count: usize, field: Field<T>, value: impl Fn(usize) -> T)
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        if field.is_carried() {
            let rows = self.metas.rows_from_mut(first).take(count);
            rows.enumerate().for_each(|(i, row)| field.write(row, value(i)));
        }
    }

    /// Writes what the source knows about packet `i` into its metadata.
    #[inline(always)]
    fn note(&mut self, i: usize, info: &FrameInfo) {
        let layout = self.metas.layout();
        let (timestamp, sequence) = (layout.timestamp, layout.sequence);
        let meta = self.metas.row_mut(i as u16);
        timestamp.write(meta, info.timestamp_ns);
        sequence.write(meta, info.sequence);
        if self.metas.minds_cuts() {
            self.note_wire_len(i, info.wire_len);
        }
    }

    /// Writes the wire length of packet `i`, the last one, unless it and all packets before it are present in full.
    #[inline(always)]
    fn note_wire_len(&mut self, i: usize, wire_len: u32) {
        if wire_len != self.records()[i].len && self.metas.wire_lens().is_none() {
            self.metas.begin_cut(self.held.records().iter().map(|record| record.len));
        }
        if let Some(field) = self.metas.wire_lens() {
            field.write(self.metas.row_mut(i as u16), wire_len);
        }
    }

    /// Adds a frame. Panics if the batch is full or the frame belongs to another pool; both are bugs in the caller.
    pub fn push(&mut self, frame: Frame) {
        self.held.push(frame.record, frame.pool);
        self.note(self.len() - 1, &frame.info);
    }

    /// Adds a record of the pool with id `pool`. Panics if the batch is full.
    #[inline]
    pub(crate) fn push_record(&mut self, record: Record, pool: u32, info: &FrameInfo) {
        self.held.push(record, pool);
        if !self.metas.is_bare() {
            self.note(self.len() - 1, info);
        }
    }

    /// Exchanges the buffer of packet `i` for another buffer of the pool with id `pool`.
    #[inline]
    pub(crate) fn exchange(&mut self, i: usize, buffer: Buffer, pool: u32) -> Buffer {
        self.held.exchange(i, buffer, pool)
    }

    /// Removes the last packet.
    pub fn pop(&mut self) -> Option<Frame> {
        let i = self.len().checked_sub(1)?;
        let (timestamp_ns, wire_len, sequence) = (self.timestamp_ns(i), self.wire_len(i), self.sequence(i));
        let record = self.held.pop()?;
        let info = FrameInfo { port: record.port, link: record.flags.link(), timestamp_ns, wire_len, sequence };
        Some(Frame { record, pool: self.pool().id(), info })
    }

    /// Gives all buffers back to the stock and empties the batch.
    #[inline]
    pub fn release(&mut self, buffers: &mut Buffers) {
        self.held.release(buffers);
        self.metas.clear();
    }

    /// Returns the records.
    #[inline(always)]
    pub fn records(&self) -> &[Record] {
        self.held.records()
    }

    /// Finds the headers of every packet and writes their positions into the records.
    #[inline]
    pub fn parse_all(&mut self) {
        self.held.parse_all();
    }

    /// Returns the records and bytes of all packets.
    #[inline(always)]
    pub fn frames(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        self.held.frames()
    }

    /// Calls `visit` with the number and contents of each packet.
    #[inline(always)]
    pub(crate) fn each(&self, visit: impl FnMut(usize, Seen<'_>)) {
        self.held.each(visit);
    }

    /// Calls `visit` for each packet, but shows four packets of the plainest kind together; returns `visit`.
    #[inline(always)]
    pub(crate) fn each_in_fours<V: VisitFours>(&self, visit: V) -> V {
        self.held.each_in_fours(visit)
    }

    /// Like [`parse_all`](Self::parse_all), but calls `visit` for each packet as soon as its headers are found.
    #[inline(always)]
    pub(crate) fn parse_each(&mut self, visit: impl FnMut(usize, Seen<'_>)) {
        self.held.parse_each(visit);
    }

    /// Like [`parse_each`](Self::parse_each), but shows four packets of the plainest kind together; returns `visit`.
    #[inline(always)]
    pub(crate) fn parse_in_fours<V: VisitFours>(&mut self, visit: V) -> V {
        self.held.parse_in_fours(visit)
    }

    /// Returns the bytes of packet `i`.
    #[inline(always)]
    pub fn bytes(&self, i: usize) -> &[u8] {
        self.held.frame(i)
    }

    /// Prefetches the first cache line of packet `i`.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        self.held.prefetch(i);
    }

    /// Returns packet `i`, to read and change; if there is an `undo` log, everything overwritten is saved there first.
    #[inline(always)]
    pub fn packet<'a>(&'a mut self, i: usize, undo: Option<&'a mut Undo>) -> Packet<'a> {
        let (record, room) = self.held.parts_mut(i);
        let among_cuts = self.metas.has_cuts();
        Packet::new(i, record, room, (&mut self.metas, among_cuts), undo)
    }

    /// Walks over the packets listed in `order`, to read and change them one after another. Panics if a number is out of
    /// range, or if `ORDINARY` is set and the batch is not [ordinary](Self::is_ordinary).
    #[inline(always)]
    pub fn walk<'a, const ORDINARY: bool>(&'a mut self, order: Order<'a>) -> Walk<'a, ORDINARY> {
        assert!(!ORDINARY || self.is_ordinary());
        self.held.walk(&mut self.metas, order)
    }

    /// Returns whether no packet is in a jumbo buffer and no packet had more bytes on the wire than are present. One such
    /// packet makes the whole batch not ordinary until the batch is emptied.
    #[inline(always)]
    pub fn is_ordinary(&self) -> bool {
        self.held.is_ordinary() && !self.metas.has_cuts()
    }

    /// Undoes every change of packet `i` that `undo` holds since `mark`; other packets keep theirs.
    pub fn restore(&mut self, i: usize, undo: &mut Undo, mark: usize) {
        self.unwind(undo, mark, Some(i as u16));
    }

    /// Undoes every change of every packet that `undo` holds since `mark`.
    pub fn restore_all(&mut self, undo: &mut Undo, mark: usize) {
        self.unwind(undo, mark, None);
    }

    fn unwind(&mut self, undo: &mut Undo, mark: usize, packet: Option<u16>) {
        undo.unwind(mark, packet, |i, saved, bytes| {
            let (index, i) = (i, usize::from(i));
            // Another packet is in this place, or this is another batch: a bug in the caller, which must not create two
            // owners of a buffer.
            if !self.records().get(i).is_some_and(|record| record.buffer.is(&saved.record.buffer)) {
                return;
            }
            let (record, room) = self.held.parts_mut(i);
            *record = saved.record.duplicate();
            let all = if saved.place == Place::Meta { self.metas.row_mut(index) } else { room };
            if let Some(place) = all.get_mut(saved.at as usize..).and_then(|rest| rest.get_mut(..bytes.len())) {
                place.copy_from_slice(bytes);
            }
        });
    }

    /// Returns the extension record of packet `i`.
    #[inline(always)]
    pub fn meta(&self, i: usize) -> &[u8] {
        self.metas.row(i as u16)
    }

    /// Returns a field of all packets in order; `None` if the field is not carried.
    #[inline(always)]
    pub fn column<T>(&self, field: Field<T>) -> Option<impl Iterator<Item = T>>
    where
        T: FromBytes + IntoBytes + Immutable,
    {
        let rows = || self.metas.rows_from(0).take(self.len());
        field.is_carried().then(|| rows().map(move |row| field.read(row)))
    }

    /// Returns the total length of all packets on the wire in bytes: the sum of [`Batch::wire_len`].
    #[inline]
    pub fn wire_bytes(&self) -> u64 {
        match self.metas.wire_lens().and_then(|field| self.column(field)) {
            Some(lens) => lens.map(u64::from).sum(),
            None => self.present_bytes(),
        }
    }

    /// Returns the number of bytes present of all packets.
    #[inline]
    pub fn present_bytes(&self) -> u64 {
        self.records().iter().map(|record| u64::from(record.len)).sum()
    }

    /// Returns the number of bytes present of the packets in a send list, each counted as often as it is listed.
    #[inline]
    pub fn total_len(&self, out: &[(u16, Port)]) -> u64 {
        let records = self.records();
        // `out` nearly always lists all packets in order; branch-free loops can then be vectorised.
        let others = out.iter().zip(0..).fold(0, |others, (&(number, _), in_row): (_, u16)| others | (number ^ in_row));
        if others == 0 && out.len() <= records.len() {
            return records[..out.len()].iter().map(|record| u64::from(record.len)).sum();
        }
        out.iter().filter_map(|&(i, _)| records.get(usize::from(i))).map(|record| u64::from(record.len)).sum()
    }

    /// Returns the time stamp of packet `i` in nanoseconds, 0 if not carried.
    #[inline(always)]
    pub fn timestamp_ns(&self, i: usize) -> u64 {
        self.layout().timestamp.read(self.meta(i))
    }

    /// Returns the number of packet `i` in its source, 0 if not carried.
    #[inline(always)]
    pub fn sequence(&self, i: usize) -> u64 {
        self.layout().sequence.read(self.meta(i))
    }

    /// Returns the wire length of packet `i` in bytes: what the source reported, or else the bytes present.
    #[inline(always)]
    pub fn wire_len(&self, i: usize) -> u32 {
        match self.metas.wire_lens() {
            Some(field) => field.read(self.meta(i)),
            None => self.records()[i].len,
        }
    }
}
