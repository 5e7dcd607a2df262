//! The classic pcap format (draft-ietf-opsawg-pcap): both byte orders, micro- and nanoseconds, and the modified format of old Linux
//! kernels (magic `a1b2cd34`) with eight additional bytes per record.

use super::bytes::ByteStream;
use super::damage::Flaw;
use super::reader::{Head, LENGTH_MAX};

/// Size of the file header in bytes.
pub(crate) const FILE_HEADER: usize = 24;

/// The bit of the link type field that says that the upper four bits state the length of the frame check sequence.
const CHECK_LEN_STATED: u32 = 1 << 26;

#[derive(Debug)]
pub(crate) struct Classic {
    big_endian: bool,
    record_header: usize,
    unit_ns: u64,
    linktype: u32,
    /// Length of the frame check sequence at the end of each packet, in bytes.
    check_len: u8,
}

/// Byte order (true for big-endian) and magic of a file with this beginning; `None` if it has another format.
fn kind_of(start: &[u8]) -> Option<(bool, u32)> {
    let number = u32::from_le_bytes(start.get(..4)?.try_into().ok()?);
    let is_known = |kind: &u32| matches!(kind, 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34);
    [(false, number), (true, number.swap_bytes())].into_iter().find(|(_, kind)| is_known(kind))
}

/// Whether a file with this beginning has this format, even if it is truncated.
pub(crate) fn begins(start: &[u8]) -> bool {
    kind_of(start).is_some()
}

impl Classic {
    /// Recognises a file by its header; `None` if it has another format.
    pub(crate) fn recognise(header: &[u8]) -> Option<Classic> {
        let (big_endian, kind) = kind_of(header)?;
        let (record_header, unit_ns) = match kind {
            0xa1b2_3c4d => (16, 1),
            0xa1b2_cd34 => (24, 1000),
            _ => (16, 1000),
        };
        let mut classic = Classic { big_endian, record_header, unit_ns, linktype: 0, check_len: 0 };
        // The upper 16 bits contain the length of the frame check sequence in units of two bytes, and whether it is stated.
        let field = classic.word(header.get(20..24)?);
        classic.linktype = field & 0xffff;
        if field & CHECK_LEN_STATED != 0 {
            classic.check_len = (field >> 28) as u8 * 2;
        }
        Some(classic)
    }

    fn word(&self, bytes: &[u8]) -> u32 {
        let word = bytes.try_into().map_or(0, u32::from_le_bytes);
        if self.big_endian { word.swap_bytes() } else { word }
    }

    /// The next record; `None` at the end.
    pub(crate) fn next(&self, stream: &mut ByteStream) -> Result<Option<Head>, Flaw> {
        let header = stream.peek(self.record_header);
        if header.is_empty() {
            return Ok(None);
        }
        if header.len() < self.record_header {
            return Err(Flaw::CutShort { missing: (self.record_header - header.len()) as u64 });
        }
        let seconds = self.word(&header[0..4]);
        let fraction = self.word(&header[4..8]);
        let len = self.word(&header[8..12]) as usize;
        let wire_len = self.word(&header[12..16]);
        if len > LENGTH_MAX {
            return Err(Flaw::TooLong { len: len as u64 });
        }
        let total = self.record_header + len;
        let present = stream.peek(total).len();
        let flaw = (present < total).then(|| Flaw::CutShort { missing: (total - present) as u64 });
        let head = Head {
            data: self.record_header..present,
            total: present,
            wire_len,
            timestamp_ns: Some(u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns),
            linktype: self.linktype,
            interface: 0,
            flaw,
        };
        Ok(Some(head.without_check(self.check_len)))
    }
}
