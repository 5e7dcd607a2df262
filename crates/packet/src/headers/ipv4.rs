//! IPv4 (RFC 791) with options and fragment fields.

use zerocopy::byteorder::network_endian::U16;

use super::{Header, View, header};
use crate::address::IpAddress;

header! {
    /// The 20 fixed bytes; the options follow.
    Ipv4 {
        version_ihl: u8, tos: u8, total_len: U16, identification: U16, fragment: U16,
        ttl: u8, protocol: u8, checksum: U16, source: [u8; 4], destination: [u8; 4],
    }
}

impl Header for Ipv4 {
    /// Requires version 4, a header length of at least five words, and all options present.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        let words = usize::from(self.version_ihl & 15);
        (self.version_ihl >> 4 == 4 && words >= 5).then(|| words * 4 - 20)
    }
}

impl Ipv4 {
    /// Creates a header without options, with both lengths set for `payload` bytes and a time to live of 64.
    pub fn new(protocol: u8, payload: u16) -> Ipv4 {
        let lengths = Ipv4 { version_ihl: 0x45, total_len: payload.saturating_add(20).into(), ..Ipv4::default() };
        Ipv4 { ttl: 64, protocol, ..lengths }
    }

    /// Differentiated services code point, 6 bits (RFC 2474).
    #[inline(always)]
    pub fn dscp(&self) -> u8 {
        self.tos >> 2
    }

    /// Explicit congestion notification, 2 bits (RFC 3168).
    #[inline(always)]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }

    /// Length of header and payload in bytes, as the header states it.
    #[inline(always)]
    pub fn total_len(&self) -> u16 {
        self.total_len.get()
    }

    /// Identification, common to the fragments of a datagram.
    #[inline(always)]
    pub fn identification(&self) -> u16 {
        self.identification.get()
    }

    /// Whether the packet must not be fragmented.
    #[inline(always)]
    pub fn dont_fragment(&self) -> bool {
        self.fragment.get() & 0x4000 != 0
    }

    /// Whether fragments follow.
    #[inline(always)]
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & 0x2000 != 0
    }

    /// Offset of this fragment's payload in the datagram, in bytes.
    #[inline(always)]
    pub fn fragment_offset(&self) -> u16 {
        (self.fragment.get() & 0x1fff) << 3
    }

    /// Whether the packet is a fragment.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & 0x3fff != 0
    }

    /// Time to live, in hops.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Protocol of the payload.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Header checksum as stored.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        self.checksum.get()
    }

    /// Source address.
    #[inline(always)]
    pub fn source(&self) -> IpAddress {
        IpAddress::from_v4(self.source)
    }

    /// Destination address.
    #[inline(always)]
    pub fn destination(&self) -> IpAddress {
        IpAddress::from_v4(self.destination)
    }

    /// Sets code point and congestion bits together.
    #[inline(always)]
    pub fn set_tos(&mut self, tos: u8) {
        self.tos = tos;
    }

    /// Sets the total length, in bytes.
    #[inline(always)]
    pub fn set_total_len(&mut self, bytes: u16) {
        self.total_len = bytes.into();
    }

    /// Sets the identification.
    #[inline(always)]
    pub fn set_identification(&mut self, identification: u16) {
        self.identification = identification.into();
    }

    /// Sets the fragment fields; the offset in bytes is rounded down to a multiple of eight.
    #[inline(always)]
    pub fn set_fragment(&mut self, dont: bool, more: bool, offset: u16) {
        self.fragment = (u16::from(dont) << 14 | u16::from(more) << 13 | offset >> 3).into();
    }

    /// Sets the time to live.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.ttl = ttl;
    }

    /// Sets the protocol.
    #[inline(always)]
    pub fn set_protocol(&mut self, protocol: u8) {
        self.protocol = protocol;
    }

    /// Sets the header checksum.
    #[inline(always)]
    pub fn set_checksum(&mut self, checksum: u16) {
        self.checksum = checksum.into();
    }

    /// Sets the source address.
    #[inline(always)]
    pub fn set_source(&mut self, address: [u8; 4]) {
        self.source = address;
    }

    /// Sets the destination address.
    #[inline(always)]
    pub fn set_destination(&mut self, address: [u8; 4]) {
        self.destination = address;
    }
}

impl<'a> View<'a, Ipv4> {
    /// Returns an iterator over the options, without the padding after the end-of-list option.
    pub fn options(&self) -> Ipv4Options<'a> {
        Ipv4Options { rest: self.variable() }
    }
}

/// One option: its type byte (copied flag, class, number) and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Copied flag, class and number.
    pub kind: u8,
    /// Bytes after type and length.
    pub data: &'a [u8],
}

/// Iterator over options; ends at the end-of-list option, at the end of the header, or at a malformed option.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Ipv4Options<'a> {
    type Item = Ipv4Option<'a>;

    fn next(&mut self) -> Option<Ipv4Option<'a>> {
        let (kind, data, rest) = next_option(self.rest)?;
        self.rest = rest;
        Some(Ipv4Option { kind, data })
    }
}

/// Splits off the first option. IPv4 and TCP share the encoding: kind 0 ends the list, kind 1 is a single byte, all others
/// have a length.
pub(crate) fn next_option(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, behind) = bytes.split_first()?;
    match kind {
        0 => None,
        1 => Some((kind, &[], behind)),
        _ => {
            let length = usize::from(*behind.first()?);
            Some((kind, bytes.get(2..length)?, bytes.get(length..)?))
        }
    }
}
