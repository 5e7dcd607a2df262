//! ICMPv6 messages that stay on their link, as frames: neighbour discovery, router advertisements (RFC 4861), reports of groups (RFC 3810);
//! and the groups to which they go.

use braid_nf::packet::headers::{Ethernet, Header, Ipv6, ether_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, MacAddress, checksum};

pub const ALL_NODES: IpAddress = group([0, 0, 0, 1]);
pub const ALL_ROUTERS: IpAddress = group([0, 0, 0, 2]);
/// All routers of a site (RFC 4291 section 2.7.1).
pub const ALL_ROUTERS_OF_SITE: IpAddress = IpAddress::from_v6([0xff, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);

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

/// A node on a link, or a group of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    pub mac: MacAddress,
    pub address: IpAddress,
}

/// A group with the Ethernet address to which its frames go (RFC 2464 section 7).
pub fn to_group(group: IpAddress) -> Node {
    let [.., a, b, c, d] = group.octets();
    Node { mac: MacAddress([0x33, 0x33, a, b, c, d]), address: group }
}

/// What stands before a message.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    pub to: Node,
    pub from: Node,
    pub hop_limit: u8,
    /// A hop-by-hop header, or nothing.
    pub hop_by_hop: &'a [u8],
}

/// A message as a frame.
pub fn message(envelope: &Envelope<'_>, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; BODY + envelope.hop_by_hop.len()];
    frame.extend(body);
    complete(&mut frame, envelope);
    frame
}

/// Writes the headers before the message with which a frame ends, and its checksum.
pub fn complete(frame: &mut [u8], &Envelope { to, from, hop_limit, hop_by_hop }: &Envelope<'_>) {
    let (head, rest) = frame.split_at_mut(BODY);
    head[..6].copy_from_slice(&to.mac.0);
    head[6..12].copy_from_slice(&from.mac.0);
    head[12..14].copy_from_slice(&ether_type::IPV6.to_be_bytes());
    let next = if hop_by_hop.is_empty() { protocol::ICMPV6 } else { protocol::HOP_BY_HOP };
    let mut ip = Ipv6::new(next, rest.len() as u16);
    ip.set_hop_limit(hop_limit);
    ip.set_source(from.address.octets());
    ip.set_destination(to.address.octets());
    ip.emit(&mut head[Ethernet::LEN..]);
    let (before, body) = rest.split_at_mut(hop_by_hop.len());
    before.copy_from_slice(hop_by_hop);
    body[2..4].fill(0);
    let sum = checksum::transport(from.address, to.address, protocol::ICMPV6, body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
}
