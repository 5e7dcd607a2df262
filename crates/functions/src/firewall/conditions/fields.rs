//! Fields that only few rules examine: lengths, TTLs, code points, VLANs, ICMP codes, IPv6 extension headers, numbers in
//! TCP headers.
//!
//! They are read from a packet only if some rule needs them ([`rare_fields`](super::rare_fields)), and compared only where everything
//! else matches: rules without such conditions pay nothing.

use std::fmt;

use braid_nf::packet::MacAddress;

use super::clock;
use super::masked::disjoint;
use super::payload::{NO_PAYLOAD, Place, SLOTS};

/// A rarely examined field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) enum Field {
    /// Length of the IP packet with its headers, in bytes.
    Length,
    /// TTL or hop limit with which the packet would leave.
    Ttl,
    /// TTL or hop limit with which the packet has arrived.
    ArrivedTtl,
    Dscp,
    /// Explicit congestion notification (RFC 3168).
    Ecn,
    /// VLAN identifier of the outermost tag, or [`UNTAGGED`].
    Vlan,
    /// Code of an ICMP message, whatever its type.
    IcmpCode,
    /// The header that follows the IPv6 header, which need not be the last one.
    NextHeader,
    /// Set of extension headers, as bits.
    Extensions,
    /// Type of the first routing header, or [`UNROUTED`].
    RoutingType,
    /// Second of the day at which the packet arrived.
    Hour,
    /// Day of the week; 0: Sunday.
    Day,
    /// Nanoseconds since the beginning of 1970.
    Time,
    /// Ethernet source as a number, or [`NO_STATION`] if there is no Ethernet header.
    EtherSource,
    EtherDestination,
    /// Identification (IPv4).
    Identification,
    /// Header length (IPv4), in words of 32 bits.
    HeaderLength,
    /// Flags and offset (IPv4), as of a datagram that has been reassembled.
    Fragments,
    /// Checksum of the IPv4 header.
    Checksum,
    /// Set of IPv4 options, as bits.
    IpOptions,
    /// Set of TCP options: a bit for each kind below 64.
    TcpOptions,
    /// Maximum segment size option, or [`NO_SIZE`].
    SegmentSize,
    /// Length in the UDP header.
    UdpLength,
    /// Flow label (IPv6).
    FlowLabel,
    /// TCP, like the following fields up to the urgent pointer.
    Sequence,
    Acknowledgement,
    /// In words of 32 bits.
    DataOffset,
    /// The four bits that follow the data offset.
    Reserved,
    /// As in the header, not scaled.
    Window,
    Urgent,
    /// TCP flags compared as a number; otherwise they have conditions of their own.
    TcpFlags,
    /// Checksum of TCP or UDP.
    TransportChecksum,
    /// Identifier of an echo request or reply.
    QueryId,
    QuerySequence,
    /// The MTU in an ICMP message about a packet that is too long: 16 bits in ICMP, 32 in ICMPv6.
    Mtu,
    /// Gateway of an ICMP redirect, as a number.
    Gateway,
    /// Maximum response delay of an ICMPv6 group query, in milliseconds.
    Delay,
    /// Pointer of an ICMPv6 parameter problem.
    Pointer,
    /// Ports of which single bits are compared; otherwise ports are dimensions of the classifier.
    SourcePort,
    DestinationPort,
    /// For an ICMP error, the ports of the first packet of its connection, or [`NO_PORT`].
    OpenerPort,
    AskedPort,
    /// What a connection has sent so far, in both directions or in one, or [`UNCOUNTED`] if that is unknown.
    Packets,
    PacketsOriginal,
    PacketsReply,
    Bytes,
    BytesOriginal,
    BytesReply,
    Average,
    AverageOriginal,
    AverageReply,
    /// The ports by which a packet may leave, as bits.
    LeavesBy,
    /// Operation of an ARP packet, and the Ethernet addresses in it as numbers.
    ArpOperation,
    ArpSource,
    ArpTarget,
    /// Bits named by their place ([`payload`](super::payload)), or [`NO_PAYLOAD`] if the packet is too short.
    Payload0,
    Payload1,
    Payload2,
    Payload3,
    Payload4,
    Payload5,
    Payload6,
    Payload7,
}

