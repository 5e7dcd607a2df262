//! How far a packet may go: what is IP at all, and which addresses no router forwards.

use std::net::Ipv6Addr;

use braid_nf::packet::headers::{ether_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, Link};
use braid_nf::{Cx, Packet, Reason, Verdict};

/// To or from an address that is not a host's: a group, broadcast, loopback or unspecified address.
pub const NOT_UNICAST: Reason = Reason("not_unicast");
/// No other host has this source address: a group, loopback, none, or one of the function's own; or such an Ethernet address.
pub const BAD_SOURCE: Reason = Reason("bad_source");
/// For its own link only.
pub const LINK_SCOPE: Reason = Reason("link_scope");
/// For its own site only.
pub const SITE_SCOPE: Reason = Reason("site_scope");

/// Whether a packet without a parsed IP header is a damaged IP packet: truncated, or with an inconsistent header. Otherwise it
/// is something else, such as ARP or spanning tree, which no IP function handles.
pub fn is_damaged_ip(packet: &Packet<'_>) -> bool {
    let announced = match packet.link() {
        Link::RawIp => true,
        _ => matches!(packet.ether_type(), Some(ether_type::IPV4 | ether_type::IPV6)),
    };
    !packet.is_ip() && (announced || packet.is_short())
}

/// What a limit decides about a packet in no set: what is not IP passes, but not what a reader takes for IP, which could evade
/// the limit by a wrong length.
pub fn pass_unless_damaged(cx: &Cx<'_>, packet: &Packet<'_>) -> Verdict {
    if is_damaged_ip(packet) { Verdict::Drop(Reason::MALFORMED) } else { cx.pass() }
}

/// Whether a packet stays on its link because an end is link-local: a link-local IPv6 address, an unspecified source, or a
/// multicast group of link scope. Neighbour discovery is such traffic; its hop limit must not be changed (RFC 4861 section
/// 7.1).
pub fn is_link_scope_v6(source: IpAddress, destination: IpAddress) -> bool {
    is_near(source) || is_link_local_v6(destination) || is_group_of_link(destination)
}

/// Whether an address is a link-local one of IPv4 (RFC 3927).
pub fn is_link_local_v4(address: IpAddress) -> bool {
    matches!(address.v4(), Some([169, 254, ..]))
}

/// Whether an IPv4 address is not global (RFC 6052 section 3.1): private (RFC 1918, RFC 6598), of a link (RFC 3927) or of protocols (RFC 6890,
/// 192.0.0.0/24). Addresses for documentation and benchmarks count as global, so that examples can be tried.
pub fn is_private_v4(address: [u8; 4]) -> bool {
    let is_of_hosts = matches!(address, [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..]);
    is_of_hosts || matches!(address, [169, 254, ..] | [192, 0, 0, _])
}

/// Whether an address is IPv6 link-local (RFC 4291 section 2.5.6).
pub fn is_link_local_v6(address: IpAddress) -> bool {
    let [a, b, ..] = address.octets();
    a == 0xfe && b & 0xc0 == 0x80
}

/// Whether a source is link-local or unspecified.
fn is_near(source: IpAddress) -> bool {
    is_link_local_v6(source) || source == IpAddress::UNSPECIFIED
}

fn is_group_of_link(address: IpAddress) -> bool {
    let [a, b, ..] = address.octets();
    a == 0xff && b & 0x0f <= 2
}

/// How far an IPv6 packet may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It stays on its link.
    Link,
    /// It may be forwarded by routers.
    Beyond,
    /// It must not be sent anywhere, for this reason.
    Nowhere(Reason),
}

/// How far an IPv6 packet may go, by its addresses (RFC 4291 section 2).
///
/// Nothing comes from a group or goes to the unspecified address, and nothing comes from or goes to the loopback address or an
/// IPv4-mapped address (RFC 6890 table 20). A packet between a link-local address and one beyond the link goes nowhere, unless it
/// is neighbour discovery or a multicast listener message, which stay on the link.
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

/// Whether a packet stays on its link: IPv6 of link scope, or neighbour discovery, which no router forwards whatever its
/// addresses. An advertisement may go from one global address to another (RFC 4861 section 7.2.4); its hop limit of 255 shows
/// that it comes from this link.
pub fn stays_on_link(packet: &Packet<'_>) -> bool {
    packet.ip_version() == Some(IpVersion::V6)
        && (is_link_scope_v6(packet.src_ip(), packet.dst_ip()) || is_discovery(packet))
}

