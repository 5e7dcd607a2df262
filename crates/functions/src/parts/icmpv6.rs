//! ICMPv6 messages that stay on their link, as frames: neighbour discovery, router advertisements (RFC 4861), reports of groups (RFC 3810);
//! and the groups to which they go.

use braid_nf::packet::headers::{Ethernet, Header, Ipv6, ether_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, MacAddress, checksum};

pub const ALL_NODES: IpAddress = group([0, 0, 0, 1]);
pub const ALL_ROUTERS: IpAddress = group([0, 0, 0, 2]);

/// Offset of the message in a frame without extension headers.
pub const BODY: usize = Ethernet::LEN + Ipv6::LEN;

/// A group of link scope, by its last four bytes.
pub const fn group([a, b, c, d]: [u8; 4]) -> IpAddress {
    IpAddress::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
}

/// The group in which an address is asked for (RFC 4291 section 2.7.1).
pub fn solicited_node(target: IpAddress) -> IpAddress {
    let [.., a, b, c] = target.octets();
    IpAddress::from_v6([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// A group with the Ethernet address to which its frames go (RFC 2464 section 7).
pub fn to_group(group: IpAddress) -> (MacAddress, IpAddress) {
    let [.., a, b, c, d] = group.octets();
    (MacAddress([0x33, 0x33, a, b, c, d]), group)
}

/// A message as a frame, with this hop limit and perhaps a hop-by-hop header.
pub fn message(
    to: (MacAddress, IpAddress),
    from: (MacAddress, IpAddress),
    (hop_limit, hop_by_hop): (u8, &[u8]),
    body: &[u8],
) -> Vec<u8> {
    let mut frame = vec![0; BODY + hop_by_hop.len()];
    frame.extend(body);
    complete(&mut frame, to, from, (hop_limit, hop_by_hop));
    frame
}

/// Writes the headers before the message with which a frame ends, and its checksum.
pub fn complete(
    frame: &mut [u8],
    to: (MacAddress, IpAddress),
    from: (MacAddress, IpAddress),
    (hop_limit, hop_by_hop): (u8, &[u8]),
) {
    let (head, rest) = frame.split_at_mut(BODY);
    head[..6].copy_from_slice(&to.0.0);
    head[6..12].copy_from_slice(&from.0.0);
    head[12..14].copy_from_slice(&ether_type::IPV6.to_be_bytes());
    let next = if hop_by_hop.is_empty() { protocol::ICMPV6 } else { protocol::HOP_BY_HOP };
    let mut ip = Ipv6::new(next, rest.len() as u16);
    ip.set_hop_limit(hop_limit);
    ip.set_source(from.1.octets());
    ip.set_destination(to.1.octets());
    ip.emit(&mut head[Ethernet::LEN..]);
    let (before, body) = rest.split_at_mut(hop_by_hop.len());
    before.copy_from_slice(hop_by_hop);
    body[2..4].fill(0);
    let sum = checksum::transport(from.1, to.1, protocol::ICMPV6, body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
}
