//! The reverse-path check: whether a packet arrives from where its answers would go (RFC 3704, RFC 8704 section 2; RFC 1812
//! section 5.3.8).
//!
//! It is made for the first packet of a set, and again when neighbours or routes have changed; a set remembers the interface by
//! which it arrives.

use braid_nf::prelude::*;
use serde::Deserialize;

use crate::parts::headers::scope::is_link_local_v6;
use crate::router::config::Way;
use crate::router::interface::Interface;
use crate::router::{Link, Router};

/// There is no route back to the source, or it does not leave by the interface on which the packet arrived.
pub(in crate::router) const REVERSE_PATH: Reason = Reason("reverse_path");

/// What is required of the route back to a packet's source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Any,
    /// That there is one: some route leads there, and is not one that refuses packets.
    Loose,
    /// That it, or one of several next hops, leaves by the interface on which the packet arrived.
    Strict,
}

impl Router {
    /// Whether a packet fails the check of the interface on which it arrived. Link-local sources always pass, and so do the
    /// router's own addresses, which only an earlier function can have written.
    #[inline(always)]
    pub(in crate::router) fn comes_by_a_wrong_way(
        &self,
        packet: &Packet<'_>,
        (link, interface): (Link, &Interface),
    ) -> bool {
        interface.reverse_path != ReversePath::Any && self.has_no_way_back(packet, link, interface.reverse_path)
    }

    #[cold]
    #[inline(never)]
    fn has_no_way_back(&self, packet: &Packet<'_>, link: Link, asked: ReversePath) -> bool {
        let source = packet.src_ip();
        if is_link_local_v6(source) || self.links.own(source) {
            return false;
        }
        // Rules are asked for the answer, which arrives by the link by which the packet leaves, as in Linux.
        let leaves_by = match self.tables.way((source, packet.dst_ip()), Some(link)) {
            Some((Way::To(out, _), _)) => Some(*out),
            _ => None,
        };
        let found = self.tables.way((packet.dst_ip(), source), leaves_by);
        let is_here = |back: Link| asked == ReversePath::Loose || back == link;
        match found.map(|(way, _)| way) {
            None | Some(Way::Nowhere(_)) => true,
            Some(Way::To(back, _)) => !is_here(*back),
            Some(Way::Spread(number)) => {
                let mut hops = self.spreads.get(*number as usize).into_iter().flat_map(|spread| spread.from(0));
                !hops.any(|hop| is_here(self.links.at(hop.port, hop.vlan)))
            }
        }
    }
}
