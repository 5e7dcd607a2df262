//! Frames that wait in whole cache lines, one behind another, to be copied into buffers without copies of variable length.

use braid_memory::{Bytes, Error, HugePages};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::record::{Link, Port, Record};

/// One cache line of frame bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

/// What a frame that lies in whole cache lines is, apart from them: its record as it will be, ready to be copied.
#[derive(Debug)]
pub struct LinedFrame {
    /// Without a buffer.
    pub(crate) record: Record,
    wire_len: u32,
}

impl LinedFrame {
    /// A frame of `len` bytes that had `wire_len` on the wire.
    pub fn new(len: u32, wire_len: u32, port: Port, link: Link) -> LinedFrame {
        LinedFrame { record: Record::arrived(len, port, link), wire_len }
    }

    /// Lines that it takes: as many as its bytes need, at least one. What follows its bytes in the last one means nothing.
    #[inline(always)]
    pub fn lines(&self) -> usize {
        self.record.len().div_ceil(64).max(1)
    }

    /// Whether it takes more than one line.
    #[inline(always)]
    pub(crate) fn is_long(&self) -> bool {
        self.record.len > 64
    }

    /// Bytes present.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.record.len()
    }

    /// Bytes on the wire.
    #[inline(always)]
    pub fn wire_len(&self) -> u32 {
        self.wire_len
    }

    /// Port by which it comes in.
    pub fn port(&self) -> Port {
        self.record.port
    }

    /// What its bytes begin with.
    pub fn link(&self) -> Link {
        self.record.flags.link()
    }
}

/// Room for a number of lines on large pages, as a card has that writes frames to memory.
#[derive(Debug)]
pub struct Lines {
    bytes: Bytes,
    /// Bytes that are written.
    filled: usize,
}

impl Lines {
    /// Room for so many lines.
    pub fn new(lines: usize) -> Result<Lines, Error> {
        let bytes = Bytes::new(lines.max(1) * size_of::<Line>(), HugePages::Transparent)?;
        Ok(Lines { bytes, filled: 0 })
    }

    /// Adds lines. Panics if there is no room: it was counted before.
    pub fn extend(&mut self, lines: &[Line]) {
        let lines = lines.as_bytes();
        self.bytes[self.filled..][..lines.len()].copy_from_slice(lines);
        self.filled += lines.len();
    }

    /// All lines.
    #[inline(always)]
    pub fn get(&self) -> &[Line] {
        match <[Line]>::ref_from_bytes(&self.bytes[..self.filled]) {
            Ok(lines) => lines,
            Err(_) => unreachable!("a region is aligned to a page and is filled by whole lines"),
        }
    }

    /// All lines, to be changed.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        match <[Line]>::mut_from_bytes(&mut self.bytes[..self.filled]) {
            Ok(lines) => lines,
            Err(_) => unreachable!("a region is aligned to a page and is filled by whole lines"),
        }
    }
}
