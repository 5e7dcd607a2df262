//! The 16-byte record that accompanies every packet.

use crate::parse::{Parsed, protocol};
use crate::pool::HEADROOM;
use crate::raw::records::word_of;
use crate::raw::slab::Buffer;

/// Number of a port of the plan.
pub type Port = u16;

/// Link type: the header that a frame begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Link {
    /// Ethernet II or 802.3.
    #[default]
    Ethernet = 0,
    /// An IP header (`DLT_RAW`, `DLT_IPV4`, `DLT_IPV6`).
    RawIp = 1,
    /// Linux cooked capture, version 1.
    Cooked1 = 2,
    /// Linux cooked capture, version 2.
    Cooked2 = 3,
    /// BSD loopback: four bytes of address family in host order (`DLT_NULL`) or network order (`DLT_LOOP`).
    Loopback = 4,
    /// Anything else: carried and counted, but never parsed.
    Other = 5,
    /// PPP, with or without address and control bytes (`DLT_PPP`, `DLT_PPP_SERIAL`).
    Ppp = 6,
    /// Cisco HDLC: two bytes, then an Ethernet type (`DLT_C_HDLC`).
    Hdlc = 7,
}

impl Link {
    /// Returns the link type with this number; only the lowest three bits count.
    pub fn from_bits(bits: u8) -> Link {
        match bits & 7 {
            0 => Link::Ethernet,
            1 => Link::RawIp,
            2 => Link::Cooked1,
            3 => Link::Cooked2,
            4 => Link::Loopback,
            6 => Link::Ppp,
            7 => Link::Hdlc,
            _ => Link::Other,
        }
    }
}

/// Link type and result bits of the parser, in one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(crate) u8);

impl Flags {
    /// A complete IP header was found, including all IPv6 extension headers, but not necessarily the IPv4 options.
    pub const IP: u8 = 0x08;
    /// The IP header is IPv6.
    pub const V6: u8 = 0x10;
    /// The packet is a fragment of a datagram. An IPv6 packet with a fragment header that is all of its datagram is none (RFC 6946).
    pub const FRAGMENT: u8 = 0x20;
    /// The packet is a fragment other than the first, so it has no transport header.
    pub const LATER_FRAGMENT: u8 = 0x40;
    /// Bytes are missing: cut by a snap length, or a length field exceeds what is present.
    pub const SHORT: u8 = 0x80;

    /// Returns the link type.
    #[inline(always)]
    pub fn link(self) -> Link {
        Link::from_bits(self.0)
    }

    /// Returns whether any of the given bits is set.
    #[inline(always)]
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    /// Creates flags from a link type and bits set by the parser.
    #[inline(always)]
    pub fn new(link: Link, bits: u8) -> Flags {
        Flags(link as u8 | (bits & !7))
    }
}

/// What the batch keeps of a packet: where its bytes are and what the parser found. 16 bytes, so four share a cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Its buffer in the pool. Private, because holding a record means owning its buffer.
    pub(crate) buffer: Buffer,
    pub(crate) len: u32,
    pub(crate) start: u16,
    /// Arrival port.
    pub port: Port,
    /// Offset of the network header from the frame's first byte; valid only if [`Flags::IP`] is set.
    pub l3: u8,
    /// Offset, counted from the IP header, of what follows it and its extension headers, in units of four bytes; 0 if there
    /// is no IP header or the offset exceeds 1020 bytes. It may lie beyond the frame's end. In a later fragment it is the
    /// offset of payload, not of a transport header.
    pub l4: u8,
    /// IP protocol number of the transport header (for IPv6, after the extension headers).
    pub proto: u8,
    /// Link type and what the parser found.
    pub flags: Flags,
}

const _: () = assert!(size_of::<Record>() == 16);
// The parser's results are the last four bytes, in the order of `parse::Word`.
const _: () = assert!(std::mem::offset_of!(Record, l3) == 12 && std::mem::offset_of!(Record, flags) == 15);

impl Record {
    /// Parser result for nearly all UDP packets: untagged Ethernet and IPv4 without options.
    pub(crate) const PLAINEST_UDP: u32 = Record::found(14, 5, protocol::UDP, Flags::IP);
    /// Parser result for untagged Ethernet, IPv4 without options and TCP.
    pub(crate) const PLAINEST_TCP: u32 = Record::found(14, 5, protocol::TCP, Flags::IP);
    /// Parser result for untagged Ethernet, IPv6 without extension headers and UDP.
    pub(crate) const PLAINEST_V6_UDP: u32 = Record::found(14, 10, protocol::UDP, Flags::IP | Flags::V6);
    /// Parser result for untagged Ethernet, IPv6 without extension headers and TCP.
    pub(crate) const PLAINEST_V6_TCP: u32 = Record::found(14, 10, protocol::TCP, Flags::IP | Flags::V6);

    /// Returns the number of bytes present.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the offset of the transport header from the frame's first byte, if there is one.
    #[inline(always)]
    pub fn l4_offset(&self) -> Option<usize> {
        (self.l4 != 0).then(|| self.l3 as usize + self.l4 as usize * 4)
    }

    /// Packs parser results into one word, for comparison with [`parsed`](Self::parsed).
    #[inline(always)]
    pub(crate) const fn found(l3: u8, l4: u8, proto: u8, flags: u8) -> u32 {
        u32::from_le_bytes([l3, l4, proto, flags])
    }

    /// Returns the parser results as one word.
    #[inline(always)]
    pub(crate) fn parsed(&self) -> u32 {
        word_of(self)
    }

    /// Returns the frame's bytes, given its whole buffer; they always lie inside it.
    #[inline(always)]
    pub(crate) fn cut<'a>(&self, room: &'a [u8]) -> &'a [u8] {
        let start = self.start as usize;
        &room[start..start + self.len as usize]
    }

    #[inline(always)]
    pub(crate) fn set_parsed(&mut self, parsed: Parsed) {
        (self.l3, self.l4, self.proto, self.flags) = (parsed.l3, parsed.l4, parsed.proto, parsed.flags);
    }

    /// Creates the record of a frame of `len` bytes that has just arrived, without a buffer.
    #[inline(always)]
    pub(crate) fn arrived(len: u32, port: Port, link: Link) -> Record {
        Record { len, start: HEADROOM as u16, port, flags: Flags::new(link, 0), ..Record::default() }
    }

    /// Copies the record including its buffer handle; for undo only, never as a second owner.
    #[inline(always)]
    pub(crate) fn duplicate(&self) -> Record {
        Record { buffer: self.buffer.alias(), ..*self }
    }
}
