//! The records of a batch and the bytes that they own.
//!
//! Invariant: every record here owns a buffer of this pool. Records enter through [`Records::push`], which is given their pool,
//! and through the copying functions, which take buffers from a stock of that pool; all compare pools. A shared borrow of the
//! whole may therefore read every buffer, and a unique borrow may change them, one frame at a time.
//!
//! Bytes after a frame's end are whatever the buffer held before: initialised, but meaningless.

use std::sync::Arc;

use braid_memory::{prefetch_read, prefetch_second_level};

use super::fours::{HAS_FOURS, VisitFours, parse_in_fours, see_in_fours};
use super::order::Order;
use super::slab::{Bases, Buffer, HEAD, Slab};
use super::walk::Walk;
use crate::batch::BATCH_MAX;
use crate::lines::{Line, LinedFrame};
use crate::metas::Metas;
use crate::parse::{COMMON, PLAIN_TOTAL, Word, parse_any, parse_plainest, parse_tagged};
use crate::pool::{Buffers, HEADROOM, Pool};
use crate::record::{Link, Record};

/// The first bytes of a frame, and what follows it in its buffer.
pub(crate) type Head = [u8; HEAD];

/// How many lines and frames ahead of a copy are prefetched: those of the next batch. The hardware prefetcher stops at every
/// page, whereas a network card would have written the lines into the cache.
const AHEAD: usize = BATCH_MAX;

#[derive(Debug)]
pub(crate) struct Records {
    pool: Arc<Pool>,
    records: Vec<Record>,
    /// Whether a jumbo buffer has entered since the batch was last emptied, even if it has left again.
    has_jumbo: bool,
}

impl Records {
    pub(crate) fn new(pool: &Arc<Pool>) -> Records {
        Records { pool: Arc::clone(pool), records: Vec::with_capacity(BATCH_MAX), has_jumbo: false }
    }

    #[inline(always)]
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a record of the pool with id `pool`. Panics if that is another pool, or if there is no room.
    pub(crate) fn push(&mut self, record: Record, pool: u32) {
        assert!(self.records.len() < BATCH_MAX && pool == self.pool.id());
        self.add(record);
    }

    #[inline(always)]
    fn add(&mut self, record: Record) {
        self.has_jumbo |= record.buffer.is_jumbo();
        self.records.push(record);
    }

    /// Returns whether no packet is in a jumbo buffer.
    #[inline(always)]
    pub(crate) fn is_ordinary(&self) -> bool {
        !self.has_jumbo
    }

    /// Exchanges the buffer of packet `i` for another buffer of the pool with id `pool`; the rest of the record stays.
    pub(crate) fn exchange(&mut self, i: usize, buffer: Buffer, pool: u32) -> Buffer {
        assert!(pool == self.pool.id());
        self.has_jumbo |= buffer.is_jumbo();
        std::mem::replace(&mut self.records[i].buffer, buffer)
    }

    pub(crate) fn pop(&mut self) -> Option<Record> {
        self.records.pop()
    }

    /// Gives all buffers back to the stock.
    #[inline(always)]
    pub(crate) fn release(&mut self, buffers: &mut Buffers) {
        assert!(buffers.pool().id() == self.pool.id());
        // From here on, the stock owns each buffer.
        buffers.put(self.records.iter().map(|record| record.buffer.alias()));
        self.records.clear();
        self.has_jumbo = false;
    }

    /// Copies one frame in; the record has everything except its buffer. Returns `false` if there is no room or no buffer.
    #[inline(always)]
    pub(crate) fn copy_in(&mut self, buffers: &mut Buffers, bytes: &[u8], record: Record) -> bool {
        if self.records.len() >= BATCH_MAX || buffers.pool().id() != self.pool.id() {
            return false;
        }
        let Some(buffer) = buffers.take(bytes.len()) else { return false };
        // SAFETY: the buffer was taken from a stock of this pool and is in no record yet.
        let room = unsafe { self.pool.slab.bases().bytes_mut(&buffer) };
        room[HEADROOM..HEADROOM + bytes.len()].copy_from_slice(bytes);
        self.add(Record { buffer, ..record });
        true
    }

