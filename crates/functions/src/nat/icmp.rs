//! ICMP errors, translated with the packet that they quote (RFC 5508 section 4).
//!
//! An inbound error quotes a packet that went out, so the quoted source is an external endpoint. An outbound one quotes a
//! packet that came in, so the quoted destination is an inside endpoint; who sends it does not matter, because routers inside often have
//! addresses that are not translated. Errors do not change or prolong mappings (RFC
//! 4787 REQ-12, RFC 5508 REQ-6). They come from any router, so a filter asks whether the owner of the mapping has sent to the quoted destination.

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Embedded, IpAddress, checksum};
use braid_nf::prelude::*;

use super::Nat;
use super::find::{Course, Found};
use crate::mappings::endpoint::{Endpoint, is_told_by_port};
use crate::mappings::flows::{FILTERED, NO_MAPPING};
use crate::mappings::networks::Behind;
use crate::parts::Side;
use crate::parts::forwarding::turn::turn;
use crate::parts::headers::scope;

/// An ICMP error whose own checksum or whose quoted header's checksum is wrong.
pub const BAD_CHECKSUM: Reason = Reason("bad_checksum");

/// How to rewrite an ICMP error and the packet it quotes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuotedRewrite {
    source: Option<IpAddress>,
    destination: Option<IpAddress>,
    quoted_source: Option<Endpoint>,
    quoted_destination: Option<Endpoint>,
    to: Port,
    behind: Behind,
}

