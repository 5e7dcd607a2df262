//! The 16 bytes that travel with every packet.

use crate::parse::{Parsed, protocol};
use crate::pool::HEADROOM;
use crate::raw::held::word_of;
use crate::raw::slab::Buffer;

/// Number of a port of the plan.
pub type Port = u16;

/// What the bytes of a frame begin with.
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
    /// Anything else: carried, counted, never parsed.
    Other = 5,
    /// PPP, with or without address and control bytes (`DLT_PPP`, `DLT_PPP_SERIAL`).
    Ppp = 6,
    /// Cisco HDLC: two bytes, then an Ethernet type (`DLT_C_HDLC`).
    Hdlc = 7,
}

impl Link {
    /// The one of this number; of the lowest three bits.
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

/// What the parser found, in eight bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(crate) u8);

impl Flags {
    /// An IP header was found and is whole; the chain of IPv6 extension headers too, but not the options of IPv4.
    pub const IP: u8 = 0x08;
    /// That header is IPv6.
    pub const V6: u8 = 0x10;
    /// A piece of a fragmented datagram.
    pub const FRAGMENT: u8 = 0x20;
    /// A piece that is not the first: it has no transport header.
    pub const LATER_FRAGMENT: u8 = 0x40;
    /// Bytes are missing: cut by a snap length, or a length field promises more than there is.
    pub const SHORT: u8 = 0x80;

    /// The link kind.
    #[inline(always)]
    pub fn link(self) -> Link {
        Link::from_bits(self.0)
    }

    /// Whether any of the given bits is set.
    #[inline(always)]
    pub fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }

    /// Flags for a link kind and bits found by the parser.
    #[inline(always)]
    pub fn new(link: Link, bits: u8) -> Flags {
        Flags(link as u8 | (bits & !7))
    }
}

/// What the batch keeps of a packet: where its bytes are and what the parser found. 16 bytes; four share a cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Record {
    /// Its buffer in the pool. Private: holding a record is owning its buffer.
    pub(crate) buffer: Buffer,
    pub(crate) len: u32,
    pub(crate) start: u16,
    /// Port by which the packet came in.
    pub port: Port,
    /// Offset of the network header from the frame's first byte; meaningful if [`Flags::IP`] is set.
    pub l3: u8,
    /// Offset of what follows the IP header (and its extension headers) from the IP header, in units of four bytes; 0 if
    /// there is none. It may lie beyond the frame's end. In a later fragment it is payload, not a transport header.
    pub l4: u8,
    /// IP protocol number of the transport header (IPv6: after the extension headers).
    pub proto: u8,
    /// Link kind and what the parser found.
    pub flags: Flags,
}

const _: () = assert!(size_of::<Record>() == 16);
// What the parser finds are the last four bytes, in the order of `parse::Word`.
const _: () = assert!(std::mem::offset_of!(Record, l3) == 12 && std::mem::offset_of!(Record, flags) == 15);

impl Record {
    /// What is found in nearly all frames: Ethernet without tags, IPv4 without options, UDP.
    pub(crate) const PLAINEST_UDP: u32 = Record::found(14, 5, protocol::UDP, Flags::IP);
    /// The same with TCP.
    pub(crate) const PLAINEST_TCP: u32 = Record::found(14, 5, protocol::TCP, Flags::IP);
    /// The same with IPv6 without extension headers, and UDP.
    pub(crate) const PLAINEST_V6_UDP: u32 = Record::found(14, 10, protocol::UDP, Flags::IP | Flags::V6);
    /// The same with TCP.
    pub(crate) const PLAINEST_V6_TCP: u32 = Record::found(14, 10, protocol::TCP, Flags::IP | Flags::V6);

    /// Bytes of the frame that are present.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Offset of the transport header from the frame's first byte, if there is one.
    #[inline(always)]
    pub fn l4_offset(&self) -> Option<usize> {
        (self.l4 != 0).then(|| self.l3 as usize + self.l4 as usize * 4)
    }

    /// What the parser finds, as one word, to compare with [`parsed`](Self::parsed).
    #[inline(always)]
    pub(crate) const fn found(l3: u8, l4: u8, proto: u8, flags: u8) -> u32 {
        u32::from_le_bytes([l3, l4, proto, flags])
    }

    /// What the parser found, as one word.
    #[inline(always)]
    pub(crate) fn parsed(&self) -> u32 {
        word_of(self)
    }

    /// The frame's bytes, given all of its buffer; they always lie inside.
    #[inline(always)]
    pub(crate) fn cut<'a>(&self, room: &'a [u8]) -> &'a [u8] {
        let start = self.start as usize;
        &room[start..start + self.len as usize]
    }

    #[inline(always)]
    pub(crate) fn set_parsed(&mut self, parsed: Parsed) {
        (self.l3, self.l4, self.proto, self.flags) = (parsed.l3, parsed.l4, parsed.proto, parsed.flags);
    }

    /// A frame of `len` bytes that has just come in, without a buffer.
    #[inline(always)]
    pub(crate) fn arrived(len: u32, port: Port, link: Link) -> Record {
        Record { len, start: HEADROOM as u16, port, flags: Flags::new(link, 0), ..Record::default() }
    }

    /// The same packet's record with everything copied: only for undo, never a second owner.
    #[inline(always)]
    pub(crate) fn duplicate(&self) -> Record {
        Record { buffer: self.buffer.alias(), ..*self }
    }
}
