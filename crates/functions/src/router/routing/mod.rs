//! The way of a packet through the router: from the checks of its frame and source over the route to the next hop.

pub(super) mod lpm;
pub(super) mod reverse_path;
pub(super) mod rules;
pub(super) mod spread;

use braid_nf::packet::MacAddress;
use braid_nf::packet::headers::{Ethernet, tcp_flags};
use braid_nf::prelude::*;

use super::advertise;
use super::complain::Complaint;
use super::config::{Hash, Refusal, SourceRoutes, Way};
use super::interface::Interface;
use super::links::Link;
use super::neighbours::Station;
use super::{
    BLACKHOLE, BY_PORTS, COUNTS, Hops, Known, NO_INTERFACE, NO_ROUTE, PROHIBITED, Router, TABLE_AT, TOO_LONG,
    UNREACHABLE, frames, local, objections,
};
use crate::parts::answers::membership::Query;
use crate::parts::headers::lengths::cut_tail;
use crate::parts::headers::segment_size::Limit;
use crate::parts::headers::tags::NO_ROOM_FOR_TAG;

impl Router {
    /// A number that changes whenever a neighbour moves or is forgotten, and with interfaces and routes.
    #[inline(always)]
    pub(super) fn era(&self, cx: &mut Cx<'_>) -> Result<u64, Conflict> {
        Ok(self.neighbours.changes(cx)? ^ self.fingerprint)
    }

    /// Whether a packet of a known set only has to be forwarded.
    #[inline(always)]
    pub(super) fn is_ordinary(&self, packet: &Packet<'_>, link: Link, (mtu, counts): (u16, bool)) -> bool {
        let for_us = |ethernet: &Ethernet| match self.links.get(link) {
            Some(interface) => self.takes(interface, ethernet),
            None => false,
        };
        packet.ethernet().is_some_and(for_us)
            && packet
                .ttl()
                .is_some_and(|ttl| ttl > counts.into() && (ttl != u8::MAX || !objections::proves_its_link(packet)))
            && objections::ip_len(packet) <= usize::from(mtu)
            && packet.header_checksum_ok()
            && objections::length_is_right(packet)
            && !objections::has_options(packet)
            && !objections::is_wrapped(packet)
    }

    /// Decides about a packet in full, and fills in what its set should remember.
    pub(super) fn route(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, known: &mut Known) -> Handled {
        (known.due_ns, known.marks) = (0, 0);
        let link = self.links.of(packet);
        let Some(interface) = self.links.get(link) else { return Ok(Verdict::Drop(NO_INTERFACE)) };
        let is_bad = || self.links.is_broadcast(packet.src_ip()).then_some(objections::BAD_SOURCE);
        if let Some(objection) = objections::to_any(packet).or_else(is_bad) {
            return Ok(Verdict::Drop(objection));
        }
        if local::is_discovery(packet) && self.hears(interface, packet) {
            return self.discovery(cx, packet, interface);
        }
        if let Some(query) = Query::of(packet).filter(|_| self.hears(interface, packet)) {
            return self.answer_query(cx, packet.port(), interface, query);
        }
        if let Some(advertisements) = self.advertisements.as_ref().filter(|_| interface.advertise.is_some())
            && advertise::is_solicitation(packet)
        {
            advertisements.hasten(cx, link)?;
            return Ok(Verdict::Drop(advertise::SOLICITATION));
        }
        let is_for_us = packet.ethernet().map_or(self.promiscuous, |frame| self.takes(interface, frame));
        if !is_for_us && !local::is_ping_of_group(packet, interface) {
            return Ok(Verdict::Drop(objections::OTHER_STATION));
        }
        if self.has_own_source(packet, interface) {
            return Ok(Verdict::Drop(objections::BAD_SOURCE));
        }
        if self.comes_by_a_wrong_way(packet, (link, interface)) {
            return Ok(Verdict::Drop(reverse_path::REVERSE_PATH));
        }
        self.follow(cx, packet, interface)?;
        self.find_way(cx, packet, known, (link, interface))
    }

