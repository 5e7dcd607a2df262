//! What has to be put back if an attempt aborts.
//!
//! An [`Undo`] belongs to the packets of one batch. Every change of a [`Packet`](crate::Packet) that carries one saves first what it
//! is about to overwrite; [`Batch::restore`](crate::Batch::restore) puts it back, newest first. Entries name their packet, so
//! packets may be edited in any order and rolled back one by one.
//!
//! The first change of a packet saves one line of its bytes, by a copy of fixed size into an entry that is there already:
//! [`Undo::save_line`]. All other changes go the long way, [`Undo::save`].

use std::ops::Range;

use crate::record::Record;

/// Bytes saved at the first change of a packet: the headers of nearly all traffic, and one line of its buffer if nothing was
/// pushed in front.
pub(crate) const LINE: usize = 64;

/// Records, bytes and metadata in the order in which they were changed.
#[derive(Debug, Default)]
pub struct Undo {
    /// The first `used` mean something; the others are there to be overwritten.
    entries: Vec<Saved>,
    used: usize,
    /// Bytes of entries that are no lines, one behind another.
    bytes: Vec<u8>,
}

/// What the saved bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first line of the packet, in the entry itself.
    Line,
    /// Bytes of the packet's buffer.
    Buffer,
    /// Its extension record.
    Meta,
    /// Already put back.
    #[default]
    Gone,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Saved {
    line: [u8; LINE],
    pub(crate) record: Record,
    pub(crate) at: u32,
    /// Bytes in [`Undo::bytes`].
    len: u32,
    packet: u16,
    pub(crate) place: Place,
}

impl Saved {
    fn blank() -> Saved {
        Saved { line: [0; LINE], record: Record::default(), at: 0, len: 0, packet: 0, place: Place::Gone }
    }
}

impl Undo {
    /// A place in the log, to return to.
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Forgets everything: the attempt is committed.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.used = 0;
        self.bytes.clear();
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let len = (2 * self.entries.len()).max(64);
        self.entries.resize_with(len, Saved::blank);
    }

    /// Saves a packet's record and one line of its buffer, which begins at `at`.
    #[inline(always)]
    pub(crate) fn save_line(&mut self, packet: u16, record: &Record, at: usize, line: &[u8; LINE]) {
        if self.used >= self.entries.len() {
            self.grow();
        }
        if let Some(saved) = self.entries.get_mut(self.used) {
            self.used += 1;
            saved.line = *line;
            saved.record = record.duplicate();
            (saved.at, saved.len, saved.packet, saved.place) = (at as u32, 0, packet, Place::Line);
        }
    }

    /// Saves a packet's record and a range of all bytes of its buffer or of its metadata.
    pub(crate) fn save(&mut self, packet: u16, record: &Record, place: Place, all: &[u8], range: Range<usize>) {
        let bytes = all.get(range.start..range.end.min(all.len())).unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
        if self.used == self.entries.len() {
            self.grow();
        }
        let saved = &mut self.entries[self.used];
        self.used += 1;
        saved.record = record.duplicate();
        (saved.at, saved.len, saved.packet, saved.place) = (range.start as u32, bytes.len() as u32, packet, place);
    }

    /// Hands every entry since `mark` (of one packet or of all) to `put`, newest first, and takes it out of the log.
    pub(crate) fn unwind(&mut self, mark: usize, packet: Option<u16>, mut put: impl FnMut(u16, &Saved, &[u8])) {
        let mut end = self.bytes.len();
        for entry in self.entries[..self.used].iter_mut().skip(mark).rev() {
            let from = end - entry.len as usize;
            if entry.place != Place::Gone && packet.is_none_or(|packet| packet == entry.packet) {
                let bytes = if entry.place == Place::Line { &entry.line } else { &self.bytes[from..end] };
                put(entry.packet, entry, bytes);
                entry.place = Place::Gone;
            }
            end = from;
        }
        while let Some(last) = self.entries[..self.used].last().filter(|last| last.place == Place::Gone) {
            self.bytes.truncate(self.bytes.len() - last.len as usize);
            self.used -= 1;
        }
    }
}
