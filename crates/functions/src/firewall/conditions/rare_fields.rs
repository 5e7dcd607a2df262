//! Reads rarely examined fields ([`fields`](super::fields)) of a packet, as far as some rule needs them.

use braid_nf::packet::headers::{Header, Ipv6, Tcp, View};
use braid_nf::packet::parse::protocol as number;
use braid_nf::packet::{MacAddress, Packet};

use super::clock::{Moment, UtcOffset};
use super::facts::Context;
use super::fields::{Field, UNROUTED, Values};
use super::payload::{NO_PAYLOAD, Places, SLOTS, places};
use crate::firewall::connection::states;
use crate::firewall::effects::dynamic_sets::Part;
use crate::firewall::rule_file::{Note, Ports};
use crate::firewall::rules::{Direction, Rule};
use crate::parts::Side;
use crate::parts::headers::{dscp, lengths};

/// What the rules examine.
#[derive(Clone, Copy, Debug)]
pub(in crate::firewall) struct Looks {
    /// How many hops the firewall subtracts from the TTL.
    hops: u8,
    /// The time zone in which rules are written.
    zone: UtcOffset,
    /// The [bits](Field::bit) of the fields.
    asked: u64,
    /// Bits that rules name by their place.
    places: Places,
}

/// Fields of the IPv6 header and its extension headers.
const EXTENSIONS: u64 = Field::NextHeader.bit() | Field::Extensions.bit() | Field::RoutingType.bit();
/// Fields of the IPv4 header.
const V4: u64 = Field::Identification.bit()
    | Field::HeaderLength.bit()
    | Field::Fragments.bit()
    | Field::Checksum.bit()
    | Field::IpOptions.bit();
const STATIONS: u64 = Field::EtherSource.bit() | Field::EtherDestination.bit();
const ARP: u64 = Field::ArpOperation.bit() | Field::ArpSource.bit() | Field::ArpTarget.bit();
const SEGMENTS: u64 = Field::TcpOptions.bit() | Field::SegmentSize.bit();
const TCP: u64 = Field::Sequence.bit()
    | Field::Acknowledgement.bit()
    | Field::DataOffset.bit()
    | Field::Reserved.bit()
    | Field::Window.bit()
    | Field::Urgent.bit()
    | Field::TcpFlags.bit();
/// Fields after the checksum of an ICMP message.
const MESSAGES: u64 = Field::QueryId.bit()
    | Field::QuerySequence.bit()
    | Field::Mtu.bit()
    | Field::Gateway.bit()
    | Field::Delay.bit()
    | Field::Pointer.bit();
const PORTS: u64 = Field::SourcePort.bit() | Field::DestinationPort.bit();
/// Fields for bits named by their place.
const PLACES: u64 = {
    let (mut bits, mut slot) = (0, 0);
    while slot < SLOTS.len() {
        bits |= SLOTS[slot].bit();
        slot += 1;
    }
    bits
};
/// Fields of a packet's time.
const WHEN: u64 = Field::Hour.bit() | Field::Day.bit() | Field::Time.bit();

/// Notes a rule that looks at the Ethernet header or the hops of packets as they arrived, which another function has written.
pub(in crate::firewall) fn note(rules: &[Rule], ports: Ports) -> Vec<Note> {
    let of_link = |rule: &Rule| {
        let mut keys = rule.keyed.iter().flat_map(|keyed| &keyed.key);
        rule.fields.iter().any(|within| (STATIONS | Field::Vlan.bit()) & within.field.bit() != 0)
            || keys.any(|part| matches!(part, Part::Station(Field::EtherSource | Field::EtherDestination)))
    };
    let of_hops = |rule: &Rule| rule.fields.iter().any(|within| within.field == Field::ArrivedTtl);
    let link = "with the Ethernet addresses and the VLAN that the router before the firewall has written, and not as they arrived: write \
                addresses and interfaces, or put the firewall before the router in the chain";
    let hops = "with the hops that the router before the firewall has left them, one less than they arrived with: put the firewall before the \
                router in the chain";
    [first(rules, ports, &of_link, link), first(rules, ports, &of_hops, hops)].into_iter().flatten().collect()
}

/// A note at the first of these rules to which packets of a router come.
fn first(rules: &[Rule], ports: Ports, is_one: &dyn Fn(&Rule) -> bool, text: &str) -> Option<Note> {
    let readdressed = ports.readdressed;
    let comes = |rule: &Rule| {
        [(Side::Inside, readdressed[0]), (Side::Outside, readdressed[1])].into_iter().any(|(side, is_so)| {
            is_so
                && rule.direction.is_none_or(|direction| direction == Direction::from(side))
                && rule.ports.any(|port| ports.sides.of(*port) == Some(side))
        })
    };
    let rule = rules.iter().find(|rule| rule.states != states::ARP && is_one(rule) && comes(rule))?;
    let whose = match readdressed {
        [true, false] => "packets from inside come",
        [false, true] => "packets from outside come",
        _ => "packets come",
    };
    Some(Note { line: rule.line, file: rule.file.clone(), text: format!("{whose} {text}") })
}

