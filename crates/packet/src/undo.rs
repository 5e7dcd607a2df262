//! What has to be put back if an attempt aborts.
//!
//! An [`Undo`] belongs to the packets of one batch. Every change of a [`Packet`](crate::Packet) that carries one saves first what it
//! is about to overwrite; [`Batch::restore`](crate::Batch::restore) puts it back, newest first. Entries name their packet, so
//! packets may be edited in any order and rolled back one by one.
//!
//! The first change of a packet saves one line of its bytes, by a copy of fixed size: [`Undo::save_line`]. For most packets that
//! is all that is ever saved before the log is cleared, so the first entry has a place of its own, which is always there. All
//! other changes go the long way, [`Undo::save`].

use std::ops::Range;

use crate::record::Record;

/// Bytes saved at the first change of a packet: the headers of nearly all traffic, and one line of its buffer if nothing was
/// pushed in front.
pub(crate) const LINE: usize = 64;

/// Records, bytes and metadata in the order in which they were changed.
#[derive(Debug, Default)]
pub struct Undo {
    /// Entries that mean something: the first one, and those behind it.
    used: usize,
    first: Saved,
    /// The second entry and so on; those beyond `used` are there to be overwritten.
    more: Vec<Saved>,
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

impl Default for Saved {
    fn default() -> Saved {
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

    /// The next entry, to be filled.
    #[inline(never)]
    fn push(&mut self) -> &mut Saved {
        if self.used > self.more.len() {
            let len = (2 * self.more.len()).max(64);
            self.more.resize_with(len, Saved::default);
        }
        self.used += 1;
        if self.used == 1 { &mut self.first } else { &mut self.more[self.used - 2] }
    }

    /// Saves a packet's record and one line of its buffer, which begins at `at`.
    #[inline(always)]
    pub(crate) fn save_line(&mut self, packet: u16, record: &Record, at: u16, line: &[u8; LINE]) {
        let saved = if self.used == 0 {
            self.used = 1;
            &mut self.first
        } else {
            self.push()
        };
        saved.line = *line;
        saved.record = record.duplicate();
        (saved.at, saved.len, saved.packet, saved.place) = (at.into(), 0, packet, Place::Line);
    }

    /// Saves a packet's record and a range of all bytes of its buffer or of its metadata.
    pub(crate) fn save(&mut self, packet: u16, record: &Record, place: Place, all: &[u8], range: Range<usize>) {
        let bytes = all.get(range.start..range.end.min(all.len())).unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
        let saved = self.push();
        saved.record = record.duplicate();
        (saved.at, saved.len, saved.packet, saved.place) = (range.start as u32, bytes.len() as u32, packet, place);
    }

    /// Hands every entry since `mark` (of one packet or of all) to `put`, newest first, and takes it out of the log.
    pub(crate) fn unwind(&mut self, mark: usize, packet: Option<u16>, mut put: impl FnMut(u16, &Saved, &[u8])) {
        let mut end = self.bytes.len();
        for at in (mark..self.used).rev() {
            let entry = if at == 0 { &mut self.first } else { &mut self.more[at - 1] };
            let from = end - entry.len as usize;
            if entry.place != Place::Gone && packet.is_none_or(|packet| packet == entry.packet) {
                let bytes = if entry.place == Place::Line { &entry.line } else { &self.bytes[from..end] };
                put(entry.packet, entry, bytes);
                entry.place = Place::Gone;
            }
            end = from;
        }
        while let Some(last) = self.used.checked_sub(1) {
            let last = if last == 0 { &self.first } else { &self.more[last - 1] };
            if last.place != Place::Gone {
                break;
            }
            self.bytes.truncate(self.bytes.len() - last.len as usize);
            self.used -= 1;
        }
    }
}
