//! Finds out from the mappings how to translate a packet: a first packet, or one that has no set.
//!
//! An IPv6 packet to an address under the prefix leaves over IPv4 from the mapping of its source (RFC 6146 section
//! 3.5.1); an IPv4 packet to an external endpoint goes to the mapping's owner. A packet from inside to an external
//! endpoint is a hairpin (section 3.8): both ends are translated, and it stays IPv6. All other packets are routed
//! unchanged.

use braid_nf::packet::headers::{icmp_type, icmpv6_type, tcp_flags};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Embedded, IpAddress, IpVersion, Segments};
use braid_nf::prelude::*;

use super::errors::ErrorRewrite;
use super::rewrite::Rewrite;
use super::transport::NewPorts;
use super::{Nat64, Session};
use crate::mappings::endpoint::{Endpoint, Inside};
use crate::mappings::hosts::MAPPING_TABLE_FULL;
use crate::mappings::networks::Behind;
use crate::mappings::session::{Heading, Phase};
use crate::mappings::table::Mapping;
use crate::nat::{
    ADDRESS_LEFT, CountsHops, FILTERED, NO_MAPPING, NO_NETWORK, NO_SIDE, NOT_TRANSLATABLE, NOT_UNICAST, Others,
    UNWANTED,
};
use crate::parts::headers::scope::{self, BAD_SOURCE, LINK_SCOPE, Reach};
use crate::parts::{Lead, Side};

/// An IPv6 packet to the prefix from an address that is not inside, or is under the prefix itself.
pub const NOT_INSIDE: Reason = Reason("not_inside");
/// A packet to a private IPv4 address under the well-known prefix (RFC 6052 section 3.1).
pub const NOT_GLOBAL: Reason = Reason("not_global");
/// A fragmented ICMP message: its checksum cannot be updated from a fragment.
pub const FRAGMENTED_ICMP: Reason = Reason("fragmented_icmp");

/// What to do with a packet.
pub(super) enum Found {
    /// It belongs to a flow that may be cached.
    Session(Session),
    /// It is of a TCP connection between two hosts inside, whose set says only how far it has come.
    Hairpin(Session, Rewrite),
    /// It is translated without a set.
    Once(Rewrite),
    /// It is an ICMP error, to be translated with the packet it quotes.
    Error(ErrorRewrite),
    /// It is routed unchanged.
    Routed(Port),
    /// It passes as if no router were here.
    Untouched(Port),
    /// It is for the router behind.
    Here,
    /// It is a later fragment whose first one has not arrived, and has to wait.
    Waits,
    /// It is dropped.
    No(Reason),
    /// It is dropped because no mapping can be made, and its sender is told.
    Refused(Reason),
    /// It is of a protocol that is not translated; its sender is told.
    Foreign,
}

/// The ports of a packet as the mappings know them, its protocol and its TCP flags.
struct Ends {
    number: u8,
    source: u16,
    destination: u16,
    flags: u8,
}