    /// Copies in frames that are stored in `lines` one after another, and returns how many frames and lines were consumed:
    /// fewer than given if there is no room or no buffer, if a frame is too long for any buffer, or if its lines are incomplete.
    #[inline(always)]
    pub(crate) fn copy_lines(&mut self, buffers: &mut Buffers, all: &[Line], frames: &[LinedFrame]) -> (usize, usize) {
        assert!(buffers.pool().id() == self.pool.id());
        let frames = &frames[..frames.len().min(BATCH_MAX - self.records.len())];
        let (mut done, mut lines) = (0, all);
        loop {
            let short = self.copy_short(buffers, lines, &frames[done..]);
            (done, lines) = (done + short, &lines[short..]);
            match frames.get(done) {
                Some(frame) if frame.is_long() && self.copy_long(buffers, lines, frame) => {
                    (done, lines) = (done + 1, &lines[frame.lines()..]);
                }
                Some(frame) if !frame.is_long() && !lines.is_empty() => {
                    buffers.note_exhausted();
                    return (done, all.len() - lines.len());
                }
                _ => return (done, all.len() - lines.len()),
            }
        }
    }

    /// Copies frames of one line each, up to the first longer one.
    #[inline(always)]
    fn copy_short(&mut self, buffers: &mut Buffers, lines: &[Line], frames: &[LinedFrame]) -> usize {
        let bases = self.pool.slab.bases();
        let stock = buffers.ready(frames.len());
        let room = self.records.spare_capacity_mut();
        let most = frames.len().min(lines.len()).min(stock.len()).min(room.len());
        let from = stock.len() - most;
        // All slices have the same length, so that the loop has a single counter.
        let (frames, lines, room) = (&frames[..most], &lines[..most], &mut room[..most]);
        let newest = &stock[from..];
        let mut taken = 0;
        for (((frame, line), place), i) in frames.iter().zip(lines).zip(room).zip(0..most) {
            if frame.is_long() {
                break;
            }
            let buffer = &newest[most - 1 - i];
            prefetch_second_level(std::ptr::from_ref(line).wrapping_add(AHEAD));
            prefetch_second_level(std::ptr::from_ref(frame).wrapping_add(AHEAD));
            place.write(Record { buffer: buffer.alias(), ..frame.record.duplicate() });
            // SAFETY: the stock holds ordinary buffers of this pool, each of which has HEADROOM + 64 bytes.
            unsafe { bases.ordinary(buffer).add(HEADROOM).cast::<[u8; 64]>().write(line.0) };
            taken = i + 1;
        }
        // The buffers move into the records, so none has two owners.
        stock.truncate(from + most - taken);
        // SAFETY: `taken` records have been written after the existing ones.
        unsafe { self.records.set_len(self.records.len() + taken) };
        taken
    }

    #[inline(never)]
    fn copy_long(&mut self, buffers: &mut Buffers, lines: &[Line], frame: &LinedFrame) -> bool {
        let Some(lines) = lines.get(..frame.lines()) else { return false };
        let Some(buffer) = buffers.take(lines.len() * 64) else { return false };
        // SAFETY: the buffer was taken from a stock of this pool and is in no record yet.
        let room = unsafe { self.pool.slab.bases().bytes_mut(&buffer) };
        // Prefetch everything for this frame before the copy stalls on memory.
        lines.iter().for_each(|line| prefetch_second_level(std::ptr::from_ref(line).wrapping_add(AHEAD)));
        for (to, from) in room[HEADROOM..].as_chunks_mut().0.iter_mut().zip(lines) {
            *to = from.0;
        }
        self.add(Record { buffer, ..frame.record.duplicate() });
        true
    }

    /// Returns the bytes of packet `i`.
    #[inline(always)]
    pub(crate) fn frame(&self, i: usize) -> &[u8] {
        let record = &self.records[i];
        // SAFETY: the record owns the buffer; `&self` prevents writes to it while the result lives.
        record.cut(unsafe { self.pool.slab.bases().bytes(&record.buffer) })
    }

