//! Checks the checksums of a frame with another library than the one under test (etherparse).

use etherparse::{IpHeaders, Ipv4Header, Ipv6Header, NetHeaders, PacketHeaders, TransportHeader};

/// Panics unless all checksums of an Ethernet frame are correct according to [`check_checksums`].
#[track_caller]
pub fn assert_checksums(frame: &[u8]) {
    check_checksums(frame).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// Checks the checksums of an Ethernet frame and names a wrong one: IPv4 header, TCP, UDP, ICMP, ICMPv6. The packet that an ICMP
/// error quotes is checked too, its transport checksum only if it is quoted completely. Frames that are not IP have no checksums,
/// and the transport checksum of a fragment cannot be verified.
pub fn check_checksums(frame: &[u8]) -> Result<(), String> {
    let packet = PacketHeaders::from_ethernet_slice(frame).map_err(|error| format!("no whole frame: {error}"))?;
    let (transport, payload) = (packet.transport.as_ref(), packet.payload.slice());
    match &packet.net {
        Some(NetHeaders::Ipv4(ip, _)) => of_v4(ip, transport, payload)?,
        Some(NetHeaders::Ipv6(ip, _)) => of_v6(ip, transport, payload)?,
        _ => return Ok(()),
    }
    let is_error = match transport {
        Some(TransportHeader::Icmpv4(icmp)) => matches!(icmp.to_bytes()[0], 3 | 4 | 5 | 11 | 12),
        Some(TransportHeader::Icmpv6(icmp)) => icmp.to_bytes()[0] < 128,
        _ => false,
    };
    if is_error { of_quoted(payload).map_err(|wrong| format!("quoted packet: {wrong}")) } else { Ok(()) }
}

fn of_quoted(bytes: &[u8]) -> Result<(), String> {
    if let Ok((IpHeaders::Ipv4(ip, _), ..)) = IpHeaders::from_slice_lax(bytes) {
        of_header(&ip)?;
        if bytes.len() < usize::from(ip.total_len) {
            return Ok(());
        }
    }
    let Ok(packet) = PacketHeaders::from_ip_slice(bytes) else { return Ok(()) };
    match &packet.net {
        Some(NetHeaders::Ipv4(ip, _)) => of_v4(ip, packet.transport.as_ref(), packet.payload.slice()),
        Some(NetHeaders::Ipv6(ip, _)) => of_v6(ip, packet.transport.as_ref(), packet.payload.slice()),
        _ => Ok(()),
    }
}

fn of_header(ip: &Ipv4Header) -> Result<(), String> {
    same("IPv4 header", ip.header_checksum, Some(ip.calc_header_checksum()))
}

fn of_v4(ip: &Ipv4Header, transport: Option<&TransportHeader>, payload: &[u8]) -> Result<(), String> {
    of_header(ip)?;
    match transport {
        Some(TransportHeader::Tcp(tcp)) => same("TCP", tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).ok()),
        Some(TransportHeader::Udp(udp)) if udp.checksum != 0 => {
            same("UDP", udp.checksum, udp.calc_checksum_ipv4(ip, payload).ok())
        }
        Some(TransportHeader::Icmpv4(icmp)) => same("ICMP", icmp.checksum, Some(icmp.icmp_type.calc_checksum(payload))),
        _ => Ok(()),
    }
}

fn of_v6(ip: &Ipv6Header, transport: Option<&TransportHeader>, payload: &[u8]) -> Result<(), String> {
    match transport {
        Some(TransportHeader::Tcp(tcp)) => same("TCP", tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).ok()),
        Some(TransportHeader::Udp(udp)) => same("UDP", udp.checksum, udp.calc_checksum_ipv6(ip, payload).ok()),
        Some(TransportHeader::Icmpv6(icmp)) => {
            let wanted = icmp.icmp_type.calc_checksum(ip.source, ip.destination, payload).ok();
            same("ICMPv6", icmp.checksum, wanted)
        }
        _ => Ok(()),
    }
}

fn same(what: &str, has: u16, wants: Option<u16>) -> Result<(), String> {
    match wants {
        Some(wanted) if wanted == has => Ok(()),
        Some(wanted) => Err(format!("{what} checksum {has:#06x}, not {wanted:#06x}")),
        None => Err(format!("{what}: too long for a checksum")),
    }
}
