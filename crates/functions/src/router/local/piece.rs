//! A fragment as read from a packet, divided into the chunks in which its bytes are stored.

use braid_nf::Packet;
use braid_nf::packet::headers::{Header, Ipv6};

use crate::parts::answers::answer::datagram;
use crate::router::objections::ip_len;

/// Bytes of a chunk.
pub const CHUNK: usize = 1024;
/// The unit of fragment offsets, and of the length of all fragments but the last, in bytes (RFC 791 section 3.2, RFC 8200
/// section 4.5).
const UNIT: usize = 8;
/// The longest datagram, in bytes.
const LONGEST: usize = 65535;

/// A fragment.
pub struct Piece<'p> {
    /// The IPv4 header, or the IPv6 fixed header.
    pub header: &'p [u8],
    /// The protocol of its payload, which matters for the first fragment.
    pub next: u8,
    /// Its offset in the datagram, in bytes.
    pub offset: usize,
    /// Whether more of the datagram follows.
    pub more: bool,
    pub bytes: &'p [u8],
    /// Bytes of the IPv6 headers before the fragment header.
    extensions: usize,
}

impl<'p> Piece<'p> {
    /// Reads a fragment from a packet that is complete.
    pub fn read(packet: &'p Packet<'_>) -> Option<Piece<'p>> {
        let ip = datagram(packet).filter(|ip| ip.len() == ip_len(packet))?;
        if let Some(v4) = packet.ipv4() {
            let (header, bytes) = ip.split_at_checked(v4.header_len())?;
            let (offset, more) = (v4.fragment_offset().into(), v4.more_fragments());
            return Some(Piece { header, next: v4.protocol(), offset, more, bytes, extensions: 0 });
        }
        let mut at = Ipv6::LEN;
        for extension in packet.ipv6()?.extensions() {
            at += extension.bytes.len();
            if let Some((offset, more, _)) = extension.fragment() {
                let (header, next, extensions) = (&ip[..Ipv6::LEN], extension.next_header, at - Ipv6::LEN - 8);
                return Some(Piece { header, next, offset: offset.into(), more, bytes: ip.get(at..)?, extensions });
            }
        }
        None
    }

    pub fn is_v6(&self) -> bool {
        self.header[0] >> 4 == 6
    }

    pub fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    /// If the fragment is malformed, the offset of the wrong field: the length, or the fragment's offset.
    pub fn is_wrong(&self) -> Option<u32> {
        const LENGTH: u32 = 4;
        if self.bytes.is_empty() || self.more && !self.bytes.len().is_multiple_of(UNIT) {
            return Some(LENGTH);
        }
        // For IPv6 the fixed header does not count.
        let before = if self.is_v6() { self.extensions } else { self.header.len() };
        let place = Ipv6::LEN + self.extensions + 2;
        (before + self.end() > LONGEST).then_some(place as u32)
    }

    /// Its bytes, divided by chunk.
    pub fn parts(&self) -> impl Iterator<Item = PartOf<'p>> + use<'p> {
        let (mut at, mut rest) = (self.offset, self.bytes);
        std::iter::from_fn(move || {
            let (bytes, behind) = rest.split_at(rest.len().min(CHUNK - at % CHUNK));
            let part = PartOf { number: (at / CHUNK) as u32, at: at % CHUNK, bytes };
            (at, rest) = (at + bytes.len(), behind);
            (!bytes.is_empty()).then_some(part)
        })
    }
}

/// The part of a fragment that lies in one chunk.
pub struct PartOf<'p> {
    pub number: u32,
    pub at: usize,
    pub bytes: &'p [u8],
}

impl PartOf<'_> {
    /// A bit for each of its units.
    pub fn units(&self) -> u128 {
        let (first, count) = (self.at / UNIT, self.bytes.len().div_ceil(UNIT));
        (u128::MAX >> (128 - count)) << first
    }
}
