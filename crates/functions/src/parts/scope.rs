//! What a function that works on IP does with everything else, and with addresses that no router forwards.

use std::net::Ipv6Addr;

use braid_nf::Packet;
use braid_nf::packet::headers::{ether_type, icmpv6_type};
use braid_nf::packet::{IpAddress, IpVersion, Link};

/// Whether a packet without an IP header is a damaged IP packet: cut short, or with a header that contradicts itself.
/// Otherwise it is something else (ARP, spanning tree), which concerns no IP function.
pub fn is_damaged_ip(packet: &Packet<'_>) -> bool {
    let announced = match packet.link() {
        Link::RawIp => true,
        _ => matches!(packet.ether_type(), Some(ether_type::IPV4 | ether_type::IPV6)),
    };
    !packet.is_ip() && (announced || packet.is_short())
}

/// Whether a packet stays on its link: one end is a link-local IPv6 address or a multicast group of that scope. Neighbour
/// discovery is such; its hop limit must not be touched (RFC 4861 section 7.1).
pub fn is_link_scope_v6(source: IpAddress, destination: IpAddress) -> bool {
    let local = |address: IpAddress| {
        let [a, b, ..] = address.octets();
        a == 0xfe && b & 0xc0 == 0x80
    };
    let [a, b, ..] = destination.octets();
    local(source) || local(destination) || (a == 0xff && b & 0x0f <= 2) || source == IpAddress::UNSPECIFIED
}

/// Whether a packet concerns its link alone: IPv6 of link scope, or neighbour discovery, which no router forwards whatever its
/// addresses. An answer goes from one global address to another (RFC 4861 section 7.2.4); its hop limit of 255 shows that it comes
/// from this link.
pub fn stays_on_link(packet: &Packet<'_>) -> bool {
    const DISCOVERY: std::ops::RangeInclusive<u8> = icmpv6_type::ROUTER_SOLICITATION..=icmpv6_type::REDIRECT;
    let is_discovery =
        || packet.ttl() == Some(255) && packet.icmpv6().is_some_and(|icmp| DISCOVERY.contains(&icmp.kind()));
    packet.ip_version() == Some(IpVersion::V6) && (is_link_scope_v6(packet.src_ip(), packet.dst_ip()) || is_discovery())
}

/// Whether an IPv4 address may be a host's: no group, no broadcast, no loopback, and some address.
#[inline(always)]
pub fn is_host_v4(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..=255)
}

/// Whether addresses of an IPv6 prefix are hosts' beyond their link: no group, no link-local one, no loopback, and some address.
pub fn is_routed_v6(address: IpAddress) -> bool {
    let octets = address.octets();
    octets[0] != 0xff && octets != Ipv6Addr::LOCALHOST.octets() && !is_link_scope_v6(address, address)
}

/// Whether an IPv4 packet goes from one host to one host. Multicast, broadcast, loopback and unspecified addresses are not
/// translated and not forwarded (RFC 1812 sections 4.2.2.11 and 5.3.7).
#[inline(always)]
pub fn is_unicast_v4(source: [u8; 4], destination: [u8; 4]) -> bool {
    is_host_v4(source) && is_host_v4(destination)
}