impl Nat {
    /// Handles an answer made by a function behind this one: translates it as if it came from where its cause was going,
    /// if that was translated.
    pub(super) fn turn_back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let ends = packet.addresses_v4().unwrap_or_default();
        let (source, destination) = ends;
        let is_from_inside = self.settings.side_of(packet) == Some(Side::Inside);
        let inward = self.settings.is_external(destination);
        if !inward && (!is_from_inside || self.settings.is_inside(destination) || self.settings.is_exempt(destination))
        {
            return Ok(cx.pass());
        }
        let quoted = packet.embedded().and_then(|quoted| quoted.dst_ip.v4());
        let outward = is_from_inside && self.settings.is_inside(quoted.unwrap_or(source));
        let is_translated = inward || outward && !self.settings.only_to.leaves_out(packet, Side::Inside);
        if !is_translated {
            return Ok(cx.pass());
        }
        let course = Course { outward, inward, across: cx.leaves_by() };
        let found = self.find_translation(cx, packet, ends, course)?;
        self.conclude(cx, packet, found)
    }

    /// How to translate an ICMP error, or the reason to drop it.
    pub(super) fn find_error(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        course: Course,
    ) -> Result<Result<Found, Reason>, Conflict> {
        if !is_sound(packet) {
            return Ok(Err(BAD_CHECKSUM));
        }
        let Some(quoted) = packet.embedded() else { return Ok(Err(NO_MAPPING)) };
        let Some((source, destination)) = quoted_ends(&quoted) else { return Ok(Err(NO_MAPPING)) };
        let has_ports = is_told_by_port(source.protocol);
        // A later piece quotes no ports: then only hosts with an address of their own are known.
        let is_whole = !has_ports || quoted.ports.is_some() || quoted.icmp_id.is_some();
        let mut rewrite = QuotedRewrite { to: course.across, ..QuotedRewrite::default() };
        // The error must be addressed to the sender of the quoted packet.
        if packet.dst_ip() != source.ip() {
            return Ok(Err(NO_MAPPING));
        }
        if course.inward {
            let owner = match self.settings.one_to_one.inside_of(source.address) {
                None if !has_ports => {
                    // A hairpin was quoted as its receiver saw it, which its sender knows by the external address.
                    let own = self.own_external(self.settings.inside(packet, destination));
                    self.portless_sender(cx, (source, own.filter(|_| course.outward).unwrap_or(destination)))?
                }
                own => own,
            };
            let (end, home, network) = if let Some(owner) = owner {
                (Endpoint::new(owner.address, source.port, source.protocol), owner.home, owner.network)
            } else {
                let mapping = if has_ports && is_whole { self.flows.mappings.inward(cx, source)? } else { None };
                let Some(mapping) = mapping else { return Ok(Err(NO_MAPPING)) };
                // From inside nothing is filtered.
                if !course.outward && !self.flows.has_sent(cx, &mapping, destination)? {
                    return Ok(Err(FILTERED));
                }
                (mapping.inside.end(), mapping.home, mapping.inside.network)
            };
            rewrite.destination = Some(end.ip());
            rewrite.quoted_source = Some(end);
            rewrite.to = home;
            rewrite.behind = Behind::Network(network);
        }
        if course.outward {
            let inside = self.settings.inside(packet, destination);
            let external = match self.own_external(inside) {
                None if !is_whole => None,
                None if has_ports => self.flows.mappings.external_of(cx, inside)?,
                None => self.portless_external(cx, inside, source)?,
                own => own,
            };
            let Some(external) = external else { return Ok(Err(NO_MAPPING)) };
            rewrite.source = self.source_of_error(packet, external);
            rewrite.quoted_destination = Some(external);
            if !course.inward {
                rewrite.behind = Behind::Outside;
            }
        }
        Ok(Ok(Found::Error(rewrite)))
    }

    /// The new source of an error from inside: its sender's own external address, or else that of the quoted host (RFC 5508 REQ-5 d), which
    /// hides a private one. A public router is shown, as in traces of packets that are not translated.
    fn source_of_error(&self, packet: &Packet<'_>, external: Endpoint) -> Option<IpAddress> {
        let source = packet.src_ip();
        let own = self.own_external(self.settings.inside(packet, Endpoint::new(source.v4()?, 0, protocol::ICMP)));
        let hides = |source| self.settings.is_inside(source) || scope::is_private_v4(source);
        own.or_else(|| hides(source.v4()?).then_some(external)).map(|end| end.ip())
    }

    /// Rewrites both headers and sends the error on.
    pub(super) fn send_error(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &QuotedRewrite) -> Handled {
        if let Some(end) = self.end(cx, packet, (rewrite.to, rewrite.behind), 1)? {
            return Ok(end);
        }
        let is_hairpin = rewrite.destination.is_some() && self.settings.side_of(packet) == Some(Side::Inside);
        let way = self.way(cx, packet, is_hairpin);
        packet.decrement_ttl();
        if let Some(mut quoted) = packet.embedded_mut() {
            if let Some(source) = rewrite.quoted_source
                && !(is_told_by_port(source.protocol) && quoted.set_src(source.ip(), source.port))
            {
                quoted.set_src_ip(source.ip());
                quoted.set_icmp_id(source.port);
            }
            if let Some(destination) = rewrite.quoted_destination
                && !(is_told_by_port(destination.protocol) && quoted.set_dst(destination.ip(), destination.port))
            {
                quoted.set_dst_ip(destination.ip());
                quoted.set_icmp_id(destination.port);
            }
        }
        if let Some(address) = rewrite.source {
            packet.set_src_ip(address);
        }
        if let Some(address) = rewrite.destination {
            packet.set_dst_ip(address);
            if is_hairpin && rewrite.to == packet.port() {
                turn(packet);
            }
        }
        let verdict = self.leave(packet, rewrite.to, rewrite.behind);
        Ok(way.send(cx, packet, verdict))
    }
}

/// Whether the checksums of an error are correct: that of its message, and that of the IP header it quotes (RFC 5508
/// REQ-3). Truncated captures and fragments cannot be checked and pass.
fn is_sound(packet: &Packet<'_>) -> bool {
    let message = packet.ip_payload();
    let header = message.get(8..).unwrap_or_default();
    let len = header.first().map_or(0, |byte| usize::from(byte & 15) * 4);
    let unknown = packet.is_short() || packet.is_fragment();
    unknown || (checksum::ipv4_header(message) == 0 && header.get(..len).is_none_or(checksum::ipv4_header_ok))
}

/// Both endpoints of a quoted packet; with port 0 if its protocol has no ports, or they are not quoted.
fn quoted_ends(quoted: &Embedded) -> Option<(Endpoint, Endpoint)> {
    let (source, destination) = match quoted.protocol {
        protocol::TCP | protocol::UDP => quoted.ports.unwrap_or_default(),
        protocol::ICMP => quoted.icmp_id.map_or((0, 0), |id| (id, id)),
        _ => (0, 0),
    };
    let end = |address: IpAddress, port| Some(Endpoint::new(address.v4()?, port, quoted.protocol));
    Some((end(quoted.src_ip, source)?, end(quoted.dst_ip, destination)?))
}
