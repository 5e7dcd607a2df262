//! Formats packets for tests, parsed by a library other than the one under test.

use std::net::IpAddr;

use braid_testkit::{Outcome, assert_checksums};
use etherparse::{Icmpv4Type, Icmpv6Type, IpHeaders, NetHeaders, PacketHeaders, TransportHeader};

/// Formats what became of a packet: `1: udp 10.0.0.1:53 > 192.0.2.1:1024 ttl 63` for each packet sent, and `drop reason` if it
/// was dropped, separated by commas. Asserts that every packet sent has correct checksums.
pub fn outcome(outcome: &Outcome) -> String {
    let mut parts: Vec<String> = outcome.sent.iter().map(|(port, bytes)| format!("{port}: {}", frame(bytes))).collect();
    parts.extend(outcome.dropped.map(|reason| format!("drop {reason}")));
    parts.join(", ")
}

/// Formats one frame.
pub fn frame(bytes: &[u8]) -> String {
    assert_checksums(bytes);
    let packet = PacketHeaders::from_ethernet_slice(bytes).expect("a whole frame");
    match packet.net {
        Some(NetHeaders::Ipv4(..) | NetHeaders::Ipv6(..)) => ip(packet, true),
        _ => "not ip".to_owned(),
    }
}

fn ip(packet: PacketHeaders<'_>, with_ttl: bool) -> String {
    let (source, destination, ttl, number) = match &packet.net {
        Some(NetHeaders::Ipv4(ip, _)) => {
            (IpAddr::from(ip.source), IpAddr::from(ip.destination), ip.time_to_live, ip.protocol.0)
        }
        Some(NetHeaders::Ipv6(ip, _)) => {
            (IpAddr::from(ip.source), IpAddr::from(ip.destination), ip.hop_limit, ip.next_header.0)
        }
        _ => unreachable!("no IP packet"),
    };
    let end = |address: IpAddr, port: u16| match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    };
    let payload = packet.payload.slice();
    let text = match packet.transport {
        Some(TransportHeader::Tcp(tcp)) => {
            let flags = [(tcp.syn, 'S'), (tcp.fin, 'F'), (tcp.rst, 'R'), (tcp.ack, 'A')];
            let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter).collect();
            format!("tcp {} > {} {flags}", end(source, tcp.source_port), end(destination, tcp.destination_port))
        }
        Some(TransportHeader::Udp(udp)) => {
            format!("udp {} > {}", end(source, udp.source_port), end(destination, udp.destination_port))
        }
        Some(TransportHeader::Icmpv4(icmp)) => match icmp.icmp_type {
            Icmpv4Type::EchoRequest(echo) => format!("ping {source} > {destination} id {}", echo.id),
            Icmpv4Type::EchoReply(echo) => format!("pong {source} > {destination} id {}", echo.id),
            Icmpv4Type::DestinationUnreachable(_) => {
                format!("unreachable {source} > {destination} {}", quoted(payload))
            }
            Icmpv4Type::TimeExceeded(_) => format!("exceeded {source} > {destination} {}", quoted(payload)),
            _ => format!("icmp {source} > {destination}"),
        },
        Some(TransportHeader::Icmpv6(icmp)) => match icmp.icmp_type {
            Icmpv6Type::EchoRequest(echo) => format!("ping {source} > {destination} id {}", echo.id),
            Icmpv6Type::EchoReply(echo) => format!("pong {source} > {destination} id {}", echo.id),
            Icmpv6Type::DestinationUnreachable(_) => {
                format!("unreachable {source} > {destination} {}", quoted(payload))
            }
            Icmpv6Type::TimeExceeded(_) => format!("exceeded {source} > {destination} {}", quoted(payload)),
            _ => format!("icmp {source} > {destination}"),
        },
        _ => format!("ip {source} > {destination} proto {number}"),
    };
    if with_ttl { format!("{text} ttl {ttl}") } else { text }
}

/// Formats a quoted packet in brackets. Asserts that its IPv4 header checksum is correct, and its transport checksum too if the
/// whole packet is quoted.
fn quoted(bytes: &[u8]) -> String {
    let mut frame = vec![0; 12];
    frame.extend(if bytes[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    frame.extend(bytes);
    assert_checksums(&frame);
    let packet = PacketHeaders::from_ip_slice(bytes).expect("a whole quoted packet");
    if let Ok((IpHeaders::Ipv4(ip, _), ..)) = IpHeaders::from_slice(bytes) {
        assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "quoted header checksum");
    }
    format!("[{}]", ip(packet, false))
}
