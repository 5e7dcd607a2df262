//! Undo log of packet changes, for attempts that abort.
//!
//! An [`Undo`] belongs to the packets of one batch. Every change of a [`Packet`](crate::Packet) with an undo log first saves
//! what it is about to overwrite; [`Batch::restore`](crate::Batch::restore) restores it, newest first. Each entry names its
//! packet, so packets may be edited in any order and rolled back one by one.
//!
//! The first change of a packet saves one line of its bytes with a copy of fixed size ([`Undo::save_line`]). For most packets
//! that is all that is saved before the log is cleared, so the first entry has a fixed place of its own. All other changes
//! take the slow path ([`Undo::save`]).

use std::ops::Range;

use crate::record::Record;

/// Bytes saved at the first change of a packet: the headers of nearly all traffic, and one cache line of its buffer if
/// nothing was prepended.
pub(crate) const LINE: usize = 64;

/// Records, bytes and metadata that have been overwritten, in order.
#[derive(Debug, Default)]
pub struct Undo {
    /// Number of valid entries: the first one and those in `more`.
    used: usize,
    first: Saved,
    /// The second entry and so on; entries beyond `used` are free for reuse.
    more: Vec<Saved>,
    /// Bytes of entries other than lines, one after another.
    bytes: Vec<u8>,
}

/// What the saved bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// The first line of the packet, stored in the entry itself.
    Line,
    /// Bytes of the packet's buffer.
    Buffer,
    /// The packet's extension record.
    Meta,
    /// Already restored.
    #[default]
    Gone,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Saved {
    line: [u8; LINE],
    pub(crate) record: Record,
    pub(crate) at: u32,
    /// Number of bytes in [`Undo::bytes`].
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
    /// Returns a mark for [`Batch::restore`](crate::Batch::restore).
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Clears the log after the attempt has committed.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.used = 0;
        self.bytes.clear();
    }

    /// Returns the next entry, to be filled.
    #[inline(never)]
    fn push(&mut self) -> &mut Saved {
        if self.used > self.more.len() {
            let len = (2 * self.more.len()).max(64);
            self.more.resize_with(len, Saved::default);
        }
        self.used += 1;
        if self.used == 1 { &mut self.first } else { &mut self.more[self.used - 2] }
    }

    /// Saves a packet's record and the line of its buffer that begins at `at`.
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

    /// Saves a packet's record and a range of its buffer or metadata, all of which is given as `all`.
    pub(crate) fn save(&mut self, packet: u16, record: &Record, place: Place, all: &[u8], range: Range<usize>) {
        let bytes = all.get(range.start..range.end.min(all.len())).unwrap_or_default();
        self.bytes.extend_from_slice(bytes);
        let saved = self.push();
        saved.record = record.duplicate();
        (saved.at, saved.len, saved.packet, saved.place) = (range.start as u32, bytes.len() as u32, packet, place);
    }

    /// Passes every entry since `mark` (of one packet or of all) to `put`, newest first, and removes it from the log.
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
