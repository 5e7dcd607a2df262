//! What a frame or a packet-set key says by itself, without knowledge of any function. Filters use it, and
//! traces use it to show what a function changed.

use braid_runtime::nf::packet::headers::{
    Arp, Ethernet, Header, Icmp, Icmpv6, Ipv4, Ipv6, Sctp, Tcp, Udp, VlanTags, ether_type, tcp_flags,
};
use braid_runtime::nf::packet::{FieldId, Flags, IpAddress, Link, MacAddress, SetKey, parse, protocol};
use braid_runtime::nf::{About, TableEntry};

/// The values that filters test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    /// Source and destination IP address; for ARP, sender and target.
    pub ips: [Option<IpAddress>; 2],
    /// Source and destination port.
    pub ports: [Option<u16>; 2],
    /// Source and destination Ethernet address.
    pub macs: [Option<MacAddress>; 2],
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Ethernet type after any VLAN tags.
    pub ether_type: Option<u16>,
    /// VLAN identifiers, outermost first.
    pub vlans: Vec<u16>,
    /// Length of the frame in bytes; `None` for a key.
    pub len: Option<usize>,
    /// The frame from its Ethernet header on, from its IP header on, and from what follows that on; empty for a key, and for what is not
    /// there.
    pub starts: [&'a [u8]; 3],
    /// Whether the order of the two ends means nothing, because both directions have this key.
    pub either_way: bool,
}

impl<'a> Facts<'a> {
    /// Extracts the facts of a frame.
    pub fn of_frame(bytes: &'a [u8], link: Link) -> Facts<'a> {
        let mut facts = Facts { len: Some(bytes.len()), ..Facts::default() };
        if link == Link::Ethernet
            && let Some(ethernet) = Ethernet::parse(bytes)
        {
            facts.starts[0] = bytes;
            facts.macs = [Some(ethernet.source()), Some(ethernet.destination())];
            let mut kind = ethernet.ether_type();
            for tag in VlanTags::new(kind, ethernet.payload()) {
                facts.vlans.push(tag.id());
                kind = tag.ether_type();
            }
            facts.ether_type = Some(kind);
            if kind == ether_type::ARP
                && let Some(arp) = bytes.get(14 + 4 * facts.vlans.len()..).and_then(Arp::parse)
            {
                facts.ips = [Some(arp.sender_ip()), Some(arp.target_ip())];
            }
        }
        if let Some(ip) = Ip::of(bytes, link) {
            facts.ether_type = Some(if ip.source.is_v4() { ether_type::IPV4 } else { ether_type::IPV6 });
            facts.ips = [Some(ip.source), Some(ip.destination)];
            facts.protocol = Some(ip.protocol);
            facts.ports = ip.ports();
            (facts.starts[1], facts.starts[2]) = (ip.header, ip.transport);
        }
        facts
    }

    /// Facts of a table entry. The first end of traffic is the source, and identifiers of ICMP queries take the place of ports. A station
    /// or neighbour is both source and destination.
    pub fn of_entry(entry: &TableEntry) -> Facts<'a> {
        let of_ip = |address: IpAddress| if address.is_v4() { ether_type::IPV4 } else { ether_type::IPV6 };
        match &entry.about {
            About::Traffic { protocol, ends: [(source, from), (destination, to)] } => Facts {
                ips: [Some(*source), Some(*destination)],
                ports: [Some(*from), Some(*to)],
                protocol: Some(*protocol),
                ether_type: Some(of_ip(*source)),
                ..Facts::default()
            },
            About::OnLink { address, mac, vlan, .. } => Facts {
                ips: [*address, None],
                macs: [*mac, None],
                ether_type: address.map(of_ip),
                vlans: vlan.iter().copied().collect(),
                either_way: true,
                ..Facts::default()
            },
        }
    }

    /// Of the key of a packet set, as far as it has the fields.
    pub fn of_key(key: &SetKey) -> Facts<'a> {
        let parts = key.parts();
        let number = |field| parts.number(field);
        let arp = number(FieldId::ArpTarget).map(|address| IpAddress::from_v4(address.to_be_bytes()));
        Facts {
            ips: [parts.ips[0], parts.ips[1].or(arp)],
            ports: parts.ports,
            macs: parts.macs,
            protocol: number(FieldId::IpProto).map(|value| value as u8),
            ether_type: number(FieldId::EtherType).map(|value| value as u16),
            vlans: number(FieldId::VlanId).map(|value| value as u16).into_iter().collect(),
            either_way: parts.is_symmetric(),
            ..Facts::default()
        }
    }
}

/// The IP header of a frame and what follows it.
struct Ip<'a> {
    source: IpAddress,
    destination: IpAddress,
    protocol: u8,
    ttl: u8,
    header: &'a [u8],
    /// Where a later fragment begins in its datagram; 0 for what is whole and for a first fragment.
    offset: u16,
    /// Empty for later fragments, which begin with the middle of something.
    transport: &'a [u8],
}

