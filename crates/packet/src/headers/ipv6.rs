//! IPv6 (RFC 8200) and its extension headers.

use zerocopy::byteorder::network_endian::{U16, U32};

use super::{Header, View, header};
use crate::address::IpAddress;
use crate::parse::protocol;

header! {
    /// The 40 fixed bytes; extension headers count as payload and are walked by [`View::extensions`].
    Ipv6 { version_class_flow: U32, payload_len: U16, next_header: u8, hop_limit: u8, source: [u8; 16], destination: [u8; 16] }
}

impl Header for Ipv6 {
    /// Requires version 6.
    #[inline(always)]
    fn variable_len(&self, _rest: &[u8]) -> Option<usize> {
        (self.version_class_flow.get() >> 28 == 6).then_some(0)
    }
}

impl Ipv6 {
    /// Creates a header with version, next header, payload length and a hop limit of 64.
    pub fn new(next_header: u8, payload: u16) -> Ipv6 {
        let lengths = Ipv6 { payload_len: payload.into(), next_header, ..Ipv6::default() };
        Ipv6 { version_class_flow: (6 << 28).into(), hop_limit: 64, ..lengths }
    }

    /// Traffic class: code point (6 bits) and congestion notification (2 bits).
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }

    /// Flow label, 20 bits (RFC 6437).
    #[inline(always)]
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow.get() & 0x000f_ffff
    }

    /// Length of what follows the fixed header in bytes, as the header states it.
    #[inline(always)]
    pub fn payload_len(&self) -> u16 {
        self.payload_len.get()
    }

    /// Number of the first extension header, or protocol number of the payload.
    #[inline(always)]
    pub fn next_header(&self) -> u8 {
        self.next_header
    }

    /// Hop limit.
    #[inline(always)]
    pub fn hop_limit(&self) -> u8 {
        self.hop_limit
    }

    /// Source address.
    #[inline(always)]
    pub fn source(&self) -> IpAddress {
        IpAddress::from_v6(self.source)
    }

    /// Destination address.
    #[inline(always)]
    pub fn destination(&self) -> IpAddress {
        IpAddress::from_v6(self.destination)
    }

    /// Sets the traffic class.
    #[inline(always)]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.version_class_flow = (self.version_class_flow.get() & 0xf00f_ffff | u32::from(class) << 20).into();
    }

    /// Sets the flow label; its upper 12 bits are ignored.
    #[inline(always)]
    pub fn set_flow_label(&mut self, label: u32) {
        self.version_class_flow = (self.version_class_flow.get() & 0xfff0_0000 | label & 0x000f_ffff).into();
    }

    /// Sets the payload length, in bytes.
    #[inline(always)]
    pub fn set_payload_len(&mut self, bytes: u16) {
        self.payload_len = bytes.into();
    }

    /// Sets the number of the next header.
    #[inline(always)]
    pub fn set_next_header(&mut self, number: u8) {
        self.next_header = number;
    }

    /// Sets the hop limit.
    #[inline(always)]
    pub fn set_hop_limit(&mut self, hops: u8) {
        self.hop_limit = hops;
    }

    /// Sets the source address.
    #[inline(always)]
    pub fn set_source(&mut self, address: [u8; 16]) {
        self.source = address;
    }

    /// Sets the destination address.
    #[inline(always)]
    pub fn set_destination(&mut self, address: [u8; 16]) {
        self.destination = address;
    }
}

impl<'a> View<'a, Ipv6> {
    /// Returns an iterator over the extension headers, in order.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { next: self.next_header(), rest: self.payload() }
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its number, as announced by the preceding header.
    pub number: u8,
    /// Number of the header or payload that follows.
    pub next_header: u8,
    /// The complete extension header.
    pub bytes: &'a [u8],
}

impl Extension<'_> {
    /// For a fragment header, returns the offset in bytes, whether more fragments follow, and the identification.
    pub fn fragment(&self) -> Option<(u16, bool, u32)> {
        match *self.bytes {
            [_, _, high, low, a, b, c, d] if self.number == protocol::FRAGMENT => {
                let fields = u16::from_be_bytes([high, low]);
                Some((fields & 0xfff8, fields & 1 != 0, u32::from_be_bytes([a, b, c, d])))
            }
            _ => None,
        }
    }
}

/// Iterator over extension headers; ends at the first other protocol, after the header of a later fragment, or where a header
/// is cut.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    next: u8,
    rest: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// Returns number and bytes of what follows the headers visited so far.
    pub fn upper(&self) -> (u8, &'a [u8]) {
        (self.next, self.rest)
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        let number = self.next;
        if !protocol::is_extension(number) || self.rest.is_empty() {
            return None;
        }
        let length = match (number, self.rest.get(1)?) {
            (protocol::FRAGMENT, _) => 8,
            (protocol::AH, words) => (usize::from(*words) + 2) * 4,
            (_, units) => (usize::from(*units) + 1) * 8,
        };
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        let extension = Extension { number, next_header: *bytes.first()?, bytes };
        let later = extension.fragment().is_some_and(|(offset, ..)| offset != 0);
        (self.next, self.rest) = (extension.next_header, if later { &[] } else { rest });
        Some(extension)
    }
}