impl Field {
    const COUNT: usize = Field::Payload7 as usize + 1;
    /// Each field has a [bit](Field::bit) in one word.
    const FEW: () = assert!(Field::COUNT <= 64);

    /// Whether its values are Ethernet addresses.
    pub(in crate::firewall) fn is_station(self) -> bool {
        matches!(self, Field::EtherSource | Field::EtherDestination | Field::ArpSource | Field::ArpTarget)
    }

    /// The field's bit.
    pub(in crate::firewall) const fn bit(self) -> u64 {
        let () = Field::FEW;
        1 << self as u32
    }
}

/// One above the largest VLAN identifier.
pub(in crate::firewall) const UNTAGGED: u64 = 1 << 12;
/// One above the largest type of a routing header.
pub(in crate::firewall) const UNROUTED: u64 = 1 << 8;

/// One above the largest Ethernet address.
pub(in crate::firewall) const NO_STATION: u64 = 1 << 48;
/// One above the largest segment size.
pub(in crate::firewall) const NO_SIZE: u64 = 1 << 16;

/// One above the largest port.
pub(in crate::firewall) const NO_PORT: u64 = 1 << 16;

/// Above all counts and times.
pub(in crate::firewall) const UNCOUNTED: u64 = u64::MAX;
/// The largest value that a field may have.
pub(in crate::firewall) const MOST: u64 = u64::MAX - 1;

/// The values of a packet's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Values([u64; Field::COUNT]);

impl Values {
    /// The values of a packet that has none of these fields.
    pub(in crate::firewall) const NONE: Values = Values([0; Field::COUNT])
        .with(Field::Vlan, UNTAGGED)
        .with(Field::RoutingType, UNROUTED)
        .with(Field::EtherSource, NO_STATION)
        .with(Field::EtherDestination, NO_STATION)
        .with(Field::ArpSource, NO_STATION)
        .with(Field::ArpTarget, NO_STATION)
        .with(Field::SegmentSize, NO_SIZE)
        .with(Field::OpenerPort, NO_PORT)
        .with(Field::AskedPort, NO_PORT)
        .with(Field::Packets, UNCOUNTED)
        .with(Field::PacketsOriginal, UNCOUNTED)
        .with(Field::PacketsReply, UNCOUNTED)
        .with(Field::Bytes, UNCOUNTED)
        .with(Field::BytesOriginal, UNCOUNTED)
        .with(Field::BytesReply, UNCOUNTED)
        .with(Field::Average, UNCOUNTED)
        .with(Field::AverageOriginal, UNCOUNTED)
        .with(Field::AverageReply, UNCOUNTED)
        .with(Field::Payload0, NO_PAYLOAD)
        .with(Field::Payload1, NO_PAYLOAD)
        .with(Field::Payload2, NO_PAYLOAD)
        .with(Field::Payload3, NO_PAYLOAD)
        .with(Field::Payload4, NO_PAYLOAD)
        .with(Field::Payload5, NO_PAYLOAD)
        .with(Field::Payload6, NO_PAYLOAD)
        .with(Field::Payload7, NO_PAYLOAD);

    pub(in crate::firewall) const fn with(mut self, field: Field, value: u64) -> Values {
        self.0[field as usize] = value;
        self
    }

    pub(in crate::firewall) fn set(&mut self, field: Field, value: impl Into<u64>) {
        self.0[field as usize] = value.into();
    }

    pub(in crate::firewall) fn of(&self, field: Field) -> u64 {
        self.0[field as usize]
    }
}

/// A condition: the field, masked and with some bits inverted, is in one of these ranges, ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) struct Within {
    pub(in crate::firewall) field: Field,
    pub(in crate::firewall) mask: u64,
    pub(in crate::firewall) turned: u64,
    pub(in crate::firewall) ranges: Vec<(u64, u64)>,
    /// The place of its bits, if they are named by place.
    pub(in crate::firewall) place: Option<Place>,
}

