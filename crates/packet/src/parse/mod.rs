//! Parser: from a frame's first byte to its outermost IP header and what follows it.
//!
//! It skips 802.1Q, 802.1ad and 0x9100 tags, LLC/SNAP, an MPLS label stack (with an Ethernet pseudowire) and a PPPoE session.
//! It does not enter tunnels over IP: only the outermost IP header counts. A frame whose IP header (with all IPv6 extension
//! headers) is incomplete is not treated as IP: it gets [`Flags::SHORT`] and belongs to no flow.
//!
//! Invariant: if [`Flags::IP`] is set, the fixed IP header lies inside the frame. The transport header need not: a frame may
//! be cut after the IP header or state wrong option lengths, so readers of the transport header must check.

use crate::headers::ether_type;
use crate::record::{Flags, Link};

mod link;

use link::network_header;
pub(crate) use link::{LinkFields, is_tag};

/// Smaller values of the two bytes are a length, others an Ethernet type (IEEE 802.3).
pub(crate) const ETHER_TYPE_MIN: u16 = 0x0600;

/// IP protocol numbers that the parser and the header types know.
pub mod protocol {
    #![allow(missing_docs)]
    pub const HOP_BY_HOP: u8 = 0;
    pub const ICMP: u8 = 1;
    pub const TCP: u8 = 6;
    pub const UDP: u8 = 17;
    pub const DCCP: u8 = 33;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const GRE: u8 = 47;
    pub const AH: u8 = 51;
    pub const ICMPV6: u8 = 58;
    pub const DESTINATION_OPTIONS: u8 = 60;
    pub const SCTP: u8 = 132;
    pub const MOBILITY: u8 = 135;
    pub const UDP_LITE: u8 = 136;
    pub const HIP: u8 = 139;
    pub const SHIM6: u8 = 140;

    /// Returns whether this is an IPv6 extension header that the parser skips.
    #[inline(always)]
    pub const fn is_extension(number: u8) -> bool {
        matches!(number, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6)
    }

    /// Returns the usual name of a common protocol.
    pub fn name(number: u8) -> Option<&'static str> {
        Some(match number {
            ICMP => "icmp",
            TCP => "tcp",
            UDP => "udp",
            GRE => "gre",
            50 => "esp",
            AH => "ah",
            ICMPV6 => "icmpv6",
            SCTP => "sctp",
            _ => return None,
        })
    }

    /// Returns whether the protocol's header begins with two ports that belong to a flow's key.
    #[inline(always)]
    pub const fn has_ports(number: u8) -> bool {
        matches!(number, TCP | UDP | SCTP)
    }
}

/// Results of the parser, with the same meaning as the fields of [`Record`](crate::Record).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Offset of the IP header.
    pub l3: u8,
    /// Distance from the IP header to what follows it in bytes, divided by four; 0 if it exceeds 1020 bytes.
    pub l4: u8,
    /// IP protocol number of what follows.
    pub proto: u8,
    /// Link type and what was found.
    pub flags: Flags,
}

impl Parsed {
    #[inline(always)]
    fn none(link: Link, bits: u8) -> Parsed {
        Parsed { l3: 0, l4: 0, proto: 0, flags: Flags::new(link, bits) }
    }
}

/// Finds the headers of a frame.
#[inline(always)]
pub fn parse(frame: &[u8], link: Link) -> Parsed {
    let common = frame.first_chunk().and_then(|head| parse_common(head, frame.len(), link));
    common.map_or_else(|| parse_any(frame, link), Parsed::from)
}

/// Number of bytes that the fast path reads: a tagged Ethernet header and an IPv6 header.
pub(crate) const COMMON: usize = 58;

/// A [`Parsed`] as the integer that its four bytes form in memory, as computed by the fast path.
#[derive(Clone, Copy)]
pub(crate) struct Word(pub(crate) u32);

impl Word {
    #[inline(always)]
    fn new(l3: usize, l4: u8, proto: u8, bits: u8) -> Word {
        Word(u32::from_le_bytes([l3 as u8, l4, 0, bits]) | u32::from(proto) << 16)
    }
}

