//! What has to be put back if an attempt aborts.
//!
//! An [`Undo`] belongs to the packets of one batch. Every change of a [`Packet`](crate::Packet) that carries one saves first what it
//! is about to overwrite; [`Batch::restore`](crate::Batch::restore) puts it back, newest first. Entries name their packet, so
//! packets may be edited in any order and rolled back one by one.

use std::ops::Range;

use crate::record::Record;

/// Records, bytes and metadata in the order in which they were changed.
#[derive(Debug, Default)]
pub struct Undo {
    entries: Vec<Saved>,
    bytes: Vec<u8>,
}

/// What the saved bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Bytes of the packet's buffer.
    Buffer,
    /// Its extension record.
    Meta,
    /// Already put back.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) record: Record,
    pub(crate) at: u32,
    pub(crate) place: Place,
    len: u32,
    packet: u16,
}

impl Undo {
    /// A place in the log, to return to.
    #[inline(always)]
    pub fn mark(&self) -> usize {
        self.entries.len()
    }

    /// Forgets everything: the attempt is committed.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    pub(crate) fn save(&mut self, packet: u16, record: &Record, place: Place, all: &[u8], range: Range<usize>) {
        let range = range.start.min(all.len())..range.end.min(all.len());
        let (at, len) = (range.start as u32, range.len() as u32);
        self.entries.push(Saved { record: record.duplicate(), at, place, len, packet });
        self.bytes.extend_from_slice(&all[range]);
    }

    /// Hands every entry since `mark` (of one packet or of all) to `put`, newest first, and takes it out of the log.
    pub(crate) fn unwind(&mut self, mark: usize, packet: Option<u16>, mut put: impl FnMut(u16, &Saved, &[u8])) {
        let mut end = self.bytes.len();
        for entry in self.entries.iter_mut().skip(mark).rev() {
            let from = end - entry.len as usize;
            if entry.place != Place::Gone && packet.is_none_or(|packet| packet == entry.packet) {
                put(entry.packet, entry, &self.bytes[from..end]);
                entry.place = Place::Gone;
            }
            end = from;
        }
        while let Some(last) = self.entries.pop_if(|last| last.place == Place::Gone) {
            self.bytes.truncate(self.bytes.len() - last.len as usize);
        }
    }
}
