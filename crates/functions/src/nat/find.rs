//! Finds out from the mappings how to translate a packet: a first packet, or one that has no set.

use braid_nf::packet::headers::{icmp_type, tcp_flags};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, Segments};
use braid_nf::prelude::*;
use braid_nf::state::Handle;

use super::icmp::QuotedRewrite;
use super::rewrite::{Rewrite, Track};
use super::{NO_MAPPING, Nat, UNWANTED};
use crate::mappings::endpoint::{Endpoint, ends_between, is_told_by_port};
use crate::mappings::flows::Counted;
use crate::mappings::hosts::MAPPING_TABLE_FULL;
use crate::mappings::networks::{Behind, NO_NETWORK};
use crate::mappings::session::{Heading, Phase, Session};
use crate::mappings::table::Mapping;
pub use crate::parts::config::sides::NO_SIDE;
use crate::parts::forwarding::others::Others;
pub use crate::parts::headers::scope::{BAD_SOURCE, LINK_SCOPE, NOT_UNICAST};
use crate::parts::headers::{lengths, scope};
use crate::parts::{Fate, Lead, Side};

/// A packet to an external address that has just left, while its mappings end.
pub const ADDRESS_LEFT: Reason = Reason("address_left");
/// A redirect, or AH, which protects the addresses.
pub const NOT_TRANSLATABLE: Reason = Reason("not_translatable");

impl Others {
    /// What becomes of a packet without an IP header, unless it is a damaged one.
    pub(crate) fn judge_orphan(self, cx: &Cx<'_>, packet: &Packet<'_>) -> Verdict {
        match self {
            _ if scope::is_damaged_ip(packet) => Verdict::Drop(Reason::MALFORMED),
            Others::Pass => cx.pass(),
            Others::Drop => Verdict::Drop(UNWANTED),
        }
    }
}

/// What the mappings say about a packet.
pub(super) enum Found {
    /// It belongs to a flow that may be cached.
    Flow(Flow),
    /// It is of a TCP connection between two hosts inside: both ends are rewritten, and its set says only how far the connection has come.
    Hairpin(Session, Counted, Rewrite),
    /// It is rewritten without a set.
    Once(Rewrite),
    /// It is an ICMP error, to be rewritten with the packet it quotes.
    Error(QuotedRewrite),
    /// It passes unchanged, as if no router were here.
    Untouched(Port),
    /// It is a later fragment whose first one has not arrived, and has to wait.
    Waits,
    /// It is dropped.
    No(Reason),
    /// It is dropped because no mapping can be made, and its sender is told.
    Refused(Reason),
}

impl Found {
    /// What a set of it remembers, and what that holds.
    pub(super) fn kept(&self) -> Option<(Session, Counted)> {
        match self {
            Found::Flow(Flow { session, handle, .. }) => {
                Some((*session, Counted { kind: session.what(), handle: *handle, sender: None }))
            }
            Found::Hairpin(session, held, _) => Some((*session, *held)),
            _ => None,
        }
    }
}

/// A flow that uses a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// The state to cache.
    pub(super) session: Session,
    /// The mapping.
    pub(super) handle: Handle,
    pub(super) track: Track,
}

/// Which ends of a packet are translated: the source of an outward one, the destination of an inward one, and both for a
/// packet from inside to an external endpoint, a hairpin (RFC 4787 section 6).
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) outward: bool,
    pub(super) inward: bool,
    pub(super) across: Port,
}

