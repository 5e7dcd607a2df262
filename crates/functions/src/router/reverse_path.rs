//! Whether a packet comes from where its answers would go (RFC 3704, RFC 8704 section 2; RFC 1812 section 5.3.8).
//!
//! Asked of the first packet between two addresses, and again when neighbours or routes have changed: a set remembers by which interface it came.

use braid_nf::prelude::*;
use serde::Deserialize;

use super::config::{self, Way};
use super::interface::{Interface, is_link_local};
use super::{Link, Router};

/// No way back to its source, or not by the interface by which it came.
pub(super) const REVERSE_PATH: Reason = Reason("reverse_path");

/// What is asked of the way back to a packet's source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReversePath {
    /// Nothing.
    #[default]
    Any,
    /// That there is one: some route leads there, and not nowhere.
    Loose,
    /// That it leads, or one of several does, by the interface by which the packet came.
    Strict,
}

impl Router {
    /// Whether a packet that has come by an interface has the way back that is asked for there. What is of its link alone comes from there, and an
    /// address of the router's own is written by a function before it, if by anybody.
    #[inline(always)]
    pub(super) fn comes_by_a_wrong_way(&self, packet: &Packet<'_>, (link, interface): (Link, &Interface)) -> bool {
        interface.reverse_path != ReversePath::Any && self.has_no_way_back(packet, link, interface.reverse_path)
    }

    #[cold]
    #[inline(never)]
    fn has_no_way_back(&self, packet: &Packet<'_>, link: Link, asked: ReversePath) -> bool {
        let source = packet.src_ip();
        if is_link_local(source) || self.links.own(source) {
            return false;
        }
        let found = self.tables[usize::from(!source.is_v4())].get(config::key(source));
        let is_here = |back: Link| asked == ReversePath::Loose || back == link;
        match found.and_then(|way| self.ways.get(way as usize)) {
            None | Some(Way::Nowhere(_)) => true,
            Some(Way::To(back, _)) => !is_here(*back),
            Some(Way::Spread(number)) => {
                let mut hops = self.spreads.get(*number as usize).into_iter().flat_map(|spread| spread.from(0));
                !hops.any(|hop| is_here(self.links.at(hop.port, hop.vlan)))
            }
        }
    }
}
