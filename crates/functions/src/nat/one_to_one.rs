//! Inside hosts with an external address of their own (RFC 3022 section 2.1, "basic NAT"): one address stands for the
//! other, for all protocols, in both directions, and ports are unchanged. There is no state: no mapping, port or set, so
//! nothing expires and nothing is filtered.
//!
//! A hairpin may go from such a host to one that shares an external address, or the reverse: then one end has a mapping.

use std::collections::BTreeMap;

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::icmp_type;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::config::Config;
use super::find::{Course, Found};
use super::rewrite::Rewrite;
use super::{NOT_TRANSLATABLE, Nat};
use crate::config::ConfigError;
use crate::mappings::endpoint::{Endpoint, Inside, ends_between, is_told_by_port};
use crate::mappings::fixed::Fixed;
use crate::mappings::flows::NO_MAPPING;
use crate::mappings::networks::{Behind, Nets};
use crate::mappings::pool::Pool;
use crate::mappings::session::{Heading, Phase, Session};

/// A range of external addresses, and an inside range of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    external: u32,
    inside: u32,
    /// The last address minus the first.
    rest: u32,
    network: u16,
    home: Port,
}

/// The owner of an external address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) address: [u8; 4],
    pub(super) network: u16,
    /// The port that it is behind.
    pub(super) home: Port,
}

/// All one-to-one addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OneToOne {
    /// By first external address.
    by_external: BTreeMap<u32, Pair>,
    /// By network and first inside address.
    by_inside: BTreeMap<(u16, u32), Pair>,
}

impl OneToOne {
    pub(super) fn check(
        config: &Config,
        (pool, fixed): (&Pool, &[Fixed]),
        (networks, home): (&Nets, Port),
    ) -> Result<OneToOne, ConfigError> {
        let mut all = OneToOne::default();
        for (at, entry) in config.one_to_one.iter().enumerate() {
            let wrong = |reason: String, instead: &str| Err(ConfigError::new(KEY, reason, instead).of(KEY, at));
            let (external, inside) = (entry.external, entry.inside);
            let (Some(first), Some(ours)) = (external.first().v4(), inside.first().v4()) else {
                return wrong(format!("{external} or {inside} is not IPv4"), "write IPv4 addresses or ranges");
            };
            if external.bits() != inside.bits() {
                return wrong(format!("{external} is not as long as {inside}"), "write ranges of the same length");
            }
            if let Some(shared) = pool.external.iter().find(|shared| external.contains(IpAddress::from_v4(**shared))) {
                let reason = format!("{} is one of `external`, which hosts share", IpAddress::from_v4(*shared));
                return wrong(reason, "leave it out there");
            }
            if !config.inside.iter().any(|range| range.covers(&inside)) {
                return wrong(format!("{inside} is not inside"), "write addresses of an `inside` range");
            }
            if let Some(range) = config.inside.iter().find(|range| range.covers(&external) || external.covers(range)) {
                return wrong(format!("{external} meets the inside range {range}"), "write outside addresses");
            }
            let place = networks.place((entry.network, &entry.vlan), home, &inside);
            let (network, home) = place.map_err(|error| ConfigError { key: KEY.to_owned(), ..error }.of(KEY, at))?;
            let has_both = |fixed: &Fixed| fixed.inside.network == network && inside.contains(fixed.inside.address);
            if fixed.iter().any(has_both) {
                let instead = "leave one of them out: what such a host sends leaves from its own external address";
                return wrong(format!("{inside} has a `static` mapping too"), instead);
            }
            let rest = (external.len_v4().unwrap_or(1) - 1) as u32;
            let (external, inside) = (u32::from_be_bytes(first), u32::from_be_bytes(ours));
            let pair = Pair { external, inside, rest, network, home };
            if all.meets(&pair) {
                let reason = format!("{} or {} stands there twice", entry.external, entry.inside);
                return wrong(reason, "write each address once");
            }
            all.by_external.insert(external, pair);
            all.by_inside.insert((network, inside), pair);
        }
        Ok(all)
    }

    /// Whether a pair overlaps an existing one. Ranges are aligned, so one contains the other or they are disjoint.
    fn meets(&self, pair: &Pair) -> bool {
        let Pair { external, inside, rest, network, .. } = *pair;
        self.inside_of(external.to_be_bytes()).is_some()
            || self.external_of(network, inside.to_be_bytes()).is_some()
            || self.by_external.range(external..=external + rest).next().is_some()
            || self.by_inside.range((network, inside)..=(network, inside + rest)).next().is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_external.is_empty()
    }

    /// The number of external addresses.
    pub(super) fn addresses(&self) -> usize {
        self.by_external.values().map(|pair| pair.rest as usize + 1).sum()
    }

    /// Whether an address is a one-to-one external address.
    #[inline(always)]
    pub(super) fn is_external(&self, address: [u8; 4]) -> bool {
        !self.is_empty() && self.inside_of(address).is_some()
    }

    /// The owner of an external address.
    pub(super) fn inside_of(&self, address: [u8; 4]) -> Option<Owner> {
        let address = u32::from_be_bytes(address);
        let (first, pair) = self.by_external.range(..=address).next_back()?;
        let place = (address - first <= pair.rest).then_some(address - first)?;
        Some(Owner { address: (pair.inside + place).to_be_bytes(), network: pair.network, home: pair.home })
    }

