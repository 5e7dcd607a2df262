//! One packet as a network function sees it: its bytes, what the parser found, and its metadata.
//!
//! `read` has the accessors, `write` the setters that keep all checksums right, `embedded` the packet inside an ICMP error.
//! Every change of a byte, of the record or of metadata goes through the functions here, which first save to the [`Undo`]
//! what they are about to overwrite. An aborted attempt thus leaves no trace.
//!
//! No function panics, whatever the bytes are: accessors return `None` or nothing, and setters return whether they succeeded.

mod embedded;
mod exchange;
mod read;
mod write;

pub use embedded::{Embedded, EmbeddedMut};
pub use read::IpVersion;
pub use write::Translated;

use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::fields::Field;
use crate::metas::Metas;
use crate::parse::parse;
use crate::record::{Flags, Port, Record};
use crate::undo::{LINE, Place, Undo};

/// A packet: its record, its bytes with the free room around them, and its metadata.
#[derive(Debug)]
pub struct Packet<'a> {
    record: &'a mut Record,
    room: &'a mut [u8],
    /// Extension records of the whole batch; most functions never access this packet's.
    metas: &'a mut Metas,
    undo: Option<&'a mut Undo>,
    /// Range of `room` that the undo log already covers; empty if nothing of this packet is saved.
    saved: Range<u32>,
    meta_saved: bool,
    /// Whether the batch [has cuts](Metas::has_cuts).
    among_cuts: bool,
    index: u16,
    /// Keeps the packet on the thread that lent it; handlers cannot pass it to another thread.
    thread: PhantomData<*const ()>,
}

impl<'a> Packet<'a> {
    #[inline(always)]
    pub(crate) fn new(
        index: usize,
        record: &'a mut Record,
        room: &'a mut [u8],
        (metas, among_cuts): (&'a mut Metas, bool),
        undo: Option<&'a mut Undo>,
    ) -> Packet<'a> {
        let index = index as u16;
        Packet { record, room, metas, undo, saved: 0..0, meta_saved: false, among_cuts, index, thread: PhantomData }
    }

