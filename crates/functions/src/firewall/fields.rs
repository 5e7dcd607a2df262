//! What few rules look at: lengths, times to live, code points, VLANs, codes of ICMP, the header behind that of IPv6. They are read of a packet only if some
//! rule asks for one of them, and looked at where everything else fits already: rules that ask for none pay nothing.

use std::fmt;

use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Ipv6, View};

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
}

/// The values of a packet, by [`Field`].
pub(super) type Values = [u32; 7];

/// Behind the last VLAN.
pub(super) const UNTAGGED: u32 = 1 << 12;

/// The values of a packet that loses so many hops here.
#[cold]
pub(super) fn of(packet: &Packet<'_>, hops: u8) -> Values {
    let congestion = match (packet.ipv4(), packet.ipv6()) {
        (Some(ip), _) => ip.ecn(),
        (_, Some(ip)) => ip.traffic_class() & 3,
        _ => 0,
    };
    let code = packet.l4_offset().and_then(|at| packet.bytes().get(at + 1).copied());
    [
        lengths::ip_len(packet) as u32,
        packet.ttl().unwrap_or_default().saturating_sub(hops).into(),
        dscp::of(packet).unwrap_or_default().into(),
        congestion.into(),
        packet.vlan().map_or(UNTAGGED, |tag| tag.id().into()),
        code.unwrap_or_default().into(),
        packet.ipv6().map_or(0, |ip| next_header(&ip).into()),
    ]
}

/// Of a piece it is what stands behind the header that makes it one: the kernel has put datagrams together before it asks.
fn next_header(ip: &View<'_, Ipv6>) -> u8 {
    match ip.extensions().next() {
        Some(first) if first.fragment().is_some_and(|(offset, more, _)| offset != 0 || more) => first.next_header,
        _ => ip.next_header(),
    }
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
