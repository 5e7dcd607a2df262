//! What one receive returns: packets side by side.

use std::sync::Arc;

use crate::fields::Layout;
use crate::packet::Packet;
use crate::parse::{parse_any, parse_common};
use crate::pool::{Buffers, HEADROOM, Pool};
use crate::record::{Flags, Link, Port, Record};
use crate::undo::{Place, Undo};

/// Most packets in a batch.
pub const BATCH_MAX: usize = 256;

/// What a source knows about a frame besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInfo {
    /// Port by which it comes in.
    pub port: Port,
    /// What its bytes begin with.
    pub link: Link,
    /// Nanoseconds since the source's epoch.
    pub timestamp_ns: u64,
    /// Bytes on the wire; at least the bytes present.
    pub wire_len: u32,
    /// Number of the frame in its source.
    pub sequence: u64,
}

/// One cache line of frame bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

/// A frame that lies in whole cache lines; what follows `len` in the last line means nothing.
#[derive(Clone, Copy, Debug)]
pub struct LinedFrame<'a> {
    /// Exactly as many lines as `len` needs.
    pub lines: &'a [Line],
    /// Bytes of the frame.
    pub len: u32,
    /// Port by which it comes in.
    pub port: Port,
    /// What its bytes begin with.
    pub link: Link,
}

/// A packet between two batches, for rings and queues. It owns its buffer: put it back into a batch, or it is lost to the pool.
#[derive(Debug)]
#[must_use = "a dropped frame loses its buffer"]
pub struct Frame {
    record: Record,
    pool: u32,
    info: FrameInfo,
}

impl Frame {
    /// Number of the frame in its source.
    pub fn sequence(&self) -> u64 {
        self.info.sequence
    }
}

/// Up to [`BATCH_MAX`] packets of one pool, with their records, metadata and verdicts.
#[derive(Debug)]
pub struct Batch {
    pool: Arc<Pool>,
    layout: Arc<Layout>,
    records: Vec<Record>,
    meta: Box<[u8]>,
}

impl Batch {
    /// An empty batch.
    pub fn new(pool: &Arc<Pool>, layout: &Arc<Layout>) -> Batch {
        Batch {
            pool: Arc::clone(pool),
            layout: Arc::clone(layout),
            records: Vec::with_capacity(BATCH_MAX),
            meta: vec![0; BATCH_MAX * layout.record_bytes].into_boxed_slice(),
        }
    }

    /// Packets in it.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Packets that still fit.
    #[inline(always)]
    pub fn room(&self) -> usize {
        BATCH_MAX - self.records.len()
    }

    /// The metadata layout.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The pool behind it.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Copies a frame in. False, and nothing happened, if the batch is full or no buffer is free.
    #[inline]
    pub fn copy_in(&mut self, buffers: &mut Buffers, bytes: &[u8], info: &FrameInfo) -> bool {
        debug_assert!(Arc::ptr_eq(buffers.pool(), &self.pool));
        if self.records.len() >= BATCH_MAX || buffers.pool().id() != self.pool.id() {
            return false;
        }
        let Some(buffer) = buffers.take(bytes.len()) else { return false };
        // SAFETY: the number comes from the free list and is in no record yet.
        let room = unsafe { self.pool.slab.bytes_mut(buffer) };
        room[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        let record = Record {
            buffer,
            len: bytes.len() as u32,
            start: HEADROOM as u16,
            port: info.port,
            flags: Flags::new(info.link, 0),
            ..Record::default()
        };
        self.place(record, info);
        true
    }

    /// Copies up to `count` frames in, line by line: no copy of variable length for frames of up to 64 bytes. `info` is asked
    /// only if the layout carries something. Returns how many were taken: fewer if the batch is full, no buffer is free or a
    /// frame does not fit into any.
    #[inline]
    pub fn copy_lines_in<'a>(
        &mut self,
        buffers: &mut Buffers,
        count: usize,
        frame: impl Fn(usize) -> LinedFrame<'a>,
        info: impl Fn(usize) -> FrameInfo,
    ) -> usize {
        assert!(buffers.pool().id() == self.pool.id());
        let count = count.min(self.room());
        for i in 0..count {
            let LinedFrame { lines, len, port, link } = frame(i);
            let Some(buffer) = buffers.take(lines.len() * 64) else { return i };
            // SAFETY: the number comes from the free list and is in no record yet.
            let room = unsafe { self.pool.slab.bytes_mut(buffer) };
            match lines {
                [line] => room[HEADROOM..HEADROOM + 64].copy_from_slice(&line.0),
                _ => {
                    for (to, from) in room[HEADROOM..].chunks_exact_mut(64).zip(lines) {
                        to.copy_from_slice(&from.0);
                    }
                }
            }
            let len = len.min(lines.len() as u32 * 64);
            let record =
                Record { buffer, len, start: HEADROOM as u16, port, flags: Flags::new(link, 0), ..Record::default() };
            if self.layout.record_bytes == 0 {
                self.records.push(record);
            } else {
                self.place(record, &info(i));
            }
        }
        count
    }

    #[inline(always)]
    fn place(&mut self, record: Record, info: &FrameInfo) {
        let i = self.records.len();
        self.records.push(record);
        if self.layout.record_bytes != 0 {
            let layout = &*self.layout;
            let meta = &mut self.meta[i * layout.record_bytes..(i + 1) * layout.record_bytes];
            layout.timestamp.write(meta, info.timestamp_ns);
            layout.wire_len.write(meta, info.wire_len);
            layout.sequence.write(meta, info.sequence);
        }
    }