impl<'a> Ip<'a> {
    fn of(bytes: &'a [u8], link: Link) -> Option<Ip<'a>> {
        let found = parse(bytes, link);
        let header = bytes.get(usize::from(found.l3)..)?;
        let has_transport = found.l4 != 0 && !found.flags.has(Flags::LATER_FRAGMENT);
        let transport = header.get(usize::from(found.l4) * 4..).filter(|_| has_transport).unwrap_or(&[]);
        match header.first()? >> 4 {
            4 if found.proto != 0 || found.l4 != 0 => {
                let ip = Ipv4::parse(header)?;
                let (source, destination, ttl) = (ip.source(), ip.destination(), ip.ttl());
                let (protocol, offset) = (ip.protocol(), ip.fragment_offset());
                Some(Ip { source, destination, protocol, ttl, header, offset, transport })
            }
            6 => {
                let ip = Ipv6::parse(header)?;
                let (source, destination, ttl) = (ip.source(), ip.destination(), ip.hop_limit());
                let offset =
                    ip.extensions().find_map(|extension| extension.fragment()).map_or(0, |(offset, ..)| offset);
                Some(Ip { source, destination, protocol: found.proto, ttl, header, offset, transport })
            }
            _ => None,
        }
    }

    fn ports(&self) -> [Option<u16>; 2] {
        if !protocol::has_ports(self.protocol) {
            return [None, None];
        }
        match self.transport {
            [a, b, c, d, ..] => [Some(u16::from_be_bytes([*a, *b])), Some(u16::from_be_bytes([*c, *d]))],
            _ => [None, None],
        }
    }
}

/// Summarises a frame in one line: `10.0.0.1:1234 > 198.18.0.1:80 tcp SYN, 60 bytes`.
pub fn summary(bytes: &[u8], link: Link) -> String {
    let facts = Facts::of_frame(bytes, link);
    let end = |side: usize| match (facts.ips[side], facts.ports[side]) {
        (Some(ip), Some(port)) if ip.is_v4() => format!("{ip}:{port}"),
        (Some(ip), Some(port)) => format!("[{ip}]:{port}"),
        (Some(ip), None) => ip.to_string(),
        _ => facts.macs[side].map_or("?".to_owned(), |mac| mac.to_string()),
    };
    let what = match (facts.protocol, facts.ether_type) {
        (Some(number), _) => protocol::name(number).map_or(format!("protocol {number}"), str::to_owned),
        (None, Some(ether_type::ARP)) => "arp".to_owned(),
        (None, Some(kind)) => format!("type {kind:#06x}"),
        (None, None) => "no IP".to_owned(),
    };
    let fields = fields(bytes, link);
    let detail = fields.iter().find_map(|(name, value)| match *name {
        "ip.offset" => Some(format!(" fragment at {value}")),
        "tcp.flags" | "icmp.type" => Some(format!(" {value}")),
        _ => None,
    });
    let detail = detail.unwrap_or_default();
    format!("{} > {} {what}{detail}, {} bytes", end(0), end(1), bytes.len())
}

/// The header fields of a frame, in wire order.
pub fn fields(bytes: &[u8], link: Link) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    let mut add = |name, value: String| fields.push((name, value));
    if link == Link::Ethernet
        && let Some(ethernet) = Ethernet::parse(bytes)
    {
        add("eth.dst", ethernet.destination().to_string());
        add("eth.src", ethernet.source().to_string());
        for tag in VlanTags::new(ethernet.ether_type(), ethernet.payload()) {
            add("vlan", tag.id().to_string());
        }
    }
    let Some(ip) = Ip::of(bytes, link) else {
        add("length", bytes.len().to_string());
        return fields;
    };
    if let Some(v4) = Ipv4::parse(ip.header) {
        add("ip.tos", format!("{:#04x}", v4.dscp() << 2 | v4.ecn()));
        add("ip.length", v4.total_len().to_string());
        add("ip.checksum", format!("{:#06x}", v4.checksum()));
    } else if let Some(v6) = Ipv6::parse(ip.header) {
        add("ip.class", format!("{:#04x}", v6.traffic_class()));
        add("ip.length", v6.payload_len().to_string());
    }
    add("ip.ttl", ip.ttl.to_string());
    add("ip.proto", ip.protocol.to_string());
    add("ip.src", ip.source.to_string());
    add("ip.dst", ip.destination.to_string());
    if ip.offset > 0 {
        add("ip.offset", ip.offset.to_string());
    }
    let [source, destination] = ip.ports();
    source.into_iter().for_each(|port| add("port.src", port.to_string()));
    destination.into_iter().for_each(|port| add("port.dst", port.to_string()));
    transport(&ip, &mut add);
    add("length", bytes.len().to_string());
    fields
}

