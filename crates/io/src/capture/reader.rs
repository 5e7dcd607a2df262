//! Reads one capture file, packet by packet.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_packet::Link;

use super::bytes::ByteStream;
use super::classic::{Classic, FILE_HEADER};
use super::damage::{Damage, Flaw};
use super::gzip::Gunzip;
use super::link;
use super::ng::Ng;
use super::piped::{Arrived, Piped, is_dash};
use crate::progress::Progress;
use crate::retrying_stream::Patient;
use crate::source::OpenError;

/// Number of bytes needed to distinguish compression formats.
const MAGIC_MAX: usize = 6;
/// Maximum plausible length of a record or block: 64 MiB.
pub(crate) const LENGTH_MAX: usize = 64 << 20;

/// A packet as stored in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Its length on the wire according to the file; some files state less than what is present.
    pub wire_len: u32,
    /// Nanoseconds since 1970; `None` for simple packet blocks.
    pub timestamp_ns: Option<u64>,
    /// The file's number for the link type.
    pub linktype: u32,
    /// The number of the interface by which it came, in the order in which a pcapng file describes them; 0 in others.
    pub interface: u32,
}

impl Captured<'_> {
    /// The link type of its bytes.
    pub fn link(&self) -> Link {
        link::from_file(self.linktype)
    }
}

/// Position of the current packet in the peeked bytes.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) data: Range<usize>,
    /// Number of bytes to consume before the next packet.
    pub(crate) total: usize,
    pub(crate) wire_len: u32,
    pub(crate) timestamp_ns: Option<u64>,
    pub(crate) linktype: u32,
    pub(crate) interface: u32,
    /// A flaw to report after this packet.
    pub(crate) flaw: Option<Flaw>,
}

impl Head {
    /// Leaves out the frame check sequence at the end of the packet, of this many bytes: it would be wrong once the packet is changed. Of a packet
    /// that was cut, some of it or all may be missing.
    #[inline(always)]
    pub(crate) fn without_check(mut self, len: u8) -> Head {
        if len > 0 {
            let whole = (self.wire_len as usize).max(self.data.len());
            let frame = whole.saturating_sub(len.into());
            self.data.end = self.data.end.min(self.data.start + frame);
            self.wire_len = self.wire_len.min(frame as u32);
        }
        self
    }
}

enum Format {
    Classic(Classic),
    Ng(Ng),
}

/// Reads pcap and pcapng, uncompressed or compressed with gzip.
pub struct CaptureReader {
    path: PathBuf,
    stream: ByteStream,
    format: Format,
    head: Option<Head>,
    ended: bool,
    /// For a pipe: what has arrived.
    arrived: Option<Arrived>,
}

impl CaptureReader {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> Result<CaptureReader, OpenError> {
        CaptureReader::open_counted(path, None)
    }