impl Looks {
    /// What the rules examine; `None` if they examine no such field.
    pub(in crate::firewall) fn of(rules: &[Rule], hops: u8, zone: UtcOffset) -> Option<Looks> {
        let asked = rules.iter().flat_map(|rule| &rule.fields).fold(0, |asked, within| asked | within.field.bit());
        (asked != 0).then(|| Looks { hops, zone, asked, places: places(rules) })
    }

    /// Whether rules examine a packet's time.
    pub(in crate::firewall) fn asks_when(&self) -> bool {
        self.asked & WHEN != 0
    }

    /// Whether rules examine the Ethernet addresses of a packet.
    pub(in crate::firewall) fn asks_stations(&self) -> bool {
        self.asked & STATIONS != 0
    }

    /// Whether rules examine the port by which a packet leaves.
    pub(in crate::firewall) fn asks_exits(&self) -> bool {
        self.asked & Field::LeavesBy.bit() != 0
    }

    /// The fields of a packet in its context.
    #[cold]
    pub(in crate::firewall) fn at(&self, packet: &Packet<'_>, context: &Context) -> Values {
        let mut values = Values::NONE;
        context.counts.iter().for_each(|counts| counts.tell(&mut values));
        values.set(Field::LeavesBy, context.exits);
        self.read_basic(packet, &mut values);
        self.read_link(packet, &mut values);
        self.read_ip(packet, &mut values);
        self.read_transport(packet, &mut values);
        if self.asked & PLACES != 0 {
            for (slot, place) in SLOTS.into_iter().zip(self.places) {
                values.set(slot, place.and_then(|place| place.read(packet)).unwrap_or(NO_PAYLOAD));
            }
        }
        if self.asks_when() {
            let moment = Moment::of(context.wall_ns, self.zone);
            values.set(Field::Hour, moment.second);
            values.set(Field::Day, moment.day);
            values.set(Field::Time, moment.ns);
        }
        values
    }

    /// Fields of the Ethernet header and of ARP.
    fn read_link(&self, packet: &Packet<'_>, values: &mut Values) {
        if self.asked & STATIONS != 0
            && let Some(ethernet) = packet.ethernet()
        {
            values.set(Field::EtherSource, station(ethernet.source()));
            values.set(Field::EtherDestination, station(ethernet.destination()));
        }
        if self.asked & ARP != 0
            && let Some(arp) = packet.arp()
        {
            values.set(Field::ArpOperation, arp.operation().number());
            values.set(Field::ArpSource, station(arp.sender_mac()));
            values.set(Field::ArpTarget, station(arp.target_mac()));
        }
    }

    /// Fields of the IP header and its extensions.
    fn read_ip(&self, packet: &Packet<'_>, values: &mut Values) {
        if self.asked & EXTENSIONS != 0
            && let Some(ip) = packet.ipv6()
        {
            read_extensions(&ip, values);
        }
        if self.asked & V4 != 0
            && let Some(ip) = packet.ipv4()
        {
            values.set(Field::Identification, ip.identification());
            values.set(Field::HeaderLength, packet.bytes()[usize::from(packet.record().l3)] & 0x0f);
            let flags = packet.bytes()[usize::from(packet.record().l3) + 6] & 0xc0;
            values.set(Field::Fragments, u64::from(flags) << 8);
            values.set(Field::Checksum, ip.checksum());
            values.set(Field::IpOptions, ip.options().fold(0, |bits, option| bits | ip_option_bit(option.kind)));
        }
        if self.asked & Field::FlowLabel.bit() != 0
            && let Some(ip) = packet.ipv6()
        {
            values.set(Field::FlowLabel, ip.flow_label());
        }
    }

    /// Fields of TCP, UDP and ICMP.
    fn read_transport(&self, packet: &Packet<'_>, values: &mut Values) {
        if self.asked & SEGMENTS != 0 && packet.protocol() == number::TCP {
            read_segment(packet, values);
        }
        if self.asked & (TCP | Field::TransportChecksum.bit()) != 0
            && let Some(tcp) = packet.tcp()
        {
            read_tcp(packet, &tcp, values);
        }
        if self.asked & (Field::UdpLength.bit() | Field::TransportChecksum.bit()) != 0
            && let Some(udp) = packet.udp()
        {
            values.set(Field::UdpLength, udp.length());
            values.set(Field::TransportChecksum, udp.checksum());
        }
        if self.asked & MESSAGES != 0 {
            read_message(packet, values);
        }
        if self.asked & PORTS != 0
            && let Some((source, destination)) = packet.ports()
        {
            values.set(Field::SourcePort, source);
            values.set(Field::DestinationPort, destination);
        }
    }

