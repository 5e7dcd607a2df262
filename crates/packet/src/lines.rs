//! Frames stored in whole cache lines, one after another, so that they can be copied into buffers without copies of variable length.

use braid_memory::{Bytes, Error, HugePages};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::record::{Link, Port, Record};

/// One cache line of frame bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Line(pub [u8; 64]);

/// A frame stored in whole cache lines, without its bytes: its prepared record and its wire length.
#[derive(Debug)]
pub struct LinedFrame {
    /// The record, without a buffer.
    pub(crate) record: Record,
    wire_len: u32,
}

impl LinedFrame {
    /// Creates a frame of `len` bytes that had `wire_len` bytes on the wire.
    pub fn new(len: u32, wire_len: u32, port: Port, link: Link) -> LinedFrame {
        LinedFrame { record: Record::arrived(len, port, link), wire_len }
    }

    /// Returns the number of lines that the frame occupies, at least one. The rest of the last line is unused.
    #[inline(always)]
    pub fn lines(&self) -> usize {
        self.record.len().div_ceil(64).max(1)
    }

    /// Returns whether the frame occupies more than one line.
    #[inline(always)]
    pub(crate) fn is_long(&self) -> bool {
        self.record.len > 64
    }

    /// Returns the number of bytes present.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.record.len()
    }

    /// Returns the wire length in bytes.
    #[inline(always)]
    pub fn wire_len(&self) -> u32 {
        self.wire_len
    }

    /// Returns the arrival port.
    pub fn port(&self) -> Port {
        self.record.port
    }

    /// Returns the link type.
    pub fn link(&self) -> Link {
        self.record.flags.link()
    }
}

/// Memory for a number of lines on huge pages, like the memory that a network card writes frames to.
#[derive(Debug)]
pub struct Lines {
    bytes: Bytes,
    /// Bytes written so far.
    filled: usize,
}

impl Lines {
    /// Allocates room for `lines` lines.
    pub fn new(lines: usize) -> Result<Lines, Error> {
        let bytes = Bytes::new(lines.max(1).saturating_mul(size_of::<Line>()), HugePages::Transparent)?;
        Ok(Lines { bytes, filled: 0 })
    }

    /// Appends lines. Panics if there is no room; the caller has counted them before.
    pub fn extend(&mut self, lines: &[Line]) {
        let lines = lines.as_bytes();
        self.bytes[self.filled..][..lines.len()].copy_from_slice(lines);
        self.filled += lines.len();
    }

    /// Returns all lines.
    #[inline(always)]
    pub fn get(&self) -> &[Line] {
        match <[Line]>::ref_from_bytes(&self.bytes[..self.filled]) {
            Ok(lines) => lines,
            Err(_) => unreachable!("a region is aligned to a page and is filled by whole lines"),
        }
    }

    /// Returns all lines for modification.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        match <[Line]>::mut_from_bytes(&mut self.bytes[..self.filled]) {
            Ok(lines) => lines,
            Err(_) => unreachable!("a region is aligned to a page and is filled by whole lines"),
        }
    }
}