impl Nat {
    /// Decides by side and addresses.
    pub(super) fn find(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        let Some(side) = self.settings.side_of(packet) else { return Ok(Found::No(NO_SIDE)) };
        let across = self.way_out.of(cx, packet.port());
        // A packet to this function's own address is for a router behind it, which is not another hop. Without such a
        // router nothing inside takes it, and from outside the next function does.
        let to_router = Found::Untouched(if side == Side::Inside { packet.port() } else { across });
        if packet.ip_version() == Some(IpVersion::V6) {
            return Ok(match self.settings.ipv6 {
                Others::Drop => Found::No(UNWANTED),
                Others::Pass if self.settings.is_for_router(packet) => to_router,
                Others::Pass if scope::stays_on_link(packet) => Found::Untouched(across),
                Others::Pass if scope::is_to_all_of_link(packet) => Found::No(NOT_UNICAST),
                Others::Pass => Found::Once(Rewrite::none(across)),
            });
        }
        let ends = packet.addresses_v4().unwrap_or_default();
        let (source, destination) = ends;
        // The unspecified address is no host's either.
        if !scope::is_unicast_v4(source, destination) || scope::is_to_all_of_link(packet) {
            return Ok(Found::No(NOT_UNICAST));
        }
        // Errors get no answers, so their sources need not be the only ones of their kind.
        let is_error = || packet.icmp().is_some_and(|icmp| icmp.is_error());
        let is_link_local = |address: [u8; 4]| scope::is_link_local_v4(IpAddress::from_v4(address));
        // Link-local addresses stay on their link (RFC 3927 section 7).
        if is_link_local(destination) || is_link_local(source) && !is_error() {
            return Ok(Found::No(LINK_SCOPE));
        }
        if side == Side::Inside && self.settings.networks.of(packet) == Segments::OTHER {
            return Ok(Found::No(NO_NETWORK));
        }
        if side == Side::Inside && self.settings.is_for_router(packet) {
            return Ok(to_router);
        }
        let is_ours = side == Side::Inside && self.settings.is_inside(source);
        // No other host may use its addresses as source, because answers would reach the owner of the port. A router beside it may send
        // errors from a shared address.
        if !is_ours && self.settings.is_external(source) && !is_error() {
            return Ok(Found::No(BAD_SOURCE));
        }
        // Nor has anybody outside an address of inside, to which an answer would not go out (RFC 2827).
        if side == Side::Outside && self.settings.is_inside(source) && !self.settings.is_exempt(source) && !is_error() {
            return Ok(Found::No(BAD_SOURCE));
        }
        let inward = self.settings.is_external(destination);
        // The owner of an external endpoint answers also a host inside with a public address from there, if it sees an external one.
        // Errors are translated by what they quote: any router may have sent them.
        let outward = side == Side::Inside && (is_ours || inward || self.is_about_inside(packet));
        let remote = if side == Side::Inside { destination } else { source };
        if !inward && (self.settings.is_exempt(remote) || side == Side::Outside && self.is_about_exempt(packet)) {
            return Ok(self.untranslated(side, across));
        }
        // Its answer would not be translated.
        if inward && self.settings.is_exempt(remote) && !is_error() {
            let is_for_router = self.settings.is_left_to_router(packet);
            return Ok(if is_for_router { Found::Once(Rewrite::here(packet.port())) } else { Found::No(NO_MAPPING) });
        }
        if !inward && self.settings.is_inside(destination) {
            return Ok(match side {
                Side::Inside => Found::Once(Rewrite::none(self.way_out.of_local(cx, packet.port()))),
                Side::Outside if self.settings.only_to.leaves_out(packet, side) => self.untranslated(side, across),
                // Its first piece says whether it is translated.
                Side::Outside if packet.is_later_fragment() && !self.settings.only_to.is_everything() => {
                    self.follow(cx, packet)?
                }
                Side::Outside => Found::No(NO_MAPPING),
            });
        }
        // What an earlier function sends back inside leaves no network.
        if side == Side::Inside
            && !inward
            && let Some(back) = self.way_out.back(cx, packet.port())
        {
            return Ok(Found::Once(Rewrite::none(back)));
        }
        if side == Side::Inside && !inward && self.settings.only_to.leaves_out(packet, side) {
            return Ok(self.untranslated(side, across));
        }
        if !inward && self.flows.mappings.roster.is_leaving(cx, destination)? {
            return Ok(Found::No(ADDRESS_LEFT));
        }
        if self.settings.is_for_router(packet) {
            return Ok(to_router);
        }
        if !inward && !outward {
            return Ok(self.untranslated(side, across));
        }
        if side == Side::Outside && !self.settings.networks.is_outside(packet) {
            return Ok(Found::No(NO_NETWORK));
        }
        // A redirect is meant for a host on the router's link, and names a router by an address that is meaningless on
        // the other side.
        if packet.icmp().is_some_and(|icmp| icmp.kind() == icmp_type::REDIRECT) {
            return Ok(Found::No(NOT_TRANSLATABLE));
        }
        Ok(match self.find_translation(cx, packet, ends, Course { outward, inward, across })? {
            // Where hairpins return the router is before this function, and has taken what is for it.
            Found::No(NO_MAPPING)
                if inward
                    && self.settings.is_left_to_router(packet)
                    && !(side == Side::Inside && cx.hairpins_return()) =>
            {
                Found::Once(Rewrite::here(packet.port()))
            }
            found => found,
        })
    }