    /// Returns the records and bytes of all packets.
    #[inline(always)]
    pub(crate) fn frames(&self) -> impl Iterator<Item = (&Record, &[u8])> {
        let bases = self.pool.slab.bases();
        self.records.iter().map(move |record| {
            // SAFETY: as in `frame`.
            (record, record.cut(unsafe { bases.bytes(&record.buffer) }))
        })
    }

    /// Calls `visit` with the number and contents of each packet.
    #[inline(always)]
    pub(crate) fn each(&self, mut visit: impl FnMut(usize, Seen<'_>)) {
        let bases = self.pool.slab.bases();
        for (i, record) in self.records[..self.records.len().min(BATCH_MAX)].iter().enumerate() {
            // SAFETY: the record owns the buffer; `&self` prevents writes to it.
            visit(i, unsafe { see_one(bases, record) });
        }
    }

    /// Like [`each`](Self::each), but shows four plainest packets together.
    #[inline(always)]
    pub(crate) fn each_in_fours<V: VisitFours>(&self, mut visit: V) -> V {
        if !HAS_FOURS || self.has_jumbo {
            self.each(|i, packet| visit.one(i, packet));
            return visit;
        }
        let records = &self.records[..self.records.len().min(BATCH_MAX)];
        // SAFETY: no record has a jumbo buffer, each owns its buffer, and `&self` prevents writes to them.
        unsafe { see_in_fours(&self.pool.slab, records, visit) }
    }

    /// Finds the headers of every packet, writes them into the record, and shows the packet.
    #[inline(always)]
    pub(crate) fn parse_each(&mut self, mut visit: impl FnMut(usize, Seen<'_>)) {
        let slab = &self.pool.slab;
        let most = self.records.len().min(BATCH_MAX);
        for (i, record) in self.records[..most].iter_mut().enumerate() {
            // SAFETY: the record owns the buffer, and `&mut self` prevents other writes to it.
            visit(i, unsafe { parse_one(slab, record) });
        }
    }

    /// Like [`parse_each`](Self::parse_each), but shows four plainest packets together.
    #[inline(always)]
    pub(crate) fn parse_in_fours<V: VisitFours>(&mut self, mut visit: V) -> V {
        if !HAS_FOURS || self.has_jumbo {
            self.parse_each(|i, packet| visit.one(i, packet));
            return visit;
        }
        let most = self.records.len().min(BATCH_MAX);
        // SAFETY: no record has a jumbo buffer, each owns its buffer, and `&mut self` prevents other writes to them.
        unsafe { parse_in_fours(&self.pool.slab, &mut self.records[..most], visit) }
    }

    /// Finds the headers of every packet and writes them into the records.
    #[inline(never)]
    pub(crate) fn parse_all(&mut self) {
        self.parse_each(|_, _| ());
    }

    /// Returns the record and all bytes of the buffer of packet `i` for modification.
    #[inline(always)]
    pub(crate) fn parts_mut(&mut self, i: usize) -> (&mut Record, &mut [u8]) {
        let record = &mut self.records[i];
        // SAFETY: the record owns the buffer and is borrowed mutably for as long as the result lives.
        let room = unsafe { self.pool.slab.bases().bytes_mut(&record.buffer) };
        (record, room)
    }

    /// Starts a walk over packets of the batch, with their metadata. Panics if a number is out of range, or if `ORDINARY` is
    /// set and a packet may be in a jumbo buffer.
    #[inline(always)]
    pub(crate) fn walk<'a, const ORDINARY: bool>(
        &'a mut self,
        metas: &'a mut Metas,
        order: Order<'a>,
    ) -> Walk<'a, ORDINARY> {
        assert!(!ORDINARY || self.is_ordinary());
        // SAFETY: the records own buffers of the pool; with `ORDINARY` none of them is a jumbo buffer (asserted above).
        unsafe { Walk::new(&mut self.records, self.pool.slab.bases(), metas, order) }
    }