    /// Returns the packet's number in the batch.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index.into()
    }

    /// Returns the packet's record in the batch.
    #[inline(always)]
    pub fn record(&self) -> &Record {
        self.record
    }

    /// Returns the arrival port.
    #[inline(always)]
    pub fn port(&self) -> Port {
        self.record.port
    }

    /// Returns the packet's bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let start = self.record.start as usize;
        self.room.get(start..start + self.record.len as usize).unwrap_or_default()
    }

    /// Returns the packet's bytes for modification. If the attempt may abort, all of them are saved, so prefer
    /// [`Packet::change`] for long packets. Call [`Packet::reparse`] after changing what the parser reads.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.change(0..usize::MAX)
    }

    /// Returns a range of the packet's bytes for modification, cut to what is present. Setters change existing bytes only
    /// through this and `change_chunk`.
    #[inline(always)]
    pub fn change(&mut self, range: Range<usize>) -> &mut [u8] {
        let (start, len) = (self.record.start as usize, self.record.len as usize);
        let end = range.end.min(len);
        let range = start + range.start.min(end)..start + end;
        self.save(&range);
        self.room.get_mut(range).unwrap_or_default()
    }

    /// Returns `N` bytes at `at` for modification, if all are present.
    #[inline(always)]
    fn change_chunk<const N: usize>(&mut self, at: usize) -> Option<&mut [u8; N]> {
        if at + N > self.record.len as usize {
            return None;
        }
        let from = self.record.start as usize + at;
        if at + N > LINE || !self.save_line() {
            self.save(&(from..from + N));
        }
        self.room.get_mut(from..from + N)?.first_chunk_mut()
    }

    /// Saves the first line if nothing of the packet is saved yet; returns whether it did, or no undo log is needed.
    #[inline(always)]
    fn save_line(&mut self) -> bool {
        let Some(undo) = &mut self.undo else { return true };
        let start = self.record.start;
        if self.saved.is_empty()
            && let Some(line) =
                self.room.get(start.into()..usize::from(start) + LINE).and_then(|line| line.first_chunk())
        {
            undo.save_line(self.index, self.record, start, line);
            self.saved = start.into()..u32::from(start) + LINE as u32;
            return true;
        }
        false
    }

    /// Must be called before the record or `range` of the room is changed.
    #[inline(always)]
    fn save(&mut self, range: &Range<usize>) {
        self.save_line();
        let Some(undo) = &mut self.undo else { return };
        if range.start < self.saved.start as usize || range.end > self.saved.end as usize {
            // Not a method of the packet: a packet whose address never escapes can stay in registers.
            self.saved = save_more(undo, self.index, self.record, self.room, &self.saved, range);
        }
    }

    /// Must be called before the record alone is changed.
    #[inline(always)]
    fn save_record(&mut self) {
        let start = self.record.start as usize;
        self.save(&(start..start));
    }

    /// Calls a function out of line with a copy of this packet, so that the packet itself can stay in registers. For rarely
    /// needed operations.
    #[inline(always)]
    pub fn out_of_line<R>(&mut self, done: impl FnOnce(&mut Packet<'_>) -> R) -> R {
        let mut packet = Packet {
            record: self.record,
            room: self.room,
            metas: self.metas,
            undo: self.undo.as_deref_mut(),
            saved: self.saved.clone(),
            ..*self
        };
        let result = done(&mut packet);
        let (saved, meta_saved) = (packet.saved.clone(), packet.meta_saved);
        (self.saved, self.meta_saved) = (saved, meta_saved);
        result
    }

    /// Parses the headers again, after a change of what the parser reads.
    #[inline]
    pub fn reparse(&mut self) {
        self.save_record();
        let parsed = parse(self.bytes(), self.link());
        self.record.set_parsed(parsed);
    }

    /// Prepends `bytes` zero bytes; returns `false`, with no effect, if there is no room. The record still refers to the old
    /// headers; call [`Packet::reparse`] once the new ones are written.
    #[inline]
    pub fn push_front(&mut self, bytes: usize) -> bool {
        let start = self.record.start as usize;
        let Some(from) = start.checked_sub(bytes) else { return false };
        self.save(&(from..start));
        self.room[from..start].fill(0);
        self.resize(from, self.record.len as usize + bytes);
        match u8::try_from(self.record.l3 as usize + bytes) {
            Ok(l3) => self.record.l3 = l3,
            Err(_) => self.forget_headers(),
        }
        true
    }

    /// Removes `bytes` bytes from the front; returns `false`, with no effect, if there are fewer. The record forgets headers
    /// that are cut.
    #[inline]
    pub fn pop_front(&mut self, bytes: usize) -> bool {
        let Some(left) = self.len().checked_sub(bytes) else { return false };
        self.save_record();
        match (self.record.l3 as usize).checked_sub(bytes) {
            Some(l3) => self.record.l3 = l3 as u8,
            None => self.forget_headers(),
        }
        self.resize(self.record.start as usize + bytes, left);
        true
    }

    /// Truncates the packet to `len` bytes or extends it with zero bytes; returns `false`, with no effect, if the buffer is smaller.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        let (start, old) = (self.record.start as usize, self.record.len as usize);
        if len > self.room.len() - start {
            return false;
        }
        let grown = start + old.min(len)..start + len;
        self.save(&grown);
        self.room[grown].fill(0);
        self.resize(start, len);
        true
    }

    /// Appends `bytes` zero bytes; returns `false`, with no effect, if the buffer is too small.
    #[inline]
    pub fn extend(&mut self, bytes: usize) -> bool {
        self.len().checked_add(bytes).is_some_and(|len| self.set_len(len))
    }

    /// Changes start and length; the record must be saved. The wire length changes by the same amount, so that bytes cut by a
    /// snap length still count.
    fn resize(&mut self, start: usize, len: usize) {
        if let Some(field) = self.metas.wire_lens() {
            let wire_len = i64::from(self.wire_len()) + len as i64 - self.len() as i64;
            self.set_meta(field, wire_len.clamp(len as i64, u32::MAX.into()) as u32);
        }
        (self.record.start, self.record.len) = (start as u16, len as u32);
    }

    fn forget_headers(&mut self) {
        let record = &mut *self.record;
        (record.l3, record.l4, record.proto, record.flags) = (0, 0, 0, Flags::new(record.flags.link(), 0));
    }

    /// Returns a metadata field of this packet; zero if the chain does not carry it.
    #[inline(always)]
    pub fn meta<T: FromBytes + IntoBytes + Immutable>(&self, field: Field<T>) -> T {
        self.metas.read(self.index, field)
    }

    /// Sets a metadata field; has no effect if the chain does not carry it.
    #[inline(always)]
    pub fn set_meta<T: FromBytes + IntoBytes + Immutable>(&mut self, field: Field<T>, value: T) {
        if !self.meta_saved && field.is_carried() {
            self.save_meta();
        }
        field.write(self.metas.row_mut(self.index), value);
    }

    #[inline]
    fn save_meta(&mut self) {
        if let Some(undo) = &mut self.undo {
            let meta = self.metas.row(self.index);
            undo.save(self.index, self.record, Place::Meta, meta, 0..meta.len());
        }
        self.meta_saved = true;
    }
}

/// Saves a range that is not saved yet, and returns the range that is saved then.
#[cold]
#[inline(never)]
fn save_more(
    undo: &mut Undo,
    packet: u16,
    record: &Record,
    room: &[u8],
    saved: &Range<u32>,
    range: &Range<usize>,
) -> Range<u32> {
    undo.save(packet, record, Place::Buffer, room, range.clone());
    // A buffer is far shorter than 4 GiB.
    let range = range.start.min(room.len()) as u32..range.end.min(room.len()) as u32;
    if saved.is_empty() {
        range
    } else if range.start <= saved.end && range.end >= saved.start {
        saved.start.min(range.start)..saved.end.max(range.end)
    } else {
        saved.clone()
    }
}

#[cfg(test)]
mod tests;