    /// Whether [`end`](Self::end) will not let a packet out.
    fn ends_here(&self, packet: &Packet<'_>, to: Port) -> bool {
        let mtu = self.settings.mtu(self.settings.towards(to, Behind::Outside));
        packet.ttl().is_some_and(|ttl| ttl <= 1) || lengths::is_too_long_and_whole(packet, mtu)
    }

    /// Whether a packet is an ICMP error about one that was sent to an exempt address, for its sender. A router on the way has any address.
    fn is_about_exempt(&self, packet: &Packet<'_>) -> bool {
        packet.icmp().is_some_and(|icmp| icmp.is_error())
            && packet.embedded().is_some_and(|quoted| {
                quoted.src_ip == packet.dst_ip() && quoted.dst_ip.v4().is_some_and(|to| self.settings.is_exempt(to))
            })
    }

    /// Whether a packet is an ICMP error about one to a host inside.
    fn is_about_inside(&self, packet: &Packet<'_>) -> bool {
        let quoted = packet.embedded().and_then(|quoted| quoted.dst_ip.v4());
        quoted.is_some_and(|to| self.settings.is_inside(to))
    }

    /// What is routed as it is.
    fn untranslated(&self, side: Side, across: Port) -> Found {
        match side {
            _ if !self.settings.retags_all() => Found::Once(Rewrite::none(across)),
            Side::Inside => Found::Once(Rewrite { behind: Behind::Outside, ..Rewrite::none(across) }),
            // Nothing says behind which VLAN it is.
            Side::Outside => Found::No(NO_MAPPING),
        }
    }

