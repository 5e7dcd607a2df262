//! What a router checks in a packet, and the reasons not to forward it.

use braid_nf::Packet;
use braid_nf::packet::headers::{Ethernet, Header, Ipv4, Ipv6, Vlan, ether_type};
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::Reason;

pub use crate::parts::headers::lengths::ip_len;
pub use crate::parts::headers::scope::{BAD_SOURCE, LINK_SCOPE, NOT_UNICAST};
use crate::parts::headers::scope::{
    has_bad_source, is_link_local_v4, is_link_local_v6, is_link_scope_v6, is_routed_v6, is_unicast_v4,
};

/// Neither IP nor ARP, or IP behind labels of MPLS or in a session of PPPoE.
pub const NOT_IP: Reason = Reason("not_ip");
/// A frame for another station on the link.
pub const OTHER_STATION: Reason = Reason("other_station");
/// The checksum of the IPv4 header, or of a message for this router, is wrong.
pub const BAD_CHECKSUM: Reason = Reason("bad_checksum");
/// Its sender says by way of whom it goes.
pub const SOURCE_ROUTED: Reason = Reason("source_routed");

/// Whether an IP packet is no shorter than its header and no longer than the frame that carried it (RFC 1812 section 5.2.2).
#[inline(always)]
pub fn length_is_right(packet: &Packet<'_>) -> bool {
    let header = packet.ipv4().map_or(Ipv6::LEN, |ip| ip.header_len());
    let most = (packet.wire_len() as usize).saturating_sub(usize::from(packet.record().l3));
    (header..=most).contains(&ip_len(packet))
}

/// Whether a packet stands behind labels of MPLS or in a session of PPPoE, which no interface here has.
#[inline(always)]
pub fn is_wrapped(packet: &Packet<'_>) -> bool {
    let l3 = usize::from(packet.record().l3);
    // Between the two headers there is room for one tag.
    let has_tag = || packet.ethernet().is_some_and(|ethernet| ethernet.ether_type() == ether_type::VLAN);
    l3 > Ethernet::LEN && !(l3 == Ethernet::LEN + Vlan::LEN && has_tag()) && is_behind_labels(packet)
}

#[inline(never)]
fn is_behind_labels(packet: &Packet<'_>) -> bool {
    use ether_type::{MPLS, MPLS_UPSTREAM, PPPOE_SESSION};
    matches!(packet.ether_type(), Some(MPLS | MPLS_UPSTREAM | PPPOE_SESSION))
}

/// Whether a packet has a loose or strict source route option (RFC 791 section 3.1).
pub fn has_source_route(packet: &Packet<'_>) -> bool {
    const LOOSE: u8 = 0x83;
    const STRICT: u8 = 0x89;
    let header = packet.bytes().get(usize::from(packet.record().l3)..).filter(|_| has_options(packet));
    let mut options = header.and_then(Ipv4::parse).into_iter().flat_map(|ip| ip.options());
    options.any(|option| matches!(option.kind, LOOSE | STRICT))
}

/// Whether an IPv4 header has options.
#[inline(always)]
pub fn has_options(packet: &Packet<'_>) -> bool {
    packet.ipv4().is_some_and(|ip| ip.header_len() > Ipv4::LEN)
}

/// Whether a packet must not be fragmented: IPv6, or IPv4 with the don't-fragment bit.
pub fn is_whole(packet: &Packet<'_>) -> bool {
    packet.ipv4().is_none_or(|ip| ip.dont_fragment())
}

/// What is wrong with a packet regardless of its destination.
pub fn to_any(packet: &Packet<'_>) -> Option<Reason> {
    if packet.ethernet().is_none() || !packet.is_ip() || is_wrapped(packet) {
        return Some(NOT_IP);
    }
    if !packet.header_checksum_ok() {
        return Some(BAD_CHECKSUM);
    }
    if !length_is_right(packet) {
        return Some(Reason::MALFORMED);
    }
    // A host that asks whether its address is another's has none yet (RFC 4862 section 5.4.2).
    if has_bad_source(packet, |source| source.octets()[0] == 0xff || source == LOOPBACK_V6) {
        return Some(BAD_SOURCE);
    }
    // An IPv4 address in the mapped form is none of a packet.
    (packet.ip_version() == Some(IpVersion::V6) && packet.dst_ip().is_v4()).then_some(NOT_UNICAST)
}

/// Whether a packet goes from a link-local address to one that may be beyond its link: where its way leads to another link, its sender is told
/// so (RFC 4007 section 9).
pub fn leaves_its_link(packet: &Packet<'_>) -> bool {
    is_link_local_v6(packet.src_ip()) && is_routed_v6(packet.dst_ip())
}

const LOOPBACK_V6: IpAddress = IpAddress::from_v6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

/// Whether a packet is a message of neighbour discovery whose hop limit says that it comes from the link (RFC 4861 section 3.1, RFC 3971
/// section 6.4). Forwarded by a router that counts no hops, as one behind a translator, it would say so on another link.
pub fn proves_its_link(packet: &Packet<'_>) -> bool {
    const KINDS: [std::ops::RangeInclusive<u8>; 2] = [133..=137, 148..=149];
    let is_of_link = |kind: u8| KINDS.iter().any(|kinds| kinds.contains(&kind));
    packet.ttl() == Some(u8::MAX) && packet.icmpv6().is_some_and(|icmp| is_of_link(icmp.kind()))
}

/// Why a packet that is not for this router must not be forwarded (RFC 1812 section 5.3.7, RFC 4291 section 2).
pub fn to_forwarding(packet: &Packet<'_>) -> Option<Reason> {
    let (source, destination) = (packet.src_ip(), packet.dst_ip());
    match packet.ip_version()? {
        IpVersion::V4 => {
            if !is_unicast_v4(source.v4()?, destination.v4()?) {
                return Some(NOT_UNICAST);
            }
            (is_link_local_v4(source) || is_link_local_v4(destination)).then_some(LINK_SCOPE)
        }
        IpVersion::V6 => {
            let is_unicast =
                destination.octets()[0] != 0xff && destination != LOOPBACK_V6 && destination != IpAddress::UNSPECIFIED;
            if !is_unicast {
                return Some(NOT_UNICAST);
            }
            (is_link_scope_v6(source, destination) || proves_its_link(packet)).then_some(LINK_SCOPE)
        }
    }
}
