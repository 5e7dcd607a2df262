//! The pcapng format (draft-ietf-opsawg-pcapng): sections of either byte order; several interfaces with their own link type, time
//! resolution and offset; enhanced, simple and old packet blocks. Other blocks are skipped. A block whose length at its end differs
//! from that at its beginning is damaged: where the next block begins is then unknown.

use super::bytes::ByteStream;
use super::damage::Flaw;
use super::link::LINKTYPE_ETHERNET;
use super::reader::{Head, LENGTH_MAX};

/// Type of a section header block; it reads the same in both byte orders.
pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
const PACKET_OLD: u32 = 2;
const PACKET_SIMPLE: u32 = 3;
pub(crate) const PACKET_ENHANCED: u32 = 6;
/// Byte-order magic; a section is little-endian if its magic reads as this value.
pub(crate) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(crate) const OPTION_COMMENT: u16 = 1;
pub(crate) const OPTION_NAME: u16 = 2;
pub(crate) const OPTION_TSRESOL: u16 = 9;
const OPTION_CHECK_LEN: u16 = 13;
const OPTION_TSOFFSET: u16 = 14;
/// Option of a packet: its flags, of which four say the length of its frame check sequence in bytes, or 0.
const OPTION_FLAGS: u16 = 2;

#[derive(Clone, Debug)]
struct Interface {
    linktype: u32,
    snap_len: u32,
    /// As in the option: a negative power of ten, or of two if the highest bit is set.
    resolution: u8,
    offset_s: i64,
    /// Length of the frame check sequence at the end of each packet, in bytes.
    check_len: u8,
    name: String,
}