impl Within {
    /// A condition on the whole field.
    pub(in crate::firewall) fn new(field: Field, ranges: Vec<(u64, u64)>) -> Within {
        Within::under(field, u64::MAX, ranges)
    }

    /// A condition on the masked field. Ranges are kept sorted and disjoint, for fast look-up.
    pub(in crate::firewall) fn under(field: Field, mask: u64, ranges: Vec<(u64, u64)>) -> Within {
        Within { field, mask, turned: 0, ranges: disjoint(ranges), place: None }
    }

    /// The same condition with these bits inverted after masking.
    pub(in crate::firewall) fn turned(self, turned: u64) -> Within {
        Within { turned, ..self }
    }

    /// A condition that a bit of the field is set, or is not.
    pub(in crate::firewall) fn bit(field: Field, bit: u64, is_set: bool) -> Within {
        let wanted = if is_set { bit } else { 0 };
        Within::under(field, bit, vec![(wanted, wanted)])
    }

    pub(in crate::firewall) fn fits(&self, values: &Values) -> bool {
        self.holds(values.of(self.field))
    }

    /// Whether the condition holds for a value of the field.
    pub(in crate::firewall) fn holds(&self, value: u64) -> bool {
        let value = value & self.mask ^ self.turned;
        let at = self.ranges.partition_point(|(_, last)| *last < value);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= value)
    }

    /// The name of the condition in reports.
    pub(in crate::firewall) fn name(&self) -> &'static str {
        match self.field {
            Field::Length => "length",
            Field::Ttl => "time to live",
            Field::ArrivedTtl => "time to live on arrival",
            Field::Dscp => "code point",
            Field::Ecn => "congestion notification",
            Field::Vlan => "VLAN",
            Field::IcmpCode => "ICMP code",
            Field::NextHeader => "next header",
            Field::Extensions => "extension headers",
            Field::RoutingType => "type of routing header",
            Field::Hour => "hour",
            Field::Day => "day",
            Field::Time => "time",
            Field::EtherSource => "Ethernet source",
            Field::EtherDestination => "Ethernet destination",
            Field::Identification => "identification",
            Field::HeaderLength => "length of the IP header",
            Field::Fragments => "fragment flags",
            Field::Checksum => "checksum of the IP header",
            Field::IpOptions => "IP options",
            Field::TcpOptions => "TCP options",
            Field::SegmentSize => "size of segments",
            Field::UdpLength => "length of the datagram",
            Field::FlowLabel => "flow label",
            Field::Sequence => "sequence number",
            Field::Acknowledgement => "acknowledgement number",
            Field::DataOffset => "length of the TCP header",
            Field::Reserved => "reserved bits of TCP",
            Field::Window => "window",
            Field::Urgent => "urgent pointer",
            Field::TcpFlags => "TCP flags as a number",
            Field::TransportChecksum => "checksum of TCP or UDP",
            Field::QueryId => "identifier of the query",
            Field::QuerySequence => "sequence number of the query",
            Field::Mtu => "MTU that is told",
            Field::Gateway => "gateway that is told",
            Field::Delay => "delay that is told",
            Field::Pointer => "place of the problem",
            Field::SourcePort => "source port",
            Field::DestinationPort => "destination port",
            Field::OpenerPort => "source port of the connection",
            Field::AskedPort => "destination port of the connection",
            Field::Packets => "packets of the connection",
            Field::PacketsOriginal => "packets of who opened the connection",
            Field::PacketsReply => "packets of who was asked",
            Field::Bytes => "bytes of the connection",
            Field::BytesOriginal => "bytes of who opened the connection",
            Field::BytesReply => "bytes of who was asked",
            Field::Average => "bytes a packet of the connection",
            Field::AverageOriginal => "bytes a packet of who opened the connection",
            Field::AverageReply => "bytes a packet of who was asked",
            Field::LeavesBy => "port by which it leaves",
            Field::ArpOperation => "ARP operation",
            Field::ArpSource => "Ethernet address of the ARP sender",
            Field::ArpTarget => "Ethernet address of the ARP target",
            Field::Payload0
            | Field::Payload1
            | Field::Payload2
            | Field::Payload3
            | Field::Payload4
            | Field::Payload5
            | Field::Payload6
            | Field::Payload7 => "bits",
        }
    }

    /// The mask as text, if there is one, without the bit for absent values.
    fn written_mask(&self) -> String {
        match self.field {
            _ if self.mask == u64::MAX => String::new(),
            field if field.is_station() => format!(" & {}", self.written(self.mask & !NO_STATION)),
            Field::Vlan => format!(" & {:#x}", self.mask & !UNTAGGED),
            field if SLOTS.contains(&field) => format!(" & {:#x}", self.mask & !NO_PAYLOAD),
            _ => format!(" & {:#x}", self.mask),
        }
    }

    /// The inverted bits as text.
    fn written_turned(&self) -> String {
        if self.turned == 0 { String::new() } else { format!(" ^ {:#x}", self.turned) }
    }

    /// A value as text.
    fn written(&self, value: u64) -> String {
        match self.field {
            Field::Hour => clock::shown(value),
            Field::Day => clock::DAYS.get(value as usize).map_or_else(|| value.to_string(), ToString::to_string),
            Field::Time => clock::written(value),
            field if field.is_station() => {
                let bytes = value.to_be_bytes();
                MacAddress([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]).to_string()
            }
            _ => value.to_string(),
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(first, last): &(u64, u64)| match (*first, *last) {
            (first, last) if first == last => self.written(first),
            (0, last) => format!("up to {}", self.written(last)),
            (first, MOST..) => format!("from {}", self.written(first)),
            (first, last) => format!("{}-{}", self.written(first), self.written(last)),
        };
        if matches!(self.field, Field::Extensions | Field::IpOptions | Field::TcpOptions) {
            return f.write_str(self.name());
        }
        if self.field == Field::LeavesBy {
            // The value is the set of output ports under `mask`. Zero means none of these (`oif != 1` has the mask of port 1 and
            // names all others); any other value means that one of them is among the ports.
            let ports = if self.ranges == [(0, 0)] { !self.mask } else { self.mask };
            let ports: Vec<_> =
                (0..64).filter(|port| ports >> port & 1 != 0).map(|port: u32| port.to_string()).collect();
            return write!(f, "{} {}", self.name(), ports.join(", "));
        }
        let ranges: Vec<_> = self.ranges.iter().take(4).map(one).collect();
        let place = self.place.map_or_else(String::new, |place| format!(" {place}"));
        write!(f, "{}{place}{}{} {}", self.name(), self.written_mask(), self.written_turned(), ranges.join(", "))?;
        if self.ranges.len() > 4 { write!(f, ", … {} in all", self.ranges.len()) } else { Ok(()) }
    }
}

/// Adds a condition to a conjunction; false if nothing can match it any more.
#[must_use]
pub(in crate::firewall) fn narrow(all: &mut Vec<Within>, more: Within) -> bool {
    let is_like = |known: &&mut Within| (known.field, known.mask, known.turned) == (more.field, more.mask, more.turned);
    let Some(known) = all.iter_mut().find(is_like) else {
        all.push(more);
        return true;
    };
    let meet = |one: &(u64, u64), other: &(u64, u64)| {
        let both = (one.0.max(other.0), one.1.min(other.1));
        (both.0 <= both.1).then_some(both)
    };
    known.ranges =
        known.ranges.iter().flat_map(|one| more.ranges.iter().filter_map(move |other| meet(one, other))).collect();
    !known.ranges.is_empty()
}

/// All numbers up to `last` that are in none of these ranges.
pub(in crate::firewall) fn except(mut taken: Vec<(u64, u64)>, last: u64) -> Vec<(u64, u64)> {
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
