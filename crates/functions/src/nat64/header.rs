//! Translates IP headers from one version to the other (RFC 7915 sections 4.1 and 5.1).
//!
//! Works on bytes instead of packets, because the header may be that of a packet, of a fragment that has waited, or of a
//! packet that an ICMP error quotes.

use braid_nf::packet::headers::{Header, Ipv4, Ipv6};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, checksum};
use braid_nf::state::hash;

/// Length of an IPv4 header without options, in bytes.
pub(super) const IPV4_LEN: usize = Ipv4::LEN;
/// Length of the fragment header, in bytes.
pub(super) const FRAGMENT_LEN: usize = 8;
/// How much longer an IPv6 packet is than the same packet over IPv4, in bytes.
pub(super) const GROWTH: usize = Ipv6::LEN - Ipv4::LEN;
/// The longest IPv4 packet that later routers may still fragment: the smallest IPv6 packet that every link carries,
/// translated.
const CUT_MAX: usize = 1280 - GROWTH;

/// Why a header has no counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untranslatable {
    /// It is inconsistent or truncated.
    Malformed,
    /// It has a source route that is not finished; for IPv6, with the offset of the number of segments left.
    SourceRoute(u32),
    /// It has an authentication header, or extension headers after a fragment header.
    Extension,
}

/// An IP header, including its fragment header, that replaces another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewHeader {
    bytes: [u8; Ipv6::LEN + FRAGMENT_LEN],
    len: usize,
    /// Length of the old header with its extension headers and options.
    pub(super) replaces: usize,
    /// Length of what follows the header, as it declares.
    pub(super) carried: usize,
    /// Whether the packet must not be fragmented on its path, so that its sender has to be told instead.
    pub(super) whole: bool,
}

/// The second octet of IPv4 headers and the traffic class of IPv6, if not what the old header has, since they mean something only within one
/// domain (RFC 7915 sections 4.1 and 5.1).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Classes {
    pub(super) v4: Option<u8>,
    pub(super) v6: Option<u8>,
}

