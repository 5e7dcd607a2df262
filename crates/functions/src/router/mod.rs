//! A router for IPv4 and IPv6 (RFC 1812, RFC 4443, RFC 4861): finds the route of each packet, decrements its hop count, and
//! sends it to the next hop.
//!
//! A packet set, normally a pair of addresses, remembers the route and the neighbour, and the *era* in which they were found: a
//! number that changes with neighbours and configuration. While that number stays the same, a packet reads only this one shared
//! word, and neither routes nor neighbours.

mod advertise;
mod complain;
mod config;
mod fixed;
pub(crate) mod fragment;
mod frames;
mod hand_over;
mod interface;
mod links;
mod local;
mod neighbours;
mod objections;
mod routing;
mod waiting;

pub use self::routing::lpm::{Lpm, Prefixed};
pub use self::routing::reverse_path::ReversePath;
pub use self::routing::rules::{RuleConfig, Tables};
pub use self::routing::spread::Spread;
pub use advertise::AdvertiseConfig;
pub use config::{Config, Hash, HopConfig, InterfaceConfig, NeighbourConfig, Refusal, RouteConfig, SourceRoutes, Way};
pub use interface::Interface;
pub use neighbours::{Hop, Neighbours, Station};

use std::time::Duration;

use braid_nf::packet::MacAddress;
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::{EntryRange, Fate, FieldUse, TableEntry};

use self::local::announced::Announced;
use self::local::conflicts::Conflicts;
use self::local::reassembly::Reassembly;
use crate::config::READS_WIRE_LEN;
use crate::parts::headers::scope::is_damaged_ip;
use crate::{ConfigError, FromConfig};
use advertise::Advertisements;
use complain::{Complaint, Errors};
use fixed::Fixed;
use links::{Link, Links};

/// The port has no interface, or none for the frame's VLAN.
const NO_INTERFACE: Reason = Reason("no_interface");
/// No route leads to the destination.
const NO_ROUTE: Reason = Reason("no_route");
/// A route silently drops packets to the destination.
const BLACKHOLE: Reason = Reason("blackhole");
/// A route declares the destination unreachable.
const UNREACHABLE: Reason = Reason("unreachable");
/// A route prohibits traffic to the destination.
const PROHIBITED: Reason = Reason("prohibited");
/// Longer than the next link's MTU, and must not be fragmented or is too damaged to be.
const TOO_LONG: Reason = Reason("too_long");
/// The packet is kept until its neighbour answers; it leaves later, as a copy.
const WAITS: Reason = Reason("waits_for_neighbour");
/// There is no room for another waiting packet.
const WAITING_FULL: Reason = Reason("waiting_full");
/// The neighbour does not answer.
const ABSENT: Reason = Reason("neighbour_absent");
/// There is no room for another neighbour.
const NEIGHBOURS_FULL: Reason = Reason("neighbours_full");
/// Its source has had this router ask for as many neighbours as it may in a second.
const ASKED_FOR_TOO_MANY: Reason = Reason("asked_for_too_many");

network_function! {
    /// Routes between its interfaces; see the README beside this file.
    pub struct Router {
        links: Links,
        tables: Tables,
        spreads: Vec<Spread>,
        hash: Hash,
        neighbours: Neighbours,
        conflicts: Conflicts,
        fixed: Vec<Fixed>,
        errors: Errors,
        reassembly: Reassembly,
        advertisements: Option<Advertisements>,
        announced: Announced,
        promiscuous: bool,
        /// Whether no function that may write addresses precedes this one in the chain.
        sees_addresses: bool,
        hops: Hops,
        source_routes: SourceRoutes,
        redirects: bool,
        clamp_mss: bool,
        /// A hash of interfaces and routes.
        fingerprint: u64,
        /// A hash of the first Ethernet address. It seeds the hashes of flows, so that consecutive routers spread them
        /// differently (RFC 2991 section 3).
        seed: u64,
    }
}

/// What a packet set remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Known {
    /// The era in which this was found: a number that changes with neighbours, interfaces and routes.
    era: u64,
    /// When the lookup must be repeated even in the same era.
    due_ns: u64,
    /// Where the neighbour is.
    at: Station,
    from: Link,
    to: Link,
    mtu: u16,
    /// [`BY_PORTS`], [`COUNTS`], and above them the number of the table that said so.
    marks: u8,
    /// The port of arrival, its lower byte: a station of a link with several ports may move.
    came_by: u8,
}

/// The next hop was chosen by ports; fragments may take a different one.
const BY_PORTS: u8 = 1;
/// The packets' hop count is decremented here.
const COUNTS: u8 = 2;
/// The bits below are marks, those from here on the number of a table.
const TABLE_AT: u8 = 2;

