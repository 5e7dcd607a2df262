//! Two extension headers of IPv6.
//!
//! To rules packets with an authentication header are of protocol 51, as over IPv4: what stands behind that header is its
//! receiver's to judge (nf_tables: `IP6_FH_F_AUTH` of `ipv6_find_hdr`). Packet sets go by what stands behind it, as in
//! conntrack.
//!
//! Packets with a routing header of type 0 go on to whom they name next, whatever the rules say of their destination: they
//! are dropped (RFC 6092 REC-4, RFC 5095).

use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Header, Ipv6};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::record::Flags;
use serde::Deserialize;

/// What happens to packets with a routing header of type 0 that have not come to the last address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutingHeader0 {
    /// They are dropped.
    Drop,
    /// Rules decide.
    Pass,
}

/// Whether a packet of IPv6 has extension headers.
#[inline(always)]
pub(in crate::firewall) fn are_in(packet: &Packet<'_>) -> bool {
    const PLAIN: u8 = (Ipv6::LEN / 4) as u8;
    let record = packet.record();
    record.flags.has(Flags::V6) && record.l4 != PLAIN
}

/// The offset in the frame of the authentication header that a packet of IPv6 has.
#[inline(always)]
pub(in crate::firewall) fn authentication_of(packet: &Packet<'_>) -> Option<usize> {
    if are_in(packet) { look_for(packet) } else { None }
}

/// Whether a packet is to go on by a routing header of type 0.
#[inline(always)]
pub(in crate::firewall) fn are_routing(packet: &Packet<'_>) -> bool {
    are_in(packet) && has_segments_left(packet)
}

#[cold]
fn has_segments_left(packet: &Packet<'_>) -> bool {
    packet.ipv6().is_some_and(|ip| {
        // Type and segments left (RFC 8200 section 4.4).
        ip.extensions()
            .any(|one| one.number == protocol::ROUTING && matches!(one.bytes, [_, _, 0, left, ..] if *left > 0))
    })
}

#[cold]
fn look_for(packet: &Packet<'_>) -> Option<usize> {
    let mut at = usize::from(packet.record().l3) + Ipv6::LEN;
    for extension in packet.ipv6()?.extensions() {
        if extension.number == protocol::AH {
            return Some(at);
        }
        at += extension.bytes.len();
    }
    None
}

/// The protocol of a packet to rules.
#[inline(always)]
pub(in crate::firewall) fn protocol_of(packet: &Packet<'_>) -> u8 {
    if authentication_of(packet).is_some() { protocol::AH } else { packet.protocol() }
}