    fn read_basic(&self, packet: &Packet<'_>, values: &mut Values) {
        let congestion = match (packet.ipv4(), packet.ipv6()) {
            (Some(ip), _) => ip.ecn(),
            (_, Some(ip)) => ip.traffic_class() & 3,
            _ => 0,
        };
        let code = packet.l4_offset().and_then(|at| packet.bytes().get(at + 1).copied());
        values.set(Field::Length, lengths::ip_len(packet) as u64);
        let hops = packet.ttl().unwrap_or_default();
        values.set(Field::Ttl, hops.saturating_sub(self.hops));
        values.set(Field::ArrivedTtl, hops);
        values.set(Field::Dscp, dscp::of(packet).unwrap_or_default());
        values.set(Field::Ecn, congestion);
        if let Some(tag) = packet.vlan() {
            values.set(Field::Vlan, tag.id());
        }
        values.set(Field::IcmpCode, code.unwrap_or_default());
    }
}

/// Reads the header that follows the IPv6 header, the set of extension headers, and the type of the first routing header.
/// A fragment header does not count, not even that of a datagram that is whole (RFC 6946), because the kernel takes it out
/// before it evaluates rules (`nf_ct_frag6_gather`).
fn read_extensions(ip: &View<'_, Ipv6>, values: &mut Values) {
    let (mut next, mut extensions) = (None, 0);
    for header in ip.extensions() {
        if header.fragment().is_some() {
            next.get_or_insert(header.next_header);
            continue;
        }
        next.get_or_insert(header.number);
        extensions |= extension_bit(header.number);
        if let (number::ROUTING, UNROUTED, Some(kind)) =
            (header.number, values.of(Field::RoutingType), header.bytes.get(2))
        {
            values.set(Field::RoutingType, *kind);
        }
    }
    values.set(Field::NextHeader, next.unwrap_or(ip.next_header()));
    values.set(Field::Extensions, extensions);
}

fn read_tcp(packet: &Packet<'_>, tcp: &View<'_, Tcp>, values: &mut Values) {
    let offset = packet.l4_offset().and_then(|at| packet.bytes().get(at + 12)).copied().unwrap_or_default();
    values.set(Field::Sequence, tcp.sequence());
    values.set(Field::Acknowledgement, tcp.acknowledgement());
    values.set(Field::DataOffset, offset >> 4);
    values.set(Field::Reserved, offset & 0x0f);
    values.set(Field::Window, tcp.window());
    values.set(Field::TcpFlags, packet.tcp_flags().unwrap_or_default());
    values.set(Field::Urgent, tcp.urgent());
    values.set(Field::TransportChecksum, tcp.checksum());
}

/// Reads the fields after the checksum. The message's type, which rules also test, says which of them it has.
fn read_message(packet: &Packet<'_>, values: &mut Values) {
    let word = packet.l4_offset().and_then(|at| packet.bytes().get(at + 4..)?.first_chunk());
    let Some(word) = word.map(|word| u32::from_be_bytes(*word)) else { return };
    let (high, low) = (word >> 16, word & 0xffff);
    values.set(Field::QueryId, high);
    values.set(Field::QuerySequence, low);
    values.set(Field::Mtu, if packet.protocol() == number::ICMP { low } else { word });
    values.set(Field::Gateway, word);
    values.set(Field::Delay, high);
    values.set(Field::Pointer, word);
}

/// The bit of an extension header in [`Field::Extensions`]; 0 for one that rules cannot ask for.
pub(in crate::firewall) fn extension_bit(header: u8) -> u64 {
    let asked = [number::MOBILITY, number::FRAGMENT, number::DESTINATION_OPTIONS, number::HOP_BY_HOP, number::ROUTING];
    asked.iter().position(|known| *known == header).map_or(0, |at| 1 << at)
}

/// The bit of an option in [`Field::IpOptions`]; 0 for one that rules cannot ask for.
pub(in crate::firewall) fn ip_option_bit(kind: u8) -> u64 {
    [131, 137, 7, 148].iter().position(|known| *known == kind).map_or(0, |at| 1 << at)
}

pub(in crate::firewall) fn station(address: MacAddress) -> u64 {
    address.0.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Reads the TCP options as the kernel does (`nft_exthdr_tcp_eval`): the end-of-list option does not end the list, an
/// option without a length has one byte, and one that exceeds the header does not count.
fn read_segment(packet: &Packet<'_>, values: &mut Values) {
    let header = packet.l4_offset().and_then(|at| {
        let header = packet.bytes().get(at..)?;
        header.get(Tcp::LEN..usize::from(header.get(12)? >> 4) * 4)
    });
    let Some(options) = header else { return };
    let (mut at, mut kinds) = (0, 0);
    while let Some(&kind) = options.get(at) {
        let len = match (kind, options.get(at + 1)) {
            (0 | 1, _) | (_, None | Some(0)) => 1,
            (_, Some(len)) => usize::from(*len),
        };
        let is_whole = at + len <= options.len();
        if is_whole && kind < 64 && kinds & 1 << kind == 0 {
            kinds |= 1u64 << kind;
            if let (2, true, Some(size)) = (kind, len >= 4, options.get(at + 2..at + 4)) {
                values.set(Field::SegmentSize, u16::from_be_bytes([size[0], size[1]]));
            }
        }
        at += len;
    }
    values.set(Field::TcpOptions, kinds);
}
