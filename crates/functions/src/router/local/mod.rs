//! Packets for the router itself: neighbours' queries and answers, and echo requests. Anything else is answered with an error or
//! a reset, or dropped.

pub(super) mod announced;
pub(super) mod conflicts;
pub(super) mod gathered;
pub(super) mod headers;
pub(super) mod piece;
pub(super) mod pieces;
pub(super) mod reassembly;

use braid_nf::packet::headers::{Arp, ArpOperation, Ethernet, Header, Icmp, icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;
use braid_nf::{Cx, Handled};

use self::headers::{NOTHING, Objection};
use self::pieces::echo_whole;
use super::interface::Interface;
use super::neighbours::{Says, Station};
use super::objections::BAD_CHECKSUM;
use super::{Complaint, Router, Way, fragment};
use crate::parts::answers::answer;
use crate::parts::answers::discovery::{self, By, Message};
use crate::parts::answers::icmpv6::{ALL_NODES, ALL_ROUTERS, ALL_ROUTERS_OF_SITE, Node, solicited_node};
use crate::parts::answers::membership::Query;
use crate::parts::headers::lengths;

/// An ARP packet, which has been processed.
pub(super) const ARP: Reason = Reason("arp");
/// A neighbour discovery message, which has been processed.
pub(super) const DISCOVERY: Reason = Reason("neighbour_discovery");
/// A query of MLD, which has been processed.
pub(super) const MEMBERSHIP_QUERY: Reason = Reason("membership_query");
/// For this router, which does not support it.
pub(super) const FOR_ROUTER: Reason = Reason("for_this_router");

/// Whether a packet is a neighbour solicitation or advertisement.
pub fn is_discovery(packet: &Packet<'_>) -> bool {
    let kinds = [icmpv6_type::NEIGHBOUR_SOLICITATION, icmpv6_type::NEIGHBOUR_ADVERTISEMENT];
    packet.icmpv6().is_some_and(|icmp| kinds.contains(&icmp.kind()))
}

/// Whether a packet is an echo request to a group of the router at this interface: all nodes and all routers of the link, all routers of the
/// site, and those in which its addresses are asked for (RFC 4291 sections 2.7.1 and 2.8).
#[inline]
pub fn is_ping_of_group(packet: &Packet<'_>, interface: &Interface) -> bool {
    packet.dst_ip().octets()[0] == 0xff && is_ping_of_own_group(packet, interface)
}

#[cold]
fn is_ping_of_own_group(packet: &Packet<'_>, interface: &Interface) -> bool {
    let group = packet.dst_ip();
    let asks_for = |(own, _): &(IpAddress, u8)| !own.is_v4() && solicited_node(*own) == group;
    packet.icmpv6().is_some_and(|icmp| icmp.kind() == icmpv6_type::ECHO_REQUEST)
        && ([ALL_NODES, ALL_ROUTERS, ALL_ROUTERS_OF_SITE].contains(&group) || interface.addresses.iter().any(asks_for))
}

/// Whether a packet to an address that a translator has too is left to it: everything but the pings that the router itself answers.
pub fn is_left_to_translator(packet: &Packet<'_>) -> bool {
    packet.protocol() != protocol::ICMP || packet.icmp().is_some_and(|icmp| icmp.is_error())
}

impl Router {
    /// Answers queries for the router's own addresses, and learns from the asker and from answers (RFC 826). As in Linux (`arp_process`), only an
    /// answer to this router shows that its sender hears it.
    pub(super) fn arp(&self, cx: &mut Cx<'_>, interface: &Interface, (port, arp): (Port, &Arp)) -> Handled {
        let (sender, target) = (arp.sender_ip(), arp.target_ip());
        let station = Station { mac: arp.sender_mac().0, port };
        self.conflicts.hear(cx, interface, (sender, station))?;
        // No station has the Ethernet address of a group (RFC 1812 section 3.3.2), and no other one the router's. As in Linux, other operations
        // (RARP, InARP) teach nothing.
        let is_known = matches!(arp.operation(), ArpOperation::Request | ArpOperation::Reply);
        if arp.sender_mac().is_group() || arp.sender_mac() == interface.mac || !is_known {
            return Ok(Verdict::Drop(ARP));
        }
        // Nobody has the broadcast address of a network (RFC 1122 section 3.2.1.3 (d)).
        if self.links.is_broadcast(sender) {
            return Ok(Verdict::Drop(ARP));
        }
        let is_neighbour = self.is_on_link(interface, sender) && !interface.owns(sender);
        let says = match (interface.owns(target), arp.operation()) {
            (true, ArpOperation::Request) => Says::Asks,
            (true, _) => Says::Answers,
            // It announces itself, or speaks with others.
            (false, _) => Says::Announces,
        };
        if is_neighbour {
            self.hear(cx, interface, (sender, Some(arp.sender_mac()), port), says)?;
        }
        if says == Says::Asks
            && let (Some(own), Some(asker)) = (target.v4(), sender.v4())
        {
            interface.say(cx, port, Message::arp_reply(arp, interface.mac, own, asker).bytes());
        }
        Ok(Verdict::Drop(ARP))
    }

    /// The counterpart of [`arp`](Self::arp) for IPv6 (RFC 4861 sections 7.1 and 7.2).
    pub(super) fn discovery(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, interface: &Interface) -> Handled {
        if packet.ttl() != Some(255) || !packet.checksums_ok() {
            return Ok(Verdict::Drop(DISCOVERY));
        }
        let (body, source) = (packet.ip_payload(), packet.src_ip());
        if !discovery::is_valid(body, source, packet.dst_ip()) {
            return Ok(Verdict::Drop(DISCOVERY));
        }
        let asks = packet.icmpv6().is_some_and(|icmp| icmp.kind() == icmpv6_type::NEIGHBOUR_SOLICITATION);
        let option = if asks { 1 } else { 2 };
        let Some((target, mac)) = discovery::heard(body, option) else { return Ok(Verdict::Drop(DISCOVERY)) };
        let from = mac.or(packet.ethernet().map(Ethernet::source)).unwrap_or_default();
        let sender = Station { mac: from.0, port: packet.port() };
        self.conflicts.hear(cx, interface, (if asks { source } else { target }, sender))?;
        // A solicitation for another node does not concern this router (section 7.2.3).
        let by = match interface.owns(target) {
            true => By::Router,
            false if interface.is_anycast(target) => By::OneRouter,
            false if asks => return Ok(Verdict::Drop(DISCOVERY)),
            false => By::Router,
        };
        let (teller, says) = match (asks, discovery::is_solicited(body), discovery::overrides(body)) {
            (true, ..) => (source, Says::Asks),
            (false, true, true) => (target, Says::Answers),
            (false, true, false) => (target, Says::MayBeHere),
            (false, false, true) => (target, Says::Announces),
            (false, false, false) => (target, Says::MayBeHereUnasked),
        };
        // No other station has this router's Ethernet address. Only an advertisement may go without one.
        let is_told = mac.map_or(!asks, |mac| mac != interface.mac);
        if is_told && self.is_on_link(interface, teller) && !interface.owns(teller) {
            self.hear(cx, interface, (teller, mac, packet.port()), says)?;
        }
        if asks {
            let answer = Message::advertisement(interface.mac, target, Node { mac: from, address: source }, by);
            interface.say(cx, packet.port(), answer.bytes());
        }
        Ok(Verdict::Drop(DISCOVERY))
    }

    /// Answers a query for the groups of an interface, so that switches that follow MLD send solicitations for its addresses here.
    #[cold]
    pub(super) fn answer_query(&self, cx: &mut Cx<'_>, port: Port, interface: &Interface, query: Query) -> Handled {
        if self.errors.admits_by(cx, port)? {
            interface.report_groups(cx, port, Some(query));
        }
        Ok(Verdict::Drop(MEMBERSHIP_QUERY))
    }

    /// Whether an address is a neighbour's at an interface: in one of its networks, or where a route without a gateway leads out by it.
    fn is_on_link(&self, interface: &Interface, address: IpAddress) -> bool {
        let link = self.links.at(interface.port, interface.vlan.unwrap_or(0));
        interface.reaches(address) || matches!(self.tables.main(address), Some(Way::To(to, None)) if *to == link)
    }

    /// Receives a packet for one of the router's own addresses.
    pub(super) fn receive(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, interface: &Interface) -> Handled {
        if packet.is_fragment() {
            return self.receive_piece(cx, packet, interface);
        }
        let datagram = packet.bytes().get(usize::from(packet.record().l3)..).unwrap_or_default();
        let number_at = match headers::walk(datagram) {
            Ok(at) => at,
            Err(Objection::Told(complaint)) => return self.errors.send(cx, packet, interface, complaint, FOR_ROUTER),
            Err(Objection::Silent) => return Ok(Verdict::Drop(FOR_ROUTER)),
        };
        if !lengths::hold_the_headers(packet) {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        // Over IPv6 a UDP datagram must have a checksum (RFC 8200 section 8.1).
        let lacks_one = !packet.dst_ip().is_v4() && packet.udp().is_some_and(|udp| udp.checksum() == 0);
        if lacks_one || !packet.checksums_ok() {
            return Ok(Verdict::Drop(BAD_CHECKSUM));
        }
        match Answer::to(packet.dst_ip().version(), (packet.protocol(), number_at), packet.ip_payload()) {
            // The reply must not have the extension headers of the request.
            Answer::Echo if number_at > headers::FIRST => {
                echo_whole(cx, packet, interface, datagram, packet.ip_payload());
            }
            Answer::Echo => echo_back(cx, packet, interface, packet.dst_ip()),
            Answer::Reset => {
                if self.errors.admits(cx, packet)? {
                    answer::refuse(cx, packet, packet.dst_ip());
                }
            }
            Answer::Error(complaint) => return self.errors.send(cx, packet, interface, complaint, FOR_ROUTER),
            Answer::Nothing => {}
        }
        Ok(Verdict::Drop(FOR_ROUTER))
    }

    /// Answers an echo request to an address that other nodes have too, from one that only this router has (RFC 4443 section 4.2). Anything
    /// else to such an address is dropped.
    #[cold]
    pub(super) fn answer_as_one_of_all(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        interface: &Interface,
    ) -> Handled {
        let asks = packet.icmpv6().is_some_and(|icmp| icmp.kind() == icmpv6_type::ECHO_REQUEST);
        let has_extensions = packet.ipv6().is_none_or(|ip| ip.extensions().next().is_some());
        if !lengths::hold_the_headers(packet) || !packet.checksums_ok() {
            return Ok(Verdict::Drop(BAD_CHECKSUM));
        }
        if asks
            && !has_extensions
            && packet.src_ip() != IpAddress::UNSPECIFIED
            && let Some(own) = interface.address_towards(packet.src_ip())
            && self.errors.admits_by(cx, packet.port())?
        {
            echo_back(cx, packet, interface, own);
        }
        Ok(Verdict::Drop(FOR_ROUTER))
    }
}

/// How a packet for the router is answered.
pub(super) enum Answer {
    /// With an echo reply.
    Echo,
    /// With a reset, because there is no such connection.
    Reset,
    Error(Complaint),
    /// Not at all.
    Nothing,
}

impl Answer {
    /// The answer to a packet of protocol `number`, which is named at offset `at`; `body` is what follows the IP headers.
    pub(super) fn to(version: IpVersion, (number, at): (u8, u32), body: &[u8]) -> Answer {
        let kind = Icmp::parse(body).map(|icmp| icmp.kind());
        match number {
            protocol::ICMP if version == IpVersion::V4 && kind == Some(icmp_type::ECHO_REQUEST) => Answer::Echo,
            protocol::ICMPV6 if version == IpVersion::V6 && kind == Some(icmpv6_type::ECHO_REQUEST) => Answer::Echo,
            protocol::ICMP | protocol::ICMPV6 => Answer::Nothing,
            protocol::TCP => Answer::Reset,
            protocol::UDP => Answer::Error(Complaint::NoPort),
            NOTHING if version == IpVersion::V6 => Answer::Nothing,
            _ => Answer::Error(Complaint::NoProtocol(at)),
        }
    }
}

/// Turns an echo request into its reply and sends it back to where it came from (RFC 1812 section 4.3.3.6, RFC 4443 section
/// 4.2), through the functions that have changed the request; fragmented if it is too long for its link (RFC 1812 section 4.2.2.7).
fn echo_back(cx: &mut Cx<'_>, packet: &mut Packet<'_>, interface: &Interface, own: IpAddress) {
    let source = packet.src_ip();
    let asker = packet.ethernet().map(Ethernet::source).unwrap_or_default();
    packet.set_src_ip(own);
    packet.set_dst_ip(source);
    let is_v4 = IpAddress::is_v4(&source);
    let l3 = usize::from(packet.record().l3);
    packet.change(if is_v4 { l3 + 8..l3 + 9 } else { l3 + 7..l3 + 8 }).fill(64);
    if let Some(at) = packet.l4_offset() {
        packet.change(at..at + 1).fill(if is_v4 { icmp_type::ECHO_REPLY } else { icmpv6_type::ECHO_REPLY });
    }
    packet.fill_checksums();
    lengths::cut_tail(packet);
    packet.set_eth_src(interface.mac);
    packet.set_eth_dst(asker);
    let (port, frame, mtu) = (packet.port(), packet.bytes(), interface.mtu);
    match frame.len() - l3 <= usize::from(mtu) {
        true => cx.emit_back(port, frame),
        false if is_v4 => {
            fragment::cut_frame(frame, l3, mtu, |piece| cx.emit_back(port, piece));
        }
        false => {
            // The requests of an asker are told apart by their identifiers and numbers, which its replies have too.
            let numbers = packet.ip_payload().get(4..).and_then(|rest| rest.first_chunk());
            let identification = numbers.copied().map_or(0, u32::from_be_bytes);
            fragment::cut_own_v6(frame, l3, mtu, identification, |piece| cx.emit_back(port, piece));
        }
    }
}