impl Nat64 {
    pub(super) fn find(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Found::No(NO_SIDE)) };
        let across = self.way_out.of(cx, packet.port());
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        if packet.ip_version() == Some(IpVersion::V4) {
            if scope::is_to_all_of_link(packet) {
                return Ok(Found::No(NOT_UNICAST));
            }
            // No other host may use its addresses as source, because answers would reach the owner of the port. Errors get no
            // answers, and a router beside it may send them from a shared address.
            if self.settings.pool.is_external(source) && packet.embedded().is_none() {
                return Ok(Found::No(BAD_SOURCE));
            }
            return match self.settings.pool.is_external(destination) {
                true if side == Side::Outside && !self.settings.networks.is_outside(packet) => {
                    Ok(Found::No(NO_NETWORK))
                }
                true => Ok(match self.find_inward(cx, packet)? {
                    Found::No(NO_MAPPING) if self.settings.for_router.takes(packet, destination) => Found::Here,
                    found => found,
                }),
                false if self.is_leaving(cx, destination)? => Ok(Found::No(ADDRESS_LEFT)),
                false => Ok(self.routed(destination, across)),
            };
        }
        match scope::reach_v6(packet) {
            Reach::Link => return Ok(Found::Untouched(across)),
            Reach::Nowhere(reason) => return Ok(Found::No(reason)),
            Reach::Beyond => {}
        }
        if scope::is_to_all_of_link(packet) {
            return Ok(Found::No(NOT_UNICAST));
        }
        let Some(server) = self.settings.prefix.extract(destination) else {
            // Only translators make sources under the prefix: whoever sends with one pretends to be an IPv4 host (RFC 6052 section 5.1).
            return Ok(match self.settings.prefix.contains(source) {
                true => Found::No(BAD_SOURCE),
                false => self.routed(destination, across),
            });
        };
        // A source under the prefix would be an IPv4 host; such packets would loop (RFC 6146 section 3.5).
        // An error counts by what it quotes, since any router may have sent it (RFC 6146 section 3.6).
        let is_inside = |address| self.settings.pool.inside.iter().any(|range| range.contains(address));
        let is_ours = is_inside(source) || packet.embedded().is_some_and(|quoted| is_inside(quoted.dst_ip));
        if side != Side::Inside || !is_ours || self.settings.prefix.contains(source) {
            return Ok(Found::No(NOT_INSIDE));
        }
        if self.settings.networks.of(packet) == Segments::OTHER {
            return Ok(Found::No(NO_NETWORK));
        }
        if !scope::is_unicast_v4(server, server) {
            return Ok(Found::No(NOT_UNICAST));
        }
        let is_external = self.settings.pool.is_external(IpAddress::from_v4(server));
        if !self.settings.private && !is_external && scope::is_private_v4(server) {
            return Ok(Found::No(NOT_GLOBAL));
        }
        if scope::is_link_local_v4(IpAddress::from_v4(server)) {
            return Ok(Found::No(LINK_SCOPE));
        }
        self.find_outward(cx, packet, (server, is_external), across)
    }

    /// Does the same for an answer made by a function behind this one, as if it came from where its cause was going;
    /// `None` if that was not translated.
    pub(super) fn find_back(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Found>, Conflict> {
        let to = packet.dst_ip();
        if packet.ip_version() == Some(IpVersion::V4) {
            return if self.settings.pool.is_external(to) { self.find_inward(cx, packet).map(Some) } else { Ok(None) };
        }
        let Some(server) = self.settings.prefix.extract(to) else { return Ok(None) };
        let is_hairpin = self.settings.pool.is_external(IpAddress::from_v4(server));
        self.find_outward(cx, packet, (server, is_hairpin), cx.leaves_by()).map(Some)
    }

    fn is_leaving(&self, cx: &mut Cx<'_>, address: IpAddress) -> Result<bool, Conflict> {
        address.v4().map_or(Ok(false), |v4| self.flows.mappings.roster.is_leaving(cx, v4))
    }

    fn routed(&self, to: IpAddress, across: Port) -> Found {
        match self.settings.others {
            Others::Pass if self.settings.is_for_router(to) => Found::Untouched(across),
            Others::Pass if self.settings.counts_hops == CountsHops::Translated => Found::Untouched(across),
            Others::Pass => Found::Routed(across),
            Others::Drop => Found::No(UNWANTED),
        }
    }

    /// Translates from an inside host to an IPv4 address, which may be an external one.
    fn find_outward(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (server, is_hairpin): ([u8; 4], bool),
        across: Port,
    ) -> Result<Found, Conflict> {
        let external = IpAddress::from_v4(server);
        if let Some(found) =
            self.find_special(cx, packet, external, |nat, cx| nat.error_outward(cx, packet, is_hairpin, across))?
        {
            return Ok(found);
        }
        let ends = match ends(packet, icmpv6_type::ECHO_REQUEST) {
            Ok(ends) => ends,
            Err(found) => return Ok(found),
        };
        let destination = Endpoint::new(server, ends.destination, ends.number);
        if is_hairpin
            && self.settings.for_router.takes(packet, external)
            && (ends.number == protocol::ICMP || self.flows.mappings.inward(cx, destination)?.is_none())
        {
            return Ok(Found::Here);
        }
        if is_hairpin && ends.number == protocol::ICMP {
            // An echo request has one identifier, which cannot belong to two mappings.
            return Ok(Found::No(NO_MAPPING));
        }
        // What goes no further makes no mapping. Its new addresses do not matter.
        if !is_hairpin && self.ends_here(packet, server, cx.now()) {
            let ports = NewPorts::default();
            return Ok(Found::Once(Rewrite { ends: (external, external), ports, to: across, behind: Behind::Outside }));
        }
        let source = Inside::new(self.settings.networks.of(packet), packet.src_ip(), ends.source, ends.number);
        let ours = match self.flows.outward(cx, source, packet.port(), ends.flags)? {
            Ok(mapping) => mapping,
            Err(NO_MAPPING) => return Ok(Found::No(NO_MAPPING)),
            Err(reason) => return Ok(Found::Refused(reason)),
        };
        if ends.number == protocol::ICMP && !self.flows.asks(cx, &ours, destination)? {
            return Ok(Found::No(MAPPING_TABLE_FULL));
        }
        if is_hairpin {
            return Ok(match self.flows.inward(cx, (ours.external, destination), ends.flags, true)? {
                Ok(theirs) if ends.number == protocol::TCP => {
                    let session = Session::between(ours.handle, theirs.handle, Phase::after(0, ends.flags));
                    if ends.flags & tcp_flags::RST != 0 {
                        self.flows.reset(cx, &session.held())?;
                    }
                    Found::Hairpin(session, self.hairpin(&ours, &theirs))
                }
                Ok(theirs) => Found::Once(self.hairpin(&ours, &theirs)),
                Err(reason) => Found::No(reason),
            });
        }
        let session = self.session(cx, packet, &ours, ends.flags, Heading::Outward, across);
        Ok(self.cached(packet, session))
    }

    /// Translates from an IPv4 host to an external address.
    fn find_inward(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        let (Some(from), Some(to)) = (packet.src_ip().v4(), packet.dst_ip().v4()) else {
            return Ok(Found::No(Reason::MALFORMED));
        };
        // An error may come from an address that no host has (RFC 7915 section 4.1).
        let source = if packet.embedded().is_some() { to } else { from };
        if !scope::is_unicast_v4(source, to) {
            return Ok(Found::No(NOT_UNICAST));
        }
        if scope::is_link_local_v4(IpAddress::from_v4(source)) || scope::is_link_local_v4(IpAddress::from_v4(to)) {
            return Ok(Found::No(LINK_SCOPE));
        }
        if let Some(found) = self.find_special(cx, packet, packet.dst_ip(), |nat, cx| nat.error_inward(cx, packet))? {
            return Ok(found);
        }
        let ends = match ends(packet, icmp_type::ECHO_REPLY) {
            Ok(ends) => ends,
            Err(found) => return Ok(found),
        };
        let remote = Endpoint::new(from, ends.source, ends.number);
        let external = Endpoint::new(to, ends.destination, ends.number);
        Ok(match self.flows.inward(cx, (remote, external), ends.flags, false)? {
            Ok(mapping) => {
                let session = self.session(cx, packet, &mapping, ends.flags, Heading::Inward, mapping.home);
                self.cached(packet, session)
            }
            Err(reason) => Found::No(reason),
        })
    }

    /// Handles later fragments and ICMP errors to an IPv4 address.
    fn find_special(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        to: IpAddress,
        error: impl FnOnce(&Nat64, &mut Cx<'_>) -> Result<Result<ErrorRewrite, Reason>, Conflict>,
    ) -> Result<Option<Found>, Conflict> {
        let is_icmp = matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6);
        if is_icmp && packet.is_fragment() {
            if self.settings.for_router.takes_echoes(to) {
                if packet.is_later_fragment() {
                    return self.follow(cx, packet).map(Some);
                }
                if self.settings.for_router.takes(packet, to) {
                    return Ok(Some(Found::Here));
                }
            }
            return Ok(Some(Found::No(FRAGMENTED_ICMP)));
        }
        if packet.is_later_fragment() {
            return self.follow(cx, packet).map(Some);
        }
        if packet.embedded().is_some() {
            return Ok(Some(error(self, cx)?.map_or_else(Found::No, Found::Error)));
        }
        Ok(None)
    }

    /// Sends a later fragment where the first one went.
    fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        Ok(match self.fragments.follow(cx, packet)? {
            Lead::Passed(fate) if Behind::from_bits(fate.behind) == Behind::Here => Found::Here,
            Lead::Passed(fate) => Found::Once(Rewrite::from(fate)),
            Lead::Ends(reason) => Found::No(reason),
            Lead::Unknown => Found::Waits,
        })
    }

    /// Identifiers are not fields of a packet set, so ICMP is looked up for each packet.
    fn cached(&self, packet: &Packet<'_>, session: Session) -> Found {
        match session.protocol {
            protocol::ICMP => self.rewrite_of(packet, &session).map_or(Found::No(Reason::MALFORMED), Found::Once),
            _ => Found::Session(session),
        }
    }

    fn session(
        &self,
        cx: &Cx<'_>,
        packet: &Packet<'_>,
        mapping: &Mapping,
        flags: u8,
        way: Heading,
        to: Port,
    ) -> Session {
        let (number, phase) = (mapping.inside.protocol, Phase::after(0, flags));
        let (address, port) = match way {
            Heading::Outward => (mapping.external.ip(), mapping.external.port),
            Heading::Inward => (mapping.inside.address, mapping.inside.port),
        };
        let mut session = Session {
            handle: mapping.handle,
            address,
            port,
            from: packet.port(),
            to,
            network: mapping.inside.network,
            protocol: number,
            phase: phase as u8,
            way: way as u8,
            ..Session::default()
        };
        session.look_by(cx.now(), self.flows.look_first_ns(cx.now(), mapping, number, way, phase));
        session
    }

    fn hairpin(&self, ours: &Mapping, theirs: &Mapping) -> Rewrite {
        Rewrite {
            ends: (self.settings.prefix.embed(ours.external.address), theirs.inside.address),
            ports: NewPorts { source: Some(ours.external.port), destination: Some(theirs.inside.port) },
            to: theirs.home,
            behind: Behind::Network(theirs.inside.network),
        }
    }

    /// Translates an error from inside, about a packet that came in (RFC 6146 section 3.5, RFC 7915 section 5.2).
    fn error_outward(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        is_hairpin: bool,
        across: Port,
    ) -> Result<Result<ErrorRewrite, Reason>, Conflict> {
        let quoted = packet.embedded().and_then(|quoted| Some((quoted, quoted_ports(&quoted)?)));
        let Some((quoted, (number, source, destination))) = quoted else { return Ok(Err(NO_MAPPING)) };
        // It must be addressed to the sender of the quoted packet.
        let server = self.settings.prefix.extract(quoted.src_ip).filter(|_| quoted.src_ip == packet.dst_ip());
        let inside = Inside::new(self.settings.networks.of(packet), quoted.dst_ip, destination, number);
        let (Some(server), Some(external)) = (server, self.flows.mappings.external_of(cx, inside)?) else {
            return Ok(Err(NO_MAPPING));
        };
        if is_hairpin {
            let Some(theirs) = self.flows.mappings.inward(cx, Endpoint::new(server, source, number))? else {
                return Ok(Err(NO_MAPPING));
            };
            let ours = self.settings.prefix.embed(external.address);
            return Ok(Ok(ErrorRewrite {
                ends: (ours, theirs.inside.address),
                quoted: (theirs.inside.address, ours),
                ports: NewPorts { source: Some(theirs.inside.port), destination: Some(external.port) },
                to: theirs.home,
                behind: Behind::Network(theirs.inside.network),
            }));
        }
        // A router inside has no mapping of its own, so the quoted host's address is used (RFC 5508 REQ-5).
        let (server, ours) = (IpAddress::from_v4(server), external.ip());
        let ports = NewPorts { source: None, destination: Some(external.port) };
        let behind = Behind::Outside;
        Ok(Ok(ErrorRewrite { ends: (ours, server), quoted: (server, ours), ports, to: across, behind }))
    }

    /// Translates an error from outside, about a packet that went out.
    fn error_inward(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Result<ErrorRewrite, Reason>, Conflict> {
        let quoted = packet.embedded().filter(|quoted| quoted.src_ip == packet.dst_ip());
        let quoted = quoted.and_then(|quoted| Some((quoted, quoted_ports(&quoted)?)));
        let Some((quoted, (number, source, destination))) = quoted else { return Ok(Err(NO_MAPPING)) };
        let (Some(external), Some(server), Some(router)) =
            (quoted.src_ip.v4(), quoted.dst_ip.v4(), packet.src_ip().v4())
        else {
            return Ok(Err(NO_MAPPING));
        };
        let Some(mapping) = self.flows.mappings.inward(cx, Endpoint::new(external, source, number))? else {
            return Ok(Err(NO_MAPPING));
        };
        if !self.flows.has_sent(cx, &mapping, Endpoint::new(server, destination, number))? {
            return Ok(Err(FILTERED));
        }
        let host = mapping.inside.address;
        Ok(Ok(ErrorRewrite {
            ends: (self.settings.prefix.embed(router), host),
            quoted: (host, self.settings.prefix.embed(server)),
            ports: NewPorts { source: Some(mapping.inside.port), destination: None },
            to: mapping.home,
            behind: Behind::Network(mapping.inside.network),
        }))
    }
}