    /// Continues [`route`](Self::route) for a packet that is for this router and passed the checks of its source.
    pub(super) fn find_way(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        known: &mut Known,
        (link, interface): (Link, &Interface),
    ) -> Handled {
        if self.source_routes == SourceRoutes::Drop && objections::has_source_route(packet) {
            return Ok(Verdict::Drop(objections::SOURCE_ROUTED));
        }
        let to = packet.dst_ip();
        if self.links.own_at(interface, to) {
            if let Some((out_link, out)) = self.links.translated(to)
                && out_link != link
                && self.sees_addresses
                && local::is_left_to_translator(packet)
            {
                let next = Station { mac: out.mac.0, port: out.port };
                return Ok(self.forward(packet, (out_link, next), self.counts(link, out_link)));
            }
            return if frames::is_addressed(packet, interface) {
                Ok(cx.pass())
            } else {
                self.receive(cx, packet, interface)
            };
        }
        if self.links.is_anycast(to) || local::is_ping_of_group(packet, interface) {
            return self.answer_as_one_of_all(cx, packet, interface);
        }
        let objection = objections::to_forwarding(packet);
        // Whether a link-local source may be taken there depends on the way.
        let is_of_link = objection == Some(objections::LINK_SCOPE) && objections::leaves_its_link(packet);
        if let Some(objection) = objection.filter(|_| !is_of_link) {
            return Ok(Verdict::Drop(objection));
        }
        // No longer route hides the broadcast address of a connected network, and no error is about it (RFC 1812 section 4.3.2.7).
        if self.links.is_broadcast(to) {
            return Ok(Verdict::Drop(objections::NOT_UNICAST));
        }
        let Some((way, table)) = self.tables.way((packet.src_ip(), to), Some(link)) else {
            return self.errors.send(cx, packet, interface, Complaint::NoRoute, NO_ROUTE);
        };
        known.marks |= table << TABLE_AT;
        let (to_link, via) = match *way {
            Way::To(link, via) => (link, via),
            Way::Spread(number) => {
                known.marks |= if self.hash == Hash::Ports { BY_PORTS } else { 0 };
                self.one_of(cx, packet, number)?
            }
            // Where no route leads nobody needs hops (RFC 1812 section 5.2.1.2).
            Way::Nowhere(refusal) => return self.refuse(cx, packet, interface, refusal),
        };
        if is_of_link && to_link != link {
            return self.errors.send(cx, packet, interface, Complaint::BeyondScope, objections::LINK_SCOPE);
        }
        let counts = self.counts(link, to_link);
        if packet.ttl().is_none_or(|ttl| ttl <= counts.into()) {
            return self.errors.send(cx, packet, interface, Complaint::TimeExceeded, Reason::TTL_EXCEEDED);
        }
        if counts {
            known.marks |= COUNTS;
        }
        let Some(out) = self.links.get(to_link) else { return Ok(Verdict::Drop(NO_INTERFACE)) };
        if out.is_broadcast(to) {
            return Ok(Verdict::Drop(objections::NOT_UNICAST));
        }
        if objections::ip_len(packet) > usize::from(out.mtu) && objections::is_whole(packet) {
            return self.errors.send(cx, packet, interface, Complaint::TooLong(out.mtu), TOO_LONG);
        }
        self.hand_over(cx, packet, known, (link, to_link), via.unwrap_or(to))
    }

    /// Drops a packet whose destination a route refuses.
    #[cold]
    pub(super) fn refuse(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        interface: &Interface,
        refusal: Refusal,
    ) -> Handled {
        match refusal {
            Refusal::Blackhole => Ok(Verdict::Drop(BLACKHOLE)),
            Refusal::Unreachable => self.errors.send(cx, packet, interface, Complaint::Unreachable, UNREACHABLE),
            Refusal::Prohibit => self.errors.send(cx, packet, interface, Complaint::Prohibited, PROHIBITED),
        }
    }

    /// Lowers the MSS in a segment that begins a connection, so that segments in neither direction are longer than both links
    /// can carry.
    #[inline(always)]
    pub(super) fn clamp(&self, packet: &mut Packet<'_>, out: &Interface) {
        if self.clamp_mss && packet.tcp_flags().is_some_and(|flags| flags & tcp_flags::SYN != 0) {
            let came = self.links.get(self.links.of(packet));
            Limit::of_mtu(came.map_or(out.mtu, |came| came.mtu.min(out.mtu))).clamp(packet);
        }
    }

    /// Whether the hop count of packets from one link to another is decremented here.
    pub(super) fn counts(&self, from: Link, to: Link) -> bool {
        let is_translated = |link| self.links.get(link).is_some_and(|one| !one.translated.is_empty());
        match self.hops {
            Hops::All => true,
            Hops::None => false,
            Hops::Untranslated => !is_translated(from) && !is_translated(to),
        }
    }

    /// Decrements the hop count, unless another function does, and writes the tag and Ethernet addresses of the next link.
    #[inline(always)]
    pub(super) fn forward(&self, packet: &mut Packet<'_>, (to, next): (Link, Station), counts: bool) -> Verdict {
        let Some(out) = self.links.get(to) else { return Verdict::Drop(NO_INTERFACE) };
        self.clamp(packet, out);
        if !self.links.retag(packet, out) {
            return Verdict::Drop(NO_ROOM_FOR_TAG);
        }
        if counts {
            packet.decrement_ttl();
        }
        cut_tail(packet);
        if let Some(ethernet) = packet.ethernet_mut() {
            ethernet.set_source(out.mac);
            ethernet.set_destination(MacAddress(next.mac));
        }
        Verdict::Forward(next.port)
    }
}