fn transport(ip: &Ip<'_>, add: &mut impl FnMut(&'static str, String)) {
    match ip.protocol {
        protocol::TCP => {
            if let Some(tcp) = Tcp::parse(ip.transport) {
                add("tcp.seq", tcp.sequence().to_string());
                add("tcp.ack", tcp.acknowledgement().to_string());
                add("tcp.flags", flags(tcp.flags()));
                add("tcp.window", tcp.window().to_string());
                add("tcp.checksum", format!("{:#06x}", tcp.checksum()));
            }
        }
        protocol::UDP => {
            if let Some(udp) = Udp::parse(ip.transport) {
                add("udp.checksum", format!("{:#06x}", udp.checksum()));
            }
        }
        protocol::ICMP => {
            if let Some(icmp) = Icmp::parse(ip.transport) {
                add("icmp.type", format!("{}/{}", icmp.kind(), icmp.code()));
                icmp.id().into_iter().for_each(|id| add("icmp.id", id.to_string()));
                add("icmp.checksum", format!("{:#06x}", icmp.checksum()));
            }
        }
        protocol::ICMPV6 => {
            if let Some(icmp) = Icmpv6::parse(ip.transport) {
                add("icmp.type", format!("{}/{}", icmp.kind(), icmp.code()));
                icmp.id().into_iter().for_each(|id| add("icmp.id", id.to_string()));
                add("icmp.checksum", format!("{:#06x}", icmp.checksum()));
            }
        }
        protocol::SCTP => {
            if let Some(sctp) = Sctp::parse(ip.transport) {
                add("sctp.tag", format!("{:#010x}", sctp.verification_tag()));
            }
        }
        _ => {}
    }
}

fn flags(flags: u8) -> String {
    let names = [
        (tcp_flags::SYN, "SYN"),
        (tcp_flags::FIN, "FIN"),
        (tcp_flags::RST, "RST"),
        (tcp_flags::PSH, "PSH"),
        (tcp_flags::ACK, "ACK"),
        (tcp_flags::URG, "URG"),
    ];
    let set: Vec<&str> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(" ") }
}

/// One field that differs between two versions of a frame.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Edit {
    /// Its name.
    pub field: String,
    /// Its old value; empty if the field was absent.
    pub before: String,
    /// Its new value; empty if the field is gone.
    pub after: String,
}

/// What changed between two versions of a frame; a change outside the known fields is reported as `payload`.
pub fn edits(before: &[u8], after: &[u8], link: Link) -> Vec<Edit> {
    if before == after {
        return Vec::new();
    }
    let (old, new) = (fields(before, link), fields(after, link));
    let named = |fields: &[(&'static str, String)], name: &str| {
        let values: Vec<&str> = fields.iter().filter(|(known, _)| *known == name).map(|(_, v)| v.as_str()).collect();
        values.join(", ")
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in old.iter().chain(&new) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let edit = |name: &str| Edit { field: name.to_owned(), before: named(&old, name), after: named(&new, name) };
    let mut edits: Vec<Edit> = names.into_iter().map(edit).filter(|edit| edit.before != edit.after).collect();
    if edits.is_empty() {
        let at = before.iter().zip(after).position(|(a, b)| a != b).unwrap_or(before.len().min(after.len()));
        let text = |bytes: &[u8]| bytes.iter().skip(at).take(8).map(|byte| format!("{byte:02x}")).collect();
        edits.push(Edit { field: format!("bytes from {at}"), before: text(before), after: text(after) });
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UDP fragment over IPv4, at this offset in units of eight bytes.
    fn fragment_v4(offset: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 36, 0, 7, 0x20, offset, 64, 17, 0, 0, 10, 0, 0, 1, 192, 0, 2, 9]);
        frame.extend([0, 7, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        frame
    }

    /// The same over IPv6.
    fn fragment_v6(offset: u8) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 44, 64]);
        for last in [1, 2] {
            frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        frame.extend([17, 0, 0, offset << 3 | 1, 0, 0, 0, 7]);
        frame.extend([0, 7, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        frame
    }

    #[test]
    fn what_a_later_fragment_begins_with_is_no_header() {
        let check = |frame: &[u8], said: &str, ports: [Option<u16>; 2]| {
            let facts = Facts::of_frame(frame, Link::Ethernet);
            assert_eq!((facts.ports, facts.starts[2].is_empty()), (ports, ports[0].is_none()), "{said}");
            assert_eq!(summary(frame, Link::Ethernet), said);
        };
        let both = [Some(7), Some(53)];
        check(&fragment_v4(0), "10.0.0.1:7 > 192.0.2.9:53 udp, 50 bytes", both);
        check(&fragment_v4(185), "10.0.0.1 > 192.0.2.9 udp fragment at 1480, 50 bytes", [None, None]);
        check(&fragment_v6(0), "[2001:db8::1]:7 > [2001:db8::2]:53 udp, 78 bytes", both);
        check(&fragment_v6(5), "2001:db8::1 > 2001:db8::2 udp fragment at 40, 78 bytes", [None, None]);
    }
}
