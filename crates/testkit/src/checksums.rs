//! Checks the checksums of a frame with another library than the one under test (etherparse).

use etherparse::checksum::Sum16BitWords;
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
    if is_later_v6_fragment(frame) {
        return Ok(());
    }
    let packet = PacketHeaders::from_ethernet_slice(frame).map_err(|error| format!("no whole frame: {error}"))?;
    let (transport, payload) = (packet.transport.as_ref(), packet.payload.slice());
    match &packet.net {
        Some(NetHeaders::Ipv4(ip, _)) => of_v4(frame, ip, transport, payload)?,
        Some(NetHeaders::Ipv6(ip, _)) => of_v6(frame, ip, transport, payload)?,
        _ => return Ok(()),
    }
    let is_error = match transport {
        Some(TransportHeader::Icmpv4(icmp)) => matches!(icmp.to_bytes()[0], 3 | 4 | 5 | 11 | 12),
        Some(TransportHeader::Icmpv6(icmp)) => icmp.to_bytes()[0] < 128,
        _ => false,
    };
    if is_error { of_quoted(payload).map_err(|wrong| format!("quoted packet: {wrong}")) } else { Ok(()) }
}

/// Whether a frame is a later IPv6 fragment: what follows its fragment header is no header, whatever number that names.
fn is_later_v6_fragment(frame: &[u8]) -> bool {
    let Ok(sliced) = etherparse::LaxSlicedPacket::from_ethernet(frame) else { return false };
    let Some(etherparse::LaxNetSlice::Ipv6(ip)) = sliced.net else { return false };
    ip.extensions().clone().into_iter().any(|extension| match extension {
        etherparse::Ipv6ExtensionSlice::Fragment(fragment) => fragment.fragment_offset().value() > 0,
        _ => false,
    })
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
        Some(NetHeaders::Ipv4(ip, _)) => of_v4(bytes, ip, packet.transport.as_ref(), packet.payload.slice()),
        Some(NetHeaders::Ipv6(ip, _)) => of_v6(bytes, ip, packet.transport.as_ref(), packet.payload.slice()),
        _ => Ok(()),
    }
}

fn of_header(ip: &Ipv4Header) -> Result<(), String> {
    same("IPv4 header", ip.header_checksum, Some(ip.calc_header_checksum()))
}

/// The checksum of an ICMP message, which stands in `bytes`: of all of its header, of which the other library forgets what most types do
/// not use, such as the length that an extension needs (RFC 4884).
fn of_message(bytes: &[u8], header: usize, payload: &[u8], pseudo: Sum16BitWords) -> u16 {
    let begin = payload.as_ptr() as usize - bytes.as_ptr() as usize - header;
    let message = &bytes[begin..begin + header + payload.len()];
    pseudo.add_slice(&message[..2]).add_slice(&message[4..]).ones_complement().to_be()
}

fn of_v4(bytes: &[u8], ip: &Ipv4Header, transport: Option<&TransportHeader>, payload: &[u8]) -> Result<(), String> {
    of_header(ip)?;
    match transport {
        Some(TransportHeader::Tcp(tcp)) => same("TCP", tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).ok()),
        Some(TransportHeader::Udp(udp)) if udp.checksum != 0 => {
            same("UDP", udp.checksum, udp.calc_checksum_ipv4(ip, payload).ok())
        }
        Some(TransportHeader::Icmpv4(icmp)) => {
            same("ICMP", icmp.checksum, Some(of_message(bytes, icmp.header_len(), payload, Sum16BitWords::new())))
        }
        _ => Ok(()),
    }
}

fn of_v6(bytes: &[u8], ip: &Ipv6Header, transport: Option<&TransportHeader>, payload: &[u8]) -> Result<(), String> {
    match transport {
        Some(TransportHeader::Tcp(tcp)) => same("TCP", tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).ok()),
        Some(TransportHeader::Udp(udp)) => same("UDP", udp.checksum, udp.calc_checksum_ipv6(ip, payload).ok()),
        Some(TransportHeader::Icmpv6(icmp)) => {
            let len = (icmp.header_len() + payload.len()) as u32;
            let pseudo = Sum16BitWords::new().add_slice(&ip.source).add_slice(&ip.destination);
            let pseudo = pseudo.add_slice(&len.to_be_bytes()).add_2bytes([0, 58]);
            same("ICMPv6", icmp.checksum, Some(of_message(bytes, icmp.header_len(), payload, pseudo)))
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