impl From<Word> for Parsed {
    #[inline(always)]
    fn from(Word(word): Word) -> Parsed {
        let [l3, l4, proto, flags] = word.to_le_bytes();
        Parsed { l3, l4, proto, flags: Flags(flags) }
    }
}

/// Fast path for the most common frames: Ethernet with at most one tag, and IPv4 without options or IPv6 without extension
/// headers. `head` may extend beyond the frame, which has `len` bytes.
#[inline(always)]
pub(crate) fn parse_common(head: &[u8; COMMON], len: usize, link: Link) -> Option<Word> {
    if link != Link::Ethernet {
        return None;
    }
    parse_plainest(head, len).or_else(|| parse_tagged(head, len))
}

/// First half of [`parse_common`], for untagged frames.
#[inline(always)]
pub(crate) fn parse_plainest(head: &[u8; COMMON], len: usize) -> Option<Word> {
    parse_plain::<14>(head, len).or_else(|| parse_v6::<14>(head, len))
}

/// Second half of [`parse_common`], for frames with one tag.
#[inline(always)]
pub(crate) fn parse_tagged(head: &[u8; COMMON], len: usize) -> Option<Word> {
    if !is_tag(u16::from_be_bytes([head[12], head[13]])) {
        return None;
    }
    parse_plain::<18>(head, len).or_else(|| parse_v6::<18>(head, len))
}

/// Length in bytes of the shortest IPv4 packet that has ports.
pub(crate) const PLAIN_TOTAL: usize = 24;

/// Parses an IPv4 header at `L3`, with the Ethernet type in front of it, if the packet has no options, is whole and
/// unfragmented, and is long enough for ports.
#[inline(always)]
pub(crate) fn parse_plain<const L3: usize>(head: &[u8; COMMON], len: usize) -> Option<Word> {
    // `lead`: type, version, length, service, total length. `rest`: two bytes later, fragment, hops, protocol.
    let (lead, rest) = (u64_at(head, L3 - 2), u64_at(head, L3 + 6));
    let total = usize::from(((lead >> 32) as u16).swap_bytes());
    const LEAD: u32 = 0x45 << 16 | ether_type::IPV4.swap_bytes() as u32;
    const FRAGMENT: u16 = 0x3fff_u16.swap_bytes();
    // If the total length fits the frame, the header does too.
    if lead as u32 & 0x00ff_ffff != LEAD || rest as u16 & FRAGMENT != 0 || total < PLAIN_TOTAL || L3 + total > len {
        return None;
    }
    Some(Word::new(L3, 5, (rest >> 24) as u8, Flags::IP))
}

/// Parses an IPv6 header at `L3` if it has no extension headers and the packet is whole.
#[inline(always)]
fn parse_v6<const L3: usize>(head: &[u8; COMMON], len: usize) -> Option<Word> {
    // `lead`: type, version. `rest`: length, next header.
    let (lead, rest) = (u64_at(head, L3 - 2), u64_at(head, L3 + 4));
    let (proto, end) = ((rest >> 16) as u8, L3 + 40 + usize::from((rest as u16).swap_bytes()));
    const LEAD: u32 = 0x60 << 16 | ether_type::IPV6.swap_bytes() as u32;
    if lead as u32 & 0x00f0_ffff != LEAD || protocol::is_extension(proto) || end > len {
        return None;
    }
    Some(Word::new(L3, 10, proto, Flags::IP | Flags::V6))
}