    /// Prefetches the first cache line of packet `i`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, i: usize) {
        let record = &self.records[i];
        prefetch_read(self.pool.slab.bases().pointer(&record.buffer).wrapping_add(record.start as usize));
    }
}

/// Returns a view of a packet whose headers have been found.
///
/// # Safety
/// The record must own a buffer of this slab, to which nothing may write while the result lives.
#[inline(always)]
pub(super) unsafe fn see_one<'a>(bases: Bases<'a>, record: &'a Record) -> Seen<'a> {
    // SAFETY: by this function's contract.
    let head = unsafe { bases.head(&record.buffer, record.start) };
    let found = if record.len() >= 14 + PLAIN_TOTAL { record.parsed() } else { 0 };
    Seen { record, head, found, bases }
}

/// Finds the headers of a packet and writes them into its record.
///
/// # Safety
/// As for [`see_one`].
#[inline(always)]
pub(super) unsafe fn parse_one<'a>(slab: &'a Slab, record: &'a mut Record) -> Seen<'a> {
    let (bases, mut found) = (slab.bases(), 0);
    // SAFETY: by this function's contract.
    let head = unsafe { bases.head(&record.buffer, record.start) };
    match head.and_then(|head| head.first_chunk()) {
        Some(common) if record.flags.link() == Link::Ethernet => match parse_plainest(common, record.len()) {
            Some(Word(word)) => {
                set_word(record, word);
                found = word;
            }
            None => parse_less_plain(slab, record, common),
        },
        _ => parse_slowly(slab, record),
    }
    Seen { record, head, found, bases }
}

/// Parses a frame that has one VLAN tag, or is something else.
#[inline(never)]
fn parse_less_plain(slab: &Slab, record: &mut Record, head: &[u8; COMMON]) {
    match parse_tagged(head, record.len()) {
        Some(Word(word)) => set_word(record, word),
        None => parse_slowly(slab, record),
    }
}

#[cold]
#[inline(never)]
fn parse_slowly(slab: &Slab, record: &mut Record) {
    // SAFETY: every caller holds the record mutably, so nothing writes to its buffer; slab and record belong to the same pool.
    let frame = record.cut(unsafe { slab.bases().bytes(&record.buffer) });
    record.set_parsed(parse_any(frame, record.flags.link()));
}

/// Loads the four parser fields at once, even where some were already loaded separately.
#[inline(always)]
pub(crate) fn word_of(record: &Record) -> u32 {
    // SAFETY: these four bytes are the last ones of the record (asserted next to its definition).
    u32::from_le_bytes(unsafe { std::ptr::from_ref(record).cast::<[u8; 4]>().add(3).read() })
}

/// Stores the four parser fields at once.
#[inline(always)]
fn set_word(record: &mut Record, word: u32) {
    // SAFETY: these four bytes are the last ones of the record (asserted next to its definition), and all values of them are valid.
    unsafe { std::ptr::from_mut(record).cast::<[u8; 4]>().add(3).write(word.to_le_bytes()) };
}

/// A packet of a batch, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    record: &'a Record,
    head: Option<&'a Head>,
    found: u32,
    bases: Bases<'a>,
}

impl<'a> Seen<'a> {
    /// Returns what the parser found if the packet is plainest (untagged Ethernet, IPv4 without options, long enough for
    /// ports). For other packets, this is their own parser result or 0.
    #[inline(always)]
    pub(crate) fn found(&self) -> u32 {
        self.found
    }

    #[inline(always)]
    pub(crate) fn record(&self) -> &'a Record {
        self.record
    }

    /// Returns the head; `None` for jumbo buffers, and if the frame begins too late in its buffer.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<&'a Head> {
        self.head
    }

    /// Returns the bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: the record owns the buffer; the borrow prevents writes to it while the result lives.
        self.record.cut(unsafe { self.bases.bytes(&self.record.buffer) })
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.records.is_empty() {
            let mut buffers = Buffers::new(&Arc::clone(&self.pool));
            self.release(&mut buffers);
        }
    }
}