    /// Puts a frame in. Panics if the batch is full or the frame is of another pool: both are errors of the caller.
    pub fn push(&mut self, frame: Frame) {
        assert!(self.records.len() < BATCH_MAX && frame.pool == self.pool.id());
        self.place(frame.record, &frame.info);
    }

    /// Takes the last packet out.
    pub fn pop(&mut self) -> Option<Frame> {
        let i = self.records.len().checked_sub(1)?;
        let (timestamp_ns, wire_len, sequence) = (self.timestamp_ns(i), self.wire_len(i), self.sequence(i));
        let record = self.records.pop()?;
        let info = FrameInfo { port: record.port, link: record.flags.link(), timestamp_ns, wire_len, sequence };
        Some(Frame { record, pool: self.pool.id(), info })
    }

    /// Gives all buffers back and empties the batch.
    #[inline]
    pub fn release(&mut self, buffers: &mut Buffers) {
        assert!(buffers.pool().id() == self.pool.id());
        for record in self.records.drain(..) {
            buffers.put(record.buffer);
        }
    }

    /// Records, to read.
    #[inline(always)]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Finds the headers of every packet and writes them into the records.
    #[inline]
    pub fn parse_all(&mut self) {
        let bases = self.pool.slab.bases();
        for record in &mut self.records {
            // SAFETY: the record owns the buffer, and the batch is borrowed mutably: nobody writes to it.
            let room = unsafe { bases.bytes(record.buffer) };
            let (frame, link) = (record.cut(room), record.flags.link());
            match parse_common(frame, link) {
                Some(parsed) => record.set_parsed(parsed),
                None => record.set_parsed(parse_any(frame, link)),
            }
        }
    }

    /// Records and bytes of all packets.
    #[inline(always)]
    pub fn frames(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        let bases = self.pool.slab.bases();
        self.records.iter().map(move |record| {
            // SAFETY: the record owns the buffer; `&self` keeps everybody from writing to it while the result lives.
            let room = unsafe { bases.bytes(record.buffer) };
            (record, record.cut(room))
        })
    }

    /// Bytes of packet `i`.
    #[inline(always)]
    pub fn bytes(&self, i: usize) -> &[u8] {
        let record = &self.records[i];
        // SAFETY: the record owns the buffer; `&self` keeps everybody from writing to it while the result lives.
        let room = unsafe { self.pool.slab.bases().bytes(record.buffer) };
        record.cut(room)
    }

    /// Asks the processor for the first line of packet `i`.
    #[inline(always)]
    pub fn prefetch(&self, i: usize) {
        let record = &self.records[i];
        braid_memory::prefetch_read(self.pool.slab.pointer(record.buffer).wrapping_add(record.start as usize));
    }

    /// Packet `i`, to read and change; changes go to `undo` first if there is one.
    #[inline(always)]
    pub fn packet<'a>(&'a mut self, i: usize, undo: Option<&'a mut Undo>) -> Packet<'a> {
        let bytes = self.layout.record_bytes;
        let record = &mut self.records[i];
        // SAFETY: the record owns the buffer, and it is borrowed mutably for as long as the result lives.
        let room = unsafe { self.pool.slab.bytes_mut(record.buffer) };
        Packet::new(i, record, room, &mut self.meta[i * bytes..(i + 1) * bytes], &self.layout, undo)
    }

    /// Takes back every change of packet `i` that `undo` holds since `mark`; those of other packets stay.
    pub fn restore(&mut self, i: usize, undo: &mut Undo, mark: usize) {
        self.unwind(undo, mark, Some(i as u16));
    }

    /// Takes back every change of every packet that `undo` holds since `mark`.
    pub fn restore_all(&mut self, undo: &mut Undo, mark: usize) {
        self.unwind(undo, mark, None);
    }

    fn unwind(&mut self, undo: &mut Undo, mark: usize, packet: Option<u16>) {
        let width = self.layout.record_bytes;
        undo.unwind(mark, packet, |i, saved, bytes| {
            let i = usize::from(i);
            // Another packet in this place, or another batch: an error of the caller, but never two owners of a buffer.
            let Some(record) = self.records.get_mut(i).filter(|record| record.buffer == saved.record.buffer) else {
                return;
            };
            *record = saved.record.duplicate();
            // SAFETY: the record owns the buffer, and the batch is borrowed mutably.
            let room = unsafe { self.pool.slab.bytes_mut(record.buffer) };
            let all = if saved.place == Place::Meta { &mut self.meta[i * width..(i + 1) * width] } else { room };
            if let Some(place) = all.get_mut(saved.at as usize..).and_then(|rest| rest.get_mut(..bytes.len())) {
                place.copy_from_slice(bytes);
            }
        });
    }

    /// Extension record of packet `i`.
    #[inline(always)]
    pub fn meta(&self, i: usize) -> &[u8] {
        let bytes = self.layout.record_bytes;
        &self.meta[i * bytes..(i + 1) * bytes]
    }

    /// Time stamp of packet `i`, 0 if not carried.
    #[inline(always)]
    pub fn timestamp_ns(&self, i: usize) -> u64 {
        self.layout.timestamp.read(self.meta(i))
    }

    /// Number of packet `i` in its source, 0 if not carried.
    #[inline(always)]
    pub fn sequence(&self, i: usize) -> u64 {
        self.layout.sequence.read(self.meta(i))
    }

    /// Bytes of packet `i` on the wire: what the source said, else the bytes present.
    #[inline(always)]
    pub fn wire_len(&self, i: usize) -> u32 {
        if self.layout.wire_len.is_carried() { self.layout.wire_len.read(self.meta(i)) } else { self.records[i].len }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.records.is_empty() {
            let mut buffers = Buffers::new(&Arc::clone(&self.pool));
            self.release(&mut buffers);
        }
    }
}