    /// Opens a file; the number of bytes read from disk is added to `progress`.
    pub(crate) fn open_counted(path: &Path, progress: Option<Arc<Progress>>) -> Result<CaptureReader, OpenError> {
        if is_dash(path) {
            let (piped, arrived) = Piped::begin(Patient(io::stdin()))?;
            let mut reader = CaptureReader::new(Path::new("standard input"), Counted { inner: piped, progress })?;
            reader.arrived = Some(arrived);
            return Ok(reader);
        }
        let file = File::open(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        CaptureReader::new(path, Counted { inner: file, progress })
    }

    /// Whether the source is a pipe of which all arrived data has been read, so that [`advance`](Self::advance) may block.
    pub(crate) fn is_dry(&self) -> bool {
        self.arrived.as_ref().is_some_and(Arrived::is_dry)
    }

    /// Reads from any reader; `path` names it in reports.
    pub fn new(path: &Path, inner: impl Read + Send + 'static) -> Result<CaptureReader, OpenError> {
        let mut inner = io::BufReader::with_capacity(256 << 10, inner);
        // A pipe may deliver them one by one.
        let mut magic = Vec::with_capacity(MAGIC_MAX);
        let read = (&mut inner).take(MAGIC_MAX as u64).read_to_end(&mut magic);
        read.map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let whole = |magic| io::Cursor::new(magic).chain(inner);
        let stream = match &magic[..] {
            [0x1f, 0x8b, ..] => ByteStream::new(Box::new(Gunzip::new(whole(magic)))),
            [b'B', b'Z', b'h', ..] => return Err(compression(path, "bzip2")),
            [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(compression(path, "xz")),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(compression(path, "zstd")),
            [0x04, 0x22, 0x4d, 0x18, ..] => return Err(compression(path, "lz4")),
            _ => ByteStream::new(Box::new(whole(magic))),
        };
        CaptureReader::begin(path, stream)
    }

    fn begin(path: &Path, mut stream: ByteStream) -> Result<CaptureReader, OpenError> {
        let header = stream.peek(FILE_HEADER);
        let start = header[..header.len().min(4)].to_vec();
        let (classic, ng) = (Classic::recognise(header), Ng::recognise(header));
        let format = match (classic, ng) {
            (Some(classic), _) => {
                stream.consume(FILE_HEADER);
                Format::Classic(classic)
            }
            (_, Some(ng)) => Format::Ng(ng),
            _ => match stream.failure() {
                Some(error) => {
                    let source = io::Error::new(error.kind(), error.to_string());
                    return Err(OpenError::Io { path: path.to_owned(), source });
                }
                None => return Err(OpenError::NotACapture { path: path.to_owned(), start }),
            },
        };
        Ok(CaptureReader { path: path.to_owned(), stream, format, head: None, ended: false, arrived: None })
    }

    /// Advances to the next packet; returns false at the end, and on every later call. An error says where
    /// the file is damaged, and is also the end.
    pub fn advance(&mut self) -> Result<bool, Damage> {
        if self.ended {
            return Ok(false);
        }
        if let Some(head) = self.head.take() {
            if let Some(flaw) = head.flaw {
                return Err(self.damage(flaw));
            }
            self.stream.consume(head.total);
        }
        let next = match &mut self.format {
            Format::Classic(classic) => classic.next(&mut self.stream),
            Format::Ng(ng) => ng.next(&mut self.stream),
        };
        match next {
            Ok(Some(head)) => {
                self.head = Some(head);
                Ok(true)
            }
            Ok(None) if self.stream.failure().is_none() => {
                self.ended = true;
                Ok(false)
            }
            // This flaw is a placeholder: `damage` replaces it by the stream's failure.
            Ok(None) => Err(self.damage(Flaw::CutShort { missing: 0 })),
            Err(flaw) => Err(self.damage(flaw)),
        }
    }

    /// The current packet; empty before the first and after the last.
    pub fn captured(&self) -> Captured<'_> {
        match &self.head {
            Some(head) => Captured {
                bytes: self.stream.peeked().get(head.data.clone()).unwrap_or_default(),
                wire_len: head.wire_len,
                timestamp_ns: head.timestamp_ns,
                linktype: head.linktype,
                interface: head.interface,
            },
            None => {
                Captured { bytes: &[], wire_len: 0, timestamp_ns: None, linktype: link::LINKTYPE_USER0, interface: 0 }
            }
        }
    }

    /// The names of the interfaces that were described so far, empty for those without a name.
    pub(crate) fn interface_names(&self) -> Vec<String> {
        match &self.format {
            Format::Ng(ng) => ng.interface_names(),
            Format::Classic(_) => Vec::new(),
        }
    }

    fn damage(&mut self, flaw: Flaw) -> Damage {
        self.ended = true;
        let flaw = self.stream.failure().map_or(flaw, |error| Flaw::Read(error.to_string()));
        Damage::new(&self.path, self.stream.offset(), flaw)
    }
}

fn compression(path: &Path, method: &'static str) -> OpenError {
    OpenError::Compression { path: path.to_owned(), method }
}

/// Wraps a reader and adds the number of bytes read to a progress counter.
struct Counted<R> {
    inner: R,
    progress: Option<Arc<Progress>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(progress) = &self.progress {
            progress.add(count as u64);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets of a file of these words: their bytes, and their lengths on the wire.
    fn packets(words: &[u32]) -> Vec<(Vec<u8>, u32)> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut reader = CaptureReader::new(Path::new("in"), io::Cursor::new(bytes)).expect("a capture");
        let mut packets = Vec::new();
        while reader.advance().expect("whole") {
            packets.push((reader.captured().bytes.to_vec(), reader.captured().wire_len));
        }
        packets
    }

    fn first(bytes: u8) -> Vec<u8> {
        (0..bytes).collect()
    }

    /// Bytes 0 to 11.
    const DATA: [u32; 3] = [0x0302_0100, 0x0706_0504, 0x0b0a_0908];

    #[test]
    fn check_sequences_that_a_pcap_file_states_are_left_out() {
        let file = |linktype: u32, len: u32, wire_len: u32| {
            let header = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, linktype];
            packets(&[&header[..], &[1, 0, len, wire_len], &DATA[..len as usize / 4]].concat())
        };
        assert_eq!(file(0x2400_0001, 12, 12), [(first(8), 8)]);
        assert_eq!(file(0x2400_0001, 12, 14), [(first(10), 10)], "half of it was cut off");
        assert_eq!(file(0x2400_0001, 12, 90), [(first(12), 86)], "it was cut off with what is before it");
        assert_eq!(file(0x2400_0001, 0, 0), [(first(0), 0)]);
        assert_eq!(file(0x2000_0001, 12, 12), [(first(12), 12)], "its length is not stated");
        assert_eq!(file(1, 12, 12), [(first(12), 12)]);
    }

    #[test]
    fn check_sequences_of_a_pcapng_interface_or_packet_are_left_out() {
        let interface = [1, 32, 1, 0, 13 | 1 << 16, 4, 0, 32];
        let section = [0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, !0, !0, 28];
        let plain = [&[6, 44, 0, 0, 0, 12, 12][..], &DATA, &[44]].concat();
        // A comment, and flags with a length of two bytes.
        let options = [1 | 3 << 16, 0x0061_6161, 2 | 4 << 16, 2 << 5, 0];
        let flagged = [&[6, 64, 0, 0, 0, 12, 12][..], &DATA, &options, &[64]].concat();
        let simple = [&[3, 28, 12][..], &DATA, &[28]].concat();
        let read = packets(&[&section[..], &interface, &plain, &flagged, &simple].concat());
        assert_eq!(read, [(first(8), 8), (first(10), 10), (first(8), 8)]);
        assert_eq!(packets(&[&section[..], &[1, 20, 1, 0, 20], &plain].concat()), [(first(12), 12)]);
    }
}
