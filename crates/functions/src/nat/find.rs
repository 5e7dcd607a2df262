//! How a packet is to be translated, asked of the mappings: for first packets, and for those that no set is kept for.

use braid_nf::packet::IpVersion;
use braid_nf::packet::headers::{icmp_type, tcp_flags};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::icmp::QuotedRewrite;
use super::mappings::{Endpoint, Mapping};
use super::rewrite::{Peer, Rewrite, ends};
use super::session::{INWARD, OUTWARD, Phase, Session};
use super::{Nat, Others, UNWANTED};
use crate::parts::{Fate, Side, fragments, scope};

/// From outside to an external endpoint that is nobody's, or to a private address.
pub const NO_MAPPING: Reason = Reason("no_mapping");
/// From an outside endpoint to which the mapping's owner has not sent.
pub const FILTERED: Reason = Reason("filtered");
/// A protocol without ports cannot share an address.
pub const NOT_TRANSLATABLE: Reason = Reason("not_translatable");
/// Multicast, broadcast, or an address that is no host's.
pub const NOT_UNICAST: Reason = Reason("not_unicast");
/// By a port that is neither inside nor outside.
pub const NO_SIDE: Reason = Reason("no_side");

/// What the mappings say about a packet.
pub(super) enum Found {
    /// A flow that may be cached.
    Session(Session),
    /// It goes its way uncached.
    Once(Rewrite),
    /// An ICMP error, rewritten with the packet that it quotes.
    Error(QuotedRewrite),
    /// It goes on as it is, as if no router were here.
    Untouched(Port),
    /// It ends here.
    No(Reason),
}

/// Which ends of a packet are translated: its source if it goes outward, its destination if it goes inward, both if it goes
/// from inside to an external endpoint: a hairpin (RFC 4787 section 6).
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) outward: bool,
    pub(super) inward: bool,
    pub(super) across: Port,
}

impl Nat {
    /// Decides by side and addresses.
    pub(super) fn find(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Found::No(NO_SIDE)) };
        let across = self.settings.sides.across(cx, packet.port());
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        if packet.ip_version() == Some(IpVersion::V6) {
            return Ok(match self.settings.ipv6 {
                Others::Drop => Found::No(UNWANTED),
                Others::Pass if scope::is_link_scope_v6(source, destination) => Found::Untouched(across),
                Others::Pass => Found::Once(Rewrite::none(across)),
            });
        }
        match (source.v4(), destination.v4()) {
            (Some(source), Some(destination)) if scope::is_unicast_v4(source, destination) => {}
            _ => return Ok(Found::No(NOT_UNICAST)),
        }
        let outward = side == Side::Inside && self.settings.is_inside(source);
        let inward = self.settings.is_external(destination);
        if !inward && self.settings.is_inside(destination) {
            return Ok(match side {
                Side::Inside => Found::Once(Rewrite::none(packet.port())),
                Side::Outside => Found::No(NO_MAPPING),
            });
        }
        if !inward && !outward {
            return Ok(Found::Once(Rewrite::none(across)));
        }
        self.find_translation(cx, packet, Course { outward, inward, across })
    }

    fn find_translation(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, course: Course) -> Result<Found, Conflict> {
        if packet.is_later_fragment() {
            return Ok(match self.fragments.follow(cx, packet)? {
                Some(fate) => Found::Once(Rewrite::from(fate)),
                None => Found::No(fragments::BEFORE_FIRST),
            });
        }
        if packet.icmp().is_some_and(|icmp| icmp.is_error()) {
            return Ok(self.find_error(cx, packet, course)?.map_or(Found::No(NO_MAPPING), Found::Error));
        }
        let Some((source, destination)) = ends(packet) else {
            let known = matches!(packet.protocol(), protocol::TCP | protocol::UDP | protocol::ICMP);
            return Ok(Found::No(if known { Reason::MALFORMED } else { NOT_TRANSLATABLE }));
        };
        if packet.icmp().is_some_and(|icmp| !icmp_may_go(icmp.kind(), course)) {
            return Ok(Found::No(NO_MAPPING));
        }
        let inward = match course.inward {
            false => None,
            true => match self.find_inward(cx, source, destination, course)? {
                Ok(mapping) => Some(mapping),
                Err(reason) => return Ok(Found::No(reason)),
            },
        };
        let outward = match course.outward {
            false => None,
            true => match self.find_outward(cx, packet, source)? {
                Ok(mapping) => Some(mapping),
                Err(reason) => return Ok(Found::No(reason)),
            },
        };
        Ok(match (outward, inward) {
            (Some(mapping), None) if source.protocol != protocol::ICMP => {
                Found::Session(session(cx, packet, &mapping, mapping.external, OUTWARD, course.across))
            }
            (None, Some(mapping)) if source.protocol != protocol::ICMP => {
                Found::Session(session(cx, packet, &mapping, mapping.inside, INWARD, mapping.port))
            }
            _ => Found::Once(Rewrite {
                source: outward.map(|mapping| mapping.external),
                destination: inward.map(|mapping| mapping.inside),
                to: inward.map_or(course.across, |mapping| mapping.port),
            }),
        })
    }

    /// The mapping to which a packet for an external endpoint goes.
    fn find_inward(
        &self,
        cx: &mut Cx<'_>,
        source: Endpoint,
        destination: Endpoint,
        course: Course,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let Some(mapping) = self.mappings.inward(cx, destination)? else { return Ok(Err(NO_MAPPING)) };
        // Identifiers of queries are no ports: replies are not filtered. Neither is what comes from inside.
        if let (Some(peers), false) = (&self.peers, course.outward || source.protocol == protocol::ICMP)
            && !peers.contains(cx, &Peer::new(mapping.inside, source))?
        {
            return Ok(Err(FILTERED));
        }
        Ok(if self.mappings.refresh(cx, destination.protocol, mapping.lease)? { Ok(mapping) } else { Err(NO_MAPPING) })
    }

    /// The mapping of an inside endpoint, made if there is none.
    fn find_outward(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        source: Endpoint,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        if let Some(mapping) = self.mappings.outward(cx, source, packet.port())? {
            return Ok(Ok(mapping));
        }
        // The end of a connection that nobody knows begins none.
        if packet.tcp_flags().is_some_and(|flags| flags & (tcp_flags::RST | tcp_flags::FIN) != 0) {
            return Ok(Err(NO_MAPPING));
        }
        self.mappings.create(cx, source, packet.port())
    }
}

/// Queries go out and replies come in; nobody outside may ask an inside host.
fn icmp_may_go(kind: u8, course: Course) -> bool {
    let is_query = matches!(kind, icmp_type::ECHO_REQUEST | icmp_type::TIMESTAMP_REQUEST | 15 | 17);
    course.outward != course.inward && course.outward == is_query
}

fn session(cx: &Cx<'_>, packet: &Packet<'_>, mapping: &Mapping, end: Endpoint, way: u8, to: Port) -> Session {
    Session {
        refreshed_ns: cx.now(),
        lease: mapping.lease,
        address: end.address,
        port: end.port,
        from: packet.port(),
        to,
        protocol: end.protocol,
        phase: Phase::after(0, packet.tcp_flags().unwrap_or(0)) as u8,
        way,
        ..Session::default()
    }
}

impl From<Fate> for Rewrite {
    /// For a later fragment: addresses only.
    fn from(fate: Fate) -> Rewrite {
        let end = |address: braid_nf::packet::IpAddress| address.v4().map(|address| Endpoint::new(address, 0, 0));
        Rewrite { source: end(fate.source), destination: end(fate.destination), to: fate.port }
    }
}