impl Interface {
    fn nanoseconds(&self, raw: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7f);
        let ns = if self.resolution & 0x80 != 0 {
            (u128::from(raw) * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            u128::from(raw) * 10u128.pow(9 - exponent)
        } else {
            10u128.checked_pow(exponent - 9).map_or(0, |divisor| u128::from(raw) / divisor)
        };
        let ns = i128::try_from(ns).unwrap_or(i128::MAX).saturating_add(i128::from(self.offset_s) * 1_000_000_000);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ng {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

impl Ng {
    /// Recognises a file by its first bytes; `None` if it has another format.
    pub(crate) fn recognise(header: &[u8]) -> Option<Ng> {
        (header.get(..4)? == SECTION.to_le_bytes()).then(Ng::default)
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
        if self.big_endian { word.swap_bytes() } else { word }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = bytes.get(at..at + 2).and_then(|half| half.try_into().ok()).map_or(0, u16::from_le_bytes);
        if self.big_endian { half.swap_bytes() } else { half }
    }

    /// The next packet; `None` at the end. Consumes the blocks before it.
    pub(crate) fn next(&mut self, stream: &mut ByteStream) -> Result<Option<Head>, Flaw> {
        loop {
            let header = stream.peek(12);
            if header.is_empty() {
                return Ok(None);
            }
            if header.len() < 12 {
                return Err(Flaw::CutShort { missing: 12 - header.len() as u64 });
            }
            if header[..4] == SECTION.to_le_bytes() {
                self.begin_section(&header[8..12])?;
            }
            let (kind, len) = (self.word(header, 0), self.word(header, 4));
            let least = match kind {
                SECTION => 28,
                INTERFACE => 20,
                PACKET_OLD | PACKET_ENHANCED => 32,
                PACKET_SIMPLE => 16,
                _ => 12,
            };
            if len < least {
                return Err(Flaw::TooShort { kind, len });
            }
            let len = len as usize;
            if len > LENGTH_MAX {
                return Err(Flaw::TooLong { len: len as u64 });
            }
            let block = stream.peek(len);
            if block.len() < len {
                return Err(Flaw::CutShort { missing: (len - block.len()) as u64 });
            }
            let repeated = self.word(block, len - 4);
            if repeated as usize != len {
                return Err(Flaw::Lengths { first: len as u32, repeated });
            }
            match kind {
                // Readers must not interpret sections of another major version (draft-ietf-opsawg-pcapng section 4.1).
                SECTION if self.half(block, 12) != 1 => {
                    return Err(Flaw::Version { major: self.half(block, 12), minor: self.half(block, 14) });
                }
                INTERFACE => {
                    let interface = self.interface(block);
                    self.interfaces.push(interface);
                }
                PACKET_ENHANCED | PACKET_OLD => return self.packet(block, kind).map(Some),
                PACKET_SIMPLE => return Ok(Some(self.simple_packet(block))),
                _ => {}
            }
            stream.consume(len);
        }
    }

    fn begin_section(&mut self, magic: &[u8]) -> Result<(), Flaw> {
        let magic: [u8; 4] = magic.try_into().unwrap_or_default();
        self.big_endian = match u32::from_le_bytes(magic) {
            BYTE_ORDER => false,
            other if other.swap_bytes() == BYTE_ORDER => true,
            _ => return Err(Flaw::ByteOrder { magic }),
        };
        self.interfaces.clear();
        Ok(())
    }

    pub(crate) fn interface_names(&self) -> Vec<String> {
        self.interfaces.iter().map(|interface| interface.name.clone()).collect()
    }

    fn interface(&self, block: &[u8]) -> Interface {
        let linktype = u32::from(self.half(block, 8));
        let mut interface = Interface {
            linktype,
            snap_len: self.word(block, 12),
            resolution: 6,
            offset_s: 0,
            check_len: 0,
            name: String::new(),
        };
        let mut at = 16;
        while at + 4 <= block.len() - 4 {
            let (option, len) = (self.half(block, at), usize::from(self.half(block, at + 2)));
            let Some(value) = block.get(at + 4..at + 4 + len) else { break };
            match (option, value) {
                (0, _) => break,
                (OPTION_NAME, name) => interface.name = String::from_utf8_lossy(name).into_owned(),
                (OPTION_TSRESOL, [resolution, ..]) => interface.resolution = *resolution,
                (OPTION_CHECK_LEN, [len, ..]) => interface.check_len = *len,
                (OPTION_TSOFFSET, _) if len >= 8 => {
                    let (first, second) = (u64::from(self.word(value, 0)), u64::from(self.word(value, 4)));
                    let offset = if self.big_endian { first << 32 | second } else { second << 32 | first };
                    interface.offset_s = offset.cast_signed();
                }
                _ => {}
            }
            at += 4 + len.next_multiple_of(4);
        }
        interface
    }

    /// Parses an enhanced or old packet block; the two differ only in how they name the interface.
    fn packet(&self, block: &[u8], kind: u32) -> Result<Head, Flaw> {
        let number = if kind == PACKET_OLD { u32::from(self.half(block, 8)) } else { self.word(block, 8) };
        let Some(interface) = self.interfaces.get(number as usize) else {
            return Err(Flaw::NoInterface { interface: number, described: self.interfaces.len() });
        };
        let raw = u64::from(self.word(block, 12)) << 32 | u64::from(self.word(block, 16));
        let (len, room) = (self.word(block, 20) as usize, block.len() - 32);
        if len > room {
            return Err(Flaw::Overfull { len, room });
        }
        let check_len = self.check_len_in(block, len).unwrap_or(interface.check_len);
        let head = Head {
            data: 28..28 + len,
            total: block.len(),
            wire_len: self.word(block, 24),
            timestamp_ns: Some(interface.nanoseconds(raw)),
            linktype: interface.linktype,
            interface: number,
            flaw: None,
        };
        Ok(head.without_check(check_len))
    }

    /// The length of the frame check sequence that the options of a packet of `len` bytes state, in bytes.
    fn check_len_in(&self, block: &[u8], len: usize) -> Option<u8> {
        let mut at = 28 + len.next_multiple_of(4);
        while at + 8 < block.len() {
            let (option, len) = (self.half(block, at), usize::from(self.half(block, at + 2)));
            match option {
                0 => break,
                OPTION_FLAGS => return Some((self.word(block, at + 4) >> 5 & 15) as u8).filter(|len| *len > 0),
                _ => at += 4 + len.next_multiple_of(4),
            }
        }
        None
    }

    /// Parses a simple packet block. It has no timestamp and belongs to the first interface, whose snap length limits the packet.
    fn simple_packet(&self, block: &[u8]) -> Head {
        let wire_len = self.word(block, 8);
        let interface = self.interfaces.first();
        let snap_len = interface.map_or(0, |interface| interface.snap_len);
        let snapped = if snap_len == 0 { wire_len } else { wire_len.min(snap_len) };
        let head = Head {
            data: 12..12 + (snapped as usize).min(block.len() - 16),
            total: block.len(),
            wire_len,
            timestamp_ns: None,
            linktype: interface.map_or(LINKTYPE_ETHERNET, |interface| interface.linktype),
            interface: 0,
            flaw: None,
        };
        head.without_check(interface.map_or(0, |interface| interface.check_len))
    }
}