/// Which packets' hop counts are decremented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hops {
    /// Those of all.
    All,
    /// Of none: a translator beside this router decrements them.
    None,
    /// Of those that neither come from nor go to a link with addresses of the translator ([`Interface::translated`]).
    Untranslated,
}

braid_nf::plain!(Hops);

impl FromConfig for Router {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Router, ConfigError> {
        let (config, sees_addresses) = (config.completed(), builder.sees_addresses());
        let translates_some = builder.translator_is_conditional();
        let interfaces = config.interfaces(ports, &|port| builder.mtu(port))?;
        let (tables, spreads) = config.routes(&interfaces)?;
        let written = format!("{interfaces:?} {:?} {:?}", config.routes, config.rules);
        let choices = spreads.iter().flat_map(|spread| spread.from(0)).collect();
        let (most, waiting, lifetime_ns) = (config.most()?, config.waiting_max, config.lifetime_ns()?);
        let neighbours = Neighbours::new((builder, ports), most, waiting, lifetime_ns, choices);
        let fixed = config.fixed(&interfaces, ports)?;
        // Consecutive routers choose differently, and adding or removing other interfaces moves no connection.
        let own = interfaces.iter().flatten().next().map_or([0; 6], |first| first.mac.0);
        let advertisements = Advertisements::new(builder, &interfaces)?;
        let announced = Announced::new(builder, &interfaces)?;
        let errors = Errors::new(builder, (config.icmp_errors_per_s, ports), &interfaces)?;
        Ok(Router {
            links: Links::new(interfaces, ports),
            tables,
            spreads,
            hash: config.hash,
            neighbours: neighbours?,
            conflicts: Conflicts::new(builder).map_err(|error| ConfigError::state("interface", &error))?,
            fixed,
            errors,
            reassembly: Reassembly::new(builder, config.reassembly_max)?,
            advertisements,
            announced,
            promiscuous: config.promiscuous,
            sees_addresses,
            hops: match config.counts_hops {
                true => Hops::All,
                false if translates_some && config.interfaces.iter().any(|one| !one.translated.is_empty()) => {
                    Hops::Untranslated
                }
                false => Hops::None,
            },
            source_routes: config.source_routes,
            redirects: config.redirects,
            clamp_mss: config.clamp_mss,
            seed: mixed(&own, 0),
            fingerprint: mixed(written.as_bytes(), 0),
        })
    }
}

