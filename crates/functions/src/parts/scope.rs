//! What a function that works on IP does with everything else, and with addresses that no router forwards.

use std::net::Ipv6Addr;

use braid_nf::packet::headers::{ether_type, icmpv6_type};
use braid_nf::packet::{IpAddress, IpVersion, Link};
use braid_nf::{Packet, Reason};

/// To or from an address that is no host's: a group, a broadcast address, loopback, or none.
pub const NOT_UNICAST: Reason = Reason("not_unicast");
/// No other host has this source address: a group, loopback, none, or one of the function's own.
pub const BAD_SOURCE: Reason = Reason("bad_source");
/// For its link only.
pub const LINK_SCOPE: Reason = Reason("link_scope");

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
    is_near(source) || is_link_local_v6(destination) || is_group_of_link(destination)
}

/// Whether an address is one of its link alone (RFC 4291 section 2.5.6).
pub fn is_link_local_v6(address: IpAddress) -> bool {
    let [a, b, ..] = address.octets();
    a == 0xfe && b & 0xc0 == 0x80
}

/// Whether it is a link-local source, or none.
fn is_near(source: IpAddress) -> bool {
    is_link_local_v6(source) || source == IpAddress::UNSPECIFIED
}

fn is_group_of_link(address: IpAddress) -> bool {
    let [a, b, ..] = address.octets();
    a == 0xff && b & 0x0f <= 2
}

/// How far an IPv6 packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It concerns its link alone.
    Link,
    /// Wherever routers take it.
    Beyond,
    /// Nowhere, and why.
    Nowhere(Reason),
}

/// How far an IPv6 packet goes by its addresses (RFC 4291 section 2): a group, the loopback address, an IPv4 address in its mapped form
/// (RFC 6890 table 20) or none at all is where nothing comes from or goes to, and from a link-local address to one beyond the link leads no way but neighbour discovery and what listeners of groups report.
pub fn reach_v6(packet: &Packet<'_>) -> Reach {
    let (source, destination) = (packet.src_ip(), packet.dst_ip());
    let is_loopback = |address: IpAddress| address.octets() == Ipv6Addr::LOCALHOST.octets();
    let is_of_none = source.octets()[0] == 0xff || destination == IpAddress::UNSPECIFIED;
    if is_of_none || source.is_v4() || destination.is_v4() || is_loopback(source) || is_loopback(destination) {
        return Reach::Nowhere(NOT_UNICAST);
    }
    if is_group_of_link(destination) || is_discovery(packet) || is_of_listeners(packet) {
        return Reach::Link;
    }
    match (is_near(source), is_link_local_v6(destination)) {
        (true, true) => Reach::Link,
        (false, false) => Reach::Beyond,
        _ => Reach::Nowhere(LINK_SCOPE),
    }
}

/// Whether a packet concerns its link alone: IPv6 of link scope, or neighbour discovery, which no router forwards whatever its
/// addresses. An answer goes from one global address to another (RFC 4861 section 7.2.4); its hop limit of 255 shows that it comes
/// from this link.
pub fn stays_on_link(packet: &Packet<'_>) -> bool {
    packet.ip_version() == Some(IpVersion::V6)
        && (is_link_scope_v6(packet.src_ip(), packet.dst_ip()) || is_discovery(packet))
}

fn is_discovery(packet: &Packet<'_>) -> bool {
    const DISCOVERY: std::ops::RangeInclusive<u8> = icmpv6_type::ROUTER_SOLICITATION..=icmpv6_type::REDIRECT;
    packet.ttl() == Some(255) && packet.icmpv6().is_some_and(|icmp| DISCOVERY.contains(&icmp.kind()))
}

/// Whether a packet asks or says who listens to a group: link-local senders send it to the group itself, with a hop limit of 1 (RFC 2710
/// section 3, RFC 9777 section 5).
fn is_of_listeners(packet: &Packet<'_>) -> bool {
    const QUERY: u8 = 130;
    const DONE: u8 = 132;
    const REPORT_V2: u8 = 143;
    let is_theirs = |kind| (QUERY..=DONE).contains(&kind) || kind == REPORT_V2;
    packet.ttl() == Some(1)
        && is_near(packet.src_ip())
        && packet.dst_ip().octets()[0] == 0xff
        && packet.icmpv6().is_some_and(|icmp| is_theirs(icmp.kind()))
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
