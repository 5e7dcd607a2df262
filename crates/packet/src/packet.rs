//! One packet as a network function sees it.

use std::ops::Range;

use crate::fields::Layout;
use crate::record::{Port, Record};

/// Bytes saved at the first change of a packet: the headers of nearly all traffic.
const HEAD: usize = 128;

/// What has to be put back if an attempt aborts: records and bytes, in the order in which they were changed.
#[derive(Debug, Default)]
pub struct Undo {
    entries: Vec<Saved>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Saved {
    record: Record,
    at: u32,
    len: u32,
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

    fn save(&mut self, record: &Record, room: &[u8], range: Range<usize>) {
        let range = range.start.min(room.len())..range.end.min(room.len());
        self.entries.push(Saved { record: record.duplicate(), at: range.start as u32, len: range.len() as u32 });
        self.bytes.extend_from_slice(&room[range]);
    }

    /// Puts back what was saved since `mark`, newest first.
    pub(crate) fn restore(&mut self, record: &mut Record, room: &mut [u8], mark: usize) {
        while self.entries.len() > mark {
            let Some(saved) = self.entries.pop() else { break };
            let from = self.bytes.len() - saved.len as usize;
            room[saved.at as usize..][..saved.len as usize].copy_from_slice(&self.bytes[from..]);
            self.bytes.truncate(from);
            *record = saved.record;
        }
    }
}

/// A packet: its record, its bytes with the free room around them, and its metadata.
#[derive(Debug)]
pub struct Packet<'a> {
    record: &'a mut Record,
    room: &'a mut [u8],
    meta: &'a mut [u8],
    layout: &'a Layout,
    undo: Option<&'a mut Undo>,
    saved: Range<usize>,
}

impl<'a> Packet<'a> {
    #[inline(always)]
    pub(crate) fn new(
        record: &'a mut Record,
        room: &'a mut [u8],
        meta: &'a mut [u8],
        layout: &'a Layout,
        undo: Option<&'a mut Undo>,
    ) -> Packet<'a> {
        Packet { record, room, meta, layout, undo, saved: 0..0 }
    }

    /// What the batch keeps of it.
    #[inline(always)]
    pub fn record(&self) -> &Record {
        self.record
    }

    /// Port by which it came in.
    #[inline(always)]
    pub fn port(&self) -> Port {
        self.record.port
    }

    /// Its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let start = self.record.start as usize;
        self.room.get(start..start + self.record.len as usize).unwrap_or_default()
    }

    /// Its bytes, to change; the headers are saved first if the attempt may abort.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.record.start as usize;
        let end = start + self.record.len as usize;
        self.save(start..end.min(start + HEAD));
        self.room.get_mut(start..end).unwrap_or_default()
    }

    #[inline(always)]
    fn save(&mut self, range: Range<usize>) {
        if let Some(undo) = &mut self.undo {
            if range.start < self.saved.start || range.end > self.saved.end || self.saved.is_empty() {
                undo.save(self.record, self.room, range.clone());
                self.saved = range;
            }
        }
    }
}