    #[inline(always)]
    pub(super) fn find_translation(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (source, destination): ([u8; 4], [u8; 4]),
        course: Course,
    ) -> Result<Found, Conflict> {
        // What goes no further makes no mapping. Its new source does not matter.
        if course.outward && !course.inward && self.ends_here(packet, course.across) {
            let source = Some(Endpoint::new(source, 0, packet.protocol()));
            return Ok(Found::Once(Rewrite {
                source,
                to: course.across,
                behind: Behind::Outside,
                ..Rewrite::default()
            }));
        }
        if !self.settings.one_to_one.is_empty()
            && let Some(found) = self.find_one_to_one(cx, packet, (source, destination), course)?
        {
            return Ok(found);
        }
        if !is_told_by_port(packet.protocol()) {
            let rewrite = Rewrite { to: course.across, behind: Behind::Outside, ..Rewrite::default() };
            return self.find_portless(cx, packet, (source, destination), course, rewrite);
        }
        if packet.is_later_fragment() {
            return self.follow(cx, packet);
        }
        if packet.icmp().is_some_and(|icmp| icmp.is_error()) {
            return Ok(self.find_error(cx, packet, course)?.unwrap_or_else(Found::No));
        }
        let Some((source, destination)) = ends_between(packet, source, destination) else {
            // An intact ICMP message without an identifier is neither a query nor a reply.
            return Ok(Found::No(if packet.icmp().is_some() { NOT_TRANSLATABLE } else { Reason::MALFORMED }));
        };
        if packet.icmp().is_some_and(|icmp| !icmp_may_go(icmp.kind(), course)) {
            return Ok(Found::No(NO_MAPPING));
        }
        let flags = packet.tcp_flags().unwrap_or(0);
        let inward = match course.inward {
            false => None,
            true => match self.flows.inward(cx, (source, destination), flags, course.outward)? {
                Ok(mapping) => Some(mapping),
                Err(reason) => return Ok(Found::No(reason)),
            },
        };
        let outward = match course.outward {
            false => None,
            true => match self.flows.outward(cx, self.settings.inside(packet, source), packet.port(), flags)? {
                Ok(mapping) => Some(mapping),
                Err(NO_MAPPING) => return Ok(Found::No(NO_MAPPING)),
                Err(reason) => return Ok(Found::Refused(reason)),
            },
        };
        if let (Some(mapping), protocol::ICMP) = (&outward, source.protocol)
            && !self.flows.asks(cx, mapping, destination)?
        {
            return Ok(Found::No(MAPPING_TABLE_FULL));
        }
        let rewrite = Rewrite {
            source: outward.map(|mapping| mapping.external),
            destination: inward.map(|mapping| mapping.inside.end()),
            to: inward.map_or(course.across, |mapping| mapping.home),
            behind: inward.map_or(Behind::Outside, |mapping| Behind::Network(mapping.inside.network)),
        };
        if let (Some(ours), Some(theirs), protocol::TCP) = (&outward, &inward, source.protocol) {
            let session = Session::between(ours.handle, theirs.handle, Phase::after(0, flags));
            return self.hairpin(cx, flags, (session, theirs, Some(ours)), rewrite);
        }
        Ok(match (outward, inward) {
            (Some(mapping), None) if source.protocol != protocol::ICMP => {
                Found::Flow(flow(packet, &mapping, (Heading::Outward, mapping.external, course.across)))
            }
            (None, Some(mapping)) if source.protocol != protocol::ICMP => {
                Found::Flow(flow(packet, &mapping, (Heading::Inward, mapping.inside.end(), mapping.home)))
            }
            _ => Found::Once(rewrite),
        })
    }

    /// A later fragment goes where the first one went.
    fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Found, Conflict> {
        Ok(match self.fragments.follow(cx, packet)? {
            Lead::Passed(fate) => Found::Once(Rewrite::from(fate)),
            Lead::Ends(reason) => Found::No(reason),
            Lead::Unknown => Found::Waits,
        })
    }

    /// A packet of a TCP connection between two hosts inside, over one of their mappings and perhaps the sender's too.
    pub(super) fn hairpin(
        &self,
        cx: &mut Cx<'_>,
        flags: u8,
        (session, mapping, sender): (Session, &Mapping, Option<&Mapping>),
        rewrite: Rewrite,
    ) -> Result<Found, Conflict> {
        let held =
            Counted { kind: session.what(), handle: mapping.handle, sender: sender.map(|mapping| mapping.handle) };
        if flags & tcp_flags::RST != 0 {
            self.flows.reset(cx, &held)?;
        }
        Ok(Found::Hairpin(session, held, rewrite))
    }
}

fn flow(packet: &Packet<'_>, mapping: &Mapping, (way, end, to): (Heading, Endpoint, Port)) -> Flow {
    let phase = Phase::after(0, packet.tcp_flags().unwrap_or(0));
    Flow {
        session: Session::new(mapping.handle, end.protocol, way, phase),
        handle: mapping.handle,
        track: Track { way, address: end.address, port: end.port, to, network: mapping.inside.network },
    }
}

/// Queries go out and replies come in: outside hosts may not query inside hosts.
fn icmp_may_go(kind: u8, course: Course) -> bool {
    let is_query = matches!(kind, icmp_type::ECHO_REQUEST | icmp_type::TIMESTAMP_REQUEST | 15 | 17);
    course.outward != course.inward && course.outward == is_query
}

impl From<Fate> for Rewrite {
    /// The rewrite of a later fragment: addresses only.
    fn from(fate: Fate) -> Rewrite {
        let end = |address: IpAddress| address.v4().map(|address| Endpoint::new(address, 0, 0));
        let behind = Behind::from_bits(fate.behind);
        Rewrite { source: end(fate.source), destination: end(fate.destination), to: fate.port, behind }
    }
}