/// Ports of TCP and UDP, or the identifier of an echo message if its type may go in this direction.
fn ends(packet: &Packet<'_>, echo: u8) -> Result<Ends, Found> {
    let number = packet.protocol();
    let (number, ports, flags) = match number {
        protocol::TCP => (number, packet.ports(), packet.tcp_flags()),
        protocol::UDP => (number, packet.ports(), Some(0)),
        protocol::ICMP | protocol::ICMPV6 => {
            let kind = packet.icmp().map(|icmp| icmp.kind()).or_else(|| packet.icmpv6().map(|icmp| icmp.kind()));
            if kind.is_some_and(|kind| kind != echo) {
                return Err(Found::No(NO_MAPPING));
            }
            // A message of the other version means nothing here.
            if kind.is_none() {
                return Err(Found::No(NOT_TRANSLATABLE));
            }
            (protocol::ICMP, packet.icmp_id().map(|id| (id, id)), Some(0))
        }
        _ => return Err(Found::Foreign),
    };
    match (ports, flags) {
        (Some((source, destination)), Some(flags)) => Ok(Ends { number, source, destination, flags }),
        _ => Err(Found::No(Reason::MALFORMED)),
    }
}

/// The protocol, as mappings know it, and the ports of a quoted packet.
fn quoted_ports(quoted: &Embedded) -> Option<(u8, u16, u16)> {
    match quoted.protocol {
        number @ (protocol::TCP | protocol::UDP) => {
            quoted.ports.map(|(source, destination)| (number, source, destination))
        }
        protocol::ICMP | protocol::ICMPV6 => quoted.icmp_id.map(|id| (protocol::ICMP, id, id)),
        _ => None,
    }
}