impl NewHeader {
    /// The same with the class that is written in its version.
    pub(super) fn classed(mut self, classes: Classes) -> NewHeader {
        match (self.len == IPV4_LEN, classes.v4, classes.v6) {
            (true, Some(tos), _) => {
                self.bytes[1] = tos;
                self.bytes[10..12].fill(0);
                let sum = checksum::ipv4_header(&self.bytes[..IPV4_LEN]);
                self.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            (false, _, Some(class)) => {
                self.bytes[0] = 6 << 4 | class >> 4;
                self.bytes[1] = class << 4 | self.bytes[1] & 15;
            }
            _ => {}
        }
        self
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Length of the packet with this header.
    pub(super) fn packet_len(&self) -> usize {
        self.len + self.carried
    }
}

/// Translates from IPv6 to IPv4, decrementing the TTL by `hops`.
pub(super) fn to_v4(ip: &[u8], ends: ([u8; 4], [u8; 4]), hops: u8, now: u64) -> Result<NewHeader, Untranslatable> {
    let old = Ipv6::parse(ip).ok_or(Untranslatable::Malformed)?;
    let (mut replaces, mut fragment) = (Ipv6::LEN, None);
    let mut extensions = old.extensions();
    for extension in &mut extensions {
        match extension.number {
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS if fragment.is_none() => {}
            protocol::ROUTING if fragment.is_none() => {
                // Segments left.
                if extension.bytes.get(3).is_none_or(|left| *left != 0) {
                    return Err(Untranslatable::SourceRoute(replaces as u32 + 3));
                }
            }
            protocol::FRAGMENT if fragment.is_none() => fragment = extension.fragment(),
            _ => return Err(Untranslatable::Extension),
        }
        replaces += extension.bytes.len();
    }
    let number = match extensions.upper().0 {
        protocol::ICMPV6 => protocol::ICMP,
        number if protocol::is_extension(number) => return Err(Untranslatable::Extension),
        number => number,
    };
    let carried = (Ipv6::LEN + usize::from(old.payload_len())).checked_sub(replaces);
    let begins = fragment.map_or(0, |(offset, ..)| usize::from(offset));
    let carried = carried.filter(|carried| begins + carried <= usize::from(u16::MAX) - Ipv4::LEN);
    let carried = carried.ok_or(Untranslatable::Malformed)?;

    let mut new = Ipv4::new(number, carried as u16);
    new.set_tos(old.traffic_class());
    new.set_ttl(old.hop_limit().saturating_sub(hops));
    new.set_source(ends.0);
    new.set_destination(ends.1);
    let whole = fragment.is_none() && Ipv4::LEN + carried > CUT_MAX;
    match fragment {
        Some((offset, more, identification)) => {
            new.set_identification(identification as u16);
            new.set_fragment(false, more, offset);
        }
        None if whole => new.set_fragment(true, false, 0),
        // Routers may fragment it, so it needs an identification that its neighbours do not share (RFC 6864 section 4).
        None => {
            let begin = ip.get(..ip.len().min(replaces + 20)).unwrap_or_default();
            new.set_identification(hash::mixed(begin, now) as u16);
        }
    }
    let mut bytes = [0; Ipv6::LEN + FRAGMENT_LEN];
    new.emit(&mut bytes);
    new.set_checksum(checksum::ipv4_header(&bytes[..Ipv4::LEN]));
    new.emit(&mut bytes);
    Ok(NewHeader { bytes, len: Ipv4::LEN, replaces, carried, whole })
}

/// Like [`to_v6`], for a packet as it arrived, which is to go on: in IPv6 nothing would show that its header is damaged, so that is verified
/// (RFC 1812 section 5.2.2).
pub(super) fn arrived_to_v6(
    ip: &[u8],
    ends: (IpAddress, IpAddress),
    cut_above: usize,
) -> Result<NewHeader, Untranslatable> {
    let len = ip.first().map_or(0, |first| usize::from(first & 15) * 4);
    match ip.get(..len) {
        Some(header) if checksum::ipv4_header_ok(header) => to_v6(ip, ends, 1, cut_above),
        _ => Err(Untranslatable::Malformed),
    }
}

/// Translates from IPv4 to IPv6, decrementing the hop limit by `hops`. A packet that may be fragmented and would be
/// longer than `cut_above` gets a fragment header, ready to be split.
pub(super) fn to_v6(
    ip: &[u8],
    ends: (IpAddress, IpAddress),
    hops: u8,
    cut_above: usize,
) -> Result<NewHeader, Untranslatable> {
    let old = Ipv4::parse(ip).ok_or(Untranslatable::Malformed)?;
    if old.options().any(|option| is_unfinished_route(option.kind, option.data)) {
        return Err(Untranslatable::SourceRoute(0));
    }
    let replaces = old.header_len();
    let carried = usize::from(old.total_len()).checked_sub(replaces).ok_or(Untranslatable::Malformed)?;
    let number = if old.protocol() == protocol::ICMP { protocol::ICMPV6 } else { old.protocol() };
    let is_cut = !old.dont_fragment() && Ipv6::LEN + carried > cut_above;
    let has_fragment = old.is_fragment() || is_cut;
    let extra = if has_fragment { FRAGMENT_LEN } else { 0 };
    // The offset of a piece that is cut off its end must not wrap: a host would take it for a datagram of its own.
    let begins = usize::from(old.fragment_offset());
    if begins + carried > usize::from(u16::MAX) || carried + extra > usize::from(u16::MAX) {
        return Err(Untranslatable::Malformed);
    }

    let next = if has_fragment { protocol::FRAGMENT } else { number };
    let mut new = Ipv6::new(next, (carried + extra) as u16);
    new.set_traffic_class(old.dscp() << 2 | old.ecn());
    new.set_hop_limit(old.ttl().saturating_sub(hops));
    new.set_source(ends.0.octets());
    new.set_destination(ends.1.octets());
    let mut bytes = [0; Ipv6::LEN + FRAGMENT_LEN];
    new.emit(&mut bytes);
    let fragment = fragment_header(number, old.fragment_offset(), old.more_fragments(), old.identification());
    bytes[Ipv6::LEN..].copy_from_slice(&fragment);
    Ok(NewHeader { bytes, len: Ipv6::LEN + extra, replaces, carried, whole: old.dont_fragment() })
}

/// An IPv6 fragment header (RFC 8200 section 4.5); the offset is in bytes.
pub(super) fn fragment_header(number: u8, offset: u16, more: bool, identification: u16) -> [u8; FRAGMENT_LEN] {
    let [a, b] = (offset & 0xfff8 | u16::from(more)).to_be_bytes();
    let [c, d] = identification.to_be_bytes();
    [number, 0, a, b, 0, 0, c, d]
}

/// Whether an IPv4 option is a loose or strict source route that is not finished (RFC 791 section 3.1): its pointer,
/// which counts from the option's first byte, is not beyond its end.
fn is_unfinished_route(kind: u8, data: &[u8]) -> bool {
    matches!(kind, 131 | 137) && data.first().is_none_or(|pointer| usize::from(*pointer) <= data.len() + 2)
}
