//! What follows the IP header: ports, identifiers and checksums.
//!
//! TCP and UDP checksums are updated by the changes in pseudo header and ports, so a correct one stays correct and a
//! wrong one wrong. An echo message changes its type, and gains or loses the pseudo header that only ICMPv6 has (RFC 7915
//! sections 4.2, 5.2).

use braid_nf::packet::headers::{Header, Udp, icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, checksum};

use checksum::{Change, Sum};

/// Source and destination address.
pub(super) type Addresses = (IpAddress, IpAddress);

/// Ports to write; for an echo message either one is the identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewPorts {
    pub(super) source: Option<u16>,
    pub(super) destination: Option<u16>,
}

/// Whether a UDP datagram over IPv4 has a checksum; over IPv6 it must have one.
pub(super) fn has_checksum(segment: &[u8]) -> bool {
    segment.get(6..8).is_some_and(|sum| sum != [0, 0])
}

/// Gives a UDP datagram its checksum, over as many bytes as it says that it has: more may follow it in its packet (RFC 9868).
pub(super) fn fill_checksum(segment: &mut [u8], ends: Addresses) {
    let [_, _, _, _, high, low, ..] = *segment else { return };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let Some(datagram) = segment.get_mut(..len).filter(|datagram| datagram.len() >= Udp::LEN) else { return };
    datagram[6..8].fill(0);
    let sum = checksum::udp_zero(checksum::transport(ends.0, ends.1, protocol::UDP, datagram));
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// Rewrites a TCP or UDP header, which may be truncated after its ports. False if it is truncated earlier.
pub(super) fn rewrite_ports(segment: &mut [u8], number: u8, old: Addresses, new: Addresses, ports: NewPorts) -> bool {
    let Some(words) = segment.first_chunk_mut::<4>() else { return false };
    let before = sum(old).add_bytes(words);
    for (at, port) in [(0, ports.source), (2, ports.destination)] {
        if let Some(port) = port {
            words[at..at + 2].copy_from_slice(&port.to_be_bytes());
        }
    }
    let change = Change::NONE.u16(before.fold(), sum(new).add_bytes(words).fold());
    let at = if number == protocol::TCP { 16 } else { 6 };
    if let Some([high, low]) = segment.get_mut(at..at + 2) {
        let old = u16::from_be_bytes([*high, *low]);
        let new = if number == protocol::TCP { change.apply(old) } else { change.apply_udp(old) };
        [*high, *low] = new.to_be_bytes();
    }
    true
}

/// Rewrites an echo request or reply of `len` bytes, to or from IPv6, given its IPv6 addresses. False if it is another
/// message.
pub(super) fn rewrite_echo(message: &mut [u8], v6: Addresses, to: IpVersion, len: usize, id: u16) -> bool {
    let Some([kind, code, high, low, id_high, id_low]) = message.first_chunk_mut::<6>() else { return false };
    let Some(new_kind) = echo_kind(*kind, to) else { return false };
    let pseudo = checksum::pseudo_header(v6.0, v6.1, protocol::ICMPV6, len as u32).fold();
    let (before, after) = if to == IpVersion::V6 { (0, pseudo) } else { (pseudo, 0) };
    let change = Change::NONE
        .u16(before, after)
        .u16(u16::from_be_bytes([*kind, *code]), u16::from_be_bytes([new_kind, *code]))
        .u16(u16::from_be_bytes([*id_high, *id_low]), id);
    [*high, *low] = change.apply(u16::from_be_bytes([*high, *low])).to_be_bytes();
    *kind = new_kind;
    [*id_high, *id_low] = id.to_be_bytes();
    true
}

fn echo_kind(kind: u8, to: IpVersion) -> Option<u8> {
    const PAIRS: [(u8, u8); 2] =
        [(icmp_type::ECHO_REQUEST, icmpv6_type::ECHO_REQUEST), (icmp_type::ECHO_REPLY, icmpv6_type::ECHO_REPLY)];
    PAIRS.iter().find_map(|(v4, v6)| match to {
        IpVersion::V6 => (*v4 == kind).then_some(*v6),
        IpVersion::V4 => (*v6 == kind).then_some(*v4),
    })
}

fn sum((source, destination): Addresses) -> Sum {
    let add = |sum: Sum, address: IpAddress| match address.v4() {
        Some(v4) => sum.add_bytes(&v4),
        None => sum.add_bytes(&address.octets()),
    };
    add(add(Sum::default(), source), destination)
}