impl NetworkFunction for Router {
    type Set = Known;
    const NAME: &'static str = "router";
    const CONSUMES: &'static [Reason] = &[
        WAITS,
        local::reassembly::WAITS,
        local::ARP,
        local::DISCOVERY,
        local::MEMBERSHIP_QUERY,
        local::FOR_ROUTER,
        advertise::SOLICITATION,
    ];

    /// Neighbours are kept; sets repeat the lookup if interfaces or routes have changed.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if self.fixed != older.fixed {
            return Err("neighbours that are written down stand in the table: `neighbour` stays".to_owned());
        }
        if self.hash != older.hash {
            return Err("which packets are one set follows from it: `hash` stays".to_owned());
        }
        Ok(())
    }

    /// Packets between two hosts keep their order, fragments included. With `hash = "ports"` only those of a connection do.
    fn packet_set(&self) -> Option<SetDef> {
        Some(match self.hash {
            Hash::Addresses => SetDef::new("address pair", &[FieldId::IpSrc, FieldId::IpDst]),
            Hash::Ports => SetDef::five_tuple(),
        })
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.neighbours.report(cx, into)?;
        self.conflicts.report(cx, into)?;
        self.reassembly.report(cx, into)?;
        self.errors.report(cx, into)
    }

    /// Where packets go.
    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, known: &Known) -> Result<Option<String>, Conflict> {
        let is_over = cx.now() >= known.due_ns || self.era(cx)? != known.era;
        let way = self.links.get(known.to).map(|out| {
            let vlan = out.vlan.map_or_else(String::new, |vlan| format!(", vlan {vlan}"));
            let table = self.tables.name(known.marks >> TABLE_AT);
            let table = table.map_or_else(String::new, |name| format!(", table {name}"));
            format!("to {} by port {}{vlan}{table}", MacAddress(known.at.mac), known.at.port)
        });
        Ok(way.map(|way| if is_over { way + ", to be looked up again" } else { way }))
    }

    fn link_down(&self, cx: &mut Cx<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        self.neighbours.link_down(cx, port, range)
    }

    fn link_up(&self, cx: &mut Cx<'_>, port: Port) -> Result<(), Conflict> {
        self.neighbours.link_up(cx, port)?;
        self.announced.link_up(cx, &self.links, port)?;
        let mut here = self.links.numbered().filter(|(_, one)| one.has_port(port));
        here.try_for_each(|(link, _)| self.advertisements.iter().try_for_each(|own| own.hasten(cx, link)))
    }

    const LISTS_ENTRIES: bool = true;

    fn list_entries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.neighbours.list(cx, range, tell)
    }

    fn rewrites(&self) -> Rewrites {
        use FieldId::*;
        match self.links.have_vlans() {
            false => Rewrites::of(&[EthSrc, EthDst]),
            true => Rewrites::of(&[EthSrc, EthDst, VlanId, Segment]),
        }
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn timeout_ns(&self, _: &Known) -> u64 {
        60 * crate::parts::SECOND
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![neighbours::SWEEP_EVERY]
    }

    fn start(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.fixed.iter().try_for_each(|Fixed(hop, at)| self.neighbours.fix(cx, *hop, *at))
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Known>) -> Handled {
        let mut known = Known::default();
        let verdict = self.route(cx, packet, &mut known)?;
        if known.due_ns > cx.now() {
            // If there is no room for the set, its packets repeat the lookup: slower, but correct.
            let _ = set.register(cx, known);
        }
        Ok(verdict)
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, known: &mut Known) -> Handled {
        let goes_apart = known.marks & BY_PORTS & u8::from(packet.is_fragment());
        let link = self.links.of(packet);
        let same = (link == known.from) & (packet.port() as u8 == known.came_by) & (cx.now() < known.due_ns);
        let counts = known.marks & COUNTS != 0;
        let is_known = same & (goes_apart == 0);
        if !is_known || !self.is_ordinary(packet, link, (known.mtu, counts)) || self.era(cx)? != known.era {
            return self.route(cx, packet, known);
        }
        Ok(self.forward(packet, (known.to, known.at), counts))
    }

    /// Handles ARP, and drops what no router forwards.
    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let link = self.links.of(packet);
        match self.links.get(link) {
            None => Ok(Verdict::Drop(NO_INTERFACE)),
            Some(interface) => match packet.arp().copied() {
                Some(_) if !self.hears(interface, packet) => Ok(Verdict::Drop(objections::OTHER_STATION)),
                Some(arp) => self.arp(cx, interface, (packet.port(), &arp)),
                None if is_damaged_ip(packet) => Ok(Verdict::Drop(Reason::MALFORMED)),
                None => Ok(Verdict::Drop(objections::NOT_IP)),
            },
        }
    }

    const HOLDS: bool = true;
    const ASKS_PORT: bool = false;

    const TURNS_BACK: bool = true;

    /// The answer arrives as a frame for the next station, and goes to the one that its cause came from.
    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let link = self.links.of(packet);
        match self.links.get(link) {
            Some(interface) => self.find_way(cx, packet, &mut Known::default(), (link, interface)),
            None => Ok(Verdict::Drop(NO_INTERFACE)),
        }
    }

    /// What waits for neighbours, and pieces for the router itself.
    fn holds(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let due_ns = [self.neighbours.due_ns(cx)?, self.reassembly.due_ns(cx)?];
        Ok(due_ns.into_iter().flatten().min())
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.neighbours.held_in_vain()
    }

    /// Forgets old neighbours. Asks again for those that have been asked and have not answered, for those that packets wait for, and for
    /// those among several next hops that are silent. Gives up datagrams whose fragments have not all arrived.
    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        self.neighbours.sweep(cx)?;
        for hop in self.neighbours.doubtful(cx)? {
            self.resolve(cx, hop, None)?;
        }
        for hop in self.neighbours.waited_for(cx)? {
            let resolved = self.resolve(cx, hop, None)?;
            for held in self.neighbours.give_up(cx, hop, resolved)? {
                let (port, vlan) = held.came_by();
                if let Some(came) = self.links.get(self.links.at(port, vlan))
                    && let Some(cause) = held.cause(hop.port)
                {
                    self.errors.send_about(cx, cause, came, Complaint::HostAbsent)?;
                }
            }
        }
        let advertisements = self.advertisements.as_ref();
        self.announced.tick(cx, (&self.links, &self.neighbours), advertisements)?;
        advertisements.iter().try_for_each(|own| own.tick(cx, &self.links))?;
        let expired = self.reassembly.sweep(cx)?;
        self.tell_expired(cx, &expired)?;
        for hop in self.spreads.iter().flat_map(|spread| spread.from(0)) {
            if self.neighbours.is_missed(cx, hop)? {
                self.resolve(cx, hop, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
