//! ICMP errors, translated with the packet that they quote (RFC 5508 section 4).
//!
//! An error that comes in quotes a packet that went out: its quoted source is an external endpoint. One that goes out quotes
//! a packet that came in: its quoted destination is an inside endpoint. Errors change no mapping and prolong none (RFC 4787
//! REQ-12, RFC 5508 REQ-6), and pass in both directions whatever the filtering: the quoted packet proves the flow.

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Embedded, IpAddress};
use braid_nf::prelude::*;

use super::Nat;
use super::find::Course;
use super::mappings::Endpoint;

/// How an ICMP error and its quoted packet are rewritten.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QuotedRewrite {
    source: Option<IpAddress>,
    destination: Option<IpAddress>,
    quoted_source: Option<Endpoint>,
    quoted_destination: Option<Endpoint>,
    to: Port,
}

impl Nat {
    /// How an ICMP error is translated; none if it quotes no packet of a mapping.
    pub(super) fn find_error(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        course: Course,
    ) -> Result<Option<QuotedRewrite>, Conflict> {
        let Some((source, destination)) = packet.embedded().and_then(|quoted| quoted_ends(&quoted)) else {
            return Ok(None);
        };
        let mut rewrite = QuotedRewrite { to: course.across, ..QuotedRewrite::default() };
        if course.inward {
            // The error must go to whom the quoted packet came from.
            if packet.dst_ip() != source.ip() {
                return Ok(None);
            }
            let Some(mapping) = self.mappings.inward(cx, source)? else { return Ok(None) };
            rewrite.destination = Some(mapping.inside.ip());
            rewrite.quoted_source = Some(mapping.inside);
            rewrite.to = mapping.port;
        }
        if course.outward {
            let Some(external) = self.mappings.external_of(cx, destination)? else { return Ok(None) };
            // An inside router has no mapping of its own; the quoted host's address stands for it (RFC 5508 REQ-5).
            rewrite.source = Some(external.ip());
            rewrite.quoted_destination = Some(external);
        }
        Ok(Some(rewrite))
    }

    /// Writes both headers and sends the error on.
    pub(super) fn send_error(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: &QuotedRewrite) -> Handled {
        if !packet.decrement_ttl() {
            return self.ttl_exceeded(cx, packet);
        }
        if let Some(mut quoted) = packet.embedded_mut() {
            if let Some(source) = rewrite.quoted_source
                && !quoted.set_src(source.ip(), source.port)
            {
                quoted.set_src_ip(source.ip());
                quoted.set_icmp_id(source.port);
            }
            if let Some(destination) = rewrite.quoted_destination
                && !quoted.set_dst(destination.ip(), destination.port)
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
        }
        Ok(Verdict::Forward(rewrite.to))
    }
}

/// Both ends of a quoted packet, if so much of it is quoted.
fn quoted_ends(quoted: &Embedded) -> Option<(Endpoint, Endpoint)> {
    let (source, destination) = match quoted.protocol {
        protocol::TCP | protocol::UDP => quoted.ports?,
        protocol::ICMP => quoted.icmp_id.map(|id| (id, id))?,
        _ => return None,
    };
    let end = |address: IpAddress, port| Some(Endpoint::new(address.v4()?, port, quoted.protocol));
    Some((end(quoted.src_ip, source)?, end(quoted.dst_ip, destination)?))
}