/// Loads eight bytes, the first one lowest.
#[inline(always)]
fn u64_at(head: &[u8; COMMON], at: usize) -> u64 {
    head[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Parses an IPv4 header whose length field must be valid: at least five words.
#[inline]
fn ipv4(fixed: &[u8; 20], l3: u8, frame_len: usize, link: Link) -> Parsed {
    let words = fixed[0] & 15;
    let header = usize::from(words) * 4;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let mut bits = Flags::IP;
    if total < header || usize::from(l3) + total > frame_len {
        bits |= Flags::SHORT;
    }
    // The more-fragments bit and the offset; the reserved bit and don't-fragment do not indicate a fragment (RFC 791 section 3.1).
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
    if fragment != 0 {
        bits |= Flags::FRAGMENT;
        if fragment & 0x1fff != 0 {
            bits |= Flags::LATER_FRAGMENT;
        }
    }
    Parsed { l3, l4: words, proto: fixed[9], flags: Flags::new(link, bits) }
}

#[cold]
#[inline(never)]
pub(crate) fn parse_any(frame: &[u8], link: Link) -> Parsed {
    match network_header(frame, link) {
        None => Parsed::none(link, Flags::SHORT),
        Some((ether_type::IPV4, at)) => parse_ipv4(frame, at, link),
        Some((ether_type::IPV6, at)) => parse_ipv6(frame, at, link),
        Some(_) => Parsed::none(link, 0),
    }
}

fn parse_ipv4(frame: &[u8], at: usize, link: Link) -> Parsed {
    let Ok(l3) = u8::try_from(at) else { return Parsed::none(link, 0) };
    match frame.get(at..).map(|rest| rest.first_chunk::<20>()) {
        Some(Some(fixed)) if fixed[0] >> 4 == 4 && fixed[0] & 15 >= 5 => ipv4(fixed, l3, frame.len(), link),
        Some(Some(_)) => Parsed::none(link, 0),
        _ => Parsed::none(link, Flags::SHORT),
    }
}

fn parse_ipv6(frame: &[u8], at: usize, link: Link) -> Parsed {
    let Ok(l3) = u8::try_from(at) else { return Parsed::none(link, 0) };
    let Some(fixed) = frame.get(at..).and_then(|rest| rest.first_chunk::<40>()) else {
        return Parsed::none(link, Flags::SHORT);
    };
    if fixed[0] >> 4 != 6 {
        return Parsed::none(link, 0);
    }
    let Some(walk) = walk_extensions(&frame[at..], fixed[6]) else { return Parsed::none(link, Flags::SHORT) };
    let end = at + 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let short = if end > frame.len() || at + walk.end > end { Flags::SHORT } else { 0 };
    let flags = Flags::new(link, Flags::IP | Flags::V6 | walk.bits | short);
    Parsed { l3, l4: walk.words, proto: walk.proto, flags }
}

/// Result of walking a chain of IPv6 extension headers.
pub(crate) struct Walk {
    /// End of the chain, in bytes from the fixed header.
    pub(crate) end: usize,
    /// End of the chain in words of four bytes; 0 if it is too far away.
    pub(crate) words: u8,
    pub(crate) proto: u8,
    pub(crate) bits: u8,
}

/// Walks the extension headers of a packet that begins with a complete fixed header. Returns `None` if the chain is cut.
///
/// Authentication headers state their length in words of four bytes (RFC 4302 section 2.2), all others in units of eight
/// bytes (RFC 8200 section 4).
pub(crate) fn walk_extensions(packet: &[u8], first: u8) -> Option<Walk> {
    // The offset and the more-fragments bit of a fragment header (RFC 8200 section 4.5).
    const OFFSET: u16 = 0xfff8;
    const MORE: u16 = 1;
    let (mut at, mut proto, mut bits) = (40usize, first, 0);
    while protocol::is_extension(proto) && at <= 1020 {
        let next = *packet.get(at)?;
        let length = usize::from(*packet.get(at + 1)?);
        if proto == protocol::FRAGMENT {
            let field = u16::from_be_bytes([*packet.get(at + 2)?, *packet.get(at + 3)?]);
            at += 8;
            proto = next;
            if field & OFFSET != 0 {
                bits |= Flags::FRAGMENT | Flags::LATER_FRAGMENT;
                break;
            }
            // Without more to come it is a whole datagram (an "atomic fragment"), which has nothing to do with any other packet of its
            // identification (RFC 6946 section 4).
            if field & MORE != 0 {
                bits |= Flags::FRAGMENT;
            }
            continue;
        }
        at += if proto == protocol::AH { (length + 2) * 4 } else { (length + 1) * 8 };
        proto = next;
    }
    Some(Walk { end: at, words: u8::try_from(at / 4).unwrap_or(0), proto, bits })
}

#[inline(always)]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()).map(|pair| u16::from_be_bytes(*pair))
}

#[cfg(test)]
mod tests;
