//! What few rules look at: lengths, times to live, code points, VLANs, codes of ICMP, extension headers of IPv6. They are read of a packet only if some
//! rule asks for one of them, and looked at where everything else fits already: rules that ask for none pay nothing.

use std::fmt;

use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Ipv6, View};
use braid_nf::packet::parse::protocol as number;

use crate::parts::{dscp, lengths};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// Bytes of the IP packet with its headers.
    Length,
    /// Or hop limit, with which it would leave.
    Ttl,
    Dscp,
    /// Explicit congestion notification (RFC 3168).
    Ecn,
    /// Of the outermost tag; [`UNTAGGED`] without.
    Vlan,
    /// The code of an ICMP message, whatever its type.
    IcmpCode,
    /// The header behind that of IPv6, which need not be the last one.
    NextHeader,
    /// Which extension headers there are, as [`extension_bit`]s.
    Extensions,
    /// Of the first routing header; [`UNROUTED`] without.
    RoutingType,
}

/// The values of a packet, by [`Field`].
pub(super) type Values = [u32; 9];

/// Behind the last VLAN.
pub(super) const UNTAGGED: u32 = 1 << 12;
/// Behind the last type of a routing header.
pub(super) const UNROUTED: u32 = 1 << 8;

/// The values of a packet that loses so many hops here.
#[cold]
pub(super) fn of(packet: &Packet<'_>, hops: u8) -> Values {
    let congestion = match (packet.ipv4(), packet.ipv6()) {
        (Some(ip), _) => ip.ecn(),
        (_, Some(ip)) => ip.traffic_class() & 3,
        _ => 0,
    };
    let code = packet.l4_offset().and_then(|at| packet.bytes().get(at + 1).copied());
    let (next_header, extensions, routing_type) = packet.ipv6().map_or((0, 0, UNROUTED), |ip| headers(&ip));
    [
        lengths::ip_len(packet) as u32,
        packet.ttl().unwrap_or_default().saturating_sub(hops).into(),
        dscp::of(packet).unwrap_or_default().into(),
        congestion.into(),
        packet.vlan().map_or(UNTAGGED, |tag| tag.id().into()),
        code.unwrap_or_default().into(),
        next_header,
        extensions,
        routing_type,
    ]
}

/// The header behind that of IPv6, which extension headers there are, and the type of the first routing header. One that makes a piece is
/// none of them: the kernel has put datagrams together before it asks.
fn headers(ip: &View<'_, Ipv6>) -> (u32, u32, u32) {
    let (mut next, mut extensions, mut routing_type) = (None, 0, UNROUTED);
    for header in ip.extensions() {
        if header.fragment().is_some_and(|(offset, more, _)| offset != 0 || more) {
            next.get_or_insert(header.next_header);
            continue;
        }
        next.get_or_insert(header.number);
        extensions |= extension_bit(header.number);
        if let (number::ROUTING, UNROUTED, Some(kind)) = (header.number, routing_type, header.bytes.get(2)) {
            routing_type = u32::from(*kind);
        }
    }
    (next.unwrap_or(ip.next_header()).into(), extensions, routing_type)
}

/// What stands for an extension header in [`Field::Extensions`]; 0 for one that nobody asks for.
pub(super) fn extension_bit(header: u8) -> u32 {
    let asked = [number::MOBILITY, number::FRAGMENT, number::DESTINATION_OPTIONS, number::HOP_BY_HOP, number::ROUTING];
    asked.iter().position(|known| *known == header).map_or(0, |at| 1 << at)
}

/// The values of [`Field::Extensions`] in which a bit is set, or is not.
pub(super) fn with_extension(bit: u32, is_set: bool) -> Vec<(u32, u32)> {
    let all = 1u32 << 5;
    let base = if is_set { bit } else { 0 };
    (0..all / (2 * bit)).map(|n| n * 2 * bit + base).map(|first| (first, first + bit - 1)).collect()
}

/// A condition: the field is within one of these ranges, ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Within {
    pub(super) field: Field,
    pub(super) ranges: Vec<(u32, u32)>,
}

impl Within {
    pub(super) fn fits(&self, values: &Values) -> bool {
        let value = values[self.field as usize];
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&value))
    }

    /// What a mismatch is called.
    pub(super) fn name(&self) -> &'static str {
        match self.field {
            Field::Length => "length",
            Field::Ttl => "time to live",
            Field::Dscp => "code point",
            Field::Ecn => "congestion notification",
            Field::Vlan => "VLAN",
            Field::IcmpCode => "ICMP code",
            Field::NextHeader => "next header",
            Field::Extensions => "extension headers",
            Field::RoutingType => "type of routing header",
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(first, last): &(u32, u32)| match (first, last) {
            (first, last) if first == last => first.to_string(),
            (0, last) => format!("up to {last}"),
            (first, &u32::MAX) => format!("from {first}"),
            (first, last) => format!("{first}-{last}"),
        };
        if self.field == Field::Extensions {
            return f.write_str(self.name());
        }
        let ranges: Vec<_> = self.ranges.iter().take(4).map(one).collect();
        write!(f, "{} {}", self.name(), ranges.join(", "))?;
        if self.ranges.len() > 4 { write!(f, ", … {} in all", self.ranges.len()) } else { Ok(()) }
    }
}

/// Adds a condition to others, all of which have to hold; false if nothing is left that fits.
#[must_use]
pub(super) fn narrow(all: &mut Vec<Within>, more: Within) -> bool {
    let Some(known) = all.iter_mut().find(|known| known.field == more.field) else {
        all.push(more);
        return true;
    };
    let meet = |one: &(u32, u32), other: &(u32, u32)| {
        let both = (one.0.max(other.0), one.1.min(other.1));
        (both.0 <= both.1).then_some(both)
    };
    known.ranges =
        known.ranges.iter().flat_map(|one| more.ranges.iter().filter_map(move |other| meet(one, other))).collect();
    !known.ranges.is_empty()
}

/// All numbers up to `last` that stand in none of these ranges.
pub(super) fn except(mut taken: Vec<(u32, u32)>, last: u32) -> Vec<(u32, u32)> {
    taken.sort_unstable();
    let (mut left, mut from) = (Vec::new(), 0);
    for (first, end) in taken {
        if first > from {
            left.push((from, first - 1));
        }
        let Some(behind) = end.checked_add(1) else { return left };
        from = from.max(behind);
    }
    if from <= last {
        left.push((from, last));
    }
    left
}
