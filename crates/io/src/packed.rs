//! Frames packed contiguously: the unit in which threads hand over frames.

use braid_packet::FrameInfo;

/// Maximum number of frames in one load.
pub(crate) const FRAMES_MAX: usize = 256;
/// Number of bytes at which a load is full.
const BYTES_FULL: usize = 128 << 10;

/// Frames in order, with their bytes in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    bytes: Vec<u8>,
    frames: Vec<(usize, FrameInfo)>,
}

impl Packed {
    /// Makes an empty load with room for a full load of ordinary frames.
    pub(crate) fn new() -> Packed {
        Packed { bytes: Vec::with_capacity(BYTES_FULL + 2048), frames: Vec::with_capacity(FRAMES_MAX) }
    }

    pub(crate) fn push(&mut self, bytes: &[u8], info: FrameInfo) {
        self.bytes.extend_from_slice(bytes);
        self.frames.push((self.bytes.len(), info));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= FRAMES_MAX || self.bytes.len() >= BYTES_FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of memory that it occupies, regardless of how full it is.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.capacity() + self.frames.capacity() * size_of::<(usize, FrameInfo)>()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }

    /// Sequence number of the first frame.
    pub(crate) fn first_sequence(&self) -> Option<u64> {
        self.frames.first().map(|(_, info)| info.sequence)
    }

    /// Frame `i`, or `None` beyond the last.
    pub(crate) fn frame(&self, i: usize) -> Option<(&[u8], FrameInfo)> {
        let (end, info) = *self.frames.get(i)?;
        let start = i.checked_sub(1).map_or(0, |before| self.frames[before].0);
        Some((&self.bytes[start..end], info))
    }
}
