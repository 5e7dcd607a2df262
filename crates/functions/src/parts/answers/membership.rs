//! Memberships of a host that answers for IPv6 addresses: the groups by which neighbours ask for it, which it reports to switches that
//! send groups only to who wants them (MLD; RFC 3810, RFC 2710, RFC 4541 section 3).

use braid_nf::Packet;
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, MacAddress};

use super::icmpv6::{
    ALL_NODES, ALL_ROUTERS, ALL_ROUTERS_OF_SITE, Envelope, Node, group, message, solicited_node, to_group,
};
use crate::parts::headers::scope::is_link_local_v6;

/// ICMPv6 types (RFC 2710 section 3.1, RFC 3810 section 5.2).
const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const REPORT_V2: u8 = 143;
/// The length of a query of MLDv1; those of MLDv2 are longer (RFC 3810 section 8.1).
const QUERY_V1_LEN: usize = 24;
/// To which reports of MLDv2 go.
const ALL_MLD_V2_ROUTERS: IpAddress = group([0, 0, 0, 0x16]);
/// A hop-by-hop header with a router alert for MLD (RFC 2711) and two bytes of padding, before ICMPv6.
const ROUTER_ALERT: [u8; 8] = [protocol::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// The most groups in one report.
const GROUPS_MAX: usize = 16;

/// What a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Only this group; `None`: all.
    group: Option<IpAddress>,
    /// Whether the querier knows no MLDv2.
    is_v1: bool,
}

impl Query {
    /// Reads a query that a host has to answer (RFC 3810 section 6.2, RFC 2710 section 4): from a neighbour's link-local address, with hop
    /// limit 1 and a router alert.
    pub fn of(packet: &Packet<'_>) -> Option<Query> {
        let is_query = packet.icmpv6().is_some_and(|icmp| icmp.kind() == QUERY);
        if !is_query || !is_of_link(packet) || !is_link_local_v6(packet.src_ip()) || !packet.checksums_ok() {
            return None;
        }
        let body = packet.ip_payload();
        let asked = IpAddress::from_v6(*body.get(8..)?.first_chunk()?);
        let group = (asked != IpAddress::UNSPECIFIED).then_some(asked);
        let is_addressed = packet.dst_ip() == group.unwrap_or(ALL_NODES);
        is_addressed.then_some(Query { group, is_v1: body.len() == QUERY_V1_LEN })
    }
}

/// Whether a message of MLD is from a neighbour: it has hop limit 1 and, in a hop-by-hop header, a router alert (RFC 2710 section 3, RFC 3810
/// section 5).
pub fn is_of_link(packet: &Packet<'_>) -> bool {
    packet.ttl() == Some(1) && has_router_alert(packet)
}

/// Whether the first extension header has a router alert for MLD (RFC 2711 section 2.1).
fn has_router_alert(packet: &Packet<'_>) -> bool {
    let Some(first) = packet.ipv6().and_then(|ip| ip.extensions().next()) else { return false };
    let mut options = first.bytes.get(2..).filter(|_| first.number == protocol::HOP_BY_HOP).unwrap_or_default();
    loop {
        options = match options {
            [5, 2, 0, 0, ..] => return true,
            // The only option without a length.
            [0, rest @ ..] => rest,
            [_, len, rest @ ..] => rest.get(usize::from(*len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}

/// The groups of a router with these addresses: of all routers of the link and of the site, and the solicited-node group of each (RFC
/// 4291 section 2.7.1).
fn groups(addresses: impl Iterator<Item = IpAddress>) -> Vec<IpAddress> {
    let mut groups: Vec<IpAddress> = addresses.filter(|own| !own.is_v4()).map(solicited_node).collect();
    if !groups.is_empty() {
        groups.extend([ALL_ROUTERS, ALL_ROUTERS_OF_SITE]);
    }
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The frames with which a router reports its groups: those that a query asks for, or all if it joins them unasked.
pub fn reports(mac: MacAddress, addresses: &[IpAddress], query: Option<Query>) -> Vec<Vec<u8>> {
    let own = addresses.iter().copied().find(|own| is_link_local_v6(*own)).unwrap_or(IpAddress::UNSPECIFIED);
    let asked = query.and_then(|query| query.group);
    let mut all = groups(addresses.iter().copied());
    all.retain(|group| asked.is_none_or(|asked| asked == *group));
    let frame = |to: IpAddress, body: Vec<u8>| {
        let from = Node { mac, address: own };
        message(&Envelope { to: to_group(to), from, hop_limit: 1, hop_by_hop: &ROUTER_ALERT }, &body)
    };
    if query.is_some_and(|query| query.is_v1) {
        let report =
            |group: &IpAddress| frame(*group, [&[REPORT_V1, 0, 0, 0, 0, 0, 0, 0][..], &group.octets()].concat());
        return all.iter().map(report).collect();
    }
    // "Is exclude" of no source as an answer, "change to exclude" unasked: the group from everybody.
    let kind = if query.is_some() { 2 } else { 4 };
    let report = |some: &[IpAddress]| {
        let mut body = vec![REPORT_V2, 0, 0, 0, 0, 0, 0, some.len() as u8];
        some.iter().for_each(|group| body.extend([&[kind, 0, 0, 0][..], &group.octets()].concat()));
        frame(ALL_MLD_V2_ROUTERS, body)
    };
    all.chunks(GROUPS_MAX).map(report).collect()
}