/// Whether hosts of a link need a packet to find each other, their routers and the listeners of groups, which IPv4 does by ARP and
/// IGMP: what RFC 4890 section 4.4.1 lists as traffic that must not be dropped.
pub fn is_needed_on_link(packet: &Packet<'_>) -> bool {
    packet.protocol() == protocol::ICMPV6 && (is_discovery(packet) || is_of_listeners(packet))
}

/// Whether a packet is neighbour discovery (RFC 4861), also of inverse addresses (RFC 3122), or a certificate for it (RFC 3971).
fn is_discovery(packet: &Packet<'_>) -> bool {
    const INVERSE_SOLICITATION: u8 = 141;
    const INVERSE_ADVERTISEMENT: u8 = 142;
    const CERTIFICATION_PATH_SOLICITATION: u8 = 148;
    const CERTIFICATION_PATH_ADVERTISEMENT: u8 = 149;
    let is_its = |kind| {
        matches!(
            kind,
            icmpv6_type::ROUTER_SOLICITATION..=icmpv6_type::REDIRECT
                | INVERSE_SOLICITATION..=INVERSE_ADVERTISEMENT
                | CERTIFICATION_PATH_SOLICITATION..=CERTIFICATION_PATH_ADVERTISEMENT
        )
    };
    packet.ttl() == Some(255) && packet.icmpv6().is_some_and(|icmp| is_its(icmp.kind()))
}

/// Whether a packet queries or reports the listeners of a group, or looks for routers of groups. Link-local senders send it to a group,
/// with a hop limit of 1 (RFC 2710 section 3, RFC 9777 section 5, RFC 4286 section 3).
fn is_of_listeners(packet: &Packet<'_>) -> bool {
    const QUERY: u8 = 130;
    const DONE: u8 = 132;
    const REPORT_V2: u8 = 143;
    const ROUTER_ADVERTISEMENT: u8 = 151;
    const ROUTER_TERMINATION: u8 = 153;
    let is_theirs = |kind| matches!(kind, QUERY..=DONE | REPORT_V2 | ROUTER_ADVERTISEMENT..=ROUTER_TERMINATION);
    packet.ttl() == Some(1)
        && is_near(packet.src_ip())
        && packet.dst_ip().octets()[0] == 0xff
        && packet.icmpv6().is_some_and(|icmp| is_theirs(icmp.kind()))
}

/// Whether a frame is for many stations of its link, although its packet is for one host: no router forwards such (RFC 1812 section 5.3.4,
/// RFC 1122 section 3.3.6), or each router of the link would.
pub fn is_to_all_of_link(packet: &Packet<'_>) -> bool {
    packet.ethernet().is_some_and(|frame| frame.destination().is_group())
        && packet.dst_ip().v4().map_or(packet.dst_ip().octets()[0] != 0xff, is_host_v4)
}

/// Whether a group reaches further than a link but not beyond its site or organization (RFC 4291 section 2.7).
pub fn is_group_of_site(address: IpAddress) -> bool {
    let [a, b, ..] = address.octets();
    a == 0xff && (3..=8).contains(&(b & 0x0f))
}

/// Whether an IPv4 address may be a host's: not a group, broadcast, loopback or unspecified.
#[inline(always)]
pub fn is_host_v4(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..=255)
}

/// Whether an IPv6 address is a host's beyond its link: not a group, link-local, the loopback address or unspecified.
pub fn is_routed_v6(address: IpAddress) -> bool {
    let octets = address.octets();
    octets[0] != 0xff && octets != Ipv6Addr::LOCALHOST.octets() && !is_link_scope_v6(address, address)
}

/// Whether a packet has a source that no host sends from: of IPv4 what [is no host's](is_host_v4), and its mapped form in an IPv6 header
/// (RFC 6890 table 20), which would be taken for that of an IPv4 host; of IPv6 what the caller says.
pub fn has_bad_source(packet: &Packet<'_>, is_bad_v6: impl FnOnce(IpAddress) -> bool) -> bool {
    let source = packet.src_ip();
    match source.v4() {
        Some(v4) => packet.ip_version() == Some(IpVersion::V6) || !is_host_v4(v4),
        None => is_bad_v6(source),
    }
}

/// Whether an IPv4 packet goes from one host to one host. Multicast, broadcast, loopback and unspecified addresses are not
/// translated and not forwarded (RFC 1812 sections 4.2.2.11 and 5.3.7).
#[inline(always)]
pub fn is_unicast_v4(source: [u8; 4], destination: [u8; 4]) -> bool {
    is_host_v4(source) && is_host_v4(destination)
}