    /// The external address of a host in a network.
    pub(super) fn external_of(&self, network: u16, address: [u8; 4]) -> Option<[u8; 4]> {
        let address = u32::from_be_bytes(address);
        let (_, pair) = self.by_inside.range(..=(network, address)).next_back()?;
        let place = address - pair.inside.min(address);
        (pair.network == network && place <= pair.rest).then(|| (pair.external + place).to_be_bytes())
    }
}

/// The key in the configuration.
const KEY: &str = "one_to_one";

impl Nat {
    /// Translates a packet if one of its ends has an address of its own; `None` if neither has, or if it is an ICMP
    /// error.
    #[cold]
    #[inline(never)]
    pub(super) fn find_one_to_one(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (source, destination): ([u8; 4], [u8; 4]),
        course: Course,
    ) -> Result<Option<Found>, Conflict> {
        let (table, network) = (&self.settings.one_to_one, self.settings.networks.of(packet));
        let ours = if course.outward { table.external_of(network, source) } else { None };
        let theirs = if course.inward { table.inside_of(destination) } else { None };
        let is_later = packet.is_later_fragment();
        let is_error = !is_later && packet.icmp().is_some_and(|icmp| icmp.is_error());
        if ours.is_none() && theirs.is_none() || is_error {
            return Ok(None);
        }
        let shared = Course {
            outward: course.outward && ours.is_none(),
            inward: course.inward && theirs.is_none(),
            across: course.across,
        };
        let ends = if is_later { None } else { ends_between(packet, source, destination) };
        let has_ports = matches!(packet.protocol(), protocol::TCP | protocol::UDP);
        if ends.is_none() && !is_later && has_ports {
            return Ok(Some(Found::No(Reason::MALFORMED)));
        }
        let rewrite = Rewrite {
            source: ours.map(|address| Endpoint::new(address, ends.map_or(0, |ends| ends.0.port), packet.protocol())),
            destination: theirs
                .map(|owner| Endpoint::new(owner.address, ends.map_or(0, |ends| ends.1.port), packet.protocol())),
            to: theirs.map_or(course.across, |owner| owner.home),
            behind: theirs.map_or(Behind::Outside, |owner| Behind::Network(owner.network)),
        };
        if (shared.outward || shared.inward) && !is_told_by_port(packet.protocol()) {
            return self.find_portless(cx, packet, (source, destination), shared, rewrite).map(Some);
        }
        if shared.outward || shared.inward {
            // The other end's port is in its mapping; later fragments need the first one for that.
            let Some(ends) = ends else {
                return Ok(if is_later { None } else { Some(Found::No(NOT_TRANSLATABLE)) });
            };
            return self.find_shared_end(cx, packet, (ends, shared), rewrite).map(Some);
        }
        Ok(Some(Found::Once(rewrite)))
    }

    /// Adds the end of a hairpin that has a mapping.
    fn find_shared_end(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        ((source, destination), shared): ((Endpoint, Endpoint), Course),
        mut rewrite: Rewrite,
    ) -> Result<Found, Conflict> {
        let flags = packet.tcp_flags().unwrap_or(0);
        let is_query = packet.icmp().is_some_and(|icmp| icmp.kind() == icmp_type::ECHO_REQUEST);
        if source.protocol == protocol::ICMP && is_query != shared.outward {
            return Ok(Found::No(NO_MAPPING));
        }
        let mapping = if shared.outward {
            match self.flows.outward(cx, self.settings.inside(packet, source), packet.port(), flags)? {
                Ok(mapping) => mapping,
                Err(NO_MAPPING) => return Ok(Found::No(NO_MAPPING)),
                Err(reason) => return Ok(Found::Refused(reason)),
            }
        } else {
            // Packets from inside are not filtered.
            match self.flows.inward(cx, (source, destination), flags, true)? {
                Ok(mapping) => mapping,
                Err(reason) => return Ok(Found::No(reason)),
            }
        };
        let port = if shared.outward {
            rewrite.source = Some(mapping.external);
            mapping.external.port
        } else {
            rewrite.destination = Some(mapping.inside.end());
            (rewrite.to, rewrite.behind) = (mapping.home, Behind::Network(mapping.inside.network));
            mapping.inside.port
        };
        if source.protocol == protocol::ICMP {
            // An echo message has one identifier, which stands for both of its ends.
            let at = |end: Endpoint| Endpoint::new(end.address, port, end.protocol);
            (rewrite.source, rewrite.destination) = (rewrite.source.map(at), rewrite.destination.map(at));
        }
        if source.protocol != protocol::TCP {
            return Ok(Found::Once(rewrite));
        }
        let (way, phase) = (if shared.outward { Heading::Outward } else { Heading::Inward }, Phase::after(0, flags));
        let session = Session::new(mapping.handle, source.protocol, way, phase).of_hairpin();
        self.hairpin(cx, flags, (session, &mapping, None), rewrite)
    }

    /// The external endpoint of a host that has an address of its own.
    pub(super) fn own_external(&self, inside: Inside) -> Option<Endpoint> {
        let address = self.settings.one_to_one.external_of(inside.network, inside.address.v4()?)?;
        Some(Endpoint::new(address, inside.port, inside.protocol))
    }
}
